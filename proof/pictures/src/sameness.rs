//! Checks that batches are the same, whichever thread or worker loads them.

use std::hash::{DefaultHasher, Hash, Hasher};

use anyhow::{Result, ensure};
use slotline::loader::{BatchOf, State};

use crate::folder::{Folder, SIDE, Shuffled, WorkerKind};

/// The number of passes that are compared.
const PASSES: usize = 2;
const ALONE: [usize; 2] = [0, 1];

/// A number for each sample of a batch: a hash of its pixels, bit by bit, and its class.
type Digests = Vec<u64>;

fn digests(batch: &BatchOf<Folder>) -> Digests {
    let (images, classes) = batch.tensors();
    let rows = images.as_slice().chunks_exact(3 * SIDE * SIDE).zip(classes.as_slice());
    rows.map(|(pixels, class)| {
        let mut hasher = DefaultHasher::new();
        pixels.iter().for_each(|pixel| pixel.to_bits().hash(&mut hasher));
        class.hash(&mut hasher);
        hasher.finish()
    })
    .collect()
}

/// Returns the digests of the batches of some passes.
fn passes(mut loader: Shuffled) -> Result<Vec<Digests>> {
    let mut all = Vec::new();
    for _ in 0..PASSES {
        for batch in loader.pass()? {
            all.push(digests(&batch?));
        }
    }
    Ok(all)
}

/// Compares loaders of all kinds with one without workers.
pub fn check(folder: &Folder, batch_size: usize) -> Result<()> {
    let load = |kind, rank| passes(Shuffled::new(folder, batch_size, kind, rank)?);
    let expected = load(WorkerKind::Threads(0), ALONE)?;
    let all: std::collections::HashSet<u64> = expected.iter().flatten().copied().collect();
    // The digests of two samples may be equal: crops without detail may both become white.
    let twice = expected.len() * batch_size - all.len();
    ensure!(twice <= all.len() / 100, "{twice} pictures look the same as another one: nothing was drawn");
    let same = |what: &str, found: Vec<Digests>| {
        ensure!(found == expected, "{what} gave other batches");
        println!("{what}: the same {} batches", found.len());
        Ok(())
    };
    same("two workers", load(WorkerKind::Threads(2), ALONE)?)?;
    same("two worker processes", load(WorkerKind::Processes(2), ALONE)?)?;

    let [first, second] = [load(WorkerKind::Threads(1), [0, 2])?, load(WorkerKind::Threads(2), [1, 2])?];
    ensure!(first.len() == second.len(), "one of two ranks has more batches");
    // The ranks take the samples in turn, so their batches are merged in turn.
    let union = |(first, second): (Digests, Digests)| first.into_iter().zip(second).flat_map(|(a, b)| [a, b]).collect();
    same("two ranks together", first.into_iter().zip(second).map(union).collect())?;

    // Interrupt in the middle of the second pass, and resume with other workers.
    let stop = expected.len() * 3 / 4;
    let mut found = Vec::new();
    let state = {
        let mut loader = Shuffled::new(folder, batch_size, WorkerKind::Threads(2), ALONE)?;
        'passes: loop {
            let mut pass = loader.pass()?;
            while let Some(batch) = pass.next() {
                found.push(digests(&batch?));
                if found.len() == stop {
                    break 'passes serde_json::to_string(&pass.state())?;
                }
            }
        }
    };
    let mut loader = Shuffled::new(folder, batch_size, WorkerKind::Processes(1), ALONE)?;
    loader.loader.load_state(&serde_json::from_str::<State>(&state)?)?;
    for batch in loader.pass()? {
        found.push(digests(&batch?));
    }
    same("interrupted and resumed", found)
}
