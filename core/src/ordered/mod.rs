//! The ordered ring: many workers fill numbered tasks in place, one consumer takes them in order.
//!
//! ```text
//! ticket t  lives in  slot t mod depth;  the slot is free for ticket t + depth once ticket t was released.
//! ```
//!
//! A [`Worker`] claims the next ticket (or some [parts](Config::parts) of it, or [many](Worker::claim_many) tickets),
//! writes the result into the slot and publishes it. The [`Consumer`] waits for exactly one slot, the next in order, and
//! gets a [`Lease`] on it; dropping the lease, on any thread and in any order, frees the slot for the ticket one lap
//! later. The consumer's thread may own a `Worker` too and work while it waits.
//!
//! ```
//! use slotline_core::ordered::{Config, Ring, Slot};
//!
//! let ring = Ring::inline([const { Slot::new(0) }; 4], Config::new());
//! let mut consumer = ring.consumer().expect("nobody has taken it yet");
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
//! Tickets come in *runs*: a run ends after a number of tickets given beforehand ([`Consumer::open`]) or when somebody
//! calls [`Ring::seal`]; workers then get [`ClaimError::Ended`], and the consumer gets what was claimed and then
//! [`NextError::Ended`]. `open` starts the next run with the same slots. A new ring has an endless run open.
//! [`Ring::close`] ends everything at once.
//!
//! # In order, or as they arrive
//!
//! With [`Delivery::Arrival`] a ticket takes any free slot, and the consumer takes any finished one, the lowest ticket
//! first of those that one look finds (it goes from slot to slot, and may pass over one that is finished meanwhile). A
//! straggler then holds up its own slot and nobody else.
//!
//! # Guarantees, and what is not guaranteed
//!
//! Every claimed ticket comes out exactly once, published or failed: a claim dropped unpublished (as a panic does)
//! arrives at its place as [`NextError::Failed`]. No operation allocates. `try_` forms are lock-free, not wait-free: a
//! claim retries when another worker was quicker. A claim or a lease that is *leaked* (`mem::forget`) keeps its slot
//! for ever, and the ring stands still once it comes round to it. The lap counter wraps: on a machine with 32-bit
//! pointers a worker suspended within a claim for exactly one turn of the position (2²⁸ parts) would not notice. Nor would
//! one suspended within a claim of [many](Worker::claim_many) tickets while exactly four runs were opened (256 on 64-bit
//! machines) and nothing was claimed in them: it could claim beyond the end of the last one.
//!
//! # Why it is right
//!
//! Per slot one word, `state`, says the lap and whether the slot is `Free`, `Ready` (or `Failed`). One word for all,
//! `cursor`, says the next position (lap, slot, part) to claim.
//!
//! *Starting.* Every constructor has the slots to itself, by value or by an exclusive borrow, and sets all words of every
//! slot: each is `Free` in the first lap, with nothing finished, no ticket and no part claimed. What another ring left
//! in a slot is gone, except its value.
//!
//! *Claiming.* A worker reads the cursor c, sees that slot(c) is `Free` in lap(c), and moves the cursor on by
//! compare-and-swap. If that succeeds, position c was still unclaimed, and nothing could have changed the slot's state
//! since: it leaves `Free(lap)` only when all parts of that lap are finished, and c's was not. So each part of each
//! lap has one owner, who holds a claim inside the window only: nobody can own a ticket whose slot is not free yet. A claim
//! of many tickets in a row looks at all their slots, short of the limit, and then moves the cursor over them at once:
//! all of these positions were still unclaimed, so the same holds for each. It must not be made in another run than
//! the one whose limit it saw, even if that starts at the same position (as after a seal with nothing claimed in between);
//! so `open` changes the run's number, which is part of the cursor, and the compare-and-swap fails. The numbers repeat. A
//! worker that was suspended for so long finds the very word that it had loaded, at the same position: then nothing was
//! claimed meanwhile, and the position is the start of the run that is open now. That run is not sealed, and so it has a
//! ticket there, since `open` seals a run that has none. A claim of one ticket is thus right in this run, too, and sees what
//! was written before its `open`, as the compare-and-swap acquires. Only a claim of many could reach beyond its limit.
//!
//! *Publishing.* Each claim adds its parts to `finished` (acquire and release), and the one that completes the count
//! stores `Ready(lap)` with release. The consumer reads it with acquire, and so sees what every part wrote. A claim of
//! a whole slot skips the count. Until then the state is `Free(lap)`, which the consumer does not touch.
//!
//! *Releasing.* The lease stores `Free(lap + 1)` with release; the worker that claims reads it with acquire, so its
//! writes come after all reads of the lease. Each slot is released on its own: leases end in any order.
//!
//! *Ending.* The `SEALED` flag is a bit of the cursor, so a claim either comes before the seal or fails; after it only
//! the parts of a ticket already begun can be claimed. The consumer is at the end when its own position equals the
//! cursor's and the run is sealed or at its limit. `open` demands just that, so whatever the consumer wrote before
//! `open` (release) is seen by the claims of the new run (acquire), and no claim of the old one is left. A claim may
//! see it through the limit, before `open` has touched the cursor; so a claim moves the cursor with release, too, for
//! those who find the cursor beyond the old limit and learn nothing from that.
//!
//! *Waiting.* Workers wait for a free slot at the cursor, the consumer for its next slot. Both notify after each
//! change, by [`crate::wait`]'s protocol. A publisher declines the wake-up if the consumer awaits another slot (which
//! has a publisher of its own); a release declines while little is free, and the consumer makes up for it before it
//! waits itself. In arrival mode, where what the consumer waits for may not even be claimed, a release wakes the
//! consumer too, which then calls the workers or claims the slot itself.
//! In order a consumer that works, too, may be the only one to claim what it awaits, if that was held when it last tried;
//! so it waits for nothing that is unclaimed.
//!
//! *Arrival mode.* Each slot has a word of its own, `claims`, that its parts are claimed from; a free slot is opened by
//! whoever moves it from `UNOPENED` to `OPENING` and then draws a ticket from the cursor. A part claimed by
//! compare-and-swap belongs to whatever ticket the slot holds at that moment, so it does no harm if the slot has come
//! round in between. A worker may pass over a slot that is being opened, and be told that no slot is free, or that the run has
//! ended, though parts of that slot are left. The opener takes them when it comes back. One that never will
//! [wakes everybody](Ring::wake_all) instead, after it has opened the slot: then who waits, for space or for the next run, has
//! seen the parts or looks again, and so does a consumer that works. The rest is as above, with `lap` fixed at 0 and `Leased`
//! for what the consumer has taken.
//!
//! The models in `tests/models` check all this for small rings, and that each ordering is needed.

