//! The private position of one side (producer or consumer): which item is next, in which slot, and
//! how far the side may go.

use core::ops::Range;

/// The position of one side, which only that side sees.
#[derive(Debug)]
pub(super) struct Cursor {
    /// The number of this side's next item. Any value, wrapping. It is equal to the position that
    /// the side shares with the other side.
    number: usize,
    /// The number of the item in slot 0 of this lap, `0 .. capacity` behind `number`. The slot is
    /// computed as a difference, which saves storing it for each item. One more store per item
    /// takes time while the stores to a slot wait for its cache line.
    lap: usize,
    /// The first number that this side cannot use yet, `0 ..= capacity` ahead of `number`. May be
    /// out of date: the other side may have advanced.
    limit: usize,
    /// The number of slots, in `1 ..= isize::MAX`. Never changes.
    capacity: usize,
}

impl Cursor {
    /// Creates a cursor at item `number`, with no items known to be available.
    pub(super) fn new(number: usize, capacity: usize) -> Self {
        Self { number, lap: number - number % capacity, limit: number, capacity }
    }

    #[inline]
    pub(super) fn ticket(&self) -> usize {
        self.number
    }

    #[inline]
    pub(super) fn index(&self) -> usize {
        self.number.wrapping_sub(self.lap)
    }

    #[inline]
    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns how many items are known to be available to this side, in `0 ..= capacity`.
    #[inline]
    pub(super) fn available(&self) -> usize {
        self.limit.wrapping_sub(self.number)
    }

    /// Sets the limit from the other side's position.
    #[inline]
    pub(super) fn set_limit(&mut self, limit: usize) {
        debug_assert!(limit.wrapping_sub(self.number) <= self.capacity);
        debug_assert!(limit.wrapping_sub(self.number) >= self.available());
        self.limit = limit;
    }

    /// Advances by `n` items, at most [`available`](Self::available), and returns the new number.
    #[inline]
    pub(super) fn advance(&mut self, n: usize) -> usize {
        debug_assert!(n <= self.available());
        self.number = self.number.wrapping_add(n);
        if self.index() >= self.capacity {
            self.lap = self.lap.wrapping_add(self.capacity);
        }
        self.number
    }

    /// Returns the slots of the next `n` items, `n <= capacity`: those up to the last slot, and
    /// those from slot 0 on.
    #[inline]
    pub(super) fn slots(&self, n: usize) -> (Range<usize>, Range<usize>) {
        debug_assert!(n <= self.capacity);
        let index = self.index();
        let first = n.min(self.capacity - index);
        (index..index + first, 0..n - first)
    }
}
