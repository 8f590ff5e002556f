//! The handling of bad samples, and the record of them.

use std::sync::Arc;

use crate::loader::collate::cell::Lease;
use crate::loader::collate::storage::Storage;
use crate::loader::collate::tag::Tag;
use crate::loader::error::failure::{Failure, Skipped, SlotErrors};
use crate::loader::error::guard::{catch_panic, dispose, dispose_each};
use crate::loader::error::run::{By, Error};
use crate::loader::error::warning::{Listener, Warning};
use crate::loader::metrics::bad_samples::{BadSample, BadSampleReport};
use crate::loader::metrics::reader::ConsumerStats;
use crate::loader::trace;

/// What a loader does about a bad sample.
///
/// A sample is bad if it cannot be read, or cannot be written into its row, because of an error or
/// a panic (in a program that unwinds). A sample is also bad if a
/// [collate](crate::loader::Builder::collate) function fails for it in
/// [`next_as`](crate::loader::Samples::next_as) or [`for_each`](crate::loader::Samples::for_each).
/// Any other error of the collate function is an error of the batch and is always raised. All this
/// holds for threads, processes and iterable datasets alike.
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
    /// The batch is returned without the sample, one row shorter. If no sample is left, the batch
    /// is skipped (but delivered empty if several [ranks](crate::loader::Builder::ranks) share the
    /// pass). With an iterable dataset the next sample takes the place of the bad one.
    Skip(Budget),
    /// Another sample replaces the bad one. Its index is a function of the seed, the pass, the
    /// position, and the number of substitutes that were bad themselves, so that batches keep their
    /// number and sizes, on every rank. In batches [by length](crate::sampler::Sampler::lengths)
    /// the substitute is not longer than the sample that it replaces. After 8 bad substitutes the
    /// batch becomes an [`Error::Sample`]. Not available for iterable datasets.
    Replace(Budget),
}

/// How many bad samples a pass may have. A batch with bad samples beyond that number becomes an
/// [`Error::BadSamples`].
///
/// Bad samples are counted when their batches, or errors instead of batches, are delivered, in the
/// order of delivery. So with [`in_order(false)`](crate::loader::Builder::in_order) the batch that
/// exceeds the budget may differ from run to run. Bad substitutes count, too.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Budget {
    /// Any number, as long as at most half of the samples are bad. Counting starts at a bad sample.
    /// Once 1,000 samples, good or bad, have been counted, the batch becomes an
    /// [`Error::MostlyBad`] if more than half of them were bad; the next bad sample starts a new
    /// count.
    #[default]
    Minority,
    /// At most this number of bad samples.
    Samples(usize),
    /// At most this share of the pass's samples, from 0 to 1; the resulting number is rounded down.
    /// The number of samples in a pass must be known; it is unknown with an iterator of indices,
    /// and over an iterable dataset that does not return its length.
    Share(f64),
}

impl OnError {
    /// Whether the first bad sample of a batch fails the batch.
    #[inline]
    pub(crate) fn is_raise(self) -> bool {
        self == Self::Raise
    }

    /// Returns how many bad samples a pass may have.
    pub(crate) fn budget(self) -> Budget {
        match self {
            Self::Raise => Budget::Samples(0),
            Self::Skip(budget) | Self::Replace(budget) => budget,
        }
    }
}

/// The value of `BadSampleLog::budget` that stands for [`Budget::Minority`].
pub(crate) const NO_NUMBER: usize = usize::MAX;

/// The least number of samples after which [`Budget::Minority`] is checked.
pub(crate) const WINDOW: usize = 1000;

impl Budget {
    /// Returns how many samples of a pass with `pass` samples (if that is known) may be bad, or
    /// [`NO_NUMBER`].
    fn of(self, pass: Option<usize>) -> usize {
        match self {
            Self::Minority => NO_NUMBER,
            Self::Samples(samples) => samples.min(NO_NUMBER - 1),
            Self::Share(share) => {
                let pass = pass.unwrap_or_default();
                // 0.29 is slightly less than 29 % as a float, but must allow 29 bad samples of 100.
                let samples = share * pass as f64 * (1.0 + 4.0 * f64::EPSILON);
                (samples as usize).min(pass)
            }
        }
    }
}

