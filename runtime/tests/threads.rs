//! Tests that a loader has the stated number of threads, and that they end with it. This is a
//! separate program, because it counts threads.
#![cfg(target_os = "linux")]

mod support;

use slotline::Loader;
use support::{LONG, items};

/// Returns the number of threads of this process that belong to a loader.
fn workers() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).ok());
    names.filter(|name| name.starts_with("slotline-")).count()
}

/// Waits until this process has `count` worker threads. The system may list a thread for a moment
/// after it was joined.
fn workers_become(count: usize) {
    let begun = std::time::Instant::now();
    while workers() != count {
        assert!(begun.elapsed() < LONG, "{} threads, not {count}", workers());
        std::thread::yield_now();
    }
}

#[test]
fn a_loader_has_num_workers_threads_that_end_with_it() {
    for count in [0, 1, 5] {
        for seen in [0, 3, 100] {
            let mut loader = Loader::builder(items(50, |_, _| Ok(()))).num_workers(count).build().unwrap();
            // A thread sets its name when it starts.
            workers_become(count);
            let kept: Vec<_> = loader.epoch().unwrap().take(seen).collect();
            assert_eq!(workers(), count);
            drop(loader);
            workers_become(0);
            drop(kept);
        }
    }
    for _ in 0..200 {
        drop(Loader::builder(items(50, |_, _| Ok(()))).num_workers(3).build().unwrap());
    }
    workers_become(0);
    // A build that fails must not leave threads running.
    let affinity = slotline::loader::Affinity::Cores(vec![usize::MAX]);
    assert!(Loader::builder(items(50, |_, _| Ok(()))).num_workers(3).affinity(affinity).build().is_err());
    workers_become(0);
}
