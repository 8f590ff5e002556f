//! The ordered ring: many workers fill numbered tasks in place, one consumer takes them in order.
//!
//! ```text
//! ticket t uses slot t mod depth;  the slot is free for ticket t + depth once ticket t was released.
//! ```
//!
//! A [`Worker`] claims the next ticket (or some [parts](Config::parts) of it, or
//! [many](Worker::claim_many) tickets), writes the result into the slot and publishes it. The
//! [`Consumer`] waits for exactly one slot, the next in order, and gets a [`Lease`] on it. Dropping
//! the lease, on any thread and in any order, frees the slot for the ticket one lap (`depth`
//! tickets) later. The consumer's thread may also own a `Worker` and work while it waits.
//!
//! ```
//! use slotline_core::ordered::{Config, Ring, Slot};
//!
//! let ring = Ring::inline([const { Slot::new(0) }; 4], Config::new());
//! let mut consumer = ring.consumer().expect("the consumer was not taken before");
//! std::thread::scope(|scope| {
//!     for _ in 0..2 {
//!         let worker = ring.worker();
//!         scope.spawn(move || {
//!             while let Ok(mut claim) = worker.claim(1) {
//!                 let square = claim.ticket() * claim.ticket();
//!                 *claim.get_mut().unwrap() = square;
//!                 claim.publish();
//!             }
//!         });
//!     }
//!     for t in 0..1000 {
//!         assert_eq!(*consumer.next().unwrap(), t * t);
//!     }
//!     ring.close();
//! });
//! ```
//!
//! # Runs
//!
//! Tickets are grouped into *runs*. A run ends after the number of tickets that was passed to
//! [`Consumer::open`], or when any thread calls [`Ring::seal`]. Workers then get
//! [`ClaimError::Ended`]; the consumer gets every ticket that was claimed, and then
//! [`NextError::Ended`]. `open` starts the next run on the same slots. A new ring starts with an
//! endless run open. [`Ring::close`] ends everything at once.
//!
//! # In order, or in order of arrival
//!
//! With [`Delivery::Arrival`] a ticket takes any free slot, and the consumer takes any finished
//! one. It scans the slots one by one and takes the lowest ticket that it finds finished; it may
//! miss a slot that becomes finished during the scan. A slow ticket then delays only its own slot.
//!
//! # Guarantees and limits
//!
//! - Every claimed ticket is delivered exactly once, published or failed. A claim that is dropped
//!   unpublished (a panic does that, for example) is delivered in its place as
//!   [`NextError::Failed`].
//! - No operation allocates.
//! - The `try_` methods are lock-free, not wait-free: a claim retries when another worker was
//!   faster.
//! - A claim or a lease that is *leaked* (`mem::forget`) keeps its slot forever, and the ring
//!   stalls when it gets to that slot again.
//! - The lap counter wraps. On a machine with 32-bit pointers, a worker that is suspended within a
//!   claim while exactly 2²⁸ parts are claimed does not notice that time has passed.
//! - The run number wraps. A worker that is suspended within a claim of [many](Worker::claim_many)
//!   tickets while exactly four runs are opened (256 on 64-bit machines) and nothing is claimed in
//!   them does not notice. It could claim beyond the end of the last of these runs.
//! - The number of seals wraps. A consumer does not notice the end of a run that was sealed while
//!   exactly 2³² seals (2⁶⁴ on 64-bit machines) took place in it.
//!
//! # Why it is correct
//!
//! Each slot has a word, `state`, that holds the lap and whether the slot is `Free`, `Ready` or
//! `Failed`. The ring has one word, `cursor`, that holds the next position (lap, slot, part) to
//! claim.
//!
//! *Starting.* Every constructor has exclusive access to the slots, by value or by an exclusive
//! borrow, and sets all words of every slot: each slot is `Free` in the first lap, with no part
//! finished, no ticket and no part claimed. Anything that another ring left in a slot is erased,
//! except for the slot's value.
//!
//! *Claiming.* A worker reads the cursor c, sees that slot(c) is `Free` in lap(c), and advances the
//! cursor with a compare-and-swap. If that succeeds, position c was still unclaimed, and the slot's
//! state cannot have changed since the worker read it: the state leaves `Free(lap)` only when all
//! parts of that lap are finished, and the part at c was not even claimed. So each part of each lap
//! has exactly one owner. Claims exist only inside the window of `depth` tickets, as no worker can
//! own a ticket whose slot is not free yet.
//!
//! A claim of many tickets in a row checks the slots of all of them, up to the limit of the run,
//! and then moves the cursor past them in one step. If that succeeds, all of these positions were
//! still unclaimed, so the same argument holds for each. Such a claim must not succeed in a
//! different run than the one whose limit it read, even if that run starts at the same position (as
//! it does after a seal with nothing claimed in between). Therefore `open` changes the run number,
//! which is part of the cursor, and the compare-and-swap fails.
//!
//! Run numbers repeat. A worker that was suspended for long enough may find the exact cursor that
//! it had loaded, at the same position. Then nothing was claimed in the meantime, and the position
//! is the start of the run that is open now. That run is not sealed, so it has a ticket at this
//! position, since `open` seals a run that has no tickets. A claim of one ticket is therefore valid
//! in this run too, and sees what was written before the `open` of this run, as the
//! compare-and-swap acquires. Only a claim of many tickets could go beyond the limit of this run.
//!
//! *Publishing.* Each claim adds its parts to `finished` (acquire and release), and the claim that
//! completes the count stores `Ready(lap)` with release. The consumer loads it with acquire, and so
//! sees what was written to every part. A claim of a whole slot skips the count. Until the slot is
//! `Ready`, its state is `Free(lap)`, and the consumer does not touch it.
//!
//! A row of claims may be published in any order. [`Claims::publish_each`] publishes the first one
//! last, which changes nothing above: until then, the consumer waits for that slot, and reads no
//! other.
//!
//! *Releasing.* Dropping a lease stores `Free(lap + 1)` with release. The worker that claims the
//! slot next loads it with acquire, so its writes come after all reads through the lease. Each slot
//! is released independently, so leases may end in any order.
//!
//! *Ending.* The `SEALED` flag is a bit of the cursor, so a claim either comes before the seal or
//! fails; after the seal, only the parts of a ticket that was already begun can be claimed. The
//! consumer is at the end when its own position equals the cursor's and the run is sealed or at its
//! limit. `open` requires exactly that. So no claim of the old run is left, and the claims of the
//! new run (acquire) see everything that the consumer wrote before `open` (release). A claim may
//! acquire these writes through the limit, before `open` has changed the cursor. So a claim also
//! moves the cursor with release: a worker that finds the cursor past the old limit learns nothing
//! from the limit, and acquires the writes through the cursor.
//!
//! A consumer that finds its slot unfinished must know whether the run has ended. Workers write the
//! cursor all the time, so reading it would cost them a transfer of its cache line. With in-order
//! delivery, the consumer reads the cursor only when it is at the limit itself, or when `ends` has
//! changed since the run was opened: a seal or a close sets its flag first and then increments
//! `ends`, before it wakes the consumer. `open` reads `ends` (acquire) before the cursor. So each
//! seal that is included in the number that `open` keeps has set its flag (release) before `open`
//! read the cursor, and belongs to the old run. Any seal of the new run changes `ends` after that.
//!
//! *Waiting.* Workers wait for a free slot at the cursor, and the consumer waits for its next slot.
//! Each side notifies the other after each change, by the protocol of [`crate::wait`]. A publisher
//! does not wake the consumer if it waits for another slot, which has its own publisher. A release
//! does not wake workers while few slots are free; instead the consumer wakes them before it waits
//! itself. In arrival mode, where the ticket that the consumer waits for may not even be claimed
//! yet, a release also wakes the consumer, which then wakes the workers or claims the slot itself.
//! With in-order delivery, a consumer that also works may be the only thread that can claim the
//! ticket it waits for, if the ticket's slot was held when the consumer last tried. So such a
//! consumer never waits for an unclaimed ticket.
//!
//! *Arrival mode.* Each slot has its own word, `claims`, from which its parts are claimed. A worker
//! opens a free slot by moving this word from `UNOPENED` to `OPENING`, and then draws a ticket from
//! the cursor. A part that is claimed by compare-and-swap belongs to the ticket that the slot holds
//! at that moment, so the claim is right even if the slot was reused since the worker looked at it.
//!
//! A worker may skip a slot that is being opened, and get the error that no slot is free, or that
//! the run has ended, although parts of that slot are left. The worker that opened the slot takes
//! these parts when it claims again. If it will not claim again, it
//! [wakes all waiting threads](Ring::wake_all) instead, after it has opened the slot. Each thread
//! that waits, for space or for the next run, has then either seen the parts or checks again; a
//! consumer that works does, too. Everything else works as in order, with `lap` fixed at 0 and
//! `Leased` as the status of a slot that the consumer has taken.
//!
//! The models in `tests/models` check all of this for small rings. They also check that each memory
//! ordering is needed.

