//! What the tests of the loader share: a dataset that knows what it should give, the plain loop that a loader must
//! agree with, and a latch to hold up a worker.
#![allow(dead_code)] // Each test binary uses some of it.

use std::fmt::Write;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use slotline::BoxError;
use slotline::dataset::{Context, Dataset, FnDataset, IterableDataset};
use slotline::loader::{Affinity, Batch, Builder};
use slotline::rng::rand_core::Rng;
use slotline::rng::{Generator, SampleRng};
use slotline::sample::Sample;
use slotline::{Loader, WaitStrategy, WorkerInfo};

/// Long enough for any machine: what takes longer hangs.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// A sample: its index, bytes made from it, and the first of its random numbers.
pub(crate) type Item = (i64, [[u8; 3]; 2], u64);

/// The bytes of a sample.
pub(crate) fn pixels(index: usize) -> [[u8; 3]; 2] {
    let byte = |i: usize| (index.wrapping_mul(31).wrapping_add(i * 7) >> (i % 3)) as u8;
    [[byte(0), byte(1), byte(2)], [byte(3), byte(4), byte(5)]]
}

/// What computes a sample from its index.
pub(crate) type Get<S> = dyn Fn(usize, &mut Context) -> Result<S, BoxError> + Send + Sync;

/// As [`slotline::dataset::from_fn`], but of one type for each type of samples, so that the loaders of all tests with such samples are
/// compiled once.
pub(crate) fn from_fn<S: Sample + 'static>(
    len: usize,
    get: impl Fn(usize, &mut Context) -> Result<S, BoxError> + Send + Sync + 'static,
) -> FnDataset<impl Fn(usize, &mut Context) -> Result<S, BoxError> + Clone + Send + Sync + 'static> {
    erased(len, Arc::new(get))
}

fn erased<S: Sample + 'static>(
    len: usize,
    get: Arc<Get<S>>,
) -> FnDataset<impl Fn(usize, &mut Context) -> Result<S, BoxError> + Clone + Send + Sync + 'static> {
    slotline::dataset::from_fn(len, move |index, cx| get(index, cx))
}

/// `len` samples; `work` is called before each.
pub(crate) fn items(
    len: usize,
    work: impl Fn(usize, &mut Context) -> Result<(), BoxError> + Send + Sync + 'static,
) -> impl Dataset + for<'a> DatasetOf<'a, Item> {
    from_fn(len, move |index, cx| {
        work(index, cx)?;
        Ok((index as i64, pixels(index), cx.rng().next_u64()))
    })
}

/// A dataset whose samples are `S`, as far as the compiler must know.
pub(crate) trait DatasetOf<'a, S>: Dataset<Sample<'a> = S> {}
impl<'a, S, D: Dataset<Sample<'a> = S>> DatasetOf<'a, S> for D {}

/// The samples of a dataset one after the other, shared out among the workers, with cursors that save themselves.
pub(crate) struct OneByOne<D>(pub(crate) D);

impl<D: Dataset> IterableDataset for OneByOne<D> {
    type Sample<'a> = D::Sample<'a>;
    type Cursor = Range<usize>;

    fn iter(&self, worker: Option<WorkerInfo>) -> Result<Range<usize>, BoxError> {
        Ok(worker.map_or(0..self.0.len(), |worker| worker.share(self.0.len())))
    }

    fn next<'a>(
        &'a self,
        left: &'a mut Range<usize>,
        cx: &'a mut Context,
    ) -> Result<Option<Self::Sample<'a>>, BoxError> {
        left.next().map(|index| self.0.get(index, cx)).transpose()
    }

    fn save(&self, left: &Range<usize>, to: &mut String) -> bool {
        write!(to, "{}..{}", left.start, left.end).is_ok()
    }

    fn resume(&self, _: Option<WorkerInfo>, saved: &str) -> Result<Range<usize>, BoxError> {
        let (start, end) = saved.split_once("..").ok_or("a range")?;
        Ok(start.parse()?..end.parse()?)
    }
}

/// Takes an unpredictable time for some samples, so that workers finish out of order.
pub(crate) fn dawdle(index: usize, cx: &Context) {
    let seed = index as u64 ^ (cx.worker().map_or(9, |id| id as u64) << 20) ^ (u64::from(cx.epoch()) << 40);
    match SampleRng::new(seed, 0, 0).next_u32() % 16 {
        0 => std::thread::sleep(Duration::from_micros(150)),
        1..4 => (0..2_000).for_each(|_| std::hint::spin_loop()),
        4..7 => std::thread::yield_now(),
        _ => {}
    }
}

/// As [`dawdle`], for the work of [`items`].
pub(crate) fn dawdling(index: usize, cx: &mut Context) -> Result<(), BoxError> {
    dawdle(index, cx);
    Ok(())
}

/// What decides the batches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) len: usize,
    pub(crate) batch_size: usize,
    pub(crate) drop_last: bool,
    pub(crate) shuffle: bool,
    pub(crate) seed: u64,
}

/// What must not decide them.
#[derive(Clone, Debug)]
pub(crate) struct How {
    pub(crate) workers: usize,
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
        Self { workers: 2, prefetch: 2, part_size, hold: 1, wait, help: true, affinity }
    }
}

impl How {
    /// The builder with these options.
    pub(crate) fn set<D: Dataset, C>(&self, builder: Builder<D, C>) -> Builder<D, C> {
        let builder = prefetch(builder, self.workers, self.prefetch).hold(self.hold);
        let builder = builder.wait_strategy(self.wait).help(self.help).affinity(self.affinity.clone());
        match self.part_size {
            Some(part_size) => builder.part_size(part_size),
            None => builder,
        }
    }
}

