//! Tests that after the first turn of the ring, a loader allocates nothing on any thread. This is a
//! separate program, because it counts all allocations.

#[path = "support/counting.rs"]
mod counting;
mod support;

use std::sync::atomic::Ordering::SeqCst;

use counting::ALLOCATIONS;
use slotline::dataset::{Context, Dataset};
use slotline::rng::Generator;
use slotline::sampler::RandomSampler;
use slotline::{BoxError, Loader};
use support::{How, OneByOne, prefetch};

/// A dataset of rows of an array, with the index and a random number, which checks that random
/// numbers do not allocate either.
struct Data(Vec<[f32; 16]>);

impl Dataset for Data {
    type Sample<'a> = (&'a [f32], i64, u64);

    fn len(&self) -> usize {
        self.0.len()
    }

    fn get<'a>(&'a self, index: usize, cx: &'a mut Context) -> Result<Self::Sample<'a>, BoxError> {
        use slotline::rng::rand_core::Rng;
        let word = cx.rng().next_u64();
        Ok((&self.0[index], index as i64, word))
    }
}

/// Returns the number of allocations after the first `depth` batches of a pass, and the number of
/// batches after those.
fn allocations(depth: usize, mut pass: impl Iterator) -> (u64, usize) {
    assert_eq!(pass.by_ref().take(depth).count(), depth);
    let before = ALLOCATIONS.load(SeqCst);
    let rest = pass.count();
    (ALLOCATIONS.load(SeqCst) - before, rest)
}

#[test]
fn after_the_first_lap_nothing_is_allocated_on_any_thread() {
    let mut batches = 0;
    for workers in [0, 1, 2, 4] {
        for in_order in [true, false] {
            for shuffle in [false, true] {
                for part_size in [None, Some(1), Some(5)] {
                    let data = Data((0..8_000).map(|i| [i as f32; 16]).collect());
                    let how = How { workers, part_size, ..How::default() };
                    let builder = Loader::builder(data).batch_size(16).shuffle(shuffle).seed(3).in_order(in_order);
                    let mut loader = how.set(builder).build().unwrap();
                    let depth = loader.depth();
                    let pass = loader.epoch().unwrap().map(|batch| batch.unwrap().tensors().1[[3]]);
                    let (first, rest) = allocations(depth, pass);
                    assert_eq!(first, 0, "{how:?} in_order {in_order} shuffle {shuffle}");
                    let before = ALLOCATIONS.load(SeqCst);
                    // Count from the first batch on: a pass writes even its order into the memory
                    // of the previous pass's order.
                    let whole = loader.epoch().unwrap().map(|b| b.unwrap().tensors().0.len()).sum::<usize>();
                    // Drop a pass early. The pass after that must discard the batches that are
                    // left.
                    assert_eq!(loader.epoch().unwrap().take(7).map(|b| b.unwrap().len()).sum::<usize>(), 7 * 16);
                    assert_eq!(loader.epoch().unwrap().filter(Result::is_ok).count(), 500);
                    let later = ALLOCATIONS.load(SeqCst) - before;
                    assert_eq!((later, whole), (0, 8_000), "{how:?} in_order {in_order} shuffle {shuffle}");
                    batches += rest;
                }
            }
        }
        let data = Data((0..2_000).map(|i| [i as f32; 16]).collect());
        let builder = Loader::builder(data).batch_size(4).num_workers(workers).collate(|samples| {
            let mut sum = 0.0;
            while let Some(sample) = samples.next() {
                sum += sample?.0[0];
            }
            Ok(sum)
        });
        let mut loader = builder.build().unwrap();
        let depth = loader.depth();
        let (counted, rest) = allocations(depth, loader.epoch().unwrap().map(Result::unwrap));
        assert_eq!((counted, rest), (0, 500 - depth), "collate with {workers} workers");
    }
    assert!(batches > 20_000);
    other_loaders();
    // Check that allocations are counted.
    let before = ALLOCATIONS.load(SeqCst);
    drop(std::hint::black_box(vec![1_u8; 100]));
    assert_eq!(ALLOCATIONS.load(SeqCst), before + 1);
}

/// Checks other kinds of loaders. Called by the only test of this program, because nothing else may
/// run at the same time.
fn other_loaders() {
    let data = || Data((0..2_000).map(|i| [i as f32; 16]).collect());
    for (workers, in_order) in [(0, true), (1, true), (2, true), (2, false), (4, false)] {
        let map = || prefetch(Loader::builder(data()), workers, 2).in_order(in_order).seed(3);
        /// Counts allocations in a pass after the first turn of the ring, and then in three passes,
        /// the second of which is dropped early. Beginning a pass boxes a user's iterator, which is
        /// `$boxes` allocations.
        macro_rules! check {
            ($loader:expr, $batches:expr, $boxes:expr) => {{
                let mut loader = $loader;
                let depth = loader.depth();
                let pass = loader.epoch().unwrap().map(Result::unwrap);
                let (counted, rest) = allocations(depth, pass.take($batches));
                assert_eq!((counted, rest), (0, $batches - depth), "{workers} workers, in_order {in_order}");
                let before = ALLOCATIONS.load(SeqCst);
                for take in [$batches, 7, $batches] {
                    assert_eq!(loader.epoch().unwrap().take(take).filter(Result::is_ok).count(), take);
                }
                let later = ALLOCATIONS.load(SeqCst) - before;
                assert_eq!(later, 3 * $boxes, "{workers} workers, in_order {in_order}");
            }};
        }
        let iterable = || prefetch(Loader::iterable(OneByOne(data())), workers, 2).in_order(in_order).batch_size(4);
        let sums = iterable().collate(|samples| {
            let mut sum = 0;
            while let Some(sample) = samples.next() {
                sum += sample?.1;
            }
            Ok(sum)
        });
        check!(iterable().build().unwrap(), 500, 0);
        check!(sums.build().unwrap(), 500, 0);
        check!(map().batch_size(4).shuffle(true).round_robin(true).build().unwrap(), 500, 0);
        let random = || RandomSampler::new(2_000).unwrap().generator(Generator::from_seed(1));
        check!(map().batch_size(4).sampler(random()).build().unwrap(), 500, 0);
        check!(map().batch_size(4).sampler_iter(|| (0..2_000).cycle()).build().unwrap(), 700, 2);
        check!(map().batch_sampler_iter(3, || (0..600).map(|i| [i, i + 2, i + 1])).build().unwrap(), 600, 1);
    }
}
