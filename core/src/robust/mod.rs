//! The robust ring: many workers fill numbered tasks, and any of them may vanish (be killed) at any
//! instruction.
//!
//! It is for workers that are processes, with the ring in memory that all of them map. A process
//! can be killed in the middle of a claim. Its claims do not block the others: each claim names its
//! worker, so that the host (the side that takes the results) can give the claimed parts to another
//! worker, or report them.
//!
//! ```text
//! the host assigns ticket t to a slot; workers claim parts of it, fill and publish them;
//! the host takes the slot, and assigns it to the next ticket.
//! ```
//!
//! The ring is a slice of 64-bit [words](Word), without pointers: all words zero is a new ring, and
//! each process makes its own [`Ring`] over the same words. The ring holds only the protocol. The
//! contents of the slots are stored elsewhere, and a [`Claim`] says which slot and which parts of
//! it may be written.
//!
//! ```
//! use slotline_core::ordered::{ClaimError, Delivery};
//! use slotline_core::robust::{Owner, Recovery, Ring, Shape, SlotStatus, Word};
//! use slotline_core::wait::Backoff;
//!
//! let shape = Shape::new(2, 1);
//! let words: Vec<Word> = (0..shape.words()).map(|_| Word::new(0)).collect();
//! let ring = Ring::new(words, shape, Delivery::InOrder, Backoff, Backoff);
//! let (one, other) = (Owner::new(1), Owner::new(2));
//! ring.assign(0, 0);
//! ring.assign(1, 1);
//!
//! std::mem::forget(ring.try_claim(one, 1)?); // This worker vanishes with ticket 0,
//! ring.try_claim(other, 1)?.publish(); // and this one makes ticket 1.
//! assert_eq!(ring.try_claim(other, 1).unwrap_err(), ClaimError::Full);
//!
//! // The host learns that worker 1 has ended, and lets another worker redo its part.
//! assert_eq!(ring.recover(one, [(0, 0), (1, 1)], |_, _| Recovery::Redo), 1);
//! ring.try_claim(other, 1)?.publish();
//! assert_eq!([ring.slot_status(0, 0), ring.slot_status(1, 1)], [SlotStatus::Ready, SlotStatus::Ready]);
//! # Ok::<(), ClaimError>(())
//! ```
//!
//! # Guarantees and limits
//!
//! - A part has at most one owner, and the part's word names the owner. A part is claimed only
//!   while the host has assigned its slot.
//! - The host never depends on where a worker stopped. If a word is impossible for its ticket, the
//!   result is [`SlotStatus::Corrupt`]. A faulty worker can stall or close the ring by overwriting the
//!   hint (the ticket from which workers look for work), the flags, the waiters, or a word with a
//!   plausible value, so the host should wait with a deadline. Such a worker cannot make an
//!   operation panic or loop.
//! - No operation allocates or takes a lock. Claiming is lock-free.
//! - Tickets are numbered below 2⁴⁸ and never start again; a ring has at most 4,096 workers at a
//!   time.
//! - A worker may be suspended within [`try_claim`](Ring::try_claim) while the host sets the hint
//!   back or moves it on (a [recovery](Ring::recover) that frees parts, or
//!   [`start_at`](Ring::start_at)) exactly 65,536 times, or a multiple of that. The worker does not
//!   notice this, and may make the others skip a part that is free.
//! - A worker that is killed while it sleeps still counts as asleep, so each later notification
//!   makes a system call.
//!
//! # Why it is correct
//!
//! Each part of each slot has a word that holds a ticket, an owner and a status. Only these steps
//! change it:
//!
//! ```text
//! A  host     anything        -> Free(t)         assign, of a slot that is taken, withdrawn or new
//! B  worker   Free(t)         -> Claimed(t, w)   claim, by compare-and-swap
//! C  worker   Claimed(t, w)   -> Done(t, w)      publish, or Failed(t, w) if the claim is dropped
//! D  host     Claimed(t, w)   -> Free(t)         recover, or Failed(t, w), after worker w has ended
//! E  host     Free(t)         -> Idle(t)         withdraw, by compare-and-swap
//! ```
//!
//! *One owner.* Tickets never repeat, so a word stays `Free(t)` from A or D until exactly one
//! compare-and-swap (B or E) replaces it. From B on the word names w. Until C, only w changes it,
//! and after w has ended only the host. So there is no instruction after which a part has an owner
//! that the word does not name: a worker that vanishes before B has claimed nothing, one that
//! vanishes between B and C is found by the host at D, and after C the contents are complete.
//!
//! *Contents.* A and D store with release, and B acquires: a worker sees what the host wrote before
//! it assigned the ticket (which memory the slot has, and what the ticket is). C stores with
//! release, and [`Ring::slot_status`] acquires: the host sees what the owner wrote. The host takes a slot
//! only when all of its parts are `Done` or `Failed`, and no worker changes such a word.
//!
//! *Finding work in order.* `hint` is a ticket; no ticket before it has a free part. A worker looks
//! from there, ticket by ticket, and stops where a word names an earlier ticket or is idle, since
//! the host has not assigned the ticket that the worker looks for. The worker then moves the hint
//! past tickets without a free part, by compare-and-swap. If another thread has changed the hint,
//! the worker leaves it: a hint that is too low costs time, but is not wrong. The invariant (no
//! ticket before the hint has a free part) holds, because:
//!
//! - A: a ticket is assigned before any worker can pass it, because workers stop at it until then.
//!   A worker may look while the host assigns the parts one by one, and claim some of them; it
//!   passes the ticket only if it saw that none of the others is still to be assigned.
//! - A slot whose word names a later ticket: the host takes tickets in order, so all tickets up to
//!   the slot's previous ticket are done, and the worker goes on after them.
//! - D makes a part free that the hint may have passed. The host changes the word first, and then
//!   sets the hint back, with the next generation number. A worker that read the hint before fails
//!   to move it, as the generation differs; one that reads it later (acquire, while the host
//!   released, and the swaps of the workers continue its release sequence) sees the free part.
//!
//! With [`Delivery::Arrival`] there is no hint: the host assigns any ticket to any slot, and a
//! worker looks at all of them and takes the lowest ticket.
//!
//! *Waiting.* Workers wait for a free part, and the host waits for a slot, by the protocol of
//! [`crate::wait`]. A publisher does not wake the host if it waits for another ticket, or if
//! another part of this ticket is unfinished. If two publishers finish the last parts at once, at
//! least one of them sees the other's part as finished: each stores its word, and then `notify`
//! executes a sequentially consistent fence before it calls `wanted`, which reads the other parts.
//! If a worker vanishes between C and its notification, `recover` notifies both sides in its place.
//!
//! *Ending a run.* The host withdraws the free parts, and then waits until the others are done. No
//! claim of that run is left, and there can be no new one, because its tickets are never assigned
//! again. The next run starts at a later ticket. A publisher that sees a part as free while the
//! host is withdrawing it does not wake the host either. Between withdrawing and looking at the
//! other parts the host executes a fence, too, so it sees the publisher's part as finished.
//!
//! The models in `tests/models/robust.rs` explore a worker that vanishes before each of its
//! operations in turn.

