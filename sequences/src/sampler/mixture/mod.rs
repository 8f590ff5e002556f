//! Several datasets, mixed by weight.
//!
//! A dataset of the mixture is called a source. `turns` computes how many samples of each source
//! come before a position. `plan` computes which sample is at a position: it arranges the sources
//! at random within blocks of positions, and shuffles each pass over a source. Both compute
//! everything from the position, so a mixture needs no table of its length, and can resume
//! anywhere.

mod plan;
mod schedule;
mod turns;

pub use self::schedule::ScheduledMixture;

use std::num::NonZero;
use std::ops::Range;
use std::sync::Arc;

use slotline::BoxError;
use slotline::rng::{Generator, SharedGenerator};
use slotline::sampler::{Order, Sampler, SamplerError, Saved, digest, put, put_generator, with_generator};

use self::plan::{Pass, Plan};
use super::SequenceError;

/// The sampler's name in errors.
const NAME: &str = "MixtureSampler";

/// The rule for when a pass over a [mixture](MixtureSampler) ends. The first three are the stopping
/// strategies of Hugging Face's `interleave_datasets` (datasets 5.2.0).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stop {
    /// When one dataset has been read to its end. No sample is repeated.
    #[default]
    FirstExhausted,
    /// When every dataset has been read to its end. Datasets that end earlier begin again.
    AllExhausted,
    /// When each sample of every dataset has been read once. When a dataset ends, its share is
    /// distributed to the others in proportion to their weights.
    AllExhaustedWithoutReplacement,
    /// After this many samples. Datasets that end begin again.
    NumSamples(NonZero<u64>),
}

/// A sampler that mixes several datasets by weight. The indices are those of a
/// [`ConcatDataset`](slotline::dataset::ConcatDataset) of the datasets.
///
/// Weights are relative numbers of samples. A pass has as many samples of each dataset as its
/// weight demands, exactly and not only on average. The same is true of each block of 256
/// positions. Within a block, the datasets come in random order; with [`even`](Self::even) they
/// take turns as evenly as possible instead. A dataset of weight 0 is left out.
///
/// No sample is visited twice before all samples of its dataset were. A dataset that is used up
/// within a pass begins again, newly shuffled. [`Stop`] says when a pass ends: by default, when the
/// first dataset does.
///
/// ```
/// use slotline::Loader;
/// use slotline::dataset::{ConcatDataset, from_fn};
/// use slotline_sequences::sampler::{MixtureSampler, Stop};
///
/// let numbers = |len, from| from_fn(len, move |index, _| Ok(from + index as i64));
/// let both = ConcatDataset::new([(900, 0), (50, 10_000)].map(|(len, from)| numbers(len, from)))?;
/// // Three of four samples are from the first dataset, so the second one begins again about five times.
/// let mixture = MixtureSampler::new(both.lens(), [0.75, 0.25])?.stop(Stop::AllExhausted)?;
///
/// let mut loader = Loader::builder(both.clone()).batch_size(400).sampler(mixture).build()?;
/// let batch = loader.epoch()?.next().expect("1200 samples")?;
/// let sources = batch.indices().iter().map(|&index| both.locate(index as usize).expect("an index of `both`").0);
/// let second = sources.filter(|&source| source == 1).count();
/// assert!((90..110).contains(&second));
/// # Ok::<(), slotline::BoxError>(())
/// ```
///
/// [`locate`](slotline::dataset::ConcatDataset::locate) says which dataset a sample is from, as in
/// this example. To have the index of that dataset as a field of the batch, stack the concatenated
/// dataset with one that returns the index ([`StackDataset`](slotline::dataset::StackDataset)).
///
/// | Elsewhere | Here |
/// |---|---|
/// | `interleave_datasets` of Hugging Face datasets, with `probabilities` | the probabilities as weights, and the stopping strategy as [`Stop`] |
/// | `interleave_datasets` without `probabilities` | equal weights and [`even`](Self::even) |
/// | `Stream(proportion=…)` of Mosaic Streaming | the proportions as weights and [`Stop::NumSamples`] |
/// | `Stream(repeat=…)`, `Stream(choose=…)` | the numbers of samples as weights, and their sum as `NumSamples` |
/// | `CombinedStreamingDataset` of LitData | its weights as weights; if it has none, [`by_size`](Self::by_size) |
/// | Megatron's `BlendedDataset` | [`even`](Self::even) (the same proportions, in an order that is not bit for bit the same), without [`shuffle`](Self::shuffle) |
/// | `RandomMix` of webdataset | its probabilities as weights |
///
/// Each pass draws one number from the generator, as torch's `random_()` does, and its order
/// depends only on that number. Ranks share a pass with
/// [`DistributedSampler::over`](slotline::sampler::DistributedSampler::over). No memory is needed
/// for each sample: an index is computed on the worker that needs it, in less than half a
/// microsecond for a few datasets and about two for a hundred. Only a mixture with
/// [`Stop::AllExhaustedWithoutReplacement`] takes 12 bytes for each pair of datasets, which matters
/// for thousands of datasets.
#[derive(Clone, Debug)]
pub struct MixtureSampler {
    lens: Vec<usize>,
    weights: Vec<f64>,
    stop: Stop,
    even: bool,
    shuffle: bool,
    generator: Option<SharedGenerator>,
    plan: Arc<Plan>,
}

