//! Tests of passes that are left before their end, and of loaders that are dropped, in every
//! possible way.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use slotline::loader::OnHeld;
use slotline::{Error, Loader};

use crate::support::shared;
use crate::{Held, KINDS, Kind, Options, Passes, nothing, numbers, stream};

#[test]
fn errors_of_a_pass_that_was_left_do_not_reach_the_next() {
    for kind in KINDS {
        for workers in [0, 1, 3] {
            for persistent in [false, true] {
                let options = Options { workers, prefetch: 3, persistent, ..Options::default() };
                let bad = shared::<AtomicBool>();
                let mut loader = options.build(kind, move |number| match number % 5 {
                    2 if bad.load(Ordering::SeqCst) => Err("no".into()),
                    4 if bad.load(Ordering::SeqCst) => panic!("no"),
                    _ => Ok(()),
                });
                for seen in 0..7 {
                    bad.store(true, Ordering::SeqCst);
                    for outcome in loader.pass().unwrap().take(seen) {
                        let failed = matches!(outcome, Err(Error::Sample { .. } | Error::Panic { .. }));
                        assert!(failed || outcome.is_ok(), "{outcome:?}");
                    }
                    // Workers that finish batches of the pass that was left can still fail. The
                    // next pass waits for them.
                    drop(loader.pass().unwrap());
                    bad.store(false, Ordering::SeqCst);
                    assert_eq!(loader.whole(), options.expected(kind), "{kind:?} {options:?}");
                }
            }
        }
    }
}

#[test]
fn collated_batches_are_dropped_with_the_pass() {
    for workers in [0, 2] {
        for kind in [Kind::RoundRobin, Kind::Iterable] {
            let alive = Arc::new(());
            let token = alive.clone();
            macro_rules! check {
                ($builder:expr) => {{
                    let builder = $builder.batch_size(3).num_workers(workers);
                    let builder = builder.collate(move |samples| Ok((token.clone(), samples.len())));
                    let mut loader = builder.build().unwrap();
                    // The test owns one reference, and the collate function another.
                    assert_eq!(Arc::strong_count(&alive), 2);
                    assert_eq!(loader.epoch().unwrap().filter(Result::is_ok).count(), if workers == 2 { 8 } else { 7 });
                    assert_eq!(Arc::strong_count(&alive), 2);
                    let kept: Vec<_> = loader.epoch().unwrap().take(2).map(Result::unwrap).collect();
                    drop(loader.epoch().unwrap());
                    drop(loader);
                    assert_eq!(Arc::strong_count(&alive), 1 + kept.len());
                }};
            }
            match kind {
                Kind::Iterable => check!(Loader::iterable(stream(20, nothing))),
                _ => check!(Loader::builder(numbers(if workers == 2 { 24 } else { 20 }, nothing)).round_robin(true)),
            }
        }
    }
}

#[test]
fn with_a_ring_per_worker_holding_too_many_is_an_error() {
    for kind in [Kind::RoundRobin, Kind::Iterable] {
        for workers in [0, 1, 2] {
            for hold in [1, 3] {
                let options = Options { len: 60, workers, hold, on_held: OnHeld::Fail, ..Options::default() };
                let mut loader = options.build(kind, nothing);
                let expected = options.expected(kind);
                let mut pass = loader.batches().unwrap();
                let mut held: Vec<Box<dyn Held>> = Vec::new();
                let error = loop {
                    match pass.next().unwrap() {
                        Ok(batch) => held.push(batch),
                        Err(error) => break error,
                    }
                };
                assert!(matches!(error, Error::Held { hold: reported, .. } if reported == hold), "{error}");
                assert!(error.to_string().contains(&format!("hold = {}", hold + 1)), "{error}");
                assert_eq!(held.len(), hold + 1);
                // Dropping any of them frees a slot.
                let mut all: Vec<Vec<i64>> = held.iter().map(|batch| batch.values()).collect();
                drop(held.remove(hold / 2));
                let next = pass.next().unwrap().unwrap();
                all.push(next.values());
                assert!((0..3).all(|_| matches!(pass.next(), Some(Err(Error::Held { .. })))));
                drop((held, next));
                all.extend(pass.map(|batch| batch.unwrap().values()));
                assert_eq!(all, expected);
                assert_eq!(loader.whole(), expected);
            }
        }
    }
}

/// The way in which a loop over batches ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exit {
    /// The loop runs to the end of the pass.
    Whole,
    /// The loop breaks.
    Break,
    /// The loop panics.
    Panic,
    /// The loop returns at an error of a sample.
    Error,
    /// The loop returns at a panic of a sample.
    WorkerPanic,
    /// The loop leaks the pass.
    Forget,
}

const EXITS: [Exit; 6] = [Exit::Whole, Exit::Break, Exit::Panic, Exit::Error, Exit::WorkerPanic, Exit::Forget];

/// Runs a pass that ends in the given way, and passes its first batch to `keep`.
fn leave(loader: &mut dyn Passes, exit: Exit, mut keep: impl FnMut(Box<dyn Held>)) {
    let run = || {
        let mut pass = loader.batches().unwrap();
        let mut count = 0;
        while let Some(outcome) = pass.next() {
            match outcome {
                Ok(batch) if count == 0 => keep(batch),
                Ok(_) => {}
                Err(_) => return count,
            }
            count += 1;
            match exit {
                Exit::Break if count == 2 => break,
                Exit::Panic if count == 2 => panic!("in the loop"),
                Exit::Forget if count == 2 => {
                    std::mem::forget(pass);
                    return count;
                }
                _ => {}
            }
        }
        count
    };
    let batches = catch_unwind(AssertUnwindSafe(run)).ok();
    assert_eq!(batches.is_none(), exit == Exit::Panic);
}

#[test]
fn a_loader_continues_and_leaks_nothing_however_a_loop_ends() {
    for kind in KINDS {
        for workers in [0, 1, 2] {
            for (pinned, persistent) in [(false, false), (false, true), (true, false), (true, true)] {
                for exit in EXITS {
                    for held in [false, true] {
                        let options = Options { workers, pinned, persistent, ..Options::default() };
                        let token = Arc::new(());
                        let dataset = Arc::downgrade(&token);
                        let bad = shared::<AtomicBool>();
                        bad.store(true, Ordering::SeqCst);
                        let mut loader = options.build(kind, move |number| {
                            let _ = &token;
                            match exit {
                                Exit::Error if number == 7 && bad.load(Ordering::SeqCst) => Err("no 7".into()),
                                Exit::WorkerPanic if number == 7 && bad.load(Ordering::SeqCst) => panic!("no 7"),
                                _ => Ok(()),
                            }
                        });
                        let mut kept = None;
                        leave(&mut *loader, exit, |batch| kept = Some(batch).filter(|_| held));
                        bad.store(false, Ordering::SeqCst);
                        // In a shared ring, a held batch keeps its slot, for which the next pass
                        // would wait.
                        if !(held && matches!(kind, Kind::Shared | Kind::Processes)) {
                            assert_eq!(loader.whole(), options.expected(kind), "{kind:?} {exit:?} {options:?}");
                            leave(&mut *loader, exit, drop);
                        }
                        drop(loader);
                        assert_eq!(dataset.strong_count(), 0, "{kind:?} {exit:?} {options:?}");
                        assert_eq!(kept.map(|batch| batch.values()), held.then(|| vec![0, 1, 2]));
                    }
                }
            }
        }
    }
}
