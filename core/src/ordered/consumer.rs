//! The consumer's side: leases slots in sequence, which can be released on any thread.

use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::{Deref, DerefMut};

use super::place::Place;
use super::position::{CLOSED, NOWHERE, SEALED, position, to_next_run};
use super::slot::{Status, state};
use super::{A_RELEASE, AnyRing, Delivery, Ring, Slot};
use crate::handle::Handle;
use crate::storage::Storage;
use crate::sync::Ordering;
use crate::wait::{Deadline, Never, Wait};

/// The reason why the consumer got no lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextError {
    /// The next ticket is not finished, or, from a waiting method, was not finished before the
    /// deadline.
    Empty,
    /// A claim of this ticket was dropped unpublished. Its slot is free again, and the next ticket
    /// can be taken.
    Failed {
        /// The ticket that failed.
        ticket: usize,
    },
    /// The next ticket has no slot, because leases are still held. It gets none until one of them
    /// is dropped.
    Held,
    /// The run has ended, and every claimed ticket was delivered.
    Ended,
    /// The ring was closed.
    Closed,
}

impl fmt::Display for NextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the next ticket is not finished"),
            Self::Failed { ticket } => write!(f, "a claim of ticket {ticket} was dropped unpublished"),
            Self::Held => f.write_str("the next ticket has no slot because leases are still held; drop them"),
            Self::Ended => f.write_str("the run has ended"),
            Self::Closed => f.write_str("the ring is closed"),
        }
    }
}

impl core::error::Error for NextError {}

/// The reason why no new run was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// The previous run has not ended, or not all of its tickets were taken.
    Busy,
    /// The run has more tickets than the ring can count: more than half of all positions, which
    /// wrap.
    TooMany,
    /// The ring was closed.
    Closed,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Busy => "the previous run has not ended, or not all of its tickets were taken",
            Self::TooMany => "too many tickets for one run on a machine of this pointer width",
            Self::Closed => "the ring is closed",
        })
    }
}

impl core::error::Error for OpenError {}

/// The consumer of a ring. A ring has only one consumer.
pub struct Consumer<R: Handle<Target: AnyRing>> {
    ring: R,
    /// With in-order delivery, the next ticket to take. Unused in arrival mode
    /// ([`Delivery::Arrival`]).
    head: Place,
    /// Arrival mode: how many tickets of this run were taken, wrapping as the cursor does. Unused
    /// with in-order delivery.
    taken: usize,
    /// The ring's `ends` when this run was opened.
    ends: usize,
}

impl<T, B: Storage<Slot = Slot<T>>, W: Wait> Ring<B, W> {
    /// Returns the consumer of this ring, or `None` if it was taken already. Use [`Consumer::new`]
    /// for other handles.
    pub fn consumer(&self) -> Option<Consumer<&Self>> {
        Consumer::new(self)
    }
}

impl<R: Handle<Target: AnyRing>> Consumer<R> {
    /// Creates the consumer of `ring`. Returns `None` if there was one already: a ring has only one
    /// consumer in its lifetime.
    pub fn new(ring: R) -> Option<Self> {
        let inner = ring.ring();
        if inner.consumed.swap(true, Ordering::Relaxed) {
            return None;
        }
        let head = Place::at(inner, inner.start.load(Ordering::Relaxed));
        Some(Self { ring, head, taken: 0, ends: 0 })
    }

    /// Returns a lease on the next ticket, if it is finished.
    ///
    /// # Errors
    ///
    /// Any [`NextError`]. After `Failed` the ticket counts as taken.
    #[inline(always)]
    pub fn try_next(&mut self) -> Result<Lease<R>, NextError> {
        let (slot, ticket) = self.take()?;
        Ok(Lease { ring: self.ring.clone(), slot, ticket, value: PhantomData })
    }

    /// Like [`try_next`](Self::try_next), but the lease borrows the consumer. This is for a caller
    /// that drops the lease before it takes the next one; it saves counting a reference if the ring
    /// is behind an `Arc`.
    ///
    /// # Errors
    ///
    /// Those of [`try_next`](Self::try_next).
    #[inline(always)]
    pub fn try_next_here(&mut self) -> Result<Lease<&R::Target>, NextError> {
        let (slot, ticket) = self.take()?;
        Ok(Lease { ring: &*self.ring, slot, ticket, value: PhantomData })
    }

