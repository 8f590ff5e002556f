//! The state that the consumer and the workers share, and the work that all of them do: filling
//! rows of a batch with samples that are read by index.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crossbeam_utils::CachePadded;

use crate::BoxError;
use crate::dataset::{Dataset, Loadable, StopToken, WorkerInfo, set_worker_info};
use crate::loader::bad_samples::OnError;
use crate::loader::collate::Collate;
use crate::loader::collate::batch_state::BatchState;
use crate::loader::collate::storage::Storage;
use crate::loader::error::failure::{Cause, Failure};
use crate::loader::error::guard::{catch_panic, caught, dispose, guarded};
use crate::loader::error::run::By;
use crate::loader::metrics::activity::Activity;
use crate::loader::order::index_source::Batching;
use crate::loader::order::passes::HasDataset;
use crate::loader::order::plan::{IndexStream, Indices, Plan, Task};
use crate::loader::order::plan_cell::PlanCell;
use crate::loader::worker::claim_size::ClaimSizer;
use crate::loader::worker::map_job::MapJob;
use crate::loader::worker::reader::Reader;
use crate::loader::worker::skip::SkipJob;
use crate::loader::worker::timing::timed;
use crate::placed::Placed;

/// The least number of rows for which a dataset that [writes many](Dataset::writes_many) is called
/// in bulk. Fewer rows are written faster one by one.
const BULK_MIN_ROWS: usize = 4;

/// Returns why the sample with a given index must not be read (it has ended a worker process), or
/// `None` if it may be read.
pub(crate) type IsBlocked = Box<dyn Fn(usize) -> Option<BoxError> + Send + Sync>;

/// The state that the threads of one loader share.
pub(crate) struct Engine<D: Loadable, C: Collate<D>> {
    pub(crate) dataset: D,
    pub(crate) collate: C,
    /// Whether the loader returns single samples instead of batches.
    pub(crate) single: bool,
    /// The maximum number of indices that each thread passes to [`Dataset::get_many`] or
    /// [`Dataset::write_many`] at once; 0 if neither is used.
    bulk: usize,
    /// The least number of rows that are read or written in bulk.
    bulk_min_rows: usize,
    pub(crate) plan_cell: Arc<PlanCell>,
    pub(crate) cancel: StopToken,
    on_error: OnError,
    /// The lengths of all samples, if a bad sample must not be replaced by a longer one.
    pub(crate) lengths: Option<Arc<[u32]>>,
    /// The function that says which samples must not be read, if workers are processes.
    pub(crate) is_blocked: Option<IsBlocked>,
    /// The activity of each worker, followed by that of the consumer.
    pub(crate) activities: Placed<[CachePadded<Activity>]>,
}

/// Returns the rows of `parts` in a batch of `rows` rows, where each part has `part_rows` rows.
#[inline(always)]
pub(crate) fn rows_of(parts: Range<usize>, part_rows: usize, rows: usize) -> Range<usize> {
    let begin = (parts.start * part_rows).min(rows);
    begin..parts.end.saturating_mul(part_rows).min(rows)
}

/// The point at which reading some rows stopped.
struct Stopped {
    /// The row at which it stopped.
    at: usize,
    /// Whether the sample of that row was already asked for.
    asked: bool,
    /// The end of the range of rows.
    end: usize,
}

impl<D: Dataset, C: Collate<D>> HasDataset for Engine<D, C> {
    type Dataset = D;

    fn dataset(&self) -> &D {
        &self.dataset
    }
}

impl<D: Dataset, C: Collate<D>> Engine<D, C> {
    pub(crate) fn new(
        dataset: D,
        collate: C,
        rows: usize,
        batching: Batching,
        bulk: usize,
        workers: usize,
        index_stream: Option<IndexStream>,
    ) -> Self {
        let Batching { batch_size: stride, single, .. } = batching;
        // Initialise the origin before any process is forked: a fork could happen while another
        // thread is initialising it.
        crate::sync::origin();
        let activities = (0..=workers).map(|_| CachePadded::default()).collect();
        let (plan_cell, cancel) = (Arc::new(PlanCell::new(rows, stride, index_stream)), StopToken::default());
        let bulk_min_rows = if dataset.reads_many() { 0 } else { BULK_MIN_ROWS };
        let (on_error, lengths, is_blocked) = (OnError::Raise, None, None);
        Self {
            dataset,
            collate,
            single,
            bulk,
            bulk_min_rows,
            plan_cell,
            cancel,
            on_error,
            lengths,
            is_blocked,
            activities,
        }
    }

    /// Sets how bad samples are handled. If the `lengths` of all samples are given, a bad sample is
    /// replaced only by one that is not longer.
    pub(crate) fn on_error(self, on_error: OnError, lengths: Option<Arc<[u32]>>) -> Self {
        let lengths = lengths.filter(|_| matches!(on_error, OnError::Replace(_)));
        Self { on_error, lengths, ..self }
    }

    /// Makes the reader of a worker, or of the consumer.
    pub(crate) fn reader(&self, worker: Option<usize>, sizer: ClaimSizer) -> Reader {
        Reader::new(worker.unwrap_or(self.workers()), worker, sizer, self.bulk, Some(self.cancel.clone()))
    }

