//! Sleeping and waking through the operating system, and the fences between the two.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed, compiler_fence};
use std::time::{Duration, Instant};

use slotline_core::wait::{Futex, Word};

use crate::sync::atomic::{Ordering, fence};
use crate::sync::thread;

/// Sleeping and waking through the operating system.
///
/// Where Linux has `membarrier`, the fences are asymmetric: the sleeper, which is slow anyway, makes every thread of
/// the process run a full barrier, so that the notifier only needs a compiler fence. A notifier's store and load are
/// then on one side of that barrier or around it: if the store comes after the barrier, so does the load, which sees
/// the sleeper; otherwise the sleeper's second look sees the store.
pub(super) struct SystemFutex {
    asymmetric: bool,
    patience: Patience,
}

impl SystemFutex {
    pub(super) fn new() -> Self {
        Self { asymmetric: asymmetric_fences(), patience: Patience::new() }
    }
}

/// The number of looks before a thread begins to yield, and the maximum number before it sleeps: about 3 and 120 µs if
/// no other thread wants the core. Falling asleep and waking up costs both sides about 50 µs, so sleeping sooner is
/// expensive where waits are short: a shuffled gather by two workers took 1.3 times as long with 3 yields.
const SPINS: u32 = 60;
const YIELDS: u32 = 300;
/// The number of yields where waits are long.
const FEW_YIELDS: u32 = 8;
/// A sleep that took longer could not have been avoided by yielding.
const LONG_SLEEP: Duration = Duration::from_micros(300);

/// How long threads yield before they sleep.
///
/// That is CPU time which other programs could use, and pays only if the wait ends meanwhile. So each sleep that was
/// long halves it, and one that was not makes it as long as it can be: where waits are long, as those of workers for a
/// slow loop, threads soon go to sleep at once, and where they are short, no more than one of them sleeps. A loop that
/// takes a millisecond for each batch used 230 µs of CPU time per batch without this, and 90 with it.
struct Patience {
    yields: AtomicU32,
}

impl Patience {
    const fn new() -> Self {
        Self { yields: AtomicU32::new(YIELDS) }
    }

    fn spin(&self, round: u32) -> bool {
        if round < SPINS {
            std::hint::spin_loop();
        } else {
            thread::yield_now();
        }
        round < SPINS + self.yields.load(Relaxed)
    }

    /// Sleeps by `sleep`, and learns from it.
    fn sleep(&self, sleep: impl FnOnce()) {
        let begun = Instant::now();
        sleep();
        self.learn(begun.elapsed());
    }

    fn learn(&self, slept: Duration) {
        let yields = if slept > LONG_SLEEP { (self.yields.load(Relaxed) / 2).max(FEW_YIELDS) } else { YIELDS };
        self.yields.store(yields, Relaxed);
    }
}

impl Futex for SystemFutex {
    fn wait(&self, word: &Word, expected: u32, timeout: Duration) {
        self.patience.sleep(|| system::wait(word, expected, timeout, false));
    }

    fn wake_all(&self, word: &Word) {
        system::wake_all(word, false);
    }

    #[inline]
    fn light_fence(&self) {
        light_fence_if(self.asymmetric);
    }

    fn heavy_fence(&self) {
        // Without it, a wake-up could be lost.
        assert!(heavy_fence(), "membarrier: {}", std::io::Error::last_os_error());
    }

    fn spin(&self, round: u32) -> bool {
        self.patience.spin(round)
    }
}

#[inline]
fn light_fence_if(asymmetric: bool) {
    if asymmetric { compiler_fence(Ordering::SeqCst) } else { fence(Ordering::SeqCst) }
}

/// The fence of a thread that does something often. It pairs with the [heavy one](heavy_fence) of a thread that does
/// something seldom, as two `fence(SeqCst)` do.
#[inline]
pub(crate) fn light_fence() {
    light_fence_if(asymmetric_fences());
}

/// The fence of a thread that does something seldom. Returns `false` if the system refuses it.
pub(crate) fn heavy_fence() -> bool {
    fence(Ordering::SeqCst);
    !asymmetric_fences() || system::barrier()
}

/// Sleeping and waking between processes, for rings of [`slotline_core`] in memory that they share.
///
/// It has no fields, since its words lie in memory that any of the processes may write. The fences are full ones:
/// `membarrier` reaches only the threads of one process.
#[derive(Clone, Copy, Debug, Default)]
pub struct SharedFutex;

