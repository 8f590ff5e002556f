//! Samplers: in which order a pass visits the samples.
//!
//! A handle says what kind of sampler it is; each loader makes its own of it when it is built, for its dataset's length.

use std::fmt::Write;
use std::ops::Range;
use std::sync::Arc;

use slotline::BoxError;
use slotline::rng::{Generator, manual_seed};
use slotline::sampler::{
    CipherSampler, DistributedSampler, EpochHandle, Order, RandomSampler, Sampler, SamplerError, SubsetRandomSampler,
    WeightedRandomSampler, digest,
};

use crate::boundary::{guarded, made};
use crate::check;
use crate::error::slotline_error;
use crate::failure::Failure;
use crate::order::{Calls, Ordered, slotline_order_callback};
use crate::status::slotline_status;

/// A sampler: the order of a loader's passes. Loaders keep what they need of it, so that it may be freed as soon as they are
/// made, and used for several. Unless it has a seed (`slotline_sampler_seed`), it draws from the process's default generator
/// (`slotline_manual_seed`), as torch's do, and not from the loader's: the `seed` of `slotline_options` is not its own. One
/// thread at a time.
#[derive(Clone, Debug)]
pub struct slotline_sampler {
    kind: Kind,
    seed: Option<u64>,
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
}

impl slotline_sampler {
    /// The sampler of one loader.
    pub(crate) fn make(&self, dataset_len: usize) -> Result<Box<dyn Sampler>, SamplerError> {
        let generator = self.seed.map(Generator::from_seed);
        // With a generator of its own, where it was given a seed.
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
            Kind::Callback(calls) => Box::new(Ordered::new(calls.clone())),
        })
    }
}

/// The same indices in each pass.
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

    /// How many indices, and their digest.
    fn save(&self, to: &mut String) -> bool {
        let _ = write!(to, "{}:{:016x}", self.indices.len(), self.digest);
        true
    }

    fn restore(&mut self, saved: &str, _: Range<usize>) -> Result<(), BoxError> {
        // Older states have the length alone.
        let (len, digest) = saved.split_once(':').map_or((saved, None), |(len, digest)| (len, Some(digest)));
        let digest = digest.map(|digest| u64::from_str_radix(digest, 16)).transpose()?;
        let (len, own): (usize, _) = (len.parse()?, self.indices.len());
        if own != len {
            return Err(format!("the list has {own} indices, and that of the state {len}").into());
        }
        if digest.is_some_and(|digest| digest != self.digest) {
            return Err("the list has other indices than that of the state; make the sampler as it was".into());
        }
        Ok(())
    }
}

/// Makes a sampler, or says what is wrong.
///
/// # Safety
///
/// `out` and `error` must be NULL or writable.
unsafe fn make(
    out: *mut *mut slotline_sampler,
    error: *mut *mut slotline_error,
    kind: impl FnOnce() -> Result<Kind, Failure>,
) -> slotline_status {
    // SAFETY: the caller's word.
    unsafe { made(out, error, || kind().map(|kind| slotline_sampler { kind, seed: None })) }
}

/// Makes a sampler of a new random order in each pass (torch's `RandomSampler`), or, with `replacement`, of random draws.
/// `num_samples` is how many samples a pass has; 0: as many as the dataset. Any thread.
///
/// # Errors
///
/// `SLOTLINE_INVALID`: `out` is NULL.
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
    // SAFETY: the caller's word.
    unsafe { make(out, error, || Ok(Kind::Random { replacement: replacement != 0, num_samples })) }
}

/// Makes a sampler of a new random order of these indices in each pass (torch's `SubsetRandomSampler`). They are copied. Any
/// thread.
///
/// # Errors
///
/// `SLOTLINE_INVALID`: a null pointer.
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
    // SAFETY: the caller's word.
    unsafe { make(out, error, || Ok(Kind::SubsetRandom(check::slice(indices, n, "indices")?.into()))) }
}

