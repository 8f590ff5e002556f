//! The kinds of cases for which a loader is needed.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use slotline::dataset::{Context, IterableDataset, from_fn};
use slotline::loader::Builder;
use slotline::rng::manual_seed;
use slotline::{Batch, BoxError, Dataset, Error, Loader, WorkerInfo, worker_info};

use super::compare::same;
use super::{Drawn, some};

/// Locked while a loader draws from the process's default generator, since checks can run concurrently.
static DEFAULT_GENERATOR: Mutex<()> = Mutex::new(());

/// A case with passes of a loader over a map-style dataset of `n` samples. Each sample is its
/// index.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Map {
    n: usize,
    #[serde(deserialize_with = "Option::deserialize")] // The key is required, but can be null.
    batch_size: Option<usize>,
    shuffle: bool,
    drop_last: bool,
    num_workers: usize,
    persistent_workers: bool,
    /// `None`, for torch's default, if the key is missing.
    prefetch_factor: Option<usize>,
    seed: u64,
    generator: Drawn,
    len: Value,
    #[serde(deserialize_with = "some")]
    epochs: Vec<Value>,
}

impl Map {
    pub(crate) fn check(&self) -> Result<(), BoxError> {
        let _alone;
        if let Drawn::FromDefault = self.generator {
            _alone = DEFAULT_GENERATOR.lock().unwrap_or_else(PoisonError::into_inner);
        }
        let mut shared = self.builder().build()?;
        same("len", &self.len, &shared.len().into())?;
        for (number, torch) in self.epochs.iter().enumerate() {
            same(&format!("epochs[{number}]"), torch, &self.batches(shared.epoch()?)?)?;
        }
        let mut dealt = self.builder().round_robin(true).build()?;
        same("len, dealt out", &self.len, &dealt.len().into())?;
        for (number, torch) in self.epochs.iter().enumerate() {
            same(&format!("epochs[{number}], dealt out"), torch, &self.batches(dealt.epoch()?)?)?;
        }
        #[cfg(target_os = "linux")]
        if self.num_workers > 0 {
            let mut processes = self.builder().processes().build()?;
            same("len, by processes", &self.len, &processes.len().into())?;
            for (number, torch) in self.epochs.iter().enumerate() {
                same(&format!("epochs[{number}], by processes"), torch, &self.batches(processes.epoch()?)?)?;
            }
        }
        Ok(())
    }

    /// Returns a builder with the case's options, and sets the generator's seed.
    fn builder(&self) -> Builder<impl for<'a> Dataset<Sample<'a> = i64>> {
        let builder = Loader::builder(from_fn(self.n, |index, _| Ok(index as i64)))
            .batch_size(self.batch_size)
            .shuffle(self.shuffle)
            .drop_last(self.drop_last)
            .persistent_workers(self.persistent_workers);
        let builder = workers(builder, self.num_workers, self.prefetch_factor);
        match self.generator {
            Drawn::FromGiven => builder.seed(self.seed),
            Drawn::FromDefault => {
                manual_seed(self.seed);
                builder
            }
        }
    }

    /// Returns the batches of a pass, and checks that the samples of each are those of its indices.
    fn batches(&self, pass: impl Iterator<Item = Result<Batch<i64>, Error>>) -> Result<Value, BoxError> {
        let mut batches = Vec::new();
        for batch in pass {
            let batch = batch?;
            same("the samples", &batch.indices().into(), &batch.tensors().as_slice().into())?;
            batches.push(in_torchs_form(batch.indices(), self.batch_size));
        }
        Ok(batches.into())
    }
}

/// A case with passes of a loader over an iterable dataset.
#[derive(Debug, Deserialize)]
pub(crate) struct Iterable {
    /// The dataset. A key that is neither in it nor in this struct is an error.
    #[serde(flatten)]
    dataset: Numbers,
    #[serde(deserialize_with = "Option::deserialize")] // The key is required, but can be null.
    batch_size: Option<usize>,
    num_workers: usize,
    drop_last: bool,
    /// `None`, for torch's default, if the key is missing.
    prefetch_factor: Option<usize>,
    #[serde(deserialize_with = "some")]
    epochs: Vec<Vec<Value>>,
}

