//! Random numbers: what is drawn, from which generator, and how often.

use std::collections::BTreeSet;

use slotline::dataset::{Context, IterableDataset};
use slotline::rng::rand_core::Rng;
use slotline::rng::{Generator, SharedGenerator};
use slotline::{BoxError, WorkerInfo};

use crate::support::from_fn;

use crate::{KINDS, Kind, Loader, Options, Passes};

/// An iterable dataset of random numbers: one for each sample, with this many samples over all workers.
struct Drawing(usize);

impl IterableDataset for Drawing {
    type Sample<'a> = i64;
    type Cursor = usize;

    fn iter(&self, worker: Option<WorkerInfo>) -> Result<usize, BoxError> {
        Ok(worker.map_or(self.0, |worker| worker.share(self.0).len()))
    }

    fn next(&self, left: &mut usize, cx: &mut Context) -> Result<Option<i64>, BoxError> {
        *left = left.wrapping_sub(1);
        Ok((*left != usize::MAX).then(|| cx.rng().next_u64() as i64))
    }
}

/// Builds a loader whose samples are their random numbers.
fn drawing(options: &Options, kind: Kind, shuffle: bool, generator: impl Into<SharedGenerator>) -> Box<dyn Passes> {
    let dataset = from_fn(options.len, |_, cx| Ok(cx.rng().next_u64() as i64));
    let by_index = options.set(Loader::builder(dataset)).shuffle(shuffle);
    let iterable = options.set(Loader::iterable(Drawing(options.len)));
    match kind {
        Kind::Shared | Kind::Processes => Box::new(options.crew(kind).build(by_index.generator(generator)).unwrap()),
        Kind::Dealt => Box::new(by_index.generator(generator).round_robin(true).build().unwrap()),
        Kind::Iterable => Box::new(iterable.generator(generator).build().unwrap()),
    }
}

#[test]
fn the_same_seed_gives_the_same_random_numbers() {
    let passes = |kind, workers, persistent| -> Vec<Vec<i64>> {
        let options = Options { workers, persistent, ..Options::default() };
        let mut loader = drawing(&options, kind, kind != Kind::Iterable, Generator::from_seed(5));
        (0..3).flat_map(|_| loader.whole()).collect()
    };
    for persistent in [false, true] {
        for kind in KINDS {
            let once = passes(kind, 2, persistent);
            assert_eq!(once, passes(kind, 2, persistent));
            let different: BTreeSet<i64> = once.concat().into_iter().collect();
            assert_eq!(different.len(), 60, "each sample has a different number");
            // With a map-style dataset the numbers do not depend on the workers.
            if kind != Kind::Iterable {
                assert_eq!(once, passes(Kind::Shared, 3, persistent));
            }
        }
    }
}

#[test]
fn only_base_seeds_and_shuffles_draw_from_the_generator() {
    const PASSES: usize = 3;
    for (workers, persistent) in [(0, false), (2, false), (2, true)] {
        let options = Options { workers, persistent, ..Options::default() };
        // A base seed takes two words. A shuffled pass takes two permutations, the second of which torch draws without using it.
        let seeds = 2 * if persistent { 1 } else { PASSES };
        let permutations = PASSES * 2 * (options.len - 1);
        for (kind, shuffle, words) in [
            (Kind::Shared, false, seeds),
            (Kind::Processes, false, seeds),
            (Kind::Dealt, false, seeds),
            (Kind::Iterable, false, seeds),
            (Kind::Shared, true, seeds + permutations),
            (Kind::Processes, true, seeds + permutations),
            (Kind::Dealt, true, seeds + permutations),
        ] {
            let generator = SharedGenerator::from(Generator::from_seed(3));
            let mut loader = drawing(&options, kind, shuffle, generator.clone());
            (0..PASSES).for_each(|_| drop(loader.whole()));
            assert_eq!(generator.lock().drawn(), words as u64, "{kind:?}, shuffle: {shuffle}, {options:?}");
        }
    }
}
