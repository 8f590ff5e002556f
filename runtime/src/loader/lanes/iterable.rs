//! Batches of an iterable dataset, which each worker reads from its own start.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crossbeam_utils::CachePadded;

use super::super::clock::{Laps, Timing};
use super::super::collate::Collate;
use super::super::draw::Batching;
use super::super::error::Error;
use super::super::job::{Abandoned, Activity, Job, Put, Read, Reader};
use super::super::work::{Cause, Failure, Work, dispose, guarded};
use super::worker::{Hand, Outcome, Request};
use super::{Home, Pass, Passes};
use crate::BoxError;
use crate::dataset::{Context, Iterable, IterableDataset, WorkerInfo, set_worker_info};

/// What the workers share.
pub(super) struct Engine<D, C> {
    pub(super) dataset: Iterable<D>,
    pub(super) collate: C,
    pub(super) batching: Batching,
    pub(super) abandoned: Abandoned,
    /// What each worker does, and last the consumer.
    pub(super) activities: Arc<[CachePadded<Activity>]>,
}

impl<D: IterableDataset, C: Send + Sync> Home<Iterable<D>> for Engine<D, C> {
    fn dataset(&self) -> &Iterable<D> {
        &self.dataset
    }

    fn set_abandoned(&self, abandoned: bool) {
        self.abandoned.set(abandoned);
    }

    fn activities(&self) -> &Arc<[CachePadded<Activity>]> {
        &self.activities
    }
}

/// Passes that nothing has to be drawn for.
pub(super) struct IterPasses<D, C>(pub(super) Arc<Engine<D, C>>);

impl<D: IterableDataset, C: Send + Sync> Passes for IterPasses<D, C> {
    fn samples(&self) -> Option<usize> {
        self.0.dataset.len()
    }

    fn begin(&mut self, _: Pass) -> Result<Option<usize>, Error> {
        Ok(None)
    }
}

/// One worker's way through the dataset.
pub(super) struct IterHand<D: IterableDataset, C> {
    engine: Arc<Engine<D, C>>,
    reader: Reader,
    /// `None` at the end of the dataset.
    cursor: Option<D::Cursor>,
    /// The pass that the cursor belongs to.
    epoch: Option<u32>,
    /// Samples read in it.
    number: usize,
}

impl<D: IterableDataset, C> IterHand<D, C> {
    pub(super) fn new(engine: Arc<Engine<D, C>>, reader: Reader) -> Self {
        Self { engine, reader, cursor: None, epoch: None, number: 0 }
    }

    /// Which worker it is in the request's pass, if it is one.
    fn info(&self, request: Request) -> Option<WorkerInfo> {
        let workers = self.engine.activities.len() - 1;
        self.reader.worker.map(|id| WorkerInfo::new(id, workers, request.seed))
    }

    /// Begins a pass.
    fn begin(&mut self, request: Request) -> Result<(), BoxError> {
        let info = self.info(request);
        if info.is_some() {
            set_worker_info(info);
        }
        (self.epoch, self.number) = (Some(request.epoch), 0);
        dispose(self.cursor.take());
        let cursor = guarded(|| self.engine.dataset.iter(info)).map_err(Cause::into_error)?;
        self.cursor = Some(cursor);
        Ok(())
    }
}

impl<D: IterableDataset, C> Drop for IterHand<D, C> {
    fn drop(&mut self) {
        dispose(self.cursor.take());
    }
}

impl<D, C> Hand<C::Payload> for IterHand<D, C>
where
    D: IterableDataset,
    C: Collate<Iterable<D>>,
{
    fn fill(&mut self, request: Request, task: usize, work: &Work<C::Payload>) -> Outcome {
        if self.reader.pacer.lets_go() {
            self.fill_batch::<false>(request, task, work)
        } else {
            self.fill_timed(request, task, work)
        }
    }
}

