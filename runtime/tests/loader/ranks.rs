//! Tests of loaders that distribute their passes among ranks themselves.

#[path = "../support/planned.rs"]
mod planned;

use std::sync::{Barrier, Mutex};
use std::thread;

use proptest::prelude::*;
use slotline::dataset::{from_fn, iter_fn};
use slotline::loader::{Budget, BuildError, OnError, State};
use slotline::ranks::repeat_while_any;
use slotline::rng::Generator;
use slotline::rng::rand_core::Rng;
use slotline::sampler::{BatchSampler, DistributedSampler, Sampler, WeightedRandomSampler};
use slotline::{Batch, BoxError, Loader, Ranks};

use self::planned::Planned;

/// A delivered sample: its index, and the random number that it drew.
type Delivered = (i64, u64);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Source {
    Sequential,
    Shuffle,
    Weighted,
    BatchSampler,
    Indices,
    Lists,
}

const SOURCES: [Source; 6] =
    [Source::Sequential, Source::Shuffle, Source::Weighted, Source::BatchSampler, Source::Indices, Source::Lists];

#[derive(Clone, Copy, Debug)]
struct What {
    source: Source,
    len: usize,
    batch_size: usize,
    drop_last: bool,
    /// One in this many samples is bad, and skipped. If 0, none is bad.
    bad: usize,
}

fn loader(what: What, world_size: usize, rank: usize) -> Loader<Batch<Delivered>> {
    let What { source, len, batch_size, drop_last, bad } = what;
    let dataset = from_fn(len, move |index, cx| {
        if bad > 0 && index % bad == 1 {
            Err("bad")?
        }
        Ok::<_, BoxError>((index as i64, cx.rng().next_u64()))
    });
    let ranks = Ranks::new(rank, world_size).unwrap();
    let mut builder = Loader::builder(dataset).seed(3).ranks(ranks).num_workers(rank % 2);
    if bad > 0 {
        builder = builder.on_error(OnError::Skip(Budget::Samples(usize::MAX)));
    }
    let batched = |builder: slotline::loader::Builder<_, _>| builder.batch_size(batch_size).drop_last(drop_last);
    let weighted = || WeightedRandomSampler::new(vec![1.0; len], len).unwrap();
    match source {
        Source::Sequential => batched(builder),
        Source::Shuffle => batched(builder).shuffle(true),
        Source::Weighted => batched(builder).sampler(weighted()),
        Source::BatchSampler => builder.batch_sampler(BatchSampler::new(weighted(), batch_size, drop_last).unwrap()),
        Source::Indices => batched(builder).sampler_iter(move || 0..len),
        Source::Lists => builder.batch_sampler_iter(batch_size, move || {
            (0..len.div_ceil(batch_size))
                .map(move |i| (i * batch_size..len.min((i + 1) * batch_size)).collect::<Vec<_>>())
        }),
    }
    .build()
    .unwrap()
}

fn batches_of(pass: impl Iterator<Item = Result<Batch<Delivered>, slotline::Error>>) -> Vec<Vec<Delivered>> {
    pass.map(|batch| {
        let batch = batch.unwrap();
        let (indices, words) = batch.tensors();
        indices.as_slice().iter().copied().zip(words.as_slice().iter().copied()).collect()
    })
    .collect()
}

fn pass_of(loader: &mut Loader<Batch<Delivered>>) -> Vec<Vec<Delivered>> {
    batches_of(loader.epoch().unwrap())
}

/// Returns the samples of all ranks in the order in which a single rank would have them, without
/// those that were repeated.
fn together(shares: &[Vec<Vec<Delivered>>], most: usize) -> Vec<Delivered> {
    let shares: Vec<Vec<Delivered>> = shares.iter().map(|share| share.concat()).collect();
    let len = shares[0].len();
    (0..len).flat_map(|i| shares.iter().map(move |share| share[i])).take(most).collect()
}

