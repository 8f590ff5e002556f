//! Tests of signals that interrupt waits, and of signals that stop a thread or the whole process.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use slotline::loader::Error;
use slotline::{Dataset, Loader};

use crate::child::{self, Process};
use crate::support::{Delivered, LONG, Latch, Run, items, pass, sleeping_sometimes};
use crate::system::{handle, signal, threads, worker};

const RUN: Run = Run { len: 300, batch_size: 7, drop_last: false, shuffle: true, seed: 3 };

fn samples() -> impl Dataset {
    items(RUN.len, sleeping_sometimes)
}

/// Interrupts all threads repeatedly during passes.
pub(crate) fn storm(_: &[&str]) {
    static INTERRUPTED: AtomicU64 = AtomicU64::new(0);
    extern "C" fn interrupted(_: i32) {
        INTERRUPTED.fetch_add(1, SeqCst);
    }
    handle(libc::SIGUSR1, interrupted);
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let storm = scope.spawn(|| {
            // SAFETY: `gettid` has no preconditions.
            let own = unsafe { libc::gettid() };
            while !ended.load(SeqCst) {
                let others = threads().into_iter().filter(|&(thread, _)| thread != own);
                others.for_each(|(thread, _)| signal(thread, libc::SIGUSR1));
                // Without this pause, std's `sleep`, which samples call, would never end.
                thread::sleep(Duration::from_micros(500));
            }
        });
        let expected = RUN.expected(8);
        for (workers, help) in [(0, true), (1, false), (3, true), (3, false)] {
            let mut loader = RUN.over(samples()).num_workers(workers).help(help).build().unwrap();
            for expected in &expected {
                assert_eq!(pass(&mut loader), *expected);
            }
        }
        // An interrupted wait must not time out early.
        let (latch, limit) = (Latch::default(), Duration::from_millis(80));
        let stuck = latch.clone();
        let dataset = items(4, move |index, _| {
            if index > 0 {
                stuck.wait();
            }
            Ok(())
        });
        let mut loader = Loader::builder(dataset).batch_size(2).num_workers(1).timeout(limit).build().unwrap();
        let mut pass = loader.epoch().unwrap();
        let begun = Instant::now();
        assert!(matches!(pass.next(), Some(Err(Error::Timeout { .. }))) && begun.elapsed() >= limit);
        latch.open();
        ended.store(true, SeqCst);
        storm.join().unwrap();
    });
    let times = INTERRUPTED.load(SeqCst);
    println!("{times} interruptions");
    assert!(times > 1000, "too few interruptions: {times}");
}

/// While this is set, a thread that handles the signal stays halted in the handler.
static HALT: AtomicBool = AtomicBool::new(false);
/// The number of threads that are halted.
static HALTED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn stay_halted(_: i32) {
    // SAFETY: the pointer to this thread's errno is valid. Its value is saved, since the
    // interrupted code may be about to read it.
    let errno = unsafe { *libc::__errno_location() };
    HALTED.fetch_add(1, SeqCst);
    while HALT.load(SeqCst) {
        let nap = libc::timespec { tv_sec: 0, tv_nsec: 200_000 };
        // SAFETY: `nanosleep` is async-signal-safe, and the time is valid.
        unsafe { libc::nanosleep(&nap, std::ptr::null_mut()) };
    }
    HALTED.fetch_sub(1, SeqCst);
    // SAFETY: the pointer to this thread's errno is valid.
    unsafe { *libc::__errno_location() = errno };
}

/// Halts a worker by a signal, whichever code it runs, and waits until it is halted.
fn halt(thread: libc::pid_t) {
    HALT.store(true, SeqCst);
    signal(thread, libc::SIGUSR1);
    until(|| HALTED.load(SeqCst) == 1);
}

fn until(done: impl Fn() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < LONG);
        thread::yield_now();
    }
}