mod arrival;
mod claim;
mod claims;
mod consumer;
mod place;
mod position;
mod slot;

use core::fmt;

use crossbeam_utils::CachePadded;

pub use self::claim::{Claim, ClaimError, Worker};
pub use self::claims::Claims;
pub use self::consumer::{Consumer, Lease, NextError, OpenError};
use self::position::{CLOSED, Geometry, NOWHERE, SEALED, position};
pub use self::slot::Slot;
use self::slot::{Status, UNOPENED, state};
use crate::storage::Storage;
use crate::sync::{AtomicBool, AtomicUsize, Ordering, const_unless_modelled};
use crate::wait::{Backoff, Wait};

/// The order in which the consumer gets the tickets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delivery {
    /// In order of the tickets, regardless of which one is finished first.
    #[default]
    InOrder,
    /// As they are finished; if several are finished, the lowest ticket first.
    Arrival,
}

/// The configuration of a ring, apart from its slots.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    parts: usize,
    delivery: Delivery,
    wake_at: Option<usize>,
}

impl Config {
    /// Creates a configuration with one part per slot, delivered in order.
    pub const fn new() -> Self {
        Self { parts: 1, delivery: Delivery::InOrder, wake_at: None }
    }

    /// Sets the number of parts that the work on one slot is divided into, so that several workers
    /// can share it.
    pub const fn parts(self, parts: usize) -> Self {
        Self { parts, ..self }
    }