    /// Checks what [`try_next`](Self::try_next) would return now, without taking anything.
    ///
    /// # Errors
    ///
    /// Those of [`try_next`](Self::try_next) except `Failed`, which is reported only when the
    /// ticket is taken.
    pub fn peek(&self) -> Result<(), NextError> {
        if self.is_ready() { Ok(()) } else { Err(self.why_nothing()) }
    }

    /// Takes the next ticket, if it is finished. Returns its slot and its number.
    #[inline(always)]
    fn take(&mut self) -> Result<(usize, usize), NextError> {
        // A separate, inlined function: returning a lease through memory takes 10 ns.
        match self.ring.ring().delivery {
            Delivery::InOrder => self.next_in_order(),
            Delivery::Arrival => self.next_arrived(),
        }
    }

    /// Takes the next slot, if it is finished. Returns its index and the ticket.
    #[inline(always)]
    fn next_in_order(&mut self) -> Result<(usize, usize), NextError> {
        let (ring, head) = (self.ring.ring(), self.head);
        let now = ring.slot(head.slot).state.load(Ordering::Acquire);
        if now != head.ready {
            return Err(self.nothing_or_failed(now));
        }
        self.head.advance(ring);
        Ok((head.slot, head.ticket))
    }

    /// Takes the next slot if its state is `Failed`. Returns why there is no lease.
    #[cold]
    fn nothing_or_failed(&mut self, state: usize) -> NextError {
        let (ring, head) = (self.ring.ring(), self.head);
        if state != head.failed() {
            return self.why_nothing();
        }
        self.head.advance(ring);
        ring.release(head.slot);
        NextError::Failed { ticket: head.ticket }
    }

    /// Like [`next_in_order`](Self::next_in_order), for any slot that has arrived.
    fn next_arrived(&mut self) -> Result<(usize, usize), NextError> {
        let ring = self.ring.ring();
        let Some((index, failed)) = ring.arrived() else { return Err(self.why_nothing()) };
        let slot = ring.slot(index);
        slot.state.store(state(0, Status::Leased), Ordering::Relaxed);
        self.taken = ring.cursor_shape.lap_near(self.taken, 1);
        let ticket = slot.ticket.load(Ordering::Relaxed);
        if failed {
            ring.release(index);
            return Err(NextError::Failed { ticket });
        }
        Ok((index, ticket))
    }

