//! Tests of stopping a loader from another thread: waiting threads must return, no partial batch
//! may be delivered, and the loader's state must be exact.

use std::cell::RefCell;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::support::{DatasetOf, Dropped, HAS_PROCESSES, InProcesses, Item, Latch, OneByOne, from_fn, items};
use slotline::Loader;
use slotline::dataset::Dataset;
use slotline::loader::{BuildError, Error, OnHeld, Stopper};

/// Runs a body with a loader of each kind: with a shared ring, with threads or processes, with
/// `round_robin`, and over an iterable dataset. Each loader has its own latch.
macro_rules! each_kind {
    (|$latch:ident| $dataset:expr, $options:tt, |$loader:ident| $body:block) => {{
        each_kind!(threads |$latch| $dataset, $options, |$loader| $body);
        if HAS_PROCESSES {
            each_kind!(@ $latch, Loader::builder($dataset), $options, in_processes, |$loader| $body);
        }
    }};
    (threads |$latch:ident| $dataset:expr, $options:tt, |$loader:ident| $body:block) => {{
        each_kind!(@ $latch, Loader::builder($dataset), $options, build, |$loader| $body);
        each_kind!(@ $latch, Loader::builder($dataset).round_robin(true), $options, build, |$loader| $body);
        each_kind!(@ $latch, Loader::iterable(OneByOne($dataset)), $options, build, |$loader| $body);
    }};
    (@ $latch:ident, $builder:expr, [$($options:tt)*], $build:ident, |$loader:ident| $body:block) => {{
        let $latch = Latch::default();
        match $builder.$($options)*.$build() {
            // Processes need at least one worker.
            Err(BuildError::Clash { second: "num_workers = 0", .. }) => {}
            loader => {
                let mut $loader = loader.unwrap();
                $body
                // Open the latch, as otherwise dropping the loader would wait for the stuck
                // workers.
                $latch.open();
            }
        }
    }};
}

/// Returns a dataset of a hundred samples. Workers get stuck from sample `at` on, and a helping
/// consumer waits at sample 1 until a worker is stuck.
fn sticky(latch: &Latch, at: usize) -> impl Dataset + for<'a> DatasetOf<'a, Item> + use<> {
    let latch = latch.clone();
    items(100, move |index, cx| {
        if index >= at && cx.worker().is_some() {
            latch.wait();
        } else if index > 0 && cx.worker().is_none() {
            latch.until_waiting(1);
        }
        Ok(())
    })
}

/// Returns a dataset of a hundred samples that are read without waiting.
fn quick(_: &Latch) -> impl Dataset + for<'a> DatasetOf<'a, Item> + use<> {
    items(100, |_, _| Ok(()))
}

/// Stops a loader from another thread as soon as a thread waits at the latch.
fn stop_when_stuck(stopper: Stopper, latch: &Latch) -> JoinHandle<()> {
    let latch = latch.clone();
    thread::spawn(move || {
        latch.until_waiting(1);
        stopper.stop();
    })
}

/// Asserts that a pass and its loader are stopped.
macro_rules! assert_stopped {
    ($pass:ident, $loader:ident) => {{
        assert!(matches!($pass.next(), Some(Err(Error::Stopped))));
        assert!($pass.next().is_none());
        drop($pass);
        for _ in 0..2 {
            assert!(matches!($loader.epoch(), Err(Error::Stopped)));
        }
    }};
}

#[test]
fn a_consumer_that_waits_for_a_stuck_worker_returns() {
    for (workers, in_order) in [(1, true), (1, false), (2, true), (2, false)] {
        each_kind!(|latch| sticky(&latch, 1), [batch_size(2).num_workers(workers).in_order(in_order)], |loader| {
            let helper = stop_when_stuck(loader.stopper(), &latch);
            let mut pass = loader.epoch().unwrap();
            let error = pass.by_ref().find_map(Result::err);
            assert!(matches!(error, Some(Error::Stopped)));
            assert!(pass.next().is_none());
            drop(pass);
            helper.join().unwrap();
            assert!(matches!(loader.epoch(), Err(Error::Stopped)));
        });
    }
}

#[test]
fn a_stop_during_a_sample_ends_its_batch() {
    for workers in 0..3 {
        let stopper = Arc::new(Mutex::new(None::<Stopper>));
        let read = Arc::new(AtomicUsize::new(0));
        let stopping = |_: &Latch| {
            let (stopper, read) = (stopper.clone(), read.clone());
            items(1000, move |_, _| {
                if let Some(stopper) = &*stopper.lock().unwrap() {
                    read.fetch_add(1, Ordering::Relaxed);
                    stopper.stop();
                }
                Ok(())
            })
        };
        each_kind!(threads | latch | stopping(&latch), [batch_size(100).num_workers(workers)], |loader| {
            read.store(0, Ordering::Relaxed);
            *stopper.lock().unwrap() = Some(loader.stopper());
            let mut pass = loader.epoch().unwrap();
            assert_stopped!(pass, loader);
            drop(loader);
            // Each thread may have been reading a sample when the first one stopped the loader.
            let read = read.load(Ordering::Relaxed);
            assert!((1..=workers + 1).contains(&read), "{read} samples were read with {workers} workers");
            *stopper.lock().unwrap() = None;
        });
    }
}

