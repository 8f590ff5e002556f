//! The other side: a job that the SysTick interrupt runs, at any instruction of the main loop.

use core::cell::{Cell, RefCell};
use core::sync::atomic::{AtomicU32, Ordering};

use cortex_m::interrupt::{self, Mutex};
use cortex_m::peripheral::syst::SystClkSource;
use cortex_m::peripheral::{SCB, SYST};
use cortex_m_rt::exception;

/// Returns when the next interrupt comes after the one that is being handled.
type Gap = fn() -> Option<u32>;

static TIMER: Mutex<RefCell<Option<SYST>>> = Mutex::new(RefCell::new(None));
static JOB: Mutex<Cell<(fn(), Gap)>> = Mutex::new(Cell::new((|| {}, || None)));
static COUNT: AtomicU32 = AtomicU32::new(0);

static SEED: AtomicU32 = AtomicU32::new(0);

/// Gives the timer to this module, and the number that determines the uneven gaps.
pub fn init(mut timer: SYST, seed: u32) {
    SEED.store(seed, Ordering::Relaxed);
    timer.set_clock_source(SystClkSource::Core);
    interrupt::free(|cs| TIMER.borrow(cs).replace(Some(timer)));
}

/// Makes the interrupt run `job` once, after about `after` instructions of the main loop.
pub fn once(after: u32, job: fn()) {
    start(after, job, || None);
}

/// Makes the interrupt run `job` repeatedly, with gaps of varying length.
pub fn often(job: fn()) {
    start(30, job, || Some(uneven()));
}

/// Stops the interrupt.
pub fn stop() {
    interrupt::free(|cs| {
        if let Some(timer) = TIMER.borrow(cs).borrow_mut().as_mut() {
            halt(timer);
        }
    });
}

/// Returns how many interrupts there were.
pub fn count() -> u32 {
    COUNT.load(Ordering::Relaxed)
}

/// Whether an interrupt is pending or scheduled.
pub fn is_due() -> bool {
    interrupt::free(|cs| {
        SCB::is_pendst_pending() || TIMER.borrow(cs).borrow_mut().as_mut().is_some_and(SYST::is_counter_enabled)
    })
}

fn start(after: u32, job: fn(), gap: Gap) {
    interrupt::free(|cs| {
        JOB.borrow(cs).set((job, gap));
        arm(after);
    });
}

/// Starts a countdown of `after` ticks; a tick is a little less than an instruction (see `proof/no-std`).
fn arm(after: u32) {
    interrupt::free(|cs| {
        if let Some(timer) = TIMER.borrow(cs).borrow_mut().as_mut() {
            halt(timer);
            timer.set_reload(after);
            timer.clear_current();
            timer.enable_interrupt();
            timer.enable_counter();
        }
    });
}

fn halt(timer: &mut SYST) {
    timer.disable_counter();
    timer.disable_interrupt();
    SCB::clear_pendst();
}

/// Returns 40 to 1063 ticks, different each time: enough for the main loop to make progress.
fn uneven() -> u32 {
    let seed = SEED.load(Ordering::Relaxed).wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    SEED.store(seed, Ordering::Relaxed);
    40 + (seed >> 22)
}

#[exception]
fn SysTick() {
    COUNT.store(count() + 1, Ordering::Relaxed);
    // All checks together take a quarter of this.
    assert!(count() < 250_000, "the main loop makes no progress");
    let (job, gap) = interrupt::free(|cs| JOB.borrow(cs).get());
    stop();
    job();
    // The gap starts at the end of the job, however long that took, so that the main loop always makes progress.
    if let Some(after) = gap() {
        arm(after);
    }
}