    /// Returns a lease on the next ticket, waiting until it is finished.
    ///
    /// # Errors
    ///
    /// Any [`NextError`] except `Empty`.
    // This type is not an iterator: several kinds of errors must be distinguished, and a lease may
    // be held while the consumer is in use.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Lease<R>, NextError> {
        self.next_until(&Never)
    }

    /// Like [`next`](Self::next), but waits no longer than the deadline, and then returns
    /// [`NextError::Empty`].
    ///
    /// # Errors
    ///
    /// Any [`NextError`].
    pub fn next_until(&mut self, deadline: &impl Deadline) -> Result<Lease<R>, NextError> {
        loop {
            match self.try_next() {
                Err(NextError::Empty) => {}
                outcome => return outcome,
            }
            if !self.wait(deadline) {
                return Err(NextError::Empty);
            }
        }
    }

    /// Waits while [`try_next`](Self::try_next) would return `Empty`. Returns `false` if the
    /// deadline passed first.
    // `&mut` ensures a single waiter, as the ring has only one word for what the consumer waits
    // for.
    pub fn wait(&mut self, deadline: &impl Deadline) -> bool {
        self.wait_until(deadline, || {
            let ring = self.ring.ring();
            if ring.delivery == Delivery::Arrival && ring.has_room() {
                self.call_workers();
            }
            false
        })
    }

    /// Like [`wait`](Self::wait), for a consumer whose thread also works: it also returns once
    /// there is something to claim that may be the next ticket.
    ///
    /// With in-order delivery, the next ticket is usually claimed already when the consumer waits.
    /// The exception is a ticket whose slot was still [held](crate::ordered::ClaimError::Full) when
    /// a worker tried to claim it, and was released by another thread before
    /// [`try_next`](Self::try_next).
    pub fn wait_or_work(&mut self, deadline: &impl Deadline) -> bool {
        self.wait_until(deadline, || {
            let ring = self.ring.ring();
            match ring.delivery {
                // Returns also if another worker has begun this ticket, since that worker may not
                // claim the rest of it.
                Delivery::InOrder => {
                    ring.shape.ticket_start(ring.cursor.load(Ordering::Relaxed)) == self.head.position(ring)
                }
                Delivery::Arrival => ring.has_room(),
            }
        })
    }

    /// Waits until there is a ticket to take or an error other than `Empty`, or until `or` returns
    /// `true`.
    fn wait_until(&self, deadline: &impl Deadline, or: impl Fn() -> bool) -> bool {
        let ring = self.ring.ring();
        self.call_workers();
        ring.awaited.store(self.head.slot, Ordering::Relaxed);
        ring.items.wait_until(deadline, || self.is_ready() || self.why_nothing() != NextError::Empty || or())
    }

    /// Waits for another thread to drop a lease, while [`try_next`](Self::try_next) would return
    /// `Held`. Returns `false` if the deadline passed first.
    pub fn wait_for_release(&mut self, deadline: &impl Deadline) -> bool {
        let ring = self.ring.ring();
        ring.awaited.store(A_RELEASE, Ordering::Relaxed);
        ring.items.wait_until(deadline, || self.is_ready() || self.why_nothing() != NextError::Held)
    }

    /// Wakes sleeping workers if there is anything for them to claim.
    ///
    /// A release wakes workers only once [enough slots](super::Config::wake_at) are free. A thread
    /// that waits for the work of others without calling [`wait`](Self::wait) or
    /// [`next`](Self::next) must call this.
    pub fn call_workers(&self) {
        let ring = self.ring.ring();
        ring.space.notify(|| !ring.is_over(ring.cursor.load(Ordering::Relaxed)));
    }

    /// Opens the next [run](super#runs) with `tickets` tickets. With `None` the run is endless
    /// until it is [sealed](super::Ring::seal).
    ///
    /// The claims of the new run see everything that was written before this call. Leases of
    /// earlier runs may still be held.
    ///
    /// # Errors
    ///
    /// [`OpenError::Busy`] unless [`try_next`](Self::try_next) returns [`NextError::Ended`];
    /// [`OpenError::TooMany`]; [`OpenError::Closed`].
    pub fn open(&mut self, tickets: Option<usize>) -> Result<(), OpenError> {
        let ring = self.ring.ring();
        // Acquire, and before the cursor is read: a seal that is counted here is a seal of the run
        // that ends (see the proof in `super`).
        let ends = ring.ends.load(Ordering::Acquire);
        let cursor = ring.cursor.load(Ordering::Acquire);
        if cursor & CLOSED != 0 {
            return Err(OpenError::Closed);
        }
        if !self.has_ended(cursor) {
            return Err(OpenError::Busy);
        }
        let start = position(cursor);
        let limit = match tickets {
            Some(tickets) => ring.cursor_shape.forward(start, tickets).ok_or(OpenError::TooMany)?,
            None => NOWHERE,
        };
        ring.start.store(start, Ordering::Relaxed);
        ring.limit.store(limit, Ordering::Release);
        // Only this method changes the run number. A seal that happens concurrently applies to the
        // new run. A run without tickets is sealed from the start (see the proof in `super`).
        let change = match tickets {
            Some(0) => to_next_run(ring.cursor.fetch_or(SEALED, Ordering::Relaxed)) & !SEALED,
            _ => to_next_run(cursor),
        };
        ring.cursor.fetch_xor(change, Ordering::Release);
        (self.taken, self.head.ticket, self.ends) = (0, 0, ends);
        ring.space.notify(|| true);
        Ok(())
    }

    /// Returns the handle of the ring.
    pub fn ring(&self) -> &R {
        &self.ring
    }

    /// Whether [`try_next`](Self::try_next) would return a lease or a failure now.
    #[inline]
    pub fn is_ready(&self) -> bool {
        let ring = self.ring.ring();
        match ring.delivery {
            Delivery::InOrder => {
                let now = ring.slot(self.head.slot).state.load(Ordering::Relaxed);
                now == self.head.ready || now == self.head.failed()
            }
            Delivery::Arrival => ring.arrived().is_some(),
        }
    }

    /// Returns how many tickets [`try_next`](Self::try_next) would deliver now, in sequence. The
    /// number may be out of date at once.
    pub fn ready(&self) -> usize {
        let ring = self.ring.ring();
        match ring.delivery {
            Delivery::InOrder => {
                let mut head = self.head;
                (0..ring.shape.depth)
                    .take_while(|_| {
                        let now = ring.slot(head.slot).state.load(Ordering::Relaxed);
                        let is_ready = now == head.ready || now == head.failed();
                        head.advance(ring);
                        is_ready
                    })
                    .count()
            }
            Delivery::Arrival => {
                let ready = [state(0, Status::Ready), state(0, Status::Failed)];
                let slots = (0..ring.shape.depth).map(|slot| ring.slot(slot).state.load(Ordering::Relaxed));
                slots.filter(|now| ready.contains(now)).count()
            }
        }
    }

    fn has_ended(&self, cursor: usize) -> bool {
        let ring = self.ring.ring();
        let all_taken = match ring.delivery {
            Delivery::InOrder => position(cursor) == self.head.position(ring),
            Delivery::Arrival => ring.tickets_before(cursor) == self.taken,
        };
        all_taken && ring.is_over(cursor)
    }

    /// Returns whether the run may have ended, without reading the cursor: it was sealed or closed,
    /// or is at its limit.
    fn may_have_ended(&self) -> bool {
        let ring = self.ring.ring();
        ring.delivery == Delivery::Arrival
            || self.head.position(ring) == ring.limit.load(Ordering::Relaxed)
            || self.ends != ring.ends.load(Ordering::Relaxed)
    }

    #[cold]
    fn why_nothing(&self) -> NextError {
        let ring = self.ring.ring();
        if self.may_have_ended() {
            let cursor = ring.cursor.load(Ordering::Acquire);
            if cursor & CLOSED != 0 {
                return NextError::Closed;
            }
            if self.has_ended(cursor) {
                return NextError::Ended;
            }
        }
        let held = match ring.delivery {
            Delivery::InOrder => {
                let before = ring.shape.lap_near(self.head.lap(), -1);
                ring.slot(self.head.slot).state.load(Ordering::Relaxed) == state(before, Status::Ready)
            }
            Delivery::Arrival => ring.all_leased(),
        };
        if held { NextError::Held } else { NextError::Empty }
    }
}

