//! The ring: its slots, the two positions, and which sides were taken or dropped.

use core::cell::UnsafeCell;
use core::fmt;

use crossbeam_utils::CachePadded;

use crate::handle::Handle;
use crate::storage::Storage;
use crate::sync::{AtomicU32, AtomicUsize, Ordering, const_unless_modelled};
use crate::wait::{Backoff, Wait};

/// Bit of `state`: the producer was taken.
pub(super) const PRODUCER_TAKEN: u32 = 1;
/// Bit of `state`: the producer was dropped, so `tail` is final.
pub(super) const PRODUCER_GONE: u32 = 1 << 1;
/// Bit of `state`: the consumer was taken.
pub(super) const CONSUMER_TAKEN: u32 = 1 << 2;
/// Bit of `state`: the consumer was dropped.
pub(super) const CONSUMER_GONE: u32 = 1 << 3;
/// Bit of `state`: [`Ring::close`] was called.
pub(super) const CLOSED: u32 = 1 << 4;

/// A place for one item.
#[derive(Default)]
#[repr(transparent)]
pub struct Slot<T>(UnsafeCell<T>);

/// ```compile_fail,E0277
/// fn shared<T: Sync>() {}
/// shared::<slotline_core::spsc::Slot<std::rc::Rc<u8>>>();
/// ```
// SAFETY: a shared slot gives access to its value only through a ring, which gives it to one thread
// at a time (I2, I3 of the proof in `super`). This only sends the value between threads, so `T:
// Send` is enough.
unsafe impl<T: Send> Sync for Slot<T> {}

impl<T> Slot<T> {
    /// Creates a slot that starts with `value`.
    pub const fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// Returns the value, while no ring has the slot.
    pub const fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }

    /// Takes the value out of the slot.
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
/// [module documentation](super)).
pub struct Ring<B, W = Backoff> {
    /// The number of items that were published: written by the producer, read by the consumer when
    /// it runs out of items. Any value, wrapping, `0 ..= capacity` ahead of `head`.
    pub(super) tail: CachePadded<AtomicUsize>,
    /// The number of items that were released: written by the consumer, read by the producer when
    /// it runs out of slots. Any value, wrapping.
    pub(super) head: CachePadded<AtomicUsize>,
    /// The bits defined above: which sides were taken, which were dropped, and whether the ring was
    /// closed. It changes only a few times, so both sides usually have its line in their caches.
    pub(super) state: CachePadded<AtomicU32>,
    /// Where the consumer waits for items.
    pub(super) items: CachePadded<W>,
    /// Where the producer waits for space.
    pub(super) space: CachePadded<W>,
    /// The slots. They share no cache line with the fields above, each of which fills whole cache
    /// lines.
    storage: B,
    /// Represents the slots' values where loom checks for races, as slices cannot consist of loom's
    /// cells.
    #[cfg(loom)]
    shadow: Shadow,
}

/// A cell for each slot, on which loom records the accesses to the slot.
#[cfg(loom)]
struct Shadow(Vec<crate::sync::Cell<()>>);

// SAFETY: the cells hold no data; they exist so that loom finds racing accesses.
#[cfg(loom)]
unsafe impl Sync for Shadow {}

impl<T, B: Storage<Slot = Slot<T>>> Ring<B> {
    const_unless_modelled! {
        /// Creates an open, empty ring over `storage`, whose sides wait by [`Backoff`].
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
            Self::with_wait(storage, Backoff, Backoff)
        }
    }
}

