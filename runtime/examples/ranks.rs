//! Distributed training, in which each rank has its own loader, and each pass is distributed among
//! the ranks.
//!
//! `cargo run --example ranks`

use slotline::dataset::from_fn;
use slotline::rng::rand_core::Rng;
use slotline::sampler::{DistributedSampler, EpochHandle};
use slotline::{Batch, BoxError, Loader};

/// The number of samples. It is odd, so that it cannot be divided equally between two ranks.
const SAMPLES: usize = 101;

/// The loader of one rank. A sample is its index, and a random number for augmentation.
type RankLoader = Loader<Batch<(i64, u64)>>;

/// Returns the loader of one rank, and the handle that sets the epoch of its sampler.
fn loader(rank: usize, ranks: usize) -> Result<(RankLoader, EpochHandle), BoxError> {
    let dataset = from_fn(SAMPLES, |index, cx| Ok((index as i64, cx.rng().next_u64())));
    // All ranks must use the same seeds: the sampler's for the order, the loader's for augmentation.
    let sampler = DistributedSampler::new(SAMPLES, ranks, rank)?.seed(42);
    let epoch = sampler.epoch(); // The loader takes ownership of the sampler, but the handle can still set its epoch.
    let loader = Loader::builder(dataset).batch_size(8).sampler(sampler).seed(7).num_workers(1).build()?;
    Ok((loader, epoch))
}

/// Returns the samples of one epoch of one rank. In a real program each rank is a separate process.
fn epoch(rank: usize, ranks: usize) -> Result<Vec<(i64, u64)>, BoxError> {
    let (mut loader, epoch) = loader(rank, ranks)?;
    epoch.set(loader.next_epoch().into()); // Set before each epoch, as in torch; otherwise all epochs have the same order.
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
    assert_eq!(first.len(), second.len(), "each rank has as many samples, so that no rank waits for another");
    println!("two ranks have {} samples each", first.len());

    // Interleaved, the samples of both ranks equal those of a single rank: the same order and the
    // same random numbers.
    let alone = epoch(0, 1)?;
    let both: Vec<_> = first.into_iter().zip(second).flat_map(|(first, second)| [first, second]).collect();
    assert_eq!(both[..SAMPLES], alone);
    // One sample is repeated to make the counts equal (`drop_last` would drop one instead).
    assert_eq!(both[SAMPLES].0, both[0].0);
    println!("together they have the samples of a single rank, with the same augmentation");
    Ok(())
}
