//! Makes batches of an iterable dataset, of which each worker reads its own part.

use std::sync::{Arc, PoisonError};

use crossbeam_utils::CachePadded;

use crate::BoxError;
use crate::dataset::{Context, Iterable, IterableDataset, StopToken, WorkerInfo, set_worker_info};
use crate::loader::backend::protocol::{BatchWorker, Outcome, Request, Start, StreamPosition};
use crate::loader::bad_samples::{NO_NUMBER, OnError, WINDOW};
use crate::loader::checkpoint::state::{State, Stream};
use crate::loader::collate::Collate;
#[cfg(processes)]
use crate::loader::collate::allocate::PROBES;
use crate::loader::collate::batch_buffer::BatchBuffer;
use crate::loader::collate::batch_state::BatchState;
use crate::loader::collate::job::{Job, Put, Read};
use crate::loader::collate::storage::Storage;
use crate::loader::error::failure::{Cause, Failure, Skipped};
use crate::loader::error::guard::{catch_panic, caught, dispose, dispose_each, guarded};
use crate::loader::error::run::{By, Error};
use crate::loader::metrics::activity::{Activity, STARTING};
use crate::loader::metrics::clock::{Laps, next_timed};
use crate::loader::order::index_source::{Batching, IndexSource};
use crate::loader::order::passes::{PassSeed, Passes};
use crate::loader::trace;
use crate::loader::worker::cancel::CancelFlag;
use crate::loader::worker::claim_size::ClaimSizer;
use crate::loader::worker::reader::Reader;
use crate::loader::worker::skip::lend;
use crate::loader::worker::timing::Timing;
use crate::placed::Placed;
use crate::rng::SharedGenerator;
use crate::sync::atomic::Ordering;
use crate::sync::{Instant, Mutex};

/// The state that all workers share.
pub(crate) struct Streaming<D, C> {
    dataset: Iterable<D>,
    collate: C,
    pub(crate) batching: Batching,
    /// Whether bad samples are skipped.
    skipping: bool,
    pub(crate) cancel: StopToken,
    /// The activity of each worker, followed by that of the consumer.
    pub(crate) activities: Placed<[CachePadded<Activity>]>,
    /// The position from which each worker resumes the pass; empty if the pass begins at its start.
    resume: Mutex<Vec<Stream>>,
}

impl<D: IterableDataset, C: Collate<Iterable<D>>> Streaming<D, C> {
    /// Continues to stack a batch after a sample that could not be written into its row. (Samples
    /// that cannot be read are skipped by the job itself, except after a panic.)
    #[cold]
    #[inline(never)]
    fn stack_on<'a>(
        &self,
        work: &BatchState<C::Payload>,
        mut job: StreamJob<'a, D>,
        mut outcome: Result<(), Cause>,
    ) -> (StreamJob<'a, D>, Result<(), Cause>) {
        while job.answer == Answer::Fine {
            let Err(cause) = outcome else { break };
            // A sample was read, but could not be written.
            outcome = job.pass_over(cause);
            if outcome.is_ok() {
                outcome = guarded(|| self.collate.fill(&work.payload, &mut job));
            }
        }
        (job, outcome)
    }
}

impl<D, C> Streaming<D, C> {
    /// Makes the shared state for reading a dataset; `on_error` says how bad samples are handled.
    pub(crate) fn new(
        (dataset, collate): (Iterable<D>, C),
        batching: Batching,
        on_error: OnError,
        cancel: StopToken,
        activities: Placed<[CachePadded<Activity>]>,
    ) -> Arc<Self> {
        let (skipping, resume) = (!on_error.is_raise(), Mutex::default());
        Arc::new(Self { dataset, collate, batching, skipping, cancel, activities, resume })
    }

    /// Returns the position from which worker number `worker` resumes the pass.
    pub(crate) fn stream(&self, worker: usize) -> Stream {
        self.resume.lock().unwrap_or_else(PoisonError::into_inner).get(worker).cloned().unwrap_or_default()
    }
}

