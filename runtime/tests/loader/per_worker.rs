//! Tests of failures in loaders that have two rings for each worker (`round_robin` and iterable
//! datasets): errors and panics of collate functions and cursors, values that panic when they are
//! dropped, and batch numbers, which must not depend on the prefetch factor.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use crate::misbehaving_code;
use crate::support::{chain, from_fn, prefetch, sampler_fn};
use slotline::dataset::{Context, IterableDataset, iter_fn};
use slotline::loader::{Collated, OnHeld};
use slotline::rng::rand_core::Rng;
use slotline::sampler::Order;
use slotline::{BoxError, Error, Loader, WorkerInfo};

#[test]
fn empty_replies_leave_no_gaps_in_batch_numbers() {
    for sizes in [&[0, 4, 20][..], &[20, 4, 0], &[1, 1, 1], &[0], &[7, 0, 3, 9]] {
        for drop_last in [false, true] {
            let mut first = None;
            for factor in 1..5 {
                let dataset = iter_fn(move |worker: Option<WorkerInfo>| {
                    let (id, len) = worker.map_or((0, 1), |worker| (worker.id(), sizes[worker.id()]));
                    Ok((0..len).map(move |i| Ok(100 * id as i64 + i)))
                });
                let builder = Loader::iterable(dataset).batch_size(3).drop_last(drop_last);
                let mut loader = builder.num_workers(sizes.len()).prefetch_factor(factor).build().unwrap();
                for _ in 0..2 {
                    let batches = loader.epoch().unwrap().map(Result::unwrap);
                    let got: Vec<_> =
                        batches.map(|batch| (batch.batch_index(), batch.tensors().as_slice().to_vec())).collect();
                    assert!(got.iter().map(|&(task, _)| task).eq(0..got.len()), "{got:?}");
                    assert_eq!(got, *first.get_or_insert_with(|| got.clone()), "{sizes:?}, prefetch_factor {factor}");
                }
            }
        }
    }
}

#[test]
fn a_failed_collate_does_not_shift_the_next_batches() {
    for workers in [0, 1, 2] {
        for take in 0..5 {
            for panics in [false, true] {
                let builder = Loader::iterable(iter_fn(|_| Ok((0..10_i64).map(Ok)))).batch_size(4);
                let builder = prefetch(builder, workers, 2).collate(move |samples| {
                    let mut numbers = Vec::new();
                    while numbers.len() < take
                        && let Some(sample) = samples.next()
                    {
                        numbers.push(sample?);
                    }
                    match numbers[..] {
                        [0 | 8, ..] => Ok(numbers),
                        _ if panics => panic!("the second one"),
                        _ => Err("the second one".into()),
                    }
                });
                let mut loader = builder.build().unwrap();
                let firsts = loader.epoch().unwrap().map(|batch| match batch {
                    Ok(numbers) => Some(numbers[0]),
                    Err(error) => {
                        assert_eq!(matches!(error, Error::Panic { .. }), panics);
                        assert!(chain(&error).contains("the second one"), "{error}");
                        None
                    }
                });
                let each = if take == 0 { [None; 3] } else { [Some(0), None, Some(8)] };
                let want: Vec<_> = each.iter().flat_map(|&first| vec![first; workers.max(1)]).collect();
                // Limit the number of batches, in case the pass never ends.
                assert_eq!(firsts.take(50).collect::<Vec<_>>(), want, "{workers} workers, {take} taken");
            }
        }
    }
}

#[test]
fn a_sample_that_does_not_fit_does_not_shift_the_next_batches() {
    let dataset = || iter_fn(|_| Ok((0..10_i64).map(|i| Ok(vec![i; if i == 4 { 3 } else { 1 }]))));
    for workers in [0, 1] {
        let mut loader = prefetch(Loader::iterable(dataset()).batch_size(3), workers, 2).build().unwrap();
        let got: Vec<_> = loader
            .epoch()
            .unwrap()
            .map(|batch| match batch {
                Ok(batch) => Ok(batch.tensors().as_slice().to_vec()),
                Err(error) => Err(error.to_string().contains("sample 4 of batch 1")),
            })
            .collect();
        assert_eq!(got, [Ok(vec![0, 1, 2]), Err(true), Ok(vec![6, 7, 8]), Ok(vec![9])]);
    }
}

