//! The ring itself: slots, the two positions, and who is there.

use core::cell::UnsafeCell;
use core::fmt;

use crossbeam_utils::CachePadded;

use super::{Consumer, Producer};
use crate::handle::Handle;
use crate::storage::Storage;
use crate::sync::{AtomicU32, AtomicUsize, Ordering, const_unless_modelled};
use crate::wait::{Spin, Wait};

/// The producer was taken.
pub(super) const PRODUCER_TAKEN: u32 = 1;
/// The producer was dropped: `tail` is final.
pub(super) const PRODUCER_GONE: u32 = 1 << 1;
/// The consumer was taken.
pub(super) const CONSUMER_TAKEN: u32 = 1 << 2;
/// The consumer was dropped.
pub(super) const CONSUMER_GONE: u32 = 1 << 3;
/// Somebody called [`Ring::close`].
pub(super) const CLOSED: u32 = 1 << 4;

/// A place for one item.
#[derive(Default)]
#[repr(transparent)]
pub struct Slot<T>(UnsafeCell<T>);

/// ```compile_fail,E0277
/// fn shared<T: Sync>() {}
/// shared::<slotline_core::spsc::Slot<std::rc::Rc<u8>>>();
/// ```
// SAFETY: a shared slot gives no access to its value but through a ring, which gives it to one thread at a time
// (I2, I3 of the module's proof). That is sending it to and fro, so `T: Send` is enough.
unsafe impl<T: Send> Sync for Slot<T> {}

impl<T> Slot<T> {
    /// A slot that starts with `value`.
    pub const fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// The value, while no ring has the slot.
    pub const fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }

    /// The value, taken out of the slot.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

impl<T> fmt::Debug for Slot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").finish_non_exhaustive()
    }
}

/// A single-producer single-consumer ring over the slots of `B`, whose sides wait by `W` (see the
/// [module](super)).
pub struct Ring<B, W = Spin> {
    /// How many items were published: written by the producer, read by the consumer when it runs dry. Any value,
    /// wrapping, `0 ..= capacity` ahead of `head`.
    pub(super) tail: CachePadded<AtomicUsize>,
    /// How many items were released: written by the consumer, read by the producer when it runs full. Any value,
    /// wrapping.
    pub(super) head: CachePadded<AtomicUsize>,
    /// Who was taken, who is gone, and whether the ring was closed: the bits above. Changes a handful of times, so
    /// both sides have its line at hand.
    pub(super) state: CachePadded<AtomicU32>,
    /// Where the consumer waits for items.
    pub(super) items: CachePadded<W>,
    /// Where the producer waits for space.
    pub(super) space: CachePadded<W>,
    /// The slots. They share no line with the fields above, all of which fill theirs.
    storage: B,
    /// Stands in for the slots' values where loom checks for races: slices can't be made of loom's cells.
    #[cfg(loom)]
    shadow: Shadow,
}

/// A cell per slot, in whose place loom takes note of accesses.
#[cfg(loom)]
struct Shadow(Vec<crate::sync::Cell<()>>);

// SAFETY: there is nothing in the cells, and to find accesses that race is what they are for.
#[cfg(loom)]
unsafe impl Sync for Shadow {}

impl<T, B: Storage<Slot = Slot<T>>> Ring<B> {
    const_unless_modelled! {
        /// An open, empty ring over `storage`, whose sides wait by [`Spin`].
        ///
        /// ```
        /// use slotline_core::spsc::{Ring, Slot};
        ///
        /// let mut slots = [1, 2, 3].map(Slot::new);
        /// let mut ring = Ring::new(&mut slots[..]);
        /// let (mut producer, mut consumer) = ring.split();
        /// *producer.try_claim()? += 10; // not published, so the next claim is the same slot again
        /// producer.try_claim()?.publish();
        /// assert_eq!(*consumer.try_next()?, 11);
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        pub fn new(storage: B) -> Self {
            Self::with_wait(storage, Spin, Spin)
        }
    }
}