/// The source of passes over an iterable dataset, for which no order is drawn.
pub(crate) struct StreamPasses<D, C>(pub(crate) Arc<Streaming<D, C>>);

impl<D: IterableDataset, C: Send + Sync> Passes for StreamPasses<D, C> {
    fn dataset_len(&self) -> Option<usize> {
        self.0.dataset.len()
    }

    fn samples(&self) -> Option<usize> {
        self.0.dataset.len()
    }

    fn index_source(&self) -> Option<&IndexSource> {
        None
    }

    fn index_source_mut(&mut self) -> Option<&mut IndexSource> {
        None
    }

    fn positions(&self) -> Option<usize> {
        self.samples()
    }

    fn begin(
        &mut self,
        _: PassSeed,
        _: Option<&SharedGenerator>,
        from: Option<&State>,
    ) -> Result<Option<usize>, Error> {
        let streams = from.and_then(|state| state.streams.as_ref());
        let mut resume = self.0.resume.lock().unwrap_or_else(PoisonError::into_inner);
        *resume = streams.map_or_else(Vec::new, |streams| streams.workers.clone());
        Ok(None)
    }
}

/// The number of rows of a batch; `None` at the end of the stream.
type Rows = Option<usize>;

/// One worker's reader of its part of the dataset (its stream).
pub(crate) struct StreamReader<D: IterableDataset, C> {
    engine: Arc<Streaming<D, C>>,
    reader: Reader,
    /// The dataset's cursor; `None` at the end of the stream.
    cursor: Option<D::Cursor>,
    /// The pass that the cursor is for, as in [`Request::pass`].
    pass: Option<u64>,
    /// The number of samples read in this pass.
    number: usize,
    bads: BadSamples,
    /// Where the next pass begins. Only set in a process other than the loader's.
    next_start: Option<Start>,
}

impl<D: IterableDataset, C> StreamReader<D, C> {
    /// Makes the reader of a worker, or of the calling thread.
    pub(crate) fn new(engine: &Arc<Streaming<D, C>>, worker: Option<usize>) -> Self {
        let (engine, activity) = (engine.clone(), worker.unwrap_or(engine.activities.len() - 1));
        let reader = Reader::new(activity, worker, ClaimSizer::fixed(1), 0, Some(engine.cancel.clone()));
        let bads = BadSamples { by: reader.by(), budget: None, list: Vec::new() };
        Self { engine, reader, cursor: None, pass: None, number: 0, bads, next_start: None }
    }

    /// Returns the worker's information for the pass of a request; `None` in the calling thread.
    fn info(&self, request: &Request) -> Option<WorkerInfo> {
        let workers = self.engine.activities.len() - 1;
        self.reader.worker.map(|id| WorkerInfo::new(id, workers, request.seed))
    }

    /// Writes the position in the stream into `mark`.
    #[inline]
    fn note(&self, mark: &mut StreamPosition) {
        (mark.samples, mark.ended) = (self.number, self.cursor.is_none());
        mark.saved.clear();
        mark.saves = self.cursor.as_ref().is_some_and(|cursor| {
            guarded(|| Ok(self.engine.dataset.save(cursor, &mut mark.saved))).is_ok_and(|saves| saves)
        });
    }

    /// Begins a pass. If that fails, returns the outcome of the pass's first batch. The time is
    /// recorded separately from claims, since beginning a stream is not comparable with reading
    /// samples.
    #[cold]
    fn start<P>(&mut self, request: &Request, task: usize, work: &BatchState<P>) -> Option<Rows> {
        let engine = self.engine.clone();
        if engine.cancel.is_stopping() {
            return Some(None);
        }
        let activity = &*engine.activities[self.reader.activity];
        let ((mut span, traced), started) = (trace::fill(task), Instant::now());
        // `STARTING` distinguishes this from reading the first sample.
        activity.begin(task, 0, STARTING);
        activity.counters.begin_claim(started);
        let begun = self.begin(request);
        activity.end();
        activity.counters.started(started.elapsed());
        activity.counters.end_interval(Instant::now());
        let traced = traced.and(span.leave());
        let cause = begun.map_err(Cause::Start).and(traced).err()?;
        self.fail(work, cause);
        Some(Some(0))
    }