impl Futex for SharedFutex {
    fn wait(&self, word: &Word, expected: u32, timeout: Duration) {
        PATIENCE.sleep(|| system::wait(word, expected, timeout, true));
    }

    fn wake_all(&self, word: &Word) {
        system::wake_all(word, true);
    }

    #[inline]
    fn light_fence(&self) {
        fence(Ordering::SeqCst);
    }

    fn heavy_fence(&self) {
        fence(Ordering::SeqCst);
    }

    fn spin(&self, round: u32) -> bool {
        PATIENCE.spin(round)
    }
}

/// That of all waits for other processes, since a [`SharedFutex`] has no fields.
static PATIENCE: Patience = Patience::new();

/// Whether the process supports asymmetric fences: 1 if so, 2 if not, 0 until it is known. This is not a `OnceLock`: a
/// child whose parent was forked in the middle of it would wait forever. Registering twice does no harm.
static REGISTERED: AtomicU8 = AtomicU8::new(0);

/// Whether the process supports asymmetric fences. The first call registers the process for them.
#[inline]
fn asymmetric_fences() -> bool {
    match REGISTERED.load(Relaxed) {
        0 => register(),
        known => known == 1,
    }
}

#[cold]
fn register() -> bool {
    let registered = system::register_barrier();
    REGISTERED.store(if registered { 1 } else { 2 }, Relaxed);
    registered
}

#[cfg(target_os = "linux")]
mod system {
    use super::*;

    pub(super) fn wait(word: &Word, expected: u32, timeout: Duration, shared: bool) {
        let seconds = libc::time_t::try_from(timeout.as_secs());
        let timeout = seconds.ok().map(|tv_sec| libc::timespec { tv_sec, tv_nsec: timeout.subsec_nanos() as _ });
        let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let operation = libc::FUTEX_WAIT | scope(shared);
        // SAFETY: the word outlives the call, and the timeout is null or a valid timespec. The caller checks again
        // after every outcome (woken, timed out, interrupted, changed before).
        unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, expected, timeout) };
    }

    pub(super) fn wake_all(word: &Word, shared: bool) {
        let operation = libc::FUTEX_WAKE | scope(shared);
        // SAFETY: the call only uses the word's address.
        unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, i32::MAX) };
    }

    fn scope(shared: bool) -> libc::c_int {
        if shared { 0 } else { libc::FUTEX_PRIVATE_FLAG }
    }

    pub(super) fn register_barrier() -> bool {
        let command = libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED;
        // SAFETY: the call registers the process and touches no memory.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
    }

    /// Returns whether it succeeded. It cannot fail after registration, unless the system takes back what it granted.
    pub(super) fn barrier() -> bool {
        let command = libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED;
        // SAFETY: the call touches no memory.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use super::*;
    use std::sync::{Condvar, Mutex, PoisonError};

    /// One lock for the process: sleepers of all words share it, and look again when any is woken.
    static LOCK: Mutex<()> = Mutex::new(());
    static WOKEN: Condvar = Condvar::new();

    pub(super) fn wait(word: &Word, expected: u32, timeout: Duration, _shared: bool) {
        let guard = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        if word.load(Ordering::Relaxed) == expected {
            // A year is effectively forever, and does not overflow a clock.
            let timeout = timeout.min(Duration::from_secs(365 * 24 * 3600));
            drop(WOKEN.wait_timeout(guard, timeout));
        }
    }

    pub(super) fn wake_all(_word: &Word, _shared: bool) {
        drop(LOCK.lock().unwrap_or_else(PoisonError::into_inner));
        WOKEN.notify_all();
    }

    pub(super) fn register_barrier() -> bool {
        false
    }

    pub(super) fn barrier() -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_sleep_sooner_where_waits_are_long() {
        let patience = Patience::new();
        let rounds = || (0..).take_while(|&round| patience.spin(round)).count() as u32;
        assert_eq!(rounds(), SPINS + YIELDS);
        patience.learn(2 * LONG_SLEEP);
        assert_eq!(rounds(), SPINS + YIELDS / 2);
        (0..10).for_each(|_| patience.learn(2 * LONG_SLEEP));
        assert_eq!(rounds(), SPINS + FEW_YIELDS);
        patience.learn(LONG_SLEEP / 2);
        assert_eq!(rounds(), SPINS + YIELDS);
    }
}
