//! A cell, which is the memory of one batch, and the two handles of a cell: the loader's
//! [`CellOwner`], and the [`Lease`] in a batch that the user has.
//!
//! The loader lends the cell to the batch (see [`Loan`]). The batch may outlive the loader; it then
//! frees the cell.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use slotline_core::loan::Loan;
use slotline_core::wait::{Wait, heavy_fence, light_fence};

use crate::fork::Process;
use crate::loader::collate::batch_state::BatchState;
use crate::loader::collate::poison::Poison;
use crate::loader::collate::tag::Tag;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::thread;
use crate::wait::Waiter;

/// How long a thread sleeps between two checks whether another thread has finished dropping a
/// batch.
const NAP: Duration = Duration::from_micros(50);

/// The memory of one batch.
pub(crate) struct Cell<P> {
    /// Whether the loader or a batch has the cell.
    loan: Loan,
    /// The process in which the cell was made.
    process: Process,
    single: bool,
    /// What else to do when the cell is released or taken. Dropped before the payload.
    hooks: Option<ReleaseHooks>,
    state: BatchState<P>,
    /// The number, rows and epoch of the batch in the cell, written when the consumer takes the
    /// batch for the user.
    task: AtomicUsize,
    rows: AtomicUsize,
    epoch: AtomicUsize,
}

/// What to do when a cell is released or taken, besides changing its loan.
pub(crate) struct ReleaseHooks {
    /// The memory to poison, if the process runs with AddressSanitizer.
    pub(crate) poison: Option<Poison>,
    /// The waiter to notify when the cell is released.
    pub(crate) released: Option<Arc<Waiter>>,
}

impl<P> Cell<P> {
    /// The size of a cell in bytes, without what its payload refers to.
    pub(crate) const SIZE: usize = size_of::<Self>();

    fn new(loan: Loan, payload: P, tag: Tag, hooks: Option<ReleaseHooks>) -> NonNull<Self> {
        let Tag { task, rows, single, epoch } = tag;
        let [task, rows, epoch] = [task, rows, epoch as usize].map(AtomicUsize::new);
        let (process, state) = (Process::this(), BatchState::new(payload));
        let cell = Self { loan, process, single, hooks, state, task, rows, epoch };
        // SAFETY: the pointer of a box is not null.
        unsafe { NonNull::new_unchecked(Box::into_raw(Box::new(cell))) }
    }

    /// The batch in the cell. Only the side that has the cell may use it.
    #[inline]
    pub(crate) fn state(&self) -> &BatchState<P> {
        &self.state
    }

    #[inline]
    pub(crate) fn is_free(&self) -> bool {
        self.loan.is_free()
    }

    /// Returns the description of the batch in the cell.
    #[inline]
    pub(crate) fn tag(&self) -> Tag {
        Tag {
            task: self.task.load(Ordering::Relaxed),
            rows: self.rows.load(Ordering::Relaxed),
            single: self.single,
            epoch: self.epoch.load(Ordering::Relaxed) as u32,
        }
    }
}

/// The loader's handle of a cell. Dropping it frees the cell, unless a batch has the cell.
pub(crate) struct CellOwner<P>(NonNull<Cell<P>>, PhantomData<Cell<P>>);

// SAFETY: the handle gives out shared references to the cell, and may free it, on any thread.
unsafe impl<P> Send for CellOwner<P> where Cell<P>: Send + Sync {}
// SAFETY: as for `Send`.
unsafe impl<P> Sync for CellOwner<P> where Cell<P>: Send + Sync {}

impl<P> CellOwner<P> {
    pub(crate) fn new(payload: P, free: bool, single: bool, hooks: Option<ReleaseHooks>) -> Self {
        let tag = Tag { task: 0, rows: 0, single, epoch: 0 };
        Self(Cell::new(Loan::new(free), payload, tag, hooks), PhantomData)
    }

    /// Takes the cell if it is free. Only the consumer may call this.
    #[inline]
    pub(crate) fn take(&self) -> bool {
        let taken = self.loan.take();
        if taken {
            self.hooks.as_ref().and_then(|hooks| hooks.poison.as_ref()).inspect(|poison| poison.unlock());
        }
        taken
    }

    /// Makes a cell that was taken free again. Only the consumer may call this.
    pub(crate) fn put_back(&self) {
        self.hooks.as_ref().and_then(|hooks| hooks.poison.as_ref()).inspect(|poison| poison.lock());
        self.loan.put_back();
    }