    /// Fails a batch at the current position in the stream.
    #[cold]
    fn fail<P>(&self, work: &BatchState<P>, cause: Cause) {
        let (number, by) = (self.number, self.reader.by());
        work.fail(Failure { position: number, index: number, by, cause });
    }

    /// Ends the stream after a panic that was not caught in a guarded call, because the position is
    /// then unknown.
    #[cold]
    fn give_up(&mut self, request: &Request) {
        self.engine.activities[self.reader.activity].abandon();
        self.pass = Some(request.pass);
        dispose(self.cursor.take());
        dispose_each(std::mem::take(&mut self.bads.list));
    }

    /// Begins a pass at its start or at a resumed position.
    fn begin(&mut self, request: &Request) -> Result<(), BoxError> {
        let info = self.info(request);
        if info.is_some() {
            set_worker_info(info);
        }
        (self.pass, self.number) = (Some(request.pass), 0);
        dispose(self.cursor.take());
        let engine = self.engine.clone();
        let next_start = self.next_start.take();
        let Start { stream, until } = next_start.unwrap_or_else(|| engine.stream(self.reader.activity).into());
        let Stream { samples, saved, .. } = stream;
        let cursor = match &saved {
            Some(saved) => guarded(|| engine.dataset.resume(info, saved)),
            None => guarded(|| engine.dataset.iter(info)),
        };
        self.cursor = Some(cursor.map_err(Cause::into_error)?);
        if saved.is_some() {
            self.number = samples;
        }
        self.pass_over(until, request)
    }

    /// Reads samples and discards them, up to number `samples`.
    fn pass_over(&mut self, samples: usize, request: &Request) -> Result<(), BoxError> {
        let seed = self.info(request).map_or(request.seed, |info| info.seed());
        let engine = &*self.engine;
        let (activity, cx) = (&*engine.activities[self.reader.activity], &mut self.reader.cx);
        while self.number < samples && !engine.cancel.is_stopping() {
            let Some(cursor) = &mut self.cursor else { break };
            activity.index.store(self.number, Ordering::Relaxed);
            cx.start_pass(seed, request.epoch);
            cx.start_sample(self.number as u64);
            self.number += 1;
            let next = guarded(|| match engine.dataset.next(cursor, cx) {
                Ok(sample) => Ok(sample.is_some()),
                Err(error) => {
                    dispose(error);
                    Ok(true)
                }
            });
            match next {
                Ok(true) => {}
                Ok(false) => dispose(self.cursor.take()),
                Err(panic) => {
                    dispose(self.cursor.take());
                    return Err(panic.into_error());
                }
            }
        }
        Ok(())
    }
}

impl<D: IterableDataset, C> Drop for StreamReader<D, C> {
    fn drop(&mut self) {
        dispose(self.cursor.take());
    }
}

impl<D, C> BatchWorker<C::Payload> for StreamReader<D, C>
where
    D: IterableDataset,
    C: Collate<Iterable<D>>,
{
    #[cfg(processes)]
    fn start_at(&mut self, start: Start) {
        self.next_start = Some(start);
    }

    fn fill(
        &mut self,
        request: &Request,
        task: usize,
        work: &BatchState<C::Payload>,
        position: &mut StreamPosition,
    ) -> Outcome {
        let outcome = caught(|| {
            if self.pass != Some(request.pass)
                && let Some(outcome) = self.start(request, task, work)
            {
                return outcome;
            }
            if self.reader.sizer.skips_timing() {
                return self.fill_batch::<false>(request, task, work);
            }
            self.fill_timed(request, task, work)
        });
        let rows = outcome.unwrap_or_else(|cause| {
            self.give_up(request);
            self.fail_after_panic(work, cause)
        });
        self.note(position);
        rows.map_or(Outcome::End, Outcome::Batch)
    }
}