/// A value that panics when it is dropped while the flag is set.
#[derive(Debug)]
struct Bomb(Arc<AtomicBool>);

impl Drop for Bomb {
    fn drop(&mut self) {
        if self.0.load(SeqCst) && !std::thread::panicking() {
            panic!("a bomb");
        }
    }
}

/// Drops a pass early with values that panic in the rings, and then counts the batches of a whole
/// pass.
fn batches_after_bombs(armed: &AtomicBool, mut loader: Loader<Collated<Bomb>>) -> usize {
    let mut left = loader.epoch().unwrap();
    drop(left.next().unwrap().unwrap());
    // Wait until a batch is ready, as otherwise there may be no batch to discard.
    while !left.is_ready() {
        std::thread::yield_now();
    }
    armed.store(true, SeqCst);
    drop(left);
    let mut panics = 0;
    while catch_unwind(AssertUnwindSafe(|| drop(loader.epoch()))).is_err() {
        panics += 1;
    }
    assert!(panics > 0, "no bomb was dropped");
    armed.store(false, SeqCst);
    loader.epoch().unwrap().map(Result::unwrap).count()
}

#[test]
fn panics_while_a_pass_is_discarded_come_out_of_epoch() {
    for workers in [1, 2] {
        let armed = Arc::new(AtomicBool::new(false));
        let bomb = || {
            let armed = armed.clone();
            move || Ok(Bomb(armed.clone()))
        };
        let (make, builder) = (bomb(), Loader::iterable(iter_fn(|_| Ok((0..9_i64).map(Ok)))));
        let loader = builder.num_workers(workers).collate(move |_| make()).build().unwrap();
        assert_eq!(batches_after_bombs(&armed, loader), 9 * workers);
        let (make, builder) = (bomb(), Loader::builder(from_fn(9, |i, _| Ok(i as i64))));
        let loader = builder.num_workers(workers).collate(move |_| make()).round_robin(true).build().unwrap();
        assert_eq!(batches_after_bombs(&armed, loader), 9);
    }
}

#[test]
fn a_worker_survives_a_last_batch_that_panics_on_drop() {
    for workers in [0, 1, 2] {
        let builder = Loader::iterable(iter_fn(|_| Ok((0..5_i64).map(Ok)))).batch_size(2).drop_last(true);
        let builder = prefetch(builder, workers, 2).collate(|samples| {
            let mut len = 0;
            while let Some(sample) = samples.next() {
                sample?;
                len += 1;
            }
            Ok(misbehaving_code::Bomb(len < 2))
        });
        let mut loader = builder.build().unwrap();
        for _ in 0..2 {
            assert_eq!(loader.epoch().unwrap().map(Result::unwrap).count(), 2 * workers.max(1));
        }
    }
}

#[test]
fn a_worker_survives_a_second_error_that_panics_on_drop() {
    for workers in [0, 1, 2] {
        // The collate function fails before it takes the bad sample, so the batch has two errors.
        let armed = || misbehaving_code::Bomb(true);
        let dataset = iter_fn(move |_| Ok((0..4_i64).map(move |i| if i == 1 { Err(armed().into()) } else { Ok(i) })));
        let builder = prefetch(Loader::iterable(dataset).batch_size(2), workers, 2);
        let mut loader = builder.collate(|_| Err::<(), _>("no batch".into())).build().unwrap();
        for _ in 0..3 {
            let outcomes = loader.epoch().unwrap().map(|outcome| chain(&outcome.unwrap_err()));
            assert_eq!(outcomes.filter(|error| error.contains("no batch")).count(), 2 * workers.max(1));
        }
    }
}

/// A dataset that swaps the context with another one after every second sample.
struct Swapper;

impl IterableDataset for Swapper {
    type Sample<'a> = u64;
    type Cursor = (usize, Context);

    fn iter(&self, _: Option<WorkerInfo>) -> Result<(usize, Context), BoxError> {
        Ok((0, Context::default()))
    }

    fn next<'a>(&'a self, at: &'a mut (usize, Context), cx: &'a mut Context) -> Result<Option<u64>, BoxError> {
        at.0 += 1;
        let word = cx.rng().next_u64();
        if at.0.is_multiple_of(2) {
            std::mem::swap(cx, &mut at.1);
        }
        Ok((at.0 <= 20).then_some(word))
    }
}

