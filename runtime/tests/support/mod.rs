//! Shared code of the tests: a dataset with known samples, a plain loop whose batches a loader must
//! reproduce, and a latch that blocks workers.
#![allow(dead_code)] // Each test binary uses only a part of it.

mod alone;
mod chain;
mod datasets;
pub(crate) mod plain;
mod shared;
mod worker_kinds;

#[allow(unused_imports)] // Each test binary uses only a part of it.
pub(crate) use {
    alone::alone,
    chain::chain,
    datasets::{
        Bulk, DatasetOf, Item, OneByOne, ReadsMany, Resizable, WithFields, WithoutSave, WrittenBy, from_fn, items,
        pixels, sampler_fn, stuck,
    },
    shared::{Notes, shared},
    worker_kinds::{HAS_PROCESSES, InProcesses, Workers, worker_kinds},
};

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use slotline::BoxError;
use slotline::dataset::{Context, Dataset};
use slotline::loader::{Affinity, Batch, BatchOf, BuildError, Builder, Error};
use slotline::rng::SampleRng;
use slotline::rng::rand_core::Rng;
use slotline::{Loader, WaitStrategy};

use self::plain::Plain;

/// A time limit that is long enough on any machine: an operation that takes longer is considered to
/// hang.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Describes a batch or an error, without the thread or process that made it.
pub(crate) fn describe<S>(batch: Result<Batch<S>, Error>) -> String {
    match batch {
        Ok(batch) => format!(
            "{} {:?} {:?}",
            batch.batch_index(),
            batch.indices(),
            (0..batch.columns().len()).map(|i| batch.columns().get(i)).collect::<Vec<_>>()
        ),
        Err(error) => {
            let text = chain(&error);
            ["in worker 0", "in worker 1", "in the consumer's thread"]
                .iter()
                .fold(text, |text, by| text.replace(by, "somewhere"))
        }
    }
}

/// Waits for an unpredictable time at some samples, so that workers finish out of order.
pub(crate) fn sleep_sometimes(index: usize, cx: &Context) {
    let seed = index as u64 ^ (cx.worker().map_or(9, |id| id as u64) << 20) ^ (u64::from(cx.epoch()) << 40);
    match SampleRng::new(seed, 0, 0).next_u32() % 16 {
        0 => std::thread::sleep(Duration::from_micros(150)),
        1..4 => (0..2_000).for_each(|_| std::hint::spin_loop()),
        4..7 => std::thread::yield_now(),
        _ => {}
    }
}

/// Works like [`sleep_sometimes`], with the signature that [`items`] expects.
pub(crate) fn sleeping_sometimes(index: usize, cx: &mut Context) -> Result<(), BoxError> {
    sleep_sometimes(index, cx);
    Ok(())
}

/// The options that determine the batches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) len: usize,
    pub(crate) batch_size: usize,
    pub(crate) drop_last: bool,
    pub(crate) shuffle: bool,
    pub(crate) seed: u64,
}

/// The options that must not change the batches.
#[derive(Clone, Debug)]
pub(crate) struct How {
    pub(crate) workers: usize,
    /// Whether the workers are processes. If so, the consumer does not help them.
    pub(crate) processes: bool,
    pub(crate) prefetch: usize,
    pub(crate) part_size: Option<usize>,
    pub(crate) hold: usize,
    pub(crate) wait: WaitStrategy,
    pub(crate) help: bool,
    pub(crate) affinity: Affinity,
}

impl Default for How {
    fn default() -> Self {
        let (part_size, wait, affinity) = (None, WaitStrategy::Park, Affinity::Off);
        Self { workers: 2, processes: false, prefetch: 2, part_size, hold: 1, wait, help: true, affinity }
    }
}

impl How {
    /// Builds a loader with these options.
    pub(crate) fn build<D: Dataset>(&self, builder: Builder<D>) -> Result<Loader<BatchOf<D>>, BuildError> {
        Workers { workers: self.workers, processes: self.processes }.build(self.set(builder))
    }

    /// Sets these options on a builder, except [`processes`](Self::processes).
    pub(crate) fn set<D: Dataset, C>(&self, builder: Builder<D, C>) -> Builder<D, C> {
        let builder = prefetch(builder, self.workers, self.prefetch).hold(self.hold);
        let help = self.help && !self.processes;
        let builder = builder.wait_strategy(self.wait).help(help).affinity(self.affinity.clone());
        match self.part_size {
            Some(part_size) => builder.part_size(part_size),
            None => builder,
        }
    }
}

/// Sets the number of workers and, if there are any, the prefetch factor, which is an error without
/// workers.
pub(crate) fn prefetch<D, C>(builder: Builder<D, C>, workers: usize, factor: usize) -> Builder<D, C> {
    let builder = builder.num_workers(workers);
    if workers > 0 { builder.prefetch_factor(factor) } else { builder }
}

impl Run {
    /// Returns a builder with these options over `dataset`.
    pub(crate) fn over<D: Dataset>(&self, dataset: D) -> Builder<D> {
        let builder = Loader::builder(dataset).batch_size(self.batch_size).drop_last(self.drop_last);
        builder.shuffle(self.shuffle).seed(self.seed)
    }

