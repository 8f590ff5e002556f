//! Information about the current worker.

use std::cell::Cell;
use std::ops::Range;

crate::sync::thread_local! {
    static CURRENT: Cell<Option<WorkerInfo>> = const { Cell::new(None) };
}

/// One worker of a loader: its number, the number of workers, and its seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerInfo {
    id: usize,
    num_workers: usize,
    seed: u64,
}

impl WorkerInfo {
    pub(crate) fn new(id: usize, num_workers: usize, base_seed: u64) -> Self {
        Self { id, num_workers, seed: base_seed.wrapping_add(id as u64) }
    }

    /// Returns the worker's number, from 0.
    pub fn id(&self) -> usize {
        self.id
    }

    /// Returns the number of workers that the loader has.
    pub fn num_workers(&self) -> usize {
        self.num_workers
    }

    /// Returns the worker's seed, which is the base seed of the pass plus the worker's number.
    ///
    /// Use it for random numbers that must differ between workers. For the random numbers of a
    /// sample use [`Context::rng`](super::Context::rng), which does not depend on the worker that
    /// reads it.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the range of items that this worker reads, out of `len` items. A range has `len /
    /// num_workers` items, rounded up; if `len` is not a multiple of `num_workers`, the last workers
    /// get fewer items or none.
    ///
    /// ```
    /// use slotline::WorkerInfo;
    ///
    /// /// Which of ten lines to read here.
    /// fn lines(worker: Option<WorkerInfo>) -> std::ops::Range<usize> {
    ///     worker.map_or(0..10, |worker| worker.share(10))
    /// }
    /// # assert_eq!(lines(None), 0..10);
    /// ```
    ///
    /// If the number of items is unknown, each worker can take every `num_workers`-th item:
    ///
    /// ```
    /// use slotline::WorkerInfo;
    ///
    /// fn mine<T>(all: impl Iterator<Item = T>, worker: Option<WorkerInfo>) -> impl Iterator<Item = T> {
    ///     let (id, num_workers) = worker.map_or((0, 1), |worker| (worker.id(), worker.num_workers()));
    ///     all.skip(id).step_by(num_workers)
    /// }
    /// # assert!(mine(0..3, None).eq(0..3));
    /// ```
    pub fn share(&self, len: usize) -> Range<usize> {
        let each = len.div_ceil(self.num_workers);
        let start = each.saturating_mul(self.id).min(len);
        start..start.saturating_add(each).min(len)
    }
}

/// Returns information about the worker that runs on the current thread (torch's
/// `get_worker_info`), or `None` on any other thread, such as that of the training loop.
///
/// torch's info also contains the worker's copy of the dataset. Here all workers share one dataset,
/// which is `self` in the dataset's own methods.
pub fn worker_info() -> Option<WorkerInfo> {
    CURRENT.with(Cell::get)
}

/// Sets the information about the worker that runs on this thread.
pub(crate) fn set_worker_info(info: Option<WorkerInfo>) {
    CURRENT.with(|current| current.set(info));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_have_equal_lengths_except_the_last_ones() {
        let shares =
            |len, workers| -> Vec<_> { (0..workers).map(|id| WorkerInfo::new(id, workers, 0).share(len)).collect() };
        assert_eq!(shares(10, 4), [0..3, 3..6, 6..9, 9..10]);
        assert_eq!(shares(4, 3), [0..2, 2..4, 4..4]);
        assert_eq!(shares(0, 2), [0..0, 0..0]);
        assert_eq!(shares(usize::MAX, 2), [0..usize::MAX / 2 + 1, usize::MAX / 2 + 1..usize::MAX]);
    }

    #[test]
    fn a_thread_is_not_a_worker_by_default() {
        assert_eq!(worker_info(), None);
        let info = WorkerInfo::new(2, 3, u64::MAX);
        set_worker_info(Some(info));
        assert_eq!(worker_info(), Some(info));
        assert_eq!((info.id(), info.num_workers(), info.seed()), (2, 3, 1));
        set_worker_info(None);
    }
}
