//! Tests of what worker processes leave behind. This is a separate program, since it counts the
//! children of the process.
#![cfg(all(target_os = "linux", not(any(shuttle, delays))))]

#[path = "support/children.rs"]
mod children;
#[path = "support/mod.rs"]
mod support;

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use slotline::dataset::from_fn;
use slotline::{Error, Loader};

use crate::children::{TO_BE_KILLED, children, kill_again};
use crate::support::{Delivered, Run, alone, chain, items, sleeping_sometimes};

#[test]
fn nothing_is_left_of_dropped_loaders() {
    let _alone = alone();
    let run = Run { len: 103, batch_size: 8, drop_last: false, shuffle: true, seed: 7 };
    let left = || (children(std::process::id()).len(), std::fs::read_dir("/proc/self/fd").unwrap().count());
    let before = left();
    for i in 0..1000 {
        let mut loader = run.over(items(run.len, sleeping_sometimes)).num_workers(2).processes().build().unwrap();
        let mut pass = loader.epoch().unwrap();
        let kept: Vec<_> = (0..i % 5).map(|_| pass.next().unwrap().unwrap()).collect();
        drop(pass);
        drop(loader);
        drop(kept);
    }
    assert_eq!(left(), before);
    // There must also be no child that has ended and was not waited for.
    // SAFETY: this only checks for a child that has ended.
    assert_eq!(unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) }, -1);
}

#[test]
fn a_forked_worker_has_no_socket_of_another() {
    let _alone = alone();
    let sockets = || -> Result<i64, slotline::BoxError> {
        let files = std::fs::read_dir("/proc/self/fd")?.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
        Ok(files.filter(|file| file.to_string_lossy().starts_with("socket:")).count() as i64)
    };
    let before = sockets().unwrap();
    let parent = std::process::id();
    let counts = from_fn(40, move |_, _| if std::process::id() == parent { Ok(0) } else { sockets() });
    let mut loader = Loader::builder(counts).batch_size(4).num_workers(4).processes().build().unwrap();
    for batch in loader.epoch().unwrap() {
        assert_eq!(batch.unwrap().tensors().as_slice(), [before + 1; 4]);
    }
}

/// Makes opening more files fail until this value is dropped.
struct NoFiles {
    before: libc::rlimit,
    _all: Vec<File>,
}

impl NoFiles {
    fn new() -> Self {
        let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: these calls read and lower a limit of this process.
        unsafe {
            assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut before), 0);
            assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &libc::rlimit { rlim_cur: 256, ..before }), 0);
        }
        Self { before, _all: std::iter::from_fn(|| File::open("/dev/null").ok()).collect() }
    }
}

impl Drop for NoFiles {
    fn drop(&mut self) {
        // SAFETY: this restores the limit of this process.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const self.before) };
    }
}

#[test]
fn a_worker_that_cannot_be_replaced_says_why() {
    let _alone = alone();
    for round_robin in [false, true] {
        let run = Run { len: 103, batch_size: 8, drop_last: false, shuffle: true, seed: 7 };
        let builder =
            run.over(items(run.len, sleeping_sometimes)).num_workers(1).prefetch_factor(2).round_robin(round_robin);
        let mut loader = builder.processes().restart_workers(9).build().unwrap();
        let mut pass = loader.epoch().unwrap();
        pass.next().unwrap().unwrap();
        let workers = children(std::process::id());
        let _no_files = NoFiles::new();
        for worker in workers {
            // SAFETY: this kills a child of this process.
            unsafe { libc::kill(worker as libc::pid_t, libc::SIGKILL) };
        }
        let error = pass.find_map(|batch| batch.err()).unwrap();
        let text = chain(&error);
        assert!(matches!(error, Error::WorkerDied { worker: 0, .. } | Error::Sample { .. }), "{text}");
        assert!(text.contains("could not be started again: Too many open files"), "{text}");
    }
}

