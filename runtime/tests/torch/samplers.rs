//! Tests of custom samplers and batch samplers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use slotline::rng::Generator;
use slotline::sampler::{
    BatchSampler, DistributedSampler, Order, RandomSampler, Sampler, SamplerError, SubsetRandomSampler,
};
use slotline::{BoxError, Error};

use crate::support::{self, sampler_fn};
use crate::{Loader, Passes, all_kinds, nothing, numbers, values};

/// Returns a sampler of every second index, from the end.
fn backwards(len: usize) -> impl Sampler {
    sampler_fn(len.div_ceil(2), move |order| {
        order.u32_table().extend((0..len as u32).rev().step_by(2));
        Ok(())
    })
}

/// Returns the first order that a sampler draws.
fn drawn(mut sampler: impl Sampler) -> Vec<i64> {
    let mut order = Order::default();
    sampler.order(&mut Generator::new(), &mut order).unwrap();
    (0..order.len()).map(|position| order.index(position) as i64).collect()
}

#[test]
fn a_custom_sampler_decides_the_order() {
    for workers in [0, 3] {
        let builder = || Loader::builder(numbers(9, nothing)).sampler(backwards(9)).num_workers(workers);
        for mut loader in all_kinds(|| builder().batch_size(2)) {
            assert_eq!(loader.len(), Some(3));
            for _ in 0..2 {
                assert_eq!(loader.whole(), [vec![8, 6], vec![4, 2], vec![0]]);
            }
        }
        for mut loader in all_kinds(|| builder().batch_size(2).drop_last(true)) {
            assert_eq!((loader.len(), loader.whole()), (Some(2), vec![vec![8, 6], vec![4, 2]]));
        }
        for mut loader in all_kinds(|| builder().batch_size(None)) {
            assert_eq!(loader.whole().concat(), [8, 6, 4, 2, 0]);
        }
    }
}

#[test]
fn torchs_samplers_can_replace_shuffle() {
    let random = || RandomSampler::new(9).unwrap().generator(Generator::from_seed(4));
    let subset = || SubsetRandomSampler::new([8, 1, 1, 5]).generator(Generator::from_seed(4));
    for workers in [0, 2] {
        let builder = || Loader::builder(numbers(9, nothing)).batch_size(4).num_workers(workers);
        for mut loader in all_kinds(|| builder().sampler(random())) {
            assert_eq!(loader.whole().concat(), drawn(random()));
        }
        for mut loader in all_kinds(|| builder().sampler(subset())) {
            assert_eq!(loader.whole().concat(), drawn(subset()));
        }
    }
}

#[test]
fn sampler_iter_makes_a_new_iterator_for_each_pass() {
    for workers in [0, 2] {
        for drop_last in [false, true] {
            let builder = Loader::builder(numbers(9, nothing)).batch_size(2).num_workers(workers).drop_last(drop_last);
            let mut passes = 0;
            let make = move || {
                passes += 1;
                vec![8, 3, 3, 0, passes]
            };
            let mut loader = builder.sampler_iter(make).build().unwrap();
            assert_eq!(loader.len(), None);
            for pass in 1..4_i64 {
                let batches: Vec<_> = loader.epoch().unwrap().map(|batch| values(&batch.unwrap())).collect();
                let all = [vec![8, 3], vec![3, 0], vec![pass]];
                assert_eq!(batches, all[..if drop_last { 2 } else { 3 }]);
            }
        }
        let builder = Loader::builder(numbers(9, nothing)).num_workers(workers);
        let mut loader = builder.sampler_iter(|| 0..0).build().unwrap();
        assert_eq!((0..3).map(|_| loader.epoch().unwrap().count()).sum::<usize>(), 0);
    }
}