#[test]
fn a_stop_before_a_pass_fails_every_pass() {
    for workers in 0..3 {
        each_kind!(|latch| quick(&latch), [seed(3).num_workers(workers)], |loader| {
            let state = loader.state();
            loader.stopper().clone().stop();
            assert!(matches!(loader.epoch(), Err(Error::Stopped)));
            assert_eq!(loader.state(), state);
        });
    }
}

#[test]
fn a_stop_takes_effect_even_if_batches_are_ready() {
    for workers in 0..3 {
        each_kind!(|latch| quick(&latch), [batch_size(2).num_workers(workers)], |loader| {
            let stopper = loader.stopper();
            let mut pass = loader.epoch().unwrap();
            let batch = pass.next().unwrap().unwrap();
            while workers > 0 && !pass.is_ready() {
                thread::yield_now();
            }
            stopper.stop();
            assert_stopped!(pass, loader);
            drop(loader);
            assert_eq!(batch.columns().get(0).unwrap().typed::<i64>().unwrap().as_slice(), [0, 1]);
        });
    }
}

#[test]
fn a_consumer_that_waits_for_a_batch_to_be_dropped_returns() {
    for workers in 0..3 {
        each_kind!(|latch| quick(&latch), [num_workers(workers).on_held(OnHeld::Wait)], |loader| {
            assert!(loader.depth() < 100);
            let (stopper, (taken, takes)) = (loader.stopper(), mpsc::channel());
            let helper = thread::spawn(move || {
                takes.recv().expect("a first batch");
                // By the end of this loop, the loader usually waits for a free slot. If it does not
                // wait yet, the stop must still end the pass.
                while takes.recv_timeout(Duration::from_millis(30)).is_ok() {}
                stopper.stop();
            });
            let (mut held, mut error) = (Vec::new(), None);
            let mut pass = loader.epoch().unwrap();
            while error.is_none() {
                match pass.next().expect("not all batches can be held") {
                    Ok(batch) => held.push(batch),
                    Err(other) => error = Some(other),
                }
                // Sending fails after the loader was stopped, since the receiver was dropped.
                let _ = taken.send(());
            }
            assert!(matches!(error, Some(Error::Stopped)));
            assert!(!held.is_empty());
            helper.join().unwrap();
        });
    }
}

#[test]
fn a_caller_that_waits_for_worker_init_returns() {
    let init = |latch: &Latch| {
        let latch = latch.clone();
        move |_| {
            latch.wait();
            Ok(())
        }
    };
    each_kind!(|latch| quick(&latch), [seed(3).num_workers(2).worker_init(init(&latch))], |loader| {
        let (helper, state) = (stop_when_stuck(loader.stopper(), &latch), loader.state());
        assert!(matches!(loader.epoch(), Err(Error::Stopped)));
        helper.join().unwrap();
        // The order of the pass was drawn, but the pass has not begun.
        assert_eq!(loader.state(), state);
    });
}

#[test]
fn a_caller_that_waits_for_the_previous_pass_returns() {
    each_kind!(|latch| sticky(&latch, 0), [batch_size(2).num_workers(1)], |loader| {
        let pass = loader.epoch().unwrap();
        latch.until_waiting(1);
        drop(pass);
        let stopper = loader.stopper();
        let helper = thread::spawn(move || {
            // The loader usually waits by the end of this sleep.
            thread::sleep(Duration::from_millis(10));
            stopper.stop();
        });
        assert!(matches!(loader.epoch(), Err(Error::Stopped)));
        helper.join().unwrap();
    });
}