impl<D, C> StreamReader<D, C>
where
    D: IterableDataset,
    C: Collate<Iterable<D>>,
{
    #[inline(never)]
    fn fill_timed(&mut self, request: &Request, task: usize, work: &BatchState<C::Payload>) -> Rows {
        let engine = self.engine.clone();
        let activity = &*engine.activities[self.reader.activity];
        let timing = Timing::begin(&mut self.reader, activity, task);
        let outcome = self.fill_batch::<true>(request, task, work);
        match timing.end(&mut self.reader, activity, 1) {
            Ok(()) => outcome,
            // The stream continues with the next batch.
            Err(cause) => self.fail_after_panic(work, cause),
        }
    }

    /// Fails a batch that may already have been made.
    #[cold]
    fn fail_after_panic(&self, work: &BatchState<C::Payload>, cause: Cause) -> Rows {
        self.fail(work, cause);
        catch_panic(|| work.payload.discard());
        Some(0)
    }

    /// Fills a batch. `TIMED` says whether the reader times it. With a constant there are two
    /// functions, each called once, so that the code for one sample is inlined in both.
    #[inline(always)]
    fn fill_batch<const TIMED: bool>(&mut self, request: &Request, task: usize, work: &BatchState<C::Payload>) -> Rows {
        let engine = self.engine.clone();
        if engine.cancel.is_stopping() {
            return None;
        }
        let fail = |number, by, cause| {
            work.fail(Failure { position: number, index: number, by, cause });
            Some(0)
        };
        let by = self.reader.by();
        let seed = self.info(request).map_or(request.seed, |info| info.seed());
        let Some(cursor) = &mut self.cursor else { return None };
        let activity = &*engine.activities[self.reader.activity];
        activity.begin(task, self.number, 0);
        self.bads.budget = engine.skipping.then_some(request.budget);
        let mut job = StreamJob {
            dataset: &*engine.dataset,
            cursor,
            cx: &mut self.reader.cx,
            pass: (seed, request.epoch),
            activity,
            laps: if TIMED { self.reader.timer.laps() } else { None },
            cancel: engine.cancel.flag(),
            rows: engine.batching.batch_size,
            single: engine.batching.single,
            row: 0,
            number: self.number,
            answer: Answer::Fine,
            ended: false,
            bads: &mut self.bads,
        };
        let mut outcome = guarded(|| engine.collate.fill(&work.payload, &mut job));
        if C::STACKS && outcome.is_err() && engine.skipping {
            // The job is passed by value and returned, since its address must not escape.
            (job, outcome) = engine.stack_on(work, job, outcome);
        }
        let mut last = job.number;
        if job.answer == Answer::Fine {
            // Read the samples that the collate function did not take, or that did not fit: the
            // next batch begins after them in any case.
            let rest = guarded(|| {
                while job.next()?.is_some() {}
                Ok(())
            });
            if outcome.is_ok() {
                (outcome, last) = (rest, job.number);
            } else {
                // The `drop` of the second error may panic, which must not end the worker.
                dispose(rest);
            }
        }
        activity.end();
        let StreamJob { row, number, answer, ended, .. } = job;
        let all_good = self.bads.list.is_empty();
        if !all_good {
            work.note(std::mem::take(&mut self.bads.list));
        }
        // The call of the dataset's `next` that found the end was counted, too.
        activity.counters.claimed(number - self.number - usize::from(ended));
        self.number = number;
        if ended || answer == Answer::Panic {
            // A cursor that has panicked must not be used again.
            dispose(self.cursor.take());
        }
        let nothing = ended && (row == 0 || (engine.batching.drop_last && row < engine.batching.batch_size));
        if nothing || outcome.is_err() {
            // The panic hook has reported a panic in here, which must not end the worker.
            catch_panic(|| work.payload.discard());
        }
        match outcome {
            outcome if nothing => {
                dispose(outcome);
                // With bad samples, return a batch without rows: the consumer counts its bad
                // samples and then makes another request.
                if all_good { None } else { Some(0) }
            }
            Ok(()) => Some(row),
            Err(cause) => fail(last.saturating_sub(1), by, cause),
        }
    }
}

