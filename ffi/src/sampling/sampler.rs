//! Samplers: the order in which a pass visits the samples.
//!
//! A handle only describes a sampler. Each loader builds a separate sampler from it, for the length
//! of its dataset.

use std::fmt::Write;
use std::num::NonZero;
use std::ops::Range;
use std::sync::Arc;

use slotline::BoxError;
use slotline::rng::{Generator, SharedGenerator, manual_seed};
use slotline::sampler::{
    CipherSampler, DistributedSampler, EpochHandle, Order, RandomSampler, Sampler, SamplerError, SubsetRandomSampler,
    WeightedRandomSampler, digest,
};

use slotline_sequences::sampler::{MixtureSampler, ScheduledMixture, SequenceError, Stop};

use crate::abi::{Failure, Versioned, chain, check, free, guarded, made, slotline_error, slotline_status, versioned};
use crate::sampling::generator::slotline_generator;
use crate::sampling::order::{Calls, Ordered, slotline_order_callback};

/// A sampler: the order of a loader's passes. A loader copies what it needs, so the sampler may be
/// freed once the loader was created, and may be used for several loaders. Unless
/// `slotline_sampler_seed` sets a seed, the sampler draws from the process's default generator
/// (`slotline_manual_seed`), as torch's samplers do, and not from the loader's `seed`. Only one
/// thread at a time may use a sampler.
#[derive(Clone, Debug)]
pub struct slotline_sampler {
    kind: Kind,
    source: Source,
}

/// The generator that a sampler draws from.
#[derive(Clone, Debug)]
enum Source {
    /// The process's default generator.
    Default,
    /// A separate generator with this seed for each loader.
    Seed(u64),
    Shared(SharedGenerator),
}

#[derive(Clone, Debug)]
enum Kind {
    Random { replacement: bool, num_samples: Option<usize> },
    SubsetRandom(Arc<[usize]>),
    Weighted { weights: Arc<[f64]>, num_samples: usize, replacement: bool },
    Distributed { num_replicas: usize, rank: usize, shuffle: bool, drop_last: bool, seed: u64, epoch: EpochHandle },
    Cipher,
    List(Arc<[usize]>),
    Callback(Arc<Calls>),
    Mixture { mixture: ScheduledMixture, dataset_len: usize },
}

/// A pass over a mixture ends when one dataset has been read to its end. No sample is repeated.
pub const SLOTLINE_STOP_FIRST_EXHAUSTED: u32 = 0;
/// A pass over a mixture ends when every dataset has been read to its end. Datasets that end earlier
/// begin again.
pub const SLOTLINE_STOP_ALL_EXHAUSTED: u32 = 1;
/// A pass over a mixture ends when each sample of every dataset has been read once. When a dataset
/// ends, its share is distributed to the others in proportion to their weights.
pub const SLOTLINE_STOP_ALL_EXHAUSTED_WITHOUT_REPLACEMENT: u32 = 2;

/// A mixture of several datasets, for `slotline_sampler_mixture`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct slotline_mixture {
    /// `sizeof(slotline_mixture)`.
    pub struct_size: usize,
    /// The number of samples of each dataset, in the order of `slotline_dataset_concat`.
    pub lens: *const usize,
    /// The number of datasets.
    pub num_datasets: usize,
    /// The weight of each dataset; 0 leaves it out. Weights are relative numbers of samples. With
    /// `num_epochs`, one such row for each epoch. NULL: the lengths are the weights, and each sample
    /// is visited once unless `num_samples` is set.
    pub weights: *const f64,
    /// The number of rows in `weights` (0: one row). Row i has the weights of pass i; the last row also
    /// applies to all later passes. With more than one row, `num_samples` must be set.
    pub num_epochs: usize,
    /// The number of samples after which a pass ends (0: `stop` says when). Datasets that end earlier
    /// begin again.
    pub num_samples: u64,
    /// When a pass ends (`SLOTLINE_STOP_FIRST_EXHAUSTED`).
    pub stop: u32,
    /// Whether the datasets take turns as evenly as possible, instead of in random order within blocks
    /// of 256 samples.
    pub even: u8,
    /// Whether the samples of each dataset are shuffled, instead of visited from first to last.
    pub shuffle: u8,
    /// Zeros; reserved for later versions.
    pub reserved: [u8; 2],
}

