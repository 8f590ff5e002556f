//! Makes what a worker process that was started by a command runs.

use std::sync::Arc;

use crate::BoxError;
use crate::dataset::{Dataset, Iterable, IterableDataset};
use crate::loader::assembly::share::{FirstBatch, Share};
use crate::loader::backend::processes::attach::{Given, Joined, become_worker};
use crate::loader::backend::processes::process_link::Server;
use crate::loader::backend::processes::separate::{RoundRobinService, Streams};
use crate::loader::backend::processes::spawn_config::{ROUND_ROBIN, SpawnFacts, on_error_of};
use crate::loader::backend::processes::worker::{ProcessWorkers, connect};
use crate::loader::backend::stream_worker::Streaming;
use crate::loader::builder::Builder;
use crate::loader::collate::Fill;
use crate::loader::error::guard::probe;
use crate::loader::order::index_source::Batching;
use crate::loader::worker::claim_size::ClaimSizer;
use crate::loader::worker::engine::Engine;

/// Becomes a worker, if a loader has started this process as one ([`ProcessBuilder::spawn`]);
/// otherwise returns at once.
///
/// Call this at the start of `main`: what comes before it runs in each worker, and what comes after
/// it does not. In a worker, this function makes the dataset with `make` from the bytes that the
/// loader sends, and reads samples until the loader is dropped or the loader's process ends. Then
/// it ends the worker's process, so it does not return.
///
/// `make` returns a [`Dataset`], or a [`Builder`] with everything that a worker needs: an iterable
/// dataset from [`Loader::iterable`], a [collate function](Builder::collate), and a
/// [`worker_init`](Builder::worker_init). The loader must have the same ones. All other options
/// come from the loader; those of this builder are ignored.
///
/// ```
/// use std::process::Command;
///
/// use slotline::dataset::{IterableDataset, iter_fn};
/// use slotline::loader::work_if_spawned;
/// use slotline::{BoxError, Loader, WorkerInfo};
///
/// fn numbers(below: usize) -> impl IterableDataset<Sample<'static> = i64> {
///     iter_fn(move |worker: Option<WorkerInfo>| {
///         let part = worker.map_or(0..below, |worker| worker.share(below));
///         Ok(part.map(|number| Ok(number as i64)))
///     })
/// }
///
/// fn main() -> Result<(), BoxError> {
///     work_if_spawned(|setup| Ok(Loader::iterable(numbers(std::str::from_utf8(setup)?.parse()?))));
///
///     let this = Command::new(std::env::current_exe()?);
///     let builder = Loader::iterable(numbers(10)).batch_size(5).num_workers(2);
///     let mut loader = builder.processes().spawn(this, "10").build()?;
///     let sums: Vec<i64> = loader.epoch()?.map(|batch| Ok(batch?.tensors().as_slice().iter().sum())).collect::<Result<_, slotline::Error>>()?;
///     assert_eq!(sums, [10, 35]);
///     Ok(())
/// }
/// ```
///
/// The worker's dataset must have the same fields as the loader's, and if it has indices the same
/// length, but may be of another type. (To learn the fields, the worker reads the samples that
/// [`build`](crate::loader::ProcessBuilder::build) reads.) If anything differs, or if `make` fails
/// or panics, the loader reports why ([`Error::WorkerDied`], or [`Error::WorkerInit`] if it has a
/// `worker_init`).
///
/// The function uses the process's standard input, which is empty from then on. It makes the
/// process ignore SIGINT, since a terminal sends SIGINT to all processes of a program. (Before the
/// call the process does not ignore it. A command in a [process
/// group](std::os::unix::process::CommandExt::process_group) of its own gets no SIGINT from the
/// terminal.)
///
/// [`ProcessBuilder::spawn`]: crate::loader::ProcessBuilder::spawn
/// [`Loader::iterable`]: crate::loader::Loader::iterable
/// [`Error::WorkerDied`]: crate::loader::Error::WorkerDied
/// [`Error::WorkerInit`]: crate::loader::Error::WorkerInit
pub fn work_if_spawned<W: Work>(make: impl FnOnce(&[u8]) -> Result<W, BoxError>) {
    become_worker(|given, setup| probe(|| make(setup))?.join(given));
}

