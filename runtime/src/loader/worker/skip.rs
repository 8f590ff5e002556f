//! The job that skips or replaces bad samples.

use std::ops::Range;

use crate::BoxError;
use crate::dataset::{Dataset, Loadable, ManyError};
use crate::loader::collate::batch_buffer::BatchBuffer;
use crate::loader::collate::job::{Job, Put, Read};
use crate::loader::error::failure::{Cause, Failure, Skipped};
use crate::loader::error::guard::guarded;
use crate::loader::error::run::By;
use crate::loader::metrics::clock::next_timed;
use crate::loader::worker::engine::IsBlocked;
use crate::loader::worker::map_job::MapJob;
use crate::rng::SampleRng;
use crate::rng::rand_core::Rng;

/// The maximum number of substitutes that are tried for a sample.
const ATTEMPTS: u64 = 8;

/// The maximum number of draws for a substitute of limited length.
const DRAWS: u64 = 64;

/// Calls `read` until it succeeds, or `pass_over` returns an error.
///
/// The sample borrows from the job, and the borrow checker does not accept that the loop ends when
/// there is a sample. Therefore each round borrows the job through a pointer.
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
        // SAFETY: the job is borrowed for `'j`. The loop continues only after an error, which is
        // `'static` and so borrows nothing, and the caller upholds that `read` keeps nothing else
        // when it fails. So this is the only reference in each round. A panic leaves the loop.
        match read(unsafe { &mut *job }) {
            Ok(read) => return Ok(read),
            // SAFETY: as for the call of `read` above.
            Err(error) => pass_over(unsafe { &mut *job }, error)?,
        }
    }
}

/// A [`MapJob`] that does not stop at a bad sample.
///
/// A sample is bad if reading it fails. If the caller fails to process a sample that was read, it
/// calls [`pass_over`](Self::pass_over), and the sample is bad, too.
pub(crate) struct SkipJob<'t, 'a, D> {
    job: &'t mut MapJob<'a, D>,
    /// The end of the job's rows in the batch.
    end: usize,
    replaces: bool,
    /// The lengths of all samples, if a substitute must not be longer than the sample that it
    /// replaces.
    lengths: Option<&'t [u32]>,
    by: By,
    /// Marks a row as empty because no sample will be written into it.
    leave_empty: &'t dyn Fn(usize),
    is_blocked: Option<&'t IsBlocked>,
    /// The number of substitutes tried for the current row, the index of the last one, and whether
    /// it is still to be read.
    attempts: u64,
    substitute: usize,
    pending: bool,
    pub(crate) bad: Vec<Skipped>,
    /// Whether the batch has failed and no sample can be passed over any more.
    pub(crate) gave_up: bool,
}

impl<'t, 'a, D: Dataset> SkipJob<'t, 'a, D> {
    pub(crate) fn new(
        job: &'t mut MapJob<'a, D>,
        end: usize,
        replaces: bool,
        lengths: Option<&'t [u32]>,
        by: By,
        leave_empty: &'t dyn Fn(usize),
        is_blocked: Option<&'t IsBlocked>,
    ) -> Self {
        let (attempts, substitute, pending) = (0, 0, false);
        let (bad, gave_up) = (Vec::new(), false);
        Self { job, end, replaces, lengths, by, leave_empty, is_blocked, attempts, substitute, pending, bad, gave_up }
    }

    /// Records that the sample of the job's current row is bad, and prepares to read its substitute
    /// or the next sample. Fails if no substitute is left, or if the failure is not one of a
    /// sample.
    pub(crate) fn pass_over(&mut self, cause: Cause) -> Result<(), Cause> {
        let (row, job) = (self.job.at, &mut *self.job);
        if self.attempts == 0 && job.rows.start == row && !job.rows.is_empty() {
            // The sample was not read yet: `prefetch` panicked. Go on without prefetching, which is
            // optional.
            job.known = 0;
            return Ok(());
        }
        if self.attempts == 0 && job.bulk && (row == self.end || cause.is::<ManyError>()) {
            // A bulk read failed after its last sample, or returned the wrong number of samples.
            self.gave_up = true;
            return Err(cause);
        }
        // A bulk read has taken all rows out of the job.
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
            let (seed, epoch, global_position) =
                (job.plan.seed, job.plan.epoch, job.plan.global_positions.of(position));
            let words = |earlier| words(seed, epoch, global_position, earlier);
            self.substitute = match self.lengths {
                None => below(job.plan.samples, words(self.attempts).next_u64()),
                Some(lengths) => no_longer(lengths, job.indices.at(row), words(self.attempts * DRAWS)),
            };
            (self.attempts, self.pending) = (self.attempts + 1, true);
        }
        Ok(())
    }

    /// Reads the next sample, or a substitute if one is pending.
    fn attempt(&mut self) -> Result<Option<Read<'_, D>>, Cause> {
        guarded(|| {
            if !self.pending {
                self.attempts = 0;
                let Range { start: row, end } = self.job.rows;
                if row < end
                    && let Some(error) = self.is_blocked.and_then(|is_blocked| is_blocked(self.job.indices.at(row)))
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
            if let Some(error) = self.is_blocked.and_then(|is_blocked| is_blocked(index)) {
                return Err(error);
            }
            job.begin(row, index);
            let sample = job.dataset.get(index, job.cx)?;
            Ok(Some(Read { row, index, sample }))
        })
    }

    /// Reads all remaining samples with one call of the dataset, up to the first bad one.
    fn read_many(&mut self, put: Put<'_, D>) -> Result<(), Cause> {
        self.attempts = 0;
        guarded(|| self.job.for_each(put)).or_else(|cause| self.pass_over(cause))
    }
}