// SAFETY: it contains only numbers and pointers, and its first field is its size.
unsafe impl Versioned for slotline_mixture {
    const END: usize = versioned::end!(reserved);

    fn is_known(&self) -> bool {
        self.reserved == [0; 2]
    }
}

impl slotline_mixture {
    /// Makes the sampler.
    ///
    /// # Safety
    ///
    /// The pointers must be valid as documented at the fields.
    unsafe fn make(&self) -> Result<Kind, Failure> {
        let rows = self.num_epochs.max(1);
        // SAFETY: the caller guarantees that the pointers are valid.
        let (lens, weights) = unsafe {
            let weights = || check::slice(self.weights, self.num_datasets.saturating_mul(rows), "mixture->weights");
            let weights = if self.weights.is_null() { None } else { Some(weights()?) };
            (check::slice(self.lens, self.num_datasets, "mixture->lens")?, weights)
        };
        let (even, shuffle) =
            (check::flag(self.even, "mixture->even")?, check::flag(self.shuffle, "mixture->shuffle")?);
        let stop = match (NonZero::new(self.num_samples), self.stop) {
            (Some(num_samples), _) => Stop::NumSamples(num_samples),
            (_, SLOTLINE_STOP_FIRST_EXHAUSTED) => Stop::FirstExhausted,
            (_, SLOTLINE_STOP_ALL_EXHAUSTED) => Stop::AllExhausted,
            (_, SLOTLINE_STOP_ALL_EXHAUSTED_WITHOUT_REPLACEMENT) => Stop::AllExhaustedWithoutReplacement,
            (_, stop) => return Err(Failure::invalid(format!("mixture->stop is {stop}, which is not a valid value"))),
        };
        let mixture = || {
            let lens = || lens.iter().copied();
            let weighted = |weights: &[f64]| MixtureSampler::new(lens(), weights.iter().copied())?.stop(stop);
            let each: Result<Vec<_>, SequenceError> = match (weights, stop) {
                (None, Stop::NumSamples(_)) => {
                    MixtureSampler::by_size(lens()).and_then(|all| all.stop(stop)).map(|all| vec![all])
                }
                (None, _) => MixtureSampler::by_size(lens()).map(|all| vec![all]),
                (Some(weights), _) => weights.chunks(self.num_datasets.max(1)).map(weighted).collect(),
            };
            ScheduledMixture::new(each?.into_iter().map(|mixture| mixture.even(even)))
        };
        let mixture = mixture().map_err(|error| Failure::invalid(chain(&error)))?.shuffle(shuffle);
        Ok(Kind::Mixture { mixture, dataset_len: lens.iter().sum() })
    }
}

impl slotline_sampler {
    /// Builds the sampler of one loader.
    pub(crate) fn make(&self, dataset_len: usize) -> Result<Box<dyn Sampler>, SamplerError> {
        let generator = match &self.source {
            Source::Default => None,
            &Source::Seed(seed) => Some(Generator::from_seed(seed).into()),
            Source::Shared(generator) => Some(generator.clone()),
        };
        // Gives the sampler a separate generator if the handle has a seed.
        macro_rules! seeded {
            ($sampler:expr) => {{
                let sampler = $sampler;
                match generator {
                    Some(generator) => Box::new(sampler.generator(generator)),
                    None => Box::new(sampler),
                }
            }};
        }
        Ok(match &self.kind {
            &Kind::Random { replacement, num_samples } => {
                let sampler = RandomSampler::new(dataset_len)?.replacement(replacement);
                seeded!(match num_samples {
                    Some(num_samples) => sampler.num_samples(num_samples)?,
                    None => sampler,
                })
            }
            Kind::SubsetRandom(indices) => seeded!(SubsetRandomSampler::new(indices.iter().copied())),
            &Kind::Weighted { ref weights, num_samples, replacement } => {
                let sampler = WeightedRandomSampler::new(weights.iter().copied(), num_samples)?;
                seeded!(sampler.replacement(replacement)?)
            }
            &Kind::Distributed { num_replicas, rank, shuffle, drop_last, seed, ref epoch } => {
                let sampler = DistributedSampler::new(dataset_len, num_replicas, rank)?;
                Box::new(sampler.shuffle(shuffle).drop_last(drop_last).seed(seed).follow(epoch))
            }
            Kind::Cipher => seeded!(CipherSampler::new(dataset_len)),
            Kind::List(indices) => Box::new(List::new(indices.clone())),
            Kind::Callback(calls) => Box::new(Ordered::new(calls.clone(), generator)),
            Kind::Mixture { mixture, dataset_len: mixed } => {
                if *mixed != dataset_len {
                    let error = format!(
                        "the mixture has {mixed} samples, but the dataset has {dataset_len}; give the lengths of the \
                         datasets that were concatenated"
                    );
                    return Err(SamplerError::Other(error.into()));
                }
                seeded!(mixture.clone())
            }
        })
    }
}

