//! Builds a loader from its options, in stages: checks the options, allocates the memory, makes the
//! state that the filling threads share, starts the backend with its workers, and puts all of them
//! into a [`LoaderCore`](crate::loader::consumer::core::LoaderCore).

pub(crate) mod memory;
pub(crate) mod per_worker;
#[cfg(processes)]
pub(crate) mod processes;
#[cfg(processes)]
pub(crate) mod processes_separate;
#[cfg(processes)]
pub(crate) mod share;
pub(crate) mod shared;
#[cfg(processes)]
pub(crate) mod spawned;

use crossbeam_utils::CachePadded;

use crate::dataset::StopToken;
use crate::loader::builder::options::Options;
use crate::loader::cores::usable_cores;
use crate::loader::error::build::BuildError;
use crate::loader::error::warning::Warning;
use crate::loader::metrics::activity::Activity;
use crate::loader::order::index_source::Batching;
use crate::loader::worker::workers::Workers;
use crate::placed::Placed;

impl Options {
    /// Returns the warnings that follow from the options, for a pass of `samples` samples, if that
    /// is known.
    fn warnings(&self, batching: Batching, samples: Option<usize>) -> impl Iterator<Item = Warning> {
        let workers = self.num_workers;
        // A single worker never exceeds the number of cores, and asking for the number of cores
        // takes as long as starting a thread.
        let cores = if workers > 1 { usable_cores() } else { 1 };
        let many = (workers > cores).then_some(Warning::ManyWorkers { workers, cores });
        many.into_iter().chain(batching.no_batch(samples))
    }

    /// Makes the state for workers that will be started.
    fn workers(&self, cancel: StopToken, activities: &Placed<[CachePadded<Activity>]>) -> Result<Workers, BuildError> {
        Workers::new(cancel, activities.clone(), (self.watchdog, &self.on_warning), self.close_timeout)
    }
}