mod arrival;
mod claim;
mod consumer;
mod position;
mod slot;

use core::fmt;

use crossbeam_utils::CachePadded;

pub use self::claim::{Claim, ClaimError, Claims, Worker};
use self::consumer::A_RELEASE;
pub use self::consumer::{Consumer, Lease, NextError, OpenError};
use self::position::{CLOSED, Geometry, NOWHERE, SEALED, position};
pub use self::slot::Slot;
use self::slot::{Status, UNOPENED, state};
use crate::storage::Storage;
use crate::sync::{AtomicBool, AtomicUsize, Ordering, const_unless_modelled};
use crate::wait::{Spin, Wait};

/// In which order the consumer gets the tickets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delivery {
    /// By ticket, whatever is finished first.
    #[default]
    InOrder,
    /// As they are finished; of several finished ones the lowest ticket first.
    Arrival,
}

/// What a ring is to be, beside its slots.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    parts: usize,
    delivery: Delivery,
    wake_at: Option<usize>,
}

impl Config {
    /// One part per slot, delivered in order.
    pub const fn new() -> Self {
        Self { parts: 1, delivery: Delivery::InOrder, wake_at: None }
    }

    /// Into how many parts the work on one slot is divided, so that several workers can share it.
    pub const fn parts(self, parts: usize) -> Self {
        Self { parts, ..self }
    }

    /// How many slots must be free before a release wakes sleeping workers; half of them by default. A ring of which the
    /// consumer holds many slots for long wants fewer.
    pub const fn wake_at(self, free: usize) -> Self {
        Self { wake_at: Some(free), ..self }
    }

    /// In which order the consumer gets the tickets.
    pub const fn delivery(self, delivery: Delivery) -> Self {
        Self { delivery, ..self }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self::new()
    }
}

/// The ring itself; see the [module](self). `B` is where the slots live, `W` how its two sides wait.
pub struct Ring<B, W = Spin> {
    /// The next position to claim, and the flags. Moved by workers; the flags by anyone.
    cursor: CachePadded<AtomicUsize>,
    /// The slot whose publication ends the consumer's sleep. Stale unless the consumer sleeps.
    awaited: CachePadded<AtomicUsize>,
    /// The position at which the run ends, or `NOWHERE`. Written by `open` only.
    limit: AtomicUsize,
    /// The position at which the run began. Written by `open` only.
    start: AtomicUsize,
    /// Whether there is a `Consumer`.
    consumed: AtomicBool,
    delivery: Delivery,
    /// How many free slots are worth waking the workers for, `1..=depth`.
    wake_at: usize,
    /// Of the slots. The cursor counts by `cursor_shape`.
    shape: Geometry,
    /// As `shape` in order; in arrival mode the cursor just counts tickets.
    cursor_shape: Geometry,
    /// The consumer waits here.
    items: W,
    /// Workers wait here.
    space: W,
    slots: B,
}