impl MixtureSampler {
    /// Makes a mixture of datasets of these lengths, with a weight for each
    /// ([`ConcatDataset::lens`](slotline::dataset::ConcatDataset::lens) returns the lengths). A
    /// pass ends when the first dataset does, and the sampler draws from the default generator.
    ///
    /// # Errors
    ///
    /// [`SequenceError::Weights`] if the number of weights differs from the number of lengths,
    /// [`SamplerError::Weight`] if a weight is negative or not finite, [`SamplerError::WeightSum`]
    /// if no weight is above 0 or their sum is not finite, [`SequenceError::EmptySource`] if a
    /// dataset without samples has a weight above 0, and [`SequenceError::TooLong`] if there are
    /// more samples than a `usize` counts, or a pass would have more than 2⁶².
    pub fn new(
        lens: impl IntoIterator<Item = usize>,
        weights: impl IntoIterator<Item = f64>,
    ) -> Result<Self, SequenceError> {
        let (lens, weights): (Vec<_>, Vec<_>) = (lens.into_iter().collect(), weights.into_iter().collect());
        let plan = Arc::new(plan(&lens, &weights, Stop::default())?);
        Ok(Self { lens, weights, stop: Stop::default(), even: false, shuffle: true, generator: None, plan })
    }

    /// Makes a mixture of datasets of these lengths that visits each sample once, with the samples
    /// of every dataset spread over the whole pass. The lengths are the weights.
    ///
    /// # Errors
    ///
    /// The errors of [`new`](Self::new).
    pub fn by_size(lens: impl IntoIterator<Item = usize>) -> Result<Self, SequenceError> {
        let lens: Vec<_> = lens.into_iter().collect();
        let weights: Vec<_> = lens.iter().map(|&len| len as f64).collect();
        Self::new(lens, weights)?.stop(Stop::AllExhaustedWithoutReplacement)
    }

    /// Sets when a pass ends; [`Stop::FirstExhausted`] by default.
    ///
    /// # Errors
    ///
    /// [`SequenceError::TooLong`] if a pass would have more than 2⁶² samples, for example because a
    /// long dataset has a tiny weight.
    pub fn stop(mut self, stop: Stop) -> Result<Self, SequenceError> {
        self.plan = Arc::new(plan(&self.lens, &self.weights, stop)?);
        self.stop = stop;
        Ok(self)
    }

