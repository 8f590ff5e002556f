//! Samples without an index: lines of files, which workers share among them.
//!
//! `cargo run --example streaming`

use std::fs::File;
use std::io::{BufRead, BufReader, Lines};
use std::path::PathBuf;

use slotline::dataset::{Context, IterableDataset};
use slotline::{BoxError, Loader, WorkerInfo};

/// Measurements, a line each ("3 20.5" is sensor 3 at 20.5 degrees), in any number of files.
struct Measurements {
    files: Vec<PathBuf>,
}

/// How far one worker has read.
struct Cursor {
    /// Files to come, the next one last.
    files: Vec<PathBuf>,
    open: Option<Lines<BufReader<File>>>,
}

impl IterableDataset for Measurements {
    type Sample<'a> = (i64, f32);
    type Cursor = Cursor;

    // Called once in each worker at the start of a pass; without workers, with `None`.
    fn iter(&self, worker: Option<WorkerInfo>) -> Result<Cursor, BoxError> {
        // Each worker gets other files. If all got all of them, each sample would come once for each worker.
        let (id, workers) = worker.map_or((0, 1), |worker| (worker.id(), worker.num_workers()));
        let files: Vec<_> = self.files.iter().skip(id).step_by(workers).rev().cloned().collect();
        Ok(Cursor { files, open: None })
    }

    // `None` is the end of this worker's part.
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

    // With `save` and `resume`, too, a loader could go on in the middle of a file; without, it reads again from the start.
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
        println!("{num_workers} workers: {} samples, of sensors {:?} first", seen.len(), &seen[..3]);
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..500), "each line comes once");
    }
    Ok(())
}
