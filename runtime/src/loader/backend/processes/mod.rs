//! The backend of worker processes, which share one ring in shared memory: any free worker claims
//! rows of the next batch.
//!
//! The workers are forked from the loader's process and inherit the dataset. Or they are [started
//! by a command](spawn), and each [connects](attach) to the loader and makes a dataset of its own.
//! They share two mappings with the loader: the batches, and the [control](control) memory with the
//! [robust ring](slotline_core::robust). The loader writes into a slot which batch it is for and
//! the indices of the rows, and then assigns the slot. Workers claim parts of the batch (groups of
//! consecutive rows), write the rows into the batch's memory, and publish the parts. A worker may
//! die at any instruction. The [supervisor](supervisor) notices that, and gives the parts that the
//! dead worker had claimed to other workers, or fails them. A worker that writes to the shared
//! memory at random is called corrupted here; the loader checks what it reads, so that it does not
//! crash.
//!
//! A slot refers to a cell of memory, as it does for threads (see
//! [`cell_pool`](crate::loader::collate::cell_pool)), but by the cell's number. If no free cell can
//! replace the cell of a delivered batch, the batch's slot is not assigned until a cell is free.

pub(crate) mod attach;
pub(crate) mod child;
pub(crate) mod control;
pub(crate) mod events;
pub(crate) mod process_link;
pub(crate) mod running;
pub(crate) mod separate;
pub(crate) mod socket;
pub(crate) mod spawn;
pub(crate) mod spawn_config;
pub(crate) mod start;
pub(crate) mod supervisor;
pub(crate) mod worker;
pub(crate) mod worker_messages;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use slotline_core::robust::SlotStatus;
use slotline_core::wait::Wait;

use crate::BoxError;
use crate::dataset::StopToken;
use crate::fork::Process;
use crate::loader::backend::processes::child::WorkerExit;
use crate::loader::backend::processes::control::{Control, SlotFacts};
use crate::loader::backend::processes::supervisor::{EventFd, Ledger, NONE};
use crate::loader::backend::processes::worker::ProcessView;
use crate::loader::backend::processes::worker_messages::{Loss, WorkerMessages, overwritten};
use crate::loader::backend::protocol::{Backend, Begin, Begun, Next, NotBegun, NotReady, Ready};
use crate::loader::collate::batch_buffer::BatchBuffer;
use crate::loader::collate::cell::CellOwner;
use crate::loader::collate::cell_pool::CellPool;
use crate::loader::collate::storage::Storage;
use crate::loader::collate::tag::Tag;
use crate::loader::error::failure::{Cause, Failure};
use crate::loader::error::run::By;
use crate::loader::order::plan::{DrawOutcome, Indices, Plan, Task};
use crate::loader::order::plan_cell::PlanCell;
use crate::loader::order::progress::Progress;
use crate::loader::worker::cancel::Stopper;
use crate::loader::worker::pool::WorkerPool;
use crate::sync::wait_while;
use crate::wait::{Until, Waiter};

/// The loader's end of the ring.
pub(crate) struct ProcessRing<P> {
    pub(crate) control: Arc<Control>,
    pub(crate) ring: Arc<ProcessView>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) wakeup: Arc<EventFd>,
    pub(crate) cancel: StopToken,
    pub(crate) released: Arc<Waiter>,
    /// The memory of each slot, and the batch that the slot is assigned to.
    pub(crate) slots: Vec<SlotCell<P>>,
    /// The slot of the last batch, if no free cell could replace the cell that the user got.
    pub(crate) empty: Option<usize>,
    pub(crate) plan_cell: Arc<PlanCell>,
    pub(crate) part_rows: usize,
    pub(crate) in_order: bool,
    /// The first ticket of the pass, the next ticket to assign, and the next ticket to deliver in
    /// order.
    pub(crate) start: u64,
    pub(crate) to_assign: u64,
    pub(crate) next: u64,
    /// The number of tickets of the pass that are not assigned yet.
    pub(crate) left: usize,
    /// The number of passes begun.
    pub(crate) pass: u64,
    /// The number of slots that were assigned since workers were last woken.
    pub(crate) uncalled: usize,
    /// Whether workers run the user's `worker_init`.
    pub(crate) has_init: bool,
    /// Whether a worker could write bytes into a batch that must not be read.
    pub(crate) can_be_invalid: bool,
}