    /// Sets how many slots must be free before a release wakes sleeping workers; the default is
    /// half of all slots. Set fewer for a ring whose consumer holds many slots for a long time.
    pub const fn wake_at(self, free: usize) -> Self {
        Self { wake_at: Some(free), ..self }
    }

    /// Sets the order in which the consumer gets the tickets.
    pub const fn delivery(self, delivery: Delivery) -> Self {
        Self { delivery, ..self }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self::new()
    }
}

/// The ring; see the [module documentation](self). `B` is the storage of the slots, `W` is how the
/// two sides wait.
pub struct Ring<B, W = Backoff> {
    /// The next position to claim, and the flags. Workers move the position; any thread may set the
    /// flags.
    cursor: CachePadded<AtomicUsize>,
    /// The index of the slot whose publication ends the consumer's sleep. Out of date unless the
    /// consumer sleeps.
    awaited: CachePadded<AtomicUsize>,
    /// The position at which the run ends, or `NOWHERE`. Written by `open` only.
    limit: AtomicUsize,
    /// The position at which the run began. Written by `open` only.
    start: AtomicUsize,
    /// How often `seal` and `close` have set their flag in the cursor; wraps. The consumer reads
    /// this word instead of the cursor.
    ends: AtomicUsize,
    /// Whether the `Consumer` was taken.
    consumed: AtomicBool,
    delivery: Delivery,
    /// How many slots must be free before sleeping workers are woken, `1..=depth`.
    wake_at: usize,
    /// The layout of positions in the slots. The cursor uses `cursor_shape`.
    shape: Geometry,
    /// The layout of the cursor: the same as `shape` with in-order delivery; in arrival mode the
    /// cursor only counts tickets.
    cursor_shape: Geometry,
    /// Where the consumer waits for finished slots.
    items: W,
    /// Where workers wait for free slots.
    space: W,
    slots: B,
}

/// The value of `Ring::awaited` while the consumer waits for the release of any slot.
const A_RELEASE: usize = usize::MAX;

impl<T, const N: usize> Ring<[Slot<T>; N]> {
    const_unless_modelled! {
        /// Creates a ring with its slots inline, which can be a `static`. Its sides wait by
        /// [`Backoff`].
        ///
        /// The slots may come from another ring: they are reset, and only their values are kept.
        ///
        /// ```
        /// use slotline_core::ordered::{Config, Ring, Slot};
        ///
        /// static RING: Ring<[Slot<[u8; 16]>; 8]> = Ring::inline([const { Slot::new([0; 16]) }; 8], Config::new());
        /// ```
        ///
        /// # Panics
        ///
        /// If there are no slots or no parts, or too many of them for the pointer width.
        pub fn inline(slots: [Slot<T>; N], config: Config) -> Self {
            Self::inline_with_wait(slots, config, Backoff, Backoff)
        }
    }
}

