//! What becomes of bad samples, and the account that is kept of them.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, PoisonError, TryLockError};

use serde::Serialize;

use super::collate::Storage;
use super::error::{BuildError, By, Error};
use super::options::{Kind, clash};
use super::slab::Lease;
use super::spans;
use super::stats::Tally;
use super::work::{Bad, Failure, Trouble, dispose, dispose_each, quietly};
use crate::fork::Process;
use crate::sync::{Mutex, MutexGuard};

/// What a loader does about a bad sample: one that cannot be read, or cannot be written into its row, because of an error or
/// a panic. A [collate](super::Builder::collate) function that fails has made a bad batch, and that always raises.
///
/// ```
/// use slotline::Loader;
/// use slotline::dataset::from_fn;
/// use slotline::loader::{Budget, OnError};
///
/// let numbers = || from_fn(6, |index, _| if index == 2 { Err("scratched".into()) } else { Ok(index as i64) });
/// let skip = OnError::Skip(Budget::Share(0.2));
/// let mut loader = Loader::builder(numbers()).batch_size(3).on_error(skip).build()?;
/// let batches: Result<Vec<_>, slotline::Error> = loader.epoch()?.map(|batch| Ok(batch?.indices().to_vec())).collect();
/// assert_eq!(batches?, [vec![0, 1], vec![3, 4, 5]]);
///
/// let replace = OnError::Replace(Budget::Samples(10));
/// let mut loader = Loader::builder(numbers()).batch_size(3).seed(7).on_error(replace).build()?;
/// for batch in loader.epoch()? {
///     assert_eq!(batch?.len(), 3);
/// }
/// assert_eq!(loader.stats().bad_indices, [2]);
/// # Ok::<(), slotline::BoxError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum OnError {
    /// The batch becomes an error that names the sample: [`Error::Sample`] or [`Error::Panic`].
    #[default]
    Raise,
    /// The batch goes without it, and is that much shorter; if nothing is left of it, it is passed over. Of an iterable
    /// dataset the next sample takes its place.
    Skip(Budget),
    /// Another sample takes its place: its index is a function of the seed, the pass, the position, and how often a
    /// substitute was bad itself, so that batches keep their number and sizes, on every rank. After 8 bad substitutes the
    /// batch becomes an [`Error::Sample`]. Not for iterable datasets.
    Replace(Budget),
}

/// How many bad samples a pass may have, before batches with more of them become [`Error::BadSamples`].
///
/// They are counted when their batches are delivered, errors among these, in that order: so with
/// [`in_order(false)`](super::Builder::in_order) it may be another batch each time that goes beyond the budget. A bad
/// substitute counts as well.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Budget {
    /// So many.
    Samples(usize),
    /// This share of the pass's samples, from 0 to 1, rounded down. The length of a pass must be known, as it is not with
    /// an iterator of indices, or over an iterable dataset that does not say its length.
    Share(f64),
}

impl OnError {
    /// Whether a batch that has a bad sample is an error, whatever came before.
    #[inline]
    pub(super) fn is_raise(self) -> bool {
        self == Self::Raise
    }

    fn budget(self) -> Budget {
        match self {
            Self::Raise => Budget::Samples(0),
            Self::Skip(budget) | Self::Replace(budget) => budget,
        }
    }

    /// Checks that it goes with the loader's kind, and with what is `known` of a pass's length.
    pub(super) fn check(self, kind: Kind, known: bool) -> Result<(), BuildError> {
        if kind == Kind::Iterable && matches!(self, Self::Replace(_)) {
            let hint = "what has no index cannot be replaced by another; take OnError::Skip";
            return clash("an iterable dataset", "OnError::Replace", hint);
        }
        match self.budget() {
            Budget::Share(share) if !(0.0..=1.0).contains(&share) => Err(BuildError::Share { share }),
            Budget::Share(_) if !known => {
                let hint = "how many samples that is, is not known beforehand; take Budget::Samples";
                clash("Budget::Share", "a pass of unknown length", hint)
            }
            _ => Ok(()),
        }
    }
}

impl Budget {
    /// How many samples of `pass` ones it is, if that is known.
    fn of(self, pass: Option<usize>) -> usize {
        match self {
            Self::Samples(samples) => samples,
            Self::Share(share) => {
                let pass = pass.unwrap_or_default();
                // 0.29 is a little less than 29 %, and of 100 samples 29 are meant all the same.
                let samples = share * pass as f64 * (1.0 + 4.0 * f64::EPSILON);
                (samples as usize).min(pass)
            }
        }
    }
}

/// What was wrong with a sample that was skipped or replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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

/// The bad samples that a loader has met.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    on_error: OnError,
    /// Whether each worker reads a replica of its own, with numbers for indices.
    replicas: bool,
    /// In this pass, and how many there may be.
    bad: usize,
    budget: usize,
    report: Arc<Report>,
}

/// What anybody may read of the bad samples.
#[derive(Debug, Default)]
pub(super) struct Report {
    process: Process,
    known: Mutex<Met>,
}

/// The bad samples of all passes.
#[derive(Clone, Debug, Default)]
pub(super) struct Met {
    pub(super) total: usize,
    /// Indices that were reported, with the worker whose they are.
    known: BTreeSet<(usize, usize)>,
    /// The last ones.
    pub(super) last: VecDeque<BadSample>,
}

