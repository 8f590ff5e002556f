//! Whole loaders.

use std::collections::BTreeSet;
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use slotline::dataset::from_fn;
use slotline::rng::manual_seed;
use slotline::{BoxError, Loader, worker_info};

use super::compare::same;
use super::{Drawn, some};

/// Kept while a loader draws from the process's default generator, since checks may run at the same time.
static DEFAULT_GENERATOR: Mutex<()> = Mutex::new(());

/// Passes of a loader over a map-style dataset of `n` samples, each its own index.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Map {
    n: usize,
    #[serde(deserialize_with = "Option::deserialize")] // Must be there, if only as null.
    batch_size: Option<usize>,
    shuffle: bool,
    drop_last: bool,
    num_workers: usize,
    persistent_workers: bool,
    /// torch's default where it isn't said.
    prefetch_factor: Option<usize>,
    seed: u64,
    generator: Drawn,
    len: Value,
    #[serde(deserialize_with = "some")]
    epochs: Vec<Value>,
}

impl Map {
    pub(crate) fn check(&self) -> Result<(), BoxError> {
        let mut builder = Loader::builder(from_fn(self.n, |index, _| Ok(index as i64)))
            .batch_size(self.batch_size)
            .shuffle(self.shuffle)
            .drop_last(self.drop_last)
            .num_workers(self.num_workers)
            .persistent_workers(self.persistent_workers);
        if let Some(factor) = self.prefetch_factor {
            builder = builder.prefetch_factor(factor);
        }
        let _alone;
        match self.generator {
            Drawn::FromGiven => builder = builder.seed(self.seed),
            Drawn::FromDefault => {
                _alone = DEFAULT_GENERATOR.lock().unwrap_or_else(PoisonError::into_inner);
                manual_seed(self.seed);
            }
        }
        let mut loader = builder.build()?;
        same("len", &self.len, &loader.len().into())?;
        for (number, torch) in self.epochs.iter().enumerate() {
            let mut batches: Vec<Value> = Vec::new();
            for batch in loader.epoch()? {
                let batch = batch?;
                let indices = batch.tensors().as_slice();
                same("the samples", &batch.indices().into(), &indices.into())?;
                // Without batches a sample has no dimension.
                batches.push(if self.batch_size.is_some() { indices.into() } else { indices[0].into() });
            }
            same(&format!("epochs[{number}]"), torch, &batches.into())?;
        }
        Ok(())
    }
}

/// The number and the seed of each worker, pass after pass.
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
        // Each worker gets one sample: it keeps it until all workers have theirs.
        let (workers, all) = (self.num_workers, Barrier::new(self.num_workers));
        let seeds = from_fn(workers, move |_, _| {
            // Nobody's worker reads a sample to learn the fields.
            let Some(worker) = worker_info() else { return Ok([0; 2]) };
            all.wait();
            Ok([worker.id as u64, worker.seed])
        });
        // With a timeout the calling thread takes no sample, and a worker that never comes is an error.
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