/// Makes a sampler of `num_samples` draws by weight (torch's `WeightedRandomSampler`): `weights[i]` is that of sample `i`. They
/// are copied. Any thread.
///
/// # Errors
///
/// `SLOTLINE_INVALID`: a null pointer. What is wrong with the weights `slotline_loader_new` says, by `SLOTLINE_BUILD`.
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
    // SAFETY: the caller's word.
    unsafe {
        make(out, error, || {
            let weights = check::slice(weights, n, "weights")?.into();
            Ok(Kind::Weighted { weights, num_samples, replacement: replacement != 0 })
        })
    }
}

/// Makes a sampler of one replica's share of the dataset (torch's `DistributedSampler`): that of `rank`, below `num_replicas`.
/// All replicas must be given the same seed, and before each pass the same `slotline_sampler_set_epoch`. Any thread.
///
/// # Errors
///
/// `SLOTLINE_INVALID`: `out` is NULL. A rank that is none `slotline_loader_new` says, by `SLOTLINE_BUILD`.
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
    let (shuffle, drop_last, epoch) = (shuffle != 0, drop_last != 0, EpochHandle::default());
    // SAFETY: the caller's word.
    unsafe { make(out, error, || Ok(Kind::Distributed { num_replicas, rank, shuffle, drop_last, seed, epoch })) }
}

/// Makes a sampler of a new random order in each pass that takes no memory, for datasets of billions of samples; torch has
/// none. Any thread.
///
/// # Errors
///
/// `SLOTLINE_INVALID`: `out` is NULL.
///
/// # Safety
///
/// `out` and `error` must be NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_sampler_cipher(
    out: *mut *mut slotline_sampler,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller's word.
    unsafe { make(out, error, || Ok(Kind::Cipher)) }
}

/// Makes a sampler of these indices, in this order in each pass. They are copied. Any thread.
///
/// # Errors
///
/// `SLOTLINE_INVALID`: a null pointer.
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
    // SAFETY: the caller's word.
    unsafe { make(out, error, || Ok(Kind::List(check::slice(indices, n, "indices")?.into()))) }
}

/// Makes a sampler of a callback. It is the sampler's from here on, also if this fails. Any thread.
///
/// # Errors
///
/// `SLOTLINE_INVALID`: a null pointer, or a short struct.
///
/// # Safety
///
/// `callback` must be NULL, or what `slotline_order_callback` says; `out` and `error` must be NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_sampler_from_callback(
    callback: *const slotline_order_callback,
    out: *mut *mut slotline_sampler,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller's word.
    unsafe { make(out, error, || Ok(Kind::Callback(Arc::new(Calls::from_c(callback)?)))) }
}

/// Starts the process's default generator over with this seed (`torch.manual_seed`): what loaders and samplers draw from that
/// have no seed of their own. It begins with one that nobody can foresee. Any thread.
#[unsafe(no_mangle)]
pub extern "C" fn slotline_manual_seed(seed: u64) {
    guarded((), || manual_seed(seed));
}

/// Has a sampler draw from a generator of its own with this seed, in loaders that are made from now on. Of no use to those that
/// draw nothing, and to distributed ones, which have a seed. Does nothing with NULL.
///
/// # Safety
///
/// `sampler` must be NULL or a sampler that was not freed, and that nobody uses meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_sampler_seed(sampler: *mut slotline_sampler, seed: u64) {
    // SAFETY: the caller's word.
    if let Some(sampler) = unsafe { sampler.as_mut() } {
        sampler.seed = Some(seed);
    }
}

/// Says which epoch the next pass of a distributed sampler is, of all loaders that were made with it. Does nothing with others,
/// or with NULL. Any thread.
///
/// # Safety
///
/// `sampler` must be NULL or a sampler that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_sampler_set_epoch(sampler: *const slotline_sampler, epoch: u64) {
    // SAFETY: the caller's word.
    if let Some(slotline_sampler { kind: Kind::Distributed { epoch: handle, .. }, .. }) = unsafe { sampler.as_ref() } {
        handle.set(epoch);
    }
}

/// Frees a sampler; NULL is fine. Loaders made with it go on. Any thread.
///
/// # Safety
///
/// As of `slotline_sampler_set_epoch`; nobody may use it from then on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_sampler_free(sampler: *mut slotline_sampler) {
    if !sampler.is_null() {
        // SAFETY: it was made by `make`, and the caller gives it up.
        guarded((), || drop(unsafe { Box::from_raw(sampler) }));
    }
}