    /// Sets whether the datasets take turns as evenly as possible; false by default.
    ///
    /// If so, then for every p the first p samples of a pass have as many samples of each dataset
    /// as its weight demands, up to about one sample (at most ½ + s·(1 + n/2) for a share of s
    /// among n datasets). Every pass has the same sequence of datasets.
    #[must_use]
    pub fn even(mut self, even: bool) -> Self {
        self.even = even;
        self
    }

    /// Sets whether the samples of each dataset are shuffled, instead of visited from first to
    /// last; true by default.
    #[must_use]
    pub fn shuffle(mut self, shuffle: bool) -> Self {
        self.shuffle = shuffle;
        self
    }

    /// Sets the generator to draw from: the sampler's own [`Generator`], or a [`SharedGenerator`].
    ///
    /// A clone of the sampler draws from the same generator.
    #[must_use]
    pub fn generator(mut self, generator: impl Into<SharedGenerator>) -> Self {
        self.generator = Some(generator.into());
        self
    }
}

/// Checks the arguments and makes the plan.
fn plan(lens: &[usize], weights: &[f64], stop: Stop) -> Result<Plan, SequenceError> {
    if lens.len() != weights.len() {
        return Err(SequenceError::Weights { sampler: NAME, sources: lens.len(), weights: weights.len() });
    }
    let (mut start, mut sum, mut parts) = (0_usize, 0.0, Vec::new());
    for (index, (&len, &weight)) in lens.iter().zip(weights).enumerate() {
        if !(weight >= 0.0 && weight.is_finite()) {
            return Err(SamplerError::Weight { sampler: NAME, index, weight }.into());
        }
        if len == 0 && weight > 0.0 {
            return Err(SequenceError::EmptySource { sampler: NAME, dataset: index, weight });
        }
        if weight > 0.0 {
            parts.push((index, start, len, weight));
        }
        sum += weight;
        start = start.checked_add(len).ok_or(SequenceError::TooLong { sampler: NAME })?;
    }
    if !(sum > 0.0 && sum.is_finite()) {
        return Err(SamplerError::WeightSum { sampler: NAME, sum }.into());
    }
    Plan::new(&parts, stop).ok_or(SequenceError::TooLong { sampler: NAME })
}

impl Sampler for MixtureSampler {
    fn len(&self) -> usize {
        self.plan.len()
    }

    fn memory(&self) -> usize {
        self.plan.memory()
    }

    fn order(&mut self, default: &mut Generator, order: &mut Order) -> Result<(), SamplerError> {
        let seed = with_generator(self.generator.as_ref(), default, Generator::random_i64) as u64;
        let (plan, pass) = (self.plan.clone(), Pass { seed, shuffle: self.shuffle, even: self.even });
        *order = Order::computed(plan.len(), plan.memory(), move |position| plan.index(position, pass));
        Ok(())
    }

    fn name(&self) -> &str {
        NAME
    }

    fn save(&self, to: &mut String) -> bool {
        put(to, "digest_of_lens", digest(self.lens.iter().map(|&len| len as u64)));
        put(to, "digest_of_weights", digest(self.weights.iter().map(|weight| weight.to_bits())));
        put(to, "num_samples", self.len());
        put(to, "even", self.even);
        put(to, "shuffle", self.shuffle);
        put_generator(to, self.generator.as_ref());
        true
    }

    fn restore(&mut self, saved: &str, _: Range<usize>) -> Result<(), BoxError> {
        let saved = Saved { sampler: NAME, text: saved };
        saved.check("digest_of_lens", digest(self.lens.iter().map(|&len| len as u64)))?;
        saved.check("digest_of_weights", digest(self.weights.iter().map(|weight| weight.to_bits())))?;
        saved.check("num_samples", self.len())?;
        saved.check("even", self.even)?;
        saved.check("shuffle", self.shuffle)?;
        saved.restore_generator(self.generator.as_ref())
    }
}

#[cfg(test)]
mod tests;