mod host;
mod word;
mod worker;

use core::fmt;
use core::ops::Deref;

pub use self::host::{Recovery, SlotStatus};
pub use self::word::Owner;
use self::word::POSITION;
pub use self::worker::Claim;
use crate::ordered::Delivery;
use crate::sync::{AtomicU64, Ordering};
use crate::wait::Wait;

/// A word of the ring.
pub type Word = AtomicU64;

/// The distance in words between words that different threads write, such as two control words or
/// two slots. It is 128 bytes, so that no two of them share a cache line or a pair of lines, if the
/// first word is aligned to 128 bytes.
const LINE: usize = 16;
/// The index of the word with the hint: a generation number above a ticket.
const HINT: usize = 0;
/// The index of the word with a flag: whether the ring was closed.
const CLOSED: usize = 1;
/// The index of the word with the ticket that the host waits for, or `ANY`.
const AWAITED: usize = LINE;
const SLOTS: usize = 2 * LINE;

const ANY: u64 = u64::MAX;

/// The number of slots, and the number of parts in each slot. Both are powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    depth: usize,
    parts: usize,
}

impl Shape {
    /// Creates a shape with `depth` slots of `parts` parts.
    ///
    /// # Panics
    ///
    /// If one of them is not a power of two, or if there are more than 2²⁰ slots or 2¹⁰ parts.
    pub const fn new(depth: usize, parts: usize) -> Self {
        assert!(depth.is_power_of_two() && depth <= 1 << 20, "the number of slots is a power of two up to 2^20");
        assert!(parts.is_power_of_two() && parts <= 1 << 10, "the number of parts is a power of two up to 2^10");
        Self { depth, parts }
    }

