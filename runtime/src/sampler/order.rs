//! The indices of a pass, by position.

use std::fmt;
use std::iter::FusedIterator;
use std::ops::Range;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use super::Cipher;
use crate::rng::IndexWord;

/// The indices of one pass, looked up by position.
///
/// Any number of threads can read an order through a shared reference. A lookup is one load from a
/// table, about 50 ns of arithmetic for a [`Cipher`], or a function call for a
/// [computed](Order::computed) order. When a pass ends, the order is given back to the sampler,
/// whose next pass reuses the memory.
///
/// ```
/// use slotline::sampler::Order;
///
/// let order = Order::from(vec![3u32, 0, 2]);
/// assert_eq!((order.len(), order.index(0), order.get(3)), (3, 3, None));
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub enum Order {
    /// Each position is its own index. Contains the number of positions.
    Range(usize),
    /// A table whose indices are below 2³².
    U32(Vec<u32>),
    /// A table of any indices, with twice the memory.
    U64(Vec<u64>),
    /// A permutation that is computed at each lookup, without a table.
    Cipher(Cipher),
    /// Indices that a function computes at each lookup; see [`Order::computed`].
    Computed(Computed),
}

impl Order {
    /// Makes an order of `len` positions whose indices `index` computes, on the threads that look
    /// them up. `index` is called with positions below `len`, and must always return the same index
    /// for the same position.
    ///
    /// `memory` is the size of the heap memory that the function owns, in bytes.
    ///
    /// ```
    /// use slotline::sampler::Order;
    ///
    /// let backwards = Order::computed(4, 0, |position| 3 - position);
    /// assert!(backwards.iter().eq([3, 2, 1, 0]));
    /// ```
    pub fn computed(len: usize, memory: usize, index: impl Fn(usize) -> usize + Send + Sync + 'static) -> Self {
        Self::Computed(Computed { len, memory, index: Arc::new(index) })
    }

    /// Returns the number of positions.
    pub fn len(&self) -> usize {
        match self {
            Self::Range(len) => *len,
            Self::U32(table) => table.len(),
            Self::U64(table) => table.len(),
            Self::Cipher(cipher) => cipher.len(),
            Self::Computed(computed) => computed.len,
        }
    }

    /// Returns whether there are no positions.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the index at `position`.
    ///
    /// # Panics
    ///
    /// If `position` is not below [`len`](Self::len). See also [`get`](Self::get).
    #[inline]
    pub fn index(&self, position: usize) -> usize {
        match self {
            Self::Range(len) => {
                assert!(position < *len, "position {position} is out of range for an order of {len}");
                position
            }
            Self::U32(table) => table[position].index(),
            Self::U64(table) => table[position].index(),
            Self::Cipher(cipher) => cipher.index(position),
            Self::Computed(computed) => computed.index(position),
        }
    }

    /// Returns the index at `position`, or `None` if `position` is not below [`len`](Self::len).
    #[inline]
    pub fn get(&self, position: usize) -> Option<usize> {
        (position < self.len()).then(|| self.index(position))
    }

    /// Returns the size of the heap memory, in bytes, including unused capacity.
    pub fn memory(&self) -> usize {
        match self {
            Self::Range(_) | Self::Cipher(_) => 0,
            Self::Computed(computed) => computed.memory,
            Self::U32(table) => table.capacity() * size_of::<u32>(),
            Self::U64(table) => table.capacity() * size_of::<u64>(),
        }
    }

    /// Replaces this order with an empty table of `u32`, and returns the table, to which indices can
    /// be added. If the order already was such a table, its memory is reused.
    pub fn u32_table(&mut self) -> &mut Vec<u32> {
        if !matches!(self, Self::U32(_)) {
            *self = Self::U32(Vec::new());
        }
        let Self::U32(table) = self else { unreachable!("set above") };
        table.clear();
        table
    }

    /// Replaces this order with an empty table of `u64`, and returns the table, to which indices can
    /// be added. If the order already was such a table, its memory is reused.
    pub fn u64_table(&mut self) -> &mut Vec<u64> {
        if !matches!(self, Self::U64(_)) {
            *self = Self::U64(Vec::new());
        }
        let Self::U64(table) = self else { unreachable!("set above") };
        table.clear();
        table
    }

    /// Returns an iterator over the indices, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = usize> + DoubleEndedIterator + FusedIterator + '_ {
        (0..self.len()).map(|position| self.index(position))
    }
}

/// A function from positions to indices. Made by [`Order::computed`]. A clone shares the function.
#[derive(Clone)]
pub struct Computed {
    len: usize,
    memory: usize,
    index: Arc<dyn Fn(usize) -> usize + Send + Sync>,
}

