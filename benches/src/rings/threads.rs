//! Runs two threads on two cores, which start at the same time.

use std::hint::spin_loop;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use core_affinity::CoreId;

/// Returns the cores that this process may use. They are read before any thread is pinned.
fn core_ids() -> &'static [CoreId] {
    static IDS: OnceLock<Vec<CoreId>> = OnceLock::new();
    IDS.get_or_init(|| core_affinity::get_core_ids().unwrap_or_default())
}

/// Returns the number of available cores.
pub(crate) fn cores() -> usize {
    core_ids().len()
}

/// Pins this thread to one of the two cores. Does nothing if pinning is not allowed.
pub(crate) fn pin(core: usize) {
    if let Some(&id) = core_ids().get(core) {
        core_affinity::set_for_current(id);
    }
}

/// A barrier at which threads spin until all have arrived. The clock starts after it.
pub(super) struct Start(AtomicUsize);

impl Start {
    pub(super) fn new(threads: usize) -> Self {
        Self(AtomicUsize::new(threads))
    }

    pub(super) fn wait(&self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
        while self.0.load(Ordering::Acquire) > 0 {
            thread::yield_now();
        }
    }
}

/// Sends the numbers `0..items` from one thread to another, and returns the time until the last one
/// is received.
///
/// `send(next)` sends some numbers from `next` on, and returns how many, or 0 if there is no space
/// at the moment. `take(next)` takes some numbers, of which `next` must be the first, and returns
/// how many, or 0 if there are none at the moment.
pub(super) fn relay(
    items: u64,
    mut send: impl FnMut(u64) -> u64 + Send,
    mut take: impl FnMut(u64) -> u64 + Send,
) -> Duration {
    let start = &Start::new(2);
    thread::scope(|scope| {
        scope.spawn(move || {
            pin(1);
            start.wait();
            let mut next = 0;
            while next < items {
                let sent = send(next);
                if sent == 0 {
                    spin_loop();
                }
                next += sent;
            }
        });
        let taker = scope.spawn(move || {
            pin(0);
            start.wait();
            let clock = Instant::now();
            let mut next = 0;
            while next < items {
                let taken = take(next);
                if taken == 0 {
                    spin_loop();
                }
                next += taken;
            }
            clock.elapsed()
        });
        taker.join().expect("all items are received in order")
    })
}

/// Sends a number from one thread to another and waits until it is sent back, `items` times.
/// Returns the total time.
pub(super) fn echo(
    items: u64,
    (mut send, mut take): (impl FnMut(u64) -> bool + Send, impl FnMut() -> Option<u64> + Send),
    (mut reply, mut hear): (impl FnMut(u64) -> bool + Send, impl FnMut() -> Option<u64> + Send),
) -> Duration {
    let start = &Start::new(2);
    thread::scope(|scope| {
        scope.spawn(move || {
            pin(1);
            start.wait();
            for _ in 0..items {
                let number = until(&mut take);
                until(|| reply(number).then_some(()));
            }
        });
        let sender = scope.spawn(move || {
            pin(0);
            start.wait();
            let clock = Instant::now();
            for number in 0..items {
                until(|| send(number).then_some(()));
                assert_eq!(until(&mut hear), number);
            }
            clock.elapsed()
        });
        sender.join().expect("all numbers are sent back")
    })
}

fn until<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    loop {
        match attempt() {
            Some(outcome) => return outcome,
            None => spin_loop(),
        }
    }
}

/// Checks that these are consecutive numbers from `next` on. Returns how many there are.
#[inline]
pub(super) fn check(next: u64, numbers: &[u64]) -> u64 {
    // There is no branch for each number, so that the check does not dominate the measurement.
    let wrong = numbers.iter().zip(next..).fold(0, |wrong, (&number, expected)| wrong | (number ^ expected));
    assert_eq!(wrong, 0, "numbers from {next} on");
    numbers.len() as u64
}
