//! Tests that a pass that replicas (ranks) share can resume with another number of replicas. No
//! sample may be repeated, except those that make the shares equally long, and none may be lost,
//! except those that `drop_last` drops.

use proptest::collection::vec;
use proptest::prelude::*;
use slotline::loader::State;
use slotline::rng::rand_core::Rng;
use slotline::sampler::{DistributedSampler, RandomSampler};
use slotline::{Batch, Loader};

use crate::support::{chain, from_fn};

#[derive(Clone, Debug)]
struct What {
    len: usize,
    batch_size: usize,
    shuffle: bool,
    drop_last: bool,
    epoch: u64,
    /// Whether the replicas share the order of another sampler. Otherwise they share a random
    /// permutation.
    over: bool,
}

fn loader(what: &What, replicas: usize, rank: usize) -> Loader<Batch<Delivered>> {
    let sampler = if what.over {
        let some = RandomSampler::new(3 * what.len).unwrap().num_samples(what.len).unwrap();
        DistributedSampler::over(some, replicas, rank)
    } else {
        DistributedSampler::new(what.len, replicas, rank)
    };
    let sampler = sampler.unwrap().shuffle(what.shuffle).drop_last(what.drop_last).seed(3);
    sampler.set_epoch(what.epoch);
    let dataset = from_fn(3 * what.len, |index, cx| Ok((index as i64, cx.rng().next_u64())));
    let builder = Loader::builder(dataset).batch_size(what.batch_size).sampler(sampler).seed(1);
    builder.num_workers(rank % 2).build().unwrap()
}

/// A delivered sample: its index, and the random number that it drew.
type Delivered = (i64, u64);

/// Runs at most `most` batches of a pass on each of `replicas` replicas, from the state `from`, or
/// from the start if it is `None`. Returns the samples of each replica, and the state of the
/// replica with the number `of % replicas`.
fn part(what: &What, replicas: usize, from: Option<&State>, most: usize, of: usize) -> (Vec<Vec<Delivered>>, State) {
    let mut state = None;
    let shares = (0..replicas).map(|rank| {
        let mut loader = loader(what, replicas, rank);
        let mut task = 0;
        if let Some(state) = from {
            loader.load_state(state).unwrap();
            task = state.batches();
        }
        let (mut pass, mut share) = (loader.epoch().unwrap(), Vec::new());
        for batch in pass.by_ref().take(most) {
            let batch = batch.unwrap();
            assert_eq!((batch.batch_index(), batch.epoch()), (task, 0));
            let (indices, words) = batch.tensors();
            assert_eq!(indices.as_slice(), batch.indices());
            share.extend(indices.as_slice().iter().copied().zip(words.as_slice().iter().copied()));
            task += 1;
        }
        if rank == of % replicas {
            state = Some(serde_json::from_str(&serde_json::to_string(&pass.state()).unwrap()).unwrap());
        }
        share
    });
    let shares: Vec<_> = shares.collect();
    assert!(shares.iter().all(|share| share.len() == shares[0].len()), "{shares:?}");
    (shares, state.unwrap())
}

/// Merges the shares: returns their samples in the order of the list from which they were taken.
fn in_list_order(shares: &[Vec<Delivered>]) -> Vec<Delivered> {
    (0..shares[0].len()).flat_map(|position| shares.iter().map(move |share| share[position])).collect()
}