/// Sets the prefetch factor; without workers it would be an error.
pub(crate) fn prefetch<D, C>(builder: Builder<D, C>, workers: usize, factor: usize) -> Builder<D, C> {
    let builder = builder.num_workers(workers);
    if workers > 0 { builder.prefetch_factor(factor) } else { builder }
}

impl Run {
    /// A builder with these options over `dataset`.
    pub(crate) fn over<D: Dataset>(&self, dataset: D) -> Builder<D> {
        let builder = Loader::builder(dataset).batch_size(self.batch_size).drop_last(self.drop_last);
        builder.shuffle(self.shuffle).seed(self.seed)
    }

    /// The batches of so many passes, by a plain loop: torch's way of drawing, one thread, nothing ahead of time.
    pub(crate) fn expected(&self, epochs: u32) -> Vec<Vec<Got>> {
        let mut generator = Generator::from_seed(self.seed);
        let mut pass = |epoch| {
            let base = generator.random_i64() as u64;
            let mut order: Vec<u64> = (0..self.len as u64).collect();
            if self.shuffle {
                generator.randperm_into(self.len, &mut order).unwrap();
                // The permutation of which a whole pass uses nothing (see RandomSampler).
                generator.randperm_into(self.len, &mut Vec::<u64>::new()).unwrap();
            }
            let mut batches = Vec::new();
            for (task, indices) in order.chunks(self.batch_size).enumerate() {
                if indices.len() < self.batch_size && self.drop_last {
                    break;
                }
                let first = task * self.batch_size.min(self.len);
                let word = |row: usize| SampleRng::new(base, epoch, (first + row) as u64).next_u64();
                batches.push(Got {
                    task,
                    epoch,
                    indices: indices.iter().map(|&index| index as i64).collect(),
                    pixels: indices.iter().flat_map(|&index| pixels(index as usize)).flatten().collect(),
                    words: (0..indices.len()).map(word).collect(),
                });
            }
            batches
        };
        (0..epochs).map(&mut pass).collect()
    }
}

/// All that a batch says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Got {
    pub(crate) task: usize,
    pub(crate) epoch: u32,
    pub(crate) indices: Vec<i64>,
    pub(crate) pixels: Vec<u8>,
    pub(crate) words: Vec<u64>,
}

impl Got {
    /// Reads a batch of [`items`].
    #[track_caller]
    pub(crate) fn from<S>(batch: &Batch<S>) -> Self {
        let columns = batch.columns();
        let typed = |i: usize| columns.get(i).unwrap();
        let (numbers, bytes, words) = (typed(0), typed(1), typed(2));
        assert_eq!(bytes.shape(), [batch.len(), 2, 3]);
        assert_eq!(numbers.typed::<i64>().unwrap().as_slice(), batch.indices());
        Self {
            task: batch.task(),
            epoch: batch.epoch(),
            indices: batch.indices().to_vec(),
            pixels: bytes.typed::<u8>().unwrap().as_slice().to_vec(),
            words: words.typed::<u64>().unwrap().as_slice().to_vec(),
        }
    }
}

/// A pass of a loader over [`items`], which must go without an error.
#[track_caller]
pub(crate) fn pass<S>(loader: &mut Loader<Batch<S>>) -> Vec<Got> {
    loader.epoch().unwrap().map(|batch| Got::from(&batch.unwrap())).collect()
}

/// Closed until it is opened; whoever waits longer than [`LONG`] panics, so that no test hangs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Latch(Arc<(Mutex<State>, Condvar)>);

#[derive(Debug, Default)]
struct State {
    open: bool,
    waiting: usize,
}

impl Latch {
    /// Waits until it is open.
    pub(crate) fn wait(&self) {
        let (state, changed) = &*self.0;
        let mut guard = state.lock().unwrap();
        guard.waiting += 1;
        changed.notify_all();
        let (mut guard, timeout) = changed.wait_timeout_while(guard, LONG, |state| !state.open).unwrap();
        guard.waiting -= 1;
        drop(guard);
        assert!(!timeout.timed_out(), "the latch was never opened");
    }

    /// Lets everybody through, from now on.
    pub(crate) fn open(&self) {
        self.0.0.lock().unwrap().open = true;
        self.0.1.notify_all();
    }

    /// Waits until so many threads wait here.
    pub(crate) fn until_waiting(&self, threads: usize) {
        let (state, changed) = &*self.0;
        let guard = state.lock().unwrap();
        let (guard, timeout) = changed.wait_timeout_while(guard, LONG, |state| state.waiting < threads).unwrap();
        drop(guard);
        assert!(!timeout.timed_out(), "too few threads came to the latch");
    }
}

/// Whether something is gone, as what it owns says when it is dropped.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gone(Arc<AtomicBool>);

/// What says so.
pub(crate) struct Telltale(Gone);

impl Gone {
    /// To be owned by what is watched.
    pub(crate) fn telltale(&self) -> Telltale {
        Telltale(self.clone())
    }

    /// Whether it is.
    pub(crate) fn is_gone(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// Waits until it is.
    pub(crate) fn until(&self) {
        let begun = std::time::Instant::now();
        while !self.is_gone() {
            assert!(begun.elapsed() < LONG, "the worker never went");
            std::thread::yield_now();
        }
    }
}

impl Telltale {
    /// Whether it has said so already.
    pub(crate) fn is_gone(&self) -> bool {
        self.0.is_gone()
    }
}

impl Drop for Telltale {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::SeqCst);
    }
}
