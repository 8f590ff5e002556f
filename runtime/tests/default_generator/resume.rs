//! A loader without a generator resumes with a private one, from where the default generator was.

use slotline::dataset::from_fn;
use slotline::loader::{Batch, Builder, State};
use slotline::rng::{Generator, default_generator, manual_seed};
use slotline::sampler::{RandomSampler, SubsetRandomSampler, WeightedRandomSampler};
use slotline::{Dataset, Loader};

/// The batches of so many passes, or the rest of the first one and those after it; each with its pass and number.
fn passes<S>(loader: &mut Loader<Batch<S>>, until: u32) -> Vec<(u32, usize, Vec<i64>)> {
    let mut came = Vec::new();
    while loader.next_epoch() < until {
        let batches = loader.epoch().unwrap().map(Result::unwrap);
        came.extend(batches.map(|batch| (batch.epoch(), batch.task(), batch.indices().to_vec())));
    }
    came
}

fn check<D: Dataset>(build: impl Fn() -> Builder<D>) {
    for stop in [0, 1, 4, 7] {
        manual_seed(42);
        let whole = passes(&mut build().build().unwrap(), 3);
        let end = default_generator().drawn();

        manual_seed(42);
        let mut first = build().build().unwrap();
        let mut came = passes(&mut first, 1);
        let mut pass = first.epoch().unwrap();
        let part = pass.by_ref().take(stop).map(Result::unwrap);
        came.extend(part.map(|batch| (batch.epoch(), batch.task(), batch.indices().to_vec())));
        let state: State = serde_json::from_str(&serde_json::to_string(&pass.state()).unwrap()).unwrap();
        drop(pass);

        manual_seed(7);
        let mut second = build().num_workers(2).build().unwrap();
        second.load_state(&state).unwrap();
        came.extend(passes(&mut second, 3));
        assert_eq!(came, whole, "stopped after {stop}");
        let default = default_generator();
        assert_eq!((default.initial_seed(), default.drawn()), (7, 0), "it was left alone");
        drop(default);
        let state = serde_json::to_value(second.state()).unwrap();
        assert_eq!(
            state["start"]["default_generator"],
            format!("42:{end}"),
            "and the private one went on in its place"
        );
    }
}

#[test]
fn a_loader_without_a_generator_takes_over_that_of_the_state() {
    let _alone = crate::alone();
    let ten = || Loader::builder(from_fn(20, |index, _| Ok(index as i64))).batch_size(3);
    check(ten);
    check(|| ten().shuffle(true));
    check(|| ten().sampler(RandomSampler::new(20).unwrap()));
    check(|| ten().sampler(SubsetRandomSampler::new(0..20)));
    check(|| ten().sampler(WeightedRandomSampler::new([1.0; 20], 20).unwrap()));

    // A sampler that draws from the default one, in a loader that has its own.
    let seeded = || ten().seed(3).sampler(SubsetRandomSampler::new(0..20));
    manual_seed(42);
    let mut first = seeded().build().unwrap();
    let mut came = passes(&mut first, 1);
    let state = first.state();
    let rest = passes(&mut first, 3);
    manual_seed(7);
    let mut second = seeded().build().unwrap();
    second.load_state(&state).unwrap();
    assert_eq!(passes(&mut second, 3), rest);
    assert_eq!(default_generator().drawn(), 0);

    // A loader without a seed takes over a state's, and one with a seed takes no other.
    let mut first = ten().shuffle(true).seed(3).build().unwrap();
    came.clear();
    came.extend(passes(&mut first, 1));
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
    assert_eq!(passes(&mut second, 3), rest, "what was taken over from one state gives way to another");
    assert_eq!(default_generator().drawn(), 0);

    // Two loaders that draw in turn from one generator go on so.
    let turns = |load: Option<[&State; 2]>, from: u32| {
        let shared = slotline::rng::SharedGenerator::from(Generator::from_seed(6));
        let build = || ten().shuffle(true).generator(shared.clone()).build().unwrap();
        let mut loaders = [build(), build()];
        for (loader, state) in loaders.iter_mut().zip(load.into_iter().flatten()) {
            loader.load_state(state).unwrap();
        }
        let mut came = Vec::new();
        for epoch in from..3 {
            came.push(passes(&mut loaders[0], epoch + 1));
            came.push(passes(&mut loaders[1], epoch + 1));
        }
        came
    };
    let whole = turns(None, 0);
    let shared = slotline::rng::SharedGenerator::from(Generator::from_seed(6));
    let build = || ten().shuffle(true).generator(shared.clone()).build().unwrap();
    let (mut train, mut test) = (build(), build());
    passes(&mut train, 1);
    passes(&mut test, 1);
    let mut pass = train.epoch().unwrap();
    assert_eq!(pass.by_ref().take(2).count(), 2);
    let came = turns(Some([&pass.state(), &test.state()]), 1);
    assert_eq!(came[0], whole[2][2..]);
    assert_eq!(came[1..], whole[3..]);
}