/// The memory of a slot, and the batch that the slot is assigned to.
pub(crate) struct SlotCell<P> {
    pub(crate) cell: CellOwner<P>,
    pub(crate) task: usize,
    pub(crate) first: usize,
    pub(crate) rows: usize,
    /// Why there is no batch, if the user's iterator of indices failed.
    pub(crate) refused: Option<Cause>,
}

impl<P> SlotCell<P> {
    /// Makes the entry of a slot that is not assigned.
    fn new(cell: CellOwner<P>) -> Self {
        Self { cell, task: 0, first: 0, rows: 0, refused: None }
    }
}

impl<P: Storage> ProcessRing<P> {
    /// The ticket that a slot is assigned to, if it is assigned.
    fn ticket(&self, slot: usize) -> Option<u64> {
        // Relaxed suffices: only this thread writes the value.
        Some(self.ledger.assigned[slot].load(Ordering::Relaxed)).filter(|&ticket| ticket != NONE)
    }

    /// The slots that are assigned, and their tickets.
    fn assigned(&self) -> impl Iterator<Item = (usize, u64)> {
        (0..self.slots.len()).filter_map(|slot| Some((slot, self.ticket(slot)?)))
    }

    /// Assigns tickets of the pass to all slots that can be assigned.
    fn assign_all(&mut self) {
        let depth = self.slots.len();
        let mut slot = (self.to_assign % depth as u64) as usize;
        for _ in 0..depth {
            if self.left == 0 {
                return;
            }
            if self.ticket(slot).is_none() && self.empty != Some(slot) {
                if self.has_ended(slot) {
                    return;
                }
                self.assign(slot);
            } else if self.in_order {
                return;
            }
            slot = if slot + 1 == depth { 0 } else { slot + 1 };
        }
    }

    /// Whether the user's iterator of indices has no batch for the next ticket, which is to be
    /// assigned to `slot`.
    #[inline]
    fn has_ended(&mut self, slot: usize) -> bool {
        // SAFETY: only the loader calls `draft`, and not while `self` is borrowed.
        let Some(index_stream) = (unsafe { &self.plan_cell.plan().index_stream }) else { return false };
        if let DrawOutcome::End = index_stream.list(slot, (self.to_assign - self.start) as usize).outcome {
            self.left = 0;
        }
        self.left == 0
    }

    /// Assigns the next ticket of the pass to a slot.
    fn assign(&mut self, slot: usize) {
        let ticket = self.to_assign;
        self.to_assign += 1;
        self.left = self.left.saturating_sub(1);
        // SAFETY: only the loader calls `draft`, and not while `self` is borrowed.
        let plan: &Plan = unsafe { self.plan_cell.plan() };
        let number = (ticket - self.start) as usize;
        let list = plan.index_stream.as_ref().map(|index_stream| index_stream.list(slot, number));
        let slot_cell = &mut self.slots[slot];
        let task = match &list {
            None => plan.task(plan.tickets.task(number)),
            Some(list) => {
                slot_cell.refused = list.outcome.failure(plan.rows);
                list.task()
            }
        };
        let Task { number: task, first, rows, indices } = task;
        (slot_cell.task, slot_cell.first, slot_cell.rows) = (task, first, rows);
        let cell = slot_cell.cell.state().payload.region().expect("samples are stacked").number();
        let facts = SlotFacts { task, first, rows, cell, pass: self.pass, ..SlotFacts::of_pass(plan) };
        // SAFETY: the slot is not assigned, and only this thread assigns slots.
        unsafe { self.control.set_slot(slot, facts, |row| indices.at(row)) };
        // Release: the supervisor reads what was written above after a worker that claimed the
        // ticket has ended.
        self.ledger.assigned[slot].store(ticket, Ordering::Release);
        self.ring.assign(slot, ticket);
        self.uncalled += 1;
    }

