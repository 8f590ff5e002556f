//! Tests of threads that do not end when they should, and of loaders that are dropped by their own
//! threads.

use std::any::Any;
use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use slotline::Loader;
use slotline::dataset::{Context, iter_fn};
use slotline::loader::Stopper;

use crate::child;
use crate::support::{DropGuard, Dropped, Latch, from_fn};
use crate::warnings::Warnings;

/// The loader of the current case, where any thread can take and drop it.
static LOADER: Mutex<Option<Box<dyn Any + Send>>> = Mutex::new(None);

/// Drops the loader, and returns whether there was one.
fn drop_loader() -> bool {
    let loader = LOADER.lock().unwrap().take();
    loader.is_some()
}

/// A thread-local value, which runs a function when its thread ends.
struct Local(Box<dyn Fn() + Send>, #[allow(dead_code)] DropGuard);

impl Drop for Local {
    fn drop(&mut self) {
        (self.0)();
    }
}

thread_local! {
    static LOCAL: RefCell<Option<Local>> = const { RefCell::new(None) };
}

/// Makes this thread call `run` when it ends. `dropped` is set after that.
fn at_thread_end(dropped: &Dropped, run: impl Fn() + Send + 'static) {
    LOCAL.with_borrow_mut(|local| {
        local.get_or_insert_with(|| Local(Box::new(run), dropped.guard()));
    });
}

/// Builds a loader of this kind, whose `workers` workers call `work` for each sample. Takes one
/// batch of a pass, calls `before_leaving`, and drops the pass. `dropped` is set when the dataset
/// is dropped.
fn begin(
    kind: &str,
    workers: usize,
    dropped: &Dropped,
    work: impl Fn(usize) + Clone + Send + Sync + 'static,
    before_leaving: impl FnOnce(),
) -> (Box<dyn Any + Send>, Stopper) {
    let guard = dropped.guard();
    let get = Arc::new(move |index: usize| {
        assert!(!guard.is_dropped());
        // The calling thread also reads a sample, to determine the fields.
        if std::thread::current().name().is_some_and(|name| name.starts_with("slotline-")) {
            work(index);
        }
        Ok(index as i64)
    });
    macro_rules! begin {
        ($loader:expr) => {{
            let mut loader = $loader.unwrap();
            let stopper = loader.stopper();
            let mut pass = loader.epoch().unwrap();
            assert!(pass.next().unwrap().is_ok());
            before_leaving();
            drop(pass);
            (Box::new(loader), stopper)
        }};
    }
    let at = {
        let get = get.clone();
        move |index, _: &mut Context| get(index)
    };
    match kind {
        "shared" => begin!(Loader::builder(from_fn(1000, at)).num_workers(workers).help(false).build()),
        "round_robin" => begin!(Loader::builder(from_fn(1000, at)).num_workers(workers).round_robin(true).build()),
        "collate" => {
            let builder = Loader::builder(from_fn(1000, at)).num_workers(workers).help(false);
            begin!(builder.collate(|samples| samples.next().unwrap()).build())
        }
        _ => {
            let each = move |_| {
                let get = get.clone();
                Ok((0..1000).map(move |index| get(index)))
            };
            begin!(Loader::iterable(iter_fn(each)).num_workers(workers).build())
        }
    }
}

/// A worker that runs the dataset's code drops the loader that the worker belongs to.
pub(crate) fn drop_in_worker(words: &[&str]) {
    let warnings = Warnings::default();
    tracing::subscriber::set_global_default(warnings.clone()).unwrap();
    let (latch, dropped) = (Latch::default(), Dropped::default());
    let (blocked, samples) = (latch.clone(), Arc::new(AtomicUsize::new(0)));
    let work = move |_| {
        // The caller takes the first sample as a batch. The worker must begin the second sample
        // before the caller drops the pass, since after that it begins no further sample.
        if samples.fetch_add(1, SeqCst) == 1 {
            blocked.wait();
            assert!(drop_loader());
        }
    };
    let (loader, _) = begin(words[0], 1, &dropped, work, || latch.until_waiting(1));
    *LOADER.lock().unwrap() = Some(loader);
    latch.open();
    dropped.until();
    assert!(!drop_loader());
    assert!(warnings.take().is_empty(), "no thread was left behind");
}

/// The destructor of a worker's thread-local drops the loader that the worker belongs to.
pub(crate) fn drop_in_thread_local(words: &[&str]) {
    let warnings = Warnings::default();
    tracing::subscriber::set_global_default(warnings.clone()).unwrap();
    let (dropped, ended) = (Dropped::default(), Dropped::default());
    let ends = ended.clone();
    let work = move |_| {
        at_thread_end(&ends, || {
            assert!(drop_loader());
        })
    };
    let (loader, stopper) = begin(words[0], 1, &dropped, work, || ());
    *LOADER.lock().unwrap() = Some(loader);
    stopper.stop();
    ended.until();
    dropped.until();
    assert!(warnings.take().is_empty(), "no thread was left behind");
}

/// The thread-locals of workers are slow to drop. Waiting for each of the many workers in
/// turn would exceed the time limit of the test.
pub(crate) fn slow_locals(words: &[&str]) {
    let (latch, dropped, ended) = (Latch::default(), Dropped::default(), Dropped::default());
    let (ends, held) = (ended.clone(), latch.clone());
    let work = move |_| {
        let held = held.clone();
        at_thread_end(&ends, move || held.wait());
    };
    let (loader, _) = begin(words[0], 13, &dropped, work, || ());
    drop(loader);
    assert!(dropped.is_dropped() && !ended.is_dropped(), "the workers released the dataset, and have not ended");
    latch.until_waiting(1);
    latch.open();
    ended.until();
}

/// The thread of the watchdog, which looks for stuck samples, sends a warning to a `tracing`
/// subscriber that never returns.
pub(crate) fn slow_watchdog(_: &[&str]) {
    let (latch, returned) = (Latch::default(), Dropped::default());
    let once = Mutex::new(Some((latch.clone(), returned.guard())));
    tracing::subscriber::set_global_default(Warnings::with_callback(move || {
        let first = once.lock().unwrap().take();
        if let Some((latch, _guard)) = first {
            latch.wait();
        }
    }))
    .unwrap();
    let slow = latch.clone();
    let dataset = from_fn(9, move |index, cx| {
        if cx.worker().is_some() {
            slow.until_waiting(1);
        }
        Ok(index as i64)
    });
    let builder = Loader::builder(dataset).num_workers(1).help(false).watchdog(Duration::from_millis(4));
    let mut loader = builder.build().unwrap();
    assert_eq!(loader.epoch().unwrap().map(Result::unwrap).count(), 9);
    drop(loader);
    assert!(!returned.is_dropped());
    latch.open();
    returned.until();
}

#[test]
fn a_worker_can_drop_its_own_loader() {
    for kind in ["shared", "round_robin", "collate", "iterable"] {
        child::run(format!("endings::drop_in_worker {kind}"));
        child::run(format!("endings::drop_in_thread_local {kind}"));
    }
}

#[test]
fn slow_thread_locals_do_not_hold_up_a_drop() {
    for kind in ["shared", "round_robin", "iterable"] {
        child::run(format!("endings::slow_locals {kind}"));
    }
}

#[test]
fn a_watchdog_stuck_in_a_subscriber_is_left_behind() {
    child::run("endings::slow_watchdog");
}
