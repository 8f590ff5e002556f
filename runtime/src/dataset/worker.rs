//! Which worker this is.

use std::cell::Cell;

thread_local! {
    static CURRENT: Cell<Option<WorkerInfo>> = const { Cell::new(None) };
}

/// A worker.
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
    /// Its id.
    pub fn id(&self) -> usize {
        self.id
    }
    /// How many.
    pub fn num_workers(&self) -> usize {
        self.num_workers
    }
    /// Its seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }
}

/// This worker.
pub fn worker_info() -> Option<WorkerInfo> {
    CURRENT.get()
}

pub(crate) fn set_worker_info(info: Option<WorkerInfo>) {
    CURRENT.set(info);
}
