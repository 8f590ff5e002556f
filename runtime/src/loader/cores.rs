//! The cores that workers run on.

use core_affinity::CoreId;

use crate::loader::error::build::BuildError;
use crate::loader::error::warning::Warning;

/// The cores that workers run on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Affinity {
    /// Any core, as the system decides.
    #[default]
    Off,
    /// Worker i runs on the i-th core that this process may use; if there are more workers than cores, they wrap
    /// around.
    Spread,
    /// Worker i runs on the i-th of these cores, by the system's numbers; if there are more workers than cores, they
    /// wrap around.
    Cores(Vec<usize>),
}

/// The number of cores that this process may use.
pub(crate) fn usable_cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Returns the core of each worker, or nothing if workers are not bound.
pub(crate) fn worker_cores(
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
        // If the system lists no cores, none of these is known to be wrong.
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
