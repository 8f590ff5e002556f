//! The source of `empty-items` and `slow-samples`: the numbers 0, 1, 2, ….

use std::time::Duration;

use anyhow::{Result, ensure};
use slotline::BoxError;
use slotline::dataset::{Context, Dataset};
use slotline::loader::BatchOf;

use super::{Source, sum, sum_below};

/// The numbers from 0. If `SLEEPS` is set, reading every sixteenth one sleeps for 50 ms, and
/// reading the others sleeps for 1 ms.
#[derive(Clone, Copy, Debug)]
pub struct Numbers<const SLEEPS: bool> {
    /// The number of items.
    pub count: usize,
}

impl<const SLEEPS: bool> Numbers<SLEEPS> {
    #[inline]
    fn item(index: usize) -> i64 {
        if SLEEPS {
            std::thread::sleep(Duration::from_millis(if index.is_multiple_of(16) { 50 } else { 1 }));
        }
        index as i64
    }

    fn compare(&self, batch: &[i64]) -> Result<()> {
        ensure!(batch.iter().all(|item| (0..self.count as i64).contains(item)), "a number is out of range: {batch:?}");
        Ok(())
    }
}

impl<const SLEEPS: bool> Source for Numbers<SLEEPS> {
    type Item = i64;
    type Batch = Vec<i64>;
    type Data = Self;

    fn len(&self) -> usize {
        self.count
    }

    #[inline]
    fn get(&self, index: usize) -> i64 {
        Self::item(index)
    }

    #[inline]
    fn collate(&self, items: impl ExactSizeIterator<Item = i64>) -> Vec<i64> {
        items.collect()
    }

    #[inline]
    fn check(&self, batch: &Vec<i64>) -> u64 {
        sum(batch)
    }

    fn verify(&self, batch: &Vec<i64>) -> Result<()> {
        self.compare(batch)
    }

    fn dataset(&self) -> Self {
        *self
    }

    #[inline]
    fn check_ours(&self, batch: &BatchOf<Self>) -> u64 {
        sum(batch.tensors().as_slice())
    }

    fn verify_ours(&self, batch: &BatchOf<Self>) -> Result<()> {
        self.compare(batch.tensors().as_slice())
    }

    /// Programs in Python have fewer items, in batches of one, so their checksum depends on the
    /// number of batches.
    fn total_of(&self, batches: u64) -> Option<u64> {
        (!SLEEPS).then(|| sum_below(batches))
    }
}

impl<const SLEEPS: bool> Dataset for Numbers<SLEEPS> {
    type Sample<'a> = i64;

    fn len(&self) -> usize {
        self.count
    }

    #[inline]
    fn get<'a>(&'a self, index: usize, _: &'a mut Context) -> Result<i64, BoxError> {
        Ok(Self::item(index))
    }
}