impl<T, const N: usize, W: Wait> Ring<[Slot<T>; N], W> {
    const_unless_modelled! {
        /// Like [`inline`](Ring::inline), for a `static` ring whose consumer waits by `items` and
        /// whose workers wait by `space`.
        ///
        /// # Panics
        ///
        /// If there are no slots or no parts, or too many of them for the pointer width.
        pub fn inline_with_wait(mut slots: [Slot<T>; N], config: Config, items: W, space: W) -> Self {
            let mut index = 0;
            while index < N {
                slots[index].renew();
                index += 1;
            }
            Self::assemble(slots, N, config, items, space)
        }
    }
}

impl<T, B: Storage<Slot = Slot<T>>> Ring<B> {
    /// Creates a ring over these slots. Its sides wait by [`Backoff`].
    ///
    /// # Panics
    ///
    /// If there are no slots or no parts, or too many of them for the pointer width.
    pub fn new(slots: B, config: Config) -> Self {
        Self::with_wait(slots, config, Backoff, Backoff)
    }
}

#[cfg(feature = "alloc")]
impl<T> Ring<alloc::boxed::Box<[Slot<T>]>> {
    /// Creates a ring of `depth` slots on the heap, where slot `i` starts with `init(i)`.
    ///
    /// # Panics
    ///
    /// If there are no slots or no parts, or too many of them for the pointer width.
    pub fn boxed(depth: usize, config: Config, init: impl FnMut(usize) -> T) -> Self {
        Self::new((0..depth).map(init).map(Slot::new).collect(), config)
    }
}

impl<T, B: Storage<Slot = Slot<T>>, W: Wait> Ring<B, W> {
    /// Creates a ring over these slots, whose consumer waits by `items` and whose workers wait by
    /// `space`.
    ///
    /// The slots may come from another ring: they are reset, and only their values are kept.
    ///
    /// # Panics
    ///
    /// If there are no slots or no parts, or too many of them for the pointer width.
    pub fn with_wait(slots: B, config: Config, items: W, space: W) -> Self {
        let depth = slots.slots().len();
        let ring = Self::assemble(slots, depth, config, items, space);
        ring.start_at(0);
        ring
    }

    /// Creates a ring whose position wraps after `laps` laps, for tests.
    #[doc(hidden)]
    pub fn near_the_wrap(slots: B, config: Config, items: W, space: W, laps: usize) -> Self {
        let ring = Self::with_wait(slots, config, items, space);
        ring.start_at(ring.cursor_shape.lap_near(0, -(laps as isize)));
        ring
    }

    /// Makes all slots free, and moves the cursor to the first ticket of lap `lap`.
    fn start_at(&self, lap: usize) {
        let cursor = self.cursor_shape.at(lap, 0);
        self.cursor.store(cursor, Ordering::Relaxed);
        self.start.store(cursor, Ordering::Relaxed);
        let slot_lap = if self.delivery == Delivery::InOrder { lap } else { 0 };
        for slot in self.slots.slots() {
            slot.state.store(state(slot_lap, Status::Free), Ordering::Relaxed);
            slot.finished.store(0, Ordering::Relaxed);
            slot.claims.store(UNOPENED, Ordering::Relaxed);
            slot.ticket.store(0, Ordering::Relaxed);
        }
    }

    /// Ends the [run](self#runs): no new tickets can be claimed. A ticket of which some parts are
    /// claimed can still be finished.
    ///
    /// Returns at once. Workers get [`ClaimError::Ended`]; the consumer gets what was claimed, and
    /// then [`NextError::Ended`]. A run that has already ended stays as it is. A thread that gets
    /// one of these errors sees what was written before the call.
    pub fn seal(&self) {
        self.end(SEALED);
    }

    /// Closes the ring permanently: every wait returns, and no more claims can be made.
    ///
    /// Existing claims and leases stay valid, and tickets that are already finished may still be
    /// taken. A thread that gets [`ClaimError::Closed`] or [`NextError::Closed`] sees what was
    /// written before the call.
    pub fn close(&self) {
        self.end(CLOSED);
    }