/// What the closure of [`work_if_spawned`] may return: a [`Dataset`], or a [`Builder`]. Sealed.
#[diagnostic::on_unimplemented(
    message = "a worker cannot work with `{Self}`",
    note = "return a `Dataset`, or a `Builder`: for an iterable dataset `Loader::iterable(dataset)`, for a collate function whose result is a `Sample` `Loader::builder(dataset).collate(function)`"
)]
pub trait Work {
    #[doc(hidden)]
    fn join(self, given: Given) -> Result<Joined, BoxError>;
}

impl<D: Dataset> Work for D {
    fn join(self, given: Given) -> Result<Joined, BoxError> {
        Builder::new(self).join(given)
    }
}

impl<D: Dataset, C: Share<D>> Work for Builder<D, C> {
    fn join(self, mut given: Given) -> Result<Joined, BoxError> {
        let Self { dataset, collate, mut options } = self;
        let is_collated = !<C::Shared as Fill<D>>::STACKS;
        given.check_kind(false, is_collated, options.worker_init.is_some())?;
        given.check_len(probe(|| Ok(dataset.len()))?)?;
        let SpawnFacts { kind, parts, workers, rows, bulk, part_rows, .. } = given.facts;
        options.persistent_workers = given.facts.is_persistent != 0;
        let (shared, first, init) = (collate.share(), first_batch(&given.facts), options.init_hook());
        let fields = probe(|| Ok(C::fields(&shared, &dataset, first)?))?;
        let (in_order, is_fixed) = (given.facts.in_order != 0, given.facts.is_fixed != 0);
        let (cores, lengths) = (std::mem::take(&mut given.cores), given.lengths.take());
        let (control, payload_at) = given.map(fields)?;
        let engine = Engine::new(dataset, shared, rows, first.batching, bulk, workers, None);
        let engine = Arc::new(connect(engine.on_error(first.on_error, lengths), &control));
        if kind == ROUND_ROBIN {
            return Ok(Joined(Box::new(Server {
                service: RoundRobinService { engine, control },
                payload_at,
                workers,
                init,
            })));
        }
        let sizer = ClaimSizer::of(is_fixed, parts);
        Ok(Joined(Box::new(ProcessWorkers { engine, control, in_order, part_rows, payload_at, sizer, init, cores })))
    }
}

impl<D: IterableDataset, C: Share<Iterable<D>>> Work for Builder<Iterable<D>, C> {
    fn join(self, given: Given) -> Result<Joined, BoxError> {
        let Self { dataset, collate, mut options } = self;
        let is_collated = !<C::Shared as Fill<Iterable<D>>>::STACKS;
        given.check_kind(true, is_collated, options.worker_init.is_some())?;
        let workers = given.facts.workers;
        options.persistent_workers = given.facts.is_persistent != 0;
        let (shared, first, init) = (collate.share(), first_batch(&given.facts), options.init_hook());
        let fields = probe(|| Ok(C::fields(&shared, &dataset, first)?))?;
        let (control, payload_at) = given.map(fields)?;
        let (cancel, activities) = (control.cancel(), control.activities());
        let service = Streams(Streaming::new((dataset, shared), first.batching, first.on_error, cancel, activities));
        Ok(Joined(Box::new(Server { service, payload_at, workers, init })))
    }
}

/// Returns the facts that determine the first batch of the loader.
fn first_batch(facts: &SpawnFacts) -> FirstBatch {
    let SpawnFacts { rows, workers, stride, drops_last, is_single, on_error, .. } = *facts;
    let batching = Batching { batch_size: stride, drop_last: drops_last != 0, single: is_single != 0 };
    FirstBatch { batching, rows, workers, on_error: on_error_of(on_error) }
}
