//! torch's CPU generator.
//!
//! The generator is mt19937, seeded with the low 32 bits of the seed. To draw torch's numbers, each
//! kind of draw must use its words as torch does: 64 bits are two words, the high one first; a
//! bounded integer is a plain remainder; a uniform f64 is the low 53 of 64 bits. No draw keeps
//! state for the next one.

use std::convert::Infallible;
use std::fmt;
use std::num::NonZero;

use rand_core::{Rng, SeedableRng, TryRng, utils};

use super::mt19937::Mt19937;
use super::permutation::{self, IndexWord, RandpermError};

/// The seed of a `torch.Generator()` without a seed (c10's `default_rng_seed_val`).
const DEFAULT_SEED: u64 = 67_280_421_310_721;

/// From this bound on, torch's `randint` uses 64 bits per number instead of 32.
const WIDE_RANDINT: u64 = 1 << 28;

/// torch's CPU random number generator, bit for bit (`torch.Generator`).
///
/// It takes about 5 KiB and no heap memory. It is not cryptographically secure. A clone is an
/// independent generator at the same point of the same sequence.
///
/// Through [`rand_core`]'s traits, `next_u32` and `next_u64` are torch's `random()` and
/// `random64()`, and `fill_bytes` writes 32-bit words, little-endian. The distributions of the
/// crate `rand` do not give torch's numbers.
///
/// ```
/// use slotline::rng::Generator;
///
/// let mut generator = Generator::from_seed(42); // torch.Generator().manual_seed(42)
/// assert_eq!(generator.random_i64(), 6909045637428952499);
/// ```
#[derive(Clone)]
pub struct Generator {
    engine: Mt19937,
    seed: u64,
}

impl Generator {
    /// Makes a generator with torch's default seed, 67280421310721, like `torch.Generator()`.
    pub fn new() -> Self {
        Self::from_seed(DEFAULT_SEED)
    }

    /// Makes a generator with the given seed, like `torch.Generator().manual_seed(seed)`.
    ///
    /// As in torch, only the low 32 bits affect the numbers. The other bits only appear in
    /// [`initial_seed`](Self::initial_seed). Negative seeds of torch wrap: -1 is `u64::MAX`.
    ///
    /// (The trait [`SeedableRng`] has a function of the same name, which takes the seed as eight
    /// bytes, little-endian.)
    pub fn from_seed(seed: u64) -> Self {
        Self { engine: Mt19937::new(seed as u32), seed }
    }

    /// Restarts the generator with another seed.
    pub fn manual_seed(&mut self, seed: u64) {
        *self = Self::from_seed(seed);
    }

    /// Returns the seed that was last set, with all 64 bits.
    pub fn initial_seed(&self) -> u64 {
        self.seed
    }

    /// Returns the number of 32-bit words drawn since seeding.
    ///
    /// The result and [`initial_seed`](Self::initial_seed) are the generator's whole state, in 16
    /// bytes: a new generator with that seed that [discards](Self::discard) this many words is at
    /// the same point.
    ///
    /// ```
    /// use slotline::rng::Generator;
    ///
    /// let mut generator = Generator::from_seed(7);
    /// generator.rand_f64();
    /// let (seed, drawn) = (generator.initial_seed(), generator.drawn());
    ///
    /// let mut restored = Generator::from_seed(seed);
    /// restored.discard(drawn);
    /// assert_eq!(restored.random_i64(), generator.random_i64());
    /// ```
    pub fn drawn(&self) -> u64 {
        self.engine.drawn()
    }

    /// Skips the next `words` 32-bit words. Takes a few milliseconds at most.
    pub fn discard(&mut self, words: u64) {
        self.engine.discard(words);
    }

    /// Draws an integer from 0 to 2⁶³-1, like `tensor.random_()` on int64. torch makes its seeds in
    /// this way.
    pub fn random_i64(&mut self) -> i64 {
        (self.next_u64() & (u64::MAX >> 1)) as i64
    }

    /// Draws an integer from 0 to `n` - 1, like `torch.randint(n, ())`.
    ///
    /// The result is the remainder, after division by `n`, of 32 random bits if `n` is below 2²⁸, and
    /// of 64 random bits otherwise. So small results are very slightly more likely than large ones.
    #[inline]
    pub fn randint(&mut self, n: NonZero<u64>) -> u64 {
        if n.get() < WIDE_RANDINT {
            // On many processors, a 32-bit division is much faster than a 64-bit one.
            u64::from(self.engine.next_u32() % n.get() as u32)
        } else {
            self.next_u64() % n
        }
    }

    /// Draws a number in [0, 1), a multiple of 2⁻⁵³, like `torch.rand((), dtype=torch.float64)`.
    pub fn rand_f64(&mut self) -> f64 {
        const BITS: u64 = 1 << 53;
        (self.next_u64() & (BITS - 1)) as f64 / BITS as f64
    }

