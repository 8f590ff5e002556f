//! A ring from one producer to one consumer, whose slots are written and read in place.
//!
//! Every slot holds a value from the start, and items are made by changing it: a [`Claim`] or [`ClaimChunk`] is the
//! producer's `&mut` to the next free slots, a [`Lease`] or [`LeaseChunk`] the consumer's to the next published
//! ones. Nothing is moved in or out, so what a value owns (a buffer, say) is there to be used again a lap later.
//!
//! Items are numbered from 0, and item `k` lives in slot `k mod capacity`. (Numbers are `usize` and wrap. After the
//! wrap the slots are still taken in turn, but `mod` tells which only for a capacity that is a power of two.)
//!
//! ```
//! use slotline_core::spsc::{NextError, Ring, Slot};
//!
//! static RING: Ring<[Slot<[u8; 16]>; 3]> = Ring::new([const { Slot::new([0; 16]) }; 3]);
//!
//! let mut producer = RING.producer().expect("nobody has taken it yet");
//! let mut consumer = RING.consumer().expect("nobody has taken it yet");
//! std::thread::scope(|s| {
//!     s.spawn(move || {
//!         for i in 0..100 {
//!             let mut slot = producer.claim().expect("the consumer is there");
//!             slot.fill(i);
//!             slot.publish();
//!         }
//!     });
//!     for i in 0..100 {
//!         let item = consumer.next().expect("a hundred items");
//!         assert_eq!((item.ticket(), *item), (usize::from(i), [i; 16]));
//!     }
//!     assert_eq!(consumer.next().unwrap_err(), NextError::Ended);
//! });
//! ```
//!
//! # Waiting
//!
//! What a side knows of the other one's position it uses up before it looks again, so in a stream of items the two move
//! few cache lines between them. A side that waits for single items in such a stream even stays away for a moment, up
//! to a microsecond or two, when it has caught up, to find many at once then. One that waits for items that come one by
//! one does not, and neither do `try_` forms and chunks.
//!
//! # The end
//!
//! | What happens | The producer gets | The consumer gets |
//! |---|---|---|
//! | the producer is dropped, or [finishes](Producer::finish) | | all that was published, then [`NextError::Ended`] |
//! | the consumer is dropped | [`ClaimError::Closed`] | |
//! | anybody calls [`Ring::close`] | [`ClaimError::Closed`] | [`NextError::Closed`], also if items are left |
//!
//! A side that waits is woken. One that doesn't is told when it next looks at the other one's position: it may first
//! use up the slots or items that it knew of, at most `capacity`. (So the hot path needs no look at a flag.) Who gets one
//! of these errors sees what was written before what brought it about.
//!
//! Once both sides were taken and dropped, the ring is open and empty again, counts from 0, and both sides can be
//! taken anew; before that, a side that was dropped can't be taken again. The values in the slots stay as they were
//! left. A side that was leaked (`mem::forget`) stays taken; [`Ring::split`] helps where there is `&mut`. A leaked
//! claim, lease or chunk is one that never was: its slots come again at the next call.
//!
//! # Why it is sound
//!
//! `tail` counts the items that were published, `head` those that were released. Both go up, wrapping; only the
//! producer writes `tail`, only the consumer `head`, each keeping a private copy in its `Cursor` along with the slot
//! that goes with it. With all differences taken modulo 2^bits (the capacity fits in a `usize`, so they are exact):
//!
//! - **I1** `0 <= tail - head <= capacity`, whatever mix of old values of the two a side sees: a side knows its own
//!   position exactly and the other's perhaps late. The producer goes up to `limit = head + capacity`, the consumer
//!   up to `limit = tail`, and a late value only makes that limit lower.
//! - **I2** Items `head .. tail` belong to the consumer, items `tail .. head + capacity` (a lap later in the same
//!   slots) to the producer. The ranges are at most `capacity` long together, so no slot is in both.
//! - **I3** A slot goes over to the consumer by the store of `tail` (Release), which the consumer loads (Acquire)
//!   before it touches the slot; and back by the store of `head` (Release), loaded (Acquire) by the producer. So all
//!   accesses of one owner happen before those of the next.
//! - **I4** There is at most one [`Producer`] and one [`Consumer`]: a bit each in `state`, set once by `fetch_or`.
//!   Within a side, claims, leases and chunks borrow it mutably, so there is one at a time.
//! - **I5** Both sides walk the slots in turn from the same start: a side takes its start from its own position,
//!   which can't have moved since the ring was made or restarted.
//!
//! **Ended** needs care: the producer stores its last `tail`, then sets its GONE bit (Release). The consumer loads
//! `state` (Acquire) *before* `tail`; if the bit was set, that `tail` is the last one.
//!
//! **Restart**: each side sets its GONE bit by `fetch_or` (AcqRel) when it is dropped. The one who finds the other's
//! bit set comes after everything the other did; as a side that is gone can't be taken, it is alone with the ring. It
//! sets the positions back and then clears `state` (Release), which the next `fetch_or` (Acquire) of a taker sees.
//!
//! **No lost wake-up**: see [`wait`](crate::wait) for the event count. Both sides' conditions change only by a store
//! of a position or of a bit in `state`, and `notify` follows each. After a position's store the wake-up is declined
//! unless the ring was empty (for `tail`) or full (for `head`) just before it. For `tail`, `k` before the store: the
//! consumer sleeps only if it has released all it saw, `h` items, and found `tail == h`. With W and N as in that
//! module, take the notify of the publish of item `h`. If its N2 comes before W2, the consumer sees the item and does
//! not sleep. Otherwise W2 comes before that N2, and before the N2 of every later publish; the store of `head = h`
//! comes before W2, so the producer reads `head == h` in all of these. For item `h` that is the ring found empty, and
//! it wakes; for later ones it declines, which is right as item `h` did the waking. Release is the mirror image:
//! the producer sleeps only if it found `tail - head == capacity`.

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

/// What the slots behind a handle hold.
type Item<R> = <<R as core::ops::Deref>::Target as AnyRing>::Item;
