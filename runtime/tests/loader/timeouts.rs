//! Tests of timeouts: they must name the stuck worker and not exceed their limit, and a stuck
//! worker must keep its memory.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::{Dropped, HAS_PROCESSES, InProcesses, Latch, OneByOne, from_fn, items, stuck, worker_kinds};
use slotline::Loader;
use slotline::loader::{Batch, Error, Warning};

#[test]
fn after_a_timeout_the_next_call_waits_for_the_same_batch() {
    for kind in worker_kinds([2]) {
        let latch = Latch::default();
        let dataset = stuck(12, &latch, |index, cx| index == 0 && cx.worker().is_some());
        let builder = Loader::builder(dataset).batch_size(2).num_workers(2).timeout(Duration::from_millis(20));
        let mut loader = kind.build(builder).unwrap();
        let mut pass = loader.epoch().unwrap();
        latch.until_waiting(1);
        assert!(matches!(pass.next(), Some(Err(Error::Timeout { task: 0, .. }))));
        assert_eq!((pass.remaining(), pass.size_hint()), (Some(6), (0, None)));
        latch.open();
        let tasks: Vec<usize> = pass.filter_map(|outcome| outcome.ok().map(|batch| batch.batch_index())).collect();
        assert!(tasks.into_iter().eq(0..6));
    }
}

#[test]
fn a_caller_that_loads_can_wait_for_a_limited_time() {
    for kind in worker_kinds([1, 2]) {
        let latch = Latch::default();
        let dataset = stuck(12, &latch, |index, cx| index == 0 && cx.worker().is_some());
        // The caller might read the first sample itself, so only workers may load until one of them
        // is stuck.
        let builder = Loader::builder(dataset).batch_size(2).num_workers(kind.workers).help(false);
        let mut loader = kind.build(builder).unwrap();
        loader.begin_epoch().unwrap();
        latch.until_waiting(1);
        let begun = std::time::Instant::now();
        for patience in [Duration::ZERO, Duration::from_millis(20)] {
            let outcome = loader.next_within(patience);
            assert!(matches!(&outcome, Some(Err(Error::Timeout { task: 0, after, .. })) if *after == patience));
        }
        assert!(begun.elapsed() >= Duration::from_millis(20));
        latch.open();
        // A call without its own limit waits as long as it needs.
        let tasks = std::iter::from_fn(|| loader.next_batch()).map(|batch| batch.unwrap().batch_index());
        assert!(tasks.eq(0..6));
    }
}

