//! Tests of the statistics of a loader: exact counts, times that add up, and the samples at which
//! threads are stuck.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::support::{LONG, Latch, ReadsMany, Workers, from_fn, items, stuck, worker_kinds};
use slotline::dataset::iter_fn;
use slotline::loader::{By, Stats};
use slotline::sample::Packed;
use slotline::{BoxError, Loader};

/// The size of a sample of [`items`], in bytes.
const ITEM: u64 = 8 + 6 + 8;

/// Returns the numbers of passes, batches, samples, bytes and errors.
fn counts(stats: &Stats) -> [u64; 5] {
    [stats.passes, stats.batches, stats.samples, stats.bytes, stats.errors]
}

/// Returns the number of samples that all threads have begun to read.
fn read(stats: &Stats) -> u64 {
    stats.workers.iter().chain([&stats.consumer]).map(|thread| thread.samples).sum()
}

#[test]
fn batches_samples_bytes_and_errors_are_counted() {
    for kind in worker_kinds([0, 1, 3]) {
        let dataset = items(50, |index, cx| match index {
            17 if cx.epoch() == 0 => Err("not this one".into()),
            _ => Ok(()),
        });
        let mut loader = kind.build(Loader::builder(dataset).batch_size(8)).unwrap();
        let workers = kind.workers;
        assert_eq!(counts(&loader.stats()), [0; 5]);
        loader.epoch().unwrap().for_each(drop);
        let stats = loader.stats();
        assert_eq!(counts(&stats), [1, 6, 42, 42 * ITEM, 1], "{workers} workers");
        assert_eq!((stats.workers.len(), stats.depth, stats.in_order), (workers, loader.depth(), true));
        assert_eq!(read(&stats), 50);
        let mut pass = loader.epoch().unwrap();
        pass.by_ref().take(3).for_each(drop);
        assert_eq!(counts(&pass.stats()), [2, 9, 66, 66 * ITEM, 1]);
        drop(pass);
        assert_eq!(counts(&loader.stats()), [2, 9, 66, 66 * ITEM, 1], "batches that were not delivered must not count");
        std::mem::forget(loader.epoch().unwrap());
        loader.epoch().unwrap().for_each(drop);
        assert_eq!(counts(&loader.stats()), [4, 16, 116, 116 * ITEM, 1]);
    }
}

#[test]
fn out_of_order_passes_and_iterators_are_counted() {
    for kind in worker_kinds([0, 2]) {
        let builder = Loader::builder(items(50, |_, _| Ok(()))).batch_size(8).in_order(false);
        let mut loader = kind.build(builder).unwrap();
        loader.epoch().unwrap().for_each(drop);
        assert_eq!(counts(&loader.stats()), [1, 7, 50, 50 * ITEM, 0]);
        assert!(!loader.stats().in_order);
        let buckets = || [vec![7], vec![], vec![1, 2, 3]];
        let builder = Loader::builder(items(50, |_, _| Ok(()))).batch_sampler_iter(3, buckets);
        let mut loader = kind.build(builder).unwrap();
        loader.epoch().unwrap().for_each(drop);
        assert_eq!(counts(&loader.stats()), [1, 3, 4, 4 * ITEM, 0]);
    }
}

#[test]
fn per_worker_backends_count_like_the_shared_ring() {
    for workers in [0, 2] {
        let dataset = items(50, |index, _| if index == 17 { Err("not this one".into()) } else { Ok(()) });
        let mut round_robin =
            Loader::builder(dataset).batch_size(8).num_workers(workers).round_robin(true).build().unwrap();
        for pass in 1..=2 {
            round_robin.epoch().unwrap().for_each(drop);
            assert_eq!(counts(&round_robin.stats()), [pass, 6 * pass, 42 * pass, 42 * pass * ITEM, pass]);
        }
        assert_eq!(read(&round_robin.stats()), 100);
        let dataset = iter_fn(|worker| {
            let numbers = worker.map_or(0..20, |worker| worker.share(20));
            Ok(numbers.map(|number| if number == 3 { Err(BoxError::from("no")) } else { Ok(number as i32) }))
        });
        let mut stream = Loader::iterable(dataset).batch_size(4).num_workers(workers).build().unwrap();
        let mut pass = stream.epoch().unwrap();
        let (mut batches, mut samples, mut errors) = (0, 0, 0);
        for batch in pass.by_ref() {
            match batch {
                Ok(batch) => (batches, samples) = (batches + 1, samples + batch.len() as u64),
                Err(_) => errors += 1,
            }
        }
        assert_eq!(counts(&pass.stats()), [1, batches, samples, samples * 4, errors]);
        assert_eq!(errors, 1);
        assert_eq!(read(&pass.stats()), 20, "the failed sample counts, too");
    }
}

