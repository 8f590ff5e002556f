//! A ring from one producer to one consumer, whose slots are written and read in place.
//!
//! Every slot holds a value from the start, and the producer makes an item by changing that value.
//! A [`Claim`] or [`ClaimChunk`] is the producer's `&mut` to the next free slots; a [`Lease`] or
//! [`LeaseChunk`] is the consumer's `&mut` to the next published ones. Values are not moved in or
//! out, so what a value owns (a buffer, for example) can be reused one lap (`capacity` items)
//! later.
//!
//! Items are numbered from 0, and item `k` is in slot `k mod capacity`. (Numbers are `usize` and
//! wrap. After the wrap the slots are still taken in turn, but `k mod capacity` gives the slot only
//! if the capacity is a power of two.)
//!
//! ```
//! use slotline_core::spsc::{NextError, Ring, Slot};
//!
//! static RING: Ring<[Slot<[u8; 16]>; 3]> = Ring::new([const { Slot::new([0; 16]) }; 3]);
//!
//! let mut producer = RING.producer().expect("the producer was not taken before");
//! let mut consumer = RING.consumer().expect("the consumer was not taken before");
//! std::thread::scope(|s| {
//!     s.spawn(move || {
//!         for i in 0..100 {
//!             let mut slot = producer.claim().expect("the consumer was not dropped");
//!             slot.fill(i);
//!             slot.publish();
//!         }
//!     });
//!     for i in 0..100 {
//!         let item = consumer.next().expect("the producer publishes 100 items");
//!         assert_eq!((item.ticket(), *item), (usize::from(i), [i; 16]));
//!     }
//!     assert_eq!(consumer.next().unwrap_err(), NextError::Ended);
//! });
//! ```
//!
//! # Waiting
//!
//! Each side remembers the position of the other side, and reads it again only when it has used up
//! the items or slots that it knows of. So in a stream of items, few cache lines move between the
//! two. A side that waits for single items in such a stream also pauses when it has caught up, for
//! up to a microsecond or two, so that it finds many items at once afterwards. A side that waits
//! for items that come one by one does not pause, and neither do the `try_` methods and the chunk
//! methods.
//!
//! # The end
//!
//! | What happens | The producer gets | The consumer gets |
//! |---|---|---|
//! | the producer is dropped, or [finishes](Producer::finish) | | all published items, then [`NextError::Ended`] |
//! | the consumer is dropped | [`ClaimError::Closed`] | |
//! | any thread calls [`Ring::close`] | [`ClaimError::Closed`] | [`NextError::Closed`], even if items are left |
//!
//! A side that waits is woken. A side that does not wait notices the end when it next reads the
//! other one's position: it may first use up the slots or items that it knows of, at most
//! `capacity`. (So the hot path does not check a flag.) A side that gets one of these errors sees
//! everything that was written before the event that caused it.
//!
//! Once both sides were taken and dropped, the ring is open and empty again, counts from 0, and
//! both sides can be taken again. Before that, a side that was dropped cannot be taken again. The
//! values in the slots stay as they were left. A side that was leaked (`mem::forget`) stays taken;
//! [`Ring::split`] resets the ring if you have `&mut` to it. Leaking a claim, lease or chunk has no
//! effect: the next call returns its slots again.
//!
//! # Why it is sound
//!
//! `tail` counts the items that were published, `head` the items that were released. Both only
//! increase, wrapping. Only the producer writes `tail`, and only the consumer writes `head`; each
//! keeps a private copy in its `Cursor`, along with the slot that belongs to it. All differences
//! are taken modulo 2^bits; they are exact, since the capacity fits in a `usize`.
//!
//! - **I1** `0 <= tail - head <= capacity`, also for the values that a side sees, which may be out
//!   of date: a side knows its own position exactly, and may know only an older position of the
//!   other. The producer advances up to `limit = head + capacity`, the consumer up to
//!   `limit = tail`, and an older value only makes that limit lower.
//! - **I2** Items `head .. tail` belong to the consumer, items `tail .. head + capacity` (a lap
//!   later in the same slots) to the producer. Together the ranges are at most `capacity` long, so
//!   no slot is in both.
//! - **I3** A slot passes to the consumer by the store of `tail` (Release), which the consumer
//!   loads (Acquire) before it accesses the slot. It passes back by the store of `head` (Release),
//!   which the producer loads (Acquire). So all accesses of one owner happen before those of the
//!   next.
//! - **I4** There is at most one [`Producer`] and one [`Consumer`]: each has a bit in `state`,
//!   which is set once by `fetch_or`. Within a side, claims, leases and chunks borrow it mutably,
//!   so only one exists at a time.
//! - **I5** Both sides go through the slots in turn from the same start: a side takes its start
//!   from its own position, which cannot have moved since the ring was created or restarted.
//!
//! **Ended** needs care: the producer stores its last `tail` and then sets its GONE bit (Release).
//! The consumer loads `state` (Acquire) *before* `tail`; if the bit was set, this `tail` is the
//! last one.
//!
//! **Restart**: each side sets its GONE bit by `fetch_or` (AcqRel) when it is dropped. The side
//! that finds the other's bit set comes after everything the other side did. As a dropped side
//! cannot be taken, the side that came second has exclusive access to the ring. It resets the
//! positions and then clears `state` (Release), which the next `fetch_or` (Acquire) that takes a
//! side sees.
//!
//! **No lost wake-up**: see [`wait`](crate::wait) for the event count. Both sides' conditions
//! change only by a store of a position or of a bit in `state`, and `notify` follows each of these
//! stores. After the store of a position, the other side is woken only if the ring was empty (for
//! `tail`) or full (for `head`) just before the store.
//!
//! For `tail`: let `k` be its value before the store, so that the producer wakes the consumer only
//! if it reads `head == k`. The consumer sleeps only if it has released all items that it saw, `h`
//! of them, and found `tail == h`. With the steps W and N of the [`wait`](crate::wait) module, take
//! the `notify` after the publish of item `h`. If its N2 comes before W2, the consumer sees the
//! item and does not sleep. Otherwise W2 comes before that N2, and before the N2 of every later
//! publish. The store of `head = h` comes before W2, so the producer reads `head == h` in all of
//! these. For item `h` this means that the ring was empty, so the producer wakes the consumer. For
//! later items it does not, which is correct because item `h` has caused the wake-up.
//!
//! The argument for a release is symmetric: the producer sleeps only if it found
//! `tail - head == capacity`.

