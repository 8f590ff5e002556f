//! Tests of workers that are processes.
#![cfg(all(target_os = "linux", not(any(shuttle, delays))))]

mod options;
mod separate;
#[path = "../support/mod.rs"]
mod support;

use std::time::{Duration, Instant};

use slotline::Error;
use slotline::Loader;
use slotline::arena::Pages;
use slotline::sample::Packed;

use crate::support::{Delivered, LONG, Run, chain, describe, from_fn, items, sleeping_sometimes};

const RUN: Run = Run { len: 103, batch_size: 8, drop_last: false, shuffle: true, seed: 7 };

/// Kills this process.
fn die() {
    // SAFETY: this sends a signal to this process.
    unsafe { libc::raise(libc::SIGKILL) };
}

#[test]
fn processes_give_the_batches_of_a_plain_loop() {
    for (workers, batch_size, drop_last, shuffle) in
        [(1, 8, false, true), (2, 8, true, true), (3, 1, false, false), (2, 200, false, true)]
    {
        let run = Run { batch_size, drop_last, shuffle, ..RUN };
        let mut builder = run.over(items(run.len, sleeping_sometimes)).num_workers(workers);
        if workers == 3 {
            builder = builder.memory(|bytes| Ok(Pages::shared(bytes)?));
        }
        let mut loader = builder.processes().build().unwrap();
        for expected in run.expected(3) {
            let got: Vec<Delivered> = loader.epoch().unwrap().map(|batch| Delivered::from(&batch.unwrap())).collect();
            assert_eq!(got, expected, "{workers} workers");
        }
    }
}

#[test]
fn a_killed_worker_is_an_error_in_the_place_of_its_batch() {
    let dataset = from_fn(40, |index, _| {
        if index == 21 {
            die();
        }
        Ok(index as i64)
    });
    let mut loader = Loader::builder(dataset).batch_size(4).num_workers(2).processes().build().unwrap();
    let all: Vec<_> =
        loader.epoch().unwrap().map(|batch| batch.map(|batch| batch.tensors().as_slice().to_vec())).collect();
    assert_eq!(all.len(), 10);
    for (task, batch) in all.iter().enumerate() {
        match batch {
            Ok(batch) => assert_eq!(*batch, (task as i64 * 4..task as i64 * 4 + 4).collect::<Vec<_>>()),
            Err(error) => {
                assert!(task == 5, "{task}: {error}");
                assert!(matches!(error, Error::Sample { index: 21, position: 21, task: 5, .. }), "{error:?}");
                assert!(chain(error).contains("was killed by signal 9"), "{}", chain(error));
            }
        }
    }
    assert!(all[5].is_err());
}

#[test]
fn all_workers_dead_ends_the_pass() {
    let dataset = from_fn(40, |index, _| {
        if index % 8 == 7 {
            std::process::exit(3);
        }
        Ok(index as i64)
    });
    let mut loader = Loader::builder(dataset).batch_size(4).num_workers(2).processes().build().unwrap();
    let begun = Instant::now();
    let all: Vec<_> = loader.epoch().unwrap().collect();
    assert!(begun.elapsed() < Duration::from_secs(5));
    let text = chain(all.last().unwrap().as_ref().unwrap_err());
    assert!(text.contains("ended, and the loader with it: its process ended with exit code 3"), "{text}");
    assert!(all.iter().filter(|batch| batch.is_err()).count() == 3, "{all:?}");
    assert!(matches!(loader.epoch(), Err(Error::WorkerDied { .. })));
}

#[test]
fn a_pass_is_resumed_by_processes_or_threads() {
    for in_order in [true, false] {
        let builder = || RUN.over(items(RUN.len, sleeping_sometimes)).in_order(in_order);
        let expected = &RUN.expected(2)[1];
        for taken in [0, 1, 5, 12, 13] {
            let mut first = builder().num_workers(2).processes().build().unwrap();
            first.epoch().unwrap().for_each(|batch| drop(batch.unwrap()));
            let mut pass = first.epoch().unwrap();
            let mut got: Vec<Delivered> =
                pass.by_ref().take(taken).map(|batch| Delivered::from(&batch.unwrap())).collect();
            let state = pass.state();
            drop(pass);
            let mut second = match taken % 2 {
                0 => builder().num_workers(3).processes().build().unwrap(),
                _ => builder().num_workers(1).build().unwrap(),
            };
            second.load_state(&state).unwrap();
            if taken < 13 {
                got.extend(second.epoch().unwrap().map(|batch| Delivered::from(&batch.unwrap())));
            }
            got.sort_by_key(|got| got.task);
            assert_eq!(got, *expected, "{taken} taken");
        }
    }
}