    /// Sets a flag that ends the run.
    fn end(&self, flag: usize) {
        self.cursor.fetch_or(flag, Ordering::Release);
        // Incremented after the flag is set, and with release: `open` sees the flags of all seals
        // that it counts (see the module's proof).
        self.ends.fetch_add(1, Ordering::Release);
        self.wake_all();
    }

    /// Whether [`close`](Self::close) was called.
    pub fn is_closed(&self) -> bool {
        self.cursor.load(Ordering::Relaxed) & CLOSED != 0
    }

    /// Whether the current run was [sealed](Self::seal), or opened without tickets. A worker with a
    /// long task can check this in order to stop early.
    #[inline]
    pub fn is_sealed(&self) -> bool {
        self.cursor.load(Ordering::Relaxed) & SEALED != 0
    }

    /// Returns the number of slots.
    pub fn depth(&self) -> usize {
        self.shape.depth
    }

    /// Returns the number of parts of a slot.
    pub fn parts(&self) -> usize {
        self.shape.parts
    }

    /// Returns how many tickets of this [run](self#runs) have been claimed, in whole or in part.
    /// Unless the run has ended, the number may be out of date at once.
    pub fn claimed(&self) -> usize {
        let cursor = self.cursor.load(Ordering::Relaxed);
        self.tickets_before(if self.cursor_shape.part(cursor) > 0 {
            self.cursor_shape.next_ticket(cursor)
        } else {
            cursor
        })
    }

    /// Returns how many tickets of this run come before the cursor's ticket, which is that ticket's
    /// number.
    #[inline]
    fn tickets_before(&self, cursor: usize) -> usize {
        self.cursor_shape.tickets_between(self.start.load(Ordering::Relaxed), cursor)
    }

    /// Whether the run has no new ticket at this cursor, because it is sealed or at its limit.
    #[inline]
    fn is_over(&self, cursor: usize) -> bool {
        // Acquire: a thread that sees the limit that `open` stored also sees what was written
        // before `open`.
        self.is_over_at(cursor, self.limit.load(Ordering::Acquire))
    }

    #[inline]
    fn is_over_at(&self, cursor: usize, limit: usize) -> bool {
        let sealed = cursor & SEALED != 0 && self.cursor_shape.part(cursor) == 0;
        sealed || position(cursor) == limit
    }

    /// Wakes workers that sleep for space if the cursor has reached the limit, since there are no
    /// more tickets.
    #[inline]
    fn tell_if_last(&self, cursor: usize) {
        if position(cursor) == self.limit.load(Ordering::Relaxed) {
            self.space.notify(|| true);
        }
    }

    /// Wakes all waiting threads, so that they check their conditions again.
    ///
    /// A worker that stops claiming before it has got [`ClaimError::Ended`] or
    /// [`ClaimError::Closed`] must call this. With [`Delivery::Arrival`], other workers may have
    /// skipped a ticket that this worker was opening, and may be asleep although they could claim
    /// the rest of that ticket.
    pub fn wake_all(&self) {
        self.items.notify(|| true);
        self.space.notify(|| true);
    }

    fn slot(&self, index: usize) -> &Slot<T> {
        &self.slots.slots()[index]
    }

    /// Counts `count` parts of slot `index` as finished and, if they were the last, hands the slot
    /// to the consumer.
    #[inline]
    fn finish(&self, index: usize, count: usize, failed: bool) {
        let slot = self.slot(index);
        let Some(failed) = slot.finish(count, self.shape.parts, failed) else { return };
        // Only this thread may change the state now: it is `Free(lap)` until the last part is
        // finished, and this thread finishes that part.
        let free = slot.state.load(Ordering::Relaxed);
        let status = if failed { Status::Failed } else { Status::Ready };
        slot.state.store(free | status as usize, Ordering::Release);
        // With in-order delivery, only the awaited slot can end the consumer's sleep, and the
        // thread that finishes the last part of that slot notifies here. In arrival mode any slot
        // can end it.
        self.items.notify(|| self.delivery == Delivery::Arrival || self.awaited.load(Ordering::Relaxed) == index);
    }