/// Counts the bad samples that a loader has met, and reports them.
#[derive(Debug, Default)]
pub(crate) struct BadSampleLog {
    on_error: OnError,
    /// Whether each worker reads its own part of an iterable dataset. If so, the index of a sample
    /// is its number in its worker's part.
    own_passes: bool,
    /// Whether the pass is divided among several ranks. If so, a batch without samples is
    /// delivered, so that all ranks have the same number of batches.
    is_shared: bool,
    /// The number of bad samples in this pass, and how many are allowed.
    bad: usize,
    budget: usize,
    window: Window,
    report: Arc<BadSampleReport>,
    listener: Listener,
}

/// The current count of [`Budget::Minority`], which began at a bad sample.
#[derive(Debug, Default)]
struct Window {
    bad: usize,
    /// The number of good samples that the loader had delivered when this count began.
    begun: u64,
}

impl Window {
    /// Adds `bad` bad samples and `rows` good ones of a batch, before which `delivered` good
    /// samples were delivered. Returns the numbers of bad samples and of all samples, if at least
    /// `WINDOW` were counted and most of them are bad.
    fn add(&mut self, bad: usize, rows: usize, delivered: u64) -> Option<(usize, usize)> {
        let before = self.len(delivered);
        if self.bad == 0 || before >= WINDOW {
            // The good samples delivered since the last call may have completed the count.
            let bad = std::mem::replace(self, Self { bad: 0, begun: delivered }).bad;
            if bad > before / 2 {
                return Some((bad, before));
            }
        }
        self.bad += bad;
        let len = self.len(delivered) + rows;
        if len < WINDOW || self.bad <= len / 2 {
            return None;
        }
        Some((std::mem::take(&mut self.bad), len))
    }

    fn len(&self, delivered: u64) -> usize {
        self.bad + (delivered - self.begun) as usize
    }
}

/// How many causes of bad samples are kept (the last ones), and the maximum bytes of each cause.
const LAST: usize = 8;
const MESSAGE: usize = 512;

impl BadSampleLog {
    pub(crate) fn new(on_error: OnError, own_passes: bool, listener: Listener) -> Self {
        Self { on_error, own_passes, listener, ..Self::default() }
    }

    /// Begins a pass. `pass` is its number of samples, if known, and `bad` the number of bad
    /// samples before the point where the pass is resumed. Returns the number of bad samples that
    /// the pass may have, or [`NO_NUMBER`].
    pub(crate) fn begin(&mut self, pass: Option<usize>, bad: usize, is_shared: bool) -> usize {
        self.is_shared = is_shared;
        (self.bad, self.budget) = (bad, self.on_error.budget().of(pass));
        self.window = Window::default();
        self.budget
    }

    /// Whether each worker reads its own part of an iterable dataset. If so, the index of a sample
    /// is its number in its worker's part.
    pub(crate) fn own_passes(&self) -> bool {
        self.own_passes
    }

    /// The number of bad samples in this pass.
    pub(crate) fn in_pass(&self) -> usize {
        self.bad
    }

    /// The record of bad samples, which any thread may read.
    pub(crate) fn report(&self) -> &Arc<BadSampleReport> {
        &self.report
    }

    /// Counts the bad samples of a batch that has errors. Returns what is delivered instead: the
    /// rest of the batch, an error, or `None` if no sample is left.
    pub(crate) fn handle_errors<P: Storage>(
        &mut self,
        lease: Lease<P>,
        stats: &mut ConsumerStats,
    ) -> Option<Result<Lease<P>, Error>> {
        let tag = lease.tag();
        match self.count(lease.state().take_errors(), tag, stats.samples()) {
            Ok(empty) => {
                // SAFETY: no other thread has access to the cell, and its batch has `tag.rows`
                // rows, each written or left empty.
                unsafe { lease.payload().compact_rows(&empty, tag.rows) };
                let rows = tag.rows - empty.len();
                let can_be_empty = !tag.single && lease.payload().region().is_some();
                if rows == 0 && !(self.is_shared && can_be_empty) {
                    return None;
                }
                lease.describe(tag.task, rows, tag.epoch);
                stats.count(&lease, rows);
                Some(Ok(lease))
            }
            Err(error) => {
                // The panic hook has reported a panic in here; nothing else is done about it.
                catch_panic(|| lease.payload().discard());
                stats.fail();
                Some(Err(error))
            }
        }
    }