#[cfg(feature = "alloc")]
impl<T> Ring<alloc::boxed::Box<[Slot<T>]>> {
    /// An open, empty ring of `capacity` slots on the heap, where slot `i` starts with `init(i)`.
    ///
    /// # Panics
    ///
    /// If `capacity` is 0.
    pub fn boxed(capacity: usize, init: impl FnMut(usize) -> T) -> Self {
        assert!(capacity > 0, "a ring needs at least one slot");
        Self::new((0..capacity).map(init).map(Slot::new).collect())
    }
}

impl<T, B: Storage<Slot = Slot<T>>, W: Wait> Ring<B, W> {
    const_unless_modelled! {
        /// An open, empty ring over `storage`, whose consumer waits by `items` and whose producer waits by `space`.
        pub fn with_wait(storage: B, items: W, space: W) -> Self {
            Self::starting_at(storage, items, space, 0)
        }
    }

    const_unless_modelled! {
        /// The same, but items are numbered from `start`, so that tests reach the wrap of the numbers.
        #[doc(hidden)]
        pub fn starting_at(storage: B, items: W, space: W, start: usize) -> Self {
            Self {
                tail: CachePadded::new(AtomicUsize::new(start)),
                head: CachePadded::new(AtomicUsize::new(start)),
                state: CachePadded::new(AtomicU32::new(0)),
                items: CachePadded::new(items),
                space: CachePadded::new(space),
                #[cfg(loom)]
                shadow: Shadow(storage.slots().iter().map(|_| crate::sync::Cell::new(())).collect()),
                storage,
            }
        }
    }

    /// How many slots there are.
    pub fn capacity(&self) -> usize {
        self.storage.slots().len()
    }

    /// The producer of this ring, or `None` if it was taken already ([`Producer::new`] for other handles).
    ///
    /// # Panics
    ///
    /// If there are no slots.
    pub fn producer(&self) -> Option<Producer<&Self>> {
        Producer::new(self)
    }

    /// The consumer of this ring, or `None` if it was taken already ([`Consumer::new`] for other handles).
    ///
    /// # Panics
    ///
    /// If there are no slots.
    pub fn consumer(&self) -> Option<Consumer<&Self>> {
        Consumer::new(self)
    }

    /// Both sides of this ring, which is restarted first if it was in use: `&mut` shows that nobody uses it any more.
    ///
    /// # Panics
    ///
    /// If there are no slots.
    pub fn split(&mut self) -> (Producer<&Self>, Consumer<&Self>) {
        self.renew();
        match (self.producer(), self.consumer()) {
            (Some(producer), Some(consumer)) => (producer, consumer),
            _ => unreachable!("nobody else can have taken a side during `&mut self`"),
        }
    }

    /// Both sides of this ring, which lives until the later one of them is dropped.
    ///
    /// ```
    /// use slotline_core::spsc::Ring;
    ///
    /// let (mut producer, mut consumer) = Ring::boxed(4, |_| String::with_capacity(80)).into_split();
    /// std::thread::spawn(move || {
    ///     let mut line = producer.claim().expect("the consumer is there");
    ///     line.push_str("written where it is read");
    ///     line.publish();
    /// });
    /// assert_eq!(*consumer.next()?, "written where it is read");
    /// # Ok::<(), slotline_core::spsc::NextError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// If there are no slots.
    #[cfg(feature = "alloc")]
    pub fn into_split(mut self) -> (Producer<alloc::sync::Arc<Self>>, Consumer<alloc::sync::Arc<Self>>) {
        self.renew();
        let ring = alloc::sync::Arc::new(self);
        match (Producer::new(alloc::sync::Arc::clone(&ring)), Consumer::new(ring)) {
            (Some(producer), Some(consumer)) => (producer, consumer),
            _ => unreachable!("nobody else has the ring"),
        }
    }

