#![doc = include_str!("../README.md")]
//!
//! # Waiting
//!
//! The ring above waits by [`Backoff`](wait::Backoff): a thread spins for a moment, and then yields
//! its core each time it finds nothing. Where waits are long, threads should sleep, by
//! [`Park`](wait::Park). A wait may have a deadline.
//!
#![cfg_attr(feature = "std", doc = "```")]
#![cfg_attr(not(feature = "std"), doc = "```ignore")]
//! use std::time::{Duration, Instant};
//!
//! use slotline_core::ordered::{Config, NextError, Ring, Slot};
//! use slotline_core::wait::{Park, SystemFutex};
//!
//! let park = || Park::new(SystemFutex::new());
//! let ring = Ring::inline_with_wait([const { Slot::new(0) }; 4], Config::new(), park(), park());
//! let (worker, mut consumer) = (ring.worker(), ring.consumer().expect("the consumer was not taken before"));
//!
//! let soon = Instant::now() + Duration::from_millis(1);
//! assert_eq!(consumer.next_until(&soon).unwrap_err(), NextError::Empty);
//!
//! std::thread::scope(|scope| {
//!     scope.spawn(|| worker.claim(1).expect("a slot is free").publish());
//!     assert_eq!(consumer.next().expect("the worker publishes it").ticket(), 0);
//! });
//! ```
//!
//! # Features
//!
//! - `std` (default; includes `alloc`): [`Backoff`](wait::Backoff) yields, [`Park`](wait::Park)
//!   sleeps by `SystemFutex` (between processes on Linux by `SharedFutex`), and an `Instant` is a
//!   [`Deadline`](wait::Deadline).
//! - `alloc`: slots on the heap, and handles that are an `Arc`.
//!
//! Without features the crate is `no_std` and needs no allocator. Slots are then stored inline, so
//! that a ring can be a `static` as in the first example, or in borrowed memory. Threads cannot
//! yield or sleep, so waits spin, unless you implement [`Futex`](wait::Futex) for your system.
//!
//! Programs that use the rings can be tested under random schedules and delays, and fuzzed: see [the
//! book](https://github.com/slotline/slotline/blob/main/docs/src/checking.md).
#![cfg_attr(not(any(feature = "std", loom, shuttle, delays, test)), no_std)]

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

/// The examples of the book about testing programs that use the rings. `proof/shuttle` and
/// `proof/stress` run them.
#[cfg(all(doctest, any(shuttle, delays)))]
#[doc = include_str!("../../docs/src/checking.md")]
mod checking {}
