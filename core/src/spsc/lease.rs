//! What the consumer holds and has not released yet.

use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};

use super::ring::{AnyRing, ring};
use super::{Consumer, Item};
use crate::handle::Handle;

/// The consumer's exclusive access to the next item, which it derefs to; dropped, it gives the slot back.
///
/// What is written through it (a buffer that is cleared, say) is what the producer finds there a lap later.
#[must_use = "a lease that is dropped gives its item back unread"]
pub struct Lease<'a, R: Handle<Target: AnyRing>> {
    consumer: &'a mut Consumer<R>,
    /// For `Send` and `Sync`, as of the `&mut` that this stands for. (It isn't one, as it would live too long: until
    /// after the slot is the producer's.)
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
    /// The consumer has at least one item available.
    #[inline]
    pub(super) fn new(consumer: &'a mut Consumer<R>) -> Self {
        Self { consumer, item: PhantomData }
    }

    /// The item's number, counted from 0 and wrapping: slot `number mod capacity`.
    #[inline]
    pub fn ticket(&self) -> usize {
        self.consumer.cursor.ticket()
    }

    /// Gives the slot back; the same as dropping the lease.
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
        // SAFETY: item `number` is the consumer's (I2) until this lease, the only one (I4), is dropped.
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

/// The consumer's exclusive access to a run of items; dropped, it gives all of them back.
///
/// The run is two slices, as it may go over the end of the ring: items in order in the first one, then in the second
/// one.
#[must_use = "a chunk that is dropped gives its items back unread"]
pub struct LeaseChunk<'a, R: Handle<Target: AnyRing>> {
    consumer: &'a mut Consumer<R>,
    /// How many items are given back at the end, `0 ..= available`.
    len: usize,
    /// As in [`Lease`].
    items: PhantomData<&'a mut [Item<R>]>,
}

impl<'a, R: Handle<Target: AnyRing>> LeaseChunk<'a, R> {
    /// The consumer has at least `len` items available.
    #[inline]
    pub(super) fn new(consumer: &'a mut Consumer<R>, len: usize) -> Self {
        Self { consumer, len, items: PhantomData }
    }

    /// The number of the first item, counted from 0 and wrapping; the others follow.
    #[inline]
    pub fn ticket(&self) -> usize {
        self.consumer.cursor.ticket()
    }

    /// How many items the run has.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the run has no items, as only one of at most 0 has.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The items.
    #[inline]
    pub fn as_slices(&self) -> (&[Item<R>], &[Item<R>]) {
        let (first, second) = self.values();
        // SAFETY: items `number .. number + len` are the consumer's (I2) until this chunk, the only one (I4), is
        // dropped.
        unsafe { (&*first, &*second) }
    }

    /// The items, to be changed.
    #[inline]
    pub fn as_mut_slices(&mut self) -> (&mut [Item<R>], &mut [Item<R>]) {
        let (first, second) = self.values();
        // SAFETY: as in `as_slices`; this borrow of the chunk is exclusive; and no slot is in both ranges.
        unsafe { (&mut *first, &mut *second) }
    }

    /// Gives the first `n` items back; the others come again with the next call.
    ///
    /// # Panics
    ///
    /// If there aren't as many (all are given back then, as in any drop).
    #[inline]
    pub fn release(mut self, n: usize) {
        assert!(n <= self.len, "can't release {n} items of {}", self.len);
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
