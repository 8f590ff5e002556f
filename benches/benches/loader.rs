//! The cost of the loader per batch, and of a gather compared with a plain loop.
//!
//! Times are per batch over whole passes, with one batch alive at a time. Run with `cargo bench`.
#![allow(missing_docs)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use slotline::array::Array;
use slotline::dataset::{TensorDataset, from_fn, iter_fn};
use slotline::loader::Batch;
use slotline::rng::Generator;
use slotline::sampler::{RandomSampler, Sampler};
use slotline::{Error, Loader};

const WORKERS: [usize; 3] = [0, 1, 2];

/// A loader of either kind.
trait Passes {
    type Batch;

    /// Runs one pass. Returns its number of batches and how long they took.
    fn pass(&mut self, each: impl FnMut(&Self::Batch)) -> (u64, Duration);
}

/// Times the batches of a pass that has started.
fn timed<B>(pass: impl Iterator<Item = Result<B, Error>>, mut each: impl FnMut(&B)) -> (u64, Duration) {
    let (start, mut seen) = (Instant::now(), 0);
    for batch in pass {
        each(&batch.unwrap());
        seen += 1;
    }
    (seen, start.elapsed())
}

impl<S> Passes for Loader<Batch<S>> {
    type Batch = Batch<S>;

    fn pass(&mut self, each: impl FnMut(&Batch<S>)) -> (u64, Duration) {
        timed(self.epoch().unwrap(), each)
    }
}

/// Times whole passes until they have at least `batches` batches. Returns the time scaled to `batches` batches.
fn passes<L: Passes>(loader: &mut L, batches: u64, mut each: impl FnMut(&L::Batch)) -> Duration {
    let (mut seen, mut time) = (0, Duration::ZERO);
    while seen < batches {
        let (more, took) = loader.pass(&mut each);
        seen += more;
        time += took;
    }
    time.mul_f64(batches as f64 / seen as f64)
}

/// Runs one pass of a loader and returns the loader.
fn warm<L: Passes>(mut loader: L) -> L {
    passes(&mut loader, 1, |_| ());
    loader
}

/// Batches of one number, which measure only the engine.
fn zero_cost(c: &mut Criterion) {
    let mut group = c.benchmark_group("zero-cost batches");
    for workers in WORKERS {
        let dataset = from_fn(200_000, |index, _| Ok(index as i64));
        let mut loader = warm(Loader::builder(dataset).num_workers(workers).build().unwrap());
        group.bench_function(BenchmarkId::new("workers", workers), |b| {
            b.iter_custom(|batches| passes(&mut loader, batches, |batch| drop(black_box(batch.tensors()))));
        });
    }
    group.finish();
}

/// Batches of one number of an iterable dataset, through a ring for each worker.
fn zero_cost_iterable(c: &mut Criterion) {
    let mut group = c.benchmark_group("zero-cost batches of an iterable dataset");
    for workers in WORKERS {
        let dataset =
            iter_fn(|worker| Ok(worker.map_or(0..200_000, |worker| worker.share(200_000)).map(|i| Ok(i as i64))));
        let mut loader = warm(Loader::iterable(dataset).num_workers(workers).build().unwrap());
        group.bench_function(BenchmarkId::new("workers", workers), |b| {
            b.iter_custom(|batches| passes(&mut loader, batches, |batch| drop(black_box(batch.tensors()))));
        });
    }
    group.finish();
}

const IMAGES: usize = 60_000;
const PIXELS: usize = 28 * 28;
const BATCH: usize = 64;

/// 64 of 60,000 images of 28 × 28 bytes with their labels, in random order.
fn gather(c: &mut Criterion) {
    let mut group = c.benchmark_group("shuffled gather of 64 x 784 bytes");
    group.throughput(Throughput::Bytes((BATCH * (PIXELS + 8)) as u64));
    let images: Vec<u8> = (0..IMAGES * PIXELS).map(|i| (i * 31 % 251) as u8).collect();
    let labels: Vec<i64> = (0..IMAGES as i64).collect();

    let mut generator = Generator::from_seed(42);
    let order: Vec<usize> = {
        let mut sampler = RandomSampler::new(IMAGES).unwrap().generator(generator.clone());
        sampler.indices().unwrap().collect()
    };
    generator.random_i64();
    group.bench_function("plain loop on one core", |b| {
        let (mut rows, mut row_labels) = (vec![0_u8; BATCH * PIXELS], vec![0_i64; BATCH]);
        let mut batches = order.chunks_exact(BATCH).cycle();
        b.iter(|| {
            let indices = batches.next().unwrap();
            for (i, &index) in indices.iter().enumerate() {
                rows[i * PIXELS..][..PIXELS].copy_from_slice(&images[index * PIXELS..][..PIXELS]);
                row_labels[i] = labels[index];
            }
            black_box((&mut rows, &mut row_labels));
        });
    });
    for workers in WORKERS {
        let images = Array::new(images.clone(), &[IMAGES, 28, 28]).unwrap();
        let dataset = TensorDataset::new((images, labels.clone())).unwrap();
        let builder = Loader::builder(dataset).batch_size(BATCH).shuffle(true).seed(42).drop_last(true);
        let mut loader = warm(builder.num_workers(workers).build().unwrap());
        group.bench_function(BenchmarkId::new("workers", workers), |b| {
            b.iter_custom(|batches| passes(&mut loader, batches, |batch| drop(black_box(batch.tensors()))));
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(30).measurement_time(Duration::from_secs(4));
    targets = zero_cost, zero_cost_iterable, gather
}
criterion_main!(benches);