impl<D, C> IterHand<D, C>
where
    D: IterableDataset,
    C: Collate<Iterable<D>>,
{
    #[inline(never)]
    fn fill_timed(&mut self, request: Request, task: usize, work: &Work<C::Payload>) -> Outcome {
        let engine = self.engine.clone();
        let activity = &*engine.activities[self.reader.place];
        let timing = Timing::begin(&mut self.reader, activity, task);
        let outcome = self.fill_batch::<true>(request, task, work);
        timing.end(&mut self.reader, activity, 1);
        outcome
    }

    /// Fills a batch. `TIMED`: the reader times it.
    #[inline(always)]
    fn fill_batch<const TIMED: bool>(&mut self, request: Request, task: usize, work: &Work<C::Payload>) -> Outcome {
        let engine = self.engine.clone();
        if engine.abandoned.get() {
            return Outcome::End;
        }
        let fail = |number, by, cause| {
            work.fail(Failure { position: number, index: number, by, cause });
            Outcome::Batch(0)
        };
        let by = self.reader.by();
        if self.epoch != Some(request.epoch)
            && let Err(error) = self.begin(request)
        {
            return fail(0, by, Cause::Start(error));
        }
        let seed = self.info(request).map_or(request.seed, |info| info.seed());
        let Some(cursor) = &mut self.cursor else { return Outcome::End };
        let activity = &*engine.activities[self.reader.place];
        activity.begin(task, self.number);
        let mut job = IterJob::<_, TIMED> {
            dataset: &*engine.dataset,
            cursor,
            cx: &mut self.reader.cx,
            pass: (seed, request.epoch),
            activity,
            laps: if TIMED { self.reader.watch.laps() } else { None },
            abandoned: &engine.abandoned,
            rows: engine.batching.batch_size,
            single: engine.batching.single,
            row: 0,
            number: self.number,
            answer: Answer::Fine,
            ended: false,
        };
        let mut outcome = guarded(|| engine.collate.fill(&work.payload, &mut job));
        let mut last = job.number;
        if job.answer == Answer::Fine {
            // What was not wanted of the batch, or not fitting: the next one begins with the samples after it all the same.
            let rest = guarded(|| {
                while job.next()?.is_some() {}
                Ok(())
            });
            if outcome.is_ok() {
                (outcome, last) = (rest, job.number);
            }
        }
        activity.end();
        let IterJob { row, number, answer, ended, .. } = job;
        self.number = number;
        activity.figures.claimed(row);
        if ended || answer == Answer::Panic {
            // A cursor that panicked has nothing more to say.
            dispose(self.cursor.take());
        }
        let nothing = ended && (row == 0 || (engine.batching.drop_last && row < engine.batching.batch_size));
        if nothing || outcome.is_err() {
            // A panic there is reported as any panic is, and must not end the worker.
            drop(guarded(|| {
                C::discard(&work.payload);
                Ok(())
            }));
        }
        match outcome {
            _ if nothing => Outcome::End,
            Ok(()) => Outcome::Batch(row),
            Err(cause) => fail(last.saturating_sub(1), by, cause),
        }
    }
}

/// The samples of one batch. `TIMED`: of one that is timed.
struct IterJob<'a, D: IterableDataset, const TIMED: bool> {
    dataset: &'a D,
    cursor: &'a mut D::Cursor,
    cx: &'a mut Context,
    /// The seed and the number of the pass.
    pass: (u64, u32),
    activity: &'a Activity,
    /// Where samples are timed, if they are.
    laps: Option<&'a Laps>,
    abandoned: &'a Abandoned,
    rows: usize,
    single: bool,
    /// Samples so far.
    row: usize,
    /// Samples of the pass so far, those that failed among them.
    number: usize,
    answer: Answer,
    /// Whether the dataset is at its end.
    ended: bool,
}

/// What the dataset said to the last request for a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// A sample, or that there are no more; or it was not asked yet.
    Fine,
    Error,
    Panic,
}

impl<D: IterableDataset, const TIMED: bool> Job<Iterable<D>> for IterJob<'_, D, TIMED> {
    fn next(&mut self) -> Result<Option<Read<'_, Iterable<D>>>, BoxError> {
        if self.left() == 0 || self.abandoned.get() {
            return Ok(None);
        }
        let (row, index) = (self.row, self.number);
        self.activity.index.store(index, Ordering::Relaxed);
        self.cx.start_pass(self.pass.0, self.pass.1);
        self.cx.start_sample(index);
        self.number += 1;
        // Until it returns.
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

    fn next_timed(&mut self) -> Result<Option<Read<'_, Iterable<D>>>, BoxError> {
        let (laps, activity) = (if TIMED { self.laps } else { None }, self.activity);
        laps.inspect(|laps| laps.ask(activity));
        let read = self.next();
        laps.inspect(|laps| laps.got(activity, !matches!(read, Ok(None))));
        read
    }

    fn is_single(&self) -> bool {
        self.single
    }

    fn is_abandoned(&self) -> bool {
        self.abandoned.get()
    }

    fn left(&self) -> usize {
        if self.ended { 0 } else { self.rows - self.row }
    }

    fn index(&self) -> Option<usize> {
        None
    }

    fn reads_many(&self) -> bool {
        false
    }

    fn for_each(&mut self, put: Put<'_, Iterable<D>>) -> Result<(), BoxError> {
        while let Some(read) = self.next_timed()? {
            put(read)?;
        }
        Ok(())
    }
}

impl<D: IterableDataset, C> fmt::Debug for Engine<D, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("batching", &self.batching).finish_non_exhaustive()
    }
}