impl<T, const N: usize> Ring<[Slot<T>; N]> {
    const_unless_modelled! {
        /// A ring with its slots inline, which can be a `static`, whose sides wait by [`Spin`].
        ///
        /// The slots may come from another ring: whatever their state, they start anew.
        ///
        /// ```
        /// use slotline_core::ordered::{Config, Ring, Slot};
        ///
        /// static RING: Ring<[Slot<[u8; 16]>; 8]> = Ring::inline([const { Slot::new([0; 16]) }; 8], Config::new());
        /// ```
        ///
        /// # Panics
        ///
        /// If there is no slot, no part, or more of both than half the bits of a pointer can count.
        pub fn inline(slots: [Slot<T>; N], config: Config) -> Self {
            Self::inline_with_wait(slots, config, Spin, Spin)
        }
    }
}

impl<T, const N: usize, W: Wait> Ring<[Slot<T>; N], W> {
    const_unless_modelled! {
        /// As [`inline`](Ring::inline), for a `static` ring whose consumer waits by `items` and whose workers wait by
        /// `space`.
        ///
        /// # Panics
        ///
        /// If there is no slot, no part, or more of both than half the bits of a pointer can count.
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
    /// A ring over these slots, one per ticket in the window, whose sides wait by [`Spin`].
    ///
    /// # Panics
    ///
    /// If there is no slot, no part, or more of both than half the bits of a pointer can count.
    pub fn new(slots: B, config: Config) -> Self {
        Self::with_wait(slots, config, Spin, Spin)
    }
}

#[cfg(feature = "alloc")]
impl<T> Ring<alloc::boxed::Box<[Slot<T>]>> {
    /// A ring of `depth` slots on the heap, where slot `i` starts with `init(i)`.
    ///
    /// # Panics
    ///
    /// As [`new`](Self::new).
    pub fn boxed(depth: usize, config: Config, init: impl FnMut(usize) -> T) -> Self {
        Self::new((0..depth).map(init).map(Slot::new).collect(), config)
    }
}

impl<T, B: Storage<Slot = Slot<T>>, W: Wait> Ring<B, W> {
    /// A ring over these slots, whose consumer waits by `items` and whose workers wait by `space`.
    ///
    /// The slots may come from another ring: whatever their state, they start anew.
    ///
    /// # Panics
    ///
    /// If there is no slot, no part, or more of both than half the bits of a pointer can count.
    pub fn with_wait(slots: B, config: Config, items: W, space: W) -> Self {
        let depth = slots.slots().len();
        let ring = Self::assemble(slots, depth, config, items, space);
        ring.start_at(0);
        ring
    }

    /// A worker on this ring ([`Worker::new`] for other handles).
    pub fn worker(&self) -> Worker<&Self> {
        Worker::new(self)
    }

    /// The consumer of this ring, or `None` if it was taken already ([`Consumer::new`] for other handles).
    pub fn consumer(&self) -> Option<Consumer<&Self>> {
        Consumer::new(self)
    }

    /// A ring whose position wraps after `laps` laps: for tests.
    #[doc(hidden)]
    pub fn near_the_wrap(slots: B, config: Config, items: W, space: W, laps: usize) -> Self {
        let ring = Self::with_wait(slots, config, items, space);
        ring.start_at(ring.cursor_shape.lap_near(0, -(laps as isize)));
        ring
    }