    /// Counts the bad samples of a batch, before which `delivered` good samples were delivered.
    /// Returns the rows that the bad samples left empty, or the error instead of the batch.
    fn count(&mut self, mut errors: SlotErrors, tag: Tag, delivered: u64) -> Result<Vec<usize>, Error> {
        let Tag { task, rows, .. } = tag;
        let (failure, mut bad) = (errors.failure.take(), std::mem::take(&mut errors.bad));
        // Several threads may fill parts of one batch, and finish in any order. All attempts at one
        // position are made by one thread, and the sort keeps their sequence.
        bad.sort_by_key(|bad| bad.failure.position);
        if let Some(failure) = &failure {
            // Ignore bad samples after the failure, which other threads have read: one thread alone
            // would have stopped at the failure.
            let after = bad.partition_point(|bad| bad.failure.position <= failure.position);
            dispose_each(bad.drain(after..));
        }
        let empty: Vec<usize> = bad.iter().filter_map(|bad| bad.row).collect();
        bad.iter().for_each(|bad| self.note(&bad.failure, task));
        let before = self.bad;
        self.bad = self.bad.saturating_add(bad.len());
        let good = if failure.is_some() { 0 } else { rows - empty.len() };
        let (at, mostly) = match self.budget {
            NO_NUMBER => {
                let mostly = self.window.add(bad.len(), good, delivered);
                (bad.len() - usize::from(mostly.is_some() && !bad.is_empty()), mostly)
            }
            budget => (budget.saturating_sub(before).min(bad.len()), None),
        };
        let mut beyond = bad.drain(at..);
        let first = beyond.next();
        dispose_each(beyond);
        dispose_each(bad);
        let Some(Skipped { failure: first, .. }) = first else {
            return failure.map_or(Ok(empty), |failure| Err(failure.into_error(task)));
        };
        dispose(failure);
        let source = Box::new(first.into_error(task));
        Err(match mostly {
            Some((bad, of)) => Error::MostlyBad { bad, of, source },
            None => Error::BadSamples { bad: self.bad, budget: self.budget, source },
        })
    }

    /// Records a bad sample with its cause. Warns if no bad sample with this index was recorded
    /// before.
    fn note(&mut self, failure: &Failure, task: usize) {
        let Failure { position, index, by, cause } = failure;
        let worker = match by {
            By::Worker(id) if self.own_passes => *id,
            _ => 0,
        };
        let mut message = cause.with_sources();
        message.truncate(message.floor_char_boundary(MESSAGE));
        let sample = BadSample { index: *index, batch: task, by: *by, message: message.clone() };
        // The message is made before the lock is taken, and the user's subscriber runs after the
        // lock is released.
        let Some(mut met) = self.report.lock() else { return };
        met.total = met.total.saturating_add(1);
        if met.last.len() == LAST {
            met.last.pop_front();
        }
        met.last.push_back(sample);
        let is_new = met.keep((worker, *index));
        drop(met);
        if is_new {
            trace::tell(|| tracing::warn!(index, position, batch = task, by = %by, error = %cause, "a sample is bad"));
            self.listener.notify(|| Warning::BadSample { index: *index, batch: task, by: *by, message });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_share_is_rounded_down() {
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

    #[test]
    fn bad_samples_are_a_minority_or_not() {
        let mut window = Window::default();
        // Good samples before the first bad one are not counted.
        assert_eq!(window.add(600, 0, 5000), None);
        assert_eq!(window.add(1, 398, 5000), None, "999 samples");
        assert_eq!(window.add(1, 0, 5398), Some((602, 1000)));
        // Good samples complete the count.
        assert_eq!(window.add(998, 0, 5398), None);
        assert_eq!(window.add(1, 0, 5400), Some((998, 1000)));
        // A new count begins after a report, and after 1,000 samples of which half are bad.
        assert_eq!(window.add(500, 500, 5400), None);
        assert_eq!(window.add(999, 0, 5900), None);
        assert_eq!(window.add(1, 1000, 5900), None);
        assert_eq!(window.add(1001, 999, 6900), Some((1001, 2000)));
    }
}
