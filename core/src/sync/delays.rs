//! Random delays before each operation of an atomic, for the stress tests.
//!
//! The threads share only a seed, which they read, and a counter, which is changed together with
//! delays that are long anyway. Other shared state would synchronise the threads, whose operations
//! the delays are meant to reorder.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The seed that selects the kind of delays: see [`shake`].
static SEED: AtomicU64 = AtomicU64::new(1);
/// The number of yields and sleeps so far.
static COUNT: AtomicU64 = AtomicU64::new(0);
static THREADS: AtomicU64 = AtomicU64::new(1);

std::thread_local! {
    static NUMBER: u64 = THREADS.fetch_add(1, Relaxed);
    /// The seed that the thread's random sequence began with, and its current state.
    static STATE: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

/// Sets the seed. It selects the kind of delays: rare and long, frequent and short, or such that
/// some threads lag behind.
pub fn shake(seed: u64) {
    SEED.store(seed | 1, Relaxed);
}

/// Returns how often threads have yielded or slept so far.
pub fn count() -> u64 {
    COUNT.load(Relaxed)
}

/// Occasionally spins, yields or sleeps for a short time.
pub fn delay() {
    let seed = SEED.load(Relaxed);
    let (begun, mut x) = STATE.get();
    if begun != seed {
        x = (seed ^ NUMBER.with(|number| *number).rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    }
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    STATE.set((seed, x));
    // Of 4096 operations: how many sleep, the longest sleep in nanoseconds, how many yield, and how
    // many spin.
    let lags = NUMBER.with(|number| *number % 3) == seed >> 8 & 3;
    let (sleeps, longest, yields, spins) = match seed >> 4 & 3 {
        0 => (4, 1_000_000, 16, 64),
        1 => (16, 60_000, 128, 512),
        2 => (0, 0, 512, 1024),
        _ if lags => (128, 30_000, 256, 256),
        _ => (1, 60_000, 8, 1024),
    };
    let dice = x >> 52;
    if dice < sleeps {
        COUNT.fetch_add(1, Relaxed);
        std::thread::sleep(Duration::from_nanos((x & 0xff_ffff) % longest));
    } else if dice < sleeps + yields {
        COUNT.fetch_add(1, Relaxed);
        std::thread::yield_now();
    } else if dice < sleeps + yields + spins {
        (0..x & 0xff).for_each(|_| core::hint::spin_loop());
    }
}