impl<D: Dataset> Job<D> for SkipJob<'_, '_, D> {
    fn next(&mut self) -> Result<Option<Read<'_, D>>, BoxError> {
        // SAFETY: `attempt` returns nothing that borrows when it fails.
        unsafe { lend(self, Self::attempt, Self::pass_over) }.map_err(Cause::into_error)
    }

    fn next_timed(&mut self) -> Result<Option<Read<'_, D>>, BoxError> {
        next_timed!(self.job.laps, self.job.activity, self.next())
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
        // It is unknown which of the next samples are good.
        None
    }

    fn index_or_number(&self) -> usize {
        self.job.index_or_number()
    }

    fn reads_many(&self) -> bool {
        self.job.reads_many()
    }

    fn pass_over(&mut self, cause: Cause) -> Result<(), Cause> {
        Self::pass_over(self, cause)
    }

    fn for_each(&mut self, put: Put<'_, D>) -> Result<(), BoxError> {
        while self.left() > 0 && !self.is_cancelled() {
            if self.pending || !self.job.bulk {
                let Some(read) = self.next_timed()? else { break };
                if let Err(cause) = guarded(|| put(read)) {
                    self.pass_over(cause).map_err(Cause::into_error)?;
                }
            } else {
                self.read_many(put).map_err(Cause::into_error)?;
            }
        }
        Ok(())
    }

    fn write_many(&mut self, region: &BatchBuffer) -> Result<(), BoxError> {
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

/// The error of a batch in which no good substitute for a sample was found.
#[derive(Debug, thiserror::Error)]
#[error("{ATTEMPTS} substitutes were tried and are bad, too; the last one is sample {index}: {last}")]
struct NoSubstitute {
    index: usize,
    last: String,
}

/// Returns the random numbers that choose a substitute for a bad sample, without the first
/// `earlier` ones.
fn words(seed: u64, epoch: u32, global_position: u64, earlier: u64) -> SampleRng {
    // The key is different from that of the samples' own random numbers. It belongs to a position
    // that no pass reaches.
    let key = SampleRng::new(seed, 0, u64::MAX - 1).next_u64();
    let mut rng = SampleRng::new(key, epoch, global_position);
    (0..earlier).for_each(|_| _ = rng.next_u64());
    rng
}

/// Converts a random number to an index below `samples`.
fn below(samples: usize, word: u64) -> usize {
    ((u128::from(word) * samples as u128) >> 64) as usize
}

/// Returns the index of another sample that is not longer than sample `bad`, or `bad` if there is
/// none.
fn no_longer(lengths: &[u32], bad: usize, mut words: SampleRng) -> usize {
    let samples = lengths.len();
    let fits = |&index: &usize| index != bad && lengths[index] <= lengths[bad];
    let mut draw = || below(samples, words.next_u64());
    let drawn = (1..DRAWS).map(|_| draw()).find(fits);
    // If few samples are short enough, take the first one after a random index.
    let next = || {
        let from = draw();
        (from..samples).chain(0..from).find(fits)
    };
    drawn.or_else(next).unwrap_or(bad)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn substitutes_are_in_range_and_depend_on_every_input() {
        let drawn =
            |seed, epoch, position, attempt, samples| below(samples, words(seed, epoch, position, attempt).next_u64());
        let draw = |seed, epoch, position, attempt| drawn(seed, epoch, position, attempt, 1 << 40);
        let all = [draw(1, 2, 3, 0), draw(2, 2, 3, 0), draw(1, 3, 3, 0), draw(1, 2, 4, 0), draw(1, 2, 3, 1)];
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
        assert_eq!(draw(1, 2, 3, 0), all[0]);
        let mut seen = [0; 5];
        (0..5_000).for_each(|position| seen[drawn(7, 0, position, 0, 5)] += 1);
        assert!(seen.iter().all(|&count| count > 800), "{seen:?}");
        assert!((0..100).all(|position| drawn(7, 0, position, 3, 1) == 0));
    }
    #[test]
    fn a_substitute_of_limited_length_is_another_sample() {
        let lengths: Vec<u32> = (0..1000).map(|i| i % 100).collect();
        let all = |bad| (0..5_000).map(move |position| no_longer(&lengths, bad, words(1, 0, position, 0)));
        let (short, long): (BTreeSet<_>, BTreeSet<_>) = (all.clone()(300).collect(), all(299).collect());
        assert!(short.len() == 9 && short.iter().all(|index| index % 100 == 0 && *index != 300), "{short:?}");
        assert!(long.len() > 980 && !long.contains(&299));
        assert_eq!(no_longer(&[5, 2, 5], 1, words(1, 0, 0, 0)), 1);
    }
}
