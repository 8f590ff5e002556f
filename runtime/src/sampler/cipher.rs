//! Random order that is computed, without a table of indices.
//!
//! [`RandomSampler`](super::RandomSampler) needs 4 bytes for each sample, and time to shuffle them
//! before a pass can start. [`CipherSampler`] draws one number from the generator for each pass, and
//! computes each index when it is needed; see [`Cipher`].

use std::ops::Range;

use super::saved::{Saved, put, put_generator};
use super::{Cipher, Order, Sampler, SamplerError, with_generator};
use crate::BoxError;
use crate::rng::{Generator, SharedGenerator};

/// Visits each sample once in random order, without memory for the order. For datasets of billions
/// of samples.
///
/// torch has no such sampler, and the order differs from that of `RandomSampler`. Each pass draws
/// one `random_()` from the generator and uses it as the seed of [`Cipher::new`], with epoch 0.
/// Computing an index takes about 50 ns for any length (up to four times that for fewer than 256
/// samples), on the worker that loads the sample. The dataset may be empty.
///
/// At most 2⁶³ of the n! permutations are possible, since a pass is determined by one number.
///
/// ```
/// use slotline::rng::Generator;
/// use slotline::sampler::{CipherSampler, Order, Sampler};
///
/// let mut sampler = CipherSampler::new(1 << 40).generator(Generator::from_seed(42));
/// let mut order = Order::default();
/// sampler.order(&mut Generator::new(), &mut order)?; // takes no time
/// assert_eq!((order.len(), order.memory()), (1 << 40, 0));
/// assert!(order.index(123_456_789_012) < 1 << 40);
/// # Ok::<(), slotline::sampler::SamplerError>(())
/// ```
#[derive(Clone, Debug)]
pub struct CipherSampler {
    dataset_len: usize,
    generator: Option<SharedGenerator>,
}

impl CipherSampler {
    /// Makes a sampler over a dataset of `dataset_len` samples, which may be 0. It draws from the default generator.
    pub fn new(dataset_len: usize) -> Self {
        Self { dataset_len, generator: None }
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
}

impl Sampler for CipherSampler {
    fn len(&self) -> usize {
        self.dataset_len
    }

    fn memory(&self) -> usize {
        0
    }

    fn order(&mut self, default: &mut Generator, order: &mut Order) -> Result<(), SamplerError> {
        let seed = with_generator(self.generator.as_ref(), default, Generator::random_i64) as u64;
        *order = Cipher::new(self.dataset_len, seed, 0).into();
        Ok(())
    }

    fn name(&self) -> &str {
        "CipherSampler"
    }

    fn save(&self, to: &mut String) -> bool {
        put(to, "dataset_len", self.dataset_len);
        put_generator(to, self.generator.as_ref());
        true
    }

    fn restore(&mut self, saved: &str, _: Range<usize>) -> Result<(), BoxError> {
        let saved = Saved { sampler: "CipherSampler", text: saved };
        saved.check("dataset_len", self.dataset_len)?;
        saved.restore_generator(self.generator.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order_of(sampler: &mut CipherSampler, default: &mut Generator) -> Vec<usize> {
        let mut order = Order::default();
        sampler.order(default, &mut order).unwrap();
        assert_eq!((order.memory(), order.len()), (sampler.memory(), sampler.len()));
        order.iter().collect()
    }

    #[test]
    fn each_pass_draws_one_number_and_differs() {
        let mut default = Generator::from_seed(42);
        let mut sampler = CipherSampler::new(500);
        let first = order_of(&mut sampler, &mut default);
        assert!(first.iter().copied().eq(Order::from(Cipher::new(500, 6_909_045_637_428_952_499, 0)).iter()));
        assert_eq!(default.drawn(), 2);
        let mut second = order_of(&mut sampler, &mut default);
        assert_ne!(first, second);
        second.sort_unstable();
        assert!(second.into_iter().eq(0..500));
    }

    #[test]
    fn a_given_generator_is_used_instead_of_the_default_one() {
        let (given, mut default) = (SharedGenerator::from(Generator::from_seed(42)), Generator::new());
        let mut sampler = CipherSampler::new(500).generator(given.clone());
        let first = order_of(&mut sampler, &mut default);
        assert_eq!((given.lock().drawn(), default.drawn()), (2, 0));
        assert_eq!(first, order_of(&mut CipherSampler::new(500), &mut Generator::from_seed(42)));
    }

    #[test]
    fn an_empty_dataset_has_an_empty_pass() {
        assert!(order_of(&mut CipherSampler::new(0), &mut Generator::new()).is_empty());
    }
}
