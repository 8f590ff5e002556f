//! What the consumer and the workers share, and the one piece of work they all do: fill some rows of a batch with samples
//! that are had by index.

use std::cell::UnsafeCell;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crossbeam_utils::CachePadded;

use super::collate::Collate;
use super::job::{Abandoned, Activity, MapJob, Reader};
use super::pacer::Pacer;
use super::plan::{Indices, Plan};
use super::work::{Failure, Work, guarded};
use crate::dataset::{Dataset, Loadable, WorkerInfo, set_worker_info};

/// What the threads of one loader share.
pub(super) struct Engine<D: Loadable, C: Collate<D>> {
    pub(super) dataset: D,
    pub(super) collate: C,
    /// Rows of a whole batch, at least 1.
    pub(super) rows: usize,
    /// Whether there are no batches, but samples by themselves.
    pub(super) single: bool,
    /// Indices that each thread keeps for [`Dataset::get_many`]; 0 if batches are not read by it.
    bulk: usize,
    /// Written by the consumer between two passes, read by whoever has a claim.
    plan: UnsafeCell<Plan>,
    pub(super) abandoned: Abandoned,
    /// What each worker does, and last the consumer.
    pub(super) activities: Arc<[CachePadded<Activity>]>,
}

// SAFETY: everything but the plan is Sync (`Dataset` and `Collate` demand it). The plan is written through `plan_mut` only,
// whose caller vouches that no claim is out, and read through `plan` only, whose caller has one; the rings order the two.
unsafe impl<D: Dataset, C: Collate<D>> Sync for Engine<D, C> {}

/// One batch: its number, the position of its first row, and its indices.
#[derive(Clone, Copy, Debug)]
pub(super) struct Task<'a> {
    pub(super) number: usize,
    pub(super) first: usize,
    pub(super) indices: Indices<'a>,
}

impl<D: Dataset, C: Collate<D>> Engine<D, C> {
    pub(super) fn new(dataset: D, collate: C, rows: usize, single: bool, bulk: usize, workers: usize) -> Self {
        let activities = (0..=workers).map(|_| CachePadded::default()).collect();
        let (plan, abandoned) = (UnsafeCell::default(), Abandoned::default());
        Self { dataset, collate, rows, single, bulk, plan, abandoned, activities }
    }

    /// The reader of a worker, or of the consumer.
    pub(super) fn reader(&self, worker: Option<usize>, pacer: Pacer) -> Reader {
        Reader::new(worker.unwrap_or(self.workers()), worker, pacer, self.bulk)
    }

    /// How many workers there are.
    pub(super) fn workers(&self) -> usize {
        self.activities.len() - 1
    }

    /// The plan of the next pass.
    ///
    /// # Safety
    ///
    /// No claim may be out, and none can be had while the plan is written.
    #[allow(clippy::mut_from_ref)]
    pub(super) unsafe fn plan_mut(&self) -> &mut Plan {
        // SAFETY: no claim is out, so nobody reads the plan, and only the loader's owner writes it.
        unsafe { &mut *self.plan.get() }
    }

    /// The plan of this pass.
    ///
    /// # Safety
    ///
    /// While it is used, a claim must be out, or the caller be the only one who may call `plan_mut`.
    pub(super) unsafe fn plan(&self) -> &Plan {
        // SAFETY: nobody writes the plan now (the caller's word).
        unsafe { &*self.plan.get() }
    }

    /// Fills some rows of a batch; errors and panics are kept in its slot. `TIMED`: the reader times the claim.
    #[inline]
    pub(super) fn fill<const TIMED: bool>(
        &self,
        work: &Work<C::Payload>,
        plan: &Plan,
        task: Task<'_>,
        rows: Range<usize>,
        reader: &mut Reader,
    ) {
        let activity = &*self.activities[reader.place];
        let end = rows.end;
        // A short batch may have no rows for this claim, and then no index to name.
        let index_at = |row| if row < end { task.indices.at(row) } else { 0 };
        activity.begin(task.number, index_at(rows.start));
        activity.figures.claimed(end - rows.start);
        if let Some(id) = reader.worker
            && reader.seed != Some(plan.seed)
        {
            reader.seed = Some(plan.seed);
            set_worker_info(Some(WorkerInfo::new(id, self.workers(), plan.seed)));
        }
        let known = match task.indices {
            Indices::List(_) => rows.end,
            _ if self.workers() > 0 => rows.end,
            _ => plan.positions - task.first,
        };
        let mut job = MapJob::<_, TIMED> {
            dataset: &self.dataset,
            plan,
            indices: task.indices,
            at: rows.start,
            known,
            rows,
            first: task.first,
            cx: &mut reader.cx,
            scratch: &mut reader.scratch,
            activity,
            laps: if TIMED { reader.watch.laps() } else { None },
            abandoned: &self.abandoned,
            bulk: self.bulk > 0,
            single: self.single,
        };
        let outcome = guarded(|| {
            job.prefetch_first();
            self.collate.fill(&work.payload, &mut job)
        });
        if let Err(cause) = outcome {
            let row = job.at;
            let (position, index) = (task.first + row, index_at(row));
            work.fail(Failure { position, index, by: reader.by(), cause });
        }
        activity.end();
    }
}

impl<D: Loadable, C: Collate<D>> fmt::Debug for Engine<D, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("rows", &self.rows).finish_non_exhaustive()
    }
}
