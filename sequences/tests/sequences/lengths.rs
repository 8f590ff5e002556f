//! Batches by length, compared with those of transformers.

use proptest::collection::vec;
use proptest::prelude::*;
use slotline::Loader;
use slotline::dataset::{Context, Dataset, from_fn};
use slotline::loader::{BatchOf, Budget, OnError};
use slotline::rng::Generator;
use slotline::rng::rand_core::Rng;
use slotline::sampler::{DistributedSampler, Sampler};
use slotline_sequences::sampler::{LengthBatchSampler, LengthGroupedSampler};

use crate::numbers;
use crate::support::{Workers, worker_kinds};

#[test]
fn length_grouped_orders_are_transformers() {
    let vectors = crate::vectors();
    let cases = vectors["grouped"].as_array().unwrap();
    assert_eq!(cases.len(), 7);
    for case in cases {
        let number = |name: &str| case[name].as_u64().unwrap();
        let (lengths, batch_size, seed) = (numbers(&case["lengths"]), number("batch_size") as usize, number("seed"));
        let new = || LengthGroupedSampler::new(lengths.clone(), batch_size).unwrap();
        let mut sampler = new().generator(Generator::from_seed(seed));
        for pass in case["passes"].as_array().unwrap() {
            assert_eq!(sampler.indices().unwrap().collect::<Vec<_>>(), numbers(pass));
        }
        for share in case["shares"].as_array().unwrap() {
            let rank = share["rank"].as_u64().unwrap() as usize;
            let sampler = DistributedSampler::over(new(), 3, rank).unwrap().seed(seed);
            let mut sampler = sampler.drop_last(share["drop_last"].as_bool().unwrap());
            sampler.set_epoch(2);
            assert_eq!(sampler.indices().unwrap().collect::<Vec<_>>(), numbers(&share["indices"]));
        }
    }
}

/// A budget or buckets, with limits that hold for every batch.
#[derive(Clone, Debug)]
enum By {
    Tokens { max_tokens: usize, padded: bool },
    Buckets { boundaries: Vec<usize>, sizes: Vec<usize> },
}

#[derive(Clone, Debug)]
struct Case {
    lengths: Vec<usize>,
    by: By,
    limit: Option<usize>,
    shuffle: bool,
    drop_last: bool,
}

impl Case {
    fn sampler(&self, seed: u64, (replicas, rank): (usize, usize)) -> LengthBatchSampler {
        let sampler = match &self.by {
            &By::Tokens { max_tokens, padded } => {
                LengthBatchSampler::token_budget(self.lengths.clone(), max_tokens).unwrap().padded(padded)
            }
            By::Buckets { boundaries, sizes } => {
                LengthBatchSampler::buckets(self.lengths.clone(), boundaries.clone(), sizes.clone()).unwrap()
            }
        };
        let sampler = match self.limit {
            Some(limit) => sampler.limit(limit).unwrap(),
            None => sampler,
        };
        let sampler = sampler.shuffle(self.shuffle).drop_last(self.drop_last).generator(Generator::from_seed(seed));
        sampler.replicas(replicas, rank).unwrap()
    }

    /// Checks the batches of one replica that is alone.
    #[track_caller]
    fn check(&self, batches: &[Vec<usize>], most: usize) {
        let mut seen = vec![false; self.lengths.len()];
        for batch in batches {
            assert!((1..=most).contains(&batch.len()));
            assert!(batch.iter().all(|&index| !std::mem::replace(&mut seen[index], true)));
            let lengths = || batch.iter().map(|&index| self.lengths[index]);
            match &self.by {
                &By::Tokens { max_tokens, padded } => {
                    let tokens = if padded { lengths().max().unwrap() * batch.len() } else { lengths().sum() };
                    assert!(tokens <= max_tokens, "{tokens}");
                }
                By::Buckets { boundaries, sizes } => {
                    let bucket = |length| boundaries.iter().filter(|&&boundary| boundary <= length).count();
                    let first = bucket(lengths().next().unwrap());
                    assert!(lengths().all(|length| bucket(length) == first) && batch.len() <= sizes[first]);
                }
            }
        }
        assert!(seen.into_iter().all(|seen| seen));
    }
}

