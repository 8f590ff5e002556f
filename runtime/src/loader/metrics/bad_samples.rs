//! The bad samples that a loader has met, readable by all threads.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{PoisonError, TryLockError};

use crate::fork::Process;
use crate::loader::error::run::By;
use crate::rng::SampleRng;
use crate::rng::rand_core::Rng;
use crate::sync::{Mutex, MutexGuard};

/// A sample that was skipped or replaced, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct BadSample {
    /// The sample's index; in an iterable dataset, its number in the worker's stream.
    pub index: usize,
    /// The number of the sample's batch, from 0.
    pub batch: usize,
    /// The thread that read the sample.
    pub by: By,
    /// The error with its sources, or the message of the panic; at most 512 bytes.
    pub message: String,
}

/// The record of bad samples, shared between the loader and the readers of its statistics.
#[derive(Debug, Default)]
pub(crate) struct BadSampleReport {
    process: Process,
    known: Mutex<BadSampleRecord>,
}

/// The bad samples of all passes.
#[derive(Clone, Debug, Default)]
pub(crate) struct BadSampleRecord {
    pub(crate) total: usize,
    /// The bad samples that are kept, as worker and index: the first `MAX` ones, and those in
    /// `later`. (The worker is 0, unless each worker reads its own part of an iterable dataset.)
    known: BTreeSet<(usize, usize)>,
    later: Vec<(usize, usize)>,
    /// The most recent bad samples.
    pub(crate) last: VecDeque<BadSample>,
}

impl BadSampleReport {
    /// Returns a copy of the record.
    pub(crate) fn read(&self) -> BadSampleRecord {
        self.lock().map(|met| met.clone()).unwrap_or_default()
    }

    /// Locks the record. Returns `None` in a forked process if another thread held the lock when
    /// the process forked: the lock is then never released.
    pub(crate) fn lock(&self) -> Option<MutexGuard<'_, BadSampleRecord>> {
        if self.process.is_this() {
            return Some(self.known.lock().unwrap_or_else(PoisonError::into_inner));
        }
        match self.known.try_lock() {
            Ok(met) => Some(met),
            Err(TryLockError::Poisoned(met)) => Some(met.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// The number of bad samples that are kept: the first `MAX` ones, and `MAX` of the later ones, each
/// with the same chance.
const MAX: usize = 1000;

impl BadSampleRecord {
    /// Decides whether to keep a bad sample, the `total`-th one. Returns whether to report the
    /// sample: `true` if it is kept and was not kept before.
    pub(crate) fn keep(&mut self, sample: (usize, usize)) -> bool {
        if self.known.len() >= MAX && !self.known.contains(&sample) {
            let at = (SampleRng::new(0, 0, self.total as u64).next_u64() % (self.total - MAX) as u64) as usize;
            if self.later.len() < MAX {
                self.later.push(sample);
            } else if at < MAX {
                self.known.remove(&std::mem::replace(&mut self.later[at], sample));
            } else {
                return false;
            }
        }
        self.known.insert(sample)
    }

    /// The indices of the bad samples that are kept.
    pub(crate) fn indices(&self) -> impl Iterator<Item = usize> {
        self.known.iter().map(|&(_, index)| index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bad_samples_are_kept_and_some_of_the_others() {
        let mut record = BadSampleRecord::default();
        let mut reported = 0;
        for sample in (0..100_000).flat_map(|index| [index, index]) {
            record.total += 1;
            reported += usize::from(record.keep((0, sample)));
        }
        let kept: Vec<usize> = record.indices().collect();
        assert!(kept.iter().take(MAX).copied().eq(0..MAX));
        assert!(kept.len() <= 2 * MAX && kept.len() > 2 * MAX - 50, "{}", kept.len());
        let mean = kept[MAX..].iter().sum::<usize>() / (kept.len() - MAX);
        assert!((45_000..55_000).contains(&mean), "{mean}");
        assert!(reported < 15_000, "{reported}");
    }
}
