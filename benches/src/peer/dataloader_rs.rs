//! The crate dataloader-rs as a contender.

use anyhow::{Context, Result, anyhow};
use dataloader_rs::sampler::{RandomSampler, Sampler, SequentialSampler};
use dataloader_rs::{Collator, DataLoader, Dataset};

use super::checked;
use crate::rounds::Contender;
use crate::workload::{Plan, Source};

#[derive(Debug)]
struct Items<S>(S);

impl<S: Source> Dataset for Items<S> {
    type Item = S::Item;

    fn get(&self, index: usize) -> dataloader_rs::Result<S::Item> {
        Ok(self.0.get(index))
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

impl<S: Source> Collator<S::Item> for Items<S> {
    type Batch = S::Batch;

    fn collate(&self, items: Vec<S::Item>) -> dataloader_rs::Result<S::Batch> {
        Ok(self.0.collate(items.into_iter()))
    }
}

/// A sampler of dataloader-rs, sequential or random, behind one type.
struct Either(Box<dyn Sampler>);

impl Sampler for Either {
    fn indices(&mut self, dataset_len: usize) -> Vec<usize> {
        self.0.indices(dataset_len)
    }
}

type Loader<S> = DataLoader<Items<S>, Either, Items<S>>;

fn loader<S: Source>(source: &S, plan: &Plan) -> Loader<S> {
    let sampler: Box<dyn Sampler> =
        if plan.shuffle { Box::new(RandomSampler::new(42)) } else { Box::new(SequentialSampler) };
    let builder = DataLoader::builder(Items(source.clone()))
        .batch_size(plan.batch_size)
        .sampler(Either(sampler))
        .collator(Items(source.clone()))
        .num_workers(plan.workers);
    match plan.prefetch {
        Some(prefetch) => builder.prefetch_depth(prefetch * plan.workers).build(),
        None => builder.build(),
    }
}

/// Returns a contender whose loader has run one pass, in which every batch was checked.
pub fn contender<S: Source>(source: &S, plan: &Plan) -> Result<Contender> {
    let mut loader = loader(source, plan);
    checked(source, plan, move |each| loader.iter().try_for_each(|batch| each(batch.map_err(|error| anyhow!(error))?)))
}

/// Returns a fresh loader and its first batch.
pub fn first<S: Source>(source: &S, plan: &Plan) -> Result<(impl Sized + use<S>, S::Batch)> {
    let mut loader = loader(source, plan);
    let batch = loader.iter().next().context("no batch")?.map_err(|error| anyhow!(error))?;
    Ok((loader, batch))
}
