//! The indices that a pass will read, for datasets that fetch their data far ahead.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::sampler::Order;

/// The indices that a pass will read, in order, as [`Dataset::begin_pass`](super::Dataset::begin_pass) receives them.
///
/// A clone shares the indices, and may be kept and read on any thread for as long as it is needed.
///
/// ```
/// use slotline::dataset::Upcoming;
///
/// let upcoming = Upcoming::new(4, |position| Some(10 * position));
/// assert_eq!((upcoming.positions(), upcoming.index(3)), (0..4, Some(30)));
/// ```
#[derive(Clone)]
pub struct Upcoming {
    positions: Range<usize>,
    index: Arc<dyn Fn(usize) -> Option<usize> + Send + Sync>,
}

impl Upcoming {
    /// Makes the indices of a pass of `len` positions. `index` returns the index at a position.
    pub fn new(len: usize, index: impl Fn(usize) -> Option<usize> + Send + Sync + 'static) -> Self {
        Self { positions: 0..len, index: Arc::new(index) }
    }

    /// Makes the indices at these positions of an order.
    pub(crate) fn of(order: Order, positions: Range<usize>) -> Self {
        Self { positions, index: Arc::new(move |position| order.get(position)) }
    }

    /// Returns the positions that the pass reads. They do not start at 0 if the pass is resumed.
    pub fn positions(&self) -> Range<usize> {
        self.positions.clone()
    }

    /// Returns the index of the sample at a position; `None` if the position is not in this pass,
    /// or its sample comes from another dataset (in a pass over several).
    pub fn index(&self, position: usize) -> Option<usize> {
        if self.positions.contains(&position) { (self.index)(position) } else { None }
    }

    /// Returns the same positions with other indices, for a dataset that reads from another one.
    /// `inner` converts an index to the index in the other dataset, or returns `None` if the sample
    /// is not there.
    pub fn map(&self, inner: impl Fn(usize) -> Option<usize> + Send + Sync + 'static) -> Self {
        let outer = self.index.clone();
        let index = move |position| outer(position).and_then(&inner);
        Self { positions: self.positions.clone(), index: Arc::new(index) }
    }
}

impl fmt::Debug for Upcoming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upcoming").field("positions", &self.positions).finish_non_exhaustive()
    }
}
