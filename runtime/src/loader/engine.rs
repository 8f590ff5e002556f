//! What the consumer and the workers share, and the one piece of work they both do: fill some rows of a batch.

use std::any::Any;
use std::cell::UnsafeCell;
use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crossbeam_utils::CachePadded;
use slotline_core::ordered::{self, Claim, ClaimError, Slot, Worker};

use super::collate::Collate;
use super::error::{By, Error};
use super::pacer::Pacer;
use crate::BoxError;
use crate::dataset::{Context, Dataset};
use crate::sampler::Order;
use crate::wait::Waiter;

/// The ring of a loader whose slots hold `P`.
pub(super) type Ring<P> = ordered::Ring<Box<[Slot<Work<P>>]>, Waiter>;
/// A finished batch's slot.
pub(super) type Lease<P> = ordered::Lease<Arc<Ring<P>>>;

/// What a slot holds: the batch, and what went wrong with it.
pub struct Work<P> {
    pub(super) payload: P,
    /// Whether there is a failure; the ring's publication orders it.
    failed: AtomicBool,
    failure: Mutex<Option<Failure>>,
}

impl<P> Work<P> {
    pub(super) fn new(payload: P) -> Self {
        Self { payload, failed: AtomicBool::new(false), failure: Mutex::new(None) }
    }

    /// Keeps the failure of the lowest position, so that it does not matter who was first.
    #[cold]
    fn fail(&self, failure: Failure) {
        let mut kept = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.as_ref().is_none_or(|kept| failure.position < kept.position) {
            *kept = Some(failure);
        }
        self.failed.store(true, Ordering::Relaxed);
    }

    /// Takes the failure out, if there is one.
    #[inline]
    pub(super) fn take_failure(&mut self) -> Option<Failure> {
        if !*self.failed.get_mut() {
            return None;
        }
        *self.failed.get_mut() = false;
        self.failure.get_mut().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl<P> fmt::Debug for Work<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Work").field("failed", &self.failed).finish_non_exhaustive()
    }
}

/// Why a sample did not become a row.
#[derive(Debug)]
pub(super) struct Failure {
    position: usize,
    index: usize,
    by: By,
    cause: Cause,
}

#[derive(Debug)]
enum Cause {
    Error(BoxError),
    Panic(String),
}

impl Failure {
    pub(super) fn into_error(self, task: usize) -> Error {
        let Self { position, index, by, cause } = self;
        match cause {
            Cause::Error(source) => Error::Sample { index, position, task, by, source },
            Cause::Panic(message) => Error::Panic { index, position, task, by, message },
        }
    }
}

/// What a panic said, if it said it in words.
fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a message").to_owned()
}

/// What a panic said, and its end. A payload that panics when it is dropped would take the thread with it, and so it is
/// dropped under guard, and the second payload not at all.
#[cold]
pub(super) fn last_words(panic: Box<dyn Any + Send>) -> String {
    let message = panic_message(&*panic);
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(second);
    }
    message
}

/// One pass, as the workers need to know it.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) order: Order,
    /// Positions that are delivered: the order's length, less what `drop_last` drops.
    pub(super) positions: usize,
    pub(super) seed: u64,
    pub(super) epoch: u32,
}

/// What the threads of one loader share.
pub(super) struct Engine<D: Dataset, C: Collate<D>> {
    pub(super) dataset: D,
    pub(super) collate: C,
    pub(super) ring: Arc<Ring<C::Payload>>,
    /// Rows of a whole batch, at least 1.
    pub(super) rows: usize,
    /// Rows of a part, at least 1.
    pub(super) part_rows: usize,
    /// Written by the consumer between two runs of the ring, read while holding a claim.
    plan: UnsafeCell<Plan>,
    /// The pass is given up: whatever is still being filled will be thrown away.
    pub(super) abandoned: AtomicBool,
    /// What each worker does, for the timeout's message.
    pub(super) activities: Box<[CachePadded<Activity>]>,
}

// SAFETY: everything but the plan is Sync (`Dataset` and `Collate` demand it, the ring is). The plan is written through
// `plan_mut` only, whose caller vouches that no claim is out, and read under a claim only; the ring orders the two (its
// module says how: `open` releases, claims acquire; publications release, the end of a run acquires).
unsafe impl<D: Dataset, C: Collate<D>> Sync for Engine<D, C> {}

impl<D: Dataset, C: Collate<D>> Engine<D, C> {
    pub(super) fn new(
        dataset: D,
        collate: C,
        ring: Arc<Ring<C::Payload>>,
        rows: usize,
        part_rows: usize,
        workers: usize,
    ) -> Self {
        let activities = (0..=workers).map(|_| CachePadded::default()).collect();
        let (plan, abandoned) = (UnsafeCell::default(), AtomicBool::new(false));
        Self { dataset, collate, ring, rows, part_rows, plan, abandoned, activities }
    }

    /// The plan of the next pass.
    ///
    /// # Safety
    ///
    /// The ring's run must be over with everything taken, and the next one not open yet.
    #[allow(clippy::mut_from_ref)]
    pub(super) unsafe fn plan_mut(&self) -> &mut Plan {
        // SAFETY: no claim is out, so nobody reads the plan, and only the loader's owner writes it.
        unsafe { &mut *self.plan.get() }
    }