    /// Returns the number of slots.
    pub const fn depth(self) -> usize {
        self.depth
    }

    /// Returns the number of parts of a slot.
    pub const fn parts(self) -> usize {
        self.parts
    }

    /// Returns the number of words that a ring of this shape needs.
    pub const fn words(self) -> usize {
        SLOTS + self.depth * self.stride()
    }

    /// Returns the distance in words from one slot to the next.
    const fn stride(self) -> usize {
        self.parts.next_multiple_of(LINE)
    }
}

/// A process's view of the ring; see the [module documentation](self). `M` holds the words, and `W`
/// is how the two sides wait.
pub struct Ring<M, W> {
    words: M,
    shape: Shape,
    delivery: Delivery,
    /// Where the host waits for finished slots.
    items: W,
    /// Where workers wait for free parts.
    space: W,
}

impl<M: Deref<Target = [Word]>, W: Wait> Ring<M, W> {
    /// Creates a view of the ring in `words`, whose host waits by `items` and whose workers wait by
    /// `space`.
    ///
    /// All processes must use the same words, shape and delivery, and waiters that can wake each
    /// other. `notify` of a waiter must execute a sequentially consistent fence before it calls
    /// `wanted`. [`Park`](crate::wait::Park) does so if both fences of its futex are sequentially
    /// consistent. (An asymmetric pair of fences works only among the threads of one process.) If
    /// all words are zero, the ring is new.
    ///
    /// # Panics
    ///
    /// If there are fewer words than the shape [needs](Shape::words).
    pub fn new(words: M, shape: Shape, delivery: Delivery, items: W, space: W) -> Self {
        assert!(words.len() >= shape.words(), "{} words are too few for this shape", words.len());
        Self { words, shape, delivery, items, space }
    }

    /// Returns the shape of the ring.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Makes claims fail with [`ClaimError::Closed`](crate::ordered::ClaimError::Closed), and wakes
    /// both sides.
    pub fn close(&self) {
        self.words[CLOSED].store(1, Ordering::Release);
        self.space.notify(|| true);
        self.items.notify(|| true);
    }

    /// Whether the ring was [closed](Self::close).
    pub fn is_closed(&self) -> bool {
        self.words[CLOSED].load(Ordering::Acquire) != 0
    }

    /// Returns the words of a slot's parts.
    #[inline]
    fn parts(&self, slot: usize) -> &[Word] {
        assert!(slot < self.shape.depth, "there is no slot {slot}");
        let first = SLOTS + slot * self.shape.stride();
        &self.words[first..first + self.shape.parts]
    }

    /// Returns the slot that a ticket uses with in-order delivery.
    #[inline]
    fn slot_of(&self, position: u64) -> usize {
        (position & (self.shape.depth as u64 - 1)) as usize
    }

    /// Returns the ticket from which a worker looks for free parts.
    #[inline]
    fn hint(&self) -> u64 {
        self.words[HINT].load(Ordering::Acquire)
    }
}

impl<M: Deref<Target = [Word]>, W> fmt::Debug for Ring<M, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hint = self.words[HINT].load(Ordering::Relaxed) & POSITION;
        f.debug_struct("Ring").field("shape", &self.shape).field("hint", &hint).finish_non_exhaustive()
    }
}