/// A sampler that visits the same indices in each pass.
struct List {
    indices: Arc<[usize]>,
    digest: u64,
}

impl List {
    fn new(indices: Arc<[usize]>) -> Self {
        let digest = digest(indices.iter().map(|&index| index as u64));
        Self { indices, digest }
    }
}

impl Sampler for List {
    fn len(&self) -> usize {
        self.indices.len()
    }

    fn memory(&self) -> usize {
        size_of_val(&*self.indices)
    }

    fn order(&mut self, _: &mut Generator, order: &mut Order) -> Result<(), SamplerError> {
        order.u64_table().extend(self.indices.iter().map(|&index| index as u64));
        Ok(())
    }

    fn name(&self) -> &str {
        "List"
    }

    /// Writes the number of indices and their digest.
    fn save(&self, to: &mut String) -> bool {
        let _ = write!(to, "{}:{:016x}", self.indices.len(), self.digest);
        true
    }

    fn restore(&mut self, saved: &str, _: Range<usize>) -> Result<(), BoxError> {
        // States from older versions contain only the length.
        let (len, digest) = saved.split_once(':').map_or((saved, None), |(len, digest)| (len, Some(digest)));
        let digest = digest.map(|digest| u64::from_str_radix(digest, 16)).transpose()?;
        let (len, own): (usize, _) = (len.parse()?, self.indices.len());
        if own != len {
            return Err(format!("the list has {own} indices, but the list of the state has {len}").into());
        }
        if digest.is_some_and(|digest| digest != self.digest) {
            return Err(
                "the list has other indices than the list of the state; make the sampler from the same indices".into(),
            );
        }
        Ok(())
    }
}

/// Makes a sampler.
///
/// # Safety
///
/// `out` and `error` must be NULL or writable.
unsafe fn make(
    out: *mut *mut slotline_sampler,
    error: *mut *mut slotline_error,
    kind: impl FnOnce() -> Result<Kind, Failure>,
) -> slotline_status {
    // SAFETY: the caller guarantees that `out` and `error` are NULL or writable.
    unsafe { made(out, error, || kind().map(|kind| slotline_sampler { kind, source: Source::Default })) }
}

/// Creates a sampler that draws a new random order in each pass, or, with `replacement`,
/// independent random indices (torch's `RandomSampler`). `num_samples` is the number of samples in
/// a pass; 0: the length of the dataset. Can be called from any thread.
///
/// # Errors
///
/// `SLOTLINE_ERROR_INVALID`: `out` is NULL.
///
/// # Safety
///
/// `out` and `error` must be NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_sampler_random(
    replacement: u8,
    num_samples: usize,
    out: *mut *mut slotline_sampler,
    error: *mut *mut slotline_error,
) -> slotline_status {
    let num_samples = Some(num_samples).filter(|&num_samples| num_samples != 0);
    // SAFETY: the caller guarantees that `out` and `error` are NULL or writable.
    unsafe {
        make(out, error, || Ok(Kind::Random { replacement: check::flag(replacement, "replacement")?, num_samples }))
    }
}

