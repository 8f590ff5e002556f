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
use slotline::sampler::{
    BatchSampler, DistributedSampler, Order, RandomSampler, Sampler, SequentialSampler, SubsetRandomSampler,
    WeightedRandomSampler,
};

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

fn bool_of(case: &Value, key: &str) -> bool {
    case[key].as_bool().unwrap()
}

/// Runs the passes of a case with one order, whose memory they share; the default generator must stay untouched.
fn check_passes(sampler: &mut impl Sampler, case: &Value) {
    let (mut default, mut order) = (Generator::new(), Order::default());
    let passes = case["passes"].as_array().unwrap();
    assert_eq!(passes.len(), 2);
    for pass in passes {
        sampler.order(&mut default, &mut order).unwrap();
        assert_eq!(&pack(&order.iter().collect::<Vec<_>>()), pass);
        assert_eq!(order.len(), sampler.len());
    }
    assert_eq!(default.drawn(), 0);
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
        sampler = sampler.replacement(bool_of(case, "replacement"));
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
fn a_subset_random_sampler_gives_torchs_order_pass_after_pass() {
    for_each_case("subset_random_sampler", 15, |case| {
        let indices = case["indices"].as_array().unwrap().iter().map(|index| index.as_u64().unwrap() as usize);
        let sampler = SubsetRandomSampler::new(indices);
        check_passes(&mut sampler.generator(Generator::from_seed(u64_of(case, "seed"))), case);
    });
}

#[test]
fn a_weighted_random_sampler_gives_torchs_draws_pass_after_pass() {
    for_each_case("weighted_random_sampler", 15, |case| {
        let weights = case["weights"].as_array().unwrap().iter().map(|weight| weight.as_f64().unwrap());
        let sampler = WeightedRandomSampler::new(weights, usize_of(case, "num_samples")).unwrap();
        let sampler = sampler.replacement(bool_of(case, "replacement")).unwrap();
        check_passes(&mut sampler.generator(Generator::from_seed(u64_of(case, "seed"))), case);
    });
}

#[test]
fn a_batch_sampler_gives_torchs_lists() {
    for_each_case("batch_sampler", 15, |case| {
        let indices = SequentialSampler::new(usize_of(case, "n"));
        let (batch_size, drop_last) = (usize_of(case, "batch_size"), bool_of(case, "drop_last"));
        let mut sampler = BatchSampler::new(indices, batch_size, drop_last).unwrap();
        assert_eq!(Value::from(sampler.len()), case["len"]);
        for _pass in 0..2 {
            assert_eq!(Value::from_iter(sampler.batches().unwrap()), case["batches"]);
        }
    });
}

#[test]
fn a_distributed_sampler_gives_every_rank_torchs_share_in_every_epoch() {
    for_each_case("distributed_sampler", 15, |case| {
        let (n, num_replicas) = (usize_of(case, "n"), usize_of(case, "num_replicas"));
        let (mut default, mut order) = (Generator::new(), Order::default());
        for rank in 0..num_replicas {
            let sampler = DistributedSampler::new(n, num_replicas, rank).unwrap().seed(u64_of(case, "seed"));
            let sampler = sampler.shuffle(bool_of(case, "shuffle")).drop_last(bool_of(case, "drop_last"));
            let epoch = sampler.epoch();
            let mut owned: Box<dyn Sampler> = Box::new(sampler);
            let epochs = case["epochs"].as_array().unwrap();
            assert_eq!(epochs.len(), 3);
            for (number, ranks) in epochs.iter().enumerate() {
                epoch.set(number as u64);
                owned.order(&mut default, &mut order).unwrap();
                assert_eq!(pack(&order.iter().collect::<Vec<_>>()), ranks[rank], "rank {rank}, epoch {number}");
                assert_eq!(order.len(), owned.len());
            }
            assert_eq!(epochs[0].as_array().unwrap().len(), num_replicas);
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
