//! Target for misbehaving implementations of slotline's safe traits, which contradict themselves
//! and panic. A script decides what they do. After the end of the script they behave correctly, so
//! that every run ends.

mod custom;
mod data;
mod loaders;
mod orders;
mod outcomes;
mod waits;

use std::any::Any;
use std::cell::Cell;
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, panic_any, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError};

use slotline::BoxError;

pub use self::loaders::misbehaving_code;
pub use self::waits::misbehaving_waits;
use crate::choices::Choices;

/// A place in the code that can misbehave. Each input enables some of the places.
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
    /// The drop of a user's value.
    Drop,
    /// The messages and sources of errors.
    Words,
    Wait,
    Notify,
    Deadline,
    Futex,
}

/// The faults that an input plans. Each place in the code that can misbehave asks the script
/// whether to do so, on any thread.
#[derive(Debug)]
struct Script {
    tape: Vec<u8>,
    /// The number of times that the script was asked.
    asked: AtomicUsize,
    /// The number of faults that are left.
    left: AtomicIsize,
    /// The number of faults so far.
    faults: AtomicUsize,
    /// On average, one of `rate` answers is a fault.
    rate: usize,
    /// The enabled sites, as bits.
    sites: u64,
    /// The user's values that have not been dropped yet: the number of each, and the location in
    /// the source where it was created.
    alive: Mutex<BTreeMap<usize, &'static Location<'static>>>,
    /// The number of user's values that were created so far.
    made: AtomicUsize,
    /// Whether claims of a ring may have been made but not returned, so that their tickets never
    /// arrive.
    lost: AtomicBool,
    /// The numbers of the samples that were not written as declared.
    dirty: Mutex<HashSet<i64>>,
}

impl Script {
    fn new(choices: &mut Choices<'_>) -> Arc<Self> {
        let sites = match choices.below(3) {
            // Enabling only a few kinds of faults makes failures easier to analyse.
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
            faults: AtomicUsize::new(0),
            rate,
            sites,
            alive: Mutex::default(),
            made: AtomicUsize::new(0),
            lost: AtomicBool::new(false),
            dirty: Mutex::default(),
        })
    }

    /// Returns the number of the fault to make at `site`, from 1 to `ways`, or 0 to behave
    /// correctly.
    fn ask(&self, site: Site, ways: usize) -> usize {
        if self.sites >> site as u32 & 1 == 0 || self.tape.is_empty() || self.left.load(Ordering::Relaxed) <= 0 {
            return 0;
        }
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        let word = usize::from(self.tape[asked % self.tape.len()]).wrapping_add(asked / self.tape.len() * 37);
        if !word.is_multiple_of(self.rate) || self.left.fetch_sub(1, Ordering::Relaxed) <= 0 {
            return 0;
        }
        self.faults.fetch_add(1, Ordering::Relaxed);
        1 + (word / self.rate + asked / self.tape.len()) % ways
    }

    /// Works like [`ask`](Self::ask), except that fault 1 panics here.
    #[track_caller]
    fn panics(self: &Arc<Self>, site: Site, ways: usize) -> usize {
        match self.ask(site, ways) {
            1 => self.panic(),
            way => way,
        }
    }

    /// Works like [`ask`](Self::ask), except that fault 1 panics here, and fault 2 returns an
    /// error.
    #[track_caller]
    fn fault(self: &Arc<Self>, site: Site, ways: usize) -> Result<usize, BoxError> {
        match self.panics(site, ways) {
            2 => Err(self.error()),
            way => Ok(way),
        }
    }

    /// Returns the `right` value, or misbehaves: panics, or returns one of the `wrong` values.
    #[track_caller]
    fn pick<T: Copy>(self: &Arc<Self>, site: Site, right: T, wrong: &[T]) -> T {
        match self.panics(site, 1 + wrong.len()) {
            0 => right,
            way => wrong[way - 2],
        }
    }

    /// Ends all faults.
    fn stop(&self) {
        self.left.store(0, Ordering::Relaxed);
    }

    fn faults(&self) -> usize {
        self.faults.load(Ordering::Relaxed)
    }

    fn dirty(&self) -> std::sync::MutexGuard<'_, HashSet<i64>> {
        self.dirty.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Panics as a user's code would, but bypasses the panic hook, which would end a fuzzer.
    #[track_caller]
    fn panic(self: &Arc<Self>) -> ! {
        resume_unwind(Box::new(Payload(self.tracked())))
    }

    /// Returns an error of the user's code.
    #[track_caller]
    fn error(self: &Arc<Self>) -> BoxError {
        Box::new(FaultyError(self.tracked(), AtomicUsize::new(3)))
    }

    /// Creates a user's value that is tracked until it is dropped.
    #[track_caller]
    fn tracked(self: &Arc<Self>) -> Tracked {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        self.alive.lock().unwrap_or_else(PoisonError::into_inner).insert(number, Location::caller());
        Tracked { script: self.clone(), number, canary: Box::new(CANARY), quiet: false }
    }

    /// Checks that all values were dropped.
    fn all_dropped(&self) {
        let alive = self.alive.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(alive.is_empty(), "these were not dropped: {:?}", alive.values());
    }

    /// Creates a tracked value whose drop does not panic. It is for values that are moved into a
    /// function and dropped while the function returns: if that drop panicked, rustc would leak the
    /// return value (rust-lang/rust#47949).
    #[track_caller]
    fn quiet(self: &Arc<Self>) -> Tracked {
        let mut tracked = self.tracked();
        tracked.quiet = true;
        tracked
    }
}