    /// Returns the batches of `epochs` passes as a plain loop makes them: in torch's order, in one
    /// thread, without prefetching.
    pub(crate) fn expected(&self, epochs: u32) -> Vec<Vec<Delivered>> {
        let mut plain = Plain::new(self.seed, false);
        let mut pass = |_| {
            let seeds = plain.pass();
            let order = if self.shuffle { plain.shuffled(self.len) } else { (0..self.len).collect() };
            let batches = plain::batches(&order, self.batch_size, self.drop_last).into_iter().enumerate();
            let batch = |(task, indices): (usize, Vec<usize>)| Delivered {
                task,
                epoch: seeds.epoch,
                indices: indices.iter().map(|&index| index as i64).collect(),
                pixels: indices.iter().flat_map(|&index| pixels(index)).flatten().collect(),
                words: (0..indices.len()).map(|row| seeds.word(task * self.batch_size + row)).collect(),
            };
            batches.map(batch).collect()
        };
        (0..epochs).map(&mut pass).collect()
    }
}

/// The properties and contents of a batch, for comparisons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Delivered {
    pub(crate) task: usize,
    pub(crate) epoch: u32,
    pub(crate) indices: Vec<i64>,
    pub(crate) pixels: Vec<u8>,
    pub(crate) words: Vec<u64>,
}

impl Delivered {
    /// Reads a batch of the dataset [`items`].
    #[track_caller]
    pub(crate) fn from<S>(batch: &Batch<S>) -> Self {
        let columns = batch.columns();
        let typed = |i: usize| columns.get(i).unwrap();
        let (numbers, bytes, words) = (typed(0), typed(1), typed(2));
        assert_eq!(bytes.shape(), [batch.len(), 2, 3]);
        assert_eq!(numbers.typed::<i64>().unwrap().as_slice(), batch.indices());
        Self {
            task: batch.batch_index(),
            epoch: batch.epoch(),
            indices: batch.indices().to_vec(),
            pixels: bytes.typed::<u8>().unwrap().as_slice().to_vec(),
            words: words.typed::<u64>().unwrap().as_slice().to_vec(),
        }
    }
}

/// Returns the batches of a pass of a loader over [`items`], which must succeed.
#[track_caller]
pub(crate) fn pass<S>(loader: &mut Loader<Batch<S>>) -> Vec<Delivered> {
    loader.epoch().unwrap().map(|batch| Delivered::from(&batch.unwrap())).collect()
}

/// A latch that blocks threads until it is opened, including threads of processes that are forked
/// after it was made. A thread that waits longer than [`LONG`] panics, so that no test hangs.
#[derive(Clone, Debug)]
pub(crate) struct Latch(&'static State);

#[derive(Debug, Default)]
struct State {
    open: AtomicBool,
    waiting: AtomicUsize,
}

impl Default for Latch {
    fn default() -> Self {
        Self(shared())
    }
}

impl Latch {
    /// Waits until the latch is open.
    pub(crate) fn wait(&self) {
        self.during(|| until(|| self.0.open.load(Ordering::SeqCst), "the latch was never opened"));
    }

    /// Counts the current thread as blocked by the latch while `run` runs.
    pub(crate) fn during<T>(&self, run: impl FnOnce() -> T) -> T {
        self.0.waiting.fetch_add(1, Ordering::SeqCst);
        let outcome = run();
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
        outcome
    }

    /// Opens the latch permanently, and releases all waiting threads.
    pub(crate) fn open(&self) {
        self.0.open.store(true, Ordering::SeqCst);
    }

    /// Waits until `threads` threads are blocked by the latch.
    pub(crate) fn until_waiting(&self, threads: usize) {
        until(|| self.0.waiting.load(Ordering::SeqCst) >= threads, "too few threads wait at the latch");
    }
}

/// Waits until a condition is true, and panics after about [`LONG`]. The time is measured by
/// counting sleeps, since a test may set the clock.
#[track_caller]
pub(crate) fn until(is_true: impl Fn() -> bool, otherwise: &str) {
    const SLEEP: Duration = Duration::from_micros(100);
    for _ in 0..LONG.as_micros() / SLEEP.as_micros() {
        if is_true() {
            return;
        }
        std::thread::sleep(SLEEP);
    }
    panic!("{otherwise}");
}

/// A flag that says whether a value was dropped. The value must own a [`DropGuard`] of the flag,
/// which sets it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dropped(Arc<AtomicBool>);

/// A guard that sets its [`Dropped`] when it is dropped.
pub(crate) struct DropGuard(Dropped);

impl Dropped {
    /// Returns a guard that the observed value must own.
    pub(crate) fn guard(&self) -> DropGuard {
        DropGuard(self.clone())
    }

    /// Whether the guard was dropped.
    pub(crate) fn is_dropped(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// Waits until the guard is dropped.
    pub(crate) fn until(&self) {
        until(|| self.is_dropped(), "the guard was never dropped");
    }
}

impl DropGuard {
    /// Whether a guard of the same [`Dropped`] was dropped already.
    pub(crate) fn is_dropped(&self) -> bool {
        self.0.is_dropped()
    }
}

impl Drop for DropGuard {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::SeqCst);
    }
}