#[cfg(feature = "alloc")]
impl<T> Ring<alloc::boxed::Box<[Slot<T>]>> {
    /// Creates an open, empty ring of `capacity` slots on the heap, where slot `i` starts with
    /// `init(i)`.
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
        /// Creates an open, empty ring over `storage`, whose consumer waits by `items` and whose
        /// producer waits by `space`.
        pub fn with_wait(storage: B, items: W, space: W) -> Self {
            Self::starting_at(storage, items, space, 0)
        }
    }

    const_unless_modelled! {
        /// Like [`with_wait`](Self::with_wait), but numbers the items from `start`, so that tests
        /// reach the wrap of the numbers.
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

    /// Returns the number of slots.
    pub fn capacity(&self) -> usize {
        self.storage.slots().len()
    }

    /// Closes the ring for both sides, from any thread. A side that waits gets `Closed` at once; a
    /// side that does not gets it after `capacity` items at the latest (see the
    /// [module documentation](super)).
    ///
    /// Existing claims and leases stay valid and can still be published or released.
    pub fn close(&self) {
        self.state.fetch_or(CLOSED, Ordering::Release);
        self.items.notify(|| true);
        self.space.notify(|| true);
    }

    /// Whether the ring is closed or its consumer was dropped, so that items published now will not
    /// be read.
    pub fn is_closed(&self) -> bool {
        self.state.load(Ordering::Relaxed) & (CLOSED | CONSUMER_GONE) != 0
    }

    /// Takes the side whose bit is `taken`. Returns `false` if that side was taken before.
    pub(super) fn take(&self, taken: u32) -> bool {
        assert!(self.capacity() > 0, "a ring needs at least one slot");
        // Only zero-sized slots can be more than `isize::MAX`.
        assert!(isize::try_from(self.capacity()).is_ok(), "a ring has at most isize::MAX slots");
        self.state.fetch_or(taken, Ordering::Acquire) & taken == 0
    }

    /// Marks the side whose bit is `gone` as dropped; `other` is the bit of the other side.
    pub(super) fn leave(&self, gone: u32, other: u32) {
        if self.state.fetch_or(gone, Ordering::AcqRel) & other != 0 {
            // See "Restart" in the proof in `super`.
            self.restart();
        } else {
            self.items.notify(|| true);
            self.space.notify(|| true);
        }
    }

    /// Restarts the ring if it was in use.
    pub(super) fn renew(&mut self) {
        if self.state.load(Ordering::Relaxed) != 0 {
            self.restart();
        }
    }

    /// Resets the ring to its initial state, except for the slots' values. The caller must have
    /// exclusive access to it.
    fn restart(&self) {
        self.tail.store(0, Ordering::Relaxed);
        self.head.store(0, Ordering::Relaxed);
        self.state.store(0, Ordering::Release);
    }

    /// Returns a pointer to the value in slot `index`, which must be less than the capacity. Under
    /// loom the call counts as a write to the value.
    #[inline]
    pub(super) fn value(&self, index: usize) -> *mut T {
        let slots = self.storage.slots();
        debug_assert!(index < slots.len());
        #[cfg(loom)]
        self.shadow.0[index].write_ptr();
        // SAFETY: the callers take the index from a `Cursor` over the same number of slots, and
        // that number never changes.
        unsafe { slots.get_unchecked(index) }.0.get()
    }

    /// Returns a pointer to the values in the slots of `range`, which must end at the capacity or
    /// before. Under loom this counts as a write.
    #[inline]
    pub(super) fn values(&self, range: core::ops::Range<usize>) -> *mut [T] {
        #[cfg(loom)]
        self.shadow.0[range.clone()].iter().for_each(|cell| _ = cell.write_ptr());
        // The slice operation checks the range; for several items at once, this check costs nothing
        // noticeable. `Slot<T>` has the layout of `T`, and as the pointer comes from a shared
        // borrow of cells, it may be written through.
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
    /// A private trait that prevents implementations of [`AnyRing`](super::AnyRing) outside of this
    /// module.
    pub trait Sealed {}
    impl<B, W> Sealed for super::Ring<B, W> {}
}

/// Every [`Ring`], with any storage and any way of waiting. With this trait, the type of a side
/// needs only one parameter, its [`Handle`].
pub trait AnyRing: sealed::Sealed {
    /// The type of a slot's value.
    type Item;
    /// The storage of the slots.
    type Storage: Storage<Slot = Slot<Self::Item>>;
    /// The way in which the sides wait.
    type Wait: Wait;

    #[doc(hidden)]
    fn get(&self) -> &Ring<Self::Storage, Self::Wait>;
}

/// The type of the items in the ring behind a handle.
pub(super) type Item<R> = <<R as core::ops::Deref>::Target as AnyRing>::Item;

impl<T, B: Storage<Slot = Slot<T>>, W: Wait> AnyRing for Ring<B, W> {
    type Item = T;
    type Storage = B;
    type Wait = W;

    #[inline]
    fn get(&self) -> &Self {
        self
    }
}

/// Returns the ring behind a handle.
#[inline]
pub(super) fn ring<R: Handle<Target: AnyRing>>(
    handle: &R,
) -> &Ring<<R::Target as AnyRing>::Storage, <R::Target as AnyRing>::Wait> {
    handle.get()
}