const CANARY: u64 = 0x5eed_0fd0_0b75_1234;

/// A user's value, which must be dropped exactly once. Its drop may panic.
#[derive(Debug)]
struct Tracked {
    script: Arc<Script>,
    number: usize,
    /// Allocated on the heap, so that sanitizers detect a second drop.
    canary: Box<u64>,
    quiet: bool,
}

impl Tracked {
    fn check(&self) {
        assert_eq!(*self.canary, CANARY, "a value was corrupted");
    }
}

impl Drop for Tracked {
    fn drop(&mut self) {
        self.check();
        *self.canary = 0;
        let was = self.script.alive.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.number);
        assert!(was.is_some(), "dropped twice");
        // A second panic during unwinding would abort the process.
        if !self.quiet && !std::thread::panicking() && self.script.ask(Site::Drop, 2) == 1 {
            resume_unwind(Box::new(Last));
        }
    }
}

/// The payload of a user's panic.
struct Payload(#[allow(dead_code)] Tracked);

/// The payload of a panic in a drop. It contains no tracked value: if dropping a payload panics,
/// slotline leaks the payload of that second panic.
struct Last;

/// An error whose message and source misbehave.
struct FaultyError(Tracked, AtomicUsize);

impl fmt::Display for FaultyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.script.ask(Site::Words, 3) {
            1 if !std::thread::panicking() => self.0.script.panic(),
            2 => Err(fmt::Error),
            _ => f.write_str("a fault"),
        }
    }
}

impl fmt::Debug for FaultyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for FaultyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self.0.script.ask(Site::Words, 2) {
            1 if !std::thread::panicking() => self.0.script.panic(),
            // Returns itself as its source, a limited number of times, since the chain would
            // otherwise be endless.
            2 if self.1.fetch_sub(1, Ordering::Relaxed).cast_signed() > 0 => Some(self),
            _ => None,
        }
    }
}

thread_local! {
    /// Whether the code that this thread runs is documented to panic in slotline.
    static EXPECTED: Cell<bool> = const { Cell::new(false) };
}

/// The number of unexpected panics in slotline's worker threads.
static UNEXPECTED: AtomicUsize = AtomicUsize::new(0);

/// The messages of std's panics if a user's `Display` or `Debug` returns an error. These are not
/// panics of slotline.
const OF_STD: [&str; 2] =
    ["a Display implementation returned an error unexpectedly", "a formatting trait implementation"];

/// Installs a panic hook that ignores documented panics, and std's panics about a user's `Display`.
/// The previous hook would end a fuzzer.
fn watch_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let message = info.payload_as_str().unwrap_or_default();
            if EXPECTED.get() || OF_STD.iter().any(|known| message.contains(known)) {
                return;
            }
            if std::thread::current().name().is_some_and(|name| name.starts_with("slotline-")) {
                UNEXPECTED.fetch_add(1, Ordering::Relaxed);
            }
            before(info);
        }));
    });
}

/// Runs code in which the user's code may panic. Returns `None` if it did, and resumes any other
/// panic.
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

/// Runs code that is documented to panic if samples misbehave.
fn expected<T>(code: impl FnOnce() -> T) -> Option<T> {
    EXPECTED.set(true);
    let outcome = catch_unwind(AssertUnwindSafe(code));
    EXPECTED.set(false);
    outcome.map_err(discard).ok()
}

fn is_users(panic: &(dyn Any + Send)) -> bool {
    let message = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    panic.is::<Payload>()
        || panic.is::<Last>()
        || OF_STD.iter().any(|known| message.is_some_and(|message| message.contains(known)))
}

/// Drops a value whose drop may panic in the user's code.
fn discard<T>(it: T) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(it))) {
        assert!(is_users(&*panic), "a drop panicked outside the user's code");
        // The drop of the payload may panic too.
        if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
            std::mem::forget(second);
        }
    }
}

/// Panics, in a way that ends a fuzzer, if slotline has panicked unexpectedly since `before`.
fn unexpected_since(before: usize) {
    if UNEXPECTED.load(Ordering::Relaxed) != before {
        panic_any("a worker thread panicked in slotline's code");
    }
}
