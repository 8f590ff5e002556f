//! Random order, as torch's `RandomSampler` draws it.
//!
//! With replacement, a pass of k samples is drawn by k calls of `randint`. (torch draws 32 at a
//! time, which gives the same numbers.) Without replacement, a pass consists of ⌊k / n⌋
//! permutations of the n indices and the first k % n entries of one more, which is drawn even if k
//! % n is 0. So a pass with k = n draws two permutations and uses one. The second one only advances
//! the generator, and is not made.
//!
//! If the sampler has a generator, it draws from that. Otherwise it draws a seed from the default
//! generator for each pass, and then draws from a new generator with that seed.

use std::num::NonZero;
use std::ops::Range;

use super::saved::{Saved, put, put_generator};
use super::{Order, Sampler, SamplerError, make_room};
use crate::BoxError;
use crate::rng::{Generator, IndexWord, SharedGenerator, fill_table, randperm_prefix, skip_randperm};

/// The sampler's name in errors.
const NAME: &str = "RandomSampler";

/// Visits the samples of a dataset in random order (`torch.utils.data.RandomSampler`).
///
/// The order is the same as torch's for the same generator. An order takes 4 bytes for each sample
/// (8 for datasets of more than 2³² samples). Without replacement, memory is needed for
/// `num_samples` rounded up to a multiple of the dataset's length, as the last permutation is made
/// in full before it is cut.
///
/// ```
/// use slotline::rng::Generator;
/// use slotline::sampler::{RandomSampler, Sampler};
///
/// let mut sampler = RandomSampler::new(10)?.generator(Generator::from_seed(42));
/// assert!(sampler.indices()?.eq([2, 6, 1, 8, 4, 5, 0, 9, 3, 7]));
/// # Ok::<(), slotline::sampler::SamplerError>(())
/// ```
#[derive(Clone, Debug)]
pub struct RandomSampler {
    dataset_len: NonZero<usize>,
    /// The number of samples in a pass; `None` for the length of the dataset.
    num_samples: Option<NonZero<usize>>,
    replacement: bool,
    generator: Option<SharedGenerator>,
}

impl RandomSampler {
    /// Makes a sampler that visits each of `dataset_len` samples once per pass. It draws from the default generator.
    ///
    /// # Errors
    ///
    /// [`SamplerError::EmptyDataset`] if `dataset_len` is 0.
    pub fn new(dataset_len: usize) -> Result<Self, SamplerError> {
        let dataset_len = NonZero::new(dataset_len).ok_or(SamplerError::EmptyDataset { sampler: NAME })?;
        Ok(Self { dataset_len, num_samples: None, replacement: false, generator: None })
    }

    /// Sets whether each sample is drawn from the whole dataset, so that samples may repeat; false by default.
    #[must_use]
    pub fn replacement(mut self, replacement: bool) -> Self {
        self.replacement = replacement;
        self
    }

    /// Sets the number of samples in a pass; the length of the dataset by default.
    ///
    /// It may exceed the length of the dataset. Without replacement a pass is then several
    /// permutations in sequence.
    ///
    /// # Errors
    ///
    /// [`SamplerError::NoSamples`] if it is 0.
    pub fn num_samples(mut self, num_samples: usize) -> Result<Self, SamplerError> {
        self.num_samples = Some(NonZero::new(num_samples).ok_or(SamplerError::NoSamples { sampler: NAME })?);
        Ok(self)
    }

    /// Sets the generator to draw from: a [`Generator`] that only this sampler uses, or a
    /// [`SharedGenerator`].
    ///
    /// A clone of the sampler draws from the same generator.
    #[must_use]
    pub fn generator(mut self, generator: impl Into<SharedGenerator>) -> Self {
        self.generator = Some(generator.into());
        self
    }

    /// Returns the number of table entries that drawing a pass needs, or `None` if that overflows.
    fn entries(&self) -> Option<usize> {
        if self.replacement { Some(self.len()) } else { self.len().checked_next_multiple_of(self.dataset_len.get()) }
    }

    /// Returns whether the indices fit in u32.
    fn is_narrow(&self) -> bool {
        u32::fits(self.dataset_len.get())
    }

    /// Draws a pass into a table. Allocates the memory before it uses a generator.
    fn draw<I: IndexWord>(&self, default: &mut Generator, table: &mut Vec<I>) -> Result<(), SamplerError> {
        let (n, k) = (self.dataset_len, self.len());
        let too_large = SamplerError::TooLarge { sampler: NAME, num_samples: k, dataset_len: n.get() };
        let entries = self.entries().ok_or(too_large)?;
        make_room(NAME, table, entries)?;
        let (mut given, mut fresh);
        let generator: &mut Generator = match &self.generator {
            Some(shared) => {
                given = shared.lock();
                &mut given
            }
            None => {
                fresh = Generator::from_seed(default.random_i64() as u64);
                &mut fresh
            }
        };
        if self.replacement {
            draw_with_replacement(generator, n, k, table);
        } else {
            draw_permutations(generator, n.get(), k, table);
        }
        Ok(())
    }
}

impl Sampler for RandomSampler {
    fn len(&self) -> usize {
        self.num_samples.unwrap_or(self.dataset_len).get()
    }

    fn memory(&self) -> usize {
        let entry = if self.is_narrow() { size_of::<u32>() } else { size_of::<u64>() };
        self.entries().unwrap_or(usize::MAX).saturating_mul(entry)
    }

    fn order(&mut self, default: &mut Generator, order: &mut Order) -> Result<(), SamplerError> {
        if self.is_narrow() { self.draw(default, order.u32_table()) } else { self.draw(default, order.u64_table()) }
    }

    fn name(&self) -> &str {
        NAME
    }

