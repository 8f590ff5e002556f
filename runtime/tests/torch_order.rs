//! Our generator and samplers beside the real torch: the cases of `data/torch_vectors.json`, which torch 2.15.0
//! answered (made by the project's `generate.py`).
//!
//! A list of more than 512 indices is there as its length, its ends, and the sha256 of the indices as little-endian
//! i64.

use std::fmt::Write as _;
use std::num::NonZero;

use serde_json::Value;
use sha2::{Digest, Sha256};
use slotline::rng::Generator;
use slotline::sampler::{Order, RandomSampler, Sampler};

/// Runs `check` on every case of a kind; a failure names the case. The count guards against a silent no-op.
fn for_each_case(kind: &str, count: usize, check: impl Fn(&Value)) {
    let vectors: Value = serde_json::from_str(include_str!("data/torch_vectors.json")).unwrap();
    let cases: Vec<&Value> = vectors["cases"].as_array().unwrap().iter().filter(|c| c["kind"] == kind).collect();
    assert_eq!(cases.len(), count, "cases of kind {kind}");
    for (i, case) in cases.into_iter().enumerate() {
        let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(case)));
        if let Err(panic) = run {
            eprintln!("{kind} case {i} fails: {case}");
            std::panic::resume_unwind(panic);
        }
    }
}

/// The indices in the form the vectors have them.
fn pack(indices: &[usize]) -> Value {
    if indices.len() <= 512 {
        return indices.into();
    }
    let mut hash = Sha256::new();
    for &index in indices {
        hash.update((index as i64).to_le_bytes());
    }
    let sha256 = hash.finalize().iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").unwrap();
        hex
    });
    let (head, tail) = (&indices[..8], &indices[indices.len() - 8..]);
    serde_json::json!({ "len": indices.len(), "sha256": sha256, "head": head, "tail": tail })
}

fn u64_of(case: &Value, key: &str) -> u64 {
    case[key].as_u64().unwrap()
}

fn usize_of(case: &Value, key: &str) -> usize {
    u64_of(case, key) as usize
}

#[test]
fn a_generator_gives_torchs_numbers() {
    for_each_case("engine", 15, |case| {
        let mut generator = Generator::from_seed(u64_of(case, "seed"));
        let integers: Vec<i64> = (0..6).map(|_| generator.random_i64()).collect();
        assert_eq!(Value::from(integers), case["random_i64"]);
        let floats: Vec<u64> = (0..4).map(|_| generator.rand_f64().to_bits()).collect();
        assert_eq!(Value::from(floats), case["then_rand_f64_bits"]);
        let bounded: Vec<u64> = (0..4).map(|_| generator.randint(NonZero::new(1000).unwrap())).collect();
        assert_eq!(Value::from(bounded), case["then_randint_1000"]);
    });
}

#[test]
fn randperm_gives_torchs_permutations_in_both_widths() {
    for_each_case("randperm", 15, |case| {
        let (n, seed) = (usize_of(case, "n"), u64_of(case, "seed"));
        let (mut narrow, mut wide) = (Vec::<u32>::new(), Vec::<u64>::new());
        Generator::from_seed(seed).randperm_into(n, &mut narrow).unwrap();
        Generator::from_seed(seed).randperm_into(n, &mut wide).unwrap();
        assert_eq!(pack(&Order::from(narrow).iter().collect::<Vec<_>>()), case["indices"]);
        assert_eq!(pack(&Order::from(wide).iter().collect::<Vec<_>>()), case["indices"]);
    });
}

#[test]
fn a_random_sampler_gives_torchs_order_pass_after_pass() {
    for_each_case("random_sampler", 15, |case| {
        let mut sampler = RandomSampler::new(usize_of(case, "n")).unwrap();
        sampler = sampler.replacement(case["replacement"].as_bool().unwrap());
        if !case["num_samples"].is_null() {
            sampler = sampler.num_samples(usize_of(case, "num_samples")).unwrap();
        }
        let seed = u64_of(case, "seed");
        let mut default = Generator::new();
        match case["generator"].as_str().unwrap() {
            "given" => sampler = sampler.generator(Generator::from_seed(seed)),
            "default" => default.manual_seed(seed),
            other => panic!("no generator is called {other}"),
        }
        assert_eq!(Value::from(sampler.len()), case["len"]);
        let mut order = Order::default();
        for pass in case["passes"].as_array().unwrap() {
            sampler.order(&mut default, &mut order).unwrap();
            assert_eq!(&pack(&order.iter().collect::<Vec<_>>()), pass);
        }
    });
}

#[test]
fn a_list_of_more_than_512_indices_is_checked_by_its_hash() {
    // In Python: hashlib.sha256(b"".join(struct.pack("<q", i) for i in range(513))).hexdigest()
    let packed = pack(&(0..513).collect::<Vec<_>>());
    assert_eq!(packed["sha256"], "277c30e60688876c587e8f1c22f500179bacd8a1b191597556df87678e0dcfa0");
    assert_eq!((packed["len"].as_u64(), packed["tail"][7].as_u64()), (Some(513), Some(512)));
}
