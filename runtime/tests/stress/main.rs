//! Stress tests of rings and loaders, with random delays before each atomic operation, more threads
//! than cores, and exact checks.
//!
//! `proof/stress` runs this test. A seed determines a whole round: the loader or ring, what is done
//! with it, and the delays. The system schedules the threads, so with the same seed a failure is
//! likely, but not certain, to occur again.
#![cfg(delays)]

mod dice;
mod loaders;
mod ordered;
mod spsc;
#[path = "../support/mod.rs"]
mod support;
mod watchdog;

use std::panic::catch_unwind;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant, UNIX_EPOCH};

use dice::Dice;
use slotline_core::sync::delays;

/// Returns a number from an environment variable.
fn variable(name: &str) -> Option<u64> {
    Some(std::env::var(name).ok()?.parse().expect("a number"))
}

#[test]
fn rings_and_loaders_are_exact_under_random_delays() {
    let seconds = Duration::from_secs(variable("SLOTLINE_STRESS_SECONDS").unwrap_or(5));
    let clock = || UNIX_EPOCH.elapsed().map_or(0, |time| time.as_nanos() as u64);
    let first = variable("SLOTLINE_STRESS_SEED").unwrap_or_else(clock);
    println!("the first seed is {first}");
    loaders::silence_planned_panics();
    let (begun, mut rounds) = (Instant::now(), [0; 3]);
    for seed in (0..).map(|round| first.wrapping_add(round)) {
        let mut dice = Dice::new(seed);
        delays::shake(dice.word());
        let kind = [0, 0, 1, 2, 2, 2, 2, 2][dice.below(8)];
        let round = [ordered::round, spsc::round, loaders::round][kind];
        let outcome = watchdog::watched(seed, || catch_unwind(move || round(dice)));
        if outcome.is_err() {
            panic!("a round failed; proof/stress 10 {seed} begins with it");
        }
        rounds[kind] += 1;
        if begun.elapsed() >= seconds {
            break;
        }
    }
    let [ordered, spsc, loaders] = rounds;
    println!(
        "{ordered} rounds of ordered rings ({} tickets), {spsc} of SPSC rings ({} items), {loaders} of loaders ({} passes, {} \
         batches, {} errors); {} delays that yielded or slept, in {:.0?}",
        ordered::TICKETS.load(Relaxed),
        spsc::ITEMS.load(Relaxed),
        loaders::PASSES.load(Relaxed),
        loaders::BATCHES.load(Relaxed),
        loaders::ERRORS.load(Relaxed),
        delays::count(),
        begun.elapsed()
    );
}