mod claim;
mod consumer;
mod cursor;
mod error;
mod lease;
mod pace;
mod producer;
mod ring;
#[cfg(all(test, feature = "alloc", not(loom)))]
mod tests;

pub use claim::{Claim, ClaimChunk};
pub use consumer::Consumer;
pub use error::{ClaimError, NextError, PushError};
pub use lease::{Lease, LeaseChunk};
pub use producer::Producer;
pub use ring::{AnyRing, Ring, Slot};

use crate::storage::Storage;
use crate::wait::Wait;

impl<T, B: Storage<Slot = Slot<T>>, W: Wait> Ring<B, W> {
    /// Returns the producer of this ring, or `None` if it was taken already. Use [`Producer::new`]
    /// for other handles.
    ///
    /// # Panics
    ///
    /// If there are no slots.
    pub fn producer(&self) -> Option<Producer<&Self>> {
        Producer::new(self)
    }

    /// Returns the consumer of this ring, or `None` if it was taken already. Use [`Consumer::new`]
    /// for other handles.
    ///
    /// # Panics
    ///
    /// If there are no slots.
    pub fn consumer(&self) -> Option<Consumer<&Self>> {
        Consumer::new(self)
    }

    /// Returns both sides of this ring. A ring that was in use is restarted first: `&mut`
    /// guarantees that no side uses it any more.
    ///
    /// # Panics
    ///
    /// If there are no slots.
    pub fn split(&mut self) -> (Producer<&Self>, Consumer<&Self>) {
        self.renew();
        match (self.producer(), self.consumer()) {
            (Some(producer), Some(consumer)) => (producer, consumer),
            _ => unreachable!("no other code can take a side during `&mut self`"),
        }
    }

    /// Returns both sides of this ring, which lives until the second one of them is dropped.
    ///
    /// ```
    /// use slotline_core::spsc::Ring;
    ///
    /// let (mut producer, mut consumer) = Ring::boxed(4, |_| String::with_capacity(80)).into_split();
    /// std::thread::spawn(move || {
    ///     let mut line = producer.claim().expect("the consumer was not dropped");
    ///     line.push_str("written where it is read");
    ///     line.publish();
    /// });
    /// assert_eq!(*consumer.next()?, "written where it is read");
    /// # Ok::<(), slotline_core::spsc::NextError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// If there are no slots.
    #[cfg(feature = "alloc")]
    pub fn into_split(mut self) -> (Producer<alloc::sync::Arc<Self>>, Consumer<alloc::sync::Arc<Self>>) {
        self.renew();
        let ring = alloc::sync::Arc::new(self);
        match (Producer::new(alloc::sync::Arc::clone(&ring)), Consumer::new(ring)) {
            (Some(producer), Some(consumer)) => (producer, consumer),
            _ => unreachable!("no other code has the ring"),
        }
    }
}
