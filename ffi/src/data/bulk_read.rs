//! Bulk reads: callbacks that read several samples faster than one at a time.

use std::cell::{Cell, UnsafeCell};
use std::ffi::c_void;
use std::fmt;
use std::mem::transmute;
use std::ptr::NonNull;

use slotline::BoxError;
use slotline::dataset::{Context, Dataset};

use crate::abi::{
    SLOTLINE_ERROR_INVALID, SLOTLINE_ERROR_PANIC, SLOTLINE_ERROR_SAMPLE, SLOTLINE_OK, answer, guarded,
    slotline_failure, slotline_status,
};
use crate::data::map::{Read, slotline_read};

/// Reads the samples at `n` indices, all below `len`, and passes each to
/// `slotline_sample_sink_put`, in that order. Returns 0, or another value after setting the reason
/// with `slotline_fail`, which becomes the error of the first sample that was not passed on.
/// Several threads call it concurrently.
pub type slotline_read_many = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        indices: *const usize,
        n: usize,
        sink: *mut slotline_sample_sink,
        failure: *mut slotline_failure,
    ) -> i32,
>;

/// Announces that a sample will be read soon, so that its memory can be prefetched. It is only a
/// hint, must be cheap, and cannot fail. Several threads call it concurrently.
pub type slotline_prefetch = Option<unsafe extern "C" fn(user: *mut c_void, index: usize)>;

/// Receives the samples of a bulk read. Only the callback's thread may use it, until the callback
/// returns.
pub struct slotline_sample_sink {
    /// Whether a sample is being written. The callback that writes it could wrongly call this
    /// object again.
    busy: Cell<bool>,
    /// Accessed only by the call that has set `busy`.
    lent: UnsafeCell<Lent>,
}

/// A function that stores the sample which a callback writes.
type Put<'p> = dyn FnMut(Read, *mut c_void) -> Result<(), BoxError> + 'p;

struct Lent {
    /// The function. Its real lifetime ends when the bulk read returns.
    put: NonNull<Put<'static>>,
    /// The error of the sample that could not be stored.
    failure: Option<BoxError>,
}

/// Calls a user's bulk read with a sink that stores its samples.
pub(crate) fn call(
    put: &mut Put<'_>,
    read_many: impl FnOnce(*mut slotline_sample_sink, *mut slotline_failure) -> i32,
) -> Result<(), BoxError> {
    let put: NonNull<Put<'_>> = NonNull::from(put);
    // SAFETY: only the lifetime is extended, and the function is used only until the callback
    // returns.
    let put = unsafe { transmute::<NonNull<Put<'_>>, NonNull<Put<'static>>>(put) };
    let mut lent = slotline_sample_sink { busy: Cell::new(false), lent: UnsafeCell::new(Lent { put, failure: None }) };
    let outcome = answer(|failure| read_many(&raw mut lent, failure));
    // The sink's error takes precedence: the callback fails because of it.
    if let Some(failure) = lent.lent.into_inner().failure {
        return Err(failure);
    }
    match outcome? {
        0 => Ok(()),
        code => Err(format!("read_many returned {code}").into()),
    }
}

/// Reads samples one at a time, and passes each to `put`.
pub(crate) fn one_by_one<D: Dataset>(
    dataset: &D,
    indices: &[usize],
    context: &mut Context,
    put: &mut dyn for<'a> FnMut(D::Sample<'a>) -> Result<(), BoxError>,
) -> Result<(), BoxError> {
    for (place, &index) in indices.iter().enumerate() {
        context.go_to(place);
        put(dataset.get(index, context)?)?;
    }
    Ok(())
}

impl fmt::Debug for slotline_sample_sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("slotline_sample_sink").finish_non_exhaustive()
    }
}

/// Stores the next sample of a bulk read. Before it returns, it calls `write` with `user`, the
/// sample's index and the sample, to write each of the fields as a `slotline_read` does.
///
/// # Errors
///
/// `SLOTLINE_ERROR_SAMPLE`: `write` failed, all samples were stored already, or an earlier call
/// failed. The bulk read must then return a nonzero value; the error is already recorded.
/// `SLOTLINE_ERROR_INVALID`: `sink` or `write` is NULL, or `write` itself made this call.
///
/// # Safety
///
/// `sink` must be NULL or the pointer that this callback received; `write` must be NULL or a function that can be called with
/// `user`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_sample_sink_put(
    sink: *mut slotline_sample_sink,
    write: slotline_read,
    user: *mut c_void,
) -> slotline_status {
    // SAFETY: the caller guarantees that `sink` is NULL or the pointer that this callback received.
    let (Some(sink), Some(write)) = (unsafe { sink.as_ref() }, write) else { return SLOTLINE_ERROR_INVALID };
    if sink.busy.replace(true) {
        return SLOTLINE_ERROR_INVALID;
    }
    let status = guarded(SLOTLINE_ERROR_PANIC, || {
        // SAFETY: `busy` was not set, and only one thread uses the object.
        let lent = unsafe { &mut *sink.lent.get() };
        if lent.failure.is_some() {
            return SLOTLINE_ERROR_SAMPLE;
        }
        // SAFETY: the function is valid until the callback returns, and nothing else uses it.
        match unsafe { lent.put.as_mut() }(write, user) {
            Ok(()) => SLOTLINE_OK,
            Err(error) => {
                lent.failure = Some(error);
                SLOTLINE_ERROR_SAMPLE
            }
        }
    });
    if status == SLOTLINE_ERROR_PANIC {
        // SAFETY: as above.
        unsafe { &mut *sink.lent.get() }.failure.get_or_insert_with(|| "the sample could not be put: a panic".into());
    }
    sink.busy.set(false);
    status
}