    /// Ends everything for both sides, from any thread: a side that waits gets `Closed` at once, one that doesn't after
    /// `capacity` items at the latest (see the [module](super)).
    ///
    /// What is claimed or leased at this moment stays so and can still be published or released.
    pub fn close(&self) {
        self.state.fetch_or(CLOSED, Ordering::Release);
        self.items.notify(|| true);
        self.space.notify(|| true);
    }

    /// Takes the side whose bit is `taken`, unless it was taken before.
    pub(super) fn take(&self, taken: u32) -> bool {
        assert!(self.capacity() > 0, "a ring needs at least one slot");
        // Slots without size can be more.
        assert!(isize::try_from(self.capacity()).is_ok(), "a ring has at most isize::MAX slots");
        self.state.fetch_or(taken, Ordering::Acquire) & taken == 0
    }

    /// Marks the side whose bit is `gone` as gone; `other` is the other side's.
    pub(super) fn leave(&self, gone: u32, other: u32) {
        if self.state.fetch_or(gone, Ordering::AcqRel) & other != 0 {
            // "Restart" in the module's proof.
            self.restart();
        } else {
            self.items.notify(|| true);
            self.space.notify(|| true);
        }
    }

    /// Restarts the ring if it was in use.
    fn renew(&mut self) {
        if self.state.load(Ordering::Relaxed) != 0 {
            self.restart();
        }
    }

    /// Makes the ring as new, but for the slots' values. The caller is alone with it.
    fn restart(&self) {
        self.tail.store(0, Ordering::Relaxed);
        self.head.store(0, Ordering::Relaxed);
        self.state.store(0, Ordering::Release);
    }

    /// The value in slot `index`, which is less than the capacity. Under loom this counts as a write to it.
    #[inline]
    pub(super) fn value(&self, index: usize) -> *mut T {
        let slots = self.storage.slots();
        debug_assert!(index < slots.len());
        #[cfg(loom)]
        self.shadow.0[index].write_ptr();
        // SAFETY: the callers' index comes from a `Cursor` over as many slots, and their number never changes.
        unsafe { slots.get_unchecked(index) }.0.get()
    }

    /// The values in the slots of `range`, which ends at the capacity or before. Under loom this counts as a write.
    #[inline]
    pub(super) fn values(&self, range: core::ops::Range<usize>) -> *mut [T] {
        #[cfg(loom)]
        self.shadow.0[range.clone()].iter().for_each(|cell| _ = cell.write_ptr());
        // Within bounds by the cursor; a check costs nothing beside a run of items. `Slot<T>` has the layout of `T`,
        // and as the pointer comes from a shared borrow of cells, it may be written through.
        let slots: &[Slot<T>] = &self.storage.slots()[range];
        core::ptr::slice_from_raw_parts_mut(slots.as_ptr().cast::<T>().cast_mut(), slots.len())
    }
}

impl<B, W> fmt::Debug for Ring<B, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring")
            .field("tail", &self.tail)
            .field("head", &self.head)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

mod sealed {
    /// Keeps [`AnyRing`](super::AnyRing) to this module.
    pub trait Sealed {}
    impl<B, W> Sealed for super::Ring<B, W> {}
}

/// Every [`Ring`], whatever its storage and way of waiting; so a side needs to name its [`Handle`] only.
pub trait AnyRing: sealed::Sealed {
    /// What a slot holds.
    type Item;
    /// Where the slots live.
    type Storage: Storage<Slot = Slot<Self::Item>>;
    /// How the sides wait.
    type Wait: Wait;

    #[doc(hidden)]
    fn get(&self) -> &Ring<Self::Storage, Self::Wait>;
}

impl<T, B: Storage<Slot = Slot<T>>, W: Wait> AnyRing for Ring<B, W> {
    type Item = T;
    type Storage = B;
    type Wait = W;

    #[inline]
    fn get(&self) -> &Self {
        self
    }
}

/// The ring behind a handle.
#[inline]
pub(super) fn ring<R: Handle<Target: AnyRing>>(
    handle: &R,
) -> &Ring<<R::Target as AnyRing>::Storage, <R::Target as AnyRing>::Wait> {
    handle.get()
}
