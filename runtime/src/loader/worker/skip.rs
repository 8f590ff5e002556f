//! Reads the samples of some rows while skipping or replacing bad ones.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::BoxError;
use crate::dataset::{Dataset, Loadable, ManyError};
use crate::loader::collate::job::{Job, Put, Read};
use crate::loader::collate::region::Region;
use crate::loader::error::failure::{Cause, Failure, Skipped};
use crate::loader::error::guard::{guarded, take_message};
use crate::loader::error::run::By;
use crate::loader::metrics::clock::next_timed;
use crate::loader::worker::engine::Refuse;
use crate::loader::worker::map_job::MapJob;
use crate::rng::SampleRng;
use crate::rng::rand_core::Rng;

/// The maximum number of substitutes that are tried for a sample.
const ATTEMPTS: u64 = 8;

/// Calls `read` until it succeeds, or `pass_over` returns an error.
///
/// The sample borrows from the job, and the compiler cannot see yet that the loop ends with it. So each round borrows
/// the job through a pointer.
///
/// # Safety
///
/// When `read` fails, it must not keep anything that borrows from its argument.
#[inline(always)]
pub(crate) unsafe fn lend<'j, J, D: Loadable, E: 'static>(
    job: &'j mut J,
    read: fn(&'j mut J) -> Result<Option<Read<'j, D>>, E>,
    pass_over: fn(&mut J, E) -> Result<(), E>,
) -> Result<Option<Read<'j, D>>, E> {
    let job: *mut J = job;
    loop {
        // SAFETY: the job is borrowed for `'j`. The loop continues only after an error, which is `'static` and so
        // borrows nothing, and the caller upholds that `read` keeps nothing else when it fails. So this is the only
        // reference in each round. A panic leaves the loop.
        match read(unsafe { &mut *job }) {
            Ok(read) => return Ok(read),
            // SAFETY: as above.
            Err(error) => pass_over(unsafe { &mut *job }, error)?,
        }
    }
}

/// A [`MapJob`] that does not stop at a bad sample.
///
/// A sample is bad if anything fails between asking for it and having it. What is done with it afterwards may also
/// fail: the caller of the job knows whether that is the sample's fault, and then calls [`pass_over`](Self::pass_over).
pub(crate) struct SkipJob<'t, 'a, D, const TIMED: bool> {
    job: &'t mut MapJob<'a, D, TIMED>,
    /// The end of the job's rows.
    end: usize,
    replaces: bool,
    by: By,
    /// Marks a row that will not be written as empty.
    leave_empty: &'t dyn Fn(usize),
    refuse: Option<&'t Refuse>,
    /// The number of substitutes so far for the current row, the last one, and whether it must still be read.
    attempts: u64,
    substitute: usize,
    pending: bool,
    pub(crate) bad: Vec<Skipped>,
    /// Whether the batch must be given up.
    pub(crate) gave_up: bool,
}

impl<'t, 'a, D: Dataset, const TIMED: bool> SkipJob<'t, 'a, D, TIMED> {
    pub(crate) fn new(
        job: &'t mut MapJob<'a, D, TIMED>,
        end: usize,
        replaces: bool,
        by: By,
        leave_empty: &'t dyn Fn(usize),
        refuse: Option<&'t Refuse>,
    ) -> Self {
        let (attempts, substitute, pending) = (0, 0, false);
        let (bad, gave_up) = (Vec::new(), false);
        Self { job, end, replaces, by, leave_empty, refuse, attempts, substitute, pending, bad, gave_up }
    }

    /// Records that the sample of the job's row is bad, and prepares what replaces it. Fails if nothing can, or if the
    /// failure is not a sample's.
    pub(crate) fn pass_over(&mut self, cause: Cause) -> Result<(), Cause> {
        let (row, job) = (self.job.at, &mut *self.job);
        if self.attempts == 0 && job.rows.start == row && !job.rows.is_empty() {
            // The sample was not asked for yet: a hint panicked. Hints are optional.
            job.known = 0;
            return Ok(());
        }
        if self.attempts == 0 && job.bulk && (row == self.end || cause.is::<ManyError>()) {
            // A bulk read that failed after its last sample, or returned the wrong number of samples.
            self.gave_up = true;
            return Err(cause);
        }
        // A bulk read took all rows.
        job.rows = row + 1..self.end;
        let index = if self.attempts > 0 { self.substitute } else { job.indices.at(row) };
        let cause = cause.at(Some(index), job.plan.samples);
        let position = job.first + row;
        let last = if self.attempts == ATTEMPTS { cause.to_text() } else { String::new() };
        let failure = Failure { position, index, by: self.by, cause };
        self.bad.push(Skipped { failure, row: Some(row).filter(|_| !self.replaces) });
        if !self.replaces {
            (self.leave_empty)(row);
        } else if self.attempts == ATTEMPTS {
            self.gave_up = true;
            return Err(Cause::Error(NoSubstitute { index, last }.into()));
        } else {
            let (seed, epoch, place) = (job.plan.seed, job.plan.epoch, job.plan.places.of(position));
            self.substitute = substitute(seed, epoch, place, self.attempts, job.plan.samples);
            (self.attempts, self.pending) = (self.attempts + 1, true);
        }
        Ok(())
    }