/// An iterable dataset of numbers.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "dataset", rename_all = "snake_case", deny_unknown_fields)]
enum Numbers {
    /// The numbers 0 .. n, of which each worker has a contiguous piece of ceil(n / workers).
    Sharded { n: usize },
    /// `sizes[w]` numbers for each worker w, starting at 1000 w.
    Uneven { sizes: Vec<usize> },
}

impl IterableDataset for Numbers {
    type Sample<'a> = i64;
    type Cursor = Range<usize>;

    fn iter(&self, worker: Option<WorkerInfo>) -> Result<Range<usize>, BoxError> {
        let (id, workers) = worker.map_or((0, 1), |worker| (worker.id(), worker.num_workers()));
        Ok(match self {
            Self::Sharded { n } => {
                let piece = n.div_ceil(workers);
                (id * piece).min(*n)..((id + 1) * piece).min(*n)
            }
            Self::Uneven { sizes } => {
                let size = sizes.get(id).ok_or("there are more workers than sizes")?;
                1000 * id..(1000 * id).saturating_add(*size)
            }
        })
    }

    fn next(&self, cursor: &mut Range<usize>, _: &mut Context) -> Result<Option<i64>, BoxError> {
        Ok(cursor.next().map(|number| number as i64))
    }
}

impl Iterable {
    pub(crate) fn check(&self) -> Result<(), BoxError> {
        let builder = Loader::iterable(self.dataset.clone()).batch_size(self.batch_size).drop_last(self.drop_last);
        let mut loader = workers(builder, self.num_workers, self.prefetch_factor).build()?;
        for (number, torch) in self.epochs.iter().enumerate() {
            let mut batches = Vec::new();
            // Takes at most one batch more than torch has, since a faulty loader might never end.
            for batch in loader.epoch()?.take(torch.len() + 1) {
                batches.push(in_torchs_form(batch?.tensors().as_slice(), self.batch_size));
            }
            same(&format!("epochs[{number}]"), &torch.clone().into(), &batches.into())?;
        }
        Ok(())
    }
}

/// Returns a batch in torch's form: with `batch_size = None` a sample has no batch dimension.
fn in_torchs_form(batch: &[i64], batch_size: Option<usize>) -> Value {
    if batch_size.is_some() { batch.into() } else { batch[0].into() }
}

/// Sets the number of workers and, if given, the prefetch factor.
fn workers<D>(builder: Builder<D>, workers: usize, prefetch_factor: Option<usize>) -> Builder<D> {
    let builder = builder.num_workers(workers);
    match prefetch_factor {
        Some(factor) => builder.prefetch_factor(factor),
        None => builder,
    }
}

/// A case with the id and the seed of each worker in each pass.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Seeds {
    num_workers: usize,
    seed: u64,
    #[serde(deserialize_with = "some")]
    epochs: Vec<Value>,
}

impl Seeds {
    pub(crate) fn check(&self) -> Result<(), BoxError> {
        // Each worker reads exactly one sample, as it waits until every worker has one.
        let (workers, all) = (self.num_workers, Barrier::new(self.num_workers));
        let seeds = from_fn(workers, move |_, _| {
            // The sample that is read to determine the fields is not read by a worker.
            let Some(worker) = worker_info() else { return Ok([0; 2]) };
            all.wait();
            Ok([worker.id() as u64, worker.seed()])
        });
        // With a timeout the calling thread reads no samples, and if a worker gets none, the pass
        // fails instead of hanging.
        let builder = Loader::builder(seeds).batch_size(None).num_workers(workers).timeout(Duration::from_secs(60));
        let mut loader = builder.seed(self.seed).build()?;
        for (number, torch) in self.epochs.iter().enumerate() {
            let mut seen = BTreeSet::new();
            for sample in loader.epoch()? {
                seen.insert(sample?.tensors().as_slice().to_vec());
            }
            same(&format!("epochs[{number}]"), torch, &seen.into_iter().collect())?;
        }
        Ok(())
    }
}