/// Kills or stops random workers of this process until it is dropped.
struct Killer {
    ends: Arc<AtomicBool>,
    kills: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Killer {
    fn start() -> Self {
        let (ends, kills) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (end, killed) = (ends.clone(), kills.clone());
        let thread = std::thread::spawn(move || {
            let mut random = 88_172_645_463_325_252_u64;
            while !end.load(Ordering::Relaxed) {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                std::thread::sleep(Duration::from_micros(random % 3000));
                let all = children(std::process::id());
                if all.is_empty() {
                    continue;
                }
                let worker = all[(random >> 8) as usize % all.len()] as libc::pid_t;
                // SAFETY: the signals go to a child of this process.
                unsafe {
                    if random & 0x100 == 0 {
                        libc::kill(worker, libc::SIGKILL);
                        killed.fetch_add(1, Ordering::Relaxed);
                    } else {
                        libc::kill(worker, libc::SIGSTOP);
                        std::thread::sleep(Duration::from_micros(random % 700));
                        libc::kill(worker, libc::SIGCONT);
                    }
                }
            }
        });
        Self { ends, kills, thread: Some(thread) }
    }

    fn kills(&self) -> usize {
        self.kills.load(Ordering::Relaxed)
    }
}

impl Drop for Killer {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// While workers are killed at random, the test keeps batches, leaves passes early and reads
/// statistics. It runs for some seconds, and until `SLOTLINE_KILLS` workers were killed (0 by
/// default).
#[test]
fn workers_killed_at_random_change_no_batch() {
    let _alone = alone();
    let kills = std::env::var("SLOTLINE_KILLS").map_or(0, |kills| kills.parse().expect("a number"));
    let kinds =
        [(true, 8, 2, 1), (false, 8, 2, 1), (true, 1, 1, 1), (false, 1, 5, 3), (true, 37, 4, 2), (false, 200, 2, 1)];
    for ((in_order, batch_size, prefetch, hold), round_robin) in
        kinds.into_iter().flat_map(|kind| [(kind, false), (kind, true)])
    {
        let run = Run { len: 103, batch_size, drop_last: hold > 1, shuffle: true, seed: batch_size as u64 };
        let builder = run.over(items(run.len, sleeping_sometimes)).num_workers(3).prefetch_factor(prefetch).hold(hold);
        let builder = builder.in_order(in_order).round_robin(round_robin);
        let mut loader = builder.processes().restart_workers(usize::MAX).build().unwrap();
        let (killer, stats, begun) = (Killer::start(), loader.stats_reader(), Instant::now());
        for (epoch, expected) in run.expected(1000 + kills as u32).into_iter().enumerate() {
            let most = if epoch % 5 == 3 { epoch % 7 } else { usize::MAX };
            let kept: Vec<_> = loader.epoch().unwrap().take(most).map(|batch| batch.unwrap()).collect();
            let mut got: Vec<Delivered> = kept.iter().map(Delivered::from).collect();
            got.sort_by_key(|got| got.task);
            assert!(got.iter().all(|got| expected[got.task] == *got), "epoch {epoch}");
            assert!(most < usize::MAX || got == expected, "epoch {epoch}");
            stats.stats();
            if begun.elapsed() > Duration::from_millis(400) && killer.kills() >= kills / 12 {
                break;
            }
        }
        assert!(killer.kills() >= (kills / 12).max(1));
    }
}

/// Runs `child` in a forked process.
fn fork(child: impl FnOnce()) {
    // SAFETY: the child runs code that allocates, which glibc allows after a fork, and ends.
    match unsafe { libc::fork() } {
        0 => {
            child();
            // SAFETY: `_exit` ends the process.
            unsafe { libc::_exit(0) }
        }
        pid => {
            // SAFETY: this waits for the child.
            assert_eq!(unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) }, pid);
        }
    }
}

/// A forked process shares the memory of the loader's worker processes, and must not change it.
#[test]
fn a_forked_process_does_not_disturb_its_parents_loader() {
    let _alone = alone();
    for which in 0..4 {
        let dataset = from_fn(1000, |index, _| {
            std::thread::sleep(Duration::from_micros(100));
            Ok(index as i64 + 1)
        });
        let mut loader = Loader::builder(dataset).batch_size(20).num_workers(2).processes().build().unwrap();
        let stopper = loader.stopper();
        loader.begin_epoch().unwrap();
        drop(loader.next_batch().unwrap().unwrap());
        let mut loader = Some(loader);
        fork(|| match which {
            0 => drop(loader.take()),
            1 => loader.as_mut().unwrap().end_epoch(),
            2 => stopper.stop(),
            _ => assert!(matches!(loader.as_mut().unwrap().epoch(), Err(Error::Forked))),
        });
        let mut loader = loader.unwrap();
        for task in 1..50 {
            let batch = loader.next_batch().unwrap().unwrap();
            assert!(
                batch.tensors().as_slice().iter().copied().eq(task * 20 + 1..task * 20 + 21),
                "{which}: batch {task}"
            );
        }
        assert!(loader.next_batch().is_none());
    }
}

/// The test starts its own program again, with this test selected, and kills that process.
#[test]
fn workers_end_with_a_program_that_is_killed() {
    let _alone = alone();
    if std::env::var_os(TO_BE_KILLED).is_some() {
        let slow = from_fn(1000, |index, _| {
            std::thread::sleep(Duration::from_millis(50));
            Ok(index as i64)
        });
        let mut loader = Loader::builder(slow).num_workers(3).processes().build().unwrap();
        let mut pass = loader.epoch().unwrap();
        pass.next().unwrap().unwrap();
        println!("\nready");
        return pass.for_each(drop);
    }
    // The program is killed, or interrupted as by a terminal, which sends the signal to all of its
    // processes.
    for (signal, to_all) in [(libc::SIGKILL, false), (libc::SIGINT, true)] {
        kill_again("workers_end_with_a_program_that_is_killed", signal, to_all, Duration::from_secs(1));
    }
}
