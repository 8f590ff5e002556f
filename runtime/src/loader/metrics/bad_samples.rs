//! The bad samples that were seen, readable by all threads.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{PoisonError, TryLockError};

use crate::fork::Process;
use crate::loader::error::run::By;
use crate::sync::{Mutex, MutexGuard};

/// A sample that was skipped or replaced, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct BadSample {
    /// The sample's index; in an iterable dataset, its number in the worker's stream.
    pub index: usize,
    /// The batch that it was for.
    pub batch: usize,
    /// The thread that read it.
    pub by: By,
    /// The error with its sources, or the message of the panic; at most 512 bytes.
    pub message: String,
}

/// The bad samples, shared between the loader and the readers of its statistics.
#[derive(Debug, Default)]
pub(crate) struct BadSampleReport {
    process: Process,
    known: Mutex<BadSampleRecord>,
}

/// The bad samples of all passes.
#[derive(Clone, Debug, Default)]
pub(crate) struct BadSampleRecord {
    pub(crate) total: usize,
    /// Indices that were reported, each with its worker if workers have replicas.
    pub(crate) known: BTreeSet<(usize, usize)>,
    /// The most recent bad samples.
    pub(crate) last: VecDeque<BadSample>,
}

impl BadSampleReport {
    /// Returns a copy of the record.
    pub(crate) fn read(&self) -> BadSampleRecord {
        self.lock().map(|met| met.clone()).unwrap_or_default()
    }

    /// Locks the record. Returns `None` in a forked process if another thread held the lock at the fork, since it stays
    /// locked there.
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

impl BadSampleRecord {
    /// The indices of the bad samples.
    pub(crate) fn indices(&self) -> impl Iterator<Item = usize> {
        self.known.iter().map(|&(_, index)| index)
    }
}