#[test]
fn swapping_the_context_does_not_repeat_random_numbers() {
    let mut loader = Loader::iterable(Swapper).batch_size(20).seed(7).build().unwrap();
    let mut seen = std::collections::HashSet::new();
    for _ in 0..3 {
        let batch = loader.epoch().unwrap().next().unwrap().unwrap();
        seen.extend(batch.tensors().as_slice().iter().copied());
    }
    assert_eq!(seen.len(), 60);
}

#[test]
fn a_huge_batch_size_gives_one_batch_per_worker() {
    for workers in [0, 1, 2] {
        let dataset = iter_fn(|_| Ok((0..10_i64).map(Ok)));
        let builder = prefetch(Loader::iterable(dataset).batch_size(usize::MAX), workers, 1);
        let counted = builder.collate(|samples| {
            let mut len = 0;
            samples.for_each(|_| {
                len += 1;
                Ok(())
            })?;
            Ok(len)
        });
        let lens: Vec<_> = counted.build().unwrap().epoch().unwrap().map(Result::unwrap).collect();
        assert_eq!(lens, vec![10; workers.max(1)]);
    }
}

/// The module `torch::iterable` tests the same warning with iterable datasets.
#[test]
fn a_sampler_that_draws_more_in_each_pass_gets_no_warning() {
    let mut len = 3;
    let growing = sampler_fn(4, move |order| {
        len += 1;
        *order = Order::Range(len);
        Ok(())
    });
    let mut loader =
        Loader::builder(from_fn(9, |i, _| Ok(i as i64))).sampler(growing).round_robin(true).build().unwrap();
    for epoch in 0..3 {
        assert_eq!(loader.epoch().unwrap().map(Result::unwrap).count(), 4 + epoch);
    }
    assert_eq!(loader.warnings(), []);
}

#[test]
fn passes_dropped_at_any_point_leave_nothing_behind() {
    for workers in [0, 1, 2, 8] {
        for (factor, hold, in_order) in [(1, 1, true), (3, 4, true), (2, 2, false)] {
            let map = || prefetch(Loader::builder(from_fn(37, |i, _| Ok(i as i64))), workers, factor);
            let dataset = iter_fn(|worker: Option<WorkerInfo>| {
                Ok(worker.map_or(0..37, |worker| worker.share(37)).map(|i| Ok(i as i64)))
            });
            /// Runs passes while batches are kept, which must not change, and are dropped on
            /// another thread.
            macro_rules! leave {
                ($builder:expr) => {{
                    let builder = $builder.batch_size(3).hold(hold).in_order(in_order);
                    let mut loader = builder.on_held(OnHeld::Wait).build().unwrap();
                    let (sender, receiver) = std::sync::mpsc::channel();
                    let drops = std::thread::spawn(move || receiver.into_iter().for_each(drop));
                    for round in 0..60 {
                        let mut pass = loader.epoch().unwrap();
                        let mut kept = std::collections::VecDeque::new();
                        for batch in pass.by_ref().take(round % 17) {
                            let batch = batch.unwrap();
                            let numbers = batch.tensors().as_slice().to_vec();
                            kept.push_back((batch, numbers));
                            assert!(kept.iter().all(|(batch, numbers)| batch.tensors().as_slice() == numbers));
                            if kept.len() > hold
                                && let Some((batch, _)) = kept.pop_front()
                            {
                                sender.send(batch).unwrap();
                            }
                        }
                        if round % 3 == 0 {
                            std::mem::forget(pass);
                        }
                        kept.into_iter().for_each(|(batch, _)| sender.send(batch).unwrap());
                    }
                    let mut seen: Vec<i64> = loader
                        .epoch()
                        .unwrap()
                        .flat_map(|batch| batch.unwrap().tensors().as_slice().to_vec())
                        .collect();
                    seen.sort_unstable();
                    assert!(seen.into_iter().eq(0..37), "{workers} workers, prefetch_factor {factor}");
                    drop(sender);
                    drops.join().unwrap();
                }};
            }
            leave!(prefetch(Loader::iterable(dataset), workers, factor));
            leave!(map().round_robin(true));
            leave!(map().sampler_iter(|| 0..37));
        }
    }
}
