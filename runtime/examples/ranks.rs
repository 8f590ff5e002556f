//! Distributed training: each rank has a loader, and all share one pass.
//!
//! `cargo run --example ranks`

use slotline::dataset::from_fn;
use slotline::rng::rand_core::Rng;
use slotline::sampler::{DistributedSampler, EpochHandle};
use slotline::{Batch, BoxError, Loader};

/// Samples in the dataset: an odd number, so that two ranks cannot have equally many different ones.
const SAMPLES: usize = 101;

/// A sample is its index and a random number, for augmentation.
type RankLoader = Loader<Batch<(i64, u64)>>;

/// The loader of one rank, and the epoch of its sampler.
fn loader(rank: usize, ranks: usize) -> Result<(RankLoader, EpochHandle), BoxError> {
    let dataset = from_fn(SAMPLES, |index, cx| Ok((index as i64, cx.rng().next_u64())));
    // All ranks must have the same seeds: the sampler's for the order, the loader's for augmentation.
    let sampler = DistributedSampler::new(SAMPLES, ranks, rank)?.seed(42);
    let epoch = sampler.epoch(); // The loader takes the sampler; this sets its epoch later.
    let loader = Loader::builder(dataset).batch_size(8).sampler(sampler).seed(7).num_workers(1).build()?;
    Ok((loader, epoch))
}

/// One epoch of one rank, as a process of its own would go through it.
fn epoch(rank: usize, ranks: usize) -> Result<Vec<(i64, u64)>, BoxError> {
    let (mut loader, epoch) = loader(rank, ranks)?;
    epoch.set(loader.next_epoch().into()); // Before each epoch, as in torch; else all have the same order.
    let mut samples = Vec::new();
    for batch in loader.epoch()? {
        let batch = batch?;
        let (indices, random) = batch.tensors();
        samples.extend(indices.as_slice().iter().copied().zip(random.as_slice().iter().copied()));
    }
    Ok(samples)
}

fn main() -> Result<(), BoxError> {
    let (first, second) = (epoch(0, 2)?, epoch(1, 2)?);
    assert_eq!(first.len(), second.len(), "equally many, so that no rank waits for another one's step");
    println!("two ranks have {} samples each", first.len());

    // Taken in turn, they are what one rank alone has: the same samples in the same order, with the same random numbers.
    let alone = epoch(0, 1)?;
    let both: Vec<_> = first.into_iter().zip(second).flat_map(|(first, second)| [first, second]).collect();
    assert_eq!(both[..SAMPLES], alone);
    // One comes twice, to make the counts equal (`drop_last` would drop one instead).
    assert_eq!(both[SAMPLES].0, both[0].0);
    println!("together they have what one rank alone would have, with the same augmentation");
    Ok(())
}
