//! Clocks that jump: alone in its process, as it puts a clock in the place of the system's.
#![cfg(target_os = "linux")]

mod support;

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use slotline::dataset::Dataset;
use slotline::loader::{Error, Stats};
use slotline::{Loader, WaitStrategy};
use support::{Got, Latch, Run, dawdling, items};

/// By how many nanoseconds the clocks are off: the one that says how much time has passed, and the one that says what time
/// it is; and how often they were asked.
static MONOTONIC: AtomicI64 = AtomicI64::new(0);
static REALTIME: AtomicI64 = AtomicI64::new(0);
static ASKED: AtomicU64 = AtomicU64::new(0);
/// All that they leapt ahead.
static AHEAD: AtomicI64 = AtomicI64::new(0);

/// What std asks for the time, as this program's functions come before those of the system's library.
///
/// # Safety
///
/// As the system's: a place for the time.
#[unsafe(no_mangle)]
unsafe extern "C" fn clock_gettime(clock: libc::clockid_t, time: *mut libc::timespec) -> libc::c_int {
    ASKED.fetch_add(1, SeqCst);
    // SAFETY: the caller's word.
    unsafe {
        let outcome = libc::syscall(libc::SYS_clock_gettime, clock, time);
        let off = if clock == libc::CLOCK_REALTIME { &REALTIME } else { &MONOTONIC }.load(SeqCst);
        let nanos = (*time).tv_sec * NANOS + (*time).tv_nsec + off;
        ((*time).tv_sec, (*time).tv_nsec) = (nanos.div_euclid(NANOS), nanos.rem_euclid(NANOS));
        outcome as libc::c_int
    }
}

const NANOS: i64 = 1_000_000_000;
const HOUR: i64 = 3600 * NANOS;
const RUN: Run = Run { len: 300, batch_size: 7, drop_last: false, shuffle: true, seed: 21 };

fn samples() -> impl Dataset {
    items(RUN.len, dawdling)
}

/// Lets a clock jump to and fro, with passes of all kinds of loaders going on; gives what came of each with a timeout: how
/// often it was late, and its figures.
fn passes_while(clock: &AtomicI64, jumps: &[i64]) -> Vec<(usize, Stats)> {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for jump in jumps.iter().cycle().take_while(|_| !over.load(SeqCst)) {
                AHEAD.fetch_add((*jump).max(0), SeqCst);
                clock.fetch_add(*jump, SeqCst);
                thread::sleep(Duration::from_micros(300));
            }
        });
        let mut outcomes = Vec::new();
        let expected = RUN.expected(10);
        for (workers, timeout, dealt) in [(0, 0, false), (2, 0, false), (2, 600, false), (2, 600, true)] {
            let builder = RUN.over(samples()).num_workers(workers).timeout(Duration::from_secs(timeout));
            let builder = builder.watchdog(Duration::from_secs(600)).wait_strategy(WaitStrategy::Park);
            let mut late = 0;
            macro_rules! look {
                ($loader:expr) => {{
                    let mut loader = $loader.unwrap();
                    for expected in &expected {
                        let mut got = Vec::new();
                        let mut pass = loop {
                            match loader.epoch() {
                                Err(Error::Timeout { .. }) => late += 1,
                                pass => break pass.unwrap(),
                            }
                        };
                        while got.len() < expected.len() {
                            match pass.next().unwrap() {
                                Ok(batch) => got.push(Got::from(&batch)),
                                Err(Error::Timeout { .. }) if timeout > 0 => late += 1,
                                Err(error) => panic!("{error}"),
                            }
                        }
                        assert_eq!(got, *expected);
                    }
                    outcomes.push((late, loader.stats()));
                }};
            }
            look!(builder.round_robin(dealt).build())
        }
        over.store(true, SeqCst);
        outcomes
    })
}

