//! Plans: which samples a pass has, and in which batches, for mixtures, batches by length and
//! samplers.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use slotline::BoxError;
use slotline::rng::{Generator, SharedGenerator};
use slotline::sampler::{EpochHandle, Order, RandomSampler, Sampler, SamplerError, Saved, Spans, digest, put};
use slotline_python_shielded::shielded;
use slotline_sequences::sampler::{LengthBatchSampler, MixtureSampler, ScheduledMixture, SequenceError, Stop};

use super::failure;

/// How passes are made.
#[derive(Clone, Debug)]
pub(crate) enum Passes {
    /// The dataset, in sequence or shuffled.
    Whole,
    /// The samples, or with `batches` the batches, that a sampler of the program chooses before each
    /// pass.
    Given { batches: bool },
    /// Several datasets, mixed by weight.
    Mixture(ScheduledMixture),
    /// Batches of samples of similar lengths.
    Lengths(Box<LengthBatchSampler>),
}

impl Passes {
    /// Whether the batches are planned, too.
    pub(crate) fn has_batches(&self) -> bool {
        matches!(self, Self::Given { batches: true } | Self::Lengths(_))
    }

    /// Returns the samples of a pass over a dataset of this length.
    pub(crate) fn len(&self, dataset: usize) -> usize {
        match self {
            Self::Mixture(mixture) => mixture.len(),
            _ => dataset,
        }
    }
}

/// What the passes of one engine are drawn with.
#[derive(Debug)]
pub(crate) struct Handles {
    /// The loader's generator.
    pub(crate) generator: SharedGenerator,
    /// The generator of orders that are a function of the seed and the epoch.
    pub(crate) own: SharedGenerator,
    pub(crate) epoch: EpochHandle,
    pub(crate) given: Arc<Mutex<Chosen>>,
}

impl Handles {
    pub(crate) fn new(seed: u64) -> Self {
        let [generator, own] = [0, 1].map(|_| SharedGenerator::from(Generator::from_seed(seed)));
        Self { generator, own, epoch: EpochHandle::default(), given: Arc::default() }
    }

    /// Sets the number of the pass that is drawn next.
    pub(crate) fn set_epoch(&self, seed: u64, epoch: u32) {
        self.epoch.set(epoch.into());
        self.own.lock().manual_seed(seed.wrapping_add(epoch.into()));
    }

    pub(crate) fn given(&self) -> MutexGuard<'_, Chosen> {
        locked(&self.given)
    }
}

/// The samples of a pass, as Python gives them.
#[derive(Debug, FromPyObject)]
pub(crate) enum Indices {
    /// The bytes of `u64`.
    Bytes(PyBackedBytes),
    /// As many from the first one on, in order.
    Range(usize),
    /// What torch's `RandomSampler` draws: the seed, the number of samples of the dataset and of the pass, and whether with
    /// replacement.
    Random(u64, usize, usize, bool),
}

/// The samples of a pass that a sampler of the program has chosen.
#[derive(Debug)]
pub(crate) struct Chosen {
    indices: Indices,
    /// Where each batch ends, if the sampler has chosen batches.
    ends: Vec<u32>,
    /// Whether no pass has been made of them.
    is_new: bool,
}

impl Default for Chosen {
    fn default() -> Self {
        Self { indices: Indices::Range(0), ends: Vec::new(), is_new: false }
    }
}

impl Indices {
    fn listed(bytes: &[u8]) -> impl Iterator<Item = u64> {
        bytes.as_chunks().0.iter().map(|&index| u64::from_ne_bytes(index))
    }

    /// Makes the order of the pass.
    fn order(&self, order: &mut Order) -> Result<(), SamplerError> {
        match *self {
            Self::Bytes(ref bytes) => order.u64_table().extend(Self::listed(bytes)),
            Self::Range(len) => *order = Order::Range(len),
            Self::Random(seed, len, count, replacement) => {
                let generator = Generator::from_seed(seed);
                let sampler = RandomSampler::new(len)?.num_samples(count)?.replacement(replacement);
                sampler.generator(generator.clone()).order(&mut generator.clone(), order)?;
            }
        }
        Ok(())
    }
}

impl Chosen {
    /// `ends` are the bytes of `u32`.
    pub(crate) fn new(indices: Indices, ends: &[u8]) -> Self {
        let ends = ends.as_chunks().0.iter().map(|&end| u32::from_ne_bytes(end)).collect();
        Self { indices, ends, is_new: true }
    }

    /// Returns the samples of the largest batch.
    pub(crate) fn most(&self) -> usize {
        let starts = [0].iter().chain(&self.ends);
        self.ends.iter().zip(starts).map(|(end, start)| end - start).max().unwrap_or_default() as usize
    }

    fn digest(&self) -> u64 {
        let ends = self.ends.iter().map(|&end| end.into());
        match self.indices {
            Indices::Bytes(ref bytes) => digest(Indices::listed(bytes).chain(ends)),
            Indices::Range(len) => digest([len as u64]),
            Indices::Random(seed, len, count, replacement) => {
                digest([seed, len as u64, count as u64, replacement.into()])
            }
        }
    }
}

fn locked(chosen: &Mutex<Chosen>) -> MutexGuard<'_, Chosen> {
    chosen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Visits what a sampler of the program has chosen.
pub(crate) struct GivenSampler {
    chosen: Arc<Mutex<Chosen>>,
    batches: bool,
    spans: Spans,
    /// The digest of the pass to resume.
    resumed: Option<u64>,
}

