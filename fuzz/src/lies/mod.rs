//! Lies: implementations of slotline's safe traits that contradict themselves and panic. What they do is decided by a
//! script; when the script is over they are honest, so that everything ends.

mod custom;
mod data;
mod listener;
mod loaders;
mod orders;
mod outcomes;
mod rings;
mod stream;

use std::any::Any;
use std::cell::Cell;
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, panic_any, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError};

use slotline::BoxError;

pub use self::loaders::lies;
pub use self::rings::lying_rings;
use crate::choices::Choices;

/// Where a lie can be told. Each input allows some of them.
#[derive(Clone, Copy, Debug)]
#[repr(u32)]
enum Site {
    Len,
    Fields,
    Declare,
    Get,
    GetMany,
    Prefetch,
    Write,
    Iter,
    Next,
    Save,
    Resume,
    SamplerLen,
    SamplerOrder,
    SamplerSave,
    SamplerRestore,
    Indices,
    Lists,
    Collate,
    Pin,
    Init,
    Memory,
    Trace,
    /// Of whatever is the user's, when it is dropped.
    Drop,
    /// Of errors: what they say, and what is behind them.
    Words,
    Wait,
    Notify,
    Deadline,
    Futex,
}

/// Decides when to lie and how. Every thread asks it.
#[derive(Debug)]
struct Script {
    tape: Vec<u8>,
    /// How many questions were asked.
    asked: AtomicUsize,
    /// How many lies are left.
    left: AtomicIsize,
    /// How many were told.
    told: AtomicUsize,
    /// One in so many answers is a lie, at the sites whose bits are set.
    rate: usize,
    sites: u64,
    /// What is the user's and was not dropped yet, by number, and where it was made.
    alive: Mutex<BTreeMap<usize, &'static Location<'static>>>,
    made: AtomicUsize,
    /// Whether a worker's thread panicked where slotline runs no code of a dataset's: in a `tracing` subscriber.
    worker_hit: AtomicBool,
    /// Whether claims of rings may have been lost.
    lost: AtomicBool,
    /// Samples of these numbers were not written as declared.
    dirty: Mutex<HashSet<i64>>,
}

impl Script {
    fn new(choices: &mut Choices<'_>) -> Arc<Self> {
        let sites = match choices.below(3) {
            // A few kinds of lies are easier to tell apart than all at once.
            0 => (0..3).fold(0, |sites, _| sites | 1 << choices.below(Site::Futex as usize + 1)),
            1 => choices.word(),
            _ => u64::MAX,
        };
        let rate = choices.of(&[2, 1, 4, 8, 16, 32]);
        let left = choices.of(&[100, 0, 1, 2, 5, 20]);
        let tape = choices.bytes(64).to_vec();
        Arc::new(Self {
            tape,
            asked: AtomicUsize::new(0),
            left: AtomicIsize::new(left),
            told: AtomicUsize::new(0),
            rate,
            sites,
            alive: Mutex::default(),
            made: AtomicUsize::new(0),
            worker_hit: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            dirty: Mutex::default(),
        })
    }

    /// Which of so many lies to tell here, from 1 on; 0 is the truth.
    fn ask(&self, site: Site, ways: usize) -> usize {
        if self.sites >> site as u32 & 1 == 0 || self.tape.is_empty() || self.left.load(Ordering::Relaxed) <= 0 {
            return 0;
        }
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        let word = usize::from(self.tape[asked % self.tape.len()]).wrapping_add(asked / self.tape.len() * 37);
        if !word.is_multiple_of(self.rate) || self.left.fetch_sub(1, Ordering::Relaxed) <= 0 {
            return 0;
        }
        self.told.fetch_add(1, Ordering::Relaxed);
        1 + (word / self.rate + asked / self.tape.len()) % ways
    }

    /// Ends all lies.
    fn stop(&self) {
        self.left.store(0, Ordering::Relaxed);
    }

    fn told(&self) -> usize {
        self.told.load(Ordering::Relaxed)
    }

    fn dirty(&self) -> std::sync::MutexGuard<'_, HashSet<i64>> {
        self.dirty.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Panics as a user's code does, but by no hook: one of these would end a fuzzer.
    #[track_caller]
    fn panic(self: &Arc<Self>) -> ! {
        resume_unwind(Box::new(Payload(self.own())))
    }

    /// An error of the user's.
    #[track_caller]
    fn error(self: &Arc<Self>) -> BoxError {
        Box::new(LyingError(self.own(), AtomicUsize::new(3)))
    }

    #[track_caller]
    fn own(self: &Arc<Self>) -> Own {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        self.alive.lock().unwrap_or_else(PoisonError::into_inner).insert(number, Location::caller());
        Own { script: self.clone(), number, canary: Box::new(CANARY), quiet: false }
    }

