//! The other party: a job that the SysTick interrupt does, at any instruction of the main loop.

use core::cell::{Cell, RefCell};
use core::sync::atomic::{AtomicU32, Ordering};

use cortex_m::interrupt::{self, Mutex};
use cortex_m::peripheral::syst::SystClkSource;
use cortex_m::peripheral::{SCB, SYST};
use cortex_m_rt::exception;

/// When the next interrupt comes after the one that is being handled.
type Gap = fn() -> Option<u32>;

static TIMER: Mutex<RefCell<Option<SYST>>> = Mutex::new(RefCell::new(None));
static JOB: Mutex<Cell<(fn(), Gap)>> = Mutex::new(Cell::new((|| {}, || None)));
static COUNT: AtomicU32 = AtomicU32::new(0);

static SEED: AtomicU32 = AtomicU32::new(0);

/// Gives this module the timer, and the number that uneven gaps follow from.
pub fn init(mut timer: SYST, seed: u32) {
    SEED.store(seed, Ordering::Relaxed);
    timer.set_clock_source(SystClkSource::Core);
    interrupt::free(|cs| TIMER.borrow(cs).replace(Some(timer)));
}

/// Has the interrupt do `job` once, after about so many instructions of the main loop.
pub fn once(after: u32, job: fn()) {
    start(after, job, || None);
}

/// Has the interrupt do `job` again and again, with gaps of changing length between.
pub fn often(job: fn()) {
    start(30, job, || Some(uneven()));
}

/// No interrupt any more.
pub fn stop() {
    interrupt::free(|cs| {
        if let Some(timer) = TIMER.borrow(cs).borrow_mut().as_mut() {
            halt(timer);
        }
    });
}

/// How many interrupts there were.
pub fn count() -> u32 {
    COUNT.load(Ordering::Relaxed)
}

/// Whether there will be an interrupt.
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

/// Counts down `after` ticks from now; a tick is a little less than an instruction (see `proof/no-std`).
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

/// 40 to 1063 ticks: enough for the main loop to get on, and different each time.
fn uneven() -> u32 {
    let seed = SEED.load(Ordering::Relaxed).wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    SEED.store(seed, Ordering::Relaxed);
    40 + (seed >> 22)
}

#[exception]
fn SysTick() {
    COUNT.store(count() + 1, Ordering::Relaxed);
    // All that is checked takes a quarter of this.
    assert!(count() < 250_000, "the main loop gets nowhere");
    let (job, gap) = interrupt::free(|cs| JOB.borrow(cs).get());
    stop();
    job();
    // From the end of the job, however long that took, so that the main loop always gets on.
    if let Some(after) = gap() {
        arm(after);
    }
}
