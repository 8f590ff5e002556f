//! Tests that the batches of a loader are those of a plain loop, in order and bit for bit, for any
//! timing of the workers.

use std::time::Duration;

use crate::support::{
    Delivered, HAS_PROCESSES, How, LONG, Latch, Run, Workers, from_fn, items, pass, sampler_fn, sleeping_sometimes,
    stuck, worker_kinds,
};
use proptest::prelude::*;
use slotline::WaitStrategy::{Backoff, Park, Spin};
use slotline::loader::Affinity;
use slotline::sampler::{SampledBatches, Spans};
use slotline::{Loader, WaitStrategy};

/// Builds a loader, and compares its passes with those of a plain loop.
#[track_caller]
fn check(run: Run, how: &How, epochs: u32) {
    let mut loader = how.build(run.over(items(run.len, sleeping_sometimes))).unwrap();
    for (epoch, expected) in run.expected(epochs).into_iter().enumerate() {
        assert_eq!(loader.len(), Some(expected.len()));
        assert_eq!(pass(&mut loader), expected, "epoch {epoch} of {run:?} by {how:?}");
    }
}

#[test]
fn combined_options_give_the_batches_of_a_plain_loop() {
    let mut count = 0_usize;
    for workers in [0, 1, 2, 4] {
        for prefetch in [1, 2, 3, 4] {
            for batch_size in [1, 3, 64, 1000] {
                for part_size in [None, Some(1), Some(3), Some(7), Some(batch_size)] {
                    // The other options alternate, each with its own period, so that all pairs of
                    // values occur.
                    let turn = |of: usize| count / of;
                    let wait = if turn(1) % 5 == 0 { Backoff } else { Park };
                    let affinity = if turn(3) % 2 == 0 { Affinity::Off } else { Affinity::Spread };
                    let (hold, help) = (1 + turn(2) % 3, turn(5) % 2 == 0);
                    let how = How { workers, processes: false, prefetch, part_size, hold, wait, help, affinity };
                    let (drop_last, shuffle) = (turn(7) % 2 == 0, turn(1) % 2 == 0);
                    let run = Run { len: 70, batch_size, drop_last, shuffle, seed: 42 + count as u64 };
                    check(run, &how, 3);
                    if HAS_PROCESSES && workers > 0 && turn(1) % 7 == 0 {
                        check(run, &How { processes: true, ..how }, 2);
                    }
                    count += 1;
                }
            }
        }
    }
    assert_eq!(count, 4 * 4 * 4 * 5);
}

#[test]
fn spinning_workers_give_the_batches_of_a_plain_loop() {
    for (workers, help, processes) in
        [(0, true, false), (1, true, false), (1, false, false), (2, true, false), (2, false, HAS_PROCESSES)]
    {
        let run = Run { len: 70, batch_size: 8, drop_last: false, shuffle: true, seed: 7 };
        check(run, &How { workers, help, processes, wait: Spin, ..How::default() }, 2);
    }
}

#[test]
fn the_default_batch_size_is_one() {
    let mut loader = Loader::builder(items(5, |_, _| Ok(()))).build().unwrap();
    let indices: Vec<Vec<i64>> = pass(&mut loader).into_iter().map(|got| got.indices).collect();
    assert_eq!(indices, [[0], [1], [2], [3], [4]]);
}

fn strategy() -> impl Strategy<Value = WaitStrategy> {
    prop_oneof![4 => Just(Park), 1 => Just(Backoff)]
}

prop_compose! {
    fn run()(
        len in 1_usize..120, batch_size in 1_usize..40, drop_last: bool, shuffle: bool, seed: u64,
    ) -> Run {
        Run { len, batch_size, drop_last, shuffle, seed }
    }
}

