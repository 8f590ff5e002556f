//! How the ends of a ring hold on to it.

use core::ops::Deref;

/// A shared hold on a ring: `&Ring`, or `Arc<Ring>` with the feature `alloc`.
///
/// # Safety
///
/// A handle and all its clones must lead to the same ring, which stays alive and in place until the last one is
/// dropped.
pub unsafe trait Handle: Deref<Target: Sized> + Clone {}

// SAFETY: a shared reference is Copy, and what it points to can't move or end while it is there.
unsafe impl<T> Handle for &T {}

#[cfg(feature = "alloc")]
// SAFETY: clones of an Arc share one value, which lives as long as any of them.
unsafe impl<T> Handle for alloc::sync::Arc<T> {}
