//! Tests that statistics include work that has not ended: a thread that hangs in a sample counts as
//! busy, and the verdict (what the statistics name as the bottleneck) names the sample.

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use slotline::Loader;
use slotline::dataset::{Dataset, decoding, from_fn, iter_fn};
use slotline::loader::{By, Stats, StatsReader, Verdict};
use slotline::sample::{Row, Sample};
use support::{LONG, Latch, WrittenBy, stuck};

const MILLISECOND: Duration = Duration::from_millis(1);

/// Runs a pass in which a sample hangs until the latch opens, and checks the statistics while it
/// hangs.
fn while_it_hangs(reader: &StatsReader, latch: &Latch, pass: impl FnOnce() + Send, check: impl Fn(&Stats)) {
    std::thread::scope(|scope| {
        let begun = Instant::now();
        scope.spawn(pass);
        latch.until_waiting(1);
        // Wait until the sample has taken more than half of the pass's time so far, however long
        // the samples before it took.
        sleep((begun.elapsed() * 3).max(100 * MILLISECOND));
        let outcome = catch_unwind(AssertUnwindSafe(|| check(&reader.stats())));
        latch.open();
        outcome.unwrap_or_else(|panic| resume_unwind(panic));
    });
    let after = reader.stats();
    assert!(after.unfinished.is_empty(), "{after:?}");
    assert!(!matches!(after.verdict(), Verdict::Stuck(_)), "{} {after:?}", after.verdict());
}

/// A dataset in which one sample waits for the latch.
fn hanging(len: usize, at: usize, latch: &Latch) -> impl Dataset {
    stuck(len, latch, move |index, _| index == at)
}

fn is_stuck_at(stats: &Stats, index: usize, loading: bool) {
    let verdict = stats.verdict();
    let Verdict::Stuck(slow) = verdict else { panic!("{verdict} {stats:?}") };
    assert!(slow.index == index && slow.samples == 1 && slow.time >= 100 * MILLISECOND, "{verdict} {stats:?}");
    assert_eq!(slow.by == By::Consumer, loading, "{verdict}");
    assert!(verdict.to_string().contains(&format!("at sample {index} for ")), "{verdict}");
    let threads = || stats.workers.iter().chain([&stats.consumer]);
    // The time in which the sample hangs counts as reading.
    let reading: Duration = threads().map(|thread| thread.reading).sum();
    assert!(reading >= slow.time && reading > stats.elapsed / 2, "{stats:?}");
    assert!(threads().all(|thread| thread.busy() <= stats.elapsed * 2), "{stats:?}");
}

#[test]
fn a_sample_that_hangs_is_reading_and_is_named() {
    // The sample that hangs is in the first batch (but is not sample 0, which `build` reads), in
    // the fourth, or after many quick ones.
    for (len, stuck) in [(40, 1), (40, 13), (8_000, 6_001)] {
        for workers in [0, 1, 2] {
            for round_robin in [false, true] {
                let latch = Latch::default();
                let builder = Loader::builder(hanging(len, stuck, &latch)).batch_size(4).num_workers(workers);
                let mut loader = builder.help(false).round_robin(round_robin).build().unwrap();
                let reader = loader.stats_reader();
                let pass = || loader.epoch().unwrap().for_each(drop);
                while_it_hangs(&reader, &latch, pass, |stats| is_stuck_at(stats, stuck, workers == 0));
            }
        }
    }
}

#[test]
fn a_stream_that_hangs_is_named_too() {
    for workers in [0, 1] {
        for (opens, stuck) in [(true, 0), (false, 21)] {
            let latch = Latch::default();
            let (waits, is_built) = (latch.clone(), Arc::new(AtomicBool::new(false)));
            let in_pass = is_built.clone();
            let stream = iter_fn(move |_| {
                if opens && in_pass.load(Ordering::Relaxed) {
                    waits.wait();
                }
                let waits = waits.clone();
                Ok((0..40_i64).map(move |number| {
                    if !opens && number == 21 {
                        waits.wait();
                    }
                    Ok(number)
                }))
            });
            let mut loader = Loader::iterable(stream).batch_size(4).num_workers(workers).build().unwrap();
            is_built.store(true, Ordering::Relaxed);
            let reader = loader.stats_reader();
            let pass = || loader.epoch().unwrap().for_each(drop);
            while_it_hangs(&reader, &latch, pass, |stats| {
                let verdict = stats.verdict();
                let Verdict::Stuck(slow) = verdict else { panic!("{verdict} {stats:?}") };
                assert_eq!((slow.index, slow.samples), (stuck, u64::from(!opens)), "{stats:?}");
                assert_eq!(verdict.to_string().contains("beginning its stream"), opens, "{verdict}");
            });
        }
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_sample_that_hangs_in_a_process_is_named() {
    let latch = Latch::default();
    let mut loader = Loader::builder(hanging(40, 13, &latch)).batch_size(4).num_workers(2).processes().build().unwrap();
    let reader = loader.stats_reader();
    while_it_hangs(&reader, &latch, || loader.epoch().unwrap().for_each(drop), |stats| is_stuck_at(stats, 13, false));
}

#[test]
fn a_sample_that_hangs_while_it_is_written_is_writing() {
    for workers in [0, 1] {
        let latch = Latch::default();
        let waits = latch.clone();
        let write = move |number: i64, row: &mut Row<'_>| {
            sleep(MILLISECOND);
            if number == 9 {
                waits.wait();
            }
            number.write(row)
        };
        let dataset = from_fn(20, move |index, _| Ok(WrittenBy::new(index as i64, write.clone())));
        let mut loader = Loader::builder(dataset).batch_size(2).num_workers(workers).help(false).build().unwrap();
        let reader = loader.stats_reader();
        let pass = || loader.epoch().unwrap().for_each(drop);
        while_it_hangs(&reader, &latch, pass, |stats| {
            assert!(matches!(stats.verdict(), Verdict::Stuck(slow) if slow.index == 9), "{stats:?}");
            let [thread] = [if workers == 0 { &stats.consumer } else { &stats.workers[0] }];
            assert!(thread.writing > stats.elapsed / 2 && thread.reading < thread.writing / 2, "{stats:?}");
        });
    }
}

#[test]
fn a_first_batch_that_takes_long_has_a_verdict() {
    let dataset = from_fn(64, |index, _| {
        decoding(|| sleep(20 * MILLISECOND));
        Ok(index as i64)
    });
    let mut loader = Loader::builder(dataset).batch_size(64).num_workers(1).help(false).build().unwrap();
    let reader = loader.stats_reader();
    std::thread::scope(|scope| {
        scope.spawn(|| loader.epoch().unwrap().for_each(drop));
        let begun = Instant::now();
        while reader.stats().workers[0].samples < 20 {
            assert!(begun.elapsed() < LONG, "{:?}", reader.stats());
            sleep(MILLISECOND);
        }
        let stats = reader.stats();
        assert_eq!(stats.batches, 0);
        assert!(matches!(stats.verdict(), Verdict::Decoding(_)), "{} {stats:?}", stats.verdict());
    });
}