/// Creates a sampler that visits the given indices in a new random order in each pass (torch's
/// `SubsetRandomSampler`). The indices are copied. Can be called from any thread.
///
/// # Errors
///
/// `SLOTLINE_ERROR_INVALID`: a null pointer.
///
/// # Safety
///
/// `indices` must point to `n` numbers; `out` and `error` must be NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_sampler_subset_random(
    indices: *const usize,
    n: usize,
    out: *mut *mut slotline_sampler,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller guarantees that `indices` points to `n` numbers, and that `out` and `error` are NULL or writable.
    unsafe { make(out, error, || Ok(Kind::SubsetRandom(check::slice(indices, n, "indices")?.into()))) }
}

/// Creates a sampler that draws `num_samples` indices by weight (torch's `WeightedRandomSampler`);
/// `weights[i]` is the weight of sample `i`. The weights are copied. Can be called from any thread.
///
/// # Errors
///
/// `SLOTLINE_ERROR_INVALID`: a null pointer. Invalid weights are reported by `slotline_loader_new`, as `SLOTLINE_ERROR_BUILD`.
///
/// # Safety
///
/// `weights` must point to `n` numbers; `out` and `error` must be NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_sampler_weighted(
    weights: *const f64,
    n: usize,
    num_samples: usize,
    replacement: u8,
    out: *mut *mut slotline_sampler,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller guarantees that `weights` points to `n` numbers, and that `out` and `error` are NULL or writable.
    unsafe {
        make(out, error, || {
            let weights = check::slice(weights, n, "weights")?.into();
            Ok(Kind::Weighted { weights, num_samples, replacement: check::flag(replacement, "replacement")? })
        })
    }
}

/// Creates a sampler for the share of the dataset that the process `rank` loads (torch's
/// `DistributedSampler`). `rank` must be below `num_replicas`. All processes must use the same
/// seed, and must call `slotline_sampler_set_epoch` with the same epoch before each pass. Can be
/// called from any thread.
///
/// # Errors
///
/// `SLOTLINE_ERROR_INVALID`: `out` is NULL. An invalid rank is reported by `slotline_loader_new`, as `SLOTLINE_ERROR_BUILD`.
///
/// # Safety
///
/// `out` and `error` must be NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_sampler_distributed(
    num_replicas: usize,
    rank: usize,
    shuffle: u8,
    seed: u64,
    drop_last: u8,
    out: *mut *mut slotline_sampler,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller guarantees that `out` and `error` are NULL or writable.
    unsafe {
        make(out, error, || {
            let (shuffle, drop_last) = (check::flag(shuffle, "shuffle")?, check::flag(drop_last, "drop_last")?);
            Ok(Kind::Distributed { num_replicas, rank, shuffle, drop_last, seed, epoch: EpochHandle::default() })
        })
    }
}

/// Creates a sampler that visits the samples in a new random order in each pass, without storing
/// the order, for datasets of billions of samples. torch has no equivalent. Can be called from any
/// thread.
///
/// # Errors
///
/// `SLOTLINE_ERROR_INVALID`: `out` is NULL.
///
/// # Safety
///
/// `out` and `error` must be NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_sampler_feistel(
    out: *mut *mut slotline_sampler,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller guarantees that `out` and `error` are NULL or writable.
    unsafe { make(out, error, || Ok(Kind::Cipher)) }
}

/// Creates a sampler that visits the given indices, in the given order, in each pass. The indices
/// are copied. Can be called from any thread.
///
/// # Errors
///
/// `SLOTLINE_ERROR_INVALID`: a null pointer.
///
/// # Safety
///
/// `indices` must point to `n` numbers; `out` and `error` must be NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_sampler_indices(
    indices: *const usize,
    n: usize,
    out: *mut *mut slotline_sampler,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller guarantees that `indices` points to `n` numbers, and that `out` and `error` are NULL or writable.
    unsafe { make(out, error, || Ok(Kind::List(check::slice(indices, n, "indices")?.into()))) }
}

/// Creates a sampler from a callback. The sampler takes ownership of the callback's user pointer,
/// even if this function fails. Can be called from any thread.
///
/// # Errors
///
/// `SLOTLINE_ERROR_INVALID`: a null pointer, or a struct that is too short.
///
/// # Safety
///
/// `callback` must be NULL or a valid `slotline_order_callback`; `out` and `error` must be NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_sampler_from_callback(
    callback: *const slotline_order_callback,
    out: *mut *mut slotline_sampler,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller guarantees that `callback` is NULL or valid, and that `out` and `error` are NULL or writable.
    unsafe { make(out, error, || Ok(Kind::Callback(Arc::new(Calls::from_c(callback)?)))) }
}