/// Makes the first batch of a pass with `make`, leaving out bad samples unless there are too many.
/// Returns whether a loader would deliver the batch.
#[cfg(processes)]
pub(crate) fn make_first<D: IterableDataset>(
    dataset: &D,
    cursor: &mut D::Cursor,
    cx: &mut Context,
    Batching { batch_size: rows, drop_last, single }: Batching,
    make: impl FnOnce(&mut dyn Job<Iterable<D>>) -> Result<(), BoxError>,
) -> Result<bool, BoxError> {
    let (activity, cancel) = (Activity::default(), CancelFlag::default());
    let mut bads = BadSamples { by: By::Consumer, budget: Some(PROBES - 1), list: Vec::new() };
    let mut job = StreamJob {
        dataset,
        cursor,
        cx,
        pass: (0, 0),
        activity: &activity,
        laps: None,
        cancel: &cancel,
        rows,
        single,
        row: 0,
        number: 0,
        answer: Answer::Fine,
        ended: false,
        bads: &mut bads,
    };
    let made = make(&mut job);
    // Read the samples that `make` did not take.
    while made.is_ok() && job.next()?.is_some() {}
    let StreamJob { row, ended, .. } = job;
    let last = bads.list.pop();
    dispose_each(bads.list);
    match last {
        _ if ended && (row == 0 || drop_last && row < rows) => Ok(false),
        Some(bad) if row == 0 => Err(bad.failure.cause.into_error()),
        _ => made.map(|()| true),
    }
}

/// The job for the samples of one batch.
struct StreamJob<'a, D: IterableDataset> {
    dataset: &'a D,
    cursor: &'a mut D::Cursor,
    cx: &'a mut Context,
    /// The worker's seed and the number of the pass.
    pass: (u64, u32),
    activity: &'a Activity,
    /// The record in which samples are timed, if they are timed one by one.
    laps: Option<&'a Laps>,
    cancel: &'a CancelFlag,
    rows: usize,
    single: bool,
    /// The number of samples of this batch so far.
    row: usize,
    /// The number of samples of the pass so far, including those that failed.
    number: usize,
    answer: Answer,
    /// Whether the dataset has reached its end.
    ended: bool,
    bads: &'a mut BadSamples,
}

/// The outcome of the last call of the dataset's `next`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// A sample, or the end of the stream. Also the value before the first call.
    Fine,
    Error,
    Panic,
}

impl<D: IterableDataset> StreamJob<'_, D> {
    /// Reads the next sample.
    #[inline(always)]
    fn read(&mut self) -> Result<Option<Read<'_, Iterable<D>>>, BoxError> {
        if self.left() == 0 || self.cancel.get() {
            return Ok(None);
        }
        let (row, index) = (self.row, self.number);
        self.activity.index.store(index, Ordering::Relaxed);
        self.cx.start_pass(self.pass.0, self.pass.1);
        self.cx.start_sample(index as u64);
        self.number += 1;
        // The value that remains if the call panics.
        self.answer = Answer::Panic;
        let sample = self.dataset.next(self.cursor, self.cx);
        self.answer = if sample.is_ok() { Answer::Fine } else { Answer::Error };
        match sample? {
            Some(sample) => {
                self.row += 1;
                Ok(Some(Read { row, index, sample }))
            }
            None => {
                self.ended = true;
                Ok(None)
            }
        }
    }

    /// Continues after an error of the dataset if bad samples are skipped, and otherwise returns
    /// it.
    #[inline(always)]
    fn resume_after(&mut self, error: BoxError) -> Result<(), BoxError> {
        if self.bads.note_error(self.number - 1, self.row, error)? {
            self.rows = self.row;
        }
        Ok(())
    }
}

