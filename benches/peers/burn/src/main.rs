//! burn's dataloader as a peer of the loader comparison: the program side of `slotline_benches::protocol`.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use burn_core::data::dataloader::batcher::Batcher;
use burn_core::data::dataloader::{DataLoader, DataLoaderBuilder};
use burn_core::data::dataset::{Dataset, DatasetError};
use burn_core::tensor::Device;
use clap::Parser;
use slotline_benches::protocol::{Answer, Request, serve};
use slotline_benches::workload::loaders::fresh_pages;
use slotline_benches::workload::{Plan, Source, Visit, visit};

/// The version of burn-core in Cargo.toml.
const VERSION: &str = "0.22.1";

/// The source of a workload as burn's dataset and batcher.
#[derive(Clone)]
struct Items<S>(S);

impl<S: Source> Dataset<S::Item> for Items<S> {
    fn get(&self, index: usize) -> Result<S::Item, DatasetError> {
        Ok(self.0.get(index))
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

impl<S: Source> Batcher<S::Item, S::Batch> for Items<S> {
    fn batch(&self, items: Vec<S::Item>, _: &Device) -> S::Batch {
        self.0.collate(items.into_iter())
    }
}

fn loader<S: Source>(source: &S, plan: &Plan) -> Arc<dyn DataLoader<S::Batch>> {
    let builder = DataLoaderBuilder::new(Items(source.clone()))
        .batch_size(plan.batch_size)
        .num_workers(plan.workers)
        .set_device(Device::capture());
    let builder = if plan.shuffle { builder.shuffle(42) } else { builder };
    builder.build(Items(source.clone()))
}

type Passes = Box<dyn FnMut() -> Result<Answer>>;

/// Returns a function that runs whole passes. The first pass checks every byte.
fn passes<S: Source>(source: S, plan: &Plan) -> Passes {
    let loader = loader(&source, plan);
    let mut warm = false;
    Box::new(move || {
        let start = Instant::now();
        let (mut batches, mut check) = (0, 0);
        for batch in loader.iter() {
            let batch = batch?;
            batches += 1;
            check += source.check(&batch);
            if !warm {
                source.verify(&batch)?;
            }
        }
        warm = true;
        Ok(Answer { batches, seconds: start.elapsed().as_secs_f64(), check })
    })
}

/// Returns a function that measures the time from building a loader to its first batch.
fn first<S: Source>(source: S, plan: Plan) -> Passes {
    Box::new(move || {
        let start = Instant::now();
        let loader = loader(&source, &plan);
        let batch = loader.iter().next().context("no batch")??;
        let seconds = start.elapsed().as_secs_f64();
        source.verify(&batch)?;
        Ok(Answer { batches: 1, seconds, check: source.check(&batch) })
    })
}

/// Runs passes of the source of this workload.
struct Burn<'a>(&'a Request);

impl Visit for Burn<'_> {
    type Output = Result<Passes>;

    fn visit<S: Source>(self, source: &S, plan: &Plan) -> Self::Output {
        match self.0.workload.as_str() {
            "jpegs" => bail!("this peer does not support this workload"),
            "first-batch" => {
                fresh_pages(true);
                Ok(first(source.clone(), *plan))
            }
            name if name.starts_with("slow-samples") && plan.in_order && (plan.workers > 0 || plan.batch_size == 1) => {
                bail!("burn's workers do not keep the order, and split the dataset in advance")
            }
            _ => Ok(passes(source.clone(), plan)),
        }
    }
}

fn main() -> Result<()> {
    let request = Request::parse();
    serve("burn", VERSION, || visit(&request.workload, request.workers, &request.data, Burn(&request))?)
}