    /// Reads the next sample, or the next substitute.
    fn attempt(&mut self) -> Result<Option<Read<'_, D>>, Cause> {
        guarded(|| {
            if !self.pending {
                self.attempts = 0;
                let Range { start: row, end } = self.job.rows;
                if row < end
                    && let Some(error) = self.refuse.and_then(|refuse| refuse(self.job.indices.at(row)))
                {
                    (self.job.at, self.job.rows.start) = (row, row + 1);
                    return Err(error);
                }
                return self.job.next();
            }
            self.pending = false;
            let job = &mut *self.job;
            if job.is_cancelled() {
                return Ok(None);
            }
            let (row, index) = (job.at, self.substitute);
            if let Some(error) = self.refuse.and_then(|refuse| refuse(index)) {
                return Err(error);
            }
            job.begin(row, index);
            let sample = job.dataset.get(index, job.cx)?;
            Ok(Some(Read { row, index, sample }))
        })
    }

    /// Reads all samples that are left with one call of the dataset, up to the first bad one.
    fn read_many(&mut self, put: Put<'_, D>) -> Result<(), BoxError> {
        self.attempts = 0;
        // Whether a failure comes from processing the sample.
        let mut putting = false;
        let mut put = |read: Read<'_, D>| {
            putting = true;
            put(read)?;
            putting = false;
            Ok(())
        };
        let cause = match catch_unwind(AssertUnwindSafe(|| self.job.for_each(&mut put))) {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) if putting => return Err(error),
            Err(panic) if putting => resume_unwind(panic),
            Ok(Err(error)) => Cause::Error(error),
            Err(panic) => Cause::Panic(take_message(panic)),
        };
        self.pass_over(cause).map_err(Cause::into_error)
    }
}

impl<D: Dataset, const TIMED: bool> Job<D> for SkipJob<'_, '_, D, TIMED> {
    fn next(&mut self) -> Result<Option<Read<'_, D>>, BoxError> {
        // SAFETY: `attempt` keeps only numbers when it fails.
        unsafe { lend(self, Self::attempt, Self::pass_over) }.map_err(Cause::into_error)
    }

    fn next_timed(&mut self) -> Result<Option<Read<'_, D>>, BoxError> {
        next_timed!(self.job.laps(), self.job.activity, self.next())
    }

    fn is_single(&self) -> bool {
        self.job.is_single()
    }

    fn is_cancelled(&self) -> bool {
        self.job.is_cancelled()
    }

    fn left(&self) -> usize {
        self.job.left() + usize::from(self.pending)
    }

    fn index(&self) -> Option<usize> {
        // It is not known which of the next samples are good.
        None
    }

    fn place(&self) -> usize {
        self.job.place()
    }

    fn reads_many(&self) -> bool {
        self.job.reads_many()
    }

    fn for_each(&mut self, put: Put<'_, D>) -> Result<(), BoxError> {
        while self.left() > 0 && !self.is_cancelled() {
            if self.pending || !self.job.bulk {
                let Some(read) = self.next_timed()? else { break };
                put(read)?;
            } else {
                self.read_many(put)?;
            }
        }
        Ok(())
    }

    fn write_many(&mut self, region: &Region) -> Result<(), BoxError> {
        while self.left() > 0 && !self.is_cancelled() {
            if self.pending {
                let Some(read) = self.next_timed()? else { break };
                region.write(read)?;
            } else {
                self.attempts = 0;
                if let Err(cause) = guarded(|| self.job.write_many(region)) {
                    self.pass_over(cause).map_err(Cause::into_error)?;
                }
            }
        }
        Ok(())
    }
}

/// No good substitute for a sample was found.
#[derive(Debug, thiserror::Error)]
#[error("{ATTEMPTS} substitutes were tried and are bad, too; the last one is sample {index}: {last}")]
struct NoSubstitute {
    index: usize,
    last: String,
}

/// Returns the index of a substitute for a bad sample of a dataset with `samples` samples, after `attempt` earlier
/// ones.
fn substitute(seed: u64, epoch: u32, place: u64, attempt: u64, samples: usize) -> usize {
    // A separate key, from a position that no pass is long enough to have, since a sample's own random numbers are in
    // use.
    let key = SampleRng::new(seed, 0, u64::MAX - 1).next_u64();
    let mut rng = SampleRng::new(key, epoch, place);
    let word = (0..=attempt).fold(0, |_, _| rng.next_u64());
    ((u128::from(word) * samples as u128) >> 64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn substitutes_are_in_range_and_depend_on_every_input() {
        let draw = |seed, epoch, position, attempt| substitute(seed, epoch, position, attempt, 1 << 40);
        let all = [draw(1, 2, 3, 0), draw(2, 2, 3, 0), draw(1, 3, 3, 0), draw(1, 2, 4, 0), draw(1, 2, 3, 1)];
        assert_eq!(all.iter().collect::<std::collections::BTreeSet<_>>().len(), all.len());
        assert_eq!(draw(1, 2, 3, 0), all[0]);
        let mut seen = [0; 5];
        (0..5_000).for_each(|position| seen[substitute(7, 0, position, 0, 5)] += 1);
        assert!(seen.iter().all(|&count| count > 800), "{seen:?}");
        assert!((0..100).all(|position| substitute(7, 0, position, 3, 1) == 0));
    }
}