/// Bad samples that were skipped. They are not part of the job, which stays in registers only if
/// its address does not escape.
struct BadSamples {
    by: By,
    /// How many bad samples the pass may have; `None` if the first one is an error of the batch.
    budget: Option<usize>,
    list: Vec<Skipped>,
}

impl BadSamples {
    /// Records that the sample with this number is bad, after `rows` good ones in this batch.
    /// Returns `true` if the batch must end because it has more bad samples than the whole pass may
    /// have, or because most of the last samples are bad. Otherwise a dataset that returns
    /// nothing but errors would keep the thread forever.
    #[cold]
    fn note(&mut self, number: usize, rows: usize, cause: Cause) -> bool {
        self.list.push(Skipped { failure: Failure { position: number, index: number, by: self.by, cause }, row: None });
        self.budget.is_some_and(|budget| match budget {
            // This many bad samples are the majority, even if `WINDOW` good ones came before this
            // batch.
            NO_NUMBER => self.list.len() > WINDOW + rows,
            budget => self.list.len() > budget,
        })
    }

    /// Works like [`note`](Self::note), but returns the error if bad samples are errors of the
    /// batch.
    #[cold]
    #[inline(never)]
    fn note_error(&mut self, number: usize, rows: usize, error: BoxError) -> Result<bool, BoxError> {
        if self.budget.is_none() {
            return Err(error);
        }
        Ok(self.note(number, rows, Cause::from(error)))
    }
}

impl<D: IterableDataset> Job<Iterable<D>> for StreamJob<'_, D> {
    #[cfg_attr(not(debug_assertions), inline(always))] // See `MapJob::next`.
    fn next(&mut self) -> Result<Option<Read<'_, Iterable<D>>>, BoxError> {
        // SAFETY: `read` returns nothing that borrows when it fails.
        unsafe { lend(self, Self::read, Self::resume_after) }
    }

    #[inline(always)] // See `MapJob::next`.
    fn next_timed(&mut self) -> Result<Option<Read<'_, Iterable<D>>>, BoxError> {
        next_timed!(self.laps, self.activity, self.next())
    }

    fn is_single(&self) -> bool {
        self.single
    }

    fn is_cancelled(&self) -> bool {
        self.cancel.get()
    }

    fn left(&self) -> usize {
        if self.ended { 0 } else { self.rows - self.row }
    }

    fn index(&self) -> Option<usize> {
        None
    }

    fn index_or_number(&self) -> usize {
        self.number
    }

    fn reads_many(&self) -> bool {
        false
    }

    fn pass_over(&mut self, cause: Cause) -> Result<(), Cause> {
        if self.bads.budget.is_none() {
            return Err(cause);
        }
        self.row -= 1;
        if self.bads.note(self.number - 1, self.row, cause) {
            self.rows = self.row;
        }
        Ok(())
    }

    fn for_each(&mut self, put: Put<'_, Iterable<D>>) -> Result<(), BoxError> {
        let raises = self.bads.budget.is_none();
        loop {
            let Some(read) = self.next_timed()? else { return Ok(()) };
            if raises {
                put(read)?;
            } else if let Err(cause) = guarded(|| put(read)) {
                self.pass_over(cause).map_err(Cause::into_error)?;
            }
        }
    }

    fn write_many(&mut self, region: &BatchBuffer) -> Result<(), BoxError> {
        self.for_each(&mut |read| region.write(read))
    }
}
