//! Whole loaders under random schedules, compared with one thread that does the same alone.
//!
//! Every atomic operation, lock, wait and start of a thread is a step after which shuttle may have another thread go on. The
//! loader, its options, its bad samples and what the caller does are drawn by shuttle's random numbers, so that the schedule
//! that a failure prints says all of it. Deadlines pass at any look. Who sleeps and is not woken is a deadlock, which shuttle
//! reports, and at the end everything that a loader had must be gone. Atomics are sequentially consistent here: orderings
//! are for the loom models of the rings.
//!
//! ```text
//! RUSTFLAGS='--cfg shuttle' cargo test -p slotline --test schedules
//! ```
//!
//! `SLOTLINE_SCHEDULES` says how many each model runs, `SLOTLINE_SEED` with which random numbers it begins, and
//! `SLOTLINE_SCHEDULE` has it run one schedule instead, from a file with the text that a failure prints.
#![cfg(shuttle)]

mod caller;
mod dataset;
mod explore;
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

/// Runs a scenario, and the same alone.
pub(crate) fn check(scenario: &Scenario) {
    let life = Arc::new(());
    let (reference, rows) = (Reference::of(scenario, &life), Rows::default());
    let leaked = with_builder!(scenario, scenario.items(&rows, &life), None, life, |build| {
        check_loader(scenario, &rows, build, &reference)
    });
    // A worker that was left behind comes home, and with it goes what the loader had. What a function made and nobody drops
    // stays.
    let stays = if scenario.collates.is_some() { leaked } else { 0 };
    while Arc::strong_count(&life) > 1 + stays {
        thread::yield_now();
    }
}

/// Runs it, and says how many batches were leaked.
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
    let (mut epoch, mut came, mut left) = (0, Vec::new(), Vec::new());
    while epoch < caller.passes {
        let leave = (caller.leaves && one_in(2)).then(|| below(4));
        let end = match loader.epoch() {
            Ok(pass) => hands.take_pass(pass, &current, leave, &mut came),
            Err(Error::Timeout { .. }) if current.timeout => {
                give_way();
                continue;
            }
            Err(Error::Stopped) if current.caller.stop.is_some() => End::Stopped,
            Err(Error::WorkerDied { .. }) if current.mishaps => End::Died,
            Err(error) => panic!("{error:?}"),
        };
        let state = match end {
            End::Over => {
                reference.check(epoch, &came, hands.leaked == 0, &current);
                None
            }
            End::Left(state) if caller.resumes && one_in(2) => Some(state),
            End::Left(_) => {
                reference.check(epoch, &came, false, &current);
                None
            }
            End::Died => {
                assert!(matches!(loader.epoch(), Err(Error::WorkerDied { .. })));
                reference.check(epoch, &came, false, &current);
                break;
            }
            End::Stopped => {
                assert!(matches!(loader.epoch(), Err(Error::Stopped)));
                let state = loader.state();
                if state.epoch() + 1 == epoch {
                    // It was stopped before the pass that was left had been cleared away, and so is in that one still.
                    epoch -= 1;
                    came.clone_from(&left);
                }
                Some(Box::new(state))
            }
        };
        match state {
            Some(state) => {
                if current.kind != Kind::Iterable && current.init.is_none() && current.workers > 0 {
                    current.workers = 1 + below(3);
                }
                // The stop is one of the loader before.
                current.caller.stop = None;
                loader = build(&current);
                loader.load_state(&state).expect("it is a state of the like");
            }
            None => {
                epoch += 1;
                left = std::mem::take(&mut came);
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

/// Models of loaders of each kind.
macro_rules! models {
    ($($name:ident: $($what:ident),*;)*) => {
        models!(@ shared, Shared, $($name: [$($what: true),*];)*);
        models!(@ dealt, Dealt, $($name: [$($what: true),*];)*);
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
        mishaps: false,
        parts: false,
    }
}

models! {
    batches_are_those_of_one_thread_whatever_is_left_and_gone_on_with: leaves;
    bad_samples_are_where_they_would_be: faults, leaves;
    who_may_not_begin_takes_no_part: init, leaves, stops;
    batches_are_held_and_dropped_anywhere: keeps, leaves;
    a_stop_at_any_moment_loses_nothing: stops, keeps, faults;
    deadlines_pass_at_any_moment: timeouts, leaves, keeps, faults;
    a_pass_that_was_late_at_the_start_begins_again: timeouts, init, leaves;
    a_worker_that_ends_at_any_moment_is_an_error_and_no_hang: mishaps, leaves, keeps, faults;
    everything_at_once: timeouts, leaves, keeps, faults, init, stops;
}

/// As they arrive, a worker can end with a batch begun that the others have passed over, also the last one of the pass.
#[test]
fn parts_that_a_worker_leaves_are_taken_by_the_others() {
    explore(About { mishaps: true, parts: true, leaves: true, ..about(Kind::Shared) });
}

/// Else what a failure prints were worth nothing.
#[test]
fn a_schedule_comes_again() {
    for kind in [Kind::Shared, Kind::Dealt, Kind::Iterable] {
        replays(About {
            faults: true,
            init: true,
            timeouts: true,
            leaves: true,
            keeps: true,
            stops: true,
            mishaps: false,
            parts: false,
            kind,
        });
    }
}
