//! Batch samplers: the lists of indices that form the batches of a pass.

use std::ffi::c_void;
use std::sync::Arc;

use slotline::loader::{BuildError, Builder};
use slotline::rng::SharedGenerator;
use slotline::sampler::{BatchSampler, SamplerError};
use slotline::{BoxError, Ranks};
use slotline_sequences::sampler::LengthBatchSampler;

use crate::abi::{
    Failure, Owner, Versioned, answer, chain, check, free, made, slotline_drop, slotline_error, slotline_failure,
    slotline_status, versioned,
};
use crate::sampling::sampler::slotline_sampler;

/// A batch sampler: the lists of indices that form the batches of a loader's passes. A loader
/// copies what it needs, so the batch sampler may be freed once the loader was created, and may be
/// used for several loaders. Any number of threads may use it concurrently.
#[derive(Clone, Debug)]
pub struct slotline_batch_sampler(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Of { sampler: slotline_sampler, batch_size: usize, drop_last: bool },
    Lists(Arc<Lists>),
    Callback(Arc<Calls>),
    Lengths { sampler: Box<LengthBatchSampler>, dataset_len: usize },
}

/// Lists of indices, stored one after another.
#[derive(Debug)]
struct Lists {
    indices: Box<[usize]>,
    /// The offset at which each list begins, followed by the end of the last list.
    offsets: Box<[usize]>,
    /// The length of the longest list.
    most: usize,
}

/// Writes the indices of batch `batch` of pass `pass` (both from 0) to `indices`, and their number,
/// at most `room`, to `*len`. Returns 0; or 1 after the last batch; or another value after setting
/// the reason with `slotline_fail`, which ends the pass. It is called by the thread that begins the
/// batch, for each loader by one thread at a time.
///
/// `seed` is the same for all batches of a pass, and a new random number in each pass. It is drawn
/// from the loader's seed or generator, or else from the process's default generator. A resumed
/// pass gets the same `pass` and `seed`; before it continues, this is called again for its earlier
/// batches, but not for earlier passes.
pub type slotline_batches = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        pass: u64,
        seed: u64,
        batch: u64,
        indices: *mut u64,
        room: usize,
        len: *mut usize,
        failure: *mut slotline_failure,
    ) -> i32,
>;

/// A batch sampler made of a callback. Loaders that share it may call it concurrently.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct slotline_batches_callback {
    /// `sizeof(slotline_batches_callback)`.
    pub struct_size: usize,
    /// The user pointer that is passed to the callbacks.
    pub user: *mut c_void,
    /// The maximum number of indices in a batch.
    pub max_batch_size: usize,
    /// Writes the batches.
    pub batches: slotline_batches,
    /// Called once when the sampler is no longer needed, on any thread; may be NULL.
    pub drop: slotline_drop,
}

// SAFETY: it contains only numbers and pointers, and its first field is its size.
unsafe impl Versioned for slotline_batches_callback {
    const END: usize = versioned::end!(drop);
}

/// The rule for batches of samples of similar lengths, for `slotline_batch_sampler_by_length`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct slotline_length_batches {
    /// `sizeof(slotline_length_batches)`.
    pub struct_size: usize,
    /// The length of each sample of the dataset, below 2^32.
    pub lengths: *const usize,
    /// The number of samples.
    pub num_lengths: usize,
    /// A budget of tokens: the maximum number of tokens in a batch, of which a sample has as many as its
    /// length (0: buckets).
    pub max_tokens: usize,
    /// For buckets: ascending lengths. Bucket i has the samples whose lengths are at least
    /// `boundaries[i - 1]` and less than `boundaries[i]`.
    pub boundaries: *const usize,
    /// For buckets: the number of samples in a batch of each of the `num_boundaries + 1` buckets. The
    /// last batch of a bucket may be smaller.
    pub batch_sizes: *const usize,
    /// The number of `boundaries`.
    pub num_boundaries: usize,
    /// The maximum number of samples in a batch (0: no limit other than the budget or the buckets). A
    /// batch reserves memory for the largest one, which short samples make large.
    pub limit: usize,
    /// Whether the budget includes the padding to the longest sample of the batch, for batches that are
    /// padded. Otherwise only the samples' own tokens count, which is right for packed batches.
    pub padded: u8,
    /// Whether each pass has other batches, in random order. Otherwise a budget takes the samples from
    /// the longest to the shortest, and buckets take them in the order of the dataset.
    pub shuffle: u8,
    /// Whether batches at the end are left out if their number is not divisible by `world_size`.
    /// Otherwise ranks without a batch repeat one from the start.
    pub drop_last: u8,
    /// Zeros; reserved for later versions.
    pub reserved: [u8; 5],
}

