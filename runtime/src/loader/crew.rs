//! The worker threads: on which cores they run, how they start, and how they end.

use std::sync::{Arc, PoisonError};

use core_affinity::CoreId;

use super::GRACE;
use super::error::{BuildError, Warning};
use super::fork::Process;
use crate::sync::thread::{self, JoinHandle};
use crate::sync::{Condvar, Mutex, mpsc, wait_while};
use crate::wait::Until;

/// Which cores workers run on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Affinity {
    /// Wherever the system puts them.
    #[default]
    Off,
    /// Worker i on the i-th core that this process may use, and from the start again if there are more workers.
    Spread,
    /// Worker i on the i-th of these cores, by the system's numbers, and from the start again if there are more workers.
    Cores(Vec<usize>),
}

/// How many cores this process may use.
pub(super) fn usable_cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The core of each worker, if they have any.
pub(super) fn worker_cores(
    affinity: &Affinity,
    workers: usize,
    warnings: &mut Vec<Warning>,
) -> Result<Vec<CoreId>, BuildError> {
    if *affinity == Affinity::Off || workers == 0 {
        return Ok(Vec::new());
    }
    // This is the calling thread's mask, so it must be read here and not in a worker that is bound already.
    let usable = core_affinity::get_core_ids().unwrap_or_default();
    let chosen = match affinity {
        // Without a word from the system, none is known to be wrong.
        Affinity::Cores(cores) if !usable.is_empty() => cores
            .iter()
            .map(|&core| {
                let list = || usable.iter().map(|core| core.id.to_string()).collect::<Vec<_>>().join(", ");
                let known = usable.iter().copied().find(|usable| usable.id == core);
                known.ok_or_else(|| BuildError::NoSuchCore { core, usable: list() })
            })
            .collect::<Result<Vec<_>, _>>()?,
        _ => usable,
    };
    if chosen.is_empty() {
        warnings.push(Warning::UnknownCores);
    }
    Ok(chosen.into_iter().cycle().take(workers).collect())
}

/// The worker threads.
#[derive(Debug, Default)]
pub(super) struct Crew {
    threads: Vec<JoinHandle<()>>,
    roll: Arc<Roll>,
    process: Process,
}

/// How many threads have ended.
#[derive(Debug, Default)]
struct Roll {
    ended: Mutex<usize>,
    changed: Condvar,
}

/// Signs the roll when its thread ends, in whatever way.
struct Signature(Arc<Roll>);

impl Drop for Signature {
    fn drop(&mut self) {
        *self.0.ended.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.changed.notify_all();
    }
}

impl Crew {
    /// Starts a thread for each of these lives, on its core if there are any, and waits until they run. If one cannot be
    /// started, `close` must let those that run come to their end.
    pub(super) fn start<F: FnOnce() + Send + 'static>(
        lives: impl ExactSizeIterator<Item = F>,
        cores: &[CoreId],
        warnings: &mut Vec<Warning>,
        close: impl FnOnce(),
    ) -> Result<Self, BuildError> {
        let mut crew = Self { threads: Vec::with_capacity(lives.len()), ..Self::default() };
        let (bound, refused) = mpsc::channel();
        for (id, life) in lives.enumerate() {
            let (signature, bound, core) = (Signature(crew.roll.clone()), bound.clone(), cores.get(id).copied());
            let life = move || {
                let _signature = signature;
                if let Some(core) = core {
                    // Nobody listens if the builder gave up meanwhile.
                    let _ = bound.send((id, core.id, core_affinity::set_for_current(core)));
                }
                drop(bound);
                life();
            };
            match thread::Builder::new().name(format!("slotline-{id}")).spawn(life) {
                Ok(thread) => crew.threads.push(thread),
                Err(source) => {
                    close();
                    crew.join();
                    return Err(BuildError::Thread { worker: id, source });
                }
            }
        }
        drop(bound);
        // Ends once every worker has let go of its end, and so runs: the system and std allocate when a thread starts,
        // which must not happen in the middle of a pass.
        let not_bound = refused.iter().filter(|&(_, _, done)| !done);
        warnings.extend(not_bound.map(|(worker, core, _)| Warning::NotBound { worker, core }));
        Ok(crew)
    }

    /// How many threads there are.
    pub(super) fn len(&self) -> usize {
        self.threads.len()
    }

    /// Whether this process was forked from the one with the threads.
    #[inline]
    pub(super) fn is_lost(&self) -> bool {
        !self.process.is_this() && !self.threads.is_empty()
    }

    /// Leaves threads alone that were lost. Even to let go of them would not do: the system may have given their place to
    /// other ones.
    #[cold]
    pub(super) fn forget(&mut self) {
        self.threads.drain(..).for_each(std::mem::forget);
    }

    /// Waits for the threads to end, but not for ever.
    pub(super) fn join(&mut self) {
        let all = self.threads.len();
        // Some may nap.
        self.threads.iter().for_each(|thread| thread.thread().unpark());
        let Roll { ended, changed } = &*self.roll;
        let guard = ended.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = *wait_while((ended, changed), guard, &Until::after(Some(GRACE)), |ended| *ended < all);
        if ended == all {
            // A worker that panicked outside of user code has said so already.
            self.threads.drain(..).for_each(|thread| drop(thread.join()));
        } else {
            tracing::warn!(stuck = all - ended, "workers are stuck in a dataset's code and are left behind");
        }
    }
}