#[test]
fn a_loader_resumes_from_the_state_of_a_stopped_one() {
    /// Returns the task and the fields of a batch.
    macro_rules! contents {
        ($batch:expr) => {{
            let batch = $batch.unwrap();
            let columns = batch.columns();
            let indices = columns.get(0).unwrap().typed::<i64>().unwrap().as_slice().to_vec();
            (batch.batch_index(), indices, columns.get(2).unwrap().typed::<u64>().unwrap().as_slice().to_vec())
        }};
    }
    macro_rules! check {
        ($builder:expr, $build:ident) => {
            for workers in 0..3 {
                for taken in [0, 1, 6, 13, 14] {
                    let build = || {
                        let builder = $builder.batch_size(3).seed(11).num_workers(workers);
                        if workers > 0 { builder.$build() } else { builder.build() }.unwrap()
                    };
                    let expected: Vec<_> = build().epoch().unwrap().map(|batch| contents!(batch)).collect();
                    let mut loader = build();
                    let stopper = loader.stopper();
                    let mut pass = loader.epoch().unwrap();
                    let mut got: Vec<_> = pass.by_ref().take(taken).map(|batch| contents!(batch)).collect();
                    stopper.stop();
                    assert!(matches!(pass.next(), Some(Err(Error::Stopped))));
                    let state = pass.state();
                    drop(pass);
                    assert!(loader.epoch().is_err());
                    assert_eq!(loader.state(), state);
                    let mut other = build();
                    other.load_state(&state).unwrap();
                    got.extend(other.epoch().unwrap().map(|batch| contents!(batch)));
                    assert_eq!(got, expected, "{workers} workers, stopped after {taken}");
                }
            }
        };
    }
    check!(Loader::builder(items(41, |_, _| Ok(()))).shuffle(true), build);
    if HAS_PROCESSES {
        check!(Loader::builder(items(41, |_, _| Ok(()))).shuffle(true), in_processes);
    }
    check!(Loader::builder(items(41, |_, _| Ok(()))).shuffle(true).round_robin(true), build);
    check!(Loader::iterable(OneByOne(items(41, |_, _| Ok(())))), build);
}

#[test]
fn a_stopper_does_not_keep_its_dataset_alive() {
    for workers in [0, 2] {
        let dropped = RefCell::new(Dropped::default());
        let watched = |_: &Latch| {
            dropped.replace(Dropped::default());
            let guard = dropped.borrow().guard();
            from_fn(8, move |index, _| {
                assert!(!guard.is_dropped(), "the dataset was dropped while it was read");
                Ok(index as i64)
            })
        };
        each_kind!(|latch| watched(&latch), [num_workers(workers)], |loader| {
            assert_eq!(loader.epoch().unwrap().count(), 8);
            let stopper = loader.stopper();
            drop(loader);
            dropped.borrow().until();
            stopper.stop();
        });
    }
}

/// Returns a dataset of a hundred samples, of which workers read the first one at once. Reading any
/// other sample waits until the loader tells the workers to stop: samples in turn wait for the stop
/// token's file descriptor, and check the token repeatedly.
fn waiting_for_a_server(latch: &Latch) -> impl Dataset + for<'a> DatasetOf<'a, Item> + use<> {
    let latch = latch.clone();
    items(100, move |index, cx| {
        if index == 0 || cx.worker().is_none() {
            return Ok(());
        }
        let stop = cx.stop();
        assert!(!stop.is_stopping());
        let fd = stop.fd()?.as_raw_fd();
        let is_readable = |timeout| {
            let mut polled = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
            // SAFETY: there is one descriptor to wait for.
            unsafe { libc::poll(&mut polled, 1, timeout) == 1 }
        };
        assert!(!is_readable(0));
        latch.during(|| {
            if index % 2 == 0 {
                assert!(is_readable(-1));
            }
            while !stop.is_stopping() {
                thread::sleep(Duration::from_millis(1));
            }
        });
        Err("nobody waits for it".into())
    })
}

#[test]
fn datasets_that_look_at_the_token_hold_up_nobody() {
    each_kind!(|latch| waiting_for_a_server(&latch), [batch_size(1).num_workers(2).help(false)], |loader| {
        for _ in 0..2 {
            let mut pass = loader.epoch().unwrap();
            assert_eq!(pass.next().unwrap().unwrap().len(), 1);
            latch.until_waiting(1);
            let begun = Instant::now();
            // The next pass waits until the workers have left their samples.
            drop(pass);
            let mut pass = loader.epoch().unwrap();
            assert_eq!(pass.next().unwrap().unwrap().len(), 1);
            assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
            latch.until_waiting(1);
        }
        let begun = Instant::now();
        drop(loader);
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    });
}

#[test]
fn a_token_outside_of_a_loader_never_stops() {
    let mut cx = slotline::dataset::Context::default();
    let token = cx.stop().clone();
    assert!(!token.is_stopping() && token.fd().is_ok());
    assert_eq!(token.fd().unwrap().as_raw_fd(), cx.stop().fd().unwrap().as_raw_fd());
}

#[test]
fn a_token_that_is_kept_tells_that_the_loader_is_gone() {
    let kept = Arc::new(Mutex::new(None));
    let keeps = kept.clone();
    let dataset = items(4, move |_, cx| {
        *keeps.lock().unwrap() = Some(cx.stop().clone());
        Ok(())
    });
    let mut loader = Loader::builder(dataset).num_workers(1).help(false).build().unwrap();
    let stopper = loader.stopper();
    assert!(loader.epoch().unwrap().all(|batch| batch.is_ok()));
    let token = kept.lock().unwrap().clone().unwrap();
    assert!(!token.is_stopping());
    stopper.stop();
    assert!(token.is_stopping());
}