#[test]
fn packed_bytes_are_counted_and_collated_ones_are_not() {
    let words = ["a", "", "bcd", "ef", "ghij"];
    for kind in worker_kinds([1]) {
        let dataset = from_fn(words.len(), move |index, _| Ok((Packed::new(words[index].as_bytes(), 8), index as u16)));
        let mut loader = kind.build(Loader::builder(dataset).batch_size(2)).unwrap();
        loader.epoch().unwrap().for_each(drop);
        assert_eq!(counts(&loader.stats()), [1, 3, 5, 10 + 5 * 2, 0]);
    }
    let dataset = from_fn(5, |index, _| Ok(index as i64));
    let mut loader = Loader::builder(dataset).batch_size(2).collate(|samples| Ok(samples.len())).build().unwrap();
    loader.epoch().unwrap().for_each(drop);
    assert_eq!(counts(&loader.stats()), [1, 3, 5, 0, 0]);
}

/// Runs a pass over slow samples, and returns the loader's statistics and the duration of the pass.
fn slowly(kind: Workers, bulk: bool) -> (Stats, Duration) {
    let dataset = from_fn(12, |index, _| {
        std::thread::sleep(Duration::from_millis(if index == 7 { 40 } else { 2 }));
        Ok(index as i64)
    });
    let mut loader = kind.build(Loader::builder(ReadsMany(dataset, bulk)).batch_size(3).help(false)).unwrap();
    let begun = Instant::now();
    loader.epoch().unwrap().for_each(drop);
    let took = begun.elapsed();
    (loader.stats(), took)
}

#[test]
fn busy_time_does_not_exceed_elapsed_during_a_sample() {
    let latch = Latch::default();
    let waiting = latch.clone();
    let dataset = from_fn(2, move |index, _| {
        match index {
            0 => std::thread::sleep(Duration::from_millis(30)),
            _ => waiting.wait(),
        }
        Ok(index as i64)
    });
    let mut loader = Loader::builder(dataset).num_workers(1).help(false).build().unwrap();
    let mut pass = loader.epoch().unwrap();
    pass.next().unwrap().unwrap();
    latch.until_waiting(1);
    let stats = pass.stats();
    latch.open();
    assert_eq!(stats.workers[0].samples, 2);
    assert!(stats.workers[0].busy() <= stats.elapsed, "{stats:?}");
}

#[test]
fn a_sample_slow_on_several_workers_is_listed_once() {
    let dataset = from_fn(2, |index, _| {
        std::thread::sleep(Duration::from_millis(1));
        Ok(index as i64)
    });
    // Each pass has one batch for each worker. The order of the pass determines which worker reads
    // which sample.
    let mut loader = Loader::builder(dataset).shuffle(true).seed(3).num_workers(2).round_robin(true).build().unwrap();
    (0..10).for_each(|_| loader.epoch().unwrap().for_each(drop));
    let mut slowest: Vec<_> = loader.stats().slowest.iter().map(|slow| slow.index).collect();
    slowest.sort_unstable();
    assert_eq!(slowest, [0, 1]);
}

