//! The state of each thread that fills batches.

use crate::dataset::{Context, StopToken};
use crate::loader::error::run::By;
use crate::loader::metrics::clock::ClaimTimer;
use crate::loader::worker::claim_size::ClaimSizer;

/// The state of one thread that fills batches.
#[derive(Debug)]
pub(crate) struct Reader {
    /// The index of the thread's activity: the worker's number, or the last index for the consumer.
    pub(crate) activity: usize,
    pub(crate) worker: Option<usize>,
    pub(crate) cx: Context,
    pub(crate) sizer: ClaimSizer,
    /// A buffer for the indices of a bulk read.
    pub(crate) scratch: Vec<usize>,
    /// The base seed for which the thread's worker information was last set.
    pub(crate) seed: Option<u64>,
    pub(crate) timer: ClaimTimer,
}

impl Reader {
    /// Makes a reader with memory for the indices of `bulk` samples.
    pub(crate) fn new(
        activity: usize,
        worker: Option<usize>,
        sizer: ClaimSizer,
        bulk: usize,
        stop: Option<StopToken>,
    ) -> Self {
        let mut scratch = Vec::new();
        // If there is no memory, the first bulk read returns the error.
        _ = scratch.try_reserve_exact(bulk);
        Self {
            activity,
            worker,
            cx: Context::new(worker, stop),
            sizer,
            scratch,
            seed: None,
            timer: ClaimTimer::default(),
        }
    }

    pub(crate) fn by(&self) -> By {
        By::of(self.worker)
    }
}