    /// A worker's whole life.
    pub(super) fn work(&self, worker: &Worker<Arc<Ring<C::Payload>>>, reader: &mut Reader) {
        loop {
            match worker.claim(reader.pacer.parts()) {
                Ok(claim) => self.fill(claim, reader),
                Err(ClaimError::Ended) if worker.wait_for_run().is_ok() => {}
                Err(_) => return,
            }
        }
    }

    /// Fills the rows of a claim and publishes them; errors and panics are kept in the slot.
    #[inline]
    pub(super) fn fill(&self, claim: Claim<'_, Ring<C::Payload>>, reader: &mut Reader) {
        // SAFETY: a claim is out, so nobody writes the plan.
        let plan = unsafe { &*self.plan.get() };
        let first = claim.ticket() * self.rows;
        let rows = self.rows.min(plan.positions - first);
        let parts = claim.parts();
        let begin = (parts.start * self.part_rows).min(rows);
        let end = parts.end.saturating_mul(self.part_rows).min(rows);
        let activity = &*self.activities[reader.place];
        activity.begin(claim.ticket(), plan.order.get(first + begin).unwrap_or_default());
        let started = reader.pacer.start();
        let work = claim.get();
        let mut job = Job {
            dataset: &self.dataset,
            plan,
            first,
            rows: begin..end,
            cx: &mut reader.cx,
            activity,
            abandoned: &self.abandoned,
            position: first + begin,
        };
        let outcome = catch_unwind(AssertUnwindSafe(|| self.collate.fill(&work.payload, &mut job)));
        let cause = match outcome {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(Cause::Error(error)),
            Err(panic) => Some(Cause::Panic(last_words(panic))),
        };
        if let Some(cause) = cause {
            let position = job.position;
            let index = plan.order.get(position).unwrap_or_default();
            work.fail(Failure { position, index, by: reader.by(), cause });
        }
        reader.pacer.stop(started, parts.len());
        activity.end();
        claim.publish();
    }
}

impl<D: Dataset, C: Collate<D>> fmt::Debug for Engine<D, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("ring", &self.ring).finish_non_exhaustive()
    }
}

/// One thread that fills batches.
#[derive(Debug)]
pub(super) struct Reader {
    /// Its place among the activities: the worker's number, or the last one for the consumer.
    place: usize,
    worker: Option<usize>,
    cx: Context,
    pub(super) pacer: Pacer,
}

impl Reader {
    pub(super) fn new(place: usize, worker: Option<usize>, pacer: Pacer) -> Self {
        Self { place, worker, cx: Context::new(worker), pacer }
    }

    fn by(&self) -> By {
        self.worker.map_or(By::Consumer, By::Worker)
    }
}

/// What a thread is doing now.
#[derive(Debug, Default)]
pub(super) struct Activity {
    /// The batch it fills, plus 1; 0 if none.
    task: AtomicUsize,
    /// The index it reads, or is about to.
    index: AtomicUsize,
}

impl Activity {
    #[inline]
    fn begin(&self, task: usize, index: usize) {
        self.index.store(index, Ordering::Relaxed);
        self.task.store(task.wrapping_add(1), Ordering::Relaxed);
    }

    #[inline]
    fn end(&self) {
        self.task.store(0, Ordering::Relaxed);
    }

    /// The batch it fills.
    pub(super) fn task(&self) -> Option<usize> {
        self.task.load(Ordering::Relaxed).checked_sub(1)
    }

    /// The index it reads for batch `task`, if that is what it does.
    pub(super) fn reading(&self, task: usize) -> Option<usize> {
        let at_it = self.task.load(Ordering::Relaxed) == task.wrapping_add(1);
        at_it.then(|| self.index.load(Ordering::Relaxed))
    }
}

/// Some rows of one batch, to be filled.
#[doc(hidden)]
pub struct Job<'a, D> {
    pub(super) dataset: &'a D,
    plan: &'a Plan,
    /// The position of the batch's row 0.
    first: usize,
    /// Within the batch.
    pub(super) rows: Range<usize>,
    cx: &'a mut Context,
    activity: &'a Activity,
    abandoned: &'a AtomicBool,
    /// The position of the row that is being filled.
    position: usize,
}

/// How many rows ahead a gather asks for its memory.
const AHEAD: usize = 2;

impl<D: Dataset> Job<'_, D> {
    /// The index of row `row` of the batch.
    #[inline]
    pub(super) fn index(&self, row: usize) -> usize {
        self.plan.order.index(self.first + row)
    }

    /// Asks for the memory of the first rows.
    #[inline]
    pub(super) fn prefetch_first(&self) {
        for row in self.rows.clone().take(AHEAD) {
            self.dataset.prefetch(self.index(row));
        }
    }

    /// Asks for the memory of the row that comes some rows after `row`.
    #[inline]
    pub(super) fn prefetch_after(&self, row: usize) {
        if row + AHEAD < self.rows.end {
            self.dataset.prefetch(self.index(row + AHEAD));
        }
    }

    /// Whether nobody wants the batch any more.
    #[inline]
    pub(super) fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Relaxed)
    }

    /// Reads the sample of row `row`.
    #[inline]
    pub(super) fn read(&mut self, row: usize, index: usize) -> Result<D::Sample<'_>, BoxError> {
        self.position = self.first + row;
        self.activity.index.store(index, Ordering::Relaxed);
        self.cx.start_pass(self.plan.seed, self.plan.epoch);
        self.cx.start_sample(self.position);
        self.dataset.get(index, self.cx)
    }
}

impl<D> fmt::Debug for Job<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").field("first", &self.first).field("rows", &self.rows).finish_non_exhaustive()
    }
}