#[test]
fn starting_a_stream_counts_as_reading_in_every_pass() {
    for workers in [0, 1] {
        let dataset = iter_fn(|_| {
            std::thread::sleep(Duration::from_millis(10));
            Ok((0..200_i64).map(Ok))
        });
        let mut loader = Loader::iterable(dataset).batch_size(2).num_workers(workers).build().unwrap();
        (0..5).for_each(|_| loader.epoch().unwrap().for_each(drop));
        let stats = loader.stats();
        let thread = stats.workers.first().unwrap_or(&stats.consumer);
        assert!(thread.reading >= Duration::from_millis(50), "{workers} workers: {stats:?}");
    }
}

#[test]
fn collate_time_before_the_first_sample_is_writing() {
    let numbers = from_fn(6, |index, _| Ok(index as i64));
    let builder = Loader::builder(numbers).batch_size(2).collate(|samples| {
        std::thread::sleep(Duration::from_millis(10));
        samples.for_each(|_| Ok(()))
    });
    let mut loader = builder.build().unwrap();
    loader.epoch().unwrap().for_each(drop);
    let stats = loader.stats();
    assert!(stats.consumer.writing >= Duration::from_millis(30), "{stats:?}");
}

#[test]
fn slow_samples_are_listed_and_times_add_up() {
    for kind in worker_kinds([0, 1, 2]) {
        let ((stats, took), workers) = (slowly(kind, false), kind.workers);
        // On a busy machine another sample may take even longer.
        let slowest = stats.slowest.iter().find(|slow| slow.index == 7).unwrap();
        assert!(slowest.time >= Duration::from_millis(40) && slowest.time <= took);
        assert_eq!(matches!(slowest.by, By::Worker(_)), workers > 0);
        assert_eq!(stats.slowest.len(), 8);
        assert!(stats.slowest.is_sorted_by(|a, b| a.time >= b.time));
        let threads = || stats.workers.iter().chain([&stats.consumer]);
        // The times of each thread must not exceed the duration of the pass, and all samples must
        // be timed.
        assert!(threads().all(|thread| thread.busy() + thread.waiting <= stats.elapsed), "{stats:?}");
        let reading: Duration = threads().map(|thread| thread.reading).sum();
        assert!(reading >= Duration::from_millis(11 * 2 + 40), "{stats:?}");
        assert!(stats.elapsed <= took && stats.waiting + stats.loading() <= stats.elapsed, "{stats:?}");
        assert_eq!(stats.waiting.is_zero(), workers == 0);
    }
}

#[test]
fn bulk_reads_list_no_slow_samples() {
    for kind in worker_kinds([1]) {
        let (stats, _) = slowly(kind, true);
        assert!(stats.slowest.is_empty(), "{stats:?}");
        assert!(stats.workers[0].reading >= Duration::from_millis(11 * 2 + 40));
    }
}

#[test]
fn a_worker_with_no_free_slot_counts_as_waiting() {
    let dataset = items(64, |_, _| Ok(()));
    let builder = Loader::builder(dataset).batch_size(1).num_workers(1).prefetch_factor(2).help(false);
    let mut loader = builder.build().unwrap();
    let mut pass = loader.epoch().unwrap();
    let begun = Instant::now();
    while pass.stats().workers[0].waiting.is_zero() {
        assert!(begun.elapsed() < LONG);
        std::thread::sleep(Duration::from_millis(1));
        if pass.next().is_none() {
            drop(pass);
            pass = loader.epoch().unwrap();
        }
    }
}

#[test]
fn finished_batches_count_as_ready() {
    for round_robin in [false, true] {
        let begun = Instant::now();
        let builder = Loader::builder(items(40, |_, _| Ok(()))).num_workers(2).prefetch_factor(2);
        // After some passes, a batch is ready when the loop requests it.
        let mut loader = builder.round_robin(round_robin).build().unwrap();
        let mut ready = || {
            loader.epoch().unwrap().for_each(|_| std::thread::sleep(Duration::from_micros(300)));
            loader.stats()
        };
        loop {
            let stats = ready();
            assert!((0.0..=stats.depth as f64).contains(&stats.ready), "{stats:?}");
            if stats.ready > 0.0 {
                break;
            }
            assert!(begun.elapsed() < LONG);
        }
    }
}