#[test]
fn shuffled_shares_are_torchs_in_each_epoch() {
    for rank in 0..3 {
        let what = What { source: Source::Shuffle, len: 20, batch_size: 4, drop_last: false, bad: 0 };
        let mut loader = loader(what, 3, rank);
        for epoch in 0..3 {
            let mut sampler = DistributedSampler::new(20, 3, rank).unwrap().seed(3);
            sampler.set_epoch(epoch);
            let indices = pass_of(&mut loader).concat().into_iter().map(|(index, _)| index as usize);
            assert!(indices.eq(sampler.indices().unwrap()));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// All ranks must have the same number of batches, with equal numbers of samples. Together they
    /// must have the samples of a single rank.
    #[test]
    fn ranks_have_equal_batches(
        source in 0usize..6, len in 1usize..60, batch_size in 1usize..8, drop_last: bool, world_size in 1usize..6,
    ) {
        let source = SOURCES[source];
        let drop_last = drop_last && source != Source::Lists;
        let what = What { source, len, batch_size, drop_last, bad: 0 };
        let mut loaders: Vec<_> = (0..world_size).map(|rank| loader(what, world_size, rank)).collect();
        let mut alone = loader(what, 1, 0);
        for _ in 0..2 {
            let shares: Vec<_> = loaders.iter_mut().map(pass_of).collect();
            for share in &shares {
                assert_eq!(share.len(), shares[0].len());
                if !matches!(source, Source::Indices | Source::Lists) {
                    assert!(share.iter().map(Vec::len).eq(shares[0].iter().map(Vec::len)));
                }
            }
            let alone = pass_of(&mut alone).concat();
            if matches!(source, Source::Indices | Source::Lists) {
                let mut indices: Vec<_> = shares.iter().flatten().flatten().map(|&(index, _)| index).collect();
                indices.sort();
                indices.dedup();
                if !drop_last {
                    assert!(indices.into_iter().eq(0..len as i64));
                }
                // No two ranks may draw the same random numbers.
                let mut words: Vec<_> = shares.iter().flatten().flatten().map(|&(_, word)| word).collect();
                let count = words.len();
                words.sort();
                words.dedup();
                assert_eq!(words.len(), count);
            } else if !drop_last {
                assert_eq!(together(&shares, len), alone);
            }
        }
    }

    /// Another number of ranks must be able to continue a pass that was interrupted, and to run the
    /// passes after it.
    #[test]
    fn other_ranks_resume(
        source in 0usize..4, len in 1usize..80, batch_size in 1usize..5, before in 1usize..9, after in 1usize..13,
        delivered in 0usize..4,
    ) {
        let what = What { source: SOURCES[source], len, batch_size, drop_last: false, bad: 0 };
        let mut states: Vec<State> = Vec::new();
        let mut begun = Vec::new();
        for rank in 0..before {
            let mut loader = loader(what, before, rank);
            let mut pass = loader.epoch().unwrap();
            begun.push(batches_of(pass.by_ref().take(delivered)));
            states.push(pass.state());
        }
        let seen = together(&begun, len);
        let mut alone = loader(what, 1, 0);
        let whole = pass_of(&mut alone).concat();
        let (mut rest, mut next) = (Vec::new(), Vec::new());
        for rank in 0..after {
            let mut loader = loader(what, after, rank);
            loader.load_state(&states[rank % before]).unwrap();
            let was_over = seen.len() == len;
            rest.push(if was_over { Vec::new() } else { pass_of(&mut loader) });
            if !was_over {
                next.push(pass_of(&mut loader));
            }
        }
        let resumed = [seen, together(&rest, len)].concat();
        assert_eq!(&resumed[..len], whole);
        if !next.is_empty() {
            assert_eq!(together(&next, len), pass_of(&mut alone).concat());
        }
    }

    /// Skipped bad samples make batches smaller, but must not change the number of batches.
    #[test]
    fn bad_samples_leave_the_number_of_batches(
        source in 0usize..6, len in 1usize..60, batch_size in 1usize..5, world_size in 1usize..5, bad in 2usize..4,
    ) {
        let what = What { source: SOURCES[source], len, batch_size, drop_last: false, bad };
        let counts = (0..world_size).map(|rank| loader(what, world_size, rank).epoch().unwrap().count());
        let counts: Vec<_> = counts.collect();
        assert!(counts.iter().all(|&count| count == counts[0]), "{counts:?}");
    }
}

#[test]
fn a_loader_without_a_seed_has_the_same_order_on_all_ranks() {
    let share = |rank| {
        let dataset = from_fn(100, |index, _| Ok(index as i64));
        let ranks = Ranks::new(rank, 2).unwrap();
        let mut loader = Loader::builder(dataset).batch_size(10).shuffle(true).ranks(ranks).build().unwrap();
        loader.epoch().unwrap().flat_map(|batch| batch.unwrap().tensors().as_slice().to_vec()).collect::<Vec<_>>()
    };
    let mut both = [share(0), share(1)].concat();
    both.sort();
    assert!(both.into_iter().eq(0..100));
}

#[test]
fn what_cannot_be_divided_is_an_error() {
    let dataset = || from_fn(4, |index, _| Ok(index as i64));
    let ranks = Ranks::new(0, 2).unwrap();
    let error =
        Loader::builder(dataset()).batch_sampler(Planned::batches([1, 2, 3, 4], 0)).ranks(ranks).build().unwrap_err();
    assert!(
        matches!(error, BuildError::Clash { .. }) && error.to_string().contains("LengthBatchSampler::replicas"),
        "{error}"
    );

    let stream = slotline::dataset::iter_fn(|_| Ok((0..4i64).map(Ok)));
    let error = Loader::iterable(stream).ranks(ranks).build().unwrap_err();
    assert!(error.to_string().contains("let the dataset read its share"), "{error}");
}

#[test]
fn the_state_of_an_iterator_names_the_number_of_ranks() {
    let what = What { source: Source::Indices, len: 20, batch_size: 2, drop_last: false, bad: 0 };
    let mut first = loader(what, 2, 0);
    let mut pass = first.epoch().unwrap();
    pass.next().unwrap().unwrap();
    let state = pass.state();
    let error = loader(what, 3, 0).load_state(&state).unwrap_err().to_string();
    assert!(error.contains("iterator of 2 ranks") && error.contains("iterator of 3 ranks"), "{error}");
    let mut same = loader(what, 2, 0);
    same.load_state(&state).unwrap();
    drop(pass);
    assert_eq!(pass_of(&mut same), pass_of(&mut loader(what, 2, 0))[1..]);
}

#[test]
fn states_of_all_ranks_are_merged() {
    let what = What { source: Source::Shuffle, len: 40, batch_size: 2, drop_last: false, bad: 3 };
    let state_after = |what, rank, batches| {
        let mut loader = loader(what, 4, rank);
        let mut pass = loader.epoch().unwrap();
        pass.by_ref().take(batches).for_each(|batch| drop(batch.unwrap()));
        pass.state()
    };
    let mut states: Vec<_> = (0..4).map(|rank| state_after(what, rank, 2)).collect();
    let merged = State::merge(&states).unwrap();
    assert_eq!((merged.epoch(), merged.batches()), (0, 2));
    loader(what, 3, 0).load_state(&merged).unwrap();

    let error = |states: &[State]| State::merge(states).unwrap_err().to_string();
    assert_eq!(error(&[]), "there are no states to merge");
    states[2] = state_after(what, 2, 3);
    assert!(error(&states).contains("state 2 is of pass 0 after 3 batches, but the first one of pass 0 after 2"));
    states[2] = state_after(What { batch_size: 4, ..what }, 2, 2);
    assert!(error(&states).contains("state 2 has batch_size=Some(4), but the first one batch_size=Some(2)"));
    let stream = slotline::dataset::iter_fn(|_| Ok((0..4i64).map(Ok)));
    let stream = Loader::iterable(stream).build().unwrap().state();
    assert!(error(&[stream]).contains("state 0 is of a stream"));
}

#[test]
fn a_generator_of_the_users_seeds_the_order() {
    let indices = |generator: Generator| {
        let dataset = from_fn(50, |index, _| Ok(index as i64));
        let ranks = Ranks::new(1, 2).unwrap();
        let mut loader =
            Loader::builder(dataset).batch_size(5).shuffle(true).generator(generator).ranks(ranks).build().unwrap();
        loader.epoch().unwrap().flat_map(|batch| batch.unwrap().tensors().as_slice().to_vec()).collect::<Vec<_>>()
    };
    assert_eq!(indices(Generator::from_seed(8)), indices(Generator::from_seed(8)));
    assert_ne!(indices(Generator::from_seed(8)), indices(Generator::from_seed(9)));
}

/// Each of three threads is a rank, with a stream of 3, 5 or 1 batches. The threads reduce values
/// as a library for collective operations does: each call waits for all ranks.
#[test]
fn streams_are_repeated_until_the_longest_has_ended() {
    let lens = [3_usize, 5, 1];
    let (barrier, any) = (Barrier::new(lens.len()), Mutex::new((0, false)));
    let reduce = |step: &mut usize, mine: bool| {
        {
            let mut any = any.lock().unwrap();
            if any.0 != *step {
                *any = (*step, false);
            }
            any.1 |= mine;
        }
        barrier.wait();
        *step += 1;
        let any = any.lock().unwrap().1;
        barrier.wait();
        any
    };
    let run = |len: usize| {
        let stream = iter_fn(move |_| Ok((0..len as i64).map(Ok::<_, BoxError>)));
        let mut loader = Loader::iterable(stream).num_workers(len % 2).build().unwrap();
        let mut passes = Vec::new();
        for _pass in 0..2 {
            let mut step = 1;
            let loop_ = repeat_while_any(&mut loader, |mine| Ok(reduce(&mut step, mine))).unwrap();
            passes.push(loop_.map(|batch| batch.unwrap().unwrap().tensors().as_slice()[0]).collect::<Vec<i64>>());
            assert_eq!(loader.next_epoch() as usize, passes.len());
        }
        passes
    };
    thread::scope(|scope| {
        let ranks: Vec<_> = lens.iter().map(|&len| scope.spawn(move || run(len))).collect();
        for (rank, len) in ranks.into_iter().zip(lens) {
            let expected: Vec<i64> = (0..len as i64).cycle().take(5).collect();
            assert_eq!(rank.join().unwrap(), vec![expected; 2]);
        }
    });
}

#[test]
fn a_stream_without_samples_cannot_be_repeated() {
    let stream = iter_fn(|_| Ok(std::iter::empty::<Result<i64, BoxError>>()));
    let mut loader = Loader::iterable(stream).build().unwrap();
    let mut batches = repeat_while_any(&mut loader, |_| Ok(true)).unwrap();
    let error = batches.next().unwrap().err().unwrap();
    assert!(error.to_string().contains("no batches to repeat"), "{error}");
    assert!(batches.next().is_none());
}
