//! Tests of random numbers: what is drawn, from which generator, and how often.

use std::collections::BTreeSet;

use slotline::rng::rand_core::Rng;
use slotline::rng::{Generator, SharedGenerator};

use crate::support::{OneByOne, from_fn};
use crate::{KINDS, Kind, Loader, Options, Passes};

/// Builds a loader whose samples are their random numbers.
fn drawing(options: &Options, kind: Kind, shuffle: bool, generator: impl Into<SharedGenerator>) -> Box<dyn Passes> {
    let dataset = from_fn(options.len, |_, cx| Ok(cx.rng().next_u64() as i64));
    if kind == Kind::Iterable {
        let builder = options.set(Loader::iterable(OneByOne(dataset)));
        return Box::new(builder.generator(generator).build().unwrap());
    }
    let builder = options.set(Loader::builder(dataset)).shuffle(shuffle).generator(generator);
    Box::new(options.workers_of(kind).build(builder.round_robin(kind == Kind::RoundRobin)).unwrap())
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
            // With a map-style dataset, the numbers must not depend on the workers.
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
        // Drawing a base seed takes two words of the generator. A shuffled pass draws two
        // permutations, of which torch does not use the second.
        let seeds = 2 * if persistent { 1 } else { PASSES };
        let permutations = PASSES * 2 * (options.len - 1);
        for (kind, shuffle, words) in [
            (Kind::Shared, false, seeds),
            (Kind::Processes, false, seeds),
            (Kind::RoundRobin, false, seeds),
            (Kind::Iterable, false, seeds),
            (Kind::Shared, true, seeds + permutations),
            (Kind::Processes, true, seeds + permutations),
            (Kind::RoundRobin, true, seeds + permutations),
        ] {
            let generator = SharedGenerator::from(Generator::from_seed(3));
            let mut loader = drawing(&options, kind, shuffle, generator.clone());
            (0..PASSES).for_each(|_| drop(loader.whole()));
            assert_eq!(generator.lock().drawn(), words as u64, "{kind:?}, shuffle: {shuffle}, {options:?}");
        }
    }
}
