//! References to values that several threads use, on the heap or in memory that processes share.

use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

/// A reference to a shared value, together with the owner of its memory.
pub(crate) struct Placed<T: ?Sized> {
    value: NonNull<T>,
    owner: Arc<dyn Any + Send + Sync>,
}

// SAFETY: like an `Arc`, it gives out shared references to a value that its owner keeps alive.
unsafe impl<T: ?Sized + Send + Sync> Send for Placed<T> {}
// SAFETY: like an `Arc`, it gives out shared references to a value that its owner keeps alive.
unsafe impl<T: ?Sized + Send + Sync> Sync for Placed<T> {}

impl<T: ?Sized> Placed<T> {
    /// Makes a reference to `value`, whose memory `owner` keeps alive.
    ///
    /// # Safety
    ///
    /// The value must be valid for shared references for as long as the owner exists.
    pub(crate) unsafe fn new(value: NonNull<T>, owner: Arc<dyn Any + Send + Sync>) -> Self {
        Self { value, owner }
    }
}

impl<T: Send + Sync + 'static> From<T> for Placed<T> {
    fn from(value: T) -> Self {
        let owner = Arc::new(value);
        Self { value: NonNull::from(&*owner), owner }
    }
}

impl<T: Default + Send + Sync + 'static> Default for Placed<T> {
    fn default() -> Self {
        T::default().into()
    }
}

impl<T: Send + Sync + 'static> FromIterator<T> for Placed<[T]> {
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        let owner = Arc::new(values.into_iter().collect::<Vec<T>>());
        Self { value: NonNull::from(&owner[..]), owner }
    }
}

impl<T: ?Sized> Clone for Placed<T> {
    fn clone(&self) -> Self {
        Self { value: self.value, owner: self.owner.clone() }
    }
}

impl<T: ?Sized> Deref for Placed<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the owner keeps the value alive, which `new` requires and the conversions ensure.
        unsafe { self.value.as_ref() }
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Placed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
