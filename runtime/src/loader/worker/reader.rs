//! What each thread that fills batches has of its own.

use crate::dataset::Context;
use crate::loader::error::run::By;
use crate::loader::metrics::clock::Watch;
use crate::loader::worker::claim_size::ClaimSizer;

/// One thread that fills batches.
#[derive(Debug)]
pub(crate) struct Reader {
    /// Its place among the activities: the worker's number, or the last one for the consumer.
    pub(crate) place: usize,
    pub(crate) worker: Option<usize>,
    pub(crate) cx: Context,
    pub(crate) sizer: ClaimSizer,
    /// The indices of a bulk read.
    pub(crate) scratch: Vec<usize>,
    /// The base seed that the thread's worker information was made from.
    pub(crate) seed: Option<u64>,
    pub(crate) watch: Watch,
}

impl Reader {
    /// With memory for the indices of a bulk read.
    pub(crate) fn new(place: usize, worker: Option<usize>, sizer: ClaimSizer, bulk: usize) -> Self {
        Self {
            place,
            worker,
            cx: Context::new(worker),
            sizer,
            scratch: Vec::with_capacity(bulk),
            seed: None,
            watch: Watch::default(),
        }
    }

    pub(crate) fn by(&self) -> By {
        By::of(self.worker)
    }
}