/// Halts one worker for some time in each pass. Argument: `timeout` if the loader has a timeout.
pub(crate) fn halted(words: &[&str]) {
    let timed = words[0] == "timeout";
    handle(libc::SIGUSR1, stay_halted);
    let limit = Duration::from_millis(if timed { 15 } else { 0 });
    let builder = RUN.over(samples()).num_workers(2).timeout(limit).watchdog(Duration::from_millis(5));
    let mut loader = builder.build().unwrap();
    let workers = [worker(0).unwrap(), worker(1).unwrap()];
    let [mut named, mut late, mut unharmed] = [0; 3];
    for (round, expected) in RUN.expected(120).into_iter().enumerate() {
        let (id, first, before) = (round % 2, round % 40, late);
        let mut pass = loader.epoch().unwrap();
        let mut got = Vec::new();
        while got.len() < expected.len() {
            // With a timeout the worker is halted until the timeout has passed, and otherwise for
            // some milliseconds.
            let halted = got.len() == first && late == before;
            if halted {
                halt(workers[id]);
            }
            let release = (halted && !timed).then(|| {
                thread::spawn(|| {
                    thread::sleep(Duration::from_millis(8));
                    HALT.store(false, SeqCst);
                })
            });
            match pass.next().unwrap() {
                Ok(batch) => got.push(Delivered::from(&batch)),
                Err(Error::Timeout { task, busy, .. }) => {
                    assert!(timed && (got.len()..expected.len()).contains(&task));
                    late += 1;
                    if HALT.load(SeqCst)
                        && let Some(&(_, index)) = busy.iter().find(|(worker, _)| *worker == id)
                    {
                        assert!(expected[task].indices.contains(&(index as i64)), "batch {task}: {busy:?}");
                        named += 1;
                    }
                    HALT.store(false, SeqCst);
                }
                Err(error) => panic!("{error}"),
            }
            if let Some(release) = release {
                release.join().unwrap();
            }
        }
        assert_eq!(got, expected, "pass {round}");
        unharmed += usize::from(late == before);
        HALT.store(false, SeqCst);
        until(|| HALTED.load(SeqCst) == 0);
    }
    println!("{late} timeouts, {named} of which name the worker; {unharmed} passes continued without it");
    assert_eq!(timed, named > 0);
    assert!(!timed || !loader.stats().stuck.is_empty(), "the watchdog reports the worker too");
}

/// Runs passes with a short timeout for some time, while the test stops and continues the
/// process.
pub(crate) fn stopped(_: &[&str]) {
    let begun = Instant::now();
    let mut loader = RUN.over(samples()).num_workers(2).timeout(Duration::from_millis(6)).build().unwrap();
    let [mut passes, mut late] = [0; 2];
    for expected in RUN.expected(2000) {
        let mut got = Vec::new();
        // `epoch` waits for late batches of the previous pass.
        let mut pass = loop {
            match loader.epoch() {
                Err(Error::Timeout { .. }) => late += 1,
                pass => break pass.unwrap(),
            }
        };
        while got.len() < expected.len() {
            match pass.next().unwrap() {
                Ok(batch) => got.push(Delivered::from(&batch)),
                Err(Error::Timeout { .. }) => late += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(got, expected);
        passes += 1;
        if begun.elapsed() > Duration::from_secs(2) {
            break;
        }
    }
    println!("{passes} passes, {late} timeouts");
}

#[test]
fn waits_interrupted_by_signals_continue() {
    child::run("signals::storm");
}

#[test]
fn a_timeout_names_a_halted_worker_and_the_pass_continues() {
    child::run("signals::halted timeout");
}

#[test]
fn a_halted_worker_does_no_harm_without_a_timeout() {
    child::run("signals::halted without");
}

#[test]
fn a_stopped_process_continues_where_it_was() {
    let mut process = Process::start("signals::stopped");
    let mut stops = 0;
    while !process.has_ended() {
        for signal in [libc::SIGSTOP, libc::SIGCONT] {
            // SAFETY: the signal goes to a child that was not waited for, so the id still belongs to it.
            unsafe { libc::kill(process.id(), signal) };
            thread::sleep(Duration::from_millis(15));
        }
        stops += 1;
    }
    assert!(stops > 3, "stopped {stops} times");
    process.end().assert_success();
}
