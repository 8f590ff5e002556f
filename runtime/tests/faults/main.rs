//! Tests of faults of the system: memory, threads and system calls that are refused, files that
//! change, threads and processes that are stopped, signals, and forks. Each must have the outcome
//! that `slotline::loader` documents.
//!
//! Each fault is provoked in a separate process. Faults that could not be provoked, because this
//! process lacks a privilege, are listed on stderr.
#![cfg(target_os = "linux")]

mod child;
mod endings;
mod files;
mod forks;
mod memory;
mod refusals;
mod signals;
#[path = "../support/mod.rs"]
mod support;
mod system;
mod threads;
#[path = "../support/warnings.rs"]
mod warnings;

/// A case, which runs in a separate process with its arguments.
type Case = fn(&[&str]);

const CASES: &[(&str, Case)] = &[
    ("memory::build", memory::build),
    ("memory::running", memory::running),
    ("memory::order", memory::order),
    ("threads::all", threads::all),
    ("threads::some", threads::some),
    ("files::cut", files::cut),
    ("files::changed", files::changed),
    ("refusals::refused", refusals::refused),
    ("refusals::late", refusals::late),
    ("signals::storm", signals::storm),
    ("signals::halted", signals::halted),
    ("signals::stopped", signals::stopped),
    ("endings::drop_in_worker", endings::drop_in_worker),
    ("endings::drop_in_thread_local", endings::drop_in_thread_local),
    ("endings::slow_locals", endings::slow_locals),
    ("endings::slow_watchdog", endings::slow_watchdog),
    ("forks::forked", forks::forked),
    ("forks::forked_at_the_sampler", forks::forked_at_the_sampler),
    ("forks::dropped", forks::dropped),
    ("forks::dropped_apart", forks::dropped_apart),
    ("forks::forked_while_drawing", forks::forked_while_drawing),
    ("forks::forked_with_the_generator", forks::forked_with_the_generator),
];

#[test]
#[ignore = "the other tests run it, in separate processes"]
fn child() {
    let Ok(asked) = std::env::var(child::ASKED) else { return };
    let words: Vec<_> = asked.split(' ').collect();
    let (_, case) = CASES.iter().find(|(name, _)| *name == words[0]).expect("a case");
    case(&words[1..]);
    println!("{asked} is done");
}
