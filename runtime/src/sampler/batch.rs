//! Groups a sampler's indices into batches, as torch's `BatchSampler` does.

use std::iter::FusedIterator;
use std::num::NonZero;
use std::ops::Range;

use super::{Order, Sampler, SamplerError};
use crate::rng::{Generator, default_generator};

/// The sampler's name in errors.
const NAME: &str = "BatchSampler";

/// Groups another sampler's indices into batches (`torch.utils.data.BatchSampler`).
///
/// The sampler keeps the memory of its last pass. From the second pass on only the lists of indices
/// are allocated, and with [`Batches::next_into`] not even those.
///
/// ```
/// use slotline::sampler::{BatchSampler, SequentialSampler};
///
/// let mut sampler = BatchSampler::new(SequentialSampler::new(10), 4, false)?;
/// assert_eq!(sampler.len(), 3);
/// assert!(sampler.batches()?.eq([vec![0, 1, 2, 3], vec![4, 5, 6, 7], vec![8, 9]]));
/// # Ok::<(), slotline::sampler::SamplerError>(())
/// ```
#[derive(Clone, Debug)]
pub struct BatchSampler<S> {
    sampler: S,
    batch_size: NonZero<usize>,
    drop_last: bool,
    /// The order of the last pass, kept for its memory.
    order: Order,
}

impl<S: Sampler> BatchSampler<S> {
    /// Groups `sampler`'s indices into batches of `batch_size`. With `drop_last`, the last batch is
    /// left out if it is smaller.
    ///
    /// # Errors
    ///
    /// [`SamplerError::NoBatchSize`] if `batch_size` is 0.
    pub fn new(sampler: S, batch_size: usize, drop_last: bool) -> Result<Self, SamplerError> {
        let batch_size = NonZero::new(batch_size).ok_or(SamplerError::NoBatchSize { sampler: NAME })?;
        Ok(Self { sampler, batch_size, drop_last, order: Order::default() })
    }

    /// Returns the sampler, the batch size, and whether a smaller last batch is left out.
    pub fn into_parts(self) -> (S, usize, bool) {
        (self.sampler, self.batch_size.get(), self.drop_last)
    }

    /// Returns the number of batches in a pass.
    pub fn len(&self) -> usize {
        batches_of(self.sampler.len(), self.batch_size, self.drop_last)
    }

    /// Returns whether a pass has no batches.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the size in bytes of the memory for the order of a pass, which is kept between
    /// passes: the wrapped sampler's [`memory`](Sampler::memory).
    pub fn memory(&self) -> usize {
        self.sampler.memory()
    }

    /// Returns the wrapped sampler.
    pub fn sampler(&self) -> &S {
        &self.sampler
    }

    /// Draws the indices of the next pass and returns its batches. Locks the process's default generator while drawing.
    ///
    /// # Errors
    ///
    /// The errors of the wrapped sampler's [`order`](Sampler::order).
    pub fn batches(&mut self) -> Result<Batches<'_>, SamplerError> {
        self.batches_by(&mut default_generator())
    }

    /// Works like [`batches`](Self::batches), with another generator instead of the default one.
    ///
    /// # Errors
    ///
    /// The errors of the wrapped sampler's [`order`](Sampler::order).
    pub fn batches_by(&mut self, default: &mut Generator) -> Result<Batches<'_>, SamplerError> {
        self.sampler.order(default, &mut self.order)?;
        let batches = 0..batches_of(self.order.len(), self.batch_size, self.drop_last);
        Ok(Batches { order: &self.order, batch_size: self.batch_size, batches })
    }
}

/// A sampler together with the way in which its order is divided into batches, for
/// [`Builder::batch_sampler`](crate::loader::Builder::batch_sampler). Made from a [`BatchSampler`],
/// or from a sampler that [plans](Self::planned) batches of different sizes.
pub struct SampledBatches {
    pub(crate) sampler: Box<dyn Sampler>,
    /// The number of samples in a full batch, or the maximum if the sampler plans the batches.
    pub(crate) batch_size: usize,
    pub(crate) drop_last: bool,
    /// Whether the sampler plans which positions a batch has ([`Sampler::spans`]).
    pub(crate) is_planned: bool,
}

