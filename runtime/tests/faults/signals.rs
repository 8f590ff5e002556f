//! Signals: those that interrupt waits, and those that stop a thread or the whole process.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use slotline::loader::Error;
use slotline::{Dataset, Loader};

use crate::child::{self, Process};
use crate::support::{Got, LONG, Latch, Run, dawdling, items, pass};
use crate::system::{handle, signal, threads, worker};

const RUN: Run = Run { len: 300, batch_size: 7, drop_last: false, shuffle: true, seed: 3 };

fn samples() -> impl Dataset {
    items(RUN.len, dawdling)
}

/// Interrupts all threads over and over, with passes going on.
pub(crate) fn storm(_: &[&str]) {
    static INTERRUPTED: AtomicU64 = AtomicU64::new(0);
    extern "C" fn interrupted(_: i32) {
        INTERRUPTED.fetch_add(1, SeqCst);
    }
    handle(libc::SIGUSR1, interrupted);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let storm = scope.spawn(|| {
            // SAFETY: asks for a number.
            let own = unsafe { libc::gettid() };
            while !over.load(SeqCst) {
                let others = threads().into_iter().filter(|&(thread, _)| thread != own);
                others.for_each(|(thread, _)| signal(thread, libc::SIGUSR1));
                // Without a pause std's `sleep`, which samples use, never comes to its end.
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
        // A timeout is none of the sooner for it.
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
        over.store(true, SeqCst);
        storm.join().unwrap();
    });
    let times = INTERRUPTED.load(SeqCst);
    println!("{times} interruptions");
    assert!(times > 1000, "that was no storm: {times}");
}

/// Whether threads that are told to stand still do so, and how many do.
static STILL: AtomicBool = AtomicBool::new(false);
static STANDING: AtomicUsize = AtomicUsize::new(0);

extern "C" fn stand_still(_: i32) {
    // SAFETY: the address of this thread's errno, which the code that is interrupted may be about to look at.
    let errno = unsafe { *libc::__errno_location() };
    STANDING.fetch_add(1, SeqCst);
    while STILL.load(SeqCst) {
        let nap = libc::timespec { tv_sec: 0, tv_nsec: 200_000 };
        // SAFETY: as handlers may, with a valid time.
        unsafe { libc::nanosleep(&nap, std::ptr::null_mut()) };
    }
    STANDING.fetch_sub(1, SeqCst);
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// Has a worker stand still, wherever it is.
fn halt(thread: libc::pid_t) {
    STILL.store(true, SeqCst);
    signal(thread, libc::SIGUSR1);
    until(|| STANDING.load(SeqCst) == 1);
}

fn until(done: impl Fn() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < LONG);
        thread::yield_now();
    }
}

/// In each pass one worker stands still for a while. Words: whether there is a timeout to notice.
pub(crate) fn still(words: &[&str]) {
    let timed = words[0] == "timeout";
    handle(libc::SIGUSR1, stand_still);
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
            // With a timeout it stands still until that is over, else for some milliseconds.
            let halted = got.len() == first && late == before;
            if halted {
                halt(workers[id]);
            }
            let release = (halted && !timed).then(|| {
                thread::spawn(|| {
                    thread::sleep(Duration::from_millis(8));
                    STILL.store(false, SeqCst);
                })
            });
            match pass.next().unwrap() {
                Ok(batch) => got.push(Got::from(&batch)),
                Err(Error::Timeout { task, busy, .. }) => {
                    assert!(timed && (got.len()..expected.len()).contains(&task));
                    late += 1;
                    if STILL.load(SeqCst)
                        && let Some(&(_, index)) = busy.iter().find(|(worker, _)| *worker == id)
                    {
                        assert!(expected[task].indices.contains(&(index as i64)), "batch {task}: {busy:?}");
                        named += 1;
                    }
                    STILL.store(false, SeqCst);
                }
                Err(error) => panic!("{error}"),
            }
            if let Some(release) = release {
                release.join().unwrap();
            }
        }
        assert_eq!(got, expected, "pass {round}");
        unharmed += usize::from(late == before);
        STILL.store(false, SeqCst);
        until(|| STANDING.load(SeqCst) == 0);
    }
    println!("{late} timeouts, {named} of them name the worker; {unharmed} passes went on without it");
    assert_eq!(timed, named > 0);
    assert!(!timed || !loader.stats().stuck.is_empty(), "the watchdog saw it, too");
}

/// Passes for a while, with a timeout that is short.
pub(crate) fn stopped(_: &[&str]) {
    let begun = Instant::now();
    let mut loader = RUN.over(samples()).num_workers(2).timeout(Duration::from_millis(6)).build().unwrap();
    let [mut passes, mut late] = [0; 2];
    for expected in RUN.expected(2000) {
        let mut got = Vec::new();
        // What is late of the pass before is waited for here.
        let mut pass = loop {
            match loader.epoch() {
                Err(Error::Timeout { .. }) => late += 1,
                pass => break pass.unwrap(),
            }
        };
        while got.len() < expected.len() {
            match pass.next().unwrap() {
                Ok(batch) => got.push(Got::from(&batch)),
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
fn waits_that_signals_interrupt_go_on() {
    child::run("signals::storm");
}

#[test]
fn a_worker_that_stands_still_is_named_and_when_it_goes_on_so_does_the_pass() {
    child::run("signals::still timeout");
}

#[test]
fn a_worker_that_stands_still_for_a_while_does_no_harm_without_a_timeout() {
    child::run("signals::still help");
}

#[test]
fn a_process_that_is_stopped_goes_on_where_it_was() {
    let mut process = Process::start("signals::stopped");
    let mut stops = 0;
    while !process.is_over() {
        for signal in [libc::SIGSTOP, libc::SIGCONT] {
            // SAFETY: to a child that was not waited for, so that the number is still its own.
            unsafe { libc::kill(process.id(), signal) };
            thread::sleep(Duration::from_millis(15));
        }
        stops += 1;
    }
    assert!(stops > 3, "stopped {stops} times");
    process.end().well();
}