fn cases() -> impl Strategy<Value = Case> {
    let tokens = (60_usize..400, any::<bool>()).prop_map(|(max_tokens, padded)| By::Tokens { max_tokens, padded });
    let buckets = vec(1_usize..8, 1..5).prop_map(|sizes| {
        let boundaries = (1..sizes.len()).map(|i| i * 12).collect();
        By::Buckets { boundaries, sizes }
    });
    let length = prop_oneof![1 => Just(0_usize), 1 => Just(1), 6 => 0_usize..60, 1 => Just(60)];
    let rest = (proptest::option::of(1_usize..9), any::<bool>(), any::<bool>());
    (vec(length, 0..120), prop_oneof![tokens, buckets], rest)
        .prop_map(|(lengths, by, (limit, shuffle, drop_last))| Case { lengths, by, limit, shuffle, drop_last })
}

proptest! {
    #[test]
    fn batches_are_within_their_limits(case in cases(), seed: u64) {
        let mut sampler = case.sampler(seed, (1, 0));
        let passes: Vec<_> = (0..2).map(|_| sampler.batches().unwrap()).collect();
        for batches in &passes {
            case.check(batches, sampler.max_batch_size());
        }
        prop_assert!(case.shuffle || passes[0] == passes[1]);
        // Two batches that are neighbours of the sorted list could not be one.
        if let (By::Tokens { max_tokens, padded: true }, false) = (&case.by, case.shuffle) {
            for pair in passes[0].windows(2) {
                let together = case.lengths[pair[0][0]] * (pair[0].len() + 1);
                prop_assert!(together > *max_tokens || pair[0].len() == sampler.max_batch_size());
            }
        }
    }

    #[test]
    fn ranks_partition_the_batches_equally(case in cases(), seed: u64, replicas in 1_usize..6) {
        let whole = case.sampler(seed, (1, 0)).batches().unwrap();
        let shares: Vec<_> = (0..replicas).map(|rank| case.sampler(seed, (replicas, rank)).batches().unwrap()).collect();
        let len = if case.drop_last { whole.len() / replicas } else { whole.len().div_ceil(replicas) };
        for (rank, share) in shares.iter().enumerate() {
            prop_assert_eq!(share.len(), len);
            for (step, batch) in share.iter().enumerate() {
                prop_assert_eq!(batch, &whole[(step * replicas + rank) % whole.len()]);
            }
        }
    }
}

/// Samples with random numbers, of which some fail.
struct Items(usize);

impl Dataset for Items {
    type Sample<'a> = (i64, u64);

    fn len(&self) -> usize {
        self.0
    }

    fn get<'a>(&'a self, index: usize, cx: &'a mut Context) -> Result<(i64, u64), slotline::BoxError> {
        if index % 50 == 49 { Err("bad".into()) } else { Ok((index as i64, cx.rng().next_u64())) }
    }
}

/// A batch: its samples with what they drew.
type Drawn = Vec<(i64, u64)>;

fn drain(loader: &mut Loader<BatchOf<Items>>, most: usize) -> Vec<Drawn> {
    let pass = loader.epoch().unwrap();
    let read = |batch: Result<slotline::loader::Batch<(i64, u64)>, _>| {
        let batch = batch.unwrap();
        let (indices, words) = batch.tensors();
        assert_eq!(batch.indices(), indices.as_slice());
        indices.as_slice().iter().copied().zip(words.as_slice().iter().copied()).collect()
    };
    pass.take(most).map(read).collect()
}

fn some(by: By) -> Case {
    Case { lengths: (0..300).map(|i| 1 + i * 37 % 60).collect(), by, limit: None, shuffle: true, drop_last: false }
}

