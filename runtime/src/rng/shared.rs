//! Generators that more than one part of a program draws from.
//!
//! In torch a generator is shared by reference: a DataLoader and its sampler draw from the same one, in turn, and
//! where none is given both fall back on the process's default generator. Here a shared one is a lock that is held
//! for as long as it takes to draw.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use super::torch::Generator;

static DEFAULT: LazyLock<Mutex<Generator>> = LazyLock::new(|| Mutex::new(Generator::from_seed(unpredictable_seed())));

/// A generator with several owners, such as a loader and its sampler; a clone is the same generator.
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
pub struct SharedGenerator(Arc<Mutex<Generator>>);

impl SharedGenerator {
    /// The generator, for this thread alone until the guard is dropped.
    ///
    /// A thread that asks for a second guard while it has one waits for itself, forever.
    pub fn lock(&self) -> MutexGuard<'_, Generator> {
        lock(&self.0)
    }
}

impl From<Generator> for SharedGenerator {
    fn from(generator: Generator) -> Self {
        Self(Arc::new(Mutex::new(generator)))
    }
}

/// The process's default generator, for this thread alone until the guard is dropped (`torch.default_generator`).
///
/// Like torch's it starts with an unpredictable seed, made from the operating system's randomness at the first
/// use; [`manual_seed`] gives it a known one. A thread that asks for a second guard while it has one, which
/// whatever draws from the default generator does, waits for itself, forever.
pub fn default_generator() -> MutexGuard<'static, Generator> {
    lock(&DEFAULT)
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

/// Locks even after a panic under the lock: no draw leaves a generator in a state that is not one.
fn lock(generator: &Mutex<Generator>) -> MutexGuard<'_, Generator> {
    generator.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A seed of 53 bits, as torch's own unpredictable seeds are, so that it survives a trip through an f64.
fn unpredictable_seed() -> u64 {
    // The standard library's one door to the system's randomness: the keys of a hash map's hasher.
    RandomState::new().hash_one(()) >> 11
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