    /// Makes a lease on a cell that was taken, or whose slot the consumer has. Only the consumer
    /// may call this.
    #[inline]
    pub(crate) fn lend(&self) -> Lease<P> {
        self.loan.lend();
        Lease(self.0, PhantomData)
    }
}

impl<P> Deref for CellOwner<P> {
    type Target = Cell<P>;

    #[inline]
    fn deref(&self) -> &Cell<P> {
        // SAFETY: a cell with an owner is freed only by the owner, or after the owner was dropped.
        unsafe { self.0.as_ref() }
    }
}

impl<P> Drop for CellOwner<P> {
    fn drop(&mut self) {
        let mut pauses = 0_u32;
        let pause = || {
            pauses += 1;
            // If that thread has a lower priority, it may run only while this one sleeps.
            if pauses < 100 || cfg!(shuttle) {
                thread::yield_now()
            } else {
                std::thread::sleep(NAP)
            }
            // In a forked process, the thread that was giving the cell back may not exist.
            self.process.is_this()
        };
        if self.loan.abandon(heavy_fence, pause) {
            // SAFETY: the cell comes from a box, and nothing else refers to it (see `Loan`).
            drop(unsafe { Box::from_raw(self.0.as_ptr()) });
        }
    }
}

impl<P> fmt::Debug for CellOwner<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CellOwner").field("loan", &self.loan).finish_non_exhaustive()
    }
}

/// The handle of a finished batch: exclusive access to its memory. Dropping it, on any thread,
/// releases the memory.
#[doc(hidden)]
pub struct Lease<P>(NonNull<Cell<P>>, PhantomData<Cell<P>>);

// SAFETY: a lease gives out shared references to the cell, and may free it, on any thread.
unsafe impl<P> Send for Lease<P> where Cell<P>: Send + Sync {}
// SAFETY: as for `Send`.
unsafe impl<P> Sync for Lease<P> where Cell<P>: Send + Sync {}

impl<P> Lease<P> {
    /// Makes a lease on a new cell that belongs to no loader.
    pub(crate) fn apart(payload: P, tag: Tag) -> Self {
        Self(Cell::new(Loan::without_owner(), payload, tag, None), PhantomData)
    }

    #[inline]
    fn cell(&self) -> &Cell<P> {
        // SAFETY: a cell that is lent is not freed before it is given back.
        unsafe { self.0.as_ref() }
    }

    /// The contents of the batch.
    #[inline]
    pub(crate) fn payload(&self) -> &P {
        &self.cell().state.payload
    }

    /// The contents of the batch, and its errors.
    #[inline]
    pub(crate) fn state(&self) -> &BatchState<P> {
        &self.cell().state
    }

    /// Returns the description of the batch.
    #[inline]
    pub(crate) fn tag(&self) -> Tag {
        self.cell().tag()
    }

    /// Sets the description of the batch, before the user gets the batch.
    #[inline]
    pub(crate) fn describe(&self, task: usize, rows: usize, epoch: u32) {
        let cell = self.cell();
        cell.task.store(task, Ordering::Relaxed);
        cell.rows.store(rows, Ordering::Relaxed);
        cell.epoch.store(epoch as usize, Ordering::Relaxed);
    }

    /// Gives the cell back to the loader.
    #[inline]
    fn give_back(&self) {
        let cell = self.0.as_ptr();
        // SAFETY: the cell is valid until it is given back. During the call only its loan is
        // referred to, which consists of atomics, since another thread may free the cell before
        // `give_back` returns.
        if unsafe { &(*cell).loan }.give_back(light_fence) {
            // SAFETY: the cell comes from a box, and nothing else refers to it (see `Loan`).
            drop(unsafe { Box::from_raw(cell) });
        }
    }

    // The hooks are not a parameter: a reference would have to stay valid until this function
    // returns.
    #[cold]
    #[inline(never)]
    fn give_back_with_hooks(&self) {
        let hooks = self.cell().hooks.as_ref();
        let released = hooks.and_then(|hooks| hooks.released.clone());
        hooks.and_then(|hooks| hooks.poison.as_ref()).inspect(|poison| poison.lock());
        self.give_back();
        released.inspect(|released| released.notify(|| true));
    }
}

impl<P> Drop for Lease<P> {
    #[inline]
    fn drop(&mut self) {
        if self.cell().hooks.is_none() { self.give_back() } else { self.give_back_with_hooks() }
    }
}

impl<P> fmt::Debug for Lease<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").finish_non_exhaustive()
    }
}
