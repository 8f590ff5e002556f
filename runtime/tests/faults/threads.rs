//! Tests of threads that the system refuses to start.

use std::time::Duration;

use slotline::Loader;
use slotline::loader::{Affinity, BuildError};

use crate::child::{self, not_provoked};
use crate::support::{LONG, from_fn, items, pass};
use crate::system::{limit, refuse, threads};

/// Builds a loader, with `round_robin` if that is set, and returns the worker that could not be
/// started, if any.
fn build(workers: usize, round_robin: bool) -> Option<usize> {
    let builder = Loader::builder(items(50, |_, _| Ok(()))).num_workers(workers).affinity(Affinity::Spread);
    let outcome = builder.round_robin(round_robin).build();
    match outcome {
        Ok(_) => None,
        Err(BuildError::Thread { worker, source }) => {
            assert_eq!(source.raw_os_error(), Some(libc::EAGAIN), "{source}");
            Some(worker)
        }
        Err(error) => panic!("{error}"),
    }
}

/// Refuses to start any thread.
pub(crate) fn all(_: &[&str]) {
    if !refuse(&[(libc::SYS_clone, libc::EAGAIN), (libc::SYS_clone3, libc::EAGAIN)]) {
        return;
    }
    assert_eq!([build(3, false), build(3, true)], [Some(0), Some(0)]);
    let watched = || Loader::builder(from_fn(5, |index, _| Ok(index as i64))).watchdog(Duration::from_secs(1));
    assert!(matches!(watched().build(), Err(BuildError::Watchdog { .. })));
    assert!(matches!(watched().num_workers(1).round_robin(true).build(), Err(BuildError::Watchdog { .. })));
    // A loader without workers needs no thread.
    let mut loader = Loader::builder(items(50, |_, _| Ok(()))).batch_size(8).build().unwrap();
    assert_eq!(pass(&mut loader).len(), 7);
}

/// Limits the number of threads that the user may have.
pub(crate) fn some(_: &[&str]) {
    // Switch to a user who has no other process.
    // SAFETY: these calls only read and change this process's user.
    let own = unsafe { libc::geteuid() == 0 && libc::setuid(1_000_000 + libc::getpid() as u32) == 0 };
    if !own {
        return not_provoked(
            "a limited number of threads: this needs root, to switch to a user without other processes",
        );
    }
    let there = || threads().len() as u64;
    for workers in [1, 2, 3, 5] {
        for round_robin in [false, true] {
            for allowed in 0..=workers {
                // The system may count a thread for a moment after its loader was dropped.
                let begun = std::time::Instant::now();
                loop {
                    limit(libc::RLIMIT_NPROC, there() + allowed);
                    let refused = build(workers as usize, round_robin);
                    if refused == (allowed < workers).then_some(allowed as usize) {
                        break;
                    }
                    assert!(begun.elapsed() < LONG, "{allowed} allowed of {workers}: {refused:?}");
                }
                assert!(!threads().iter().any(|(_, name)| name.starts_with("slotline-")) || begun.elapsed() < LONG);
            }
        }
    }
}

#[test]
fn build_names_the_worker_that_cannot_be_started() {
    child::run("threads::all");
}

#[test]
fn a_failed_build_leaves_no_threads_behind() {
    child::run("threads::some");
}