// SAFETY: it contains only numbers and pointers, and its first field is its size.
unsafe impl Versioned for slotline_length_batches {
    const END: usize = versioned::end!(reserved);

    fn is_known(&self) -> bool {
        self.reserved == [0; 5]
    }
}

impl slotline_length_batches {
    /// Makes the sampler.
    ///
    /// # Safety
    ///
    /// The pointers must be valid as documented at the fields.
    unsafe fn make(&self) -> Result<LengthBatchSampler, Failure> {
        let flag = |flag, name| check::flag(flag, &format!("batches->{name}"));
        let (padded, shuffle) = (flag(self.padded, "padded")?, flag(self.shuffle, "shuffle")?);
        let drop_last = flag(self.drop_last, "drop_last")?;
        let list = |pointer, n, name| {
            // SAFETY: the caller guarantees that the pointers are valid.
            unsafe { check::slice(pointer, n, &format!("batches->{name}")) }.map(|list: &[usize]| list.iter().copied())
        };
        let lengths = list(self.lengths, self.num_lengths, "lengths")?;
        let sampler = if self.max_tokens > 0 {
            LengthBatchSampler::token_budget(lengths, self.max_tokens).map(|sampler| sampler.padded(padded))
        } else {
            let boundaries = list(self.boundaries, self.num_boundaries, "boundaries")?;
            let sizes = list(self.batch_sizes, self.num_boundaries.saturating_add(1), "batch_sizes")?;
            LengthBatchSampler::buckets(lengths, boundaries, sizes)
        };
        let mut sampler = sampler.map_err(|error| Failure::invalid(chain(&error)))?;
        if self.limit > 0 {
            sampler = sampler.limit(self.limit).map_err(|error| Failure::invalid(chain(&error)))?;
        }
        Ok(sampler.shuffle(shuffle).drop_last(drop_last))
    }
}

/// The callback and its user pointer.
#[derive(Debug)]
struct Calls {
    owner: Owner,
    most: usize,
    #[allow(clippy::type_complexity)]
    batches:
        unsafe extern "C" fn(*mut c_void, u64, u64, u64, *mut u64, usize, *mut usize, *mut slotline_failure) -> i32,
}

impl Calls {
    /// Returns an iterator over the batches of a pass.
    fn pass(self: Arc<Self>, pass: u64, seed: u64) -> impl Iterator<Item = Result<Vec<usize>, BoxError>> + Send {
        let mut room = Vec::new();
        (0..).map_while(move |batch| {
            room.clear();
            if room.try_reserve_exact(self.most).is_err() {
                let bytes = self.most.saturating_mul(size_of::<u64>());
                return Some(Err(format!("cannot allocate {bytes} bytes for a batch of {} indices", self.most).into()));
            }
            room.resize(self.most, 0_u64);
            let mut len = 0;
            let outcome = answer(|failure| {
                let (user, indices) = (self.owner.user(), room.as_mut_ptr());
                // SAFETY: the user has guaranteed that it may be called this way; `room` has the
                // length that is passed.
                unsafe { (self.batches)(user, pass, seed, batch, indices, room.len(), &mut len, failure) }
            });
            Some(match outcome {
                Ok(0) => match room.get(..len) {
                    Some(indices) => Ok(indices.iter().map(|&index| index as usize).collect()),
                    None => {
                        Err(format!("the callback returned {len} indices, but max_batch_size is {}", self.most).into())
                    }
                },
                Ok(1) => return None,
                Ok(code) => Err(format!("the callback returned {code}").into()),
                Err(cause) => Err(cause.into()),
            })
        })
    }
}

