//! What the consumer has leased and not released yet: [`Lease`] and [`LeaseChunk`]. The safety
//! comments refer to the invariants I1 to I5 in the documentation of [`super`].

use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};

use super::Consumer;
use super::ring::{AnyRing, Item, ring};
use crate::handle::Handle;

/// The consumer's exclusive access to the next item. It dereferences to the item, and releases the
/// slot when it is dropped.
///
/// The producer gets the same value again a lap later, with what was written through this lease
/// (for example, a buffer that was cleared).
#[must_use = "dropping a lease releases its item unread"]
pub struct Lease<'a, R: Handle<Target: AnyRing>> {
    consumer: &'a mut Consumer<R>,
    /// Makes the lease `Send` and `Sync` as a `&mut` to the item would be. (It does not hold such a
    /// reference, which would live for too long: until after the slot belongs to the producer.)
    ///
    /// ```compile_fail,E0277
    /// use slotline_core::spsc::{Lease, Ring, Slot};
    ///
    /// fn shared<T: Sync>() {}
    /// shared::<Lease<'static, &'static Ring<[Slot<std::cell::Cell<u8>>; 1]>>>();
    /// ```
    item: PhantomData<&'a mut Item<R>>,
}

impl<'a, R: Handle<Target: AnyRing>> Lease<'a, R> {
    /// Creates a lease. The consumer must have at least one item available.
    #[inline]
    pub(super) fn new(consumer: &'a mut Consumer<R>) -> Self {
        Self { consumer, item: PhantomData }
    }

    /// Returns the item's number, counted from 0 and wrapping. Its slot is `number mod capacity`.
    #[inline]
    pub fn ticket(&self) -> usize {
        self.consumer.cursor.ticket()
    }

    /// Releases the slot; the same as dropping the lease.
    #[inline]
    pub fn release(self) {}

    #[inline]
    fn value(&self) -> *mut Item<R> {
        ring(&self.consumer.handle).value(self.consumer.cursor.index())
    }
}

impl<R: Handle<Target: AnyRing>> Deref for Lease<'_, R> {
    type Target = Item<R>;

    #[inline]
    fn deref(&self) -> &Item<R> {
        // SAFETY: item `number` belongs to the consumer (I2) until this lease, the only one (I4),
        // is dropped.
        unsafe { &*self.value() }
    }
}

impl<R: Handle<Target: AnyRing>> DerefMut for Lease<'_, R> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Item<R> {
        // SAFETY: as in `deref`, and this borrow of the lease is exclusive.
        unsafe { &mut *self.value() }
    }
}

impl<R: Handle<Target: AnyRing>> Drop for Lease<'_, R> {
    #[inline]
    fn drop(&mut self) {
        #[cfg(loom)]
        self.value();
        self.consumer.release(1);
    }
}

impl<R: Handle<Target: AnyRing>> fmt::Debug for Lease<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("number", &self.ticket()).finish_non_exhaustive()
    }
}

/// The consumer's exclusive access to several consecutive items. It releases all of them when it is
/// dropped.
///
/// The items are given as two slices, as they may wrap around the end of the ring: they are in
/// order in the first slice and then in the second one.
#[must_use = "dropping a chunk releases its items unread"]
pub struct LeaseChunk<'a, R: Handle<Target: AnyRing>> {
    consumer: &'a mut Consumer<R>,
    /// The number of items to release on drop, at most the cursor's `available`.
    len: usize,
    /// Makes the chunk `Send` and `Sync`; see the same field of [`Lease`].
    items: PhantomData<&'a mut [Item<R>]>,
}

impl<'a, R: Handle<Target: AnyRing>> LeaseChunk<'a, R> {
    /// Creates a chunk. The consumer must have at least `len` items available.
    #[inline]
    pub(super) fn new(consumer: &'a mut Consumer<R>, len: usize) -> Self {
        Self { consumer, len, items: PhantomData }
    }

    /// Returns the number of the first item, counted from 0 and wrapping; the others follow.
    #[inline]
    pub fn ticket(&self) -> usize {
        self.consumer.cursor.ticket()
    }

    /// Returns the number of items in the chunk.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the chunk has no items. This is the case only if 0 items were asked for.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the items.
    #[inline]
    pub fn as_slices(&self) -> (&[Item<R>], &[Item<R>]) {
        let (first, second) = self.values();
        // SAFETY: items `number .. number + len` belong to the consumer (I2) until this chunk, the
        // only one (I4), is dropped.
        unsafe { (&*first, &*second) }
    }

    /// Returns the items for writing.
    #[inline]
    pub fn as_mut_slices(&mut self) -> (&mut [Item<R>], &mut [Item<R>]) {
        let (first, second) = self.values();
        // SAFETY: as in `as_slices`; this borrow of the chunk is exclusive; and no slot is in both
        // ranges.
        unsafe { (&mut *first, &mut *second) }
    }

    /// Releases the first `n` items; the next call returns the others again.
    ///
    /// # Panics
    ///
    /// If the chunk has fewer than `n` items. (All of them are released then, as on any drop.)
    #[inline]
    pub fn release(mut self, n: usize) {
        assert!(n <= self.len, "cannot release {n} items of a chunk of {}", self.len);
        self.len = n;
    }

    #[inline]
    fn values(&self) -> (*mut [Item<R>], *mut [Item<R>]) {
        let ring = ring(&self.consumer.handle);
        let (first, second) = self.consumer.cursor.slots(self.len);
        (ring.values(first), ring.values(second))
    }
}

impl<R: Handle<Target: AnyRing>> Drop for LeaseChunk<'_, R> {
    #[inline]
    fn drop(&mut self) {
        if self.len > 0 {
            #[cfg(loom)]
            self.values();
            self.consumer.release(self.len);
        }
    }
}

impl<R: Handle<Target: AnyRing>> fmt::Debug for LeaseChunk<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseChunk").field("number", &self.ticket()).field("len", &self.len).finish_non_exhaustive()
    }
}
