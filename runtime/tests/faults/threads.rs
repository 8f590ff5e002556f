//! Threads that the system will not start.

use std::time::Duration;

use slotline::Loader;
use slotline::loader::{Affinity, BuildError};

use crate::child::{self, not_provoked};
use crate::support::{LONG, from_fn, items, pass};
use crate::system::{limit, refuse, threads};

/// Builds a loader of either kind with so many workers; which worker could not be started.
fn build(workers: usize, dealt: bool) -> Option<usize> {
    let builder = Loader::builder(items(50, |_, _| Ok(()))).num_workers(workers).affinity(Affinity::Spread);
    let outcome = builder.round_robin(dealt).build();
    match outcome {
        Ok(_) => None,
        Err(BuildError::Thread { worker, source }) => {
            assert_eq!(source.raw_os_error(), Some(libc::EAGAIN), "{source}");
            Some(worker)
        }
        Err(error) => panic!("{error}"),
    }
}

/// No thread can be started at all.
pub(crate) fn all(_: &[&str]) {
    if !refuse(&[(libc::SYS_clone, libc::EAGAIN), (libc::SYS_clone3, libc::EAGAIN)]) {
        return;
    }
    assert_eq!([build(3, false), build(3, true)], [Some(0), Some(0)]);
    let watched = || Loader::builder(from_fn(5, |index, _| Ok(index as i64))).watchdog(Duration::from_secs(1));
    assert!(matches!(watched().build(), Err(BuildError::Watchdog { .. })));
    assert!(matches!(watched().num_workers(1).round_robin(true).build(), Err(BuildError::Watchdog { .. })));
    // Who wants no threads does not mind.
    let mut loader = Loader::builder(items(50, |_, _| Ok(()))).batch_size(8).build().unwrap();
    assert_eq!(pass(&mut loader).len(), 7);
}

/// The user may have a few threads more.
pub(crate) fn some(_: &[&str]) {
    // A user of our own, who has no other process.
    // SAFETY: changes nothing but who this process's user is.
    let own = unsafe { libc::geteuid() == 0 && libc::setuid(1_000_000 + libc::getpid() as u32) == 0 };
    if !own {
        return not_provoked(
            "no more than some threads: this needs a user without other processes, which root can make",
        );
    }
    let there = || threads().len() as u64;
    for workers in [1, 2, 3, 5] {
        for dealt in [false, true] {
            for allowed in 0..=workers {
                // The system may count a thread for a moment longer than its loader.
                let begun = std::time::Instant::now();
                loop {
                    limit(libc::RLIMIT_NPROC, there() + allowed);
                    let refused = build(workers as usize, dealt);
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
fn a_thread_that_cannot_be_started_is_an_error_that_names_the_worker() {
    child::run("threads::all");
}

#[test]
fn of_the_threads_of_a_loader_that_could_not_start_all_of_them_none_is_left() {
    child::run("threads::some");
}