    /// The number of workers.
    pub(crate) fn workers(&self) -> usize {
        self.activities.len() - 1
    }

    /// Records that some rows of a batch failed because of a panic outside of the code that is
    /// guarded sample by sample. The failure is attributed to the sample that this thread was
    /// reading, if it is in these rows, and otherwise to the first row.
    #[cold]
    #[inline(never)]
    pub(crate) fn fail_after_panic(
        &self,
        work: &BatchState<C::Payload>,
        task: &Task<'_>,
        rows: Range<usize>,
        reader: &Reader,
        cause: Cause,
    ) {
        let activity = &*self.activities[reader.activity];
        let at = activity.at().filter(|at| at.task == task.number && rows.contains(&at.row)).map(|at| at.row);
        activity.abandon();
        let row = at.unwrap_or(rows.start);
        let index = if rows.contains(&row) { task.indices.at(row) } else { 0 };
        work.fail(Failure { position: task.first + row, index, by: reader.by(), cause });
    }

    /// Fills some rows of a batch, and records the time if the reader's sizer asks for it. `of` is
    /// the number of the batch and the number of claimed parts, for that record. Errors and panics
    /// are recorded in the batch's state. Returns `false` if there was a panic outside of the code
    /// that is guarded sample by sample.
    #[inline(always)]
    pub(crate) fn make(
        &self,
        work: &BatchState<C::Payload>,
        plan: &Plan,
        task: &Task<'_>,
        rows: Range<usize>,
        of: (usize, usize),
        reader: &mut Reader,
    ) -> bool {
        let outcome = if reader.sizer.skips_timing() {
            caught(|| self.fill(work, plan, task, rows.clone(), reader, false))
        } else {
            // A separate closure, so that the other branch is compiled without any timing.
            timed(reader, &self.activities[reader.activity], of, |reader, timed| {
                self.fill(work, plan, task, rows.clone(), reader, timed);
            })
        };
        let Err(cause) = outcome else { return true };
        self.fail_after_panic(work, task, rows, reader, cause);
        false
    }

    /// Fills some rows of a batch. Errors and panics are recorded in the batch's state. `timed`
    /// says whether the reader times the samples.
    #[inline(always)]
    pub(crate) fn fill(
        &self,
        work: &BatchState<C::Payload>,
        plan: &Plan,
        task: &Task<'_>,
        rows: Range<usize>,
        reader: &mut Reader,
        timed: bool,
    ) {
        let activity = &*self.activities[reader.activity];
        // A batch that is not full may have no rows for this claim, and then there is no index.
        let index_at = |row| if row < rows.end { task.indices.at(row) } else { 0 };
        activity.begin(task.number, index_at(rows.start), rows.start);
        activity.counters.claimed(rows.len());
        if let Some(id) = reader.worker
            && reader.seed != Some(plan.seed)
        {
            reader.seed = Some(plan.seed);
            set_worker_info(Some(WorkerInfo::new(id, self.workers(), plan.seed)));
        }
        if self.bulk > 0 && rows.len() >= self.bulk_min_rows {
            self.fill_many(work, plan, task, rows, reader, timed);
        } else {
            self.fill_rows(work, plan, task, rows, reader, (timed, false));
        }
        activity.end();
    }

    /// Works like [`fill`](Self::fill), but skips the samples that must not be read. Only for
    /// batches that are stacked: with a collate function the job itself passes over these samples.
    #[cold]
    pub(crate) fn fill_skipping(
        &self,
        work: &BatchState<C::Payload>,
        plan: &Plan,
        task: &Task<'_>,
        rows: Range<usize>,
        reader: &mut Reader,
    ) {
        let mut begin = rows.start;
        for row in rows.clone() {
            let Some(error) = self.is_blocked.as_ref().and_then(|is_blocked| is_blocked(task.indices.at(row))) else {
                continue;
            };
            self.fill(work, plan, task, begin..row, reader, false);
            let (stopped, activity) = (Stopped { at: row, asked: true, end: row + 1 }, reader.activity);
            self.activities[activity].begin(task.number, task.indices.at(row), row);
            self.failed(work, plan, task, stopped, reader, Cause::Error(error), false);
            self.activities[activity].end();
            begin = row + 1;
        }
        self.fill(work, plan, task, begin..rows.end, reader, false);
    }

    /// Fills rows by bulk reads. Not inlined, because bulk reads need the job in memory, while
    /// other reads keep it in registers.
    #[inline(never)]
    fn fill_many(
        &self,
        work: &BatchState<C::Payload>,
        plan: &Plan,
        task: &Task<'_>,
        rows: Range<usize>,
        reader: &mut Reader,
        timed: bool,
    ) {
        self.fill_rows(work, plan, task, rows, reader, (timed, true));
    }

