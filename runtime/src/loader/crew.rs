//! The worker threads, and on which cores they run.

use core_affinity::CoreId;

use super::GRACE;
use super::block::Block;
use super::error::{BuildError, Warning};
use super::threads::Threads;
use crate::sync::mpsc;
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
    threads: Threads,
    /// Whether the memory of the batches is this process's only.
    in_given_memory: bool,
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
        let mut crew = Self { threads: Threads::with_capacity(lives.len()), in_given_memory: false };
        let (bound, refused) = mpsc::channel();
        for (id, life) in lives.enumerate() {
            let (bound, core) = (bound.clone(), cores.get(id).copied());
            let life = move || {
                if let Some(core) = core {
                    // Nobody listens if the builder gave up meanwhile.
                    let _ = bound.send((id, core.id, core_affinity::set_for_current(core)));
                }
                drop(bound);
                life();
            };
            if let Err(source) = crew.threads.start(format!("slotline-{id}"), life) {
                close();
                crew.end(&grace());
                return Err(BuildError::Thread { worker: id, source });
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

    /// Notes what memory batches are written into.
    pub(super) fn writes_into(self, block: Option<&Block>) -> Self {
        Self { in_given_memory: block.is_some_and(Block::is_given), ..self }
    }

    /// Whether this process was forked from the one with the threads, or with the memory of the batches.
    #[inline]
    pub(super) fn is_lost(&self) -> bool {
        !self.threads.is_here() && (self.in_given_memory || self.threads.len() > 0)
    }

    /// Whether this process was forked from the one with the memory of the batches: then none can be delivered.
    #[inline]
    pub(super) fn has_lost_memory(&self) -> bool {
        self.in_given_memory && !self.threads.is_here()
    }

    /// Leaves threads alone that were lost.
    #[cold]
    pub(super) fn forget(&mut self) {
        self.threads.forget();
    }

    /// Waits for the threads to end, until the deadline.
    pub(super) fn end(&mut self, deadline: &Until) {
        self.threads.end(deadline);
    }
}

/// The end of the time that a loader's threads have to end.
pub(super) fn grace() -> Until {
    Until::after(Some(GRACE))
}
