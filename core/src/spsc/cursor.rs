//! A side's private position: which item is next, in which slot, and how far it may go.

use core::ops::Range;

/// The position of one side, which only that side sees.
#[derive(Debug)]
pub(super) struct Cursor {
    /// The number of this side's next item. Any value, wrapping; equal to the side's shared position.
    number: usize,
    /// The number of the item in slot 0 of this lap, `0 .. capacity` behind `number`. That the slot is told by a
    /// difference, and not kept, saves a store per item, which counts while the stores to a slot wait for its line.
    lap: usize,
    /// The first number that this side can't have yet, `0 ..= capacity` ahead of `number`. May be late: the other
    /// side has perhaps moved on since.
    limit: usize,
    /// How many slots there are, in `1 ..= isize::MAX`. Never changes.
    capacity: usize,
}

impl Cursor {
    /// Starts at item `number` with nothing to have, as far as is known.
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

    /// How many items this side can have for all it knows, in `0 ..= capacity`.
    #[inline]
    pub(super) fn available(&self) -> usize {
        self.limit.wrapping_sub(self.number)
    }

    /// Notes news of the other side.
    #[inline]
    pub(super) fn set_limit(&mut self, limit: usize) {
        debug_assert!(limit.wrapping_sub(self.number) <= self.capacity);
        debug_assert!(limit.wrapping_sub(self.number) >= self.available());
        self.limit = limit;
    }

    /// Moves on by `n` items, at most [`available`](Self::available), and returns the new number.
    #[inline]
    pub(super) fn advance(&mut self, n: usize) -> usize {
        debug_assert!(n <= self.available());
        self.number = self.number.wrapping_add(n);
        if self.index() >= self.capacity {
            self.lap = self.lap.wrapping_add(self.capacity);
        }
        self.number
    }

    /// The slots of the next `n` items, `n <= capacity`: up to the last slot, and from slot 0 on.
    #[inline]
    pub(super) fn slots(&self, n: usize) -> (Range<usize>, Range<usize>) {
        debug_assert!(n <= self.capacity);
        let index = self.index();
        let first = n.min(self.capacity - index);
        (index..index + first, 0..n - first)
    }
}