impl SampledBatches {
    /// Makes the batches that a sampler plans. [`Sampler::spans`] returns which positions of each
    /// order belong to which batch. No batch may have more than `max_batch_size` samples.
    ///
    /// [`Sampler::restore`] then receives a range of batch numbers instead of one of positions.
    ///
    /// ```
    /// use slotline::Loader;
    /// use slotline::dataset::from_fn;
    /// use slotline::rng::Generator;
    /// use slotline::sampler::{Order, SampledBatches, Sampler, SamplerError, Spans};
    ///
    /// /// Chapters as batches, in order.
    /// struct Chapters(Vec<u32>);
    ///
    /// impl Sampler for Chapters {
    ///     fn len(&self) -> usize {
    ///         self.0.last().map_or(0, |&end| end as usize)
    ///     }
    ///
    ///     fn memory(&self) -> usize {
    ///         self.0.len() * size_of::<u32>()
    ///     }
    ///
    ///     fn order(&mut self, _: &mut Generator, order: &mut Order) -> Result<(), SamplerError> {
    ///         *order = Order::Range(self.len());
    ///         Ok(())
    ///     }
    ///
    ///     fn spans(&self) -> Option<Spans> {
    ///         Some(Spans::new(self.0.clone()))
    ///     }
    /// }
    ///
    /// let pages = from_fn(9, |index, _| Ok(index as i64));
    /// let chapters = SampledBatches::planned(Chapters(vec![4, 5, 9]), 4);
    /// let mut loader = Loader::builder(pages).batch_sampler(chapters).build()?;
    /// let sizes: Result<Vec<usize>, slotline::Error> = loader.epoch()?.map(|batch| Ok(batch?.len())).collect();
    /// assert_eq!(sizes?, [4, 1, 4]);
    /// # Ok::<(), slotline::BoxError>(())
    /// ```
    pub fn planned(sampler: impl Sampler + 'static, max_batch_size: usize) -> Self {
        let batch_size = max_batch_size.max(1);
        Self { sampler: Box::new(sampler), batch_size, drop_last: false, is_planned: true }
    }
}

impl std::fmt::Debug for SampledBatches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SampledBatches").field("sampler", &self.sampler.name()).finish_non_exhaustive()
    }
}

impl<S: Sampler + 'static> From<BatchSampler<S>> for SampledBatches {
    fn from(batches: BatchSampler<S>) -> Self {
        let (sampler, batch_size, drop_last) = batches.into_parts();
        Self { sampler: Box::new(sampler), batch_size, drop_last, is_planned: false }
    }
}

/// Returns the number of batches for `samples` samples.
fn batches_of(samples: usize, batch_size: NonZero<usize>, drop_last: bool) -> usize {
    if drop_last { samples / batch_size } else { samples.div_ceil(batch_size.get()) }
}

/// An iterator over the batches of a [`BatchSampler`]'s pass, each a list of indices.
#[derive(Clone, Debug)]
pub struct Batches<'a> {
    order: &'a Order,
    batch_size: NonZero<usize>,
    /// The numbers of the remaining batches.
    batches: Range<usize>,
}

impl Batches<'_> {
    /// Replaces the contents of `batch` with the next batch, and returns whether there was one.
    ///
    /// ```
    /// use slotline::sampler::{BatchSampler, SequentialSampler};
    ///
    /// let mut sampler = BatchSampler::new(SequentialSampler::new(10), 4, true)?;
    /// let (mut batches, mut batch) = (sampler.batches()?, Vec::new());
    /// let mut sums = Vec::new();
    /// while batches.next_into(&mut batch) {
    ///     sums.push(batch.iter().sum::<usize>());
    /// }
    /// assert_eq!(sums, [6, 22]);
    /// # Ok::<(), slotline::sampler::SamplerError>(())
    /// ```
    pub fn next_into(&mut self, batch: &mut Vec<usize>) -> bool {
        batch.clear();
        let Some(number) = self.batches.next() else { return false };
        batch.extend(self.positions(number).map(|position| self.order.index(position)));
        true
    }

    /// Returns the positions of batch `number`, which must exist.
    fn positions(&self, number: usize) -> Range<usize> {
        let start = number * self.batch_size.get();
        start..start.saturating_add(self.batch_size.get()).min(self.order.len())
    }
}