/// No figure is what a time that runs backwards would make of it.
fn sane(stats: &Stats, most: Duration) {
    assert_eq!((stats.batches, stats.samples), (10 * 43, 10 * 300));
    assert!(stats.elapsed <= most && stats.waiting <= most, "{stats:?}");
    for thread in stats.workers.iter().chain([&stats.consumer]) {
        assert!(thread.busy() <= most && thread.waiting <= most && thread.resting <= most, "{stats:?}");
    }
    assert!(stats.slowest.iter().all(|slow| slow.time <= most), "{stats:?}");
    assert!((0.0..=stats.depth as f64).contains(&stats.ready), "{stats:?}");
    println!("{}", stats.verdict());
}

/// One test at a time, with the clock as it should be first.
fn alone() -> impl Drop {
    struct Turn(#[expect(dead_code)] std::sync::MutexGuard<'static, ()>);
    impl Drop for Turn {
        fn drop(&mut self) {
            REALTIME.store(0, SeqCst);
        }
    }
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    Turn(TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
}

#[test]
fn nothing_minds_what_time_it_is() {
    let _alone = alone();
    let (asked, begun) = (ASKED.load(SeqCst), Instant::now());
    let outcomes =
        passes_while(&REALTIME, &[HOUR, -5 * HOUR, 1, 4 * HOUR - 1, -20 * 365 * 24 * HOUR, 20 * 365 * 24 * HOUR]);
    assert!(ASKED.load(SeqCst) > asked, "this program's clock is not asked");
    REALTIME.store(-7 * HOUR, SeqCst);
    assert!(SystemTime::now() < SystemTime::now() + Duration::from_secs(1));
    for (late, stats) in &outcomes {
        assert_eq!(*late, 0);
        sane(stats, begun.elapsed());
        assert!(stats.stuck.is_empty());
    }
}

#[test]
fn when_the_clock_leaps_ahead_nothing_but_timeouts_happens() {
    let _alone = alone();
    let begun = Instant::now();
    let outcomes = passes_while(&MONOTONIC, &[HOUR]);
    for (_, stats) in &outcomes {
        sane(stats, begun.elapsed());
    }
    println!("timeouts: {:?}", outcomes.iter().map(|(late, _)| *late).collect::<Vec<_>>());
    // How many timeouts there are is the schedule's; where there is none, none fires.
    assert_eq!(outcomes[0].0 + outcomes[1].0, 0);
}

#[test]
fn a_clock_that_goes_back_is_as_one_that_stands_still() {
    let _alone = alone();
    // Further ahead first, so that it never comes before where it was when the process began.
    MONOTONIC.fetch_add(200 * HOUR, SeqCst);
    let (begun, ahead) = (Instant::now(), AHEAD.load(SeqCst));
    let outcomes = passes_while(&MONOTONIC, &[50_000_000, -50_000_000]);
    // As if it had never gone back; and where it is now it may be behind by a leap.
    let most = begun.elapsed() + Duration::from_nanos((AHEAD.load(SeqCst) - ahead) as u64 + 50_000_000);
    for (late, stats) in &outcomes {
        assert_eq!(*late, 0);
        sane(stats, most);
    }
}

#[test]
fn a_timeout_that_the_clock_leapt_over_is_that_of_the_batch_that_was_waited_for() {
    let _alone = alone();
    let latch = Latch::default();
    let stuck = latch.clone();
    let dataset = items(6, move |index, _| {
        if index == 2 {
            stuck.wait();
        }
        Ok(())
    });
    let builder = Loader::builder(dataset).batch_size(2).num_workers(1);
    let mut loader = builder.timeout(Duration::from_millis(200)).build().unwrap();
    let mut pass = loader.epoch().unwrap();
    assert_eq!(pass.next().unwrap().unwrap().task(), 0);
    latch.until_waiting(1);
    // As after a night's sleep, with nothing to wake anybody.
    MONOTONIC.fetch_add(8 * HOUR, SeqCst);
    let error = pass.next().unwrap().err().unwrap();
    assert!(matches!(&error, Error::Timeout { task: 1, busy, .. } if busy[..] == [(0, 2)]), "{error}");
    latch.open();
    let rest: Vec<_> = pass.map(|batch| batch.map(|batch| batch.task())).filter_map(Result::ok).collect();
    assert_eq!(rest, [1, 2]);
}