    /// Fills rows by bulk reads or one by one. `how` says whether the reader times the samples, and
    /// whether to read in bulk.
    #[inline(always)]
    fn fill_rows(
        &self,
        work: &BatchState<C::Payload>,
        plan: &Plan,
        task: &Task<'_>,
        rows: Range<usize>,
        reader: &mut Reader,
        how: (bool, bool),
    ) {
        let end = rows.end;
        let by = reader.worker;
        let mut job = self.job(plan, task, rows, reader, how);
        let outcome = if C::STACKS || self.on_error.is_raise() {
            guarded(|| {
                job.prefetch_first();
                self.collate.fill(&work.payload, &mut job)
            })
        } else {
            self.collate_good(work, &mut job, end, By::of(by))
        };
        if let Err(cause) = outcome {
            // Pass copies of these values, since the address of the job must not escape.
            let stopped = Stopped { at: job.at, asked: job.rows.is_empty() || job.rows.start > job.at, end };
            self.failed(work, plan, task, stopped, reader, cause, how.0);
        }
    }

    /// Makes the job for the samples of some rows of a batch.
    #[inline(always)]
    fn job<'a>(
        &'a self,
        plan: &'a Plan,
        task: &'a Task<'a>,
        rows: Range<usize>,
        reader: &'a mut Reader,
        (timed, bulk): (bool, bool),
    ) -> MapJob<'a, D> {
        let known = match task.indices {
            Indices::List(_) => rows.end,
            _ if self.workers() > 0 || plan.spans.is_some() => rows.end,
            _ => plan.positions - task.first,
        };
        MapJob {
            dataset: &self.dataset,
            plan,
            indices: &task.indices,
            at: rows.start,
            known,
            rows,
            first: task.first,
            cx: &mut reader.cx,
            scratch: &mut reader.scratch,
            activity: &self.activities[reader.activity],
            laps: if timed { reader.timer.laps() } else { None },
            cancel: self.cancel.flag(),
            bulk,
            single: self.single,
        }
    }

    /// Handles rows that could not all be filled: continues without the bad samples, or records the
    /// failure.
    #[cold]
    #[inline(never)]
    #[expect(clippy::too_many_arguments, reason = "it continues `fill_rows`")]
    fn failed(
        &self,
        work: &BatchState<C::Payload>,
        plan: &Plan,
        task: &Task<'_>,
        stopped: Stopped,
        reader: &mut Reader,
        cause: Cause,
        timed: bool,
    ) {
        let Stopped { mut at, asked, end } = stopped;
        let cause = cause.at((at < end).then(|| task.indices.at(at)), plan.samples);
        let (by, mut outcome) = (reader.by(), Err(cause));
        if C::STACKS && !self.on_error.is_raise() {
            let mut job = self.job(plan, task, at + usize::from(asked)..end, reader, (timed, self.bulk > 0));
            job.at = at;
            // SAFETY: the row exists and belongs to the job's claim, and the job will not write it
            // again.
            let leave_empty = |row| unsafe { C::leave_empty(&work.payload, row) };
            let mut skipping = self.skipping(&mut job, end, by, &leave_empty);
            while !skipping.gave_up
                && let Err(cause) = outcome
            {
                outcome = skipping.pass_over(cause);
                if outcome.is_ok() {
                    outcome = guarded(|| self.collate.fill(&work.payload, &mut skipping));
                }
            }
            work.note(skipping.bad);
            at = job.at;
        }
        if let Err(cause) = outcome {
            // After a bulk read, `at` may be the end. If there are no rows, there is no index.
            let row = at.min(end.saturating_sub(1));
            let index = if row < end { task.indices.at(row) } else { 0 };
            work.fail(Failure { position: task.first + row, index, by, cause });
        }
    }

    /// Makes a batch of the good samples with a collate function.
    #[inline(never)]
    fn collate_good(
        &self,
        work: &BatchState<C::Payload>,
        job: &mut MapJob<'_, D>,
        end: usize,
        by: By,
    ) -> Result<(), Cause> {
        let rows = job.rows.len();
        let hinted = guarded(|| {
            job.prefetch_first();
            Ok(())
        });
        if hinted.is_err() {
            job.known = 0;
        }
        let mut skipping = self.skipping(job, end, by, &|_| {});
        let outcome = guarded(|| self.collate.fill(&work.payload, &mut skipping));
        let nothing = rows > 0 && skipping.bad.iter().filter(|bad| bad.row.is_some()).count() == rows;
        work.note(skipping.bad);
        if nothing {
            dispose(outcome);
            // The panic hook has reported a panic in here; nothing else is done about it.
            catch_panic(|| work.payload.discard());
            return Ok(());
        }
        outcome
    }

    /// Makes a job that does not stop at a bad sample.
    fn skipping<'t, 'a>(
        &'t self,
        job: &'t mut MapJob<'a, D>,
        end: usize,
        by: By,
        leave_empty: &'t dyn Fn(usize),
    ) -> SkipJob<'t, 'a, D> {
        let replaces = matches!(self.on_error, OnError::Replace(_));
        SkipJob::new(job, end, replaces, self.lengths.as_deref(), by, leave_empty, self.is_blocked.as_ref())
    }
}

impl<D: Loadable, C: Collate<D>> fmt::Debug for Engine<D, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("single", &self.single).finish_non_exhaustive()
    }
}
