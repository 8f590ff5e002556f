//! Tests what the statistics name as the bottleneck (the *verdict*) if workers have to share a core
//! with other threads. This is a separate program, since its threads would slow down other tests.
#![cfg(target_os = "linux")]

use std::sync::atomic::{AtomicBool, Ordering};

use slotline::Loader;
use slotline::dataset::from_fn;
use slotline::loader::Verdict;

/// Restricts this thread, and those that it starts later, to one core.
fn one_core() {
    // SAFETY: a set of cores may be all zeros, and the functions receive valid pointers to one.
    unsafe {
        let mut cores: libc::cpu_set_t = std::mem::zeroed();
        let size = size_of_val(&cores);
        assert_eq!(libc::sched_getaffinity(0, size, &raw mut cores), 0);
        let first = (0..libc::CPU_SETSIZE as usize).find(|&core| libc::CPU_ISSET(core, &cores)).unwrap();
        libc::CPU_ZERO(&mut cores);
        libc::CPU_SET(first, &mut cores);
        assert_eq!(libc::sched_setaffinity(0, size, &raw const cores), 0);
    }
}

#[test]
fn workers_without_a_core_of_their_own_are_starved() {
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            one_core();
            std::thread::scope(|scope| {
                // With this number of other threads, a worker waits for the core most of the time.
                for _ in 0..6 {
                    scope.spawn(|| {
                        while !ended.load(Ordering::Relaxed) {
                            std::hint::spin_loop();
                        }
                    });
                }
                let dataset =
                    from_fn(60, |index, _| Ok((0..400_000).fold(index as i64, |a, b| a ^ std::hint::black_box(b))));
                let mut loader = Loader::builder(dataset).batch_size(4).num_workers(2).help(false).build().unwrap();
                loader.epoch().unwrap().for_each(drop);
                let stats = loader.stats();
                ended.store(true, Ordering::Relaxed);
                let verdict = stats.verdict();
                assert!(matches!(verdict, Verdict::Starved { workers: 2, .. }), "{verdict} {stats:?}");
            });
        });
    });
}
