//! Tests that states that do not match the loader are refused, and that damaged states are refused,
//! or loaded without other failures.

use proptest::collection::vec;
use proptest::prelude::*;
use slotline::Loader;
use slotline::loader::{Builder, State};
use slotline::rng::Generator;
use slotline::sampler::{
    CipherSampler, DistributedSampler, Order, RandomSampler, Sampler, SamplerError, SequentialSampler,
    SubsetRandomSampler, WeightedRandomSampler,
};

use crate::orders::*;
use crate::resumed::*;

#[test]
fn a_refused_state_names_a_field_and_changes_nothing() {
    let (_, state) = state_of(From::Shuffle);
    let good = || Loader::builder(Items { len: 40, sleeps: false }).batch_size(4).shuffle(true).seed(5);
    let build: [(&str, Builder<Items>); 8] = [
        ("", good()),
        ("dataset_len", Loader::builder(Items { len: 41, sleeps: false }).batch_size(4).shuffle(true).seed(5)),
        ("batch_size", good().batch_size(5)),
        ("batch_size", good().batch_size(None)),
        ("drop_last", good().drop_last(true)),
        ("seed", good().seed(6)),
        ("sampler", good().shuffle(false)),
        ("sampler", good().shuffle(false).sampler(RandomSampler::new(40).unwrap())),
    ];
    for (field, builder) in build {
        let mut loader = builder.build().unwrap();
        let before = (loader.next_epoch(), loader.state());
        match loader.load_state(&state) {
            Ok(()) => assert_eq!((field, loader.next_epoch()), ("", 1)),
            Err(error) => {
                assert_eq!(error.field(), field, "{error}");
                assert!(error.to_string().contains(&format!("the state's {field} is")), "{error}");
                assert_eq!((loader.next_epoch(), loader.state()), before);
            }
        }
    }
    let mut later = serde_json::to_value(&state).unwrap();
    later["version"] = 3.into();
    let error = good().build().unwrap().load_state(&serde_json::from_value(later).unwrap()).unwrap_err();
    assert_eq!(error.field(), "version");
    assert!(error.to_string().contains("the state's version is 3, but the loader's is 2"), "{error}");
}