/// Creates a sampler that mixes several datasets by weight. Use it for their
/// `slotline_dataset_concat`. A pass has as many samples of each dataset as its weight demands, and so
/// has each block of 256 samples. No sample is visited twice before all samples of its dataset were.
/// Each pass draws one number from the sampler's generator, and its order depends only on that number.
/// Ranks (`world_size`) share the passes. The arrays are copied. Can be called from any thread.
///
/// # Errors
///
/// `SLOTLINE_ERROR_INVALID`: a null pointer, a struct that is too short, a weight that is negative or
/// not finite, no weight above 0, a weight above 0 for an empty dataset, or passes that are too long or,
/// with more than one row of weights, differ in length. Lengths that are not those of the dataset are
/// reported by `slotline_loader_new`, as `SLOTLINE_ERROR_BUILD`.
///
/// # Safety
///
/// `mixture` must be NULL or a valid `slotline_mixture`; `out` and `error` must be NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_sampler_mixture(
    mixture: *const slotline_mixture,
    out: *mut *mut slotline_sampler,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller guarantees that `mixture` is NULL or valid, and that `out` and `error` are NULL or writable.
    unsafe { make(out, error, || versioned::read(mixture, "mixture", |_| ())?.0.make()) }
}

/// Seeds the process's default generator (like `torch.manual_seed`). Loaders and samplers without a seed draw from this
/// generator. Its initial seed is unpredictable. Can be called from any thread.
#[unsafe(no_mangle)]
pub extern "C" fn slotline_manual_seed(seed: u64) {
    guarded((), || manual_seed(seed));
}

/// Sets a seed: loaders created from now on use the sampler with a separate generator with this
/// seed. Has no effect on samplers that draw nothing, or on distributed samplers, which have their
/// own seed. Does nothing for NULL.
///
/// # Safety
///
/// `sampler` must be NULL or a sampler that was not freed, and no other thread may use it during this call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_sampler_seed(sampler: *mut slotline_sampler, seed: u64) {
    // SAFETY: the caller guarantees that `sampler` is NULL or was not freed, and that no other thread uses it.
    if let Some(sampler) = unsafe { sampler.as_mut() } {
        sampler.source = Source::Seed(seed);
    }
}

/// Sets the generator that the sampler draws from, in loaders created from now on; NULL stands for
/// the process's default generator. The generator is shared, and may be freed. Has no effect on
/// samplers that draw nothing, or on distributed samplers. Does nothing if `sampler` is NULL.
///
/// # Safety
///
/// The same as for `slotline_sampler_seed`; `generator` must be NULL or a generator that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_sampler_generator(
    sampler: *mut slotline_sampler,
    generator: *const slotline_generator,
) {
    // SAFETY: the caller guarantees that both are NULL or were not freed, and that no other thread uses the sampler.
    if let Some(sampler) = unsafe { sampler.as_mut() } {
        // SAFETY: as above.
        let generator = unsafe { generator.as_ref() };
        sampler.source = generator.map_or(Source::Default, |generator| Source::Shared(generator.shared()));
    }
}

/// Sets the epoch of the next pass of a distributed sampler, in all loaders created with it. Does
/// nothing for other samplers, or for NULL. Can be called from any thread.
///
/// # Safety
///
/// `sampler` must be NULL or a sampler that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_sampler_set_epoch(sampler: *const slotline_sampler, epoch: u64) {
    // SAFETY: the caller guarantees that `sampler` is NULL or was not freed.
    if let Some(slotline_sampler { kind: Kind::Distributed { epoch: handle, .. }, .. }) = unsafe { sampler.as_ref() } {
        handle.set(epoch);
    }
}

/// Frees a sampler. Does nothing for NULL. Loaders created with it are not affected. Can be called
/// from any thread.
///
/// # Safety
///
/// The same as for `slotline_sampler_set_epoch`; the sampler must not be used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_sampler_free(sampler: *mut slotline_sampler) {
    // SAFETY: `make` created the sampler, and the caller transfers its ownership.
    unsafe { free(sampler) }
}
