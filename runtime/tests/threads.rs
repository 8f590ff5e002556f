//! Threads: a loader has as many as it says, and none is left when it is gone. Alone in its process, as it counts them.
#![cfg(target_os = "linux")]

mod support;

use slotline::Loader;
use support::{LONG, items};

/// How many threads of this process are a loader's.
fn workers() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).ok());
    names.filter(|name| name.starts_with("slotline-")).count()
}

/// Waits for the system to take the ended threads off its list, which it may do a moment after they were joined.
fn workers_become(count: usize) {
    let begun = std::time::Instant::now();
    while workers() != count {
        assert!(begun.elapsed() < LONG, "{} threads, not {count}", workers());
        std::thread::yield_now();
    }
}

#[test]
fn the_threads_of_a_loader_are_num_workers_and_end_with_it() {
    for count in [0, 1, 5] {
        for seen in [0, 3, 100] {
            let mut loader = Loader::builder(items(50, |_, _| Ok(()))).num_workers(count).build().unwrap();
            // A thread gives itself its name when it starts.
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
    // A build that fails starts none that stay.
    let affinity = slotline::loader::Affinity::Cores(vec![usize::MAX]);
    assert!(Loader::builder(items(50, |_, _| Ok(()))).num_workers(3).affinity(affinity).build().is_err());
    workers_become(0);
}
