//! `empty-items`: items that cost nothing, in batches of 1, which measures only the loader.

use anyhow::{Result, ensure};
use slotline::Loader;
use slotline::dataset::from_fn;

use super::{Plan, Setup, Source};
use crate::peer::ours::{self, Crew};
use crate::peer::{external, rust_peers};
use crate::record::Unit;
use crate::rounds::{Contender, Entry, Heat, Recorder};

/// The numbers from 0.
#[derive(Clone, Copy, Debug)]
pub struct Numbers {
    /// The number of items.
    pub count: usize,
}

/// The numbers of the workload.
pub const NUMBERS: Numbers = Numbers { count: 200_000 };

impl Source for Numbers {
    type Item = i64;
    type Batch = Vec<i64>;

    fn len(&self) -> usize {
        self.count
    }

    #[inline]
    fn get(&self, index: usize) -> i64 {
        index as i64
    }

    #[inline]
    fn collate(&self, items: impl ExactSizeIterator<Item = i64>) -> Vec<i64> {
        items.collect()
    }

    #[inline]
    fn check(batch: &Vec<i64>) -> u64 {
        batch.iter().sum::<i64>() as u64
    }

    fn verify(&self, batch: &Vec<i64>) -> Result<()> {
        ensure!(batch.iter().all(|item| (0..self.count as i64).contains(item)), "a number is out of range: {batch:?}");
        Ok(())
    }

    fn total(&self) -> u64 {
        sum_below(self.count as u64)
    }
}

/// Returns the sum of the numbers below `end`.
pub fn sum_below(end: u64) -> u64 {
    end * end.saturating_sub(1) / 2
}

/// Returns slotline's contender.
pub fn ours(plan: &Plan, crew: Crew) -> Result<impl Contender + use<>> {
    ours::contender(
        crew.build(Loader::builder(from_fn(NUMBERS.count, |index, _| Ok(index as i64))).num_workers(plan.workers))?,
        (plan.batches(NUMBERS.count), NUMBERS.total()),
        |batch| batch.tensors().as_slice()[0] as u64,
        |batch| NUMBERS.verify(&batch.tensors().as_slice().to_vec()),
    )
}

/// Returns entries for slotline and the peers written in Rust.
pub fn entries(workers: usize) -> Vec<Entry> {
    let plan = Plan::new(1, workers);
    let mut entries = vec![ours::entry(ours(&plan, Crew::Default))];
    entries.extend(rust_peers(&NUMBERS, &plan));
    entries
}

/// Runs the heats of this workload.
pub fn run(setup: &Setup, recorder: &mut Recorder) -> Result<()> {
    for &workers in &setup.workers {
        let mut entries = entries(workers);
        entries.extend(ours::variants(workers, |crew| ours(&Plan::new(1, workers), crew)));
        entries.extend(external::entries(setup, "empty-items", workers, |batches| {
            (batches as f64, Some(sum_below(batches)))
        }));
        recorder.heat(Heat { case: String::new(), workers, unit: Unit::MicrosPerBatch, entries });
    }
    Ok(())
}
