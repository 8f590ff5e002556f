//! Handles, through which workers, producers, consumers and leases refer to their ring.

use core::ops::Deref;

/// A shared reference to a ring: `&Ring`, or `Arc<Ring>` with the feature `alloc`.
///
/// # Safety
///
/// A handle and all of its clones must dereference to the same ring, which must stay alive and must
/// not move until the last of them is dropped.
pub unsafe trait Handle: Deref<Target: Sized> + Clone {}

// SAFETY: copies of a shared reference point to the same value, which cannot move or be dropped
// while it is borrowed.
unsafe impl<T> Handle for &T {}

#[cfg(feature = "alloc")]
// SAFETY: clones of an `Arc` share one value, which stays alive and in place until the last of them
// is dropped.
unsafe impl<T> Handle for alloc::sync::Arc<T> {}
