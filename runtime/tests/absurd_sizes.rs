//! Tests of sizes in options and data for which there is no memory. Each must be an error that says
//! a size, and must not end the process.

#![cfg(target_os = "linux")]

#[path = "support/sizes.rs"]
mod sizes;

use slotline::dataset::{Context, Dataset, FnDataset, from_fn, iter_fn, random_split};
use slotline::loader::{Builder, Samples};
use slotline::rng::Generator;
use slotline::sample::{Packed, PaddedToLongest};
use slotline::sampler::*;
use slotline::{BoxError, Loader};

use crate::sizes::{SIZES, each, text};

type Numbers = FnDataset<fn(usize, &mut Context) -> Result<i64, BoxError>>;

/// Builds a loader, and reads two batches of a pass.
macro_rules! load {
    ($builder:expr) => {{
        let mut loader = text($builder.build())?;
        text(loader.epoch())?.take(2).try_for_each(|batch| text(batch).map(|_| ()))
    }};
}

fn numbers(len: usize) -> Numbers {
    from_fn(len, |index, _| Ok(index as i64))
}

fn options(name: &str, set: impl Fn(Builder<Numbers>, usize) -> Builder<Numbers>) {
    for (workers, round_robin) in [(0, false), (2, false), (2, true)] {
        each(name, |size| {
            let builder = Loader::builder(numbers(1 << 60)).batch_size(4).num_workers(workers);
            load!(set(builder.round_robin(round_robin), size))
        });
    }
}

#[test]
fn no_option_of_a_loader_ends_the_process() {
    options("batch_size", |builder, size| builder.batch_size(size));
    options("hold", |builder, size| builder.hold(size));
    options("num_workers", |builder, size| builder.num_workers(size));
    options("shuffle", |builder, _| builder.shuffle(true));
    each("prefetch_factor", |size| load!(Loader::builder(numbers(9)).num_workers(2).prefetch_factor(size)));
    /// A dataset with bulk reads, whose samples have no bytes.
    struct Many;

    impl Dataset for Many {
        type Sample<'a> = [u8; 0];

        fn len(&self) -> usize {
            1 << 60
        }

        fn get<'a>(&'a self, _: usize, _: &'a mut Context) -> Result<[u8; 0], BoxError> {
            Ok([])
        }

        fn reads_many(&self) -> bool {
            true
        }
    }

    for workers in [0, 2] {
        each("batch_size of a bulk read", |size| load!(Loader::builder(Many).batch_size(size).num_workers(workers)));
        let stream = || Loader::iterable(iter_fn(|_| Ok((0..10_i64).map(Ok)))).num_workers(workers);
        each("batch_size of a stream", |size| load!(stream().batch_size(size)));
        each("hold of a stream", |size| load!(stream().batch_size(2).hold(size)));
        // Samples without bytes: the batches need no memory, but their lists of indices do.
        let hollow = || Loader::builder(from_fn(9, |_, _| Ok([0_u8; 0]))).batch_size(1).num_workers(workers);
        each("max_batch_size", |size| load!(hollow().batch_sampler_iter(size, || [[0_usize, 1]])));
        let collate = |samples: &mut Samples<'_, Numbers>| {
            samples.next();
            Ok(samples.len() as i64)
        };
        let builder = |size| Loader::builder(numbers(1 << 60)).batch_size(size).num_workers(workers).collate(collate);
        for size in SIZES {
            builder(size).build().unwrap().epoch().unwrap().next();
        }
        if workers > 0 {
            each("batch_size in processes", |size| load!(builder(size).processes()));
        }
    }
}

#[test]
fn no_size_of_a_field_ends_the_process() {
    for workers in [0, 2] {
        let padded = |size| from_fn(9, move |_, _| Ok(PaddedToLongest::owned(vec![1_u8], size)));
        each("padded", |size| load!(Loader::builder(padded(size)).batch_size(4).num_workers(workers)));
        let packed = |size| from_fn(9, move |_, _| Ok(Packed::new(&[1_u8], size)));
        each("packed", |size| load!(Loader::builder(packed(size)).batch_size(4).num_workers(workers)));
        let buffered = |size| from_fn(9, move |_, context: &mut Context| Ok(context.buffer::<f64>(size).len() as i64));
        each("buffer", |size| load!(Loader::builder(buffered(size)).num_workers(workers)));
    }
}

#[test]
fn no_size_of_a_sampler_ends_the_process() {
    fn draw<S: Sampler>(sampler: Result<S, SamplerError>) -> Result<(), String> {
        text(sampler.and_then(|mut sampler| sampler.order(&mut Generator::new(), &mut Order::default())))
    }
    let with_replacement = |size| RandomSampler::new(3)?.replacement(true).num_samples(size);
    each("RandomSampler", |size| draw(RandomSampler::new(size)));
    each("num_samples", |size| draw(with_replacement(size)));
    each("WeightedRandomSampler", |size| draw(WeightedRandomSampler::new([1.0, 2.0], size)));
    each("DistributedSampler", |size| draw(DistributedSampler::new(size, 2, 0)));
    each("random_split", |size| text(random_split(numbers(size), &[size - 1, 1][..], &mut Generator::new())));
    each("randperm", |size| text(Generator::new().randperm_into::<u64>(size, &mut Vec::new())));
}
