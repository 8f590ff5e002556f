//! Tests of delivery out of order (`in_order(false)`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use slotline::dataset::iter_fn;
use slotline::worker_info;

use crate::support::Latch;
use crate::{Kind, Loader, Options, Passes};

/// Builds a loader over `len` numbers, one per batch. Reading the first number waits until the
/// latch is opened.
fn with_slow_first(kind: Kind, len: usize, in_order: bool, latch: &Latch) -> Box<dyn Passes> {
    let slow = latch.clone();
    let options = Options { len, batch_size: 1, in_order, ..Options::default() };
    options.build(kind, move |index| {
        // Only workers wait. `build`, which reads this sample to learn the fields, does not.
        if index == 0 && worker_info().is_some() {
            slow.wait();
        }
        Ok(())
    })
}

/// Returns the first `count` numbers of a pass, which must be delivered while the latch is closed.
/// Then opens the latch, and returns the other numbers.
fn around(loader: &mut dyn Passes, count: usize, latch: &Latch) -> (Vec<i64>, Vec<i64>) {
    let mut pass = loader.pass().unwrap();
    let before = pass.by_ref().take(count).map(|batch| batch.unwrap()[0]).collect();
    latch.open();
    (before, pass.map(|batch| batch.unwrap()[0]).collect())
}

#[test]
fn out_of_order_round_robin_delays_batches_0_and_2() {
    let latch = Latch::default();
    let mut loader = with_slow_first(Kind::RoundRobin, 10, false, &latch);
    let (before, after) = around(&mut *loader, 8, &latch);
    assert_eq!((before, after), (vec![1, 3, 4, 5, 6, 7, 8, 9], vec![0, 2]));
}

#[test]
fn in_order_a_slow_batch_0_still_comes_first() {
    for kind in [Kind::Shared, Kind::Processes, Kind::RoundRobin] {
        let latch = Latch::default();
        let mut loader = with_slow_first(kind, 10, true, &latch);
        let opener = std::thread::spawn({
            let latch = latch.clone();
            move || {
                latch.until_waiting(1);
                latch.open();
            }
        });
        assert_eq!(loader.whole().concat(), (0..10).collect::<Vec<_>>());
        opener.join().unwrap();
    }
}

#[test]
fn one_slow_task_of_200_does_not_stop_the_others() {
    for (kind, late) in [(Kind::Shared, 1), (Kind::Processes, 1), (Kind::RoundRobin, 2)] {
        let latch = Latch::default();
        let mut loader = with_slow_first(kind, 200, false, &latch);
        let (mut before, after) = around(&mut *loader, 200 - late, &latch);
        before.sort_unstable();
        // With `round_robin`, the slow worker's next batch is late as well.
        assert_eq!(after, [0, 2][..late], "{kind:?}");
        assert!(before.into_iter().eq((1..200).filter(|task| !after.contains(task))));
    }
}

#[test]
fn a_slow_iterable_worker_does_not_stop_the_others() {
    let latch = Latch::default();
    let slow = latch.clone();
    let dataset = iter_fn(move |worker| {
        let (slow, id) = (slow.clone(), worker.map_or(0, |worker| worker.id()));
        Ok((0..50).map(move |number| {
            if id == 1 && number == 3 {
                slow.wait();
            }
            Ok(100 * id as i64 + number)
        }))
    });
    let builder = Loader::iterable(dataset).num_workers(3).in_order(false).batch_size(2);
    let mut loader = builder.build().unwrap();
    // Each worker has 25 batches, and worker 1 has delivered one of them.
    let (before, after) = around(&mut loader, 51, &latch);
    assert_eq!(after, (102..150).step_by(2).collect::<Vec<_>>());
    for id in [0, 2] {
        let of_one: Vec<i64> = before.iter().copied().filter(|first| first / 100 == id).collect();
        assert_eq!(
            of_one,
            (100 * id..100 * id + 50).step_by(2).collect::<Vec<_>>(),
            "the batches of each worker are in order"
        );
    }
}

#[test]
fn out_of_order_a_dropped_pass_ends_with_its_slow_task() {
    for kind in [Kind::Shared, Kind::Processes, Kind::RoundRobin] {
        let latch = Latch::default();
        let mut loader = with_slow_first(kind, 40, false, &latch);
        let mut pass = loader.pass().unwrap();
        assert_eq!(pass.by_ref().take(5).filter(Result::is_ok).count(), 5);
        drop(pass);
        let opened = Arc::new(AtomicBool::new(false));
        let opener = std::thread::spawn({
            let (latch, opened) = (latch.clone(), opened.clone());
            move || {
                latch.until_waiting(1);
                opened.store(true, Ordering::SeqCst);
                latch.open();
            }
        });
        let mut next = loader.whole();
        next.sort();
        assert!(opened.load(Ordering::SeqCst), "the next pass waits for it");
        assert!(next.concat().into_iter().eq(0..40));
        opener.join().unwrap();
    }
}
