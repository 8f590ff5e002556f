//! Sleeping and waking through the operating system, and the fences between the two.

use std::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering, Ordering::Relaxed, compiler_fence, fence,
};
use std::thread;
use std::time::{Duration, Instant};

use crate::wait::{Futex, Word};

/// Sleeping and waking through the operating system, for threads of one process.
///
/// Where Linux has `membarrier`, the fences are asymmetric: the sleeper, which is slow anyway,
/// makes every thread of the process run a full barrier, so that the notifier only needs a compiler
/// fence. There are two cases for a notifier. If its store comes after the barrier, so does its
/// load, which sees the sleeper. If its store comes before the barrier, the sleeper's second check
/// sees the store.
#[derive(Debug)]
pub struct SystemFutex {
    asymmetric: bool,
    patience: Patience,
    alarm: Option<Alarm>,
}

impl SystemFutex {
    /// Creates a futex for any number of threads that wait on one word.
    pub fn new() -> Self {
        Self { asymmetric: asymmetric_fences(), patience: Patience::new(), alarm: None }
    }

    /// Like [`new`](Self::new), for threads that wait for space in a ring which another thread
    /// frees at a steady pace. If sleeps are about equally long, a thread wakes up by itself
    /// shortly before the other thread would have to wake it.
    pub fn with_alarm() -> Self {
        Self { alarm: Some(Alarm::new()), ..Self::new() }
    }
}

impl Default for SystemFutex {
    fn default() -> Self {
        Self::new()
    }
}

/// The number of spins before a thread begins to yield, and the maximum number of yields before it
/// sleeps. They take about 3 and 120 µs if no other thread wants the core. Falling asleep and
/// waking up costs both sides about 50 µs, so sleeping sooner is expensive if waits are short:
/// reading shuffled rows with two workers took 1.3 times as long with 3 yields.
const SPINS: u32 = 60;
const YIELDS: u32 = 300;
/// The minimum number of yields, which is reached where waits are long.
const FEW_YIELDS: u32 = 8;
/// The duration from which on a sleep counts as long: yielding could not have avoided it.
const LONG_SLEEP: Duration = Duration::from_micros(300);

/// The number of yields before threads sleep, which adapts to the lengths of waits.
///
/// Yielding takes CPU time that other programs could use, and only pays off if the wait ends
/// meanwhile. So each long sleep halves the number of yields, and a shorter one resets it to the
/// maximum. If waits are long, such as those of workers for a slow loop, threads soon go to sleep
/// almost at once. If waits are short, at most one of them ends in a sleep. A loop that takes a
/// millisecond per batch used 230 µs of CPU time per batch without this, and 90 µs with it.
#[derive(Debug)]
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

    /// Sleeps by calling `sleep`, and adapts the number of yields. Returns how long it slept.
    fn sleep(&self, sleep: impl FnOnce()) -> Duration {
        let begun = Instant::now();
        sleep();
        let slept = begun.elapsed();
        self.learn(slept);
        slept
    }

    fn learn(&self, slept: Duration) {
        let yields = if slept > LONG_SLEEP { (self.yields.load(Relaxed) / 2).max(FEW_YIELDS) } else { YIELDS };
        self.yields.store(yields, Relaxed);
    }
}

/// A timeout after which a sleeping thread wakes up by itself, shortly before another thread would
/// have to wake it.
///
/// Waking a thread costs the caller about 12 µs on a virtual machine, and the caller may be a loop
/// that should not wait. Workers that wait for space in a ring sleep long, and about equally long,
/// if the loop takes batches at a steady pace. A thread then wakes up by itself after three
/// quarters of the duration of the last sleep that another thread ended. The timeout grows slowly
/// until a thread is woken again, so that threads do not wake up much more often than necessary. It
/// applies to at most one sleep per wait: if the loop has stopped, threads sleep until they are
/// woken.
#[derive(Debug)]
struct Alarm {
    /// The timeout in nanoseconds; 0 for none.
    after: AtomicUsize,
    /// Whether the timeout is still unused since a thread last began to wait.
    armed: AtomicBool,
}

impl Alarm {
    const fn new() -> Self {
        Self { after: AtomicUsize::new(0), armed: AtomicBool::new(true) }
    }

    /// Allows the next sleep to use the timeout. Called when a thread begins to wait, which may be
    /// once per batch. It writes only if necessary, because notifiers read the same cache line.
    fn arm(&self) {
        if !self.armed.load(Relaxed) {
            self.armed.store(true, Relaxed);
        }
    }

