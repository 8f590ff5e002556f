//! Tests of clocks that jump. They are a separate program, because they replace the system's clock.
#![cfg(target_os = "linux")]

mod support;

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use slotline::dataset::Dataset;
use slotline::loader::{Error, Stats};
use slotline::{Loader, WaitStrategy};
use support::{Delivered, Latch, Run, items, sleeping_sometimes};

/// The offset that is added to the monotonic clock, in nanoseconds. `REALTIME` is the offset of the
/// wall clock, and `READS` the number of times that a clock was read.
static MONOTONIC: AtomicI64 = AtomicI64::new(0);
static REALTIME: AtomicI64 = AtomicI64::new(0);
static READS: AtomicU64 = AtomicU64::new(0);
/// The sum of all forward jumps, in nanoseconds.
static AHEAD: AtomicI64 = AtomicI64::new(0);

/// Replaces the function that std calls to read a clock. This works because symbols of the program
/// precede those of the C library.
///
/// # Safety
///
/// `time` must be valid for writes, as for the system's function.
#[unsafe(no_mangle)]
unsafe extern "C" fn clock_gettime(clock: libc::clockid_t, time: *mut libc::timespec) -> libc::c_int {
    READS.fetch_add(1, SeqCst);
    // SAFETY: the caller guarantees that `time` is valid for writes, and the system call
    // initialises it.
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
    items(RUN.len, sleeping_sometimes)
}

/// Runs passes of several loaders while a clock jumps. Returns the number of timeouts and the
/// statistics of each loader.
fn passes_while(clock: &AtomicI64, jumps: &[i64]) -> Vec<(usize, Stats)> {
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for jump in jumps.iter().cycle().take_while(|_| !ended.load(SeqCst)) {
                AHEAD.fetch_add((*jump).max(0), SeqCst);
                clock.fetch_add(*jump, SeqCst);
                thread::sleep(Duration::from_micros(300));
            }
        });
        let mut outcomes = Vec::new();
        let expected = RUN.expected(10);
        for (workers, timeout, round_robin) in [(0, 0, false), (2, 0, false), (2, 600, false), (2, 600, true)] {
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
                                Ok(batch) => got.push(Delivered::from(&batch)),
                                Err(Error::Timeout { .. }) if timeout > 0 => late += 1,
                                Err(error) => panic!("{error}"),
                            }
                        }
                        assert_eq!(got, *expected);
                    }
                    outcomes.push((late, loader.stats()));
                }};
            }
            look!(builder.round_robin(round_robin).build())
        }
        ended.store(true, SeqCst);
        outcomes
    })
}

/// Checks that no value in the statistics shows the effect of a clock that runs backwards.
fn check_figures(stats: &Stats, most: Duration) {
    assert_eq!((stats.batches, stats.samples), (10 * 43, 10 * 300));
    assert!(stats.elapsed <= most && stats.waiting <= most, "{stats:?}");
    for thread in stats.workers.iter().chain([&stats.consumer]) {
        assert!(thread.busy() <= most && thread.waiting <= most && thread.resting <= most, "{stats:?}");
    }
    assert!(stats.slowest.iter().all(|slow| slow.time <= most), "{stats:?}");
    assert!((0.0..=stats.depth as f64).contains(&stats.ready), "{stats:?}");
    println!("{}", stats.verdict());
}

/// Waits until no other test runs. The returned guard resets the wall clock when the test ends.
fn alone() -> impl Drop {
    struct Turn(#[expect(dead_code)] std::sync::MutexGuard<'static, ()>);
    impl Drop for Turn {
        fn drop(&mut self) {
            REALTIME.store(0, SeqCst);
        }
    }
    Turn(support::alone())
}

#[test]
fn changes_of_the_wall_clock_have_no_effect() {
    let _alone = alone();
    let (reads, begun) = (READS.load(SeqCst), Instant::now());
    let outcomes =
        passes_while(&REALTIME, &[HOUR, -5 * HOUR, 1, 4 * HOUR - 1, -20 * 365 * 24 * HOUR, 20 * 365 * 24 * HOUR]);
    assert!(READS.load(SeqCst) > reads, "the clock of this program was not read");
    REALTIME.store(-7 * HOUR, SeqCst);
    assert!(SystemTime::now() < SystemTime::now() + Duration::from_secs(1));
    for (late, stats) in &outcomes {
        assert_eq!(*late, 0);
        check_figures(stats, begun.elapsed());
        assert!(stats.stuck.is_empty());
    }
}

#[test]
fn forward_clock_jumps_cause_only_timeouts() {
    let _alone = alone();
    let begun = Instant::now();
    let outcomes = passes_while(&MONOTONIC, &[HOUR]);
    for (_, stats) in &outcomes {
        check_figures(stats, begun.elapsed());
    }
    println!("timeouts: {:?}", outcomes.iter().map(|(late, _)| *late).collect::<Vec<_>>());
    // In loaders with a timeout, the number of timeouts depends on the schedule. The first two
    // loaders have no timeout and must report none.
    assert_eq!(outcomes[0].0 + outcomes[1].0, 0);
}

#[test]
fn a_clock_that_runs_backwards_counts_as_standing_still() {
    let _alone = alone();
    // First move the clock forward, so that it is never before the time at which the process began.
    MONOTONIC.fetch_add(200 * HOUR, SeqCst);
    let (begun, ahead) = (Instant::now(), AHEAD.load(SeqCst));
    let outcomes = passes_while(&MONOTONIC, &[50_000_000, -50_000_000]);
    // The time that would have passed if the clock had never gone back, plus one jump of 50 ms,
    // since the clock may be behind by that much.
    let most = begun.elapsed() + Duration::from_nanos((AHEAD.load(SeqCst) - ahead) as u64 + 50_000_000);
    for (late, stats) in &outcomes {
        assert_eq!(*late, 0);
        check_figures(stats, most);
    }
}

#[test]
fn a_timeout_that_a_jump_skips_names_the_awaited_batch() {
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
    assert_eq!(pass.next().unwrap().unwrap().batch_index(), 0);
    latch.until_waiting(1);
    // Time passes without a wake-up, as it does while a machine is suspended.
    MONOTONIC.fetch_add(8 * HOUR, SeqCst);
    let error = pass.next().unwrap().err().unwrap();
    assert!(matches!(&error, Error::Timeout { task: 1, busy, .. } if busy[..] == [(0, 2)]), "{error}");
    latch.open();
    let rest: Vec<_> = pass.map(|batch| batch.map(|batch| batch.batch_index())).filter_map(Result::ok).collect();
    assert_eq!(rest, [1, 2]);
}
