//! The cores that workers run on.

use core_affinity::CoreId;

use crate::loader::error::build::BuildError;
use crate::loader::error::warning::Warning;

/// Which cores the workers run on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Affinity {
    /// Any core, as the system decides.
    #[default]
    Off,
    /// Worker i runs on the i-th core that this process may use. If there are more workers than
    /// cores, several share a core. On Linux the cores are those that the process's first thread or
    /// the thread that builds the loader may use. If both are already bound to few cores, list the
    /// [cores](Self::Cores) instead.
    Spread,
    /// Worker i runs on the i-th of these cores, given by the system's numbers. If there are more
    /// workers than cores, several share a core. On Linux these may be any cores on which the
    /// system lets a thread of this process run, even if the thread that builds the loader is bound
    /// to others.
    Cores(Vec<usize>),
}

/// The number of cores that this process may use.
pub(crate) fn usable_cores() -> usize {
    let here = std::thread::available_parallelism().map_or(1, usize::from);
    // Workers are not limited to the cores that the calling thread is bound to. But if `here` is
    // not the number of those cores, it comes from a CPU quota, which limits all threads.
    let is_bound = core_affinity::get_core_ids().is_some_and(|own| own.len() == here);
    if is_bound { listed_cores().len() } else { here }
}

/// Returns the core of each worker, or an empty list if workers are not bound.
pub(crate) fn worker_cores(
    affinity: &Affinity,
    workers: usize,
    warnings: &mut Vec<Warning>,
) -> Result<Vec<CoreId>, BuildError> {
    if *affinity == Affinity::Off || workers == 0 {
        return Ok(Vec::new());
    }
    let usable = listed_cores();
    let chosen = match affinity {
        // If the system does not list its cores, accept all numbers.
        Affinity::Cores(cores) if !usable.is_empty() => cores
            .iter()
            .map(|&id| {
                let core = CoreId { id };
                let list = || usable.iter().map(|core| core.id.to_string()).collect::<Vec<_>>().join(", ");
                let is_usable = usable.contains(&core) || is_allowed(core);
                is_usable.then_some(core).ok_or_else(|| BuildError::NoSuchCore { core: id, usable: list() })
            })
            .collect::<Result<Vec<_>, _>>()?,
        _ => usable,
    };
    if chosen.is_empty() {
        warnings.push(Warning::UnknownCores);
    }
    Ok(chosen.into_iter().cycle().take(workers).collect())
}

/// Returns the cores that the calling thread may use, and on Linux also those of the process's
/// first thread, sorted.
fn listed_cores() -> Vec<CoreId> {
    let mut cores = core_affinity::get_core_ids().unwrap_or_default();
    #[cfg(target_os = "linux")]
    if !cores.is_empty() {
        // SAFETY: a set of all zeros is valid, and the call writes at most the size of the set.
        let set = unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::sched_getaffinity(libc::getpid(), size_of::<libc::cpu_set_t>(), &mut set);
            set
        };
        // SAFETY: the numbers are below the size of the set.
        let first = (0..libc::CPU_SETSIZE as usize).filter(|&id| unsafe { libc::CPU_ISSET(id, &set) });
        cores.extend(first.map(|id| CoreId { id }));
        cores.sort_unstable();
        cores.dedup();
    }
    cores
}

/// Whether a thread of this process can be bound to a core, even if the calling thread is bound to
/// others.
fn is_allowed(core: CoreId) -> bool {
    // 1024 is the number of cores in a `cpu_set_t` (`CPU_SETSIZE`).
    cfg!(target_os = "linux")
        && core.id < 1024
        && std::thread::scope(|scope| {
            let bound = std::thread::Builder::new().spawn_scoped(scope, || core_affinity::set_for_current(core));
            bound.is_ok_and(|bound| bound.join().unwrap_or(false))
        })
}