    /// Makes all slots free, and the first ticket the first one of lap `lap`.
    fn start_at(&self, lap: usize) {
        let cursor = self.cursor_shape.start_of(lap);
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

    /// Ends the run: no ticket after those already claimed. A ticket of which some parts are claimed is finished first.
    ///
    /// Returns at once; workers get [`ClaimError::Ended`] and the consumer, after what was claimed,
    /// [`NextError::Ended`]. A run that is over stays as it is. Who gets these errors sees what was written before the call.
    pub fn seal(&self) {
        self.cursor.fetch_or(SEALED, Ordering::Release);
        self.wake_all();
    }

    /// Ends everything, for ever: every wait returns, and no claim is given any more.
    ///
    /// Claims and leases that are out stay valid, and what is finished already may still be taken. Who gets
    /// [`ClaimError::Closed`] or [`NextError::Closed`] sees what was written before the call.
    pub fn close(&self) {
        self.cursor.fetch_or(CLOSED, Ordering::Release);
        self.wake_all();
    }

    /// Whether [`close`](Self::close) was called.
    pub fn is_closed(&self) -> bool {
        self.cursor.load(Ordering::Relaxed) & CLOSED != 0
    }

    /// Whether the run was [sealed](Self::seal) (and not opened again), or opened without tickets: a worker with a long task may
    /// look, and stop.
    #[inline]
    pub fn is_sealed(&self) -> bool {
        self.cursor.load(Ordering::Relaxed) & SEALED != 0
    }

    /// How many slots there are.
    pub fn depth(&self) -> usize {
        self.shape.depth
    }

    /// How many parts a slot has.
    pub fn parts(&self) -> usize {
        self.shape.parts
    }

    /// How many tickets of this run were begun by now; at once out of date unless the run is over.
    pub fn claimed(&self) -> usize {
        let cursor = self.cursor.load(Ordering::Relaxed);
        self.tickets_before(if self.cursor_shape.part(cursor) > 0 {
            self.cursor_shape.next_ticket(cursor)
        } else {
            cursor
        })
    }

    /// How many tickets of this run come before the cursor's, which is the number of its own.
    #[inline]
    fn tickets_before(&self, cursor: usize) -> usize {
        self.cursor_shape.tickets_between(self.start.load(Ordering::Relaxed), cursor)
    }

    /// Whether a new ticket at this cursor is out of the question, for this run or for ever.
    #[inline]
    fn is_over(&self, cursor: usize) -> bool {
        // Acquire: a limit seen here is `open`'s word that the new run's preparations are seen, too.
        self.is_over_at(cursor, self.limit.load(Ordering::Acquire))
    }

    #[inline]
    fn is_over_at(&self, cursor: usize, limit: usize) -> bool {
        let sealed = cursor & SEALED != 0 && self.cursor_shape.part(cursor) == 0;
        sealed || position(cursor) == limit
    }

    /// Tells workers that sleep for space that there will be no more, once the cursor has come to the limit.
    #[inline]
    fn tell_if_last(&self, cursor: usize) {
        if position(cursor) == self.limit.load(Ordering::Relaxed) {
            self.space.notify(|| true);
        }
    }

    /// Has everybody who waits look again.
    ///
    /// A worker that claims no more, though it was told neither of the run's end nor that the ring is closed, must call this: with
    /// [`Delivery::Arrival`] others may sleep who passed over a ticket while it began it, and who can take the rest of that.
    pub fn wake_all(&self) {
        self.items.notify(|| true);
        self.space.notify(|| true);
    }

    fn slot(&self, index: usize) -> &Slot<T> {
        &self.slots.slots()[index]
    }

    /// Counts `count` parts of slot `index` as finished and, if they were the last, hands the slot to the consumer.
    #[inline]
    fn finish(&self, index: usize, count: usize, failed: bool) {
        let slot = self.slot(index);
        let Some(failed) = slot.finish(count, self.shape.parts, failed) else { return };
        // Only this thread may change the state now: it is `Free(lap)` until the last part, which this is.
        let free = slot.state.load(Ordering::Relaxed);
        let status = if failed { Status::Failed } else { Status::Ready };
        slot.state.store(free | status as usize, Ordering::Release);
        // Another slot than the awaited one has no bearing on the consumer's sleep; the awaited one's own last part
        // will come by here. In arrival mode any slot will do.
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
        // A wake-up costs far more than a slot's work may be worth, so sleeping workers are left alone until a good part
        // of the ring is theirs; the consumer wakes them for less before it has nothing left to take itself.
        self.space.notify(|| self.has_much_room());
        // In arrival mode any free slot gets a consumer on that waits for whatever comes next: it calls the workers.
        self.items.notify(|| self.delivery == Delivery::Arrival || self.awaited.load(Ordering::Relaxed) == A_RELEASE);
    }

    /// Whether `wake_at` slots are free for claims, as seen from the cursor.
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
        /// The ring of these slots, which must be as new, or be made so before anybody uses it.
        fn assemble(slots: B, depth: usize, config: Config, items: W, space: W) -> Self {
            let shape = Geometry::new(depth, config.parts);
            Self {
                cursor: CachePadded::new(AtomicUsize::new(0)),
                awaited: CachePadded::new(AtomicUsize::new(0)),
                limit: AtomicUsize::new(NOWHERE),
                start: AtomicUsize::new(0),
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

/// Any ordered ring, for the types that hold on to one.
pub trait AnyRing: sealed::Sealed {
    /// What a slot holds.
    type Value;
    /// Where the slots live.
    type Storage: Storage<Slot = Slot<Self::Value>>;
    /// How its sides wait.
    type Wait: Wait;

    /// The ring.
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