    /// Replaces the contents of `out` with a random permutation of 0 .. `n`, the one that
    /// `torch.randperm(n)` returns.
    ///
    /// The memory of `out` is reused, and nothing is allocated if its capacity is at least `n`.
    /// `u32` entries take half the memory of `u64`, and give the same permutation.
    ///
    /// # Errors
    ///
    /// If an index would not fit in `out`'s type, or the memory cannot be allocated. Nothing is
    /// drawn then, and `out` is empty.
    ///
    /// ```
    /// use slotline::rng::Generator;
    ///
    /// let mut indices: Vec<u32> = Vec::new();
    /// Generator::from_seed(42).randperm_into(10, &mut indices)?;
    /// assert_eq!(indices, [2, 6, 1, 8, 4, 5, 0, 9, 3, 7]);
    /// # Ok::<(), slotline::rng::RandpermError>(())
    /// ```
    pub fn randperm_into<I: IndexWord>(&mut self, n: usize, out: &mut Vec<I>) -> Result<(), RandpermError> {
        permutation::randperm_into(self, n, out)
    }

    /// Draws between 1 and `most` words at once; see [`Mt19937::run`].
    #[inline]
    pub(super) fn run(&mut self, most: usize) -> &[u32] {
        self.engine.run(most)
    }
}

impl Default for Generator {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Generator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Generator").field("seed", &self.seed).field("drawn", &self.drawn()).finish()
    }
}

impl TryRng for Generator {
    type Error = Infallible;

    #[inline]
    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok(self.engine.next_u32())
    }

    #[inline]
    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        let high = u64::from(self.engine.next_u32());
        let low = u64::from(self.engine.next_u32());
        Ok(high << 32 | low)
    }

    fn try_fill_bytes(&mut self, dst: &mut [u8]) -> Result<(), Infallible> {
        utils::fill_bytes_via_next_word(dst, || self.try_next_u32())
    }
}

impl SeedableRng for Generator {
    type Seed = [u8; 8];

    fn from_seed(seed: [u8; 8]) -> Self {
        Self::from_seed(u64::from_le_bytes(seed))
    }

    /// Uses the seed as torch does, without the scrambling that [`SeedableRng`] recommends.
    fn seed_from_u64(seed: u64) -> Self {
        Self::from_seed(seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unseeded_generator_has_torchs_seed() {
        assert_eq!(Generator::new().initial_seed(), 67_280_421_310_721);
        assert_eq!(Generator::default().random_i64(), Generator::from_seed(DEFAULT_SEED).random_i64());
    }

    #[test]
    fn only_the_low_half_of_a_seed_matters() {
        let (mut low, mut high) = (Generator::from_seed(5), Generator::from_seed((9 << 32) + 5));
        assert_eq!(low.random_i64(), high.random_i64());
        assert_eq!(high.initial_seed(), (9 << 32) + 5);
        high.manual_seed(u64::MAX);
        assert_eq!((high.initial_seed(), high.drawn()), (u64::MAX, 0));
    }

    #[test]
    fn randint_draws_two_words_from_two_to_the_28() {
        let bound = |n| NonZero::new(n).unwrap();
        for (n, words) in [(1, 1), (1000, 1), ((1 << 28) - 1, 1), (1 << 28, 2), (u64::MAX, 2)] {
            let mut generator = Generator::from_seed(3);
            let mut same = generator.clone();
            let drawn = generator.randint(bound(n));
            assert_eq!(generator.drawn(), words, "n = {n}");
            let bits = if words == 1 { u64::from(same.next_u32()) } else { same.next_u64() };
            assert_eq!(drawn, bits % n, "n = {n}");
        }
    }

    #[test]
    fn the_rand_core_traits_give_torchs_words() {
        let mut generator: Generator = SeedableRng::seed_from_u64(42);
        let mut words = Generator::from_seed(42);
        let (first, second) = (words.next_u32(), words.next_u32());
        assert_eq!(generator.next_u64(), u64::from(first) << 32 | u64::from(second));
        let mut bytes = [0; 6];
        generator.fill_bytes(&mut bytes);
        assert_eq!(bytes[..4], words.next_u32().to_le_bytes());
        assert_eq!(bytes[4..], words.next_u32().to_le_bytes()[..2]);
        assert_eq!(<Generator as SeedableRng>::from_seed([1, 2, 0, 0, 0, 0, 0, 0]).initial_seed(), 513);
    }

    #[test]
    fn debug_shows_the_state_in_one_line() {
        let mut generator = Generator::from_seed(1);
        generator.next_u64();
        assert_eq!(format!("{generator:?}"), "Generator { seed: 1, drawn: 2 }");
    }
}