impl<R: Handle<Target: AnyRing>> fmt::Debug for Consumer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer").field("ring", self.ring.ring()).finish_non_exhaustive()
    }
}

/// The consumer's exclusive access to one finished slot. Dropping it, on any thread, frees the
/// slot.
#[must_use = "dropping a lease frees its slot"]
pub struct Lease<R: Handle<Target: AnyRing>> {
    ring: R,
    slot: usize,
    ticket: usize,
    /// A lease gives out `&Value` and `&mut Value` and can move between threads, so whether it is
    /// `Send` and `Sync` depends on the value.
    value: PhantomData<<R::Target as AnyRing>::Value>,
}

impl<R: Handle<Target: AnyRing>> Lease<R> {
    /// Returns the number of the task in its run, from 0; see
    /// [`Claim::ticket`](super::Claim::ticket).
    #[inline]
    pub fn ticket(&self) -> usize {
        self.ticket
    }

    /// Returns the index of the slot, which is less than the ring's depth.
    #[inline]
    pub fn slot(&self) -> usize {
        self.slot
    }
}

impl<G: AnyRing> Lease<&G> {
    /// Converts this lease to one that uses another handle of the same ring, which may outlive this
    /// one.
    ///
    /// # Panics
    ///
    /// If `ring` is a different ring.
    pub fn keep<R: Handle<Target = G>>(self, ring: R) -> Lease<R> {
        assert!(core::ptr::eq(self.ring, &*ring), "a lease cannot move to a different ring");
        let lease = ManuallyDrop::new(self);
        Lease { ring, slot: lease.slot, ticket: lease.ticket, value: PhantomData }
    }
}

impl<R: Handle<Target: AnyRing>> Deref for Lease<R> {
    type Target = <R::Target as AnyRing>::Value;

    #[inline]
    fn deref(&self) -> &Self::Target {
        // SAFETY: while the state is `Ready`, until the release, only the lease accesses the value
        // (see the proof in `super`).
        unsafe { &*self.ring.ring().slot(self.slot).value.read_ptr() }
    }
}

impl<R: Handle<Target: AnyRing>> DerefMut for Lease<R> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Self::Target {
        // SAFETY: as in `deref`, and the lease itself is borrowed mutably.
        unsafe { &mut *self.ring.ring().slot(self.slot).value.write_ptr() }
    }
}

impl<R: Handle<Target: AnyRing>> Drop for Lease<R> {
    #[inline]
    fn drop(&mut self) {
        self.ring.ring().release(self.slot);
    }
}

impl<R: Handle<Target: AnyRing>> fmt::Debug for Lease<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("ticket", &self.ticket).field("slot", &self.slot).finish_non_exhaustive()
    }
}
