//! Tests of whole loaders under random schedules, compared with the same work in a single thread.
//!
//! Every atomic operation, lock, wait and start of a thread is a step after which shuttle can let
//! another thread run. The loader, its options, its bad samples and the actions of the caller are
//! drawn from shuttle's random numbers, so the schedule that a failure prints determines all of
//! them. A deadline can pass whenever it is checked. A thread that is never woken up is a deadlock,
//! which shuttle reports. At the end, everything that a loader owned must have been dropped.
//! Atomics are sequentially consistent under shuttle. Memory orderings are checked separately, by
//! the models of the rings under loom in `core/tests/models`.
//!
//! ```text
//! RUSTFLAGS='--cfg shuttle' cargo test -p slotline --test schedules
//! ```
//!
//! `SLOTLINE_SCHEDULES` is the number of schedules that each test runs, and `SLOTLINE_SEED` the
//! first seed. `SLOTLINE_SCHEDULE` names a file with the schedule that a failure printed, to run
//! only that schedule.
#![cfg(shuttle)]

mod caller;
mod dataset;
mod explore;
#[path = "../support/plain.rs"]
mod plain;
mod reference;
mod scenario;

use std::sync::Arc;

use shuttle::thread;
use slotline::loader::Output;
use slotline::{Error, Loader};

use self::caller::{End, Hands, Made};
use self::dataset::{Rows, give_way, step};
use self::explore::{explore, replays};
use self::reference::{Reference, with_builder};
use self::scenario::{About, Kind, Scenario, below, one_in};

/// Runs a scenario, and compares its outcomes with those of one thread.
pub(crate) fn check(scenario: &Scenario) {
    let life = Arc::new(());
    let (reference, rows) = (Reference::of(scenario, &life), Rows::default());
    let leaked = with_builder!(scenario, scenario.items(&rows, &life), None, life, |build| {
        check_loader(scenario, &rows, build, &reference)
    });
    // A worker that did not end before its loader was dropped drops the loader's objects later.
    // Then only leaked batches of a collate function keep a reference to `life`.
    let remaining = if scenario.collates.is_some() { leaked } else { 0 };
    while Arc::strong_count(&life) > 1 + remaining {
        thread::yield_now();
    }
}

/// Runs a scenario, and returns the number of batches that were leaked.
fn check_loader<B: Output<Item: Made>>(
    scenario: &Scenario,
    rows: &Rows,
    build: impl Fn(&Scenario) -> Loader<B>,
    reference: &Reference,
) -> usize {
    let caller = scenario.caller;
    let mut current = scenario.clone();
    let mut loader = build(&current);
    let mut hands = Hands::new(rows);
    let helper = caller.stop.map(|steps| {
        let stopper = loader.stopper();
        thread::spawn(move || {
            (0..steps).for_each(|_| step());
            stopper.stop();
        })
    });
    let (mut epoch, mut outcomes, mut left) = (0, Vec::new(), Vec::new());
    while epoch < caller.passes {
        let leave = (caller.leaves && one_in(2)).then(|| below(4));
        let end = match loader.epoch() {
            Ok(pass) => hands.take_pass(pass, &current, leave, &mut outcomes),
            Err(Error::Timeout { .. }) if current.timeout => {
                give_way();
                continue;
            }
            Err(Error::Stopped) if current.caller.stop.is_some() => End::Stopped,
            Err(Error::WorkerDied { .. }) if current.worker_panics => End::Died,
            Err(error) => panic!("{error:?}"),
        };
        let state = match end {
            End::Whole => {
                reference.check(epoch, &outcomes, hands.leaked == 0, &current);
                None
            }
            End::Left(state) if caller.resumes && one_in(2) => Some(state),
            End::Left(_) => {
                reference.check(epoch, &outcomes, false, &current);
                None
            }
            End::Died => {
                assert!(matches!(loader.epoch(), Err(Error::WorkerDied { .. })));
                reference.check(epoch, &outcomes, false, &current);
                break;
            }
            End::Stopped => {
                assert!(matches!(loader.epoch(), Err(Error::Stopped)));
                let state = loader.state();
                if state.epoch() + 1 == epoch {
                    // The previous pass was left early, and the loader was stopped before it had
                    // discarded the rest of that pass. Its state is still in that pass.
                    epoch -= 1;
                    outcomes.clone_from(&left);
                }
                Some(Box::new(state))
            }
        };
        match state {
            Some(state) => {
                if current.kind != Kind::Iterable && current.init.is_none() && current.workers > 0 {
                    current.workers = 1 + below(3);
                }
                // Only the previous loader was to be stopped.
                current.caller.stop = None;
                loader = build(&current);
                loader.load_state(&state).expect("a state of an equal loader");
            }
            None => {
                epoch += 1;
                left = std::mem::take(&mut outcomes);
            }
        }
    }
    if one_in(2) {
        hands.release();
    }
    drop(loader);
    hands.release();
    if let Some(helper) = helper {
        helper.join().expect("no panic");
    }
    hands.leaked
}

/// Defines each of these tests once for each kind of loader, in a module that is named after the
/// kind. A test explores random schedules of scenarios in which the events after its colon can
/// occur: the fields of [`About`] that it sets to true.
macro_rules! models {
    ($($name:ident: $($what:ident),*;)*) => {
        models!(@ shared, Shared, $($name: [$($what: true),*];)*);
        models!(@ round_robin, RoundRobin, $($name: [$($what: true),*];)*);
        models!(@ iterable, Iterable, $($name: [$($what: true),*];)*);
    };
    (@ $module:ident, $kind:ident, $($name:ident: [$($what:tt)*];)*) => {
        mod $module {
            use super::*;

            $(#[test]
            fn $name() {
                explore(About { $($what)*, ..about(Kind::$kind) });
            })*
        }
    };
}

fn about(kind: Kind) -> About {
    About {
        kind,
        faults: false,
        init: false,
        timeouts: false,
        leaves: false,
        keeps: false,
        stops: false,
        worker_panics: false,
        parts: false,
    }
}

models! {
    batches_equal_those_of_one_thread: leaves;
    bad_samples_fail_the_same_batches: faults, leaves;
    a_worker_that_fails_to_start_takes_no_part: init, leaves, stops;
    batches_can_be_held_and_dropped_by_any_thread: keeps, leaves;
    a_stop_at_any_moment_loses_nothing: stops, keeps, faults;
    a_deadline_can_pass_at_any_moment: timeouts, leaves, keeps, faults;
    a_pass_that_timed_out_at_its_start_can_begin_again: timeouts, init, leaves;
    a_worker_lost_at_any_moment_is_an_error_and_not_a_hang: worker_panics, leaves, keeps, faults;
    everything_at_once: timeouts, leaves, keeps, faults, init, stops;
}

/// With delivery out of order, a worker can be lost after it has begun a batch that the other
/// workers have already passed, including the last batch of the pass.
#[test]
fn parts_left_by_a_lost_worker_are_taken_by_the_others() {
    explore(About { worker_panics: true, parts: true, leaves: true, ..about(Kind::Shared) });
}

/// A failure can only be reproduced if a schedule can be replayed.
#[test]
fn a_schedule_can_be_replayed() {
    for kind in [Kind::Shared, Kind::RoundRobin, Kind::Iterable] {
        replays(About {
            faults: true,
            init: true,
            timeouts: true,
            leaves: true,
            keeps: true,
            stops: true,
            worker_panics: false,
            parts: false,
            kind,
        });
    }
}