fn some_cases() -> [Case; 2] {
    let buckets = By::Buckets { boundaries: vec![10, 40], sizes: vec![9, 5, 2] };
    [some(By::Tokens { max_tokens: 200, padded: true }), some(buckets)]
}

fn load(case: &Case, kind: Workers, ranks: (usize, usize), round_robin: bool) -> Loader<BatchOf<Items>> {
    let builder = Loader::builder(Items(300)).batch_sampler(case.sampler(3, ranks)).seed(8);
    kind.build(builder.on_error(OnError::Skip(Budget::Share(1.0))).round_robin(round_robin)).unwrap()
}

const ALONE: Workers = Workers { workers: 0, processes: false };

#[test]
fn loaders_have_the_planned_batches_for_any_workers() {
    for case in some_cases() {
        let mut plan = case.sampler(3, (1, 0));
        let mut want = load(&case, ALONE, (1, 0), false);
        assert_eq!(want.len(), None, "a pass that was not drawn has no known length");
        let want: Vec<_> = (0..2).map(|_| drain(&mut want, usize::MAX)).collect();
        for pass in &want {
            let plan = plan.batches().unwrap().into_iter();
            let plan: Vec<Vec<i64>> =
                plan.map(|batch| batch.into_iter().filter(|i| i % 50 != 49).map(|i| i as i64).collect()).collect();
            let plan: Vec<Vec<i64>> = plan.into_iter().filter(|batch| !batch.is_empty()).collect();
            assert_eq!(
                pass.iter().map(|batch| batch.iter().map(|item| item.0).collect()).collect::<Vec<Vec<_>>>(),
                plan
            );
        }
        for (kind, round_robin) in worker_kinds([1, 3]).flat_map(|kind| [(kind, false), (kind, true)]) {
            let mut loader = load(&case, kind, (1, 0), round_robin);
            for want in &want {
                assert!(drain(&mut loader, usize::MAX) == *want, "{kind:?}, {round_robin}");
            }
        }
    }
}

#[test]
fn a_pass_knows_its_number_of_batches() {
    let case = &some_cases()[0];
    let mut loader = load(case, ALONE, (2, 1), false);
    let want = case.sampler(3, (2, 1)).batches().unwrap().len();
    let mut pass = loader.epoch().unwrap();
    assert_eq!(pass.remaining(), Some(want));
    pass.next().unwrap().unwrap();
    assert_eq!(pass.remaining(), Some(want - 1));
}

#[test]
fn what_a_sample_draws_is_the_same_for_any_ranks() {
    for case in some_cases() {
        let whole = drain(&mut load(&case, ALONE, (1, 0), false), usize::MAX);
        let shares: Vec<_> = (0..4).map(|rank| drain(&mut load(&case, ALONE, (4, rank), false), usize::MAX)).collect();
        // A batch of which all samples are bad is not delivered, so look for batches by their first sample.
        for batch in shares.iter().flatten() {
            assert!(whole.contains(batch));
        }
        assert!(whole.iter().all(|batch| shares.iter().any(|share| share.contains(batch))));
    }
}

/// What replaces a bad sample keeps its batch below the budget, or in its bucket.
#[test]
fn substitutes_fit_into_the_planned_batches() {
    let packed = some(By::Tokens { max_tokens: 200, padded: false });
    for case in some_cases().into_iter().chain([packed]) {
        let build = |kind: Workers, round_robin| {
            let builder = Loader::builder(Items(300)).batch_sampler(case.sampler(3, (1, 0))).seed(8);
            kind.build(builder.on_error(OnError::Replace(Budget::Share(1.0))).round_robin(round_robin)).unwrap()
        };
        let mut loader = build(ALONE, false);
        let wanted: Vec<_> = (0..20).map(|_| drain(&mut loader, usize::MAX)).collect();
        let mut sampler = case.sampler(3, (1, 0));
        for pass in &wanted {
            let plan = sampler.batches().unwrap();
            assert_eq!(pass.len(), plan.len());
            for (got, plan) in pass.iter().zip(plan) {
                assert_eq!(got.len(), plan.len());
                for (&(got, _), planned) in got.iter().zip(plan) {
                    let got = got as usize;
                    assert!(if planned % 50 == 49 {
                        case.lengths[got] <= case.lengths[planned]
                    } else {
                        got == planned
                    });
                }
            }
        }
        for (kind, round_robin) in worker_kinds([1, 3]).flat_map(|kind| [(kind, false), (kind, true)]) {
            let mut loader = build(kind, round_robin);
            for wanted in &wanted[..2] {
                assert!(drain(&mut loader, usize::MAX) == *wanted, "{kind:?}, {round_robin}");
            }
        }
    }
}

