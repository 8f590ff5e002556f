//! Generators that several parts of a program draw from.
//!
//! In torch a generator is shared by reference: a DataLoader and its sampler draw from the same one, in turn, and both
//! fall back to the process's default generator if none is given. Here a shared generator is behind a lock, which is
//! held while drawing.
//!
//! A process may be forked while another thread draws. That thread does not exist in the child: the lock stays locked,
//! and the state behind it may be half updated. So each process has its own lock, made when it is first needed. It
//! starts with a copy of the parent's state if no thread held the parent's lock at the fork, and with a new seed
//! otherwise.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;

use super::torch::Generator;
use crate::fork::Process;

static DEFAULT: Shared = Shared::new();

/// A generator with several owners, such as a loader and its sampler. A clone is the same generator.
///
/// In a forked process it is a separate generator that continues from the same point. If another thread held it at the
/// fork, it starts over with an unpredictable seed, because that thread's progress is unknown.
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
    /// Locks the generator for this thread until the guard is dropped.
    ///
    /// A thread that requests a second guard while it holds one deadlocks.
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

/// Locks the process's default generator for this thread until the guard is dropped (`torch.default_generator`).
///
/// Like torch's, it starts with an unpredictable seed, made from the operating system's randomness at the first use;
/// [`manual_seed`] sets a known one. A thread deadlocks if it holds a guard and requests a second one, which every
/// function that draws from the default generator does.
///
/// In a forked process it continues from the same point. If another thread held it at the fork, it starts over with an
/// unpredictable seed.
pub fn default_generator() -> MutexGuard<'static, Generator> {
    DEFAULT.lock()
}

/// Restarts the process's default generator with `seed` (`torch.manual_seed`).
///
/// ```
/// slotline::rng::manual_seed(42);
/// assert_eq!(slotline::rng::default_generator().random_i64(), 6909045637428952499);
/// ```
pub fn manual_seed(seed: u64) {
    default_generator().manual_seed(seed);
}

/// A generator behind a lock that belongs to the current process.
struct Shared {
    /// Null until it is first locked. Each `Locked` stays allocated as long as this value, since guards may borrow it.
    current: AtomicPtr<Locked>,
    /// The process in which a thread makes, or made, the lock: see [`Process::number`].
    maker: AtomicU64,
}

/// The lock of one process.
struct Locked {
    generator: Mutex<Generator>,
    process: Process,
    /// The lock of the process that this one was forked from, or null.
    parents: *mut Locked,
}

// SAFETY: the parent's `Locked` is only accessed through `&Locked`, of which all but the pointer is `Sync`, and freed
// with `Shared`.
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

    /// Locks even after a panic under the lock: every draw leaves the generator in a valid state.
    fn lock(&self) -> MutexGuard<'_, Generator> {
        loop {
            if let Some(locked) = self.current().filter(|locked| locked.process.is_this()) {
                return locked.generator.lock().unwrap_or_else(PoisonError::into_inner);
            }
            // The thread that makes it locks the parent's lock briefly, which must not look as if it had been held at
            // the fork.
            let process = Process::this().number();
            if self.maker.swap(process, Ordering::Relaxed) == process {
                thread::yield_now();
            } else {
                self.make();
            }
        }
    }

    fn current(&self) -> Option<&Locked> {
        // SAFETY: the pointer is null, or from a box that `put` leaked and only `drop` frees.
        unsafe { self.current.load(Ordering::Acquire).as_ref() }
    }

    /// Makes this process's lock. Called by one thread of the process, once.
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
            // SAFETY: `put` leaked the box, each is in the list once, and guards of it would borrow `self`.
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

/// Returns a seed of 53 bits, like torch's unpredictable seeds, so that it survives a conversion to f64.
fn unpredictable_seed() -> u64 {
    // The only access to the system's randomness in the standard library: the keys of a hash map's hasher. A forked
    // process inherits its parent's keys.
    RandomState::new().hash_one(std::process::id()) >> 11
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The only test that uses the process's default generator, since tests of one process run concurrently.
    #[test]
    fn the_default_generator_can_be_seeded() {
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
