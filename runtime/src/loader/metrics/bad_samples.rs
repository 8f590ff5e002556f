//! The bad samples that were met, for anybody to read.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{PoisonError, TryLockError};

use crate::fork::Process;
use crate::loader::error::run::By;
use crate::sync::{Mutex, MutexGuard};

/// What was wrong with a sample that was skipped or replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct BadSample {
    /// Its index; of an iterable dataset its number in what the worker reads.
    pub index: usize,
    /// The batch that it was for.
    pub batch: usize,
    /// Who read it.
    pub by: By,
    /// The error and its sources, or the panic, in words; at most 512 bytes of it.
    pub message: String,
}

/// What anybody may read of the bad samples.
#[derive(Debug, Default)]
pub(crate) struct BadSampleReport {
    process: Process,
    known: Mutex<BadSampleRecord>,
}

/// The bad samples of all passes.
#[derive(Clone, Debug, Default)]
pub(crate) struct BadSampleRecord {
    pub(crate) total: usize,
    /// Indices that were reported, with the worker whose they are.
    pub(crate) known: BTreeSet<(usize, usize)>,
    /// The last ones.
    pub(crate) last: VecDeque<BadSample>,
}

impl BadSampleReport {
    /// What there is.
    pub(crate) fn read(&self) -> BadSampleRecord {
        self.lock().map(|met| met.clone()).unwrap_or_default()
    }

    /// `None` in a process that was forked from the loader's while another thread held the lock, which stays locked there.
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
    /// Their indices.
    pub(crate) fn indices(&self) -> impl Iterator<Item = usize> {
        self.known.iter().map(|&(_, index)| index)
    }
}