fn state_after(loader: &mut Loader<BatchOf<Items>>, batches: usize) -> (Vec<Drawn>, String) {
    let mut pass = loader.epoch().unwrap();
    let drawn = (0..batches).map(|_| {
        let batch = pass.next().unwrap().unwrap();
        let (indices, words) = batch.tensors();
        indices.as_slice().iter().copied().zip(words.as_slice().iter().copied()).collect()
    });
    let drawn = drawn.collect();
    (drawn, serde_json::to_string(&pass.state()).unwrap())
}

#[test]
fn a_resumed_pass_has_the_batches_of_a_whole_one() {
    for case in some_cases() {
        let mut whole = load(&case, ALONE, (2, 0), false);
        drain(&mut whole, usize::MAX);
        let want = [drain(&mut whole, usize::MAX), drain(&mut whole, usize::MAX)];
        for (cut, kind) in [0, 1, 7, want[0].len()].into_iter().zip(worker_kinds([0, 2]).cycle()) {
            let mut first = load(&case, ALONE, (2, 0), false);
            drain(&mut first, usize::MAX);
            let (_, state) = state_after(&mut first, cut);
            let mut second = load(&case, kind, (2, 0), false);
            second.load_state(&serde_json::from_str(&state).unwrap()).unwrap();
            assert!(drain(&mut second, usize::MAX) == want[0][cut..], "{cut}");
            assert!(drain(&mut second, usize::MAX) == want[1], "{cut}");
        }
    }
}

#[test]
fn another_number_of_ranks_shares_the_rest() {
    for mut case in some_cases() {
        // Without bad samples, every batch is delivered.
        case.lengths.truncate(49);
        let build = |ranks| {
            let builder = Loader::builder(Items(49)).batch_sampler(case.sampler(3, ranks)).seed(8);
            builder.build().unwrap()
        };
        let whole = drain(&mut build((1, 0)), usize::MAX);
        let next = {
            let mut loader = build((1, 0));
            drain(&mut loader, usize::MAX);
            drain(&mut loader, usize::MAX)
        };
        // Two ranks, then three, then one.
        let (_, state) = state_after(&mut build((2, 1)), 1);
        let mut shares = Vec::new();
        let mut later = String::new();
        for rank in 0..3 {
            let mut loader = build((3, rank));
            loader.load_state(&serde_json::from_str(&state).unwrap()).unwrap();
            let (drawn, state) = state_after(&mut loader, 2);
            shares.push(drawn);
            later = state;
        }
        for (place, batch) in whole[2..8].iter().enumerate() {
            assert!(shares[place % 3][place / 3] == *batch);
        }
        let mut last = build((1, 0));
        last.load_state(&serde_json::from_str(&later).unwrap()).unwrap();
        assert!(drain(&mut last, usize::MAX) == whole[8..]);
        assert!(drain(&mut last, usize::MAX) == next);
    }
}

