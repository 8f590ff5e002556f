//! The worker threads.

use core_affinity::CoreId;

use crate::loader::collate::batch_memory::BatchMemory;
use crate::loader::error::build::BuildError;
use crate::loader::error::warning::Warning;
use crate::loader::worker::threads::{GRACE, Threads};
use crate::sync::mpsc;
use crate::wait::Until;

/// The worker threads.
#[derive(Debug, Default)]
pub(crate) struct WorkerPool {
    threads: Threads,
    /// Whether the memory of the batches exists only in this process.
    in_given_memory: bool,
    /// The number of worker processes, if the workers are processes.
    processes: Option<usize>,
}

impl WorkerPool {
    /// Starts a thread for each function in `lives`, bound to the core at the same place in `cores` if there is one, and
    /// waits until all threads run. If a thread cannot be started, it calls `close`, which must make the others end.
    pub(crate) fn start<F: FnOnce() + Send + 'static>(
        lives: impl ExactSizeIterator<Item = F>,
        cores: &[CoreId],
        warnings: &mut Vec<Warning>,
        close: impl FnOnce(),
    ) -> Result<Self, BuildError> {
        let mut pool = Self { threads: Threads::with_capacity(lives.len()), in_given_memory: false, processes: None };
        let (bound, refused) = mpsc::channel();
        for (id, life) in lives.enumerate() {
            let (bound, core) = (bound.clone(), cores.get(id).copied());
            let life = move || {
                if let Some(core) = core {
                    // The builder may have given up meanwhile and no longer receive.
                    let _ = bound.send((id, core.id, core_affinity::set_for_current(core)));
                }
                drop(bound);
                life();
            };
            if let Err(source) = pool.threads.start(format!("slotline-{id}"), life) {
                close();
                pool.end(&grace());
                return Err(BuildError::Thread { worker: id, source });
            }
        }
        drop(bound);
        // Ends once every worker has dropped its sender, and so runs: the system and std allocate when a thread starts,
        // which must not happen in the middle of a pass.
        let not_bound = refused.iter().filter(|&(_, _, done)| !done);
        warnings.extend(not_bound.map(|(worker, core, _)| Warning::NotBound { worker, core }));
        Ok(pool)
    }

    /// Records that the only thread supervises this many worker processes.
    pub(crate) fn of_workers(self, workers: usize) -> Self {
        Self { processes: Some(workers), ..self }
    }

    /// The number of workers.
    pub(crate) fn len(&self) -> usize {
        self.processes.unwrap_or(self.threads.len())
    }

    /// Records which memory batches are written into.
    pub(crate) fn writes_into(self, block: Option<&BatchMemory>) -> Self {
        Self { in_given_memory: block.is_some_and(BatchMemory::is_given), ..self }
    }

    /// Whether this process was forked from the one with the threads, or with the memory of the batches.
    #[inline]
    pub(crate) fn is_lost(&self) -> bool {
        !self.threads.is_here() && (self.in_given_memory || self.threads.len() > 0)
    }

    /// Whether this process was forked from the one with the memory of the batches, so that none can be delivered.
    #[inline]
    pub(crate) fn has_lost_memory(&self) -> bool {
        self.in_given_memory && !self.threads.is_here()
    }

    /// Leaks the handles of threads that were lost in a fork.
    #[cold]
    pub(crate) fn forget(&mut self) {
        self.threads.forget();
    }

    /// Waits for the threads to end, until the deadline. Returns the number of those that have not.
    pub(crate) fn end(&mut self, deadline: &Until) -> usize {
        self.threads.end(deadline)
    }
}

/// Returns the deadline by which the threads of a loader that was not built must end.
pub(crate) fn grace() -> Until {
    Until::after(Some(GRACE))
}