#[test]
fn samples_without_batches_and_packed_fields_are_the_same() {
    const NUMBERS: [i64; 5] = [3, 1, 4, 1, 5];
    let words = || from_fn(37, |index, _| Ok((index as i64, Packed::new(&NUMBERS[..index % 5], 5))));
    let read = |loader: &mut Loader<_>| -> Vec<String> {
        let batches = loader.epoch().unwrap();
        batches.map(describe).collect()
    };
    let builder = || Loader::builder(words()).batch_size(6).shuffle(true).seed(3);
    assert_eq!(read(&mut builder().num_workers(2).processes().build().unwrap()), read(&mut builder().build().unwrap()));
    let single = || Loader::builder(from_fn(9, |index, _| Ok(index as i64))).batch_size(None);
    let mut loader = single().num_workers(2).processes().build().unwrap();
    let singles: Vec<i64> = loader.epoch().unwrap().map(|sample| sample.unwrap().indices()[0]).collect();
    assert_eq!(singles, (0..9).collect::<Vec<i64>>());
}

#[test]
fn statistics_count_what_processes_read() {
    let mut loader = RUN.over(items(RUN.len, sleeping_sometimes)).num_workers(2).processes().build().unwrap();
    loader.epoch().unwrap().for_each(|batch| drop(batch.unwrap()));
    let stats = loader.stats();
    assert_eq!((stats.batches, stats.samples, stats.workers.len()), (13, 103, 2));
    assert_eq!(stats.workers.iter().map(|worker| worker.samples).sum::<u64>(), 103);
    assert_eq!((stats.consumer.process, stats.consumer.process_memory), (None, None));
    assert!(stats.workers.iter().all(|worker| worker.process.is_some_and(|process| process != std::process::id())));
}

#[test]
fn statistics_show_how_the_memory_of_a_worker_grows() {
    const GROWTH: u64 = 24 << 20;
    let kept = std::sync::Mutex::new(Vec::new());
    let parent = std::process::id();
    let dataset = from_fn(8, move |index, _| {
        if std::process::id() != parent {
            kept.lock().unwrap().push(vec![index as u8 + 1; GROWTH as usize / 8]);
        }
        Ok(index as i64)
    });
    let mut loader = Loader::builder(dataset).num_workers(1).processes().build().unwrap();
    let memory = |loader: &Loader<_>| loader.stats().workers[0].process_memory.unwrap();
    let before = memory(&loader);
    loader.epoch().unwrap().for_each(|batch: Result<slotline::Batch<i64>, _>| drop(batch.unwrap()));
    let grown = memory(&loader) - before;
    assert!((GROWTH..2 * GROWTH).contains(&grown), "{grown}");
}

#[test]
fn a_loop_that_polls_gets_every_batch() {
    for (prefetch, keeps) in [(8, false), (2, true)] {
        let builder = Loader::builder(from_fn(48, |index, _| Ok(index as i64))).batch_size(2).num_workers(1);
        let mut loader = builder.prefetch_factor(prefetch).processes().build().unwrap();
        loader.begin_epoch().unwrap();
        let mut kept = None;
        for _ in 0..24 {
            let begun = Instant::now();
            while !loader.is_ready() {
                assert!(begun.elapsed() < LONG);
                std::thread::sleep(Duration::from_micros(50));
            }
            // Give the workers time to fall asleep.
            std::thread::sleep(Duration::from_millis(2));
            let batch = loader.next_batch().unwrap().unwrap();
            kept = Some(batch).filter(|_| keeps);
        }
        drop(kept);
    }
}

#[test]
fn large_batches_take_no_memory_that_is_not_used() {
    let samples = from_fn(16_384, |index, _| Ok([index as f32; 4096]));
    let loader =
        Loader::builder(samples).batch_size(4096).num_workers(1).prefetch_factor(1).processes().build().unwrap();
    assert!(loader.memory_ceiling() < 5 * (64 << 20), "{}", loader.memory_ceiling());
}

#[test]
fn a_sample_that_kills_every_worker_is_named() {
    let dataset = from_fn(40, |index, _| {
        if index == 13 {
            die();
        }
        Ok(index as i64)
    });
    let mut loader =
        Loader::builder(dataset).batch_size(8).num_workers(1).processes().restart_workers(4).build().unwrap();
    let all: Vec<_> = loader.epoch().unwrap().collect();
    assert!(all[0].is_ok());
    assert!(matches!(all[1], Err(Error::Sample { index: 13, task: 1, .. })), "{:?}", all[1]);
    assert!(matches!(all[2], Err(Error::WorkerDied { worker: 0, .. })), "{:?}", all[2]);
    assert_eq!(all.len(), 3);
}

/// An error whose formatting takes so long that the loader checks its workers twice in that time.
#[derive(Debug)]
struct Slow;

impl std::fmt::Display for Slow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::thread::sleep(Duration::from_secs(4));
        f.write_str("slow words")
    }
}

impl std::error::Error for Slow {}

#[test]
fn a_worker_that_is_slow_with_what_it_has_read_is_not_killed() {
    let dataset = from_fn(8, |index, _| if index == 5 { Err(Slow.into()) } else { Ok(index as i64) });
    let mut loader = Loader::builder(dataset).batch_size(4).num_workers(1).processes().build().unwrap();
    let all: Vec<_> = loader.epoch().unwrap().collect();
    assert!(all.len() == 2 && all[0].is_ok(), "{all:?}");
    let text = chain(all[1].as_ref().unwrap_err());
    assert!(text.contains("slow words"), "{text}");
}
