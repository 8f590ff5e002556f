//! Generators that several parts of a program draw from.
//!
//! In torch a generator is shared by reference: a DataLoader and its sampler can draw from the same
//! one, in turn, and both use the process's default generator if none is given. Here a shared
//! generator is behind a lock, which is held while drawing.
//!
//! A process may be forked while another thread draws. That thread does not exist in the child, so
//! the lock stays locked, and the state behind it may be half updated. So each process has a lock
//! of its own, made when it is first needed. Its generator starts as a copy of the parent's if no
//! thread held the parent's lock at the fork, and otherwise with an unpredictable seed.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;

use super::torch::Generator;
use crate::fork::Process;

static DEFAULT: Shared = Shared::new();

/// A generator with several owners, such as a loader and its sampler. Clones share one generator.
///
/// In a forked process, the generator is separate and continues from the same point. If another
/// thread had locked it at the fork, it restarts with an unpredictable seed in the forked process,
/// because that thread's progress is unknown.
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
    /// A thread deadlocks if it calls this while it holds a guard of the same generator.
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

/// Locks the process's default generator (`torch.default_generator`) for this thread until the
/// guard is dropped.
///
/// As in torch, the generator starts with an unpredictable seed, made from the operating system's
/// randomness at the first use; [`manual_seed`] sets another seed. A thread that holds a guard
/// deadlocks if it requests a second one, which every function that draws from the default
/// generator does.
///
/// In a forked process, the generator continues from the same point. If another thread had locked
/// it at the fork, it restarts with an unpredictable seed.
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
    /// The lock of the current process; null until it is first locked. Each `Locked` stays
    /// allocated as long as this value, since guards may borrow it.
    current: AtomicPtr<Locked>,
    /// The [number](Process::number) of the last process in which a thread began to make the lock.
    maker: AtomicU64,
}

/// The lock of one process.
struct Locked {
    generator: Mutex<Generator>,
    process: Process,
    /// The lock of the process that this one was forked from, or null.
    parents: *mut Locked,
}

// SAFETY: the parent's `Locked` is only accessed through `&Locked`, all of whose fields except the
// pointer are `Sync`, and it is freed together with `Shared`.
unsafe impl Send for Locked {}
// SAFETY: the pointer is only read, and the other fields are `Sync`.
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

    /// Locks the generator, even if a thread panicked while it held the lock: every draw leaves the
    /// generator in a valid state.
    fn lock(&self) -> MutexGuard<'_, Generator> {
        loop {
            if let Some(locked) = self.current().filter(|locked| locked.process.is_this()) {
                return locked.generator.lock().unwrap_or_else(PoisonError::into_inner);
            }
            // Only one thread makes the lock. It briefly locks the parent's lock, which would look
            // to a second thread as if it had been held at the fork.
            let process = Process::this().number();
            if self.maker.swap(process, Ordering::Relaxed) == process {
                thread::yield_now();
            } else {
                self.make();
            }
        }
    }

    fn current(&self) -> Option<&Locked> {
        // SAFETY: the pointer is null, or from a box that `put` leaked and that only `drop` frees.
        unsafe { self.current.load(Ordering::Acquire).as_ref() }
    }

    /// Makes the lock of this process. Only one thread of the process may call it, once.
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
            // SAFETY: `put` leaked the box, each box is in the list once, and a guard of it would
            // borrow `self`.
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

/// Returns an unpredictable seed of 53 bits, as torch does, so that it can be converted to f64 and
/// back.
fn unpredictable_seed() -> u64 {
    // The standard library gives access to the system's randomness only through the keys of a hash
    // map's hasher. A forked process inherits its parent's keys, so the process's number is hashed.
    RandomState::new().hash_one(std::process::id()) >> 11
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This is the only test that uses the process's default generator, since the tests of a
    /// process run concurrently.
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
