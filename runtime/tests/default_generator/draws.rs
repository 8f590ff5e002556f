//! Tests of the draws of loaders and `random_split` from the default generator, compared with
//! torch's results.

use std::sync::Arc;

use slotline::dataset::{Subset, from_fn, random_split};
use slotline::loader::Builder;
use slotline::rng::{Generator, SharedGenerator, default_generator, manual_seed};
use slotline::sampler::{BatchSampler, DistributedSampler, RandomSampler, SubsetRandomSampler, WeightedRandomSampler};
use slotline::{Batch, Dataset, Error, Loader};

/// Returns the samples of each batch of a pass.
fn batches(pass: impl Iterator<Item = Result<Batch<i64>, Error>>) -> Vec<Vec<i64>> {
    pass.map(|batch| batch.unwrap().tensors().as_slice().to_vec()).collect()
}

/// Checks two passes of each kind of loader after `manual_seed(42)`, and the next number of the
/// default generator after them.
fn check<D>(builder: impl Fn() -> Builder<D>, passes: [&[&[i64]]; 2], next: i64)
where
    D: for<'a> Dataset<Sample<'a> = i64>,
{
    for workers in [0, 2] {
        manual_seed(42);
        let mut shared = builder().num_workers(workers).build().unwrap();
        passes.iter().for_each(|pass| assert_eq!(batches(shared.epoch().unwrap()), *pass, "{workers} workers"));
        assert_eq!(default_generator().random_i64(), next, "{workers} workers");
        manual_seed(42);
        let mut round_robin = builder().num_workers(workers).round_robin(true).build().unwrap();
        passes.iter().for_each(|pass| {
            assert_eq!(batches(round_robin.epoch().unwrap()), *pass, "{workers} workers, round_robin")
        });
        assert_eq!(default_generator().random_i64(), next, "{workers} workers, round_robin");
    }
}

#[test]
fn a_pass_draws_a_base_seed_and_then_its_order() {
    let _alone = crate::alone();
    let ten = || Loader::builder(from_fn(10, |index, _| Ok(index as i64)));
    let fours = || ten().batch_size(4);
    let in_order: &[&[i64]] = &[&[0, 1, 2, 3], &[4, 5, 6, 7], &[8, 9]];
    let random = || RandomSampler::new(10).unwrap();
    let odd = || SubsetRandomSampler::new([9, 7, 5, 3, 1]);

    check(fours, [in_order; 2], 4279532810384561223);
    let shuffled: [&[&[i64]]; 2] = [&[&[8, 0, 9, 1], &[4, 5, 6, 3], &[2, 7]], &[&[4, 6, 9, 3], &[7, 5, 2, 0], &[1, 8]]];
    check(|| fours().shuffle(true), shuffled, 2878035897379592313);
    check(|| fours().sampler(random()), shuffled, 2878035897379592313);
    check(
        || fours().sampler(random().replacement(true).num_samples(6).unwrap()),
        [&[&[8, 9, 1, 3], &[6, 0]], &[&[4, 9, 9, 1], &[7, 5]]],
        2878035897379592313,
    );
    check(|| fours().sampler(odd()), [&[&[7, 3, 5, 1], &[9]], &[&[9, 5, 3, 7], &[1]]], 1071453510346823114);
    check(
        || fours().sampler(WeightedRandomSampler::new([0.1, 0.9, 0.4, 0.7, 3.0, 0.6], 5).unwrap()),
        [&[&[1, 1, 1, 4], &[4]], &[&[5, 1, 1, 1], &[4]]],
        6132484236315524509,
    );
    check(
        || ten().batch_sampler(BatchSampler::new(random(), 4, true).unwrap()),
        [&[&[8, 0, 9, 1], &[4, 5, 6, 3]], &[&[4, 6, 9, 3], &[7, 5, 2, 0]]],
        2878035897379592313,
    );
    check(
        || ten().batch_sampler(BatchSampler::new(odd(), 2, false).unwrap()),
        [&[&[7, 3], &[5, 1], &[9]], &[&[9, 5], &[3, 7], &[1]]],
        1071453510346823114,
    );
    // These samplers have their own generators, so the loader draws only the base seeds from the
    // default generator.
    check(
        || fours().sampler(DistributedSampler::new(10, 3, 0).unwrap().seed(42)),
        [&[&[2, 8, 0, 7]]; 2],
        4279532810384561223,
    );
    check(
        || fours().sampler(random().generator(Generator::from_seed(1))),
        [&[&[5, 6, 1, 2], &[0, 8, 9, 3], &[7, 4]], &[&[2, 8, 1, 5], &[6, 9, 3, 7], &[0, 4]]],
        4279532810384561223,
    );

    // Two loaders draw from the same generator, each when its pass begins, even if their passes
    // overlap, as torch's loaders with workers do.
    manual_seed(42);
    let mut loaders = [0, 1].map(|_| ten().batch_size(None).shuffle(true).num_workers(1).build().unwrap());
    let passes = loaders.each_mut().map(|loader| loader.epoch().unwrap());
    let orders = passes.map(|pass| batches(pass).concat());
    assert_eq!(orders, [[8, 0, 9, 1, 4, 5, 6, 3, 2, 7], [4, 6, 9, 3, 7, 5, 2, 0, 1, 8]]);
}

/// Returns the indices of each part of a split.
fn indices<D>(parts: &[Subset<Arc<D>>]) -> Vec<Vec<usize>> {
    parts.iter().map(|part| part.indices().collect()).collect()
}

#[test]
fn random_split_draws_from_any_generator() {
    let _alone = crate::alone();
    let golden = [vec![2, 6, 1], vec![8, 4, 5, 0, 9, 3, 7]];
    let ten = || from_fn(10, |index, _| Ok(index as i64));
    manual_seed(42);
    assert_eq!(indices(&random_split(ten(), &[3, 7], &mut default_generator()).unwrap()), golden);
    assert_eq!(default_generator().drawn(), 9);
    let shared = SharedGenerator::from(Generator::from_seed(42));
    assert_eq!(indices(&random_split(ten(), &[0.3, 0.7], &mut shared.lock()).unwrap()), golden);
    assert_eq!(shared.lock().drawn(), 9);
}