    /// Wakes workers, if slots were assigned since they were last woken.
    fn call(&mut self) {
        if self.uncalled > 0 {
            self.uncalled = 0;
            self.ring.call_workers();
        }
    }

    /// Returns a finished slot: with `in_order` the slot of the next ticket, otherwise the finished
    /// slot with the lowest ticket.
    fn finished(&self) -> Option<(usize, u64, SlotStatus)> {
        let status = |(slot, ticket)| (slot, ticket, self.ring.slot_status(slot, ticket));
        if self.in_order {
            let slot = (self.next % self.slots.len() as u64) as usize;
            let ticket = self.ticket(slot).filter(|&ticket| ticket == self.next)?;
            return Some(status((slot, ticket))).filter(|found| found.2 != SlotStatus::Pending);
        }
        self.assigned().map(status).filter(|found| found.2 != SlotStatus::Pending).min_by_key(|found| found.1)
    }

    /// Returns a slot of which a part has failed and the rest will never be made, because no worker
    /// is left.
    #[cold]
    fn left_failed(&self) -> Option<(usize, u64, SlotStatus)> {
        let failed = |&(slot, ticket): &(usize, u64)| {
            (!self.in_order || ticket == self.next) && self.ring.failed(slot, ticket).next().is_some()
        };
        let (slot, ticket) = self.assigned().filter(failed).min_by_key(|&(_, ticket)| ticket)?;
        self.ring.withdraw(slot, ticket);
        Some((slot, ticket, SlotStatus::Failed))
    }

    /// Whether no worker is left that could make another batch.
    fn no_worker_left(&self) -> bool {
        self.ledger.no_worker_left()
    }

    /// Fails a batch that is ready but has bytes that must not be read.
    #[inline]
    fn check(&mut self, slot: usize) {
        let slot_cell = &mut self.slots[slot];
        let work = slot_cell.cell.state();
        // SAFETY: all parts are finished, so no worker writes to the batch, unless a worker is
        // corrupted; nothing can be guaranteed then.
        let is_valid = |region: &BatchBuffer| unsafe { region.is_valid(slot_cell.rows) };
        if self.can_be_invalid && !work.has_failure() && !work.payload.region().is_none_or(is_valid) {
            work.fail(overwritten(slot_cell.first));
        }
    }

    /// Records in a batch's state what workers have reported about the batch.
    #[cold]
    fn read_messages(&mut self, slot: usize, ticket: u64, status: SlotStatus) {
        let slot_cell = &self.slots[slot];
        let work = slot_cell.cell.state();
        let mut messages = self.ledger.messages();
        messages.collect();
        let (failures, skipped, losses) = messages.take(ticket, slot_cell.first, slot_cell.rows);
        if !messages.events.is_empty() {
            self.wakeup.signal();
        }
        drop(messages);
        let unknown = failures.is_empty() && losses.is_empty();
        let lost = losses.into_iter().map(|loss| self.lost(slot_cell, loss));
        failures.into_iter().chain(lost).for_each(|failure| work.fail(failure));
        work.note(skipped);
        if status == SlotStatus::Corrupt || status == SlotStatus::Failed && unknown {
            work.fail(overwritten(slot_cell.first));
        }
        if status == SlotStatus::Corrupt {
            self.close();
        }
    }

    /// Returns the failure of a part whose worker has ended: at the sample that the worker was
    /// reading, if that is known, and otherwise at the first row of the part.
    fn lost(&self, slot_cell: &SlotCell<P>, Loss { part, worker, end, at, .. }: Loss) -> Failure {
        let plan = self.plan();
        let begin = (part * self.part_rows).min(slot_cell.rows.saturating_sub(1));
        let at = at.filter(|at| at.task == slot_cell.task && at.row < slot_cell.rows);
        let row = at.map_or(begin, |at| at.row);
        let position = slot_cell.first + row;
        let index = match &plan.index_stream {
            Some(_) => at.map_or(0, |at| at.index),
            None if slot_cell.rows > 0 => Indices::from(&plan.order, slot_cell.first).at(row),
            None => 0,
        };
        let (by, cause) = (By::Worker(worker), Cause::Error(WorkerExit { worker, end }.into()));
        Failure { position, index, by, cause }
    }