#[test]
fn an_endless_sampler_is_read_no_further_than_the_ring() {
    for (workers, prefetch) in [(0, 0), (1, 2), (3, 2)] {
        for in_order in [true, false] {
            let drawn = Arc::new(AtomicUsize::new(0));
            let count = drawn.clone();
            let builder = Loader::builder(numbers(10, nothing)).batch_size(4).in_order(in_order);
            let endless = move || {
                let count = count.clone();
                (0..10).cycle().inspect(move |_| _ = count.fetch_add(1, Ordering::SeqCst))
            };
            let builder = support::prefetch(builder.sampler_iter(endless), workers, prefetch);
            let mut loader = builder.build().unwrap();
            let depth = loader.depth();
            for taken in [1, 7, 100] {
                drawn.store(0, Ordering::SeqCst);
                let mut pass = loader.epoch().unwrap();
                assert_eq!(pass.remaining(), None);
                for task in 0..taken {
                    let batch = pass.next().unwrap().unwrap();
                    let first = batch.batch_index() as i64 * 4;
                    assert!(!in_order || batch.batch_index() == task);
                    assert_eq!(values(&batch), [first, first + 1, first + 2, first + 3].map(|index| index % 10));
                }
                drop(pass);
                // Wait until the pass has ended, by beginning another one.
                drop(loader.epoch().unwrap());
                let most = 4 * (taken + depth) + 4 * depth;
                assert!(drawn.load(Ordering::SeqCst) <= most, "{drawn:?} indices for {taken} batches");
            }
        }
    }
}

/// Returns a sampler that fails in the first pass and panics in the second.
fn late() -> impl Sampler {
    let mut passes = 0;
    sampler_fn(3, move |order| {
        passes += 1;
        match passes {
            1 => return Err(BoxError::from("the list of indices is missing").into()),
            2 => panic!("too late"),
            _ => *order = Order::Range(3),
        }
        Ok(())
    })
}

#[test]
fn a_failing_sampler_fails_only_its_pass() {
    for workers in [0, 2] {
        for mut loader in all_kinds(|| Loader::builder(numbers(3, nothing)).sampler(late()).num_workers(workers)) {
            let error = loader.pass().err().unwrap();
            assert!(matches!(error, Error::Order(SamplerError::Other(_))), "{error:?}");
            assert_eq!(error.to_string(), "the list of indices is missing");
            // The sampler runs on the thread that begins the pass, so its panic unwinds there.
            assert!(catch_unwind(AssertUnwindSafe(|| loader.pass().is_ok())).is_err());
            assert_eq!(loader.whole(), [[0], [1], [2]]);
        }
    }
}

#[test]
fn a_distributed_samplers_epoch_can_change_between_passes() {
    let expected = |rank, epoch| -> Vec<i64> {
        let sampler = DistributedSampler::new(10, 3, rank).unwrap().seed(42);
        sampler.set_epoch(epoch);
        drawn(sampler)
    };
    for workers in [0, 2] {
        for rank in 0..3 {
            let builder = || {
                let sampler = DistributedSampler::new(10, 3, rank).unwrap().seed(42);
                (
                    sampler.epoch(),
                    Loader::builder(numbers(10, nothing)).batch_size(3).num_workers(workers).sampler(sampler),
                )
            };
            let (shared, one) = builder();
            let (distributed, other) = builder();
            let mut loaders: [Box<dyn Passes>; 2] =
                [Box::new(one.build().unwrap()), Box::new(other.round_robin(true).build().unwrap())];
            for epoch in [0, 1, 1, 7] {
                shared.set(epoch);
                distributed.set(epoch);
                for loader in &mut loaders {
                    assert_eq!(loader.whole().concat(), expected(rank, epoch));
                }
            }
        }
    }
}

#[test]
fn a_batch_sampler_decides_the_batches() {
    let random = || RandomSampler::new(7).unwrap().generator(Generator::from_seed(1));
    let order = drawn(random());
    for workers in [0, 2] {
        for drop_last in [false, true] {
            let sampler = || BatchSampler::new(random(), 3, drop_last).unwrap();
            for mut loader in
                all_kinds(|| Loader::builder(numbers(7, nothing)).num_workers(workers).batch_sampler(sampler()))
            {
                let batches = if drop_last { 2 } else { 3 };
                assert_eq!(loader.len(), Some(batches));
                assert!(loader.whole().into_iter().eq(order.chunks(3).take(batches)));
            }
        }
    }
}