/// So many of the last bad samples keep their causes, and so many bytes of each.
const LAST: usize = 8;
const MESSAGE: usize = 512;

impl Report {
    /// What there is.
    pub(super) fn read(&self) -> Met {
        self.lock().map(|met| met.clone()).unwrap_or_default()
    }

    /// `None` in a process that was forked from the loader's while another thread held the lock, which stays locked there.
    fn lock(&self) -> Option<MutexGuard<'_, Met>> {
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

impl Met {
    /// Their indices.
    pub(super) fn indices(&self) -> impl Iterator<Item = usize> {
        self.known.iter().map(|&(_, index)| index)
    }
}

impl Ledger {
    pub(super) fn new(on_error: OnError, replicas: bool) -> Self {
        Self { on_error, replicas, ..Self::default() }
    }

    /// Begins a pass of so many samples, if that is known, with so many bad ones before its rest; gives the budget.
    pub(super) fn begin(&mut self, pass: Option<usize>, bad: usize) -> usize {
        (self.bad, self.budget) = (bad, self.on_error.budget().of(pass));
        self.budget
    }

    /// Whether each worker reads a replica of its own, with numbers for indices.
    pub(super) fn replicas(&self) -> bool {
        self.replicas
    }

    /// How many bad samples were met in this pass.
    pub(super) fn in_pass(&self) -> usize {
        self.bad
    }

    /// What anybody may read.
    pub(super) fn report(&self) -> &Arc<Report> {
        &self.report
    }

    /// What is delivered in the place of a batch that has met trouble: what is left of it, or an error; with nothing left,
    /// nothing. Counts its bad samples.
    pub(super) fn settle<P: Storage>(&mut self, lease: Lease<P>, tally: &mut Tally) -> Option<Result<Lease<P>, Error>> {
        let tag = lease.tag();
        match self.count(lease.work().take_trouble(), tag.task) {
            Ok(empty) => {
                // SAFETY: nobody else has the lease, and it is of a batch of so many rows, written or left empty.
                unsafe { lease.payload().close_up(&empty, tag.rows) };
                let rows = tag.rows - empty.len();
                if rows == 0 {
                    return None;
                }
                lease.describe(tag.task, rows, tag.epoch);
                tally.count(&lease, rows);
                Some(Ok(lease))
            }
            Err(error) => {
                // A panic there is reported as any panic is.
                quietly(|| lease.payload().discard());
                tally.fail();
                Some(Err(error))
            }
        }
    }

    /// Counts the bad samples of a batch: the rows that they left empty, or the batch's error.
    fn count(&mut self, mut trouble: Trouble, task: usize) -> Result<Vec<usize>, Error> {
        let (failure, mut bad) = (trouble.failure.take(), std::mem::take(&mut trouble.bad));
        // Parts come in any order. Of one position all is one part's, and in order.
        bad.sort_by_key(|bad| bad.failure.position);
        if let Some(failure) = &failure {
            // What other parts met after it must not matter, as with fewer parts nobody would have looked.
            let after = bad.partition_point(|bad| bad.failure.position <= failure.position);
            dispose_each(bad.drain(after..));
        }
        let (mut empty, mut beyond) = (Vec::new(), None);
        for Bad { failure, row } in bad {
            self.bad = self.bad.saturating_add(1);
            self.note(&failure, task);
            empty.extend(row);
            if self.bad > self.budget && beyond.is_none() {
                beyond = Some(Box::new(failure.into_error(task)));
            } else {
                dispose(failure);
            }
        }
        match (beyond, failure) {
            (Some(source), failure) => {
                dispose(failure);
                Err(Error::BadSamples { bad: self.bad, budget: self.budget, source })
            }
            (None, Some(failure)) => Err(failure.into_error(task)),
            (None, None) => Ok(empty),
        }
    }

    /// Says which sample is bad, once, and keeps why.
    fn note(&mut self, failure: &Failure, task: usize) {
        let Failure { position, index, by, cause } = failure;
        let replica = match by {
            By::Worker(id) if self.replicas => *id,
            _ => 0,
        };
        let mut message = cause.with_sources();
        message.truncate(message.floor_char_boundary(MESSAGE));
        let sample = BadSample { index: *index, batch: task, by: *by, message };
        // The message comes before the lock, and the user's subscriber after it.
        let Some(mut met) = self.report.lock() else { return };
        met.total = met.total.saturating_add(1);
        if met.last.len() == LAST {
            met.last.pop_front();
        }
        met.last.push_back(sample);
        let is_new = met.known.insert((replica, *index));
        drop(met);
        if is_new {
            spans::tell(|| tracing::warn!(index, position, batch = task, by = %by, error = %cause, "a sample is bad"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_rounded_down_to_what_it_says() {
        for (share, pass, samples) in [
            (0.0, 100, 0),
            (0.29, 100, 29),
            (0.1, 30, 3),
            (0.1, 39, 3),
            (0.5, 1, 0),
            (1.0, 7, 7),
            (0.999, 10, 9),
            (1.0, usize::MAX, usize::MAX),
        ] {
            assert_eq!(Budget::Share(share).of(Some(pass)), samples, "{share} of {pass}");
        }
        assert_eq!(Budget::Share(1.0).of(None), 0);
        assert_eq!(Budget::Samples(9).of(None), 9);
    }
}