    /// Whether more batches of this pass may come.
    fn has_more(&self) -> bool {
        self.left > 0 || self.assigned().next().is_some()
    }

    /// The plan of the pass.
    fn plan(&self) -> &Plan {
        // SAFETY: only the loader calls `draft`, and not while `self` is borrowed.
        unsafe { self.plan_cell.plan() }
    }

    /// Makes all workers run their `worker_init`, and returns the failures, by worker.
    fn init(&self, seed: u64, deadline: &Until) -> Result<Vec<(usize, BoxError)>, NotBegun> {
        let ledger = &self.ledger;
        ledger.messages().call(self.pass);
        self.control.call_for(self.pass, seed);
        self.ring.call_workers();
        let waits = |messages: &WorkerMessages| messages.awaits() && !self.ring.is_closed();
        let mut messages = wait_while(ledger.messages_and_changed(), ledger.messages(), deadline, waits);
        match () {
            () if self.ring.is_closed() => return Err(NotBegun::Closed),
            () if messages.awaits() => return Err(NotBegun::Late),
            () => {}
        }
        ledger.count(&messages);
        Ok(messages.take_failures())
    }
}

impl<P: Storage> Backend<P> for ProcessRing<P> {
    fn drain(&mut self, pass: &mut Progress, deadline: &Until) -> Result<(), NotBegun> {
        // Withdraw all slots first, so that workers begin nothing more while this waits for the
        // parts that they have begun.
        self.assigned().for_each(|(slot, ticket)| _ = self.ring.withdraw(slot, ticket));
        let first = (self.next % self.slots.len() as u64) as usize;
        for slot in (first..self.slots.len()).chain(0..first) {
            let Some(ticket) = self.ticket(slot) else { continue };
            let ring = &self.ring;
            let done = || ring.withdraw(slot, ticket) == 0;
            if !ring.wait(None, deadline, || done() || ring.is_closed()) {
                return Err(NotBegun::Late);
            }
            if ring.is_closed() {
                return Err(NotBegun::Closed);
            }
            self.ledger.assigned[slot].store(NONE, Ordering::Relaxed);
            pass.discarded += 1;
        }
        pass.discarded = pass.discarded.saturating_add(std::mem::take(&mut self.left));
        if self.ring.is_closed() {
            return Err(NotBegun::Closed);
        }
        Ok(())
    }

    fn begin(&mut self, begin: Begin<'_>) -> Result<Begun, NotBegun> {
        let Begin { request, left, deadline, .. } = begin;
        self.pass += 1;
        self.ledger.messages().clear();
        let failures = if self.has_init { self.init(request.seed, deadline)? } else { Vec::new() };
        // If the number of batches is unknown, a user's iterator ends the pass, so the tickets
        // never run out.
        self.left = left.unwrap_or(usize::MAX);
        // In order, slots are assigned in turn. So begin after the slot that cannot be assigned
        // yet, which makes it the last one.
        let depth = self.slots.len() as u64;
        self.to_assign = self.to_assign.next_multiple_of(depth) + self.empty.map_or(0, |slot| slot as u64 + 1);
        (self.start, self.next) = (self.to_assign, self.to_assign);
        {
            let _turn = self.ledger.turn();
            self.ring.start_at(self.start);
        }
        self.assign_all();
        self.call();
        Ok(Begun { failures, no_worker_left: self.no_worker_left() })
    }