impl Iterator for Batches<'_> {
    type Item = Vec<usize>;

    fn next(&mut self) -> Option<Vec<usize>> {
        let mut batch = Vec::new();
        self.next_into(&mut batch).then_some(batch)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.batches.size_hint()
    }

    fn nth(&mut self, n: usize) -> Option<Vec<usize>> {
        self.batches.by_ref().take(n).for_each(drop);
        self.next()
    }
}

impl ExactSizeIterator for Batches<'_> {}
impl FusedIterator for Batches<'_> {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::{CipherSampler, RandomSampler, SequentialSampler};
    use proptest::prelude::*;

    #[test]
    fn a_batch_size_of_0_is_an_error() {
        let error = BatchSampler::new(SequentialSampler::new(1), 0, true).unwrap_err().to_string();
        assert!(error.contains("BatchSampler: batch_size is 0; set it to a positive number"), "{error}");
    }

    #[test]
    fn later_passes_reuse_the_memory() {
        let mut sampler = BatchSampler::new(RandomSampler::new(100).unwrap(), 7, false).unwrap();
        let (mut default, mut batch) = (Generator::new(), Vec::with_capacity(7));
        assert_eq!(sampler.batches_by(&mut default).unwrap().count(), 15);
        let (memory, start) = (sampler.order.memory(), batch.as_ptr());
        assert_eq!(memory, sampler.memory());
        let mut batches = sampler.batches_by(&mut default).unwrap();
        while batches.next_into(&mut batch) {}
        assert_eq!((sampler.order.memory(), batch.as_ptr(), batch.capacity()), (memory, start, 7));
    }

    #[test]
    #[cfg(target_pointer_width = "64")]
    fn huge_lengths_do_not_overflow() {
        let huge: Box<dyn Sampler> = Box::new(CipherSampler::new(usize::MAX));
        let mut sampler = BatchSampler::new(huge, 1 << 60, false).unwrap();
        assert_eq!(sampler.len(), 16);
        let batches = sampler.batches_by(&mut Generator::new()).unwrap();
        assert_eq!(batches.positions(15).len(), (1 << 60) - 1);
        let whole = BatchSampler::new(SequentialSampler::new(3), usize::MAX, false).unwrap().batches().unwrap().next();
        assert_eq!(whole, Some(vec![0, 1, 2]));
    }

    proptest! {
        #[test]
        fn batches_are_chunks_of_the_order(n in 0usize..200, batch_size in 1usize..40, drop_last: bool, skip in 0usize..9) {
            let mut sampler = BatchSampler::new(SequentialSampler::new(n), batch_size, drop_last).unwrap();
            let indices: Vec<usize> = (0..n).collect();
            let chunks = indices.chunks(batch_size).filter(|chunk| !drop_last || chunk.len() == batch_size);
            let want: Vec<Vec<usize>> = chunks.map(<[usize]>::to_vec).collect();
            prop_assert_eq!(sampler.len(), want.len());
            prop_assert_eq!(sampler.is_empty(), want.is_empty());
            let mut batches = sampler.batches().unwrap();
            prop_assert_eq!(batches.len(), want.len());
            prop_assert_eq!(batches.clone().collect::<Vec<_>>(), want.clone());
            prop_assert_eq!(batches.nth(skip), want.get(skip).cloned());
            prop_assert_eq!(batches.len(), want.len().saturating_sub(skip + 1));
        }
    }
}
