//! The pool of a loader's worker threads.

use core_affinity::CoreId;

use crate::loader::collate::batch_memory::BatchMemory;
use crate::loader::error::build::BuildError;
use crate::loader::error::warning::Warning;
use crate::loader::worker::threads::{GRACE, ThreadMain, Threads};
use crate::sync::mpsc;
use crate::wait::Until;

/// The worker threads of a loader.
#[derive(Debug, Default)]
pub(crate) struct WorkerPool {
    threads: Threads,
    /// Whether the batches are in memory from [`Builder::memory`](crate::loader::Builder::memory),
    /// which a forked process may lack.
    in_given_memory: bool,
    /// The number of worker processes, if the workers are processes.
    processes: Option<usize>,
}

impl WorkerPool {
    /// Starts a thread for each function in `threads`, binds it to the core at the same index in
    /// `cores` if there is one, and waits until all threads run. If a thread cannot be started,
    /// calls `close`, which must make the others end.
    pub(crate) fn start(
        threads: Vec<ThreadMain>,
        cores: &[CoreId],
        warnings: &mut Vec<Warning>,
        close: &mut dyn FnMut(),
    ) -> Result<Self, BuildError> {
        let mut pool = Self { threads: Threads::with_capacity(threads.len()), in_given_memory: false, processes: None };
        let (bound, refused) = mpsc::channel();
        for (id, thread_main) in threads.into_iter().enumerate() {
            let (bound, core) = (bound.clone(), cores.get(id).copied());
            let bound_main = Box::new(move || {
                if let Some(core) = core {
                    // The receiver no longer exists if another thread could not be started.
                    let _ = bound.send((id, core.id, core_affinity::set_for_current(core)));
                }
                drop(bound);
                thread_main();
            });
            if let Err(source) = pool.threads.start(format!("slotline-{id}"), bound_main) {
                close();
                pool.end(&grace());
                return Err(BuildError::Thread { worker: id, source });
            }
        }
        drop(bound);
        // This iteration ends when every worker has dropped its sender, and so is running. Wait for
        // that, because the system and std allocate memory when a thread starts, which must not
        // happen in the middle of a pass.
        let not_bound = refused.iter().filter(|&(_, _, done)| !done);
        warnings.extend(not_bound.map(|(worker, core, _)| Warning::NotBound { worker, core }));
        Ok(pool)
    }

    /// Records that the pool's only thread supervises `workers` worker processes.
    pub(crate) fn of_workers(self, workers: usize) -> Self {
        Self { processes: Some(workers), ..self }
    }

    /// The number of workers.
    pub(crate) fn len(&self) -> usize {
        self.processes.unwrap_or(self.threads.len())
    }

    /// Records which memory the batches are written into.
    pub(crate) fn writes_into(self, block: Option<&BatchMemory>) -> Self {
        Self { in_given_memory: block.is_some_and(BatchMemory::may_be_missing_after_fork), ..self }
    }

    /// Whether this process was forked from the one that built the loader, and lacks the worker
    /// threads or the memory of the batches.
    #[inline]
    pub(crate) fn is_lost(&self) -> bool {
        !self.threads.is_here() && (self.in_given_memory || self.threads.len() > 0)
    }

    /// Whether this process was forked from the one that built the loader, and may lack the memory
    /// of the batches, so that no batch can be delivered.
    #[inline]
    pub(crate) fn has_lost_memory(&self) -> bool {
        self.in_given_memory && !self.threads.is_here()
    }

    /// Leaks the handles of threads that do not exist in this forked process.
    #[cold]
    pub(crate) fn forget(&mut self) {
        self.threads.forget();
    }

    /// Waits for the threads to end, until the deadline. Returns the number of threads that have
    /// not ended.
    pub(crate) fn end(&mut self, deadline: &Until) -> usize {
        self.threads.end(deadline)
    }
}

/// Returns the deadline by which the threads must end if a loader could not be built.
pub(crate) fn grace() -> Until {
    Until::after(Some(GRACE))
}
