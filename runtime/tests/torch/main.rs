//! Tests of the behaviour that torch's documentation and tests require of its `DataLoader`, for
//! slotline's loaders.
//!
//! Datasets made of others, samplers, collation and values are tested elsewhere: in
//! `tests/datasets`, `tests/default_generator/draws.rs` and `src/sampler`. `parity` compares
//! recorded results of torch.

#[path = "../support/mod.rs"]
mod support;

mod construction;
mod exits;
mod failures;
mod iterable;
mod options;
mod order;
#[cfg(feature = "serde")]
mod parity;
mod random;
mod samplers;
mod timeouts;
mod unordered;
mod workers;

use std::time::Duration;

use slotline::dataset::IterableDataset;
use slotline::loader::{BuildError, Builder, OnHeld, Warning};
use slotline::{Batch, BoxError, Dataset, Error, Loader, WorkerInfo};

use crate::support::{HAS_PROCESSES, InProcesses, OneByOne, Workers, from_fn, plain};

/// The kind of a loader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A loader with a shared ring: any free worker takes the next batch.
    Shared,
    /// A loader like `Shared` whose workers, if there are any, are processes.
    Processes,
    /// A loader with `round_robin`: worker `i mod num_workers` makes batch `i`.
    RoundRobin,
    /// A loader over an iterable dataset.
    Iterable,
}

const KINDS: [Kind; 4] = [Kind::Shared, Kind::Processes, Kind::RoundRobin, Kind::Iterable];

/// The outcomes of a pass.
type Outcomes<'a, T> = Box<dyn Iterator<Item = Result<T, Error>> + 'a>;

/// A loader of any kind whose samples are numbers.
trait Passes {
    /// Begins a pass, and returns its batches.
    fn batches(&mut self) -> Result<Outcomes<'_, Box<dyn Held>>, Error>;
    fn len(&self) -> Option<usize>;
    fn warnings(&self) -> &[Warning];

    /// Begins a pass, and returns the values of its batches, each of which is dropped at once.
    fn pass(&mut self) -> Result<Outcomes<'_, Vec<i64>>, Error> {
        Ok(Box::new(self.batches()?.map(|batch| Ok(batch?.values()))))
    }

    /// Runs a whole pass, which must succeed, and returns the values of its batches.
    #[track_caller]
    fn whole(&mut self) -> Vec<Vec<i64>> {
        self.pass().unwrap().map(Result::unwrap).collect()
    }
}

impl<S: 'static> Passes for Loader<Batch<S>> {
    fn batches(&mut self) -> Result<Outcomes<'_, Box<dyn Held>>, Error> {
        Ok(Box::new(self.epoch()?.map(|batch| Ok(Box::new(batch?) as _))))
    }

    fn len(&self) -> Option<usize> {
        Loader::len(self)
    }

    fn warnings(&self) -> &[Warning] {
        Loader::warnings(self)
    }
}

/// A batch of any dataset of numbers.
trait Held {
    fn values(&self) -> Vec<i64>;
}

impl<S> Held for Batch<S> {
    fn values(&self) -> Vec<i64> {
        values(self)
    }
}

/// Returns the numbers in a batch of numbers.
#[track_caller]
fn values<S>(batch: &Batch<S>) -> Vec<i64> {
    batch.columns().get(0).unwrap().typed::<i64>().unwrap().as_slice().to_vec()
}

/// Returns all kinds of loaders over a map-style dataset.
fn all_kinds<D: Dataset>(builder: impl Fn() -> Builder<D>) -> Vec<Box<dyn Passes>> {
    let mut loaders: Vec<Box<dyn Passes>> =
        vec![Box::new(builder().build().unwrap()), Box::new(builder().round_robin(true).build().unwrap())];
    if HAS_PROCESSES {
        match builder().in_processes() {
            Err(BuildError::Clash { second: "num_workers = 0", .. }) => {}
            loader => loaders.push(Box::new(loader.unwrap())),
        }
    }
    loaders
}

/// Returns a dataset of the numbers below `len`, which calls `work` before each.
fn numbers(len: usize, work: impl Work) -> impl for<'a> Dataset<Sample<'a> = i64> {
    from_fn(len, move |index, _| {
        work(index)?;
        Ok(index as i64)
    })
}