impl slotline_batch_sampler {
    /// Whether the sampler plans the batches of each rank itself.
    pub(crate) fn is_planned(&self) -> bool {
        matches!(self.0, Kind::Lengths { .. })
    }

    /// Applies this batch sampler to the builder of a dataset with `dataset_len` samples. A sampler that
    /// plans its batches draws from `generator`, or else from the process's default generator, and
    /// makes those of one rank if `ranks` is given.
    pub(crate) fn apply<D, C>(
        &self,
        builder: Builder<D, C>,
        dataset_len: usize,
        generator: Option<SharedGenerator>,
        ranks: Option<Ranks>,
    ) -> Result<Builder<D, C>, BuildError> {
        Ok(match &self.0 {
            &Kind::Lengths { ref sampler, dataset_len: lengths } => {
                let mut sampler = LengthBatchSampler::clone(sampler);
                if lengths != dataset_len {
                    let error = format!(
                        "the batch sampler has {lengths} lengths, but the dataset has {dataset_len} samples; give the \
                         lengths of all its samples"
                    );
                    return Err(SamplerError::Other(error.into()).into());
                }
                if let Some(generator) = generator {
                    sampler = sampler.generator(generator);
                }
                if let Some(ranks) = ranks {
                    sampler = sampler.replicas(ranks.world_size(), ranks.rank())?;
                }
                builder.batch_sampler(sampler)
            }
            &Kind::Of { ref sampler, batch_size, drop_last } => {
                builder.batch_sampler(BatchSampler::new(sampler.make(dataset_len)?, batch_size, drop_last)?)
            }
            Kind::Lists(lists) => {
                let lists = lists.clone();
                builder.batch_sampler_iter(lists.most, move || {
                    let lists = lists.clone();
                    let batches = lists.offsets.len() - 1;
                    (0..batches).map(move |i| lists.indices[lists.offsets[i]..lists.offsets[i + 1]].to_vec())
                })
            }
            Kind::Callback(calls) => {
                let (calls, mut passes) = (calls.clone(), 0..);
                builder.batch_sampler_try_iter(calls.most, move |seed| {
                    calls.clone().pass(passes.next().unwrap_or(u64::MAX), seed)
                })
            }
        })
    }
}

/// Makes a batch sampler.
///
/// # Safety
///
/// `out` and `error` must be NULL or writable.
unsafe fn make(
    out: *mut *mut slotline_batch_sampler,
    error: *mut *mut slotline_error,
    kind: impl FnOnce() -> Result<Kind, Failure>,
) -> slotline_status {
    // SAFETY: the caller guarantees that `out` and `error` are NULL or writable.
    unsafe { made(out, error, || kind().map(slotline_batch_sampler)) }
}

/// Creates a batch sampler that groups a sampler's indices into batches of `batch_size` (torch's
/// `BatchSampler`). With `drop_last`, a last batch with fewer indices is left out. It copies what
/// it needs from `sampler`. Can be called from any thread.
///
/// # Errors
///
/// `SLOTLINE_ERROR_INVALID`: a null pointer. A `batch_size` of 0 is reported by `slotline_loader_new`, as `SLOTLINE_ERROR_BUILD`.
///
/// # Safety
///
/// `sampler` must be NULL or a sampler that was not freed; `out` and `error` must be NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_batch_sampler_of(
    sampler: *const slotline_sampler,
    batch_size: usize,
    drop_last: u8,
    out: *mut *mut slotline_batch_sampler,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller guarantees that `sampler` is NULL or was not freed, and that `out` and `error` are NULL or writable.
    unsafe {
        make(out, error, || {
            let sampler = check::reference(sampler, "sampler")?.clone();
            Ok(Kind::Of { sampler, batch_size, drop_last: check::flag(drop_last, "drop_last")? })
        })
    }
}