#[test]
fn a_batch_samplers_lists_can_differ_in_size() {
    let lists = [vec![4], vec![], vec![0, 1, 2], vec![3, 3], vec![]];
    let expected: Vec<Vec<i64>> = lists.iter().map(|list| list.iter().map(|&index| index as i64).collect()).collect();
    for workers in [0, 1, 3] {
        let lists = lists.clone();
        let builder = Loader::builder(numbers(5, nothing)).batch_sampler_iter(3, move || lists.clone());
        let mut loader = builder.num_workers(workers).build().unwrap();
        assert_eq!((loader.len(), loader.batch_size()), (None, 3));
        for _ in 0..3 {
            let mut batches = Vec::new();
            for batch in loader.epoch().unwrap() {
                let batch = batch.unwrap();
                assert_eq!(batch.tensors().shape(), [batch.len()]);
                batches.push(values(&batch));
            }
            assert_eq!(batches, expected);
        }
    }
}

#[test]
fn a_list_longer_than_max_batch_size_fails_its_batch() {
    for workers in [0, 2] {
        let lists = || [vec![0, 1], vec![0, 1, 2], vec![4]];
        let builder = Loader::builder(numbers(5, nothing)).batch_sampler_iter(2, lists).num_workers(workers);
        let mut loader = builder.build().unwrap();
        for _ in 0..2 {
            let outcomes: Vec<_> = loader.epoch().unwrap().map(|batch| Ok::<_, Error>(values(&batch?))).collect();
            let [Ok(first), Err(error), Ok(last)] = &outcomes[..] else { panic!("{outcomes:?}") };
            assert_eq!((&first[..], &last[..]), (&[0, 1][..], &[4][..]));
            assert!(matches!(error, Error::LongBatch { task: 1, len: 3, most: 2 }), "{error}");
            let text = "the batch sampler returned 3 indices for batch 1, but the maximum is 2; raise max_batch_size";
            assert_eq!(error.to_string(), text);
        }
    }
}

#[test]
fn a_panic_in_a_samplers_iterator_ends_its_pass() {
    for workers in [0, 1, 3] {
        for in_order in [true, false] {
            let passes = AtomicUsize::new(0);
            let lists = move || {
                let good = if passes.fetch_add(1, Ordering::SeqCst) < 2 { 3 } else { usize::MAX };
                (0..6).map(move |index| {
                    assert!(index < good, "no more than {good}");
                    [index]
                })
            };
            let builder = Loader::builder(numbers(6, nothing)).batch_sampler_iter(1, lists);
            let mut loader = builder.num_workers(workers).in_order(in_order).build().unwrap();
            for _ in 0..2 {
                let mut good = Vec::new();
                let mut bad = Vec::new();
                for outcome in loader.epoch().unwrap() {
                    match outcome {
                        Ok(batch) => good.push(batch.batch_index()),
                        Err(error) => bad.push(error),
                    }
                }
                good.sort_unstable();
                assert_eq!(good, [0, 1, 2]);
                assert!(
                    matches!(&bad[..], [Error::Sampler { task: 3, message, .. }] if message == "no more than 3"),
                    "{bad:?}"
                );
            }
            assert_eq!(loader.epoch().unwrap().filter(Result::is_ok).count(), 6, "the next pass is whole");
        }
    }
}

/// Returns an iterator over lists of four indices, in which the fourth list is an error.
fn three_lists(_: u64) -> impl Iterator<Item = Result<[usize; 4], BoxError>> {
    (0..6).map(|batch| if batch == 3 { Err(NoMore(batch).into()) } else { Ok([batch; 4]) })
}

#[derive(Debug, thiserror::Error)]
#[error("no batch {0}")]
struct NoMore(usize);

#[test]
fn an_error_of_a_batch_samplers_iterator_ends_its_pass_and_keeps_its_type() {
    for workers in [0, 1, 3] {
        for in_order in [true, false] {
            // Several threads may begin the same batch.
            let builder = Loader::builder(numbers(6, nothing)).batch_sampler_try_iter(4, three_lists).part_size(1);
            let mut loader = builder.num_workers(workers).in_order(in_order).build().unwrap();
            for _ in 0..20 {
                let (good, bad): (Vec<_>, Vec<_>) = loader.epoch().unwrap().partition(Result::is_ok);
                assert_eq!(good.len(), 3);
                let [Err(Error::BatchSampler { task: 3, source, .. })] = &bad[..] else { panic!("{bad:?}") };
                assert!(matches!(source.downcast_ref(), Some(NoMore(3))));
            }
        }
    }
}

