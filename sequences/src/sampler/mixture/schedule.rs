//! Mixtures whose weights change from epoch to epoch.

use std::ops::Range;

use slotline::BoxError;
use slotline::rng::{Generator, SharedGenerator};
use slotline::sampler::{EpochHandle, Order, Sampler, SamplerError, Saved, put};

use super::super::SequenceError;
use super::MixtureSampler;

/// The sampler's name in errors.
const NAME: &str = "ScheduledMixture";

/// A sampler that mixes datasets by weights that change from epoch to epoch: a [`MixtureSampler`] for
/// each epoch. The last one also applies to all later epochs.
///
/// The epoch is the number of passes that the sampler has begun, also after a resume, or that of a
/// handle that it [follows](Self::follow).
///
/// ```
/// use std::num::NonZero;
/// use slotline::Loader;
/// use slotline::dataset::from_fn;
/// use slotline_sequences::sampler::{MixtureSampler, ScheduledMixture, Stop};
///
/// // The indices of two datasets with 100 samples each, one after the other.
/// let both = from_fn(200, |index, _| Ok(index as i64));
/// let stop = Stop::NumSamples(NonZero::new(40).expect("40 is not 0"));
/// let mixture = |weights| MixtureSampler::new([100, 100], weights)?.stop(stop);
/// let curriculum = ScheduledMixture::new([mixture([9.0, 1.0])?, mixture([1.0, 1.0])?])?;
/// let mut loader = Loader::builder(both).batch_size(40).sampler(curriculum).build()?;
/// for from_second in [4, 20, 20] {
///     let batch = loader.epoch()?.next().expect("a batch")?;
///     assert_eq!(batch.indices().iter().filter(|&&index| index >= 100).count(), from_second);
/// }
/// # Ok::<(), slotline::BoxError>(())
/// ```
#[derive(Clone, Debug)]
pub struct ScheduledMixture {
    mixtures: Vec<MixtureSampler>,
    passes: u64,
    epoch: Option<EpochHandle>,
}

impl ScheduledMixture {
    /// Makes a sampler of a mixture for each epoch. Their passes must be equally long, as they are with
    /// [`Stop::NumSamples`](super::Stop::NumSamples).
    ///
    /// # Errors
    ///
    /// [`SequenceError::Schedule`] if there is no mixture, or their passes differ in length.
    pub fn new(mixtures: impl IntoIterator<Item = MixtureSampler>) -> Result<Self, SequenceError> {
        let mixtures: Vec<_> = mixtures.into_iter().collect();
        let lens = || mixtures.iter().map(Sampler::len);
        if mixtures.is_empty() || lens().any(|len| len != mixtures[0].len()) {
            return Err(SequenceError::Schedule { sampler: NAME, lens: lens().collect() });
        }
        Ok(Self { mixtures, passes: 0, epoch: None })
    }

    /// Sets [`MixtureSampler::shuffle`] of all mixtures.
    #[must_use]
    pub fn shuffle(self, shuffle: bool) -> Self {
        self.each(|mixture| mixture.shuffle(shuffle))
    }

    /// Sets the generator that all mixtures draw from.
    #[must_use]
    pub fn generator(self, generator: impl Into<SharedGenerator>) -> Self {
        let generator = generator.into();
        self.each(|mixture| mixture.generator(generator.clone()))
    }

    fn each(mut self, set: impl FnMut(MixtureSampler) -> MixtureSampler) -> Self {
        self.mixtures = self.mixtures.into_iter().map(set).collect();
        self
    }

    /// Uses the epoch of a handle, instead of counting passes.
    #[must_use]
    pub fn follow(mut self, epoch: &EpochHandle) -> Self {
        self.epoch = Some(epoch.clone());
        self
    }

    /// Returns the place of the mixture of an epoch.
    fn place(&self, epoch: u64) -> usize {
        usize::try_from(epoch).unwrap_or(usize::MAX).min(self.mixtures.len() - 1)
    }

    /// Returns the place of the next pass's mixture.
    fn now(&self) -> usize {
        self.place(self.epoch.as_ref().map_or(self.passes, EpochHandle::get))
    }

    /// Whether the order depends on the number of passes.
    fn counts(&self) -> bool {
        self.epoch.is_none() && self.mixtures.len() > 1
    }
}

impl Sampler for ScheduledMixture {
    fn len(&self) -> usize {
        self.mixtures[0].len()
    }

    fn memory(&self) -> usize {
        self.mixtures.iter().map(Sampler::memory).max().unwrap_or_default()
    }

    fn order(&mut self, default: &mut Generator, order: &mut Order) -> Result<(), SamplerError> {
        let now = self.now();
        self.mixtures[now].order(default, order)?;
        self.passes += 1;
        Ok(())
    }

    fn name(&self) -> &str {
        self.mixtures[0].name()
    }

    fn save(&self, to: &mut String) -> bool {
        if self.counts() {
            put(to, "passes", self.passes);
        }
        self.mixtures[self.now()].save(to)
    }

    fn restore(&mut self, saved: &str, seen: Range<usize>) -> Result<(), BoxError> {
        let (mut now, mut passes) = (self.now(), self.passes);
        if self.counts() {
            passes = Saved { sampler: NAME, text: saved }.get("passes")?;
            now = self.place(passes);
        }
        self.mixtures[now].restore(saved, seen)?;
        self.passes = passes;
        Ok(())
    }
}