impl GivenSampler {
    pub(crate) fn new(chosen: Arc<Mutex<Chosen>>, batches: bool) -> Self {
        Self { chosen, batches, spans: Spans::default(), resumed: None }
    }
}

impl Sampler for GivenSampler {
    /// Not known before a pass, so that none is too long.
    fn len(&self) -> usize {
        usize::MAX
    }

    fn memory(&self) -> usize {
        0
    }

    fn order(&mut self, _: &mut Generator, order: &mut Order) -> Result<(), SamplerError> {
        let resumed = self.resumed.take();
        let mut chosen = locked(&self.chosen);
        if resumed.is_some_and(|resumed| resumed != chosen.digest()) {
            let error = "the sampler has chosen other samples than in the pass that the state was saved in; give it the same \
                         seed and epoch, or a state_dict and a load_state_dict";
            return Err(BoxError::from(error).into());
        }
        let Chosen { indices, ends, .. } = std::mem::take(&mut *chosen);
        self.spans = Spans::new(ends);
        indices.order(order)
    }

    fn spans(&self) -> Option<Spans> {
        self.batches.then(|| self.spans.clone())
    }

    fn name(&self) -> &str {
        if self.batches { "batch_sampler" } else { "sampler" }
    }

    fn save(&self, to: &mut String) -> bool {
        let chosen = locked(&self.chosen);
        match chosen.is_new {
            true => put(to, "digest", chosen.digest()),
            false => put(to, "digest", "none"),
        }
        true
    }

    fn restore(&mut self, saved: &str, seen: Range<usize>) -> Result<(), BoxError> {
        let saved = Saved { sampler: "sampler", text: saved };
        self.resumed = if seen.end > 0 { Some(saved.get("digest")?) } else { None };
        Ok(())
    }

    fn restart(&mut self) {
        self.resumed = None;
    }
}

/// What a loader makes its passes of: the native part of a mixture, of batches by length, and of a sampler.
#[pyclass(module = "slotline._slotline", frozen)]
pub(crate) struct Plan {
    pub(crate) passes: Passes,
}

fn refused(py: Python<'_>, error: &SequenceError) -> PyErr {
    failure::invalid(py, error.to_string())
}

/// Reads lengths from the bytes of `u64`.
pub(crate) fn lengths(bytes: &[u8]) -> impl Iterator<Item = usize> {
    bytes.as_chunks().0.iter().map(|&length| u64::from_ne_bytes(length) as usize)
}

#[shielded]
#[pymethods]
impl Plan {
    /// Passes, or their batches, that are given when each begins.
    #[staticmethod]
    fn given(batches: bool) -> Self {
        Self { passes: Passes::Given { batches } }
    }

    /// A mixture of datasets of these lengths, with weights for each epoch. `stop` is the name of a [`Stop`], or empty for
    /// `num_samples`.
    #[staticmethod]
    fn mixture(
        py: Python<'_>,
        lens: Vec<usize>,
        schedule: Vec<Vec<f64>>,
        stop: &str,
        num_samples: u64,
        even: bool,
    ) -> PyResult<Self> {
        let stop = match (stop, num_samples.try_into()) {
            ("first_exhausted", _) => Stop::FirstExhausted,
            ("all_exhausted", _) => Stop::AllExhausted,
            ("all_exhausted_without_replacement", _) => Stop::AllExhaustedWithoutReplacement,
            (_, Ok(num_samples)) => Stop::NumSamples(num_samples),
            (_, Err(_)) => return Err(failure::invalid(py, "stop is 0; a mixture has at least one sample")),
        };
        let mixture = |weights| Ok(MixtureSampler::new(lens.iter().copied(), weights)?.stop(stop)?.even(even));
        let mixtures = schedule.into_iter().map(mixture).collect::<Result<Vec<_>, _>>();
        let mixture = mixtures.and_then(ScheduledMixture::new).map_err(|error| refused(py, &error))?;
        Ok(Self { passes: Passes::Mixture(mixture) })
    }

    /// Batches of as many samples as have `max_tokens` tokens, of which a sample has as many as its length.
    #[staticmethod]
    fn token_budget(
        py: Python<'_>,
        lengths: &[u8],
        max_tokens: usize,
        padded: bool,
        limit: Option<usize>,
    ) -> PyResult<Self> {
        let sampler = LengthBatchSampler::token_budget(self::lengths(lengths), max_tokens);
        let sampler = sampler.map_err(|error| refused(py, &error))?.padded(padded);
        let sampler = limit.map_or(Ok(sampler.clone()), |limit| sampler.limit(limit));
        Ok(Self { passes: Passes::Lengths(Box::new(sampler.map_err(|error| refused(py, &error.into()))?)) })
    }

    /// Batches from buckets of lengths.
    #[staticmethod]
    fn buckets(py: Python<'_>, lengths: &[u8], boundaries: Vec<usize>, batch_sizes: Vec<usize>) -> PyResult<Self> {
        let sampler = LengthBatchSampler::buckets(self::lengths(lengths), boundaries, batch_sizes);
        Ok(Self { passes: Passes::Lengths(Box::new(sampler.map_err(|error| refused(py, &error))?)) })
    }

    /// The number of samples of a mixture, or the most samples of a batch.
    fn __len__(&self) -> usize {
        match &self.passes {
            Passes::Lengths(sampler) => sampler.max_batch_size(),
            passes => passes.len(0),
        }
    }
}