/// Creates a batch sampler from `n` lists of indices, the same in each pass. List `i` is the range
/// of `indices` from `offsets[i]` to `offsets[i + 1]`. The lists are copied. Can be called from any
/// thread.
///
/// # Errors
///
/// `SLOTLINE_ERROR_INVALID`: a null pointer, lists that are all empty, or offsets that do not ascend from 0.
///
/// # Safety
///
/// `offsets` must point to `n + 1` numbers, and `indices` to as many as the last offset; `out` and `error` must be NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_batch_sampler_lists(
    indices: *const usize,
    offsets: *const usize,
    n: usize,
    out: *mut *mut slotline_batch_sampler,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller guarantees that `offsets` and `indices` are valid, and that `out` and `error` are NULL or writable.
    unsafe {
        make(out, error, || {
            let offsets = check::slice(offsets, n.saturating_add(1), "offsets")?;
            if offsets[0] != 0 || !offsets.is_sorted() {
                return Err(Failure::invalid("offsets do not ascend from 0"));
            }
            let most = offsets.windows(2).map(|ends| ends[1] - ends[0]).max().unwrap_or(0);
            if most == 0 {
                return Err(Failure::invalid("all lists are empty; at least one must have an index"));
            }
            let indices = check::slice(indices, offsets[n], "indices")?;
            Ok(Kind::Lists(Arc::new(Lists { indices: indices.into(), offsets: offsets.into(), most })))
        })
    }
}

/// Creates a batch sampler from a callback. The sampler takes ownership of the callback's user
/// pointer, even if this function fails. Can be called from any thread.
///
/// # Errors
///
/// `SLOTLINE_ERROR_INVALID`: a null pointer, or a struct that is too short.
///
/// # Safety
///
/// `callback` must be NULL or a valid `slotline_batches_callback`; `out` and `error` must be NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_batch_sampler_from_callback(
    callback: *const slotline_batches_callback,
    out: *mut *mut slotline_batch_sampler,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller guarantees that `callback` is NULL or valid, and that `out` and `error` are NULL or writable.
    unsafe {
        make(out, error, || {
            let (c, owner) = versioned::read(callback, "callback", |c| Owner::new(c.user, c.drop))?;
            let batches = c.batches.ok_or_else(|| Failure::invalid("callback->batches is NULL"))?;
            Ok(Kind::Callback(Arc::new(Calls { owner, most: c.max_batch_size, batches })))
        })
    }
}

/// Creates a batch sampler that makes batches of samples of similar lengths, which differ in size: by a
/// budget of tokens, or by buckets of lengths (as in TensorFlow's `bucket_by_sequence_length`). Each
/// sample is visited once in a pass. The arrays are copied. Can be called from any thread.
///
/// Batches are drawn from a generator with the loader's `seed`, or from the loader's `generator`, or
/// else from the process's default generator. Ranks (`world_size`) have equally many batches. A
/// sample that replaces a bad one (`on_error`) is not longer than the bad one.
///
/// # Errors
///
/// `SLOTLINE_ERROR_INVALID`: a null pointer, a struct that is too short, a sample that is longer than
/// `max_tokens`, a length of 2^32 or more, boundaries that do not ascend, or a batch size of 0. A number
/// of lengths that is not that of the dataset's samples is reported by `slotline_loader_new`, as
/// `SLOTLINE_ERROR_BUILD`.
///
/// # Safety
///
/// `batches` must be NULL or a valid `slotline_length_batches`; `out` and `error` must be NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_batch_sampler_by_length(
    batches: *const slotline_length_batches,
    out: *mut *mut slotline_batch_sampler,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller guarantees that `batches` is NULL or valid, and that `out` and `error` are NULL or writable.
    unsafe {
        make(out, error, || {
            let (batches, ()) = versioned::read(batches, "batches", |_| ())?;
            Ok(Kind::Lengths { sampler: Box::new(batches.make()?), dataset_len: batches.num_lengths })
        })
    }
}

/// Frees a batch sampler. Does nothing for NULL. Loaders created with it are not affected. Can be
/// called from any thread.
///
/// # Safety
///
/// `sampler` must be NULL or a batch sampler that was not freed; it must not be used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_batch_sampler_free(sampler: *mut slotline_batch_sampler) {
    // SAFETY: `make` created the sampler, and the caller transfers its ownership.
    unsafe { free(sampler) }
}
