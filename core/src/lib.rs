//! Lock-free rings whose slot index is the task index.
//!
//! Workers claim numbered tickets, write each result straight into the slot that the ticket's number points to, and
//! publish it; one consumer takes the slots in ticket order. Results finished out of order come out in order, with no
//! reorder map, no allocation and no copy.
//!
//! - [`ordered`]: many workers, one consumer; results come in ticket order or, with
//!   [`Delivery::Arrival`](ordered::Delivery::Arrival), in order of arrival.
//! - `robust`: many workers that may vanish at any instruction, in memory that processes share; where there are 64-bit
//!   atomics.
//! - [`spsc`]: one producer, one consumer, single items and chunks of items.
//! - [`loan`]: lends a thing and gets it back without a reference count.
//! - [`wait`]: how a side waits: by spinning, by backing off, or parked on a futex that the caller provides.
//!
//! The crate is `no_std` and needs no allocator. Slots live inline (so that a ring can be a `static`), in borrowed
//! memory, or, with the feature `alloc`, on the heap.
#![cfg_attr(not(any(loom, shuttle, delays, test)), no_std)]

#[cfg(feature = "alloc")]
extern crate alloc;

pub mod handle;
pub mod loan;
pub mod ordered;
#[cfg(target_has_atomic = "64")]
pub mod robust;
pub mod spsc;
pub mod storage;
#[cfg(not(any(loom, shuttle, delays)))]
mod sync;
#[cfg(any(loom, shuttle, delays))]
#[doc(hidden)]
pub mod sync;
pub mod wait;