    fn try_next(&mut self, _: &Progress, _: &WorkerPool, cell_pool: &mut CellPool<P>) -> Next<P> {
        if let Some(slot) = self.empty {
            if self.cancel.is_stopped() {
                return Err(NotReady::Closed);
            }
            if !cell_pool.refill(&mut self.slots[slot].cell) {
                self.has_ended(slot);
                return Err(if self.has_more() { NotReady::Held } else { NotReady::End });
            }
            self.empty = None;
            self.assign_all();
        }
        // Read this before the ring, so that the parts that the last worker finished or left
        // unfinished are seen.
        let no_worker_left = self.no_worker_left();
        let found = self.finished().or_else(|| if no_worker_left { self.left_failed() } else { None });
        let Some((slot, ticket, status)) = found else {
            return Err(match () {
                () if self.ring.is_closed() => NotReady::Closed,
                () if !self.has_more() => NotReady::End,
                () if no_worker_left => NotReady::Closed,
                () => {
                    self.call();
                    NotReady::Empty
                }
            });
        };
        if self.cancel.is_stopped() {
            return Err(NotReady::Closed);
        }
        if let Some(cause) = self.slots[slot].refused.take() {
            let slot_cell = &self.slots[slot];
            slot_cell.cell.state().fail(Failure { position: slot_cell.first, index: 0, by: By::Consumer, cause });
        }
        if status != SlotStatus::Ready || self.control.is_noted(slot, ticket) {
            self.read_messages(slot, ticket, status);
        }
        if status == SlotStatus::Ready {
            self.check(slot);
        }
        self.ledger.assigned[slot].store(NONE, Ordering::Relaxed);
        self.next += 1;
        let SlotCell { cell, task, rows, .. } = &mut self.slots[slot];
        let (task, rows) = (*task, *rows);
        let Some(lease) = cell_pool.exchange(cell) else {
            let lease = CellPool::share(cell);
            self.empty = Some(slot);
            self.call();
            return Ok(Ready { lease, task, rows });
        };
        self.assign_all();
        if self.uncalled > self.slots.len() / 2 || self.left == 0 {
            self.call();
        }
        Ok(Ready { lease, task, rows })
    }

    fn wait(&mut self, deadline: &Until) -> bool {
        self.call();
        let awaited = self.in_order.then_some(self.next);
        self.ring.wait(awaited, deadline, || self.is_ready())
    }

    fn wait_for_release(&mut self, deadline: &Until, cell_pool: &CellPool<P>) -> bool {
        let own = || self.empty.is_some_and(|slot| self.slots[slot].cell.is_free());
        cell_pool.wait(deadline, || own() || self.cancel.is_stopped() || self.ring.is_closed())
    }

    fn is_ready(&self) -> bool {
        self.finished().is_some() || self.ring.is_closed() || self.no_worker_left() || !self.has_more()
    }

    fn ready(&self) -> usize {
        self.assigned().filter(|&(slot, ticket)| self.ring.slot_status(slot, ticket) != SlotStatus::Pending).count()
    }

    fn seal(&self) {
        self.assigned().for_each(|(slot, ticket)| {
            self.ring.withdraw(slot, ticket);
        });
    }

    fn close(&self) {
        self.ring.close();
        self.wakeup.signal();
        self.released.notify(|| true);
    }

    fn cannot_continue(&self) -> bool {
        self.ring.is_closed() || self.no_worker_left()
    }

    fn stopper(&self) -> Stopper {
        let (ring, wakeup, released) =
            (Arc::downgrade(&self.ring), Arc::downgrade(&self.wakeup), Arc::downgrade(&self.released));
        let (control, process) = (Arc::downgrade(&self.control), Process::this());
        Stopper::new(move || {
            // In a forked process this would stop the parent's loader.
            if !process.is_this() {
                return;
            }
            let (Some(control), Some(ring), Some(wakeup)) = (control.upgrade(), ring.upgrade(), wakeup.upgrade())
            else {
                return;
            };
            // Set the flag first: a thread that finds the ring closed reads it to learn why.
            control.cancel().stop();
            ring.close();
            wakeup.signal();
            released.upgrade().inspect(|released| released.notify(|| true));
        })
    }

    fn awaited(&self, pass: &Progress) -> usize {
        self.plan().tickets.awaited(pass.delivered + pass.discarded)
    }

    fn kept(&self) -> Option<Tag> {
        self.empty.map(|slot| self.slots[slot].cell.tag())
    }
}
