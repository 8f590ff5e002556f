//! Tests that a loader without a generator resumes with a private one, which continues from the
//! saved position of the default generator.

use slotline::dataset::from_fn;
use slotline::loader::{Batch, Builder, State};
use slotline::rng::{Generator, default_generator, manual_seed};
use slotline::sampler::{RandomSampler, SubsetRandomSampler, WeightedRandomSampler};
use slotline::{Dataset, Loader};

/// Runs passes (or the rest of a resumed one) up to pass `until`, and returns the epoch, task and
/// indices of each batch.
fn passes<S>(loader: &mut Loader<Batch<S>>, until: u32) -> Vec<(u32, usize, Vec<i64>)> {
    let mut delivered = Vec::new();
    while loader.next_epoch() < until {
        let batches = loader.epoch().unwrap().map(Result::unwrap);
        delivered.extend(batches.map(|batch| (batch.epoch(), batch.batch_index(), batch.indices().to_vec())));
    }
    delivered
}

fn check<D: Dataset>(build: impl Fn() -> Builder<D>) {
    for stop in [0, 1, 4, 7] {
        manual_seed(42);
        let whole = passes(&mut build().build().unwrap(), 3);
        let end = default_generator().drawn();

        manual_seed(42);
        let mut first = build().build().unwrap();
        let mut delivered = passes(&mut first, 1);
        let mut pass = first.epoch().unwrap();
        let part = pass.by_ref().take(stop).map(Result::unwrap);
        delivered.extend(part.map(|batch| (batch.epoch(), batch.batch_index(), batch.indices().to_vec())));
        let state: State = serde_json::from_str(&serde_json::to_string(&pass.state()).unwrap()).unwrap();
        drop(pass);

        manual_seed(7);
        let mut second = build().num_workers(2).build().unwrap();
        second.load_state(&state).unwrap();
        delivered.extend(passes(&mut second, 3));
        assert_eq!(delivered, whole, "stopped after {stop}");
        let default = default_generator();
        assert_eq!((default.initial_seed(), default.drawn()), (7, 0), "the default generator must not change");
        drop(default);
        let state = serde_json::to_value(second.state()).unwrap();
        assert_eq!(
            state["start"]["default_generator"],
            format!("42:{end}"),
            "the private generator must have advanced instead"
        );
    }
}

#[test]
fn a_loader_without_a_generator_resumes_with_a_private_one() {
    let _alone = crate::alone();
    let ten = || Loader::builder(from_fn(20, |index, _| Ok(index as i64))).batch_size(3);
    check(ten);
    check(|| ten().shuffle(true));
    check(|| ten().sampler(RandomSampler::new(20).unwrap()));
    check(|| ten().sampler(SubsetRandomSampler::new(0..20)));
    check(|| ten().sampler(WeightedRandomSampler::new([1.0; 20], 20).unwrap()));

    // A sampler that draws from the default generator, in a loader with a seed.
    let seeded = || ten().seed(3).sampler(SubsetRandomSampler::new(0..20));
    manual_seed(42);
    let mut first = seeded().build().unwrap();
    let mut delivered = passes(&mut first, 1);
    let state = first.state();
    let rest = passes(&mut first, 3);
    manual_seed(7);
    let mut second = seeded().build().unwrap();
    second.load_state(&state).unwrap();
    assert_eq!(passes(&mut second, 3), rest);
    assert_eq!(default_generator().drawn(), 0);

    // A loader without a seed adopts that of the state, and a loader with another seed refuses the
    // state.
    let mut first = ten().shuffle(true).seed(3).build().unwrap();
    delivered.clear();
    delivered.extend(passes(&mut first, 1));
    let state = first.state();
    let rest = passes(&mut first, 3);
    let mut second = ten().shuffle(true).build().unwrap();
    second.load_state(&state).unwrap();
    assert_eq!(passes(&mut second, 3), rest);
    let unseeded = ten().shuffle(true).build().unwrap().state();
    let error = first.load_state(&unseeded).unwrap_err();
    assert_eq!(error.field(), "seed");
    assert!(error.to_string().contains("process's default generator, but the loader's is 3"), "{error}");
    second.load_state(&unseeded).unwrap();
    second.load_state(&state).unwrap();
    assert_eq!(passes(&mut second, 3), rest, "a later state must replace the seed of an earlier one");
    assert_eq!(default_generator().drawn(), 0);

    // Two loaders that draw from one generator in turn both resume correctly.
    let turns = |load: Option<[&State; 2]>, from: u32| {
        let shared = slotline::rng::SharedGenerator::from(Generator::from_seed(6));
        let build = || ten().shuffle(true).generator(shared.clone()).build().unwrap();
        let mut loaders = [build(), build()];
        for (loader, state) in loaders.iter_mut().zip(load.into_iter().flatten()) {
            loader.load_state(state).unwrap();
        }
        let mut delivered = Vec::new();
        for epoch in from..3 {
            delivered.push(passes(&mut loaders[0], epoch + 1));
            delivered.push(passes(&mut loaders[1], epoch + 1));
        }
        delivered
    };
    let whole = turns(None, 0);
    let shared = slotline::rng::SharedGenerator::from(Generator::from_seed(6));
    let build = || ten().shuffle(true).generator(shared.clone()).build().unwrap();
    let (mut train, mut test) = (build(), build());
    passes(&mut train, 1);
    passes(&mut test, 1);
    let mut pass = train.epoch().unwrap();
    assert_eq!(pass.by_ref().take(2).count(), 2);
    let delivered = turns(Some([&pass.state(), &test.state()]), 1);
    assert_eq!(delivered[0], whole[2][2..]);
    assert_eq!(delivered[1..], whole[3..]);
}