    /// Checks that all that was made was dropped.
    fn all_dropped(&self) {
        let alive = self.alive.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(alive.is_empty(), "these were not dropped: {:?}", alive.values());
    }

    /// As [`own`](Self::own), of what does not panic when it is dropped: as a rule what a function is given for good, which
    /// is dropped while the function returns. What it returns would then be leaked by rustc (rust-lang/rust#47949).
    #[track_caller]
    fn quiet(self: &Arc<Self>) -> Own {
        let mut own = self.own();
        own.quiet = true;
        own
    }
}

const CANARY: u64 = 0x5eed_0fd0_0b75_1234;

/// Something of the user's, which must be dropped once. It may panic then.
#[derive(Debug)]
struct Own {
    script: Arc<Script>,
    number: usize,
    /// On the heap, so that a second drop is found out.
    canary: Box<u64>,
    quiet: bool,
}

impl Own {
    fn check(&self) {
        assert_eq!(*self.canary, CANARY, "this is not what was made");
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        self.check();
        *self.canary = 0;
        let was = self.script.alive.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.number);
        assert!(was.is_some(), "dropped twice");
        // A second panic on the way out of a first one ends any process.
        if !self.quiet && !std::thread::panicking() && self.script.ask(Site::Drop, 2) == 1 {
            resume_unwind(Box::new(Last));
        }
    }
}

/// What a user's panic carries.
struct Payload(#[allow(dead_code)] Own);

/// What the panic of a drop carries: nothing, for slotline forgets the second one of two.
struct Last;

/// An error whose words and sources lie.
struct LyingError(Own, AtomicUsize);

impl LyingError {
    fn words(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.script.ask(Site::Words, 3) {
            1 if !std::thread::panicking() => self.0.script.panic(),
            2 => Err(fmt::Error),
            _ => f.write_str("a lie"),
        }
    }
}

impl fmt::Display for LyingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.words(f)
    }
}

impl fmt::Debug for LyingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.words(f)
    }
}

impl std::error::Error for LyingError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self.0.script.ask(Site::Words, 2) {
            1 if !std::thread::panicking() => self.0.script.panic(),
            // Itself, a few times: without that limit there would be no end.
            2 if self.1.fetch_sub(1, Ordering::Relaxed).cast_signed() > 0 => Some(self),
            _ => None,
        }
    }
}

thread_local! {
    /// Whether panics of slotline are documented for what this thread does now.
    static EXPECTED: Cell<bool> = const { Cell::new(false) };
}

/// Panics of slotline that nothing announces, in any thread.
static UNEXPECTED: AtomicUsize = AtomicUsize::new(0);

/// What std says where a user's `Display` fails, and where a panic goes through a lock: that is no panic of slotline's.
const OF_STD: [&str; 2] =
    ["a Display implementation returned an error unexpectedly", "a formatting trait implementation"];

/// Has panics that are documented, and std's over a user's `Display`, pass by the hooks, one of which ends a fuzzer.
fn watch_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let said = info.payload_as_str().unwrap_or_default();
            if EXPECTED.get() || OF_STD.iter().any(|known| said.contains(known)) {
                return;
            }
            if std::thread::current().name().is_some_and(|name| name.starts_with("slotline-")) {
                UNEXPECTED.fetch_add(1, Ordering::Relaxed);
            }
            before(info);
        }));
    });
}

/// Runs what may panic by the user's doing; `None` if it did. Any other panic goes on.
fn caught<T>(code: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(code)) {
        Ok(it) => Some(it),
        Err(panic) if is_users(&*panic) => {
            discard(panic);
            None
        }
        Err(panic) => resume_unwind(panic),
    }
}

/// Runs what is documented to panic where samples lie.
fn expected<T>(code: impl FnOnce() -> T) -> Option<T> {
    EXPECTED.set(true);
    let outcome = catch_unwind(AssertUnwindSafe(code));
    EXPECTED.set(false);
    outcome.map_err(discard).ok()
}

fn is_users(panic: &(dyn Any + Send)) -> bool {
    let said = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    panic.is::<Payload>()
        || panic.is::<Last>()
        || OF_STD.iter().any(|known| said.is_some_and(|said| said.contains(known)))
}

/// Drops what may panic by the user's doing.
fn discard<T>(it: T) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(it))) {
        assert!(is_users(&*panic), "a drop panicked, and not by the user's doing");
        // Its own drop may panic.
        if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
            std::mem::forget(second);
        }
    }
}

/// Fails by slotline's fault, in a way that ends a fuzzer.
fn unexpected_since(before: usize) {
    if UNEXPECTED.load(Ordering::Relaxed) != before {
        panic_any("a worker's thread panicked in slotline's own code");
    }
}
