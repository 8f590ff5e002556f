//! Tests of dropping batches, passes and loaders in any order, on any thread, early or never.
//! Nothing may be lost.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, mpsc};

use crate::support::{
    Delivered, HAS_PROCESSES, How, OneByOne, Run, Workers, from_fn, items, pass, plain, prefetch, shared,
    sleep_sometimes, sleeping_sometimes, worker_kinds,
};
use slotline::arena::{Memory, Pages};
use slotline::loader::{Error, OnHeld};
use slotline::{Batch, Dataset, Loader};

const RUN: Run = Run { len: 45, batch_size: 4, drop_last: false, shuffle: true, seed: 11 };

fn fine() -> impl Dataset {
    items(RUN.len, |_, _| Ok(()))
}

#[test]
fn batches_outlive_their_pass_and_loader_on_any_thread() {
    for kind in worker_kinds([0, 2]) {
        let mut loader = kind.build(RUN.over(fine()).hold(12)).unwrap();
        let mut batches: Vec<_> = loader.epoch().unwrap().map(Result::unwrap).collect();
        drop(loader);
        let expected = RUN.expected(1).remove(0);
        batches.rotate_left(5);
        batches.swap(0, 3);
        let threads: Vec<_> = batches
            .into_iter()
            .map(|batch| {
                let expected = expected[batch.batch_index()].clone();
                std::thread::spawn(move || assert_eq!(Delivered::from(&batch), expected))
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

/// Memory for batches, with a counter of the instances that exist.
#[derive(Debug)]
struct CountedPages(Pages, Arc<AtomicUsize>);

// SAFETY: `Pages` implements `Memory` correctly.
unsafe impl Memory for CountedPages {
    fn start(&self) -> NonNull<u8> {
        self.0.start()
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

impl Drop for CountedPages {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The loader and its batches own the memory together. The last of them must free it, even if they
/// are dropped at the same moment.
#[test]
fn batches_dropped_at_the_same_moment_as_their_loader_free_its_memory() {
    let exist = Arc::new(AtomicUsize::new(0));
    for round in 0..300 {
        let count = exist.clone();
        let memory = move |bytes| {
            count.fetch_add(1, Ordering::Relaxed);
            Ok(CountedPages(Pages::new(bytes)?, count.clone()))
        };
        let loader = Loader::builder(fine()).batch_size(4).num_workers(round % 2).hold(6).memory(memory);
        let mut loader = loader.build().unwrap();
        let mut batches: Vec<_> = loader.epoch().unwrap().take(6).map(Result::unwrap).collect();
        let (some, start) = (batches.split_off(3), &Barrier::new(3));
        std::thread::scope(|scope| {
            for batches in [batches, some] {
                scope.spawn(move || {
                    start.wait();
                    drop(batches);
                });
            }
            start.wait();
            (0..round % 50).for_each(|_| std::hint::spin_loop());
            drop(loader);
        });
        assert_eq!(exist.load(Ordering::Relaxed), 0, "round {round}");
    }
}

#[test]
fn keeping_too_many_is_an_error_until_one_is_dropped() {
    for (workers, hold, in_order, processes) in [
        (0, 1, true, false),
        (0, 3, true, false),
        (2, 1, true, false),
        (2, 2, false, false),
        (0, 2, false, false),
        (2, 1, true, HAS_PROCESSES),
        (2, 2, false, HAS_PROCESSES),
    ] {
        for which in 0..3 {
            let builder = prefetch(RUN.over(fine()), workers, 1).hold(hold).in_order(in_order);
            let mut loader = Workers { workers, processes }.build(builder.on_held(OnHeld::Fail)).unwrap();
            let (ahead, most) = (workers.max(1), loader.most_held());
            let slots = if processes { ahead.next_power_of_two() + hold } else { (ahead + hold).next_multiple_of(2) };
            assert_eq!(loader.depth(), slots);
            assert_eq!(most, loader.depth() - ahead);
            let mut pass = loader.epoch().unwrap();
            let mut held: Vec<_> = (0..=most).map(|_| pass.next().unwrap().unwrap()).collect();
            let oldest = held.iter().map(|batch| batch.batch_index()).min().unwrap();
            for _ in 0..3 {
                let error = pass.next().unwrap().err().unwrap();
                assert!(
                    matches!(error, Error::Held { task, epoch: 0, hold, source: None } if (task, hold) == (oldest, most))
                );
                assert!(error.to_string().contains(&format!("hold = {}", most + 1)), "{error}");
            }
            let mut got: Vec<Delivered> = held.iter().map(Delivered::from).collect();
            drop(held.remove(which * most / 2));
            let next = pass.next().unwrap().unwrap();
            got.push(Delivered::from(&next));
            assert!(matches!(pass.next(), Some(Err(Error::Held { .. }))));
            held.clear();
            drop(next);
            got.extend(pass.map(|batch| Delivered::from(&batch.unwrap())));
            if !in_order {
                got.sort_by_key(|got| got.task);
            }
            assert_eq!(got, RUN.expected(1)[0]);
        }
    }
}

/// Sends the batches of a pass to another thread, which passes each to `read` and drops it. Returns
/// the results.
fn sent<S: 'static, T: Send>(mut loader: Loader<Batch<S>>, read: impl Fn(&Batch<S>) -> T + Send) -> Vec<T> {
    let (sender, receiver) = mpsc::sync_channel::<Batch<S>>(loader.depth());
    std::thread::scope(|scope| {
        let trainer = scope.spawn(move || {
            let read = |batch: Batch<S>| {
                // Wait long enough for the loader's thread to run out of slots and sleep.
                std::thread::sleep(std::time::Duration::from_millis(2));
                read(&batch)
            };
            receiver.into_iter().map(read).collect::<Vec<_>>()
        });
        for batch in loader.epoch().unwrap() {
            sender.send(batch.unwrap()).unwrap();
        }
        drop(sender);
        trainer.join().unwrap()
    })
}

#[test]
fn a_loop_can_wait_until_another_thread_drops_batches() {
    for (kind, in_order) in worker_kinds([0, 2]).flat_map(|kind| [(kind, true), (kind, kind.workers == 0)]) {
        let builder = prefetch(RUN.over(fine()), kind.workers, 1).in_order(in_order);
        let mut got = sent(kind.build(builder.on_held(OnHeld::Wait)).unwrap(), Delivered::from);
        got.sort_by_key(|got| if in_order { 0 } else { got.task });
        assert_eq!(got, RUN.expected(1)[0]);
    }
    for workers in [0, 2] {
        let builder = prefetch(Loader::iterable(OneByOne(fine())), workers, 1).batch_size(4);
        let numbers = sent(builder.on_held(OnHeld::Wait).build().unwrap(), |batch| {
            batch.columns().get(0).unwrap().typed::<i64>().unwrap().as_slice().to_vec()
        });
        let shares = (0..workers.max(1)).map(|worker| plain::share(worker, workers, RUN.len).map(|index| index as i64));
        assert_eq!(numbers, plain::in_turn(shares.map(|share| plain::batches(&share.collect::<Vec<_>>(), 4, false))));
    }
}

#[test]
fn a_leaked_batch_costs_its_memory() {
    for kind in worker_kinds([0, 2]) {
        let expected = RUN.expected(3);
        let mut loader = kind.build(prefetch(RUN.over(fine()), kind.workers, 2)).unwrap();
        let most = loader.most_held();
        for _ in 0..=most {
            std::mem::forget(loader.epoch().unwrap().next().unwrap().unwrap());
        }
        assert!(loader.epoch().unwrap().map(|batch| batch.unwrap().batch_index()).eq(0..expected[0].len()));
        assert_eq!(loader.stats().extra_batches, 1);

        let mut loader = kind.build(prefetch(RUN.over(fine()), kind.workers, 2).on_held(OnHeld::Fail)).unwrap();
        for _ in 0..=most {
            std::mem::forget(loader.epoch().unwrap().next().unwrap().unwrap());
        }
        // Every pass reports the error, and the loader can be dropped normally.
        for _ in 0..3 {
            assert!(matches!(loader.epoch().unwrap().next(), Some(Err(Error::Held { task: 0, .. }))));
        }
    }
}

#[test]
fn a_leaked_pass_ends_when_the_next_begins() {
    for kind in worker_kinds([0, 2]) {
        let mut loader = kind.build(RUN.over(fine())).unwrap();
        let expected = RUN.expected(3);
        for (epoch, expected) in expected.iter().enumerate() {
            let mut left = loader.epoch().unwrap();
            if epoch < 2 {
                assert_eq!(Delivered::from(&left.next().unwrap().unwrap()), expected[0]);
                std::mem::forget(left);
            } else {
                assert!(left.map(|batch| Delivered::from(&batch.unwrap())).eq(expected.iter().cloned()));
            }
        }
    }
}

/// Returns a dataset in which some samples fail with an error or a panic in the first `passes`
/// passes. Later no sample fails.
fn failing_at_first(passes: u32) -> impl Dataset {
    items(RUN.len, move |index, cx| {
        sleep_sometimes(index, cx);
        match (index + cx.epoch() as usize) % 7 {
            _ if cx.epoch() >= passes || cx.worker().is_none() && cx.position() == 0 => Ok(()),
            0 => panic!("no {index}"),
            3 => Err("no".into()),
            _ => Ok(()),
        }
    })
}

#[test]
fn a_pass_dropped_at_any_batch_leaves_no_failures() {
    let tasks = RUN.len.div_ceil(RUN.batch_size) as u32;
    for in_order in [true, false] {
        for (workers, part_size, processes) in [
            (0, Some(1), false),
            (1, Some(1), false),
            (2, None, false),
            (2, Some(1), false),
            (3, Some(3), false),
            (2, None, HAS_PROCESSES),
            (1, Some(1), HAS_PROCESSES),
        ] {
            let how = How { workers, processes, part_size, prefetch: 3, ..How::default() };
            let mut loader = how.build(RUN.over(failing_at_first(tasks + 1)).in_order(in_order)).unwrap();
            let expected = RUN.expected(tasks + 2);
            for seen in 0..=tasks {
                let mut left = loader.epoch().unwrap();
                for outcome in left.by_ref().take(seen as usize) {
                    match outcome {
                        Ok(batch) => assert_eq!(Delivered::from(&batch), expected[seen as usize][batch.batch_index()]),
                        Err(error) => assert!(matches!(error, Error::Sample { .. } | Error::Panic { .. }), "{error}"),
                    }
                }
                assert_eq!(left.remaining(), Some((tasks - seen) as usize));
            }
            let mut got = pass(&mut loader);
            got.sort_by_key(|got| got.task);
            assert_eq!(got, expected[tasks as usize + 1], "{how:?}");
        }
    }
}

/// A part of a batch fails, and the consumer drops the pass before any thread has claimed the rest
/// of that batch.
#[test]
fn a_failure_in_an_unfinished_batch_does_not_reappear() {
    let run = Run { len: 64, batch_size: 64, drop_last: false, shuffle: false, seed: 0 };
    for (kind, in_order) in worker_kinds([1]).flat_map(|kind| [(kind, true), (kind, false)]) {
        let begun = shared::<AtomicBool>();
        let dataset = items(run.len, move |index, cx| {
            if cx.epoch() == 0 && cx.worker().is_some() {
                begun.store(true, Ordering::SeqCst);
                std::thread::sleep(std::time::Duration::from_millis(1));
                return Err(format!("no {index}").into());
            }
            Ok(())
        });
        let mut loader = kind.build(run.over(dataset).part_size(1).in_order(in_order)).unwrap();
        let left = loader.epoch().unwrap();
        while !begun.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        drop(left);
        // Run enough passes to reuse the slot of that batch.
        for expected in &run.expected(6)[1..] {
            assert_eq!(pass(&mut loader), *expected);
        }
    }
}

#[test]
fn thousands_of_short_passes_deliver_their_batches() {
    let run = Run { len: 6, batch_size: 2, drop_last: false, shuffle: true, seed: 5 };
    let expected = run.expected(3000);
    for kind in worker_kinds([0, 1, 3]) {
        let mut loader = kind.build(run.over(items(run.len, |_, _| Ok(())))).unwrap();
        for (epoch, expected) in expected.iter().enumerate() {
            let left = loader.epoch().unwrap().take(epoch % 4).map(|batch| Delivered::from(&batch.unwrap()));
            assert!(left.eq(expected[..(epoch % 4).min(3)].iter().cloned()));
        }
    }
}

#[test]
fn an_empty_pass_ends_immediately() {
    for kind in worker_kinds([0, 2]) {
        let builder = Loader::builder(items(5, |_, _| Ok(()))).batch_size(8).drop_last(true);
        let mut loader = kind.build(builder).unwrap();
        for _ in 0..20 {
            assert!(loader.is_empty() && loader.epoch().unwrap().next().is_none());
        }
    }
}

#[test]
fn batches_survive_a_loader_dropped_during_a_pass() {
    for kind in worker_kinds([0, 1, 3]) {
        for seen in 0..4 {
            let mut loader = kind.build(RUN.over(items(RUN.len, sleeping_sometimes)).hold(4)).unwrap();
            let mut pass = loader.epoch().unwrap();
            let held: Vec<_> = pass.by_ref().take(seen).map(Result::unwrap).collect();
            std::mem::forget(pass);
            drop(loader);
            assert!(held.iter().map(Delivered::from).eq(RUN.expected(1)[0][..seen].iter().cloned()));
        }
    }
}

#[test]
fn two_loaders_at_once_do_not_affect_each_other() {
    let other = Run { seed: 77, shuffle: true, ..RUN };
    let (expected, others) = (RUN.expected(2), other.expected(2));
    for (one, two) in worker_kinds([2]).flat_map(|one| worker_kinds([1]).map(move |two| (one, two))) {
        let (mut first, mut second) = (one.build(RUN.over(fine())).unwrap(), two.build(other.over(fine())).unwrap());
        for epoch in 0..2 {
            let pairs = first.epoch().unwrap().zip(second.epoch().unwrap());
            for (task, (a, b)) in pairs.enumerate() {
                assert_eq!(Delivered::from(&a.unwrap()), expected[epoch][task]);
                assert_eq!(Delivered::from(&b.unwrap()), others[epoch][task]);
            }
        }
    }
}

#[test]
fn a_loader_moves_to_another_thread_between_passes() {
    for kind in worker_kinds([2]) {
        let mut loader = kind.build(RUN.over(fine())).unwrap();
        let expected = RUN.expected(2);
        assert_eq!(pass(&mut loader), expected[0]);
        let mut loader = std::thread::spawn(move || {
            assert_eq!(pass(&mut loader), expected[1]);
            loader
        })
        .join()
        .unwrap();
        assert_eq!(pass(&mut loader), RUN.expected(3)[2]);
    }
}

/// A value with counters of the values that were made and of those that were dropped.
struct Counted(Arc<AtomicUsize>, Arc<AtomicUsize>);

impl Counted {
    fn new(made: &Arc<AtomicUsize>, dropped: &Arc<AtomicUsize>) -> Self {
        made.fetch_add(1, Ordering::SeqCst);
        Self(made.clone(), dropped.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let before = self.1.fetch_add(1, Ordering::SeqCst);
        assert!(before < self.0.load(Ordering::SeqCst));
    }
}

#[test]
fn a_collated_batch_is_dropped_exactly_once() {
    for (workers, in_order) in [(0, true), (2, true), (2, false)] {
        let (made, dropped) = <(Arc<AtomicUsize>, Arc<AtomicUsize>)>::default();
        let alive = || made.load(Ordering::SeqCst) - dropped.load(Ordering::SeqCst);
        let (counter, drops) = (made.clone(), dropped.clone());
        let builder = RUN.over(fine()).num_workers(workers).in_order(in_order).collate(move |samples| {
            let counted = Counted::new(&counter, &drops);
            let mut rows = 0;
            while let Some(sample) = samples.next() {
                drop(sample?);
                rows += 1;
            }
            Ok((counted, rows))
        });
        let mut loader = builder.build().unwrap();
        let whole: usize = loader.epoch().unwrap().map(|batch| batch.unwrap().1).sum();
        assert_eq!((whole, alive()), (RUN.len, 0), "a whole pass");
        for seen in 0..12 {
            let kept: Vec<_> = loader.epoch().unwrap().take(seen).map(Result::unwrap).collect();
            assert!(alive() >= kept.len());
        }
        let rest = loader.epoch().unwrap();
        drop(rest);
        drop(loader);
        assert_eq!(alive(), 0, "passes dropped early");
        assert!(made.load(Ordering::SeqCst) >= 12);
    }
}

#[test]
fn the_next_pass_drops_collated_batches_of_a_dropped_one() {
    let (made, dropped) = <(Arc<AtomicUsize>, Arc<AtomicUsize>)>::default();
    let (counter, drops) = (made.clone(), dropped.clone());
    let builder = RUN.over(fine()).num_workers(2).prefetch_factor(4).help(false);
    let mut loader = builder
        .collate(move |samples| {
            if counter.load(Ordering::SeqCst) >= 8 {
                return Err(format!("no more, with {} left", samples.len()).into());
            }
            Ok(Counted::new(&counter, &drops))
        })
        .build()
        .unwrap();
    let left = loader.epoch().unwrap();
    while made.load(Ordering::SeqCst) < 8 {
        std::thread::yield_now();
    }
    drop(left);
    // The next pass makes no batches that could replace those in the slots, so they must be dropped
    // when it begins.
    assert!(loader.epoch().unwrap().all(|batch| batch.is_err()));
    assert_eq!(made.load(Ordering::SeqCst), dropped.load(Ordering::SeqCst));
}

#[test]
fn dropping_a_loader_drops_its_dataset_once() {
    for kind in worker_kinds([0, 3]) {
        let token = Arc::new(());
        let weak = Arc::downgrade(&token);
        let dataset = from_fn(20, move |index, _| {
            let _ = &token;
            Ok(index as i64)
        });
        let mut loader = kind.build(Loader::builder(dataset)).unwrap();
        let batch = loader.epoch().unwrap().nth(3).unwrap().unwrap();
        assert_eq!(weak.strong_count(), 1);
        drop(loader);
        assert_eq!(weak.strong_count(), 0, "the dataset must be dropped");
        assert_eq!(batch.tensors().as_slice(), [3]);
    }
}

#[test]
fn a_pass_after_one_with_too_many_kept_is_complete() {
    for kind in worker_kinds([0, 2]) {
        let mut loader = kind.build(prefetch(RUN.over(fine()), kind.workers, 2).on_held(OnHeld::Fail)).unwrap();
        let most = loader.most_held();
        let all: Vec<_> = loader.epoch().unwrap().take(most + 5).collect();
        assert!(all[..=most].iter().all(Result::is_ok));
        assert!(all[most + 1..].iter().all(|outcome| matches!(outcome, Err(Error::Held { .. }))));
        drop(all);
        assert_eq!(
            loader.epoch().unwrap().map(|batch| Delivered::from(&batch.unwrap())).collect::<Vec<_>>(),
            RUN.expected(2)[1]
        );
    }
}

#[test]
fn end_epoch_ends_a_pass_begun_with_begin_epoch() {
    let threads = Workers { workers: 2, processes: false };
    for (kind, round_robin) in worker_kinds([0, 2]).map(|kind| (kind, false)).chain([(threads, true)]) {
        let builder = || RUN.over(fine()).round_robin(round_robin);
        let expected = RUN.expected(3);
        let mut loader = kind.build(builder()).unwrap();
        loader.end_epoch();
        assert!(loader.next_batch().is_none(), "no pass had begun");
        loader.begin_epoch().unwrap();
        let kept = loader.next_batch().unwrap().unwrap();
        loader.end_epoch();
        loader.end_epoch();
        assert!(loader.next_batch().is_none() && loader.is_ready());
        let state = loader.state();
        assert_eq!(pass(&mut loader), expected[1]);
        assert_eq!(Delivered::from(&kept), expected[0][0]);
        let mut other = kind.build(builder()).unwrap();
        other.load_state(&state).unwrap();
        assert_eq!(pass(&mut other), expected[0][1..], "the state has the position of the pass");
        assert_eq!(pass(&mut other), expected[1]);
    }
}

#[test]
fn a_failed_begin_epoch_or_a_drop_ends_the_pass() {
    for kind in worker_kinds([0, 2]) {
        let mut loader = kind.build(RUN.over(fine())).unwrap();
        loader.begin_epoch().unwrap();
        drop(loader.next_batch().unwrap().unwrap());
        loader.stopper().stop();
        assert!(matches!(loader.begin_epoch(), Err(Error::Stopped)));
        assert!(loader.next_batch().is_none());

        let mut loader = kind.build(RUN.over(fine())).unwrap();
        loader.begin_epoch().unwrap();
        drop(loader.next_batch().unwrap().unwrap());
        let reader = loader.stats_reader();
        drop(loader);
        let elapsed = reader.stats().elapsed;
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert_eq!(reader.stats().elapsed, elapsed);
    }
}

#[test]
fn a_pass_that_was_left_begins_no_more_batches() {
    for kind in worker_kinds([2]) {
        let read = shared::<AtomicUsize>();
        let dataset = items(100, move |_, cx| {
            if cx.epoch() == 0 && cx.worker().is_some() {
                read.fetch_add(1, Ordering::SeqCst);
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            Ok(())
        });
        let builder = Loader::builder(dataset).num_workers(2).prefetch_factor(16).help(false);
        let mut loader = kind.build(builder).unwrap();
        drop(loader.epoch().unwrap().next().unwrap().unwrap());
        let before = read.load(Ordering::SeqCst);
        drop(loader.epoch().unwrap());
        let more = read.load(Ordering::SeqCst) - before;
        assert!(more < 10, "{more} samples were read for a pass that was left");
    }
}
