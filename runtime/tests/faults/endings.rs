//! Threads that do not end when they should, and loaders that are dropped by their own threads.

use std::any::Any;
use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use slotline::Loader;
use slotline::dataset::{Context, iter_fn};
use slotline::loader::Stopper;

use crate::child;
use crate::support::{Gone, Latch, Telltale, from_fn};
use crate::warnings::Warnings;

/// A loader that whoever comes by drops.
static LOADER: Mutex<Option<Box<dyn Any + Send>>> = Mutex::new(None);

/// Drops it; whether it was there.
fn drop_loader() -> bool {
    let loader = LOADER.lock().unwrap().take();
    loader.is_some()
}

/// Dropped with its thread.
struct Local(Box<dyn Fn() + Send>, #[allow(dead_code)] Telltale);

impl Drop for Local {
    fn drop(&mut self) {
        (self.0)();
    }
}

thread_local! {
    static LOCAL: RefCell<Option<Local>> = const { RefCell::new(None) };
}

/// Leaves something in this thread that does so when it ends; `gone` says when it has.
fn at_the_end(gone: &Gone, run: impl Fn() + Send + 'static) {
    LOCAL.with_borrow_mut(|local| {
        local.get_or_insert_with(|| Local(Box::new(run), gone.telltale()));
    });
}

/// Builds a loader of this kind with this number of workers, which call `work` for each sample, takes one batch of a pass, calls
/// `before_leaving`, and drops the pass. `gone` is set when the dataset is dropped.
fn begin(
    kind: &str,
    workers: usize,
    gone: &Gone,
    work: impl Fn(usize) + Clone + Send + Sync + 'static,
    before_leaving: impl FnOnce(),
) -> (Box<dyn Any + Send>, Stopper) {
    let told = gone.telltale();
    let get = Arc::new(move |index: usize| {
        assert!(!told.is_gone());
        // The caller reads samples to learn the fields.
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
        "dealt" => begin!(Loader::builder(from_fn(1000, at)).num_workers(workers).round_robin(true).build()),
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

/// A worker that is in the dataset's code drops the loader that it belongs to.
pub(crate) fn own(words: &[&str]) {
    let warnings = Warnings::default();
    tracing::subscriber::set_global_default(warnings.clone()).unwrap();
    let (given, gone) = (Latch::default(), Gone::default());
    let (taken, samples) = (given.clone(), Arc::new(AtomicUsize::new(0)));
    let work = move |_| {
        // The first sample is the batch that is taken. The worker is at the second one before the pass is dropped, as it would not
        // get to it afterwards.
        if samples.fetch_add(1, SeqCst) == 1 {
            taken.wait();
            assert!(drop_loader());
        }
    };
    let (loader, _) = begin(words[0], 1, &gone, work, || given.until_waiting(1));
    *LOADER.lock().unwrap() = Some(loader);
    given.open();
    gone.until();
    assert!(!drop_loader());
    assert!(warnings.take().is_empty(), "nobody was waited for in vain");
}

/// A worker whose thread-locals drop the loader that it belongs to.
pub(crate) fn own_local(words: &[&str]) {
    let warnings = Warnings::default();
    tracing::subscriber::set_global_default(warnings.clone()).unwrap();
    let (gone, over) = (Gone::default(), Gone::default());
    let ends = over.clone();
    let work = move |_| {
        at_the_end(&ends, || {
            assert!(drop_loader());
        })
    };
    let (loader, stopper) = begin(words[0], 1, &gone, work, || ());
    *LOADER.lock().unwrap() = Some(loader);
    stopper.stop();
    over.until();
    gone.until();
    assert!(warnings.take().is_empty(), "nobody was waited for in vain");
}

/// Workers whose thread-locals take their time, as many as would take longer than a test may, if each had it to itself.
pub(crate) fn slow_locals(words: &[&str]) {
    let (latch, gone, over) = (Latch::default(), Gone::default(), Gone::default());
    let (ends, held) = (over.clone(), latch.clone());
    let work = move |_| {
        let held = held.clone();
        at_the_end(&ends, move || held.wait());
    };
    let (loader, _) = begin(words[0], 13, &gone, work, || ());
    drop(loader);
    assert!(gone.is_gone() && !over.is_gone(), "the workers let go of everything, and are not over");
    latch.until_waiting(1);
    latch.open();
    over.until();
}

/// A watchdog that says something to a subscriber that never returns.
pub(crate) fn slow_watchdog(_: &[&str]) {
    let (latch, gone) = (Latch::default(), Gone::default());
    let told = Mutex::new(Some((latch.clone(), gone.telltale())));
    tracing::subscriber::set_global_default(Warnings::heard_by(move || {
        let first = told.lock().unwrap().take();
        if let Some((latch, _told)) = first {
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
    assert!(!gone.is_gone());
    latch.open();
    gone.until();
}

#[test]
fn a_worker_that_drops_its_own_loader_waits_for_the_others_and_not_for_itself() {
    for kind in ["shared", "dealt", "collate", "iterable"] {
        child::run(format!("endings::own {kind}"));
        child::run(format!("endings::own_local {kind}"));
    }
}

#[test]
fn thread_locals_that_take_too_long_are_left_behind_within_the_grace() {
    for kind in ["shared", "dealt", "iterable"] {
        child::run(format!("endings::slow_locals {kind}"));
    }
}

#[test]
fn a_watchdog_that_is_stuck_in_a_subscriber_is_left_behind() {
    child::run("endings::slow_watchdog");
}