#[test]
fn a_caller_that_helps_looks_at_the_time_between_samples() {
    let (latch, own) = (Latch::default(), Arc::new(AtomicUsize::new(0)));
    let (stuck, loaded) = (latch.clone(), own.clone());
    let dataset = items(12, move |_, cx| {
        match cx.worker() {
            Some(_) => stuck.wait(),
            None => {
                std::thread::sleep(Duration::from_millis(10));
                loaded.fetch_add(1, SeqCst);
            }
        }
        Ok(())
    });
    let mut loader = Loader::builder(dataset).batch_size(12).num_workers(1).build().unwrap();
    loader.begin_epoch().unwrap();
    latch.until_waiting(1);
    assert!(matches!(loader.help_within(Duration::from_millis(15)), Some(Err(Error::Timeout { task: 0, .. }))));
    // The worker is stuck at one sample, and the caller has loaded only some of the other samples.
    let loaded = own.load(SeqCst);
    assert!((1..11).contains(&loaded), "{loaded}");
    assert_eq!(loader.remaining(), Some(1));
    latch.open();
    assert_eq!(loader.next_batch().unwrap().unwrap().indices(), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
    assert_eq!(loader.remaining(), Some(0));
}

#[test]
fn a_caller_with_little_time_loads_nothing_itself() {
    let begun = Arc::new(AtomicBool::new(false));
    let is_begun = begun.clone();
    // No sample is read in the calling thread, except one that `build` reads for its fields.
    let dataset = items(6, move |_, cx| {
        assert!(cx.worker().is_some() || !is_begun.load(SeqCst), "the caller loads");
        std::thread::sleep(Duration::from_millis(20));
        Ok(())
    });
    let mut loader = Loader::builder(dataset).batch_size(2).num_workers(1).build().unwrap();
    begun.store(true, SeqCst);
    loader.begin_epoch().unwrap();
    let (mut batches, mut late) = (0, 0);
    while let Some(outcome) = loader.next_within(Duration::from_millis(1)) {
        match outcome {
            Ok(batch) => {
                assert_eq!(batch.batch_index(), batches);
                batches += 1;
            }
            Err(Error::Timeout { .. }) => late += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(batches == 3 && late > 3, "{batches} batches, {late} timeouts");
}

#[test]
fn a_caller_can_wait_for_the_previous_pass_for_a_limited_time() {
    let latch = Latch::default();
    let dataset = stuck(12, &latch, |index, cx| index == 1 && cx.epoch() == 0);
    let mut loader = Loader::builder(dataset).batch_size(2).num_workers(1).help(false).build().unwrap();
    loader.begin_epoch().unwrap();
    latch.until_waiting(1);
    loader.end_epoch();
    for patience in [Duration::ZERO, Duration::from_millis(20)] {
        let error = loader.begin_epoch_within(patience).unwrap_err();
        assert!(matches!(error, Error::Timeout { after, .. } if after == patience), "{error}");
        assert_eq!(loader.next_epoch(), 1);
    }
    latch.open();
    loader.begin_epoch().unwrap();
    let batches: Vec<_> = std::iter::from_fn(|| loader.next_batch()).map(|batch| batch.unwrap()).collect();
    assert!(batches.iter().map(|batch| (batch.epoch(), batch.batch_index())).eq((0..6).map(|task| (1, task))));
}

/// Lets `epoch` time out while `worker_init` is stuck, and then begins the pass.
macro_rules! begin_late {
    ($builder:expr) => {
        begin_late!($builder, build)
    };
    ($builder:expr, $built:ident) => {{
        let contents = |batch: Result<Batch<_>, Error>| {
            let batch = batch.unwrap();
            let columns = batch.columns();
            let words = columns.get(2).unwrap().typed::<u64>().unwrap().as_slice().to_vec();
            (columns.get(0).unwrap().typed::<i64>().unwrap().as_slice().to_vec(), words)
        };
        let build = || $builder.batch_size(4).seed(5).num_workers(1);
        let expected: Vec<_> = build().build().unwrap().epoch().unwrap().map(contents).collect();
        let latch = Latch::default();
        let stuck = latch.clone();
        let init = move |_| {
            stuck.wait();
            Ok(())
        };
        let mut loader = build().worker_init(init).timeout(Duration::from_millis(20)).$built().unwrap();
        let state = loader.state();
        for _ in 0..2 {
            assert!(matches!(loader.epoch(), Err(Error::Timeout { .. })));
            assert_eq!(loader.state(), state);
        }
        latch.open();
        let pass = loop {
            match loader.epoch() {
                Ok(pass) => break pass.filter(|batch| !matches!(batch, Err(Error::Timeout { .. }))),
                Err(error) => assert!(matches!(error, Error::Timeout { .. }), "{error}"),
            }
        };
        assert!(pass.map(contents).eq(expected));
    }};
}

#[test]
fn an_epoch_that_timed_out_begins_with_the_same_order() {
    begin_late!(Loader::builder(items(11, |_, _| Ok(()))).shuffle(true));
    if HAS_PROCESSES {
        begin_late!(Loader::builder(items(11, |_, _| Ok(()))).shuffle(true), in_processes);
    }
    begin_late!(Loader::builder(items(11, |_, _| Ok(()))).shuffle(true).round_robin(true));
    begin_late!(Loader::iterable(OneByOne(items(11, |_, _| Ok(())))));
}

/// Drops a loader whose worker is stuck, and then lets the worker continue. The thread of the
/// loader's watchdog must end with the loader even though the worker is stuck.
macro_rules! drop_while_stuck {
    (|$dataset:ident| $builder:expr) => {{
        let (latch, dropped) = (Latch::default(), Dropped::default());
        let (stuck, guard) = (latch.clone(), dropped.guard());
        let $dataset = from_fn(8, move |index, cx| {
            assert!(!guard.is_dropped(), "the dataset was dropped while a worker used it");
            if index == 3 && cx.worker().is_some() {
                stuck.wait();
            }
            Ok([index as u64; 512])
        });
        let builder = $builder.batch_size(2).num_workers(1).watchdog(Duration::from_millis(20));
        let mut loader = builder.build().unwrap();
        let mut pass = loader.epoch().unwrap();
        let batch = pass.next().unwrap().unwrap();
        latch.until_waiting(1);
        drop(pass);
        // Returns after the grace period.
        drop(loader);
        assert!(!dropped.is_dropped());
        // The worker writes its row into memory that must still be valid.
        latch.open();
        dropped.until();
        assert!((0..2).all(|i| batch.tensors().row(i).as_slice().iter().all(|&x| x == i as u64)));
    }};
}

#[test]
fn dropping_a_loader_leaves_a_stuck_worker_its_memory() {
    drop_while_stuck!(|dataset| Loader::builder(dataset).part_size(1).help(false));
    drop_while_stuck!(|dataset| Loader::builder(dataset).round_robin(true));
    drop_while_stuck!(|dataset| Loader::iterable(OneByOne(dataset)));
}

/// Drops a loader whose worker waits in a sample, which `meanwhile` may release. Returns whether
/// the sample was finished when the loader was dropped, and the warnings.
fn drop_while_busy(close_timeout: Duration, meanwhile: impl FnOnce(&Latch)) -> (bool, Vec<Warning>) {
    let (latch, done, warnings) =
        (Latch::default(), Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
    let (busy, ends, tells) = (latch.clone(), done.clone(), warnings.clone());
    let dataset = from_fn(2, move |index, _| {
        if index == 1 {
            busy.wait();
            ends.store(true, SeqCst);
        }
        Ok(index as i64)
    });
    let builder = Loader::builder(dataset).num_workers(1).help(false).close_timeout(close_timeout);
    let mut loader = builder.on_warning(move |warning| tells.lock().unwrap().push(warning.clone())).build().unwrap();
    let mut pass = loader.epoch().unwrap();
    pass.next().unwrap().unwrap();
    latch.until_waiting(1);
    drop(pass);
    meanwhile(&latch);
    drop(loader);
    let outcome = (done.load(SeqCst), warnings.lock().unwrap().clone());
    latch.open();
    outcome
}

#[test]
fn dropping_waits_as_long_as_close_timeout_says() {
    let (done, warnings) = drop_while_busy(Duration::from_millis(10), |_| ());
    assert!(!done);
    assert!(
        matches!(&warnings[..], [Warning::LeftBehind { threads: 1, busy }] if busy[..] == [(0, 1)]),
        "{warnings:?}"
    );
    let text = warnings[0].to_string();
    assert!(text.contains("worker 0 is reading sample 1") && text.contains("close_timeout"), "{text}");
    let (done, warnings) = drop_while_busy(Duration::MAX, |latch| {
        let latch = latch.clone();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            latch.open();
        });
    });
    assert!(done && warnings.is_empty(), "{warnings:?}");
}