#[test]
fn a_seed_of_batches_differs_in_each_pass_and_resumes() {
    for (persistent, seed) in [(false, Some(5)), (true, Some(5)), (false, None)] {
        let make = || {
            // Batches of one random index each, without an end.
            let lists = |seed| {
                let mut generator = Generator::from_seed(seed);
                std::iter::repeat_with(move || Ok([generator.random_i64() as usize % 1000]))
            };
            let builder = Loader::builder(numbers(1000, nothing)).batch_sampler_try_iter(1, lists).num_workers(1);
            let builder = builder.persistent_workers(persistent);
            seed.into_iter().fold(builder, |builder, seed| builder.seed(seed)).build().unwrap()
        };
        let of = |loader: &mut Loader<slotline::Batch<i64>>, len| -> Vec<i64> {
            let batches = loader.epoch().unwrap().take(len);
            batches.map(|batch| batch.unwrap().indices()[0]).collect()
        };
        let mut first = make();
        let passes = [(); 2].map(|()| of(&mut first, 10));
        let mut pass = first.epoch().unwrap();
        let third: Vec<_> = pass.by_ref().take(4).map(|batch| batch.unwrap().indices()[0]).collect();
        let state = pass.state();
        drop(pass);
        let mut whole = make();
        whole.load_state(&state).unwrap();
        let rest = of(&mut whole, 6);
        assert!(passes[0] != passes[1] && passes[1][..4] != third[..], "{passes:?} {third:?}");
        if seed.is_some() {
            let mut again = make();
            assert_eq!([(); 2].map(|()| of(&mut again, 10)), passes);
            assert_eq!(of(&mut again, 10), [third, rest].concat());
        } else {
            let mut again = make();
            again.load_state(&state).unwrap();
            assert_eq!(of(&mut again, 6), rest);
        }
    }
}

#[test]
fn an_error_of_a_batch_sampler_before_the_state_is_an_error_of_epoch() {
    let make = |fails: bool| {
        let lists = move |_| {
            three_lists(0).map(move |batch| batch.or_else(|error| if fails { Err(error) } else { Ok([3; 4]) }))
        };
        Loader::builder(numbers(6, nothing)).batch_sampler_try_iter(4, lists).build().unwrap()
    };
    let (mut first, mut second) = (make(false), make(true));
    let mut pass = first.epoch().unwrap();
    assert_eq!(pass.by_ref().take(5).filter(Result::is_ok).count(), 5);
    let state = pass.state();
    second.load_state(&state).unwrap();
    let error = second.epoch().map(drop).unwrap_err();
    let source = error.cause().expect("the sampler's error");
    assert!(matches!(source.downcast_ref(), Some(NoMore(3))), "{error}: {source}");
}

#[test]
fn random_numbers_depend_on_the_position_in_the_pass() {
    use slotline::rng::rand_core::Rng;
    let drawn = |workers| -> Vec<i64> {
        let dataset = crate::support::from_fn(5, |_, cx| Ok(cx.rng().next_u64() as i64));
        let builder = Loader::builder(dataset).seed(2).num_workers(workers);
        let mut loader =
            builder.batch_sampler_iter(3, || [vec![0, 1], vec![], vec![2, 3, 4], vec![0]]).build().unwrap();
        loader.epoch().unwrap().flat_map(|batch| values(&batch.unwrap())).collect()
    };
    let plain: Vec<i64> = {
        let dataset = crate::support::from_fn(6, |_, cx| Ok(cx.rng().next_u64() as i64));
        let mut loader = Loader::builder(dataset).seed(2).build().unwrap();
        loader.epoch().unwrap().map(|batch| values(&batch.unwrap())[0]).collect()
    };
    assert_eq!((drawn(0), drawn(3)), (plain.clone(), plain));
}