#[test]
fn the_watchdog_reports_a_stuck_sample_once() {
    let thread = Workers { workers: 1, processes: false };
    for (kind, round_robin) in worker_kinds([1]).map(|kind| (kind, false)).chain([(thread, true)]) {
        let latch = Latch::default();
        let dataset = stuck(12, &latch, |index, cx| index == 5 && cx.epoch() == 0);
        let builder = Loader::builder(dataset).batch_size(2).num_workers(1).prefetch_factor(4).help(false);
        let builder = builder.watchdog(Duration::from_millis(20));
        let check = |stats: &mut dyn FnMut() -> Stats| {
            let begun = Instant::now();
            while stats().stuck.is_empty() {
                assert!(begun.elapsed() < LONG, "nothing was reported");
                std::thread::sleep(Duration::from_millis(1));
            }
            // Wait so long that the watchdog could report the stuck sample a second time.
            std::thread::sleep(Duration::from_millis(50));
            let reported = stats().stuck;
            let found = reported.iter().filter(|stuck| stuck.index == 5).count();
            assert_eq!(found, 1, "{reported:?}");
            let reported = reported.iter().find(|stuck| stuck.index == 5).unwrap();
            assert_eq!((reported.batch, reported.by), (2, By::Worker(0)));
            assert!(reported.time >= Duration::from_millis(20));
            latch.open();
        };
        let mut loader = kind.build(builder.round_robin(round_robin)).unwrap();
        let mut pass = loader.epoch().unwrap();
        latch.until_waiting(1);
        check(&mut || pass.stats());
        assert_eq!(pass.by_ref().map(Result::unwrap).count(), 6);
    }
}

#[test]
fn the_watchdog_reports_a_stream_that_does_not_start() {
    let latch = Latch::default();
    let stuck = latch.clone();
    let calls = AtomicUsize::new(0);
    let dataset = iter_fn(move |_| {
        // The first call is made by `build`, to learn the fields.
        if calls.fetch_add(1, Relaxed) > 0 {
            stuck.wait();
        }
        Ok((0..4_i32).map(Ok))
    });
    let builder = Loader::iterable(dataset).batch_size(2).num_workers(1).watchdog(Duration::from_millis(5));
    let mut loader = builder.build().unwrap();
    let pass = loader.epoch().unwrap();
    latch.until_waiting(1);
    let begun = Instant::now();
    while pass.stats().stuck.is_empty() {
        assert!(begun.elapsed() < LONG, "nothing was reported");
        std::thread::sleep(Duration::from_millis(1));
    }
    latch.open();
    let reported = pass.stats().stuck[0];
    assert_eq!((reported.index, reported.batch, reported.by), (0, 0, By::Worker(0)));
    assert_eq!(pass.map(Result::unwrap).count(), 2);
}

#[test]
fn a_watchdog_with_any_duration_ends_with_its_loader() {
    let begun = Instant::now();
    for patience in [Duration::ZERO, Duration::from_secs(3600), Duration::MAX] {
        for kind in worker_kinds([1]) {
            let builder = Loader::builder(items(4, |_, _| Ok(()))).watchdog(patience);
            let mut loader = kind.build(builder).unwrap();
            loader.epoch().unwrap().for_each(drop);
            assert!(loader.stats().stuck.is_empty());
        }
    }
    assert!(begun.elapsed() < LONG);
}

#[test]
fn statistics_serialize_with_times_in_seconds() {
    let (stats, _) = slowly(Workers { workers: 1, processes: false }, false);
    let json = serde_json::to_value(&stats).unwrap();
    assert_eq!(json["elapsed"], stats.elapsed.as_secs_f64());
    assert_eq!(json["workers"][0]["samples"], 12);
    assert_eq!(json["slowest"][0]["time"], stats.slowest[0].time.as_secs_f64());
    assert_eq!(json["slowest"][0]["by"], serde_json::json!({"Worker": 0}));
}
