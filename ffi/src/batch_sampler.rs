//! Batch samplers: which samples each batch has.

use std::ffi::c_void;
use std::panic::resume_unwind;
use std::ptr::null_mut;
use std::sync::Arc;

use slotline::loader::{BuildError, Builder};
use slotline::sampler::BatchSampler;

use crate::boundary::{guarded, made};
use crate::callback::{answer, slotline_failure};
use crate::check;
use crate::error::slotline_error;
use crate::failure::Failure;
use crate::owner::{Owner, slotline_drop};
use crate::sampler::slotline_sampler;
use crate::status::slotline_status;
use crate::versioned::{self, Versioned};

/// A batch sampler: the batches of a loader's passes. Loaders keep what they need of it, so that it may be freed as soon as
/// they are made, and used for several. Any number of threads may use it at once.
#[derive(Clone, Debug)]
pub struct slotline_batch_sampler(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Of { sampler: slotline_sampler, batch_size: usize, drop_last: bool },
    Lists(Arc<Lists>),
    Callback(Arc<Calls>),
}

/// Lists of indices, one behind the other.
#[derive(Debug)]
struct Lists {
    indices: Box<[usize]>,
    /// Where each begins, and the last one ends.
    offsets: Box<[usize]>,
    /// Of the longest.
    most: usize,
}

/// Writes the indices of batch `batch` (from 0) of pass `pass` (from 0) to `indices`, and their number, at most
/// `room`, to `*len`. Returns 0; or 1 after the last batch; or fails by `slotline_fail`, and the pass is over. It is called by
/// whichever thread begins the batch, one at a time for each loader, and before a resumed pass goes on for what comes before.
pub type slotline_batches = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        pass: u64,
        batch: u64,
        indices: *mut u64,
        room: usize,
        len: *mut usize,
        failure: *mut slotline_failure,
    ) -> i32,
>;

/// A batch sampler of one's own. Loaders that share it call it at once.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct slotline_batches_callback {
    /// `sizeof(slotline_batches_callback)`.
    pub struct_size: usize,
    /// What the callbacks are called with.
    pub user: *mut c_void,
    /// The most indices that a batch has.
    pub max_batch_size: usize,
    /// Gives the batches.
    pub batches: slotline_batches,
    /// Called once, when nobody needs the sampler any more, on whichever thread that is; may be NULL.
    pub drop: slotline_drop,
}

// SAFETY: numbers and pointers, the first one the size.
unsafe impl Versioned for slotline_batches_callback {
    const END: usize = versioned::end!(drop);

    fn defaults() -> Self {
        Self { struct_size: 0, user: null_mut(), max_batch_size: 0, batches: None, drop: None }
    }
}

/// The callback.
#[derive(Debug)]
struct Calls {
    owner: Owner,
    most: usize,
    #[allow(clippy::type_complexity)]
    batches: unsafe extern "C" fn(*mut c_void, u64, u64, *mut u64, usize, *mut usize, *mut slotline_failure) -> i32,
}

impl Calls {
    /// The batches of a pass.
    fn pass(self: Arc<Self>, pass: u64) -> impl Iterator<Item = Vec<usize>> + Send {
        let mut room = Vec::new();
        (0..).map_while(move |batch| {
            room.clear();
            room.resize(self.most, 0_u64);
            let mut len = 0;
            let outcome = answer(|failure| {
                // SAFETY: the user said that it may be called so; there is so much room.
                unsafe {
                    (self.batches)(self.owner.user(), pass, batch, room.as_mut_ptr(), room.len(), &mut len, failure)
                }
            });
            let failed = match outcome {
                Ok(0) => match room.get(..len) {
                    Some(indices) => return Some(indices.iter().map(|&index| index as usize).collect()),
                    None => format!("it gave {len} indices, and max_batch_size is {}", self.most),
                },
                Ok(1) => return None,
                Ok(code) => format!("it gave {code}"),
                Err(error) => error.to_string(),
            };
            // What an iterator fails by; without the words of a panic that was not meant.
            resume_unwind(Box::new(failed));
        })
    }
}

