//! Loaders over the samplers of this crate resume from a state, and are told of states that do not match.

#[path = "../../../runtime/tests/support/damage.rs"]
mod damage;
#[path = "../../../runtime/tests/support/resumed.rs"]
mod resumed;
#[path = "../../../runtime/tests/support/mod.rs"]
mod support;

mod orders;

use proptest::collection::vec;
use proptest::prelude::*;
use slotline::loader::State;
use slotline::rng::Generator;
use slotline::sampler::{DistributedSampler, Sampler};
use slotline::{Error, Loader};
use slotline_sequences::sampler::{LengthGroupedSampler, MixtureSampler, ShardShuffleSampler, Stop};

use self::orders::{ALL, mixture};
use self::resumed::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn an_interrupted_run_equals_an_uninterrupted_one(what in what(), parts in parts(true), last in how(true)) {
        prop_assert_eq!(interrupted(&what, &parts, &last), uninterrupted(&what));
    }

    #[test]
    fn out_of_order_each_batch_arrives_once(what in what(), parts in parts(false), last in how(true)) {
        let mut delivered = interrupted(&what, &parts, &last);
        delivered.sort_by_key(Outcome::key);
        prop_assert_eq!(delivered, uninterrupted(&what));
    }

    #[test]
    fn any_number_of_replicas_continues_a_mixture(
        len in 1_usize..80, parts in vec((1_usize..9, 0_usize..6), 0..4), last in 1_usize..9,
    ) {
        let load = |replicas, rank| {
            let sampler = DistributedSampler::over(mixture(len), replicas, rank).unwrap().seed(3);
            Loader::builder(Items { len, sleeps: false }).batch_size(1).sampler(sampler).seed(1).build().unwrap()
        };
        let delivered = |result: Result<_, Error>| match result {
            Ok(batch) => { let batch: slotline::loader::BatchOf<Items> = batch; batch.indices()[0] as usize }
            Err(Error::Sample { index, .. }) => index,
            Err(error) => panic!("{error}"),
        };
        let whole: Vec<usize> = load(1, 0).epoch().unwrap().map(delivered).collect();
        let (mut list, mut state) = (Vec::new(), None::<State>);
        for (replicas, most) in parts.into_iter().chain([(last, usize::MAX)]) {
            let (mut next, mut shares) = (None, Vec::new());
            for rank in 0..replicas {
                let mut loader = load(replicas, rank);
                state.iter().for_each(|state| loader.load_state(state).unwrap());
                let mut pass = loader.epoch().unwrap();
                shares.push(pass.by_ref().take(most).map(delivered).collect::<Vec<_>>());
                next = Some(pass.state());
            }
            list.extend((0..shares[0].len()).flat_map(|step| shares.iter().map(move |share| share[step])));
            state = next;
            if state.as_ref().is_some_and(|state| state.epoch() > 0) {
                break;
            }
        }
        prop_assert!(list.len() >= len && list.len() - len < 8);
        prop_assert!(list.iter().eq(whole.iter().cycle().take(list.len())), "{:?}, {:?}", list, whole);
    }
}

#[test]
fn a_sampler_with_other_parameters_is_refused_by_name() {
    let save = |sampler: &dyn Sampler| {
        let mut text = String::new();
        assert!(sampler.save(&mut text));
        text
    };
    let mixture = |weight| MixtureSampler::new([9, 4], [1.0, weight]).unwrap();
    let shards = |lens: [usize; 2], window| ShardShuffleSampler::new(lens, window).unwrap();
    let grouped = |lengths: [usize; 2], size| LengthGroupedSampler::new(lengths, size).unwrap();
    type Case = (&'static str, Box<dyn Sampler>, Box<dyn Sampler>);
    let cases: [Case; 9] = [
        ("lengths", Box::new(mixture(1.0)), Box::new(MixtureSampler::new([9, 5], [1.0, 1.0]).unwrap())),
        ("weights", Box::new(mixture(1.0)), Box::new(mixture(2.0))),
        ("num_samples", Box::new(mixture(1.0)), Box::new(mixture(1.0).stop(Stop::AllExhausted).unwrap())),
        ("even", Box::new(mixture(1.0)), Box::new(mixture(1.0).even(true))),
        ("shuffle", Box::new(mixture(1.0)), Box::new(mixture(1.0).shuffle(false))),
        ("lengths", Box::new(shards([3, 4], 1)), Box::new(shards([4, 3], 1))),
        ("window", Box::new(shards([3, 4], 1)), Box::new(shards([3, 4], 2))),
        ("lengths", Box::new(grouped([3, 4], 2)), Box::new(grouped([3, 5], 2))),
        ("batch_size", Box::new(grouped([3, 4], 2)), Box::new(grouped([3, 4], 3))),
    ];
    for (name, mut saved, mut other) in cases {
        let (text, before) = (save(&saved), save(&other));
        let error = other.restore(&text, 0..0).unwrap_err().to_string();
        let is_named =
            [format!("{name} was "), format!("its {name} are not ")].iter().any(|words| error.contains(words));
        assert!(is_named, "{name}: {error}");
        assert_eq!(save(&other), before);
        saved.restore(&text, 0..0).unwrap();
        assert_eq!(save(&saved), text);
    }
}

#[test]
fn a_shared_generator_is_restored_with_its_sampler() {
    let sampler = || ShardShuffleSampler::new([3, 4, 5], 2).unwrap().generator(Generator::from_seed(6));
    let (mut first, mut second, mut text) = (sampler(), sampler(), String::new());
    first.indices().unwrap();
    first.save(&mut text);
    second.restore(&text, 0..0).unwrap();
    assert!(first.indices().unwrap().eq(second.indices().unwrap()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_damaged_state_is_either_refused_or_loaded(
        from in proptest::sample::select(&ALL[..]),
        damages in vec((any::<usize>(), any::<usize>()), 1..4),
        missing in proptest::option::of(vec(0_u64..12, 0..3)),
        workers in 0_usize..3,
    ) {
        refused_or_loaded(from, &damages, missing, workers)?;
    }
}