#[test]
fn a_sampler_with_other_parameters_is_refused_by_name() {
    let save = |sampler: &dyn Sampler| {
        let mut text = String::new();
        assert!(sampler.save(&mut text));
        text
    };
    let seeded = |seed| Generator::from_seed(seed);
    let subset = |indices: &[usize]| SubsetRandomSampler::new(indices.to_vec()).generator(seeded(1));
    let weighted = |weights: [f64; 3]| WeightedRandomSampler::new(weights, 2).unwrap();
    let distributed = |n| DistributedSampler::new(n, 2, 0).unwrap();
    let random = |n| RandomSampler::new(n).unwrap();
    type Case = (&'static str, Box<dyn Sampler>, Box<dyn Sampler>);
    let over = |len| DistributedSampler::over(random(len), 2, 0).unwrap();
    let cases: [Case; 18] = [
        ("dataset_len", Box::new(SequentialSampler::new(3)), Box::new(SequentialSampler::new(4))),
        ("dataset_len", Box::new(random(3)), Box::new(random(4))),
        ("num_samples", Box::new(random(3)), Box::new(random(3).num_samples(7).unwrap())),
        ("replacement", Box::new(random(3)), Box::new(random(3).replacement(true))),
        ("generator", Box::new(random(3)), Box::new(random(3).generator(seeded(1)))),
        ("generator", Box::new(random(3).generator(seeded(1))), Box::new(random(3))),
        ("generator's seed", Box::new(random(3).generator(seeded(1))), Box::new(random(3).generator(seeded(2)))),
        ("dataset_len", Box::new(CipherSampler::new(3)), Box::new(CipherSampler::new(2))),
        ("indices", Box::new(subset(&[1, 2])), Box::new(subset(&[2, 1]))),
        ("weights", Box::new(weighted([1.0, 2.0, 3.0])), Box::new(weighted([1.0, 2.0, 3.5]))),
        ("shuffle", Box::new(distributed(9)), Box::new(distributed(9).shuffle(false))),
        ("drop_last", Box::new(distributed(9)), Box::new(distributed(9).drop_last(true))),
        ("seed", Box::new(distributed(9)), Box::new(distributed(9).seed(3))),
        ("dataset_len", Box::new(distributed(9)), Box::new(distributed(8))),
        ("over", Box::new(over(9)), Box::new(distributed(9))),
        ("over", Box::new(distributed(9)), Box::new(over(9))),
        ("over", Box::new(over(9)), Box::new(DistributedSampler::over(CipherSampler::new(9), 2, 0).unwrap())),
        (
            "replacement",
            Box::new(over(9)),
            Box::new(DistributedSampler::over(random(9).replacement(true), 2, 0).unwrap()),
        ),
    ];
    for (name, mut saved, mut other) in cases {
        let text = save(&saved);
        let before = save(&other);
        let error = other.restore(&text, 0..0).unwrap_err().to_string();
        let is_named =
            [format!("{name} was "), format!("its {name} are not ")].iter().any(|words| error.contains(words));
        assert!(is_named, "{name}: {error}");
        assert_eq!(save(&other), before);
        saved.restore(&text, 0..0).unwrap();
        assert_eq!(save(&saved), text);
    }
    assert!(SequentialSampler::new(3).restore("", 0..0).is_err());
    assert!(WithoutSave(3, seeded(1).into()).restore("", 0..0).unwrap_err().to_string().contains("custom"));
}

/// A sampler with a given name.
struct Named(SequentialSampler, &'static str);

impl Sampler for Named {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn memory(&self) -> usize {
        self.0.memory()
    }

    fn order(&mut self, default: &mut Generator, order: &mut Order) -> Result<(), SamplerError> {
        self.0.order(default, order)
    }

    fn name(&self) -> &str {
        self.1
    }
}

#[test]
fn a_sampler_with_another_name_is_refused() {
    let numbers = || Loader::builder(Items { len: 40, sleeps: false }).batch_size(4).seed(5);
    let named = |name| numbers().sampler(Named(SequentialSampler::new(40), name)).build().unwrap();
    let mut loader = named("curriculum");
    let mut pass = loader.epoch().unwrap();
    pass.next().unwrap().unwrap();
    let state = pass.state();
    drop(pass);
    assert_eq!(serde_json::to_value(&state).unwrap()["start"]["sampler"]["name"], "curriculum");
    named("curriculum").load_state(&state).unwrap();
    let error = named("by length").load_state(&state).unwrap_err();
    assert_eq!(error.field(), "sampler");
    let message = error.to_string();
    assert!(message.contains("curriculum") && message.contains("by length"), "{message}");
    let mut unnamed = numbers().sampler(WithoutSave(40, Generator::from_seed(1).into())).build().unwrap();
    assert_eq!(unnamed.load_state(&state).unwrap_err().field(), "sampler");
}

#[test]
fn version_1_states_load_or_are_refused_with_a_reason() {
    let state = |name: &str, saved: Option<&str>| -> State {
        let generator = serde_json::json!({ "seed": 5, "drawn": 4 });
        let state = serde_json::json!({
            "version": 1, "kind": "indexed", "dataset_len": 40, "batch_size": 4, "drop_last": false,
            "epoch": 1, "batches": 3,
            "start": {
                "generator": generator, "default_generator": { "seed": 9, "drawn": 0 }, "persistent": false,
                "base_seed": null, "sampler": { "name": name, "saved": saved }
            }
        });
        serde_json::from_value(state).unwrap()
    };
    let builder = || Loader::builder(Items { len: 40, sleeps: false }).batch_size(4).seed(5);
    let loads = |builder: Builder<Items>, state: &State| {
        let mut loader = builder.build().unwrap();
        loader.load_state(state)?;
        let written = serde_json::to_value(loader.state()).unwrap();
        assert_eq!(written["start"]["generator"], "5:4");
        assert_eq!(loader.epoch().unwrap().count(), 7);
        Ok::<_, slotline::loader::StateError>(())
    };
    loads(builder().shuffle(true), &state("shuffle", Some(""))).unwrap();
    let random = || RandomSampler::new(40).unwrap().generator(Generator::from_seed(8));
    let saved = "dataset_len=40 num_samples=40 replacement=false generator=8:80";
    loads(builder().sampler(random()), &state("RandomSampler", Some(saved))).unwrap();
    // The state of a custom sampler may have the name of its type.
    let own = || builder().sampler(WithoutSave(40, Generator::from_seed(1).into()));
    loads(own(), &state("WithoutSave", None)).unwrap();
    for name in ["RandomSampler", "shuffle", "List"] {
        assert_eq!(loads(own(), &state(name, None)).unwrap_err().field(), "sampler");
    }
    assert_eq!(loads(builder().sampler(random()), &state("WithoutSave", None)).unwrap_err().field(), "sampler");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

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