#[test]
fn an_impossible_state_is_refused() {
    let case = &some_cases()[0];
    let (_, state) = state_after(&mut load(case, ALONE, (1, 0), false), 3);
    let load_with = |from: &str, to: &str| {
        assert!(state.contains(from), "{state}");
        let mut loader = load(case, ALONE, (1, 0), false);
        let loaded = loader.load_state(&serde_json::from_str(&state.replace(from, to)).unwrap());
        loaded.map_err(|error| error.to_string())?;
        loader.epoch().map(drop).map_err(|error| error.to_string())
    };
    load_with("position=0", "position=0").unwrap();
    for (from, to, want) in [
        ("max_tokens=200", "max_tokens=300", "max_tokens was 300"),
        ("padded=true", "padded=false", "padded was false"),
        ("position=0 dealt=0", "position=2 dealt=1", "dealt was 1"),
        ("position=0 dealt=0", "position=5 dealt=9", "fewer batches were delivered"),
        ("position=0 dealt=0", "position=1 dealt=290", "the state's pass had 292 batches or more"),
        ("\"batches\":3", "\"batches\":300000", "batches"),
    ] {
        let error = load_with(from, to).unwrap_err();
        assert!(error.contains(want), "{want}: {error}");
    }
}

#[test]
fn bad_arguments_are_errors_that_name_them() {
    let lengths = || [3, 9, 0];
    let error = LengthGroupedSampler::new(lengths(), 0).unwrap_err().to_string();
    assert!(error.contains("LengthGroupedSampler: batch_size is 0"), "{error}");
    let error = LengthBatchSampler::token_budget(lengths(), 8).unwrap_err().to_string();
    assert!(error.contains("LengthBatchSampler: sample 1 has 9 tokens, but max_tokens is 8; raise it"), "{error}");
    #[cfg(target_pointer_width = "64")]
    for error in [
        LengthGroupedSampler::new([1, 1 << 32], 2).map(drop).unwrap_err(),
        LengthBatchSampler::token_budget([1, 1 << 32], usize::MAX).map(drop).unwrap_err(),
    ] {
        assert!(error.to_string().contains("length 1 is 4294967296; lengths must be below 2^32"), "{error}");
    }
    let buckets = |boundaries: &[usize], sizes: &[usize]| {
        let made = LengthBatchSampler::buckets(lengths(), boundaries.to_vec(), sizes.to_vec());
        made.map(drop).unwrap_err().to_string()
    };
    for (boundaries, sizes) in [(&[5][..], &[1][..]), (&[], &[]), (&[5, 5], &[1, 1, 1]), (&[6, 5], &[1, 1, 1])] {
        let error = buckets(boundaries, sizes);
        assert!(error.contains("boundaries must ascend, and there must be one batch size more"), "{error}");
    }
    assert!(buckets(&[5], &[1, 0]).contains("batch_size is 0"));
    let budget = || LengthBatchSampler::token_budget(lengths(), 9).unwrap();
    assert!(budget().limit(0).unwrap_err().to_string().contains("batch_size is 0"));
    assert!(budget().replicas(0, 0).unwrap_err().to_string().contains("num_replicas is 0"));
    assert!(budget().replicas(2, 2).unwrap_err().to_string().contains("rank 2 is not one of 2 replicas"));
    let mut loader =
        Loader::builder(from_fn(3, |_, _| Ok(0_u8))).batch_sampler(budget().replicas(2, 0).unwrap()).build().unwrap();
    let error = loader.epoch().map(drop).unwrap_err();
    assert!(format!("{error:?}").contains("ReplicasWithoutGenerator"), "{error:?}");
}

#[test]
fn the_most_samples_are_known_before_a_pass() {
    let most = |lengths: &[usize], max_tokens, padded| {
        let sampler = LengthBatchSampler::token_budget(lengths.to_vec(), max_tokens).unwrap();
        sampler.padded(padded).max_batch_size()
    };
    assert_eq!((most(&[4, 1, 2, 8], 8, true), most(&[4, 1, 2, 8], 8, false)), (2, 3));
    assert_eq!((most(&[0; 5], 0, true), most(&[], 7, true), most(&[3; 9], 27, true)), (5, 1, 9));
    // The figure for the other count is not kept.
    let sampler = LengthBatchSampler::token_budget([4, 1, 2, 8], 8).unwrap().padded(false).padded(true);
    assert_eq!(sampler.max_batch_size(), 2);
}
