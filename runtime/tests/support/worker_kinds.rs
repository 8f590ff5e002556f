//! Options for loaders whose workers are threads or processes.

use std::sync::Once;

use slotline::Loader;
use slotline::dataset::Dataset;
use slotline::loader::{BatchOf, BuildError, Builder};

/// Whether workers can be processes in this build.
pub(crate) const HAS_PROCESSES: bool = cfg!(all(target_os = "linux", not(any(shuttle, delays))));

/// The number and kind of a loader's workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Workers {
    pub(crate) workers: usize,
    pub(crate) processes: bool,
}

/// Returns workers that are threads for each number, and workers that are processes for each number
/// except 0.
pub(crate) fn worker_kinds<const N: usize>(workers: [usize; N]) -> impl Iterator<Item = Workers> + Clone {
    let of = move |processes| workers.into_iter().map(move |workers| Workers { workers, processes });
    of(false).chain(of(true).filter(|kind| HAS_PROCESSES && kind.workers > 0))
}

impl Workers {
    /// Builds a loader with these workers.
    pub(crate) fn build<D: Dataset>(self, builder: Builder<D>) -> Result<Loader<BatchOf<D>>, BuildError> {
        let builder = builder.num_workers(self.workers);
        if self.processes { builder.in_processes() } else { builder.build() }
    }
}

pub(crate) trait InProcesses<D: Dataset> {
    /// Builds a loader whose workers are processes.
    fn in_processes(self) -> Result<Loader<BatchOf<D>>, BuildError>;
}

impl<D: Dataset> InProcesses<D> for Builder<D> {
    #[cfg(all(target_os = "linux", not(any(shuttle, delays))))]
    fn in_processes(self) -> Result<Loader<BatchOf<D>>, BuildError> {
        panic_quietly_in_children();
        self.processes().build()
    }

    #[cfg(not(all(target_os = "linux", not(any(shuttle, delays)))))]
    fn in_processes(self) -> Result<Loader<BatchOf<D>>, BuildError> {
        unreachable!("workers are threads here")
    }
}

/// Makes panics in child processes print nothing. A panic hook that prints takes a lock, which a
/// thread of this process may hold when it forks.
pub(crate) fn panic_quietly_in_children() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let (parent, print) = (std::process::id(), std::panic::take_hook());
        std::panic::set_hook(Box::new(move |panic| {
            if std::process::id() == parent {
                print(panic);
            }
        }));
    });
}
