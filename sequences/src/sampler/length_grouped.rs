//! [`LengthGroupedSampler`]: an order with samples of similar lengths next to each other.

use std::cmp::Reverse;
use std::num::NonZero;
use std::ops::Range;
use std::sync::Arc;

use slotline::BoxError;
use slotline::rng::{Generator, IndexWord, SharedGenerator};
use slotline::sampler::{Order, Sampler, SamplerError, Saved, digest, put, put_generator, with_generator};

use super::{SequenceError, permute};

/// The sampler's name in errors.
const NAME: &str = "LengthGroupedSampler";

/// A sampler that visits each sample once, with samples of similar lengths in a batch, so that
/// little of the batch is padding. It gives the same order as Hugging Face's `LengthGroupedSampler`
/// (transformers 5.24) for the same seed.
///
/// For each pass, a permutation of the samples is cut into groups of several batches, and each
/// group is sorted from long to short. The longest sample of all comes first, so that a batch that
/// does not fit in memory fails at once. A group has 50 batches, or fewer if there would otherwise
/// be fewer than four groups.
///
/// ```
/// use slotline::Loader;
/// use slotline::dataset::from_fn;
/// use slotline::rng::Generator;
/// use slotline_sequences::sampler::LengthGroupedSampler;
///
/// let lengths: Vec<usize> = (0..992).map(|i| i * 37 % 100).collect();
/// let sampler = LengthGroupedSampler::new(lengths.clone(), 8)?.generator(Generator::from_seed(42));
/// let dataset = from_fn(992, |index, _| Ok(index as i64));
/// let mut loader = Loader::builder(dataset).batch_size(8).sampler(sampler).build()?;
/// for batch in loader.epoch()? {
///     let batch = batch?;
///     let of_batch = || batch.indices().iter().map(|&index| lengths[index as usize]);
///     assert!(of_batch().max() < of_batch().min().map(|shortest| shortest + 10));
/// }
/// # Ok::<(), slotline::BoxError>(())
/// ```
///
/// Each pass draws a permutation from the generator. For ranks, pass this sampler to
/// [`DistributedSampler::over`](slotline::sampler::DistributedSampler::over): with the same seed
/// and epoch, each rank's samples are those of transformers' `DistributedLengthGroupedSampler`.
/// Give this sampler the batch size of all ranks together, so that their batches of one step have
/// similar lengths. For each sample, the order and the length take 4 bytes each. Drawing takes
/// another 12 bytes for each sample of a group.
#[derive(Clone, Debug)]
pub struct LengthGroupedSampler {
    lengths: Arc<[u32]>,
    batch_size: NonZero<usize>,
    generator: Option<SharedGenerator>,
}

impl LengthGroupedSampler {
    /// Makes a sampler for samples of these lengths in batches of `batch_size`. It draws from the
    /// default generator. There may be no samples.
    ///
    /// # Errors
    ///
    /// [`SamplerError::NoBatchSize`] if `batch_size` is 0, [`SequenceError::Length`] if a length is
    /// 2³² or more.
    pub fn new(lengths: impl IntoIterator<Item = usize>, batch_size: usize) -> Result<Self, SequenceError> {
        let batch_size = NonZero::new(batch_size).ok_or(SamplerError::NoBatchSize { sampler: NAME })?;
        Ok(Self { lengths: checked(NAME, lengths)?, batch_size, generator: None })
    }

    /// Sets the generator to draw from: the sampler's own [`Generator`], or a [`SharedGenerator`].
    ///
    /// A clone of the sampler draws from the same generator.
    #[must_use]
    pub fn generator(mut self, generator: impl Into<SharedGenerator>) -> Self {
        self.generator = Some(generator.into());
        self
    }

    /// Returns the number of samples that are sorted together.
    fn group(&self) -> usize {
        let (n, batch_size) = (self.lengths.len(), self.batch_size.get());
        (n / batch_size.saturating_mul(4)).clamp(1, 50).saturating_mul(batch_size)
    }