impl Computed {
    /// Returns the index at `position`.
    ///
    /// # Panics
    ///
    /// If `position` is not below the number of positions.
    pub fn index(&self, position: usize) -> usize {
        assert!(position < self.len, "position {position} is out of range for an order of {}", self.len);
        (self.index)(position)
    }
}

// The function must return the same index for a position even after a panic.
impl UnwindSafe for Computed {}
impl RefUnwindSafe for Computed {}

impl fmt::Debug for Computed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Computed").field("len", &self.len).field("memory", &self.memory).finish_non_exhaustive()
    }
}

impl Default for Order {
    fn default() -> Self {
        Self::Range(0)
    }
}

impl From<Vec<u32>> for Order {
    fn from(indices: Vec<u32>) -> Self {
        Self::U32(indices)
    }
}

impl From<Vec<u64>> for Order {
    fn from(indices: Vec<u64>) -> Self {
        Self::U64(indices)
    }
}

impl From<Cipher> for Order {
    fn from(cipher: Cipher) -> Self {
        Self::Cipher(cipher)
    }
}

/// Shows the kind, the length and only the first few indices, as an order may have billions.
impl fmt::Debug for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self {
            Self::Range(_) => "Range",
            Self::U32(_) => "U32",
            Self::U64(_) => "U64",
            Self::Cipher(_) => "Cipher",
            Self::Computed(_) => "Computed",
        };
        let first: Vec<usize> = self.iter().take(8).collect();
        f.debug_struct(kind).field("len", &self.len()).field("first", &first).finish()
    }
}

impl IntoIterator for Order {
    type Item = usize;
    type IntoIter = Indices;

    fn into_iter(self) -> Indices {
        Indices { positions: 0..self.len(), order: self }
    }
}

/// An iterator over the indices of an [`Order`], which it owns.
#[derive(Clone, Debug)]
pub struct Indices {
    order: Order,
    positions: Range<usize>,
}

impl Iterator for Indices {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        self.positions.next().map(|position| self.order.index(position))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.positions.size_hint()
    }

    fn nth(&mut self, n: usize) -> Option<usize> {
        self.positions.nth(n).map(|position| self.order.index(position))
    }
}

impl DoubleEndedIterator for Indices {
    fn next_back(&mut self) -> Option<usize> {
        self.positions.next_back().map(|position| self.order.index(position))
    }
}

impl ExactSizeIterator for Indices {}
impl FusedIterator for Indices {}

#[cfg(test)]
mod tests {
    use super::*;

    fn orders() -> [Order; 4] {
        [Order::Range(4), vec![0u32, 1, 2, 3].into(), vec![0u64, 1, 2, 3].into(), Order::computed(4, 0, |at| at)]
    }

    #[test]
    fn all_kinds_behave_alike() {
        for order in orders() {
            assert_eq!((order.len(), order.is_empty(), order.index(3), order.get(4)), (4, false, 3, None));
            assert!(order.iter().eq(0..4) && order.iter().rev().eq((0..4).rev()));
            assert!(order.clone().into_iter().skip(1).rev().eq([3, 2, 1]), "{order:?}");
        }
        assert!(Order::default().is_empty());
    }

    #[test]
    fn a_position_beyond_the_end_panics_for_every_kind() {
        for order in orders().into_iter().chain([Order::from(Cipher::new(4, 0, 0))]) {
            assert!(std::panic::catch_unwind(|| order.index(4)).is_err(), "{order:?}");
        }
    }

    #[test]
    fn a_table_of_the_same_width_keeps_its_memory() {
        let mut order = Order::Range(3);
        order.u32_table().extend(0..100);
        let (table, memory) = (order.u32_table().as_ptr(), order.memory());
        assert!(memory >= 400 && order.is_empty());
        assert_eq!((order.u32_table().as_ptr(), order.memory()), (table, memory));
        order.u64_table().push(u64::from(u32::MAX) + 1);
        assert_eq!(order.len(), 1);
    }

    #[test]
    fn a_cipher_is_an_order_like_any_other() {
        let order = Order::from(Cipher::new(100, 1, 2));
        assert_eq!((order.len(), order.memory(), order.get(100)), (100, 0, None));
        let indices: Vec<usize> = order.iter().collect();
        assert!(order.clone().into_iter().eq(indices.iter().copied()));
        assert!(order.iter().rev().eq(indices.iter().rev().copied()));
        let mut sorted = indices;
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..100));
        assert!(size_of::<Order>() <= 48, "an order is small");
    }

    #[test]
    fn debug_shows_only_the_start() {
        assert_eq!(format!("{:?}", Order::Range(100)), "Range { len: 100, first: [0, 1, 2, 3, 4, 5, 6, 7] }");
    }
}
