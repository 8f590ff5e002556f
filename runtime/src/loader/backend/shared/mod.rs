//! The backend of worker threads that share one ring: the consumer's end of this ring.
//!
//! A slot refers to a cell (see [`cell_pool`](crate::loader::collate::cell_pool)). The consumer
//! takes the cell of a finished batch out of the slot, puts a free one into it, and releases the
//! slot. If no cell is free, the user gets the cell and the slot is not released: the ring
//! continues with one slot less until the next batch is asked for. So no more cells are needed than
//! one for each slot and one for each batch that may be held.

pub(crate) mod start;
pub(crate) mod worker;

use std::sync::Arc;

use slotline_core::ordered::{self, Consumer, NextError, OpenError, Worker};

use crate::fork::Process;
use crate::loader::backend::protocol::{Backend, Begin, Begun, Next, NotBegun, NotReady, Ready};
use crate::loader::backend::shared::worker::{Help, Ring, Shared};
use crate::loader::collate::cell_pool::CellPool;
use crate::loader::collate::storage::Storage;
use crate::loader::collate::tag::Tag;
use crate::loader::order::plan::{DrawOutcome, Plan};
use crate::loader::order::plan_cell::PlanCell;
use crate::loader::order::progress::Progress;
use crate::loader::worker::cancel::Stopper;
use crate::loader::worker::pool::WorkerPool;
use crate::wait::Until;

/// The consumer's end of the ring that all workers share.
pub(crate) struct SharedRing<P> {
    pub(crate) shared: Arc<Shared<P>>,
    pub(crate) consumer: Consumer<Arc<Ring<P>>>,
    /// The slot of the last batch, if no free cell could replace the cell that the user got.
    pub(crate) empty: Option<ordered::Lease<Arc<Ring<P>>>>,
    /// Claims the rows of an abandoned pass that no worker has claimed.
    pub(crate) discarder: Worker<Arc<Ring<P>>>,
    pub(crate) plan_cell: Arc<PlanCell>,
    /// Makes batches in the consumer's thread.
    pub(crate) helper: Box<dyn Help>,
    pub(crate) helps: bool,
}

impl<P: Storage> SharedRing<P> {
    /// Puts a free cell into the slot of the last batch and releases the slot. If no cell is free,
    /// returns what the caller gets instead of the next batch.
    #[cold]
    #[inline(never)]
    fn refill(&mut self, cell_pool: &mut CellPool<P>) -> Option<NotReady> {
        let slot = self.empty.as_mut()?;
        if cell_pool.refill(slot) {
            self.empty = None;
            return None;
        }
        Some(match self.ended() {
            // Batches that are ready stay in their slots.
            _ if self.shared.cancel.is_stopped() => NotReady::Closed,
            Some(end) => end,
            None => NotReady::Held,
        })
    }

    /// Returns why no more batches come, in this pass or at all; `None` if more may come.
    fn ended(&self) -> Option<NotReady> {
        self.consumer.peek().err().map(nothing).filter(|end| matches!(end, NotReady::End | NotReady::Closed))
    }

    /// Fills some rows in the consumer's thread, if any can be claimed.
    #[inline]
    fn help(&mut self) -> bool {
        // The workers must be awake when the caller waits for them later.
        self.consumer.call_workers();
        self.helper.help()
    }

    /// The plan of the pass.
    #[inline]
    fn plan(&self) -> &Plan {
        // SAFETY: only the loader calls `draft`, and not while `self` is borrowed.
        unsafe { self.plan_cell.plan() }
    }
}

impl<P: Storage> Backend<P> for SharedRing<P> {
    fn drain(&mut self, pass: &mut Progress, deadline: &Until) -> Result<(), NotBegun> {
        loop {
            match self.consumer.try_next() {
                Ok(lease) => {
                    pass.discarded += 1;
                    let work = lease.state();
                    drop(work.take_errors()); // Never panics.
                    work.payload.discard();
                }
                Err(NextError::Failed { .. }) => pass.discarded += 1,
                // Claim and discard the parts of a started batch that no worker has claimed.
                // Publish them instead of failing them, so that the batch is taken above, with the
                // failures that its other parts may have recorded.
                Err(NextError::Empty) => match self.discarder.try_claim(usize::MAX) {
                    Ok(claim) => claim.publish(),
                    Err(_) if self.consumer.wait(deadline) => {}
                    Err(_) => return Err(NotBegun::Late),
                },
                Err(NextError::Closed) => return Err(NotBegun::Closed),
                Err(NextError::Ended | NextError::Held) => return Ok(()),
            }
        }
    }

    fn begin(&mut self, begin: Begin<'_>) -> Result<Begun, NotBegun> {
        let Begin { request, left, deadline, .. } = begin;
        self.shared.liveness.begin(0);
        let failures = match &self.shared.barrier {
            Some(barrier) => barrier.begin(request.seed, deadline).ok_or(NotBegun::Late)?,
            None => Vec::new(),
        };
        self.consumer.open(left).map_err(|error| match error {
            OpenError::Closed => NotBegun::Closed,
            error => {
                debug_assert_eq!(error, OpenError::TooMany);
                NotBegun::TooMany
            }
        })?;
        if let Some(barrier) = &self.shared.barrier {
            barrier.open();
        }
        let no_worker_left = self.shared.liveness.begin(failures.len()) && !self.helps;
        Ok(Begun { failures, no_worker_left })
    }

