//! A pass that replicas share goes on with another number of them: no sample comes twice, but for those that make the shares
//! equal, and none is lost, but for those that `drop_last` drops.

use proptest::collection::vec;
use proptest::prelude::*;
use slotline::loader::State;
use slotline::rng::rand_core::Rng;
use slotline::sampler::DistributedSampler;
use slotline::{Batch, Loader};

use crate::support::from_fn;

#[derive(Clone, Debug)]
struct What {
    len: usize,
    batch_size: usize,
    shuffle: bool,
    drop_last: bool,
    epoch: u64,
}

fn loader(what: &What, replicas: usize, rank: usize) -> Loader<Batch<Came>> {
    let sampler = DistributedSampler::new(what.len, replicas, rank).unwrap();
    let sampler = sampler.shuffle(what.shuffle).drop_last(what.drop_last).seed(3);
    sampler.set_epoch(what.epoch);
    let dataset = from_fn(what.len, |index, cx| Ok((index as i64, cx.rng().next_u64())));
    let builder = Loader::builder(dataset).batch_size(what.batch_size).sampler(sampler).seed(1);
    builder.num_workers(rank % 2).build().unwrap()
}

/// A sample that came, with the random number that it drew.
type Came = (i64, u64);

/// What each of so many replicas gives of the pass, from a state on, with the number of its first batch; at most so many
/// batches of each. And the state of one of them.
fn part(what: &What, replicas: usize, from: Option<&State>, most: usize, of: usize) -> (Vec<Vec<Came>>, State) {
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
            assert_eq!((batch.task(), batch.epoch()), (task, 0));
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

/// The list in the order in which it is dealt out.
fn dealt(shares: &[Vec<Came>]) -> Vec<Came> {
    (0..shares[0].len()).flat_map(|position| shares.iter().map(move |share| share[position])).collect()
}

fn what() -> impl Strategy<Value = What> {
    (1_usize..120, 1_usize..6, any::<bool>(), any::<bool>(), 0_u64..4)
        .prop_map(|(len, batch_size, shuffle, drop_last, epoch)| What { len, batch_size, shuffle, drop_last, epoch })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn any_number_of_replicas_goes_on_with_what_is_left(
        what in what(),
        parts in vec((1_usize..9, 0_usize..6, 0_usize..8), 0..4),
        last in 1_usize..9,
    ) {
        let (mut list, mut state) = (Vec::new(), None::<State>);
        for (replicas, most, of) in parts.into_iter().chain([(last, usize::MAX, 0)]) {
            let (shares, next) = part(&what, replicas, state.as_ref(), most, of);
            list.extend(dealt(&shares));
            if next.epoch() > 0 {
                break;
            }
            state = Some(next);
        }
        // The same list as that of a single replica, padded from its start or cut.
        let (whole, _) = part(&What { drop_last: false, ..what.clone() }, 1, None, usize::MAX, 0);
        let want = whole[0].iter().map(|&(index, _)| index).cycle().take(list.len());
        prop_assert!(list.iter().map(|&(index, _)| index).eq(want), "{list:?}");
        // A random number belongs to the place in the list; what is repeated has places of its own.
        prop_assert!(list.iter().zip(&whole[0]).all(|(came, want)| came == want), "{list:?}, {whole:?}");
        if what.drop_last {
            prop_assert!(list.len() <= what.len && what.len - list.len() < 8, "{} of {}", list.len(), what.len);
        } else {
            prop_assert!(list.len() >= what.len && list.len() - what.len < 8, "{} of {}", list.len(), what.len);
        }
    }

    #[test]
    fn as_many_replicas_go_on_as_if_they_had_never_stopped(
        what in what(),
        replicas in 1_usize..9,
        cuts in vec((0_usize..6, 0_usize..8), 1..4),
    ) {
        let (mut came, mut state) = (vec![Vec::new(); replicas], None::<State>);
        for (most, of) in cuts.into_iter().chain([(usize::MAX, 0)]) {
            let (shares, next) = part(&what, replicas, state.as_ref(), most, of);
            came.iter_mut().zip(shares).for_each(|(came, share)| came.extend(share));
            if next.epoch() > 0 {
                break;
            }
            state = Some(next);
        }
        prop_assert_eq!(came, part(&what, replicas, None, usize::MAX, 0).0);
    }
}

#[test]
fn the_pass_after_is_as_always_and_the_epoch_is_that_of_the_state() {
    let what = What { len: 40, batch_size: 2, shuffle: true, drop_last: false, epoch: 5 };
    let (_, state) = part(&what, 4, None, 3, 2);
    let sampler = DistributedSampler::new(40, 2, 1).unwrap().seed(3);
    let epoch = sampler.epoch();
    let dataset = from_fn(40, |index, _| Ok(index as i64));
    let mut loader = Loader::builder(dataset).batch_size(2).sampler(sampler).seed(1).build().unwrap();
    loader.load_state(&state).unwrap();
    assert_eq!(epoch.get(), 5);
    epoch.set(6);
    let error = loader.epoch().unwrap_err().to_string();
    assert!(error.contains("epoch 5, but 6 was set"), "{error}");
    epoch.set(5);
    assert_eq!(loader.epoch().unwrap().count(), 4, "8 of the 16 that are left for each");
    epoch.set(6);
    let next: Vec<i64> = loader.epoch().unwrap().flat_map(|batch| batch.unwrap().indices().to_vec()).collect();
    let (shares, _) = part(&What { epoch: 6, ..what }, 2, None, usize::MAX, 0);
    assert!(next.into_iter().eq(shares[1].iter().map(|&(index, _)| index)));
}

#[test]
fn others_cannot_go_on_where_batches_were_passed_over() {
    let what = What { len: 40, batch_size: 2, shuffle: true, drop_last: false, epoch: 0 };
    let (_, state) = part(&what, 4, None, 3, 0);
    let mut value = serde_json::to_value(&state).unwrap();
    value["missing"] = vec![1].into();
    let state: State = serde_json::from_value(value).unwrap();
    let mut same = loader(&what, 4, 0);
    same.load_state(&state).unwrap();
    let tasks: Vec<usize> = same.epoch().unwrap().map(|batch| batch.unwrap().task()).collect();
    assert_eq!(tasks, [1, 4]);
    let error = loader(&what, 2, 0).load_state(&state).unwrap_err();
    assert_eq!(error.field(), "sampler");
    assert!(error.to_string().contains("no batch was skipped"), "{error}");
}