    /// Frees slot `index` for its next lap.
    #[inline]
    fn release(&self, index: usize) {
        let slot = self.slot(index);
        match self.delivery {
            Delivery::InOrder => {
                let lap = self.shape.lap_near(slot.state.load(Ordering::Relaxed) >> 2, 1);
                slot.state.store(state(lap, Status::Free), Ordering::Release);
            }
            Delivery::Arrival => {
                slot.state.store(state(0, Status::Free), Ordering::Relaxed);
                slot.claims.store(UNOPENED, Ordering::Release);
            }
        }
        // A wake-up may cost far more than the work on a slot, so sleeping workers are not woken
        // until `wake_at` slots are free. If fewer are free, the consumer wakes them before it
        // waits itself.
        self.space.notify(|| self.has_much_room());
        // In arrival mode, a consumer that waits for the next arrival can continue when any slot is
        // free: it wakes the workers.
        self.items.notify(|| self.delivery == Delivery::Arrival || self.awaited.load(Ordering::Relaxed) == A_RELEASE);
    }

    /// Returns whether `wake_at` slots are free for claims, counted from the cursor.
    fn has_much_room(&self) -> bool {
        match self.delivery {
            Delivery::InOrder => {
                let cursor = self.shape.ticket_start(self.cursor.load(Ordering::Relaxed));
                let last = self.shape.forward(cursor, self.wake_at - 1).unwrap_or(cursor);
                let slot = self.slot(self.shape.slot(last));
                slot.state.load(Ordering::Relaxed) == state(self.shape.lap(last), Status::Free)
            }
            Delivery::Arrival => {
                let free = |slot: &&Slot<T>| slot.claims.load(Ordering::Relaxed) == UNOPENED;
                self.slots.slots().iter().filter(free).count() >= self.wake_at
            }
        }
    }
}

impl<T, B: Storage<Slot = Slot<T>>, W> Ring<B, W> {
    const_unless_modelled! {
        /// Assembles a ring of these slots, which must be in their initial state or be reset before
        /// the ring is used.
        fn assemble(slots: B, depth: usize, config: Config, items: W, space: W) -> Self {
            let shape = Geometry::new(depth, config.parts);
            Self {
                cursor: CachePadded::new(AtomicUsize::new(0)),
                awaited: CachePadded::new(AtomicUsize::new(0)),
                limit: AtomicUsize::new(NOWHERE),
                start: AtomicUsize::new(0),
                ends: AtomicUsize::new(0),
                consumed: AtomicBool::new(false),
                delivery: config.delivery,
                wake_at: match config.wake_at {
                    None => depth.div_ceil(2),
                    Some(0) => 1,
                    Some(free) if free > depth => depth,
                    Some(free) => free,
                },
                shape,
                cursor_shape: match config.delivery {
                    Delivery::InOrder => shape,
                    Delivery::Arrival => Geometry::new(1, 1),
                },
                items,
                space,
                slots,
            }
        }
    }
}

impl<B, W> fmt::Debug for Ring<B, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cursor = self.cursor.load(Ordering::Relaxed);
        f.debug_struct("Ring")
            .field("depth", &self.shape.depth)
            .field("parts", &self.shape.parts)
            .field("delivery", &self.delivery)
            .field("lap", &self.cursor_shape.lap(cursor))
            .field("slot", &self.cursor_shape.slot(cursor))
            .field("part", &self.cursor_shape.part(cursor))
            .field("sealed", &(cursor & SEALED != 0))
            .field("closed", &(cursor & CLOSED != 0))
            .finish_non_exhaustive()
    }
}

/// Any ordered [`Ring`], so that the types that refer to one need only a single type parameter.
pub trait AnyRing: sealed::Sealed {
    /// The type of a slot's value.
    type Value;
    /// The storage of the slots.
    type Storage: Storage<Slot = Slot<Self::Value>>;
    /// The way in which the two sides wait.
    type Wait: Wait;

    /// Returns the ring.
    fn ring(&self) -> &Ring<Self::Storage, Self::Wait>;
}

impl<T, B: Storage<Slot = Slot<T>>, W: Wait> AnyRing for Ring<B, W> {
    type Value = T;
    type Storage = B;
    type Wait = W;

    #[inline]
    fn ring(&self) -> &Ring<B, W> {
        self
    }
}

mod sealed {
    pub trait Sealed {}
    impl<B, W> Sealed for super::Ring<B, W> {}
}