    fn draw<I: IndexWord>(&self, generator: &mut Generator, table: &mut Vec<I>) -> Result<(), SamplerError> {
        let (n, group) = (self.lengths.len(), self.group());
        permute(NAME, generator, n, table)?;
        let length = |index: &I| self.lengths[index.index()];
        let mut scratch = Scratch::default();
        for group in table.chunks_mut(group) {
            longest_first(group, length, &mut scratch);
        }
        // Finds the first of the longest samples: each group starts with its longest one.
        let longest = (0..n).step_by(group).min_by_key(|&start| Reverse(length(&table[start])));
        if let Some(start) = longest {
            table.swap(0, start);
        }
        Ok(())
    }
}

/// Buffers for sorting, reused from pass to pass.
#[derive(Clone, Debug)]
pub(super) struct Scratch<I> {
    keys: Vec<u64>,
    indices: Vec<I>,
}

impl<I> Default for Scratch<I> {
    fn default() -> Self {
        Self { keys: Vec::new(), indices: Vec::new() }
    }
}

/// Sorts indices from the longest to the shortest sample; samples of equal length keep their order.
/// The lengths are copied next to the indices for this, which takes a third of the time of looking
/// them up for each comparison.
pub(super) fn longest_first<I: Copy>(indices: &mut [I], length: impl Fn(&I) -> u32, scratch: &mut Scratch<I>) {
    if u32::try_from(indices.len()).is_err() {
        return indices.sort_by_key(|index| Reverse(length(index)));
    }
    let Scratch { keys, indices: copy } = scratch;
    copy.clear();
    copy.extend_from_slice(indices);
    keys.clear();
    keys.extend((0..).zip(copy.iter()).map(|(place, index): (u64, _)| u64::from(!length(index)) << 32 | place));
    keys.sort_unstable();
    indices.iter_mut().zip(keys).for_each(|(index, key)| *index = copy[*key as u32 as usize]);
}

/// Collects lengths. Returns an error if one of them is 2³² or more.
pub(super) fn checked(
    sampler: &'static str,
    lengths: impl IntoIterator<Item = usize>,
) -> Result<Arc<[u32]>, SequenceError> {
    let narrow = |(index, length)| u32::try_from(length).map_err(|_| SequenceError::Length { sampler, index, length });
    lengths.into_iter().enumerate().map(narrow).collect()
}

/// Returns a hash of the lengths.
pub(super) fn digest_of(lengths: &[u32]) -> u64 {
    digest(lengths.iter().map(|&length| length.into()))
}

impl Sampler for LengthGroupedSampler {
    fn len(&self) -> usize {
        self.lengths.len()
    }

    fn memory(&self) -> usize {
        let entry = if u32::fits(self.len()) { size_of::<u32>() } else { size_of::<u64>() };
        let sorting = self.group().min(self.len()).saturating_mul(size_of::<u64>() + entry);
        self.len().saturating_mul(entry).saturating_add(sorting)
    }

    fn order(&mut self, default: &mut Generator, order: &mut Order) -> Result<(), SamplerError> {
        with_generator(self.generator.as_ref(), default, |generator| {
            if u32::fits(self.len()) {
                self.draw(generator, order.u32_table())
            } else {
                self.draw(generator, order.u64_table())
            }
        })
    }

    fn name(&self) -> &str {
        NAME
    }

    fn save(&self, to: &mut String) -> bool {
        put(to, "digest_of_lengths", digest_of(&self.lengths));
        put(to, "batch_size", self.batch_size);
        put_generator(to, self.generator.as_ref());
        true
    }

    fn restore(&mut self, saved: &str, _: Range<usize>) -> Result<(), BoxError> {
        let saved = Saved { sampler: NAME, text: saved };
        saved.check("digest_of_lengths", digest_of(&self.lengths))?;
        saved.check("batch_size", self.batch_size)?;
        saved.restore_generator(self.generator.as_ref())
    }
}
