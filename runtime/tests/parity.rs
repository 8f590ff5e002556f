//! Law 3: the loader beside torch's DataLoader, by the map-style cases of `data/torch_vectors.json`.

mod support;

use serde_json::Value;
use slotline::Loader;
use slotline::dataset::from_fn;
use slotline::rng::{Generator, manual_seed};

/// The passes of our loader for a case, in the form the vectors have them.
fn passes(case: &Value, count: usize) -> Vec<Value> {
    let number = |key: &str| case[key].as_u64().map(|n| n as usize);
    let flag = |key: &str| case[key].as_bool().unwrap();
    let builder = Loader::builder(from_fn(number("n").unwrap(), |index, _| Ok(index as i64)));
    // Without batches (torch's None) torch gives the samples themselves: here, batches of one.
    let batches = number("batch_size");
    let mut builder = builder
        .batch_size(batches.unwrap_or(1))
        .shuffle(flag("shuffle"))
        .drop_last(flag("drop_last"))
        .num_workers(number("num_workers").unwrap());
    if let Some(factor) = number("prefetch_factor") {
        builder = builder.prefetch_factor(factor);
    }
    let seed = case["seed"].as_u64().unwrap();
    match case["generator"].as_str().unwrap() {
        "given" => builder = builder.generator(Generator::from_seed(seed)),
        "default" => manual_seed(seed),
        other => panic!("no generator is called {other}"),
    }
    let mut loader = builder.build().unwrap();
    assert_eq!(Value::from(loader.len()), case["len"]);
    let mut pass = |_| {
        let batches = loader.epoch().unwrap().map(|batch| {
            let batch = batch.unwrap();
            assert_eq!(batch.tensors().as_slice(), batch.indices());
            if batches.is_some() { Value::from(batch.indices()) } else { Value::from(batch.indices()[0]) }
        });
        batches.collect::<Value>()
    };
    (0..count).map(&mut pass).collect()
}

/// One test for all cases, as some draw from the process's default generator.
#[test]
fn a_loader_gives_torchs_batches_pass_after_pass() {
    let vectors: Value = serde_json::from_str(include_str!("data/torch_vectors.json")).unwrap();
    let cases: Vec<&Value> = vectors["cases"].as_array().unwrap().iter().filter(|c| c["kind"] == "loader").collect();
    let (mut whole, mut first_only) = (0, 0);
    for case in cases {
        let torchs = case["epochs"].as_array().unwrap();
        // Persistent workers have torch draw the base seed in the first pass only; there is no such option here yet.
        let persistent = case["persistent_workers"] == true;
        let count = if persistent { 1 } else { torchs.len() };
        assert_eq!(passes(case, count), torchs[..count], "{case}");
        *(if persistent { &mut first_only } else { &mut whole }) += 1;
    }
    assert_eq!((whole, first_only), (31, 14));
}
