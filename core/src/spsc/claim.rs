//! What the producer has claimed and not published yet.

use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};

use super::ring::{AnyRing, ring};
use super::{Item, Producer};
use crate::handle::Handle;

/// The producer's exclusive access to the next free slot, which it derefs to.
///
/// The value is what the consumer left there a lap ago, or the slot's first one. Dropped without
/// [`publish`](Self::publish), the claim is void: the slot keeps what was written, and the next claim gets it again.
#[must_use = "a claim that is dropped is not published"]
pub struct Claim<'a, R: Handle<Target: AnyRing>> {
    producer: &'a mut Producer<R>,
    /// For `Send` and `Sync`, as of the `&mut` that this stands for. (It isn't one, as it would live too long: until
    /// after the slot is the consumer's.)
    item: PhantomData<&'a mut Item<R>>,
}

impl<'a, R: Handle<Target: AnyRing>> Claim<'a, R> {
    /// The producer has at least one slot available.
    #[inline]
    pub(super) fn new(producer: &'a mut Producer<R>) -> Self {
        Self { producer, item: PhantomData }
    }

    /// The item's number, counted from 0 and wrapping: slot `number mod capacity`.
    #[inline]
    pub fn ticket(&self) -> usize {
        self.producer.cursor.ticket()
    }

    /// Gives the slot to the consumer as the next item.
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
        // SAFETY: item `number` is the producer's (I2) until `publish` takes this claim, which is the only one (I4).
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

/// The producer's exclusive access to a run of free slots.
///
/// The run is two slices, as it may go over the end of the ring: items in order in the first one, then in the second
/// one. Dropped without being published, it is void, as a [`Claim`] is.
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
    /// How many items, `0 ..= available`.
    len: usize,
    /// As in [`Claim`].
    items: PhantomData<&'a mut [Item<R>]>,
}

impl<'a, R: Handle<Target: AnyRing>> ClaimChunk<'a, R> {
    /// The producer has at least `len` slots available.
    #[inline]
    pub(super) fn new(producer: &'a mut Producer<R>, len: usize) -> Self {
        Self { producer, len, items: PhantomData }
    }

    /// The number of the first item, counted from 0 and wrapping; the others follow.
    #[inline]
    pub fn ticket(&self) -> usize {
        self.producer.cursor.ticket()
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
        // SAFETY: items `number .. number + len` are the producer's (I2) until the publish that takes this chunk, which
        // is the only one (I4).
        unsafe { (&*first, &*second) }
    }

    /// The items, to be written.
    #[inline]
    pub fn as_mut_slices(&mut self) -> (&mut [Item<R>], &mut [Item<R>]) {
        let (first, second) = self.values();
        // SAFETY: as in `as_slices`; this borrow of the chunk is exclusive; and no slot is in both ranges.
        unsafe { (&mut *first, &mut *second) }
    }

    /// Gives the first `n` items to the consumer; the other slots stay the producer's.
    ///
    /// # Panics
    ///
    /// If there aren't as many.
    #[inline]
    pub fn publish(self, n: usize) {
        assert!(n <= self.len, "can't publish {n} items of {}", self.len);
        #[cfg(loom)]
        self.values();
        if n > 0 {
            self.producer.publish(n);
        }
    }

    /// Gives all items to the consumer.
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