prop_compose! {
    fn how()(
        workers in 0_usize..5, processes in proptest::bool::weighted(0.25), prefetch in 1_usize..5, part_size in proptest::option::of(1_usize..50),
        hold in 1_usize..4, wait in strategy(), help: bool, spread: bool,
    ) -> How {
        let affinity = if spread { Affinity::Spread } else { Affinity::Off };
        let processes = processes && HAS_PROCESSES && workers > 0;
        How { workers, processes, prefetch, part_size, hold, wait, help, affinity }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_options_give_the_batches_of_a_plain_loop(run in run(), how in how()) {
        check(run, &how, 3);
    }

    #[test]
    fn out_of_order_each_batch_arrives_once_and_complete(run in run(), how in how()) {
        let mut loader = how.build(run.over(items(run.len, sleeping_sometimes)).in_order(false)).unwrap();
        for expected in run.expected(2) {
            let mut got = pass(&mut loader);
            got.sort_by_key(|got| got.task);
            prop_assert_eq!(got, expected, "{:?}", how);
        }
    }

    #[test]
    fn a_pass_dropped_early_does_not_affect_the_next(run in run(), how in how(), seen in 0_usize..5, in_order: bool) {
        let mut loader = how.build(run.over(items(run.len, sleeping_sometimes)).in_order(in_order)).unwrap();
        let expected = run.expected(3);
        let left: Vec<Delivered> = loader.epoch().unwrap().take(seen).map(|batch| Delivered::from(&batch.unwrap())).collect();
        prop_assert_eq!(left.len(), seen.min(expected[0].len()));
        prop_assert!(left.iter().all(|got| *got == expected[0][got.task]));
        for expected in &expected[1..] {
            let mut got = pass(&mut loader);
            got.sort_by_key(|got| got.task);
            prop_assert_eq!(&got, expected, "{:?}", how);
        }
    }
}

/// Returns a dataset whose sample 0 waits at the latch, except when the builder reads it for the
/// fields. All other samples are fast.
fn with_straggler(len: usize, latch: &Latch) -> impl slotline::Dataset {
    stuck(len, latch, |index, cx| index == 0 && cx.worker().is_some())
}

#[test]
fn out_of_order_a_straggler_delays_only_its_batch() {
    for (kind, part_size) in worker_kinds([2]).flat_map(|kind| [(kind, 1), (kind, 4)]) {
        let latch = Latch::default();
        let builder = Loader::builder(with_straggler(400, &latch)).batch_size(4).part_size(part_size);
        let mut loader = kind.build(builder.in_order(false).help(false)).unwrap();
        let mut pass = loader.epoch().unwrap();
        let mut tasks: Vec<usize> = (1..100).map(|_| pass.next().unwrap().unwrap().batch_index()).collect();
        tasks.sort_unstable();
        assert!(tasks.into_iter().eq(1..100), "all batches except that of the straggler");
        latch.open();
        assert_eq!(pass.next().unwrap().unwrap().batch_index(), 0);
        assert!(pass.next().is_none());
    }
}

/// The consumer sleeps because no batch is finished, and the idle worker sleeps because no slot is
/// free. When another thread releases a slot, the consumer or the worker must wake up.
#[test]
fn out_of_order_a_slot_freed_by_another_thread_is_used() {
    for kind @ Workers { workers, .. } in worker_kinds([1, 2]).filter(|kind| !kind.processes || kind.workers > 1) {
        let latch = Latch::default();
        let dataset = with_straggler(40, &latch);
        let builder = Loader::builder(dataset).batch_size(4).num_workers(workers).prefetch_factor(3 - workers);
        // With one worker, which is blocked, the consumer must make the batches. There are 3 or 4
        // slots.
        let builder = builder.in_order(false).hold(if workers == 1 { 2 } else { 3 });
        let builder = if workers == 1 { builder.help(true) } else { builder.timeout(LONG) };
        let mut loader = kind.build(builder).unwrap();
        let depth = loader.depth();
        let mut pass = loader.epoch().unwrap();
        if workers == 1 {
            latch.until_waiting(1);
        }
        let mut held: Vec<_> = (1..depth).map(|_| pass.next().unwrap().unwrap()).collect();
        let dropped = held.pop();
        let dropper = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(30));
            drop(dropped);
        });
        assert_eq!(pass.next().unwrap().unwrap().batch_index(), depth);
        latch.open();
        dropper.join().unwrap();
        drop(held);
        assert_eq!(pass.filter(|batch| batch.is_ok()).count(), 10 - depth);
    }
}

#[test]
fn a_sampler_may_run_another_loader() {
    let numbers = || from_fn(10, |index, _| Ok(index as i64));
    for kind in worker_kinds([0, 2]) {
        let nested = sampler_fn(10, move |order| {
            let mut inner = Loader::builder(numbers()).shuffle(true).build().unwrap();
            order.u32_table().extend(inner.epoch().unwrap().map(|batch| batch.unwrap().indices()[0] as u32));
            Ok(())
        });
        let mut loader = kind.build(Loader::builder(numbers()).sampler(nested)).unwrap();
        let mut seen: Vec<i64> = loader.epoch().unwrap().map(|batch| batch.unwrap().indices()[0]).collect();
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..10));
    }
}

#[test]
fn a_dataset_that_takes_its_context_affects_no_other_sample() {
    let taking = || {
        from_fn(64, |_, cx| {
            let drawn = slotline::rng::rand_core::Rng::next_u64(cx.rng());
            let _ = std::mem::take(cx);
            Ok(drawn)
        })
    };
    let all = |kind: Workers| -> Vec<u64> {
        let mut loader = kind.build(Loader::builder(taking()).batch_size(16).seed(1)).unwrap();
        loader.epoch().unwrap().flat_map(|batch| batch.unwrap().tensors().as_slice().to_vec()).collect()
    };
    let all: Vec<_> = worker_kinds([0, 2]).map(all).collect();
    assert!(all.iter().all(|numbers| *numbers == all[0]));
}

/// A sampler of five samples that returns where its batches end.
struct Ends(Option<Vec<u32>>);

impl slotline::sampler::Sampler for Ends {
    fn len(&self) -> usize {
        5
    }

    fn memory(&self) -> usize {
        0
    }

    fn order(
        &mut self,
        _: &mut slotline::rng::Generator,
        order: &mut slotline::sampler::Order,
    ) -> Result<(), slotline::sampler::SamplerError> {
        *order = slotline::sampler::Order::Range(5);
        Ok(())
    }

    fn spans(&self) -> Option<Spans> {
        self.0.clone().map(Spans::new)
    }
}

#[test]
fn planned_batches_that_do_not_fit_are_errors() {
    for (ends, want) in [
        (Some(vec![2, 6]), "batch 1 has the positions 2..6 of an order of 5"),
        (Some(vec![4, 5]), "batch 0 has the positions 0..4 of an order of 5"),
        (Some(vec![2, 2, 5]), "batch 1 has the positions 2..2 of an order of 5"),
        (Some(vec![3, 1, 4]), "batch 1 has the positions 3..1 of an order of 5"),
        (None, "`Sampler::spans` returned none"),
    ] {
        let numbers = from_fn(5, |index, _| Ok(index as i64));
        let batches = SampledBatches::planned(Ends(ends), 3);
        let mut loader = Loader::builder(numbers).batch_sampler(batches).num_workers(1).build().unwrap();
        let error = loader.epoch().map(drop).unwrap_err().to_string();
        assert!(error.contains(want), "{error}");
    }
}
