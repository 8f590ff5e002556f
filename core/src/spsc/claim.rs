//! What the producer has claimed and not published yet: [`Claim`] and [`ClaimChunk`]. The safety
//! comments refer to the invariants I1 to I5 in the documentation of [`super`].

use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};

use super::Producer;
use super::ring::{AnyRing, Item, ring};
use crate::handle::Handle;

/// The producer's exclusive access to the next free slot. It dereferences to the slot's value.
///
/// The value is the one that the consumer released a lap (`capacity` items) ago, or the slot's
/// initial value. If a claim is dropped without [`publish`](Self::publish), nothing is published:
/// the slot keeps what was written, and the next claim returns it again.
#[must_use = "a claim that is dropped is not published"]
pub struct Claim<'a, R: Handle<Target: AnyRing>> {
    producer: &'a mut Producer<R>,
    /// Makes the claim `Send` and `Sync` as a `&mut` to the item would be. (It does not hold such a
    /// reference, which would live for too long: until after the slot belongs to the consumer.)
    item: PhantomData<&'a mut Item<R>>,
}

impl<'a, R: Handle<Target: AnyRing>> Claim<'a, R> {
    /// Creates a claim. The producer must have at least one slot available.
    #[inline]
    pub(super) fn new(producer: &'a mut Producer<R>) -> Self {
        Self { producer, item: PhantomData }
    }

    /// Returns the item's number, counted from 0 and wrapping. Its slot is `number mod capacity`.
    #[inline]
    pub fn ticket(&self) -> usize {
        self.producer.cursor.ticket()
    }

    /// Publishes the slot as the next item for the consumer.
    #[inline]
    pub fn publish(self) {
        #[cfg(loom)]
        self.value();
        self.producer.publish(1);
    }

    #[inline]
    fn value(&self) -> *mut Item<R> {
        ring(&self.producer.handle).value(self.producer.cursor.index())
    }
}

impl<R: Handle<Target: AnyRing>> Deref for Claim<'_, R> {
    type Target = Item<R>;

    #[inline]
    fn deref(&self) -> &Item<R> {
        // SAFETY: item `number` belongs to the producer (I2) until `publish` consumes this claim,
        // which is the only one (I4).
        unsafe { &*self.value() }
    }
}

impl<R: Handle<Target: AnyRing>> DerefMut for Claim<'_, R> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Item<R> {
        // SAFETY: as in `deref`, and this borrow of the claim is exclusive.
        unsafe { &mut *self.value() }
    }
}

impl<R: Handle<Target: AnyRing>> fmt::Debug for Claim<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim").field("number", &self.ticket()).finish_non_exhaustive()
    }
}

/// The producer's exclusive access to several consecutive free slots.
///
/// The slots are given as two slices, as they may wrap around the end of the ring: the items are in
/// order in the first slice and then in the second one. If the chunk is dropped without being
/// published, nothing is published, as with a [`Claim`].
///
/// ```
/// use slotline_core::spsc::{Ring, Slot};
///
/// let mut ring = Ring::new([const { Slot::new(0) }; 4]);
/// let (mut producer, mut consumer) = ring.split();
/// let mut chunk = producer.try_claim_chunk(3)?;
/// let (first, second) = chunk.as_mut_slices();
/// first.iter_mut().chain(second).zip(1..).for_each(|(slot, i)| *slot = i);
/// chunk.publish(2);
///
/// let chunk = consumer.try_chunk(10)?;
/// assert_eq!(chunk.as_slices(), (&[1, 2][..], &[][..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a chunk that is dropped is not published"]
pub struct ClaimChunk<'a, R: Handle<Target: AnyRing>> {
    producer: &'a mut Producer<R>,
    /// The number of items, in `0 ..= available`.
    len: usize,
    /// Makes the chunk `Send` and `Sync`; see the same field of [`Claim`].
    items: PhantomData<&'a mut [Item<R>]>,
}

impl<'a, R: Handle<Target: AnyRing>> ClaimChunk<'a, R> {
    /// Creates a chunk. The producer must have at least `len` slots available.
    #[inline]
    pub(super) fn new(producer: &'a mut Producer<R>, len: usize) -> Self {
        Self { producer, len, items: PhantomData }
    }

    /// Returns the number of the first item, counted from 0 and wrapping; the others follow.
    #[inline]
    pub fn ticket(&self) -> usize {
        self.producer.cursor.ticket()
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
        // SAFETY: items `number .. number + len` belong to the producer (I2) until `publish`
        // consumes this chunk, which is the only one (I4).
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

    /// Publishes the first `n` items; the other slots stay with the producer.
    ///
    /// # Panics
    ///
    /// If the chunk has fewer than `n` items.
    #[inline]
    pub fn publish(self, n: usize) {
        assert!(n <= self.len, "cannot publish {n} items of a chunk of {}", self.len);
        #[cfg(loom)]
        self.values();
        if n > 0 {
            self.producer.publish(n);
        }
    }

    /// Publishes all items.
    #[inline]
    pub fn publish_all(self) {
        let len = self.len;
        self.publish(len);
    }

    #[inline]
    fn values(&self) -> (*mut [Item<R>], *mut [Item<R>]) {
        let ring = ring(&self.producer.handle);
        let (first, second) = self.producer.cursor.slots(self.len);
        (ring.values(first), ring.values(second))
    }
}

impl<R: Handle<Target: AnyRing>> fmt::Debug for ClaimChunk<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClaimChunk").field("number", &self.ticket()).field("len", &self.len).finish_non_exhaustive()
    }
}