impl slotline_batch_sampler {
    /// Tells a builder of a dataset of so many samples.
    pub(crate) fn apply<D, C>(&self, builder: Builder<D, C>, dataset_len: usize) -> Result<Builder<D, C>, BuildError> {
        Ok(match &self.0 {
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
                builder.batch_sampler_iter(calls.most, move || calls.clone().pass(passes.next().unwrap_or(u64::MAX)))
            }
        })
    }
}

/// Makes a batch sampler, or says what is wrong.
///
/// # Safety
///
/// `out` and `error` must be NULL or writable.
unsafe fn make(
    out: *mut *mut slotline_batch_sampler,
    error: *mut *mut slotline_error,
    kind: impl FnOnce() -> Result<Kind, Failure>,
) -> slotline_status {
    // SAFETY: the caller's word.
    unsafe { made(out, error, || kind().map(slotline_batch_sampler)) }
}

/// Makes a batch sampler of `batch_size` of a sampler's indices for each batch (torch's `BatchSampler`); with `drop_last` a last
/// one of fewer is left out. It keeps what it needs of `sampler`. Any thread.
///
/// # Errors
///
/// `SLOTLINE_INVALID`: a null pointer. A `batch_size` of 0 `slotline_loader_new` says, by `SLOTLINE_BUILD`.
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
    // SAFETY: the caller's word.
    unsafe {
        make(out, error, || {
            let sampler = check::reference(sampler, "sampler")?.clone();
            Ok(Kind::Of { sampler, batch_size, drop_last: drop_last != 0 })
        })
    }
}

/// Makes a batch sampler of `n` lists of indices, the same in each pass: list `i` is from `offsets[i]` to `offsets[i + 1]` in
/// `indices`. They are copied. Any thread.
///
/// # Errors
///
/// `SLOTLINE_INVALID`: a null pointer, no list that has an index, or offsets that do not ascend from 0.
///
/// # Safety
///
/// `offsets` must point to `n + 1` numbers, and `indices` to as many as the last one says; `out` and `error` must be NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_batch_sampler_lists(
    indices: *const usize,
    offsets: *const usize,
    n: usize,
    out: *mut *mut slotline_batch_sampler,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller's word.
    unsafe {
        make(out, error, || {
            let offsets = check::slice(offsets, n.saturating_add(1), "offsets")?;
            if offsets[0] != 0 || !offsets.is_sorted() {
                return Err(Failure::invalid("offsets do not ascend from 0"));
            }
            let most = offsets.windows(2).map(|ends| ends[1] - ends[0]).max().unwrap_or(0);
            if most == 0 {
                return Err(Failure::invalid("there is no list that has an index"));
            }
            let indices = check::slice(indices, offsets[n], "indices")?;
            Ok(Kind::Lists(Arc::new(Lists { indices: indices.into(), offsets: offsets.into(), most })))
        })
    }
}

/// Makes a batch sampler of a callback. It is the sampler's from here on, also if this fails. Any thread.
///
/// # Errors
///
/// `SLOTLINE_INVALID`: a null pointer, or a short struct.
///
/// # Safety
///
/// `callback` must be NULL, or what `slotline_batches_callback` says; `out` and `error` must be NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_batch_sampler_from_callback(
    callback: *const slotline_batches_callback,
    out: *mut *mut slotline_batch_sampler,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller's word.
    unsafe {
        make(out, error, || {
            let (c, owner) = versioned::read(callback, "callback", |c| Owner::new(c.user, c.drop))?;
            let batches = c.batches.ok_or_else(|| Failure::invalid("callback->batches is NULL"))?;
            Ok(Kind::Callback(Arc::new(Calls { owner, most: c.max_batch_size, batches })))
        })
    }
}

/// Frees a batch sampler; NULL is fine. Loaders made with it go on. Any thread.
///
/// # Safety
///
/// `sampler` must be NULL or a batch sampler that was not freed; nobody may use it from then on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_batch_sampler_free(sampler: *mut slotline_batch_sampler) {
    if !sampler.is_null() {
        // SAFETY: it was made by `make`, and the caller gives it up.
        guarded((), || drop(unsafe { Box::from_raw(sampler) }));
    }
}