    /// Returns the timeout of the next sleep.
    fn take(&self) -> Duration {
        let after = self.after.load(Relaxed);
        if after > 0 && self.armed.swap(false, Relaxed) { Duration::from_nanos(after as u64) } else { Duration::MAX }
    }

    /// Adapts the timeout after a sleep of length `slept`, whose timeout was `alarm` (from
    /// [`take`](Self::take)).
    fn learn(&self, slept: Duration, alarm: Duration) {
        let nanos = |time: Duration| usize::try_from(time.as_nanos()).unwrap_or(usize::MAX);
        let after = if slept >= alarm {
            nanos(alarm).saturating_add(nanos(alarm) / 256)
        } else if slept > LONG_SLEEP {
            nanos(slept) / 4 * 3
        } else {
            0
        };
        self.after.store(after, Relaxed);
    }
}

impl Futex for SystemFutex {
    fn wait(&self, word: &Word, expected: u32, timeout: Duration) {
        let alarm = self.alarm.as_ref().map_or(Duration::MAX, Alarm::take);
        let slept = self.patience.sleep(|| system::wait(word, expected, timeout.min(alarm), false));
        self.alarm.as_ref().inspect(|it| it.learn(slept, alarm));
    }

    fn wake_all(&self, word: &Word) {
        system::wake_all(word, false);
    }

    #[inline]
    fn light_fence(&self) {
        light_fence_if(self.asymmetric);
    }

    fn heavy_fence(&self) {
        // Without the fence, a wake-up could be lost.
        assert!(heavy_fence(), "membarrier: {}", std::io::Error::last_os_error());
    }

    fn spin(&self, round: u32) -> bool {
        if round == 0 {
            self.alarm.as_ref().inspect(|alarm| alarm.arm());
        }
        self.patience.spin(round)
    }
}

#[inline]
fn light_fence_if(asymmetric: bool) {
    if asymmetric { compiler_fence(Ordering::SeqCst) } else { fence(Ordering::SeqCst) }
}

/// Executes the fence of a thread that does something often. It pairs with the
/// [heavy fence](heavy_fence) of a thread that does something rarely, as two `fence(SeqCst)` do.
#[inline]
pub fn light_fence() {
    light_fence_if(asymmetric_fences());
}

/// Executes the fence of a thread that does something rarely. Returns `false` if the system refuses
/// it.
pub fn heavy_fence() -> bool {
    fence(Ordering::SeqCst);
    !asymmetric_fences() || system::barrier()
}

/// Sleeping and waking between processes, for rings in memory that they share.
///
/// It has no fields, since the words that it waits on are in memory that any of the processes may
/// write. The fences are full ones: `membarrier` reaches only the threads of one process.
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

/// The patience of all waits for other processes. It is global, since a [`SharedFutex`] has no
/// fields.
static PATIENCE: Patience = Patience::new();

/// Whether the process supports asymmetric fences: 1 if so, 2 if not, 0 until it is known. This is
/// not a `OnceLock`, because the child of a process that was forked during the initialisation would
/// wait forever. Registering twice does no harm.
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
        // SAFETY: the word outlives the call, and the timeout is null or a valid timespec. The
        // caller checks again after every outcome (woken, timed out, interrupted, changed before).
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

    /// Makes all threads of the process execute a barrier. Returns whether that succeeded. After
    /// registration it cannot fail, unless the system revokes the permission.
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

    /// The lock of all waits in the process. The sleepers of all words share it, and check their
    /// words again when any of them is woken.
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

    #[test]
    fn a_sleeper_wakes_up_by_itself_once_in_a_wait_and_a_little_earlier_than_it_would_be_woken() {
        let futex = SystemFutex::with_alarm();
        let alarm = futex.alarm.as_ref().unwrap();
        let ms = Duration::from_millis;
        assert_eq!(alarm.take(), Duration::MAX);
        alarm.learn(ms(4), Duration::MAX);
        assert_eq!(alarm.take(), ms(3));
        assert_eq!(alarm.take(), Duration::MAX);
        futex.spin(0);
        alarm.learn(ms(3), ms(3));
        let later = alarm.take();
        assert!(later > ms(3) && later < ms(4), "{later:?}");
        futex.spin(0);
        alarm.learn(LONG_SLEEP, Duration::MAX);
        assert_eq!(alarm.take(), Duration::MAX);
    }
}