    #[inline(always)]
    fn try_next(&mut self, pass: &Progress, pool: &WorkerPool, cell_pool: &mut CellPool<P>) -> Next<P> {
        if self.empty.is_some()
            && let Some(nothing) = self.refill(cell_pool)
        {
            return Err(nothing);
        }
        let helped = self.helps && !self.consumer.is_ready() && !pool.is_lost() && self.help();
        // SAFETY: only the loader calls `draft`, and not while `self` is borrowed.
        let plan = unsafe { self.plan_cell.plan() };
        let mut slot = match self.consumer.try_next_here() {
            Ok(slot) => slot,
            // The rows that were just filled are of a later batch, or only a part of the next one.
            Err(NextError::Empty) if helped => return Err(NotReady::Again),
            Err(NextError::Failed { ticket }) => return Err(NotReady::Lost { task: task(plan, ticket) }),
            Err(error) => return Err(nothing(error)),
        };
        if self.shared.cancel.is_stopped() {
            return Err(NotReady::Closed);
        }
        let (task, rows) = match pass.tasks {
            Some(_) => {
                // Without gaps, batches come in order.
                let task = if pass.gaps { task(plan, slot.ticket()) } else { pass.delivered };
                (task, plan.rows(task))
            }
            None => match drawn_batch(plan, slot.slot()) {
                Some(batch) => batch,
                // The ticket was claimed beyond the end of the user's iterator.
                None => return Err(NotReady::Again),
            },
        };
        if let Some(lease) = cell_pool.exchange(&mut slot) {
            return Ok(Ready { lease, task, rows });
        }
        let lease = CellPool::share(&slot);
        self.empty = Some(slot.keep(self.shared.ring.clone()));
        Ok(Ready { lease, task, rows })
    }

    /// Sets whether the consumer helps. It always helps if it is the only thread left that can
    /// load.
    fn set_helping(&mut self, helps: bool) -> bool {
        let must = self.helps && self.shared.liveness.none_is_left();
        std::mem::replace(&mut self.helps, helps || must)
    }

    fn wait(&mut self, deadline: &Until) -> bool {
        if self.helps { self.consumer.wait_or_work(deadline) } else { self.consumer.wait(deadline) }
    }

    fn wait_for_release(&mut self, deadline: &Until, cell_pool: &CellPool<P>) -> bool {
        let own = || self.empty.as_ref().is_some_and(|slot| slot.is_free());
        cell_pool.wait(deadline, || own() || self.shared.cancel.is_stopped() || self.ended().is_some())
    }

    fn is_ready(&self) -> bool {
        self.consumer.is_ready() || self.ended().is_some()
    }

    fn ready(&self) -> usize {
        self.consumer.ready()
    }

    fn seal(&self) {
        self.shared.ring.seal();
    }

    fn close(&self) {
        self.shared.close();
    }

    /// Whether the ring is closed. As long as any worker is left, the others take over the share of
    /// one that ends.
    fn cannot_continue(&self) -> bool {
        self.shared.ring.is_closed()
    }

    fn kept(&self) -> Option<Tag> {
        self.empty.as_ref().map(|slot| slot.tag())
    }

    fn stopper(&self) -> Stopper {
        let (shared, process) = (Arc::downgrade(&self.shared), Process::this());
        Stopper::new(move || {
            // In a forked process the workers cannot be stopped, and may have held the barrier's
            // lock at the fork.
            let stoppable = |shared: &Arc<Shared<P>>| shared.barrier.is_none() || process.is_this();
            shared.upgrade().filter(stoppable).inspect(|shared| shared.stop());
        })
    }

    fn awaited(&self, pass: &Progress) -> usize {
        self.plan().tickets.awaited(pass.delivered + pass.discarded)
    }
}

/// Converts the ring's reason for having no batch.
#[inline]
fn nothing(error: NextError) -> NotReady {
    match error {
        // `Held` cannot occur: at most one slot is held, and it is released before the next one is
        // asked for.
        NextError::Empty | NextError::Held | NextError::Failed { .. } => NotReady::Empty,
        NextError::Closed => NotReady::Closed,
        NextError::Ended => NotReady::End,
    }
}

/// Returns the number of a ticket's batch.
#[inline(never)]
fn task(plan: &Plan, ticket: usize) -> usize {
    plan.tickets.task(ticket)
}

/// Returns the number and the rows of the batch that an index stream has drawn for a slot; `None`
/// if the index stream had ended.
fn drawn_batch(plan: &Plan, slot: usize) -> Option<(usize, usize)> {
    let list = plan.index_stream.as_ref()?.peek(slot);
    (!matches!(list.outcome, DrawOutcome::End)).then_some((list.number, list.indices.len()))
}
