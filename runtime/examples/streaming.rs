//! An iterable dataset over the lines of files, which are divided among the workers.
//!
//! `cargo run --example streaming`

use std::fs::File;
use std::io::{BufRead, BufReader, Lines};
use std::path::PathBuf;

use slotline::dataset::{Context, IterableDataset};
use slotline::{BoxError, Loader, WorkerInfo};

/// Measurements in any number of files, one per line: "3 20.5" means that sensor 3 measured 20.5
/// degrees.
struct Measurements {
    files: Vec<PathBuf>,
}

/// The position of one worker in its files.
struct Cursor {
    /// The files that are left, with the next one at the end.
    files: Vec<PathBuf>,
    open: Option<Lines<BufReader<File>>>,
}

impl IterableDataset for Measurements {
    type Sample<'a> = (i64, f32);
    type Cursor = Cursor;

    // Called in each worker at the start of a pass, or once with `None` if there are no workers.
    fn iter(&self, worker: Option<WorkerInfo>) -> Result<Cursor, BoxError> {
        // Each worker gets different files. Otherwise each sample would be read once per worker.
        let (id, workers) = worker.map_or((0, 1), |worker| (worker.id(), worker.num_workers()));
        let files: Vec<_> = self.files.iter().skip(id).step_by(workers).rev().cloned().collect();
        Ok(Cursor { files, open: None })
    }

    // `None` means that this worker has no more samples.
    fn next<'a>(&'a self, cursor: &'a mut Cursor, _: &'a mut Context) -> Result<Option<(i64, f32)>, BoxError> {
        loop {
            if let Some(line) = cursor.open.as_mut().and_then(Iterator::next) {
                let line = line?;
                let (sensor, degrees) = line.split_once(' ').ok_or("expected a sensor and a temperature")?;
                return Ok(Some((sensor.parse()?, degrees.parse()?)));
            }
            let Some(file) = cursor.files.pop() else { return Ok(None) };
            cursor.open = Some(BufReader::new(File::open(file)?).lines());
        }
    }

    // If `save` and `resume` were implemented, a loader could resume in the middle of a file.
    // Without them it reads the files again from the start.
}

fn main() -> Result<(), BoxError> {
    let folder = tempfile::tempdir()?;
    let mut files = Vec::new();
    for file in 0..5 {
        let path = folder.path().join(format!("{file}.txt"));
        let lines: String = (0..100).map(|line| format!("{} {}.5\n", file * 100 + line, line % 30)).collect();
        std::fs::write(&path, lines)?;
        files.push(path);
    }

    for num_workers in [0, 1, 3] {
        let dataset = Measurements { files: files.clone() };
        let mut loader = Loader::iterable(dataset).batch_size(32).num_workers(num_workers).build()?;
        let mut seen = Vec::new();
        for batch in loader.epoch()? {
            let batch = batch?;
            let (sensors, degrees) = batch.tensors();
            assert_eq!(sensors.len(), degrees.len());
            seen.extend_from_slice(sensors.as_slice());
        }
        println!("{num_workers} workers: {} samples, the first from sensors {:?}", seen.len(), &seen[..3]);
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..500), "each line comes once");
    }
    Ok(())
}