    fn save(&self, to: &mut String) -> bool {
        put(to, "dataset_len", self.dataset_len);
        put(to, "num_samples", self.len());
        put(to, "replacement", self.replacement);
        put_generator(to, self.generator.as_ref());
        true
    }

    fn restore(&mut self, saved: &str, _: Range<usize>) -> Result<(), BoxError> {
        let saved = Saved { sampler: NAME, text: saved };
        saved.check("dataset_len", self.dataset_len)?;
        saved.check("num_samples", self.len())?;
        saved.check("replacement", self.replacement)?;
        saved.restore_generator(self.generator.as_ref())
    }
}

/// Fills the empty `table`, whose capacity is at least `k`, with `k` draws from 0 .. `n`.
fn draw_with_replacement<I: IndexWord>(g: &mut Generator, n: NonZero<usize>, k: usize, table: &mut Vec<I>) {
    // No usize is wider than 64 bits, and the maximum is not 0.
    let bound = NonZero::<u64>::try_from(n).unwrap_or(NonZero::<u64>::MAX);
    table.extend((0..k).map(|_| I::from_index(g.randint(bound) as usize)));
}

/// Fills the empty `table` with the first `k` entries of permutations of 0 .. `n`. It has capacity
/// for whole permutations.
fn draw_permutations<I: IndexWord>(generator: &mut Generator, n: usize, k: usize, table: &mut Vec<I>) {
    let rest = k % n;
    fill_table(table, k.div_ceil(n), n);
    let (whole, cut) = table.split_at_mut(k - rest);
    for permutation in whole.chunks_exact_mut(n) {
        randperm_prefix(generator, permutation, n);
    }
    if rest > 0 {
        randperm_prefix(generator, cut, rest);
    } else {
        skip_randperm(generator, n);
    }
    table.truncate(k);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::order_of;
    use proptest::prelude::*;

    #[test]
    fn the_default_generator_only_provides_seeds() {
        let mut default = Generator::from_seed(42);
        let mut sampler = RandomSampler::new(10).unwrap();
        assert_eq!(order_of(&mut sampler, &mut default), [4, 2, 8, 9, 1, 7, 0, 3, 5, 6]);
        assert_eq!(default.drawn(), 2);
        order_of(&mut sampler, &mut default);
        assert_eq!(default.drawn(), 4);
    }

    #[test]
    fn later_passes_reuse_the_memory() {
        let mut default = Generator::new();
        for (n, k, replacement) in [(100, 100, false), (100, 250, false), (100, 30, false), (100, 250, true)] {
            let mut sampler = RandomSampler::new(n).unwrap().num_samples(k).unwrap().replacement(replacement);
            let mut order = Order::default();
            sampler.order(&mut default, &mut order).unwrap();
            let (first, memory) = (order.clone(), order.memory());
            assert_eq!(memory, sampler.memory(), "{sampler:?}");
            let table = order.u32_table().as_ptr();
            sampler.order(&mut default, &mut order).unwrap();
            assert_eq!((order.u32_table().as_ptr(), order.memory()), (table, memory));
            assert_eq!(first.len(), k);
        }
    }

    #[test]
    fn bad_arguments_are_errors() {
        let error = RandomSampler::new(0).unwrap_err().to_string();
        assert!(error.contains("RandomSampler: the dataset is empty"), "{error}");
        let error = RandomSampler::new(1).unwrap().num_samples(0).unwrap_err().to_string();
        assert!(error.contains("num_samples is 0; set it to a positive number"), "{error}");
    }

    #[test]
    fn orders_that_are_too_large_draw_nothing() {
        let mut default = Generator::new();
        let mut order = Order::Range(3);
        let mut whole = RandomSampler::new(usize::MAX).unwrap();
        let error = whole.order(&mut default, &mut order).unwrap_err();
        assert!(matches!(error, SamplerError::Memory { bytes: usize::MAX, .. }), "{error}");
        let mut rounded = RandomSampler::new(usize::MAX / 2 + 1).unwrap().num_samples(usize::MAX).unwrap();
        let error = rounded.order(&mut default, &mut order).unwrap_err();
        assert!(matches!(error, SamplerError::TooLarge { .. }), "{error}");
        assert_eq!((whole.memory(), rounded.memory()), (usize::MAX, usize::MAX));
        assert_eq!((default.drawn(), order.len()), (0, 0));
    }

    proptest! {
        #[test]
        fn a_pass_is_permutations_of_which_the_last_is_cut(n in 1usize..200, k in 1usize..900, seed: u64) {
            let sampler = RandomSampler::new(n).unwrap().num_samples(k).unwrap();
            let given = SharedGenerator::from(Generator::from_seed(seed));
            let mut sampler = sampler.generator(given.clone());
            let indices = order_of(&mut sampler, &mut Generator::new());
            prop_assert_eq!(indices.len(), k);
            for permutation in indices.chunks(n) {
                let mut seen = vec![false; n];
                prop_assert!(permutation.iter().all(|&index| !std::mem::replace(&mut seen[index], true)));
            }
            prop_assert_eq!(given.lock().drawn(), ((k / n + 1) * (n - 1)) as u64);
        }

        #[test]
        fn both_widths_draw_the_same(n in 1usize..200, k in 1usize..900, replacement: bool, seed: u64) {
            let sampler = RandomSampler::new(n).unwrap().num_samples(k).unwrap().replacement(replacement);
            let (mut narrow, mut wide) = (Vec::<u32>::new(), Vec::<u64>::new());
            sampler.draw(&mut Generator::from_seed(seed), &mut narrow).unwrap();
            sampler.draw(&mut Generator::from_seed(seed), &mut wide).unwrap();
            prop_assert!(narrow.iter().map(|&index| u64::from(index)).eq(wide.iter().copied()));
        }
    }
}