fn what() -> impl Strategy<Value = What> {
    (1_usize..120, 1_usize..6, any::<bool>(), any::<bool>(), 0_u64..4, any::<bool>()).prop_map(
        |(len, batch_size, shuffle, drop_last, epoch, over)| What { len, batch_size, shuffle, drop_last, epoch, over },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn any_number_of_replicas_continues_with_the_rest(
        what in what(),
        parts in vec((1_usize..9, 0_usize..6, 0_usize..8), 0..4),
        last in 1_usize..9,
    ) {
        let (mut list, mut state) = (Vec::new(), None::<State>);
        for (replicas, most, of) in parts.into_iter().chain([(last, usize::MAX, 0)]) {
            let (shares, next) = part(&what, replicas, state.as_ref(), most, of);
            list.extend(in_list_order(&shares));
            if next.epoch() > 0 {
                break;
            }
            state = Some(next);
        }
        // The list equals that of a single replica, padded from its start or truncated.
        let (whole, _) = part(&What { drop_last: false, ..what.clone() }, 1, None, usize::MAX, 0);
        let want = whole[0].iter().map(|&(index, _)| index).cycle().take(list.len());
        prop_assert!(list.iter().map(|&(index, _)| index).eq(want), "{list:?}");
        // A random number depends on the sample's place in the list that is shared. A sample that
        // is repeated has a second place.
        prop_assert!(list.iter().zip(&whole[0]).all(|(delivered, want)| delivered == want), "{list:?}, {whole:?}");
        if what.drop_last {
            prop_assert!(list.len() <= what.len && what.len - list.len() < 8, "{} of {}", list.len(), what.len);
        } else {
            prop_assert!(list.len() >= what.len && list.len() - what.len < 8, "{} of {}", list.len(), what.len);
        }
    }

    #[test]
    fn another_pass_than_the_loaded_one_is_whole(what in what(), replicas in 1_usize..4, most in 1_usize..4) {
        let (whole, _) = part(&what, replicas, None, usize::MAX, 0);
        let (_, state) = part(&what, replicas, None, most, 0);
        for (rank, share) in whole.iter().enumerate() {
            let mut loader = loader(&what, replicas, rank);
            loader.load_state(&state).unwrap();
            loader.set_next_epoch(0);
            let batches = loader.epoch().unwrap().map(|batch| batch.unwrap().tensors().0.as_slice().to_vec());
            let indices: Vec<i64> = batches.flatten().collect();
            // The order of another sampler is drawn anew, as the caller does not set back its generator.
            prop_assert!(what.over || share.iter().map(|&(index, _)| index).eq(indices.iter().copied()), "{:?}", indices);
            prop_assert_eq!(indices.len(), share.len());
        }
    }

    #[test]
    fn the_same_number_of_replicas_resumes_exactly(
        what in what(),
        replicas in 1_usize..9,
        cuts in vec((0_usize..6, 0_usize..8), 1..4),
    ) {
        let (mut delivered, mut state) = (vec![Vec::new(); replicas], None::<State>);
        for (most, of) in cuts.into_iter().chain([(usize::MAX, 0)]) {
            let (shares, next) = part(&what, replicas, state.as_ref(), most, of);
            delivered.iter_mut().zip(shares).for_each(|(delivered, share)| delivered.extend(share));
            if next.epoch() > 0 {
                break;
            }
            state = Some(next);
        }
        prop_assert_eq!(delivered, part(&what, replicas, None, usize::MAX, 0).0);
    }
}

#[test]
fn the_state_fixes_the_epoch_of_only_the_resumed_pass() {
    let what = What { len: 40, batch_size: 2, shuffle: true, drop_last: false, epoch: 5, over: false };
    let (_, state) = part(&what, 4, None, 3, 2);
    let sampler = DistributedSampler::new(40, 2, 1).unwrap().seed(3);
    let epoch = sampler.epoch();
    let dataset = from_fn(120, |index, _| Ok(index as i64));
    let mut loader = Loader::builder(dataset).batch_size(2).sampler(sampler).seed(1).build().unwrap();
    loader.load_state(&state).unwrap();
    assert_eq!(epoch.get(), 5);
    epoch.set(6);
    let error = loader.epoch().unwrap_err().to_string();
    assert!(error.contains("epoch 5, but 6 was set"), "{error}");
    epoch.set(5);
    assert_eq!(loader.epoch().unwrap().count(), 4, "each replica has 8 of the 16 remaining samples");
    epoch.set(6);
    let next: Vec<i64> = loader.epoch().unwrap().flat_map(|batch| batch.unwrap().indices().to_vec()).collect();
    let (shares, _) = part(&What { epoch: 6, ..what }, 2, None, usize::MAX, 0);
    assert!(next.into_iter().eq(shares[1].iter().map(|&(index, _)| index)));
}

#[test]
fn missing_batches_require_the_same_number_of_replicas() {
    let what = What { len: 40, batch_size: 2, shuffle: true, drop_last: false, epoch: 0, over: false };
    let (_, state) = part(&what, 4, None, 3, 0);
    let mut value = serde_json::to_value(&state).unwrap();
    value["missing"] = vec![1].into();
    let state: State = serde_json::from_value(value).unwrap();
    let mut same = loader(&what, 4, 0);
    same.load_state(&state).unwrap();
    let tasks: Vec<usize> = same.epoch().unwrap().map(|batch| batch.unwrap().batch_index()).collect();
    assert_eq!(tasks, [1, 4]);
    let error = loader(&what, 2, 0).load_state(&state).unwrap_err();
    assert_eq!(error.field(), "sampler");
    assert!(chain(&error).contains("no batch was skipped"), "{error}");
}
