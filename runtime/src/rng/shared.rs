//! Generators that more than one part of a program draws from.
//!
//! In torch a generator is shared by reference: a DataLoader and its sampler draw from the same one, in turn, and
//! where none is given both fall back on the process's default generator. Here a shared one is a lock that is held
//! for as long as it takes to draw.
//!
//! A process may be forked while another thread draws. In the child that thread is gone: the lock stays locked, and the
//! state behind it may be half drawn. So each process has a lock of its own, made when it first asks for it: with a copy
//! of the parent's state if nobody held the parent's lock at the fork, and otherwise with a new seed.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;

use super::torch::Generator;
use crate::fork::Process;

static DEFAULT: Shared = Shared::new();

/// A generator with several owners, such as a loader and its sampler; a clone is the same generator.
///
/// In a forked process it is a generator of its own that goes on from the same point; if another thread held it at the fork,
/// it starts over with an unpredictable seed, as nobody can tell how far that thread had come.
///
/// ```
/// use slotline::rng::{Generator, SharedGenerator};
///
/// let ours = SharedGenerator::from(Generator::from_seed(42));
/// let theirs = ours.clone();
/// assert_eq!(theirs.lock().random_i64(), 6909045637428952499);
/// assert_ne!(ours.lock().random_i64(), 6909045637428952499); // the next one of the same sequence
/// ```
#[derive(Clone, Debug)]
pub struct SharedGenerator(Arc<Shared>);

impl SharedGenerator {
    /// The generator, for this thread alone until the guard is dropped.
    ///
    /// A thread that asks for a second guard while it has one waits for itself, forever.
    pub fn lock(&self) -> MutexGuard<'_, Generator> {
        self.0.lock()
    }
}

impl From<Generator> for SharedGenerator {
    fn from(generator: Generator) -> Self {
        let shared = Shared::new();
        shared.put(Locked::new(generator, null_mut()));
        Self(Arc::new(shared))
    }
}

/// The process's default generator, for this thread alone until the guard is dropped (`torch.default_generator`).
///
/// Like torch's it starts with an unpredictable seed, made from the operating system's randomness at the first
/// use; [`manual_seed`] gives it a known one. A thread that asks for a second guard while it has one, which
/// whatever draws from the default generator does, waits for itself, forever.
///
/// In a forked process it goes on from the same point, or, if a thread held it at the fork, starts over with an unpredictable
/// seed.
pub fn default_generator() -> MutexGuard<'static, Generator> {
    DEFAULT.lock()
}

/// Starts the process's default generator over with `seed` (`torch.manual_seed`).
///
/// ```
/// slotline::rng::manual_seed(42);
/// assert_eq!(slotline::rng::default_generator().random_i64(), 6909045637428952499);
/// ```
pub fn manual_seed(seed: u64) {
    default_generator().manual_seed(seed);
}

/// A generator behind a lock of this process's own.
struct Shared {
    /// Null until it is first locked. Each `Locked` stays where it is as long as this: there may be guards of it.
    current: AtomicPtr<Locked>,
    /// The process in which a thread makes the lock, or made it: see [`Process::number`].
    maker: AtomicU64,
}

/// The lock of one process.
struct Locked {
    generator: Mutex<Generator>,
    process: Process,
    /// That of the process which this one was forked from, or null.
    parents: *mut Locked,
}

// SAFETY: the parent's is only looked at through `&Locked`, of which all but the pointer is `Sync`, and dropped with `Shared`.
unsafe impl Send for Locked {}
// SAFETY: as above.
unsafe impl Sync for Locked {}

impl Locked {
    fn new(generator: Generator, parents: *mut Locked) -> Self {
        Self { generator: Mutex::new(generator), process: Process::this(), parents }
    }
}

impl Shared {
    const fn new() -> Self {
        Self { current: AtomicPtr::new(null_mut()), maker: AtomicU64::new(0) }
    }

    /// Locks even after a panic under the lock: no draw leaves a generator in a state that is not one.
    fn lock(&self) -> MutexGuard<'_, Generator> {
        loop {
            if let Some(locked) = self.current().filter(|locked| locked.process.is_this()) {
                return locked.generator.lock().unwrap_or_else(PoisonError::into_inner);
            }
            // Whoever makes it locks the parent's for a moment, which must not look as if it had been held at the fork.
            let process = Process::this().number();
            if self.maker.swap(process, Ordering::Relaxed) == process {
                thread::yield_now();
            } else {
                self.make();
            }
        }
    }

    fn current(&self) -> Option<&Locked> {
        // SAFETY: null, or a box's that `put` leaked and only `drop` takes back.
        unsafe { self.current.load(Ordering::Acquire).as_ref() }
    }

    /// Makes this process's lock. For one thread of the process, once.
    #[cold]
    fn make(&self) {
        let whole = self.current().and_then(|parents| match parents.generator.try_lock() {
            Ok(generator) => Some(generator.clone()),
            Err(TryLockError::Poisoned(generator)) => Some(generator.into_inner().clone()),
            Err(TryLockError::WouldBlock) => None,
        });
        let generator = whole.unwrap_or_else(|| Generator::from_seed(unpredictable_seed()));
        self.put(Locked::new(generator, self.current.load(Ordering::Relaxed)));
    }

    fn put(&self, locked: Locked) {
        self.current.store(Box::into_raw(Box::new(locked)), Ordering::Release);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let mut next = *self.current.get_mut();
        while !next.is_null() {
            // SAFETY: `put` leaked it, each is in the list once, and guards of it would borrow this.
            next = unsafe { Box::from_raw(next) }.parents;
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.current() {
            Some(locked) => locked.generator.fmt(f),
            None => f.write_str("Generator(unused)"),
        }
    }
}

/// A seed of 53 bits, as torch's own unpredictable seeds are, so that it survives a trip through an f64.
fn unpredictable_seed() -> u64 {
    // The standard library's one door to the system's randomness: the keys of a hash map's hasher. A forked process has its
    // parent's.
    RandomState::new().hash_one(std::process::id()) >> 11
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The one test that touches the process's default, as tests of a process run at the same time.
    #[test]
    fn the_default_generator_starts_unpredictably_and_can_be_seeded() {
        let seed = default_generator().initial_seed();
        assert!(seed < 1 << 53);
        assert_ne!(unpredictable_seed(), unpredictable_seed());
        manual_seed(42);
        assert_eq!(default_generator().random_i64(), 6_909_045_637_428_952_499);
    }

    #[test]
    fn a_shared_generator_survives_a_panic_under_its_lock() {
        let shared = SharedGenerator::from(Generator::from_seed(1));
        let clone = shared.clone();
        let panicked = std::thread::spawn(move || {
            let _guard = clone.lock();
            panic!("on purpose");
        });
        assert!(panicked.join().is_err());
        assert_eq!(shared.lock().initial_seed(), 1);
    }
}