/// Returns an iterable dataset of the numbers below `len`, of which each worker reads its share.
fn stream(len: usize, work: impl Work) -> impl for<'a> IterableDataset<Sample<'a> = i64> {
    OneByOne(numbers(len, work))
}

/// A function that is called before each number is read.
trait Work: Fn(usize) -> Result<(), BoxError> + Send + Sync + 'static {}
impl<F: Fn(usize) -> Result<(), BoxError> + Send + Sync + 'static> Work for F {}

/// A function for `worker_init`.
trait Init: Fn(WorkerInfo) -> Result<(), BoxError> + Send + Sync + 'static {}
impl<F: Fn(WorkerInfo) -> Result<(), BoxError> + Send + Sync + 'static> Init for F {}

/// A [`Work`] that does nothing.
fn nothing(_: usize) -> Result<(), BoxError> {
    Ok(())
}

/// The options that apply to all kinds of loaders.
#[derive(Clone, Copy, Debug)]
struct Options {
    len: usize,
    batch_size: usize,
    drop_last: bool,
    workers: usize,
    prefetch: usize,
    persistent: bool,
    pinned: bool,
    hold: usize,
    on_held: OnHeld,
    in_order: bool,
    timeout: Duration,
    seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            len: 20,
            batch_size: 3,
            drop_last: false,
            workers: 2,
            prefetch: 2,
            persistent: false,
            pinned: false,
            hold: 1,
            on_held: OnHeld::Grow,
            in_order: true,
            timeout: Duration::ZERO,
            seed: 0,
        }
    }
}

impl Options {
    /// Builds a loader of a kind over the numbers with these options.
    fn build(&self, kind: Kind, work: impl Work) -> Box<dyn Passes> {
        self.build_with(kind, work, None::<fn(WorkerInfo) -> Result<(), BoxError>>)
    }

    /// Works like [`build`](Self::build), with a `worker_init`.
    fn build_with(&self, kind: Kind, work: impl Work, init: Option<impl Init>) -> Box<dyn Passes> {
        fn with<D>(builder: Builder<D>, init: Option<impl Init>) -> Builder<D> {
            if let Some(init) = init { builder.worker_init(init) } else { builder }
        }
        if kind == Kind::Iterable {
            let builder = with(self.set(Loader::iterable(stream(self.len, work))), init);
            return Box::new(builder.build().unwrap());
        }
        let builder = with(self.set(Loader::builder(numbers(self.len, work))), init);
        Box::new(self.workers_of(kind).build(builder.round_robin(kind == Kind::RoundRobin)).unwrap())
    }

    /// Returns the workers of a kind of loader with one ring.
    fn workers_of(&self, kind: Kind) -> Workers {
        Workers { workers: self.workers, processes: kind == Kind::Processes && HAS_PROCESSES && self.workers > 0 }
    }

    /// Sets these options on a builder, and `help(false)`, so that only the workers read samples.
    fn set<D, C>(&self, builder: Builder<D, C>) -> Builder<D, C> {
        let builder = support::prefetch(builder, self.workers, self.prefetch).drop_last(self.drop_last);
        builder
            .batch_size(self.batch_size)
            .persistent_workers(self.persistent && self.workers > 0)
            .pin_memory(self.pinned)
            .hold(self.hold)
            .on_held(self.on_held)
            .in_order(self.in_order)
            .timeout(self.timeout)
            .seed(self.seed)
            .help(false)
    }

    /// Returns the batches of each pass according to torch's rules.
    fn expected(&self, kind: Kind) -> Vec<Vec<i64>> {
        let shares: Vec<Vec<i64>> = match kind {
            Kind::Iterable => shares(self.len, self.workers),
            _ => vec![(0..self.len as i64).collect()],
        };
        in_turn(&shares, self.batch_size, self.drop_last)
    }
}

/// Divides the numbers below `len` into one contiguous share per worker.
fn shares(len: usize, workers: usize) -> Vec<Vec<i64>> {
    let share = |worker| plain::share(worker, workers, len).map(|index| index as i64).collect();
    (0..workers.max(1)).map(share).collect()
}

/// Returns the batches of all shares, taken from the shares in turn while they have batches.
fn in_turn(shares: &[Vec<i64>], batch_size: usize, drop_last: bool) -> Vec<Vec<i64>> {
    plain::in_turn(shares.iter().map(|share| plain::batches(share, batch_size, drop_last)))
}
