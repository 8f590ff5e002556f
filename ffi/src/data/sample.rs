//! The sample that a callback writes.

use std::ffi::{c_char, c_void};
use std::fmt;
use std::os::fd::AsRawFd;
use std::ptr::{NonNull, null_mut};
use std::slice;

use slotline::BoxError;
use slotline::dataset::{Context, is_timed, writing};
use slotline::dtype::DType;
use slotline::rng::rand_core::Rng;
use slotline::sample::Row;
use slotline::shape::Shape;
use slotline::tensor::AnyTensorView;

use crate::abi::{Cause, SLOTLINE_ERROR_INVALID, SLOTLINE_OK, guarded, slotline_drop, slotline_status};
use crate::fields::dtype::{self, One};
use crate::fields::field::{Declared, SLOTLINE_FIXED, SLOTLINE_PADDED_TO_LONGEST, SLOTLINE_PADDED_TO_MAX};

/// A sample that a callback writes. Only the callback's thread may use it, until the callback
/// returns.
pub struct slotline_sample {
    /// The `Row`. Its real lifetimes end when the callback returns.
    row: NonNull<c_void>,
    context: NonNull<Context>,
    fields: NonNull<[Declared]>,
    /// The index of the sample's first field in the row. It is not 0 if the dataset is part of a
    /// stack.
    first: usize,
    /// A bit set of the fields that were written.
    written: u64,
    /// A bit set of the fields whose memory the callback may write directly
    /// (`slotline_sample_row`).
    lent: u64,
    /// The reason for a failure, if the callback has set one.
    failure: Option<Cause>,
    /// The last field whose write failed and that was not written since, and the reason.
    refused: Option<(usize, String)>,
    /// Whether to measure the time of the callback's writes.
    timed: bool,
}

impl slotline_sample {
    /// Calls `callback` to write a sample with these fields into a row. The callback returns 0, or
    /// 1 if there are no more samples and `end` allows it; any other value is an error. Returns
    /// whether there was a sample.
    #[inline]
    pub(crate) fn write(
        row: &mut Row<'_>,
        context: &mut Context,
        fields: &[Declared],
        end: bool,
        callback: impl FnOnce(*mut Self) -> i32,
    ) -> Result<bool, BoxError> {
        let mut sample = Self {
            row: NonNull::from(&mut *row).cast(),
            context: NonNull::from(context),
            fields: NonNull::from(fields),
            first: row.next_field(),
            written: 0,
            lent: 0,
            failure: None,
            refused: None,
            timed: is_timed(),
        };
        let first = sample.first;
        let code = callback(&raw mut sample);
        // Comes first: invalid `bool`s must not stay in the memory, whatever else fails.
        let spoiled = clear_invalid_bools(row, first, fields, sample.lent)?;
        if let Some(cause) = sample.failure.take() {
            return Err(cause.into());
        }
        if let Some((field, why)) = sample.refused.take() {
            return Err(format!("field {field}: {why}").into());
        }
        match code {
            0 => {}
            1 if end => return Ok(false),
            code => return Err(format!("the callback returned {code} for a sample").into()),
        }
        let written = sample.written;
        let missing = fields.iter().enumerate().find(|&(i, _)| written & 1 << i == 0);
        if let Some((i, field)) = missing {
            return Err(format!("the callback did not write field {i} ({:?})", field.name).into());
        }
        if let Some((i, field)) = spoiled {
            return Err(format!("field {i} ({:?}) contains a bool that is neither 0 nor 1", field.name).into());
        }
        row.go_to(first + fields.len());
        Ok(true)
    }

    /// Returns the row and the fields.
    fn parts(&mut self) -> (&mut Row<'_>, &[Declared]) {
        // SAFETY: `write` borrows both while the callback has the sample, and nothing else uses
        // them.
        unsafe { (self.row.cast::<Row<'_>>().as_mut(), self.fields.as_ref()) }
    }

    /// Returns the memory of a field of fixed shape for the callback to write.
    fn lend(&mut self, field: usize) -> Option<NonNull<[u8]>> {
        let first = self.first;
        let (row, fields) = self.parts();
        fields.get(field).filter(|declared| declared.kind == SLOTLINE_FIXED)?;
        row.go_to(first + field);
        let memory = row.fill_raw().ok()?;
        self.note(field);
        self.lent |= 1 << field;
        Some(memory)
    }

    /// Records that a field was written.
    fn note(&mut self, field: usize) {
        self.written |= 1 << field;
        self.refused.take_if(|refused| refused.0 == field);
    }

    /// Writes a field, and measures the time if `timed` is set.
    ///
    /// # Safety
    ///
    /// The same as for `put`.
    #[inline(always)]
    unsafe fn put_timed(&mut self, field: usize, data: *const c_void, elements: usize) -> Result<(), String> {
        if self.timed {
            // SAFETY: the caller upholds the same contract.
            return cold(|| writing(|| unsafe { self.put(field, data, elements) }));
        }
        // SAFETY: as above.
        unsafe { self.put(field, data, elements) }
    }

    /// Writes a field.
    ///
    /// # Safety
    ///
    /// `data` must be NULL or point to `elements` elements of the field's type.
    #[inline(always)]
    unsafe fn put(&mut self, field: usize, data: *const c_void, elements: usize) -> Result<(), String> {
        let first = self.first;
        let (row, fields) = self.parts();
        let Some(declared) = fields.get(field) else { return Err(no_field(field, fields)) };
        let dtype = declared.dtype;
        let bytes = elements.checked_mul(dtype.size()).filter(|&bytes| bytes <= isize::MAX as usize);
        let Some(bytes) = bytes else { return Err(format!("{elements} elements do not fit in memory")) };
        let start = match data.cast::<u8>() {
            _ if elements == 0 => NonNull::<u64>::dangling().cast::<u8>().as_ptr(),
            data if data.is_null() => return Err("data is NULL".into()),
            data if data.align_offset(dtype.align()) != 0 => {
                return Err(format!("data is not aligned: its address must be a multiple of {}", dtype.align()));
            }
            data => data.cast_mut(),
        };
        // SAFETY: the address is aligned and not null; the caller guarantees that it points to `bytes` bytes.
        if !dtype::valid(dtype, unsafe { slice::from_raw_parts(start, bytes) }) {
            return Err("data contains a bool that is neither 0 nor 1".into());
        }
        row.go_to(first + field);
        if declared.kind == SLOTLINE_FIXED
            && let Ok(memory) = row.fill_raw()
            && memory.len() == bytes
        {
            // Creates no references, and allows overlap: `data` may point into this very row, as
            // returned by `slotline_sample_row`.
            // SAFETY: both are `bytes` long, and the source contains valid elements.
            unsafe { std::ptr::copy(start.cast_const(), memory.as_ptr().cast(), bytes) };
        } else {
            let shape = Shape::new(&[elements]).unwrap_or_default();
            // SAFETY: the bytes are `elements` valid, aligned elements. Nothing writes to them
            // during this call: callbacks can write only to the memory of fields of fixed shape,
            // which this branch does not handle.
            let data = unsafe { AnyTensorView::from_raw_parts(dtype, shape, slice::from_raw_parts(start, bytes)) };
            row.go_to(first + field);
            let written = match declared.kind {
                SLOTLINE_PADDED_TO_MAX | SLOTLINE_PADDED_TO_LONGEST => {
                    row.write_padded(&data, &declared.padding.view(dtype), declared.multiple_of)
                }
                _ => row.write_elements(&data),
            };
            written.map_err(|error| error.to_string())?;
        }
        self.note(field);
        Ok(())
    }

    /// Writes a mask of `elements` elements to a field.
    ///
    /// # Safety
    ///
    /// `present` must be NULL or point to an element of the field's type.
    unsafe fn put_mask(&mut self, field: usize, present: *const c_void, elements: usize) -> Result<(), String> {
        let first = self.first;
        let (row, fields) = self.parts();
        let Some(declared) = fields.get(field) else { return Err(no_field(field, fields)) };
        // SAFETY: the caller upholds the contract of `One::read`.
        let present = unsafe { One::read(present, declared.dtype, "present") }.map_err(|failure| failure.message)?;
        row.go_to(first + field);
        let written = row.write_mask(&present.view(declared.dtype), elements, declared.multiple_of);
        written.map_err(|error| error.to_string())?;
        self.note(field);
        Ok(())
    }

    /// Returns the status of a write to a field. After a failure, the field's earlier content is not
    /// used.
    fn status(&mut self, field: usize, written: Result<(), String>) -> slotline_status {
        let Err(why) = written else { return SLOTLINE_OK };
        if field < self.fields.len() {
            self.written &= !(1 << field);
        }
        self.refused = Some((field, why));
        SLOTLINE_ERROR_INVALID
    }
}

#[cold]
fn no_field(field: usize, fields: &[Declared]) -> String {
    format!("field is {field}, but the sample has {} fields", fields.len())
}

/// Calls a function that is rarely needed, so that only the common case is inlined.
#[cold]
#[inline(never)]
fn cold<T>(call: impl FnOnce() -> T) -> T {
    call()
}

/// Clears the `bool` fields in which a callback has directly written values other than 0 and 1, and
/// returns the last of them.
fn clear_invalid_bools<'f>(
    row: &mut Row<'_>,
    first: usize,
    fields: &'f [Declared],
    lent: u64,
) -> Result<Option<(usize, &'f Declared)>, BoxError> {
    let mut spoiled = None;
    for (i, field) in fields.iter().enumerate().filter(|(_, field)| field.dtype == DType::Bool) {
        if lent & 1 << i != 0 {
            row.go_to(first + i);
            let memory = row.fill_raw()?;
            // SAFETY: the callback has returned, so nothing else uses the row, and its bytes are initialised.
            let memory = unsafe { &mut *memory.as_ptr() };
            if !dtype::valid(field.dtype, memory) {
                memory.fill(0);
                spoiled = Some((i, field));
            }
        }
    }
    Ok(spoiled)
}

impl fmt::Debug for slotline_sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("slotline_sample").field("written", &self.written).finish_non_exhaustive()
    }
}

/// Calls a function with a sample; returns `no` for NULL.
///
/// # Safety
///
/// `sample` must be NULL or the pointer that this callback received.
#[inline]
unsafe fn ask<T: Copy>(sample: *mut slotline_sample, no: T, question: impl FnOnce(&mut slotline_sample) -> T) -> T {
    // SAFETY: the caller guarantees that `sample` is NULL or the pointer that this callback received.
    unsafe { sample.as_mut() }.map_or(no, |sample| guarded(no, || question(sample)))
}

/// Calls a function with the sample's context; returns `no` for NULL.
///
/// # Safety
///
/// The same as for `ask`.
unsafe fn context<T: Copy>(sample: *mut slotline_sample, no: T, question: impl FnOnce(&mut Context) -> T) -> T {
    // SAFETY: the caller upholds the contract of `ask`; the context is borrowed while the callback has the sample.
    unsafe { ask(sample, no, |sample| question(sample.context.as_mut())) }
}

/// Returns the memory of field `field`, which must have a fixed shape, for the callback to write.
/// The callback must write every element, in C order, because the memory contains elements of an
/// earlier batch; `bool`s must be 0 or 1. The memory is part of the batch itself, may be written
/// until the callback returns, and the field counts as written. If `bytes` is not NULL, `*bytes`
/// becomes the size of the memory in bytes. Returns NULL if the field does not exist or does not
/// have a fixed shape.
///
/// # Safety
///
/// `sample` must be NULL or the pointer that this callback received; `bytes` must be NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_sample_row(
    sample: *mut slotline_sample,
    field: usize,
    bytes: *mut usize,
) -> *mut c_void {
    // SAFETY: the caller upholds the contract of `ask`.
    let memory = unsafe { ask(sample, None, |sample| sample.lend(field)) };
    if !bytes.is_null() {
        // SAFETY: the caller guarantees that `bytes` is NULL or writable, and it is not NULL.
        unsafe { bytes.write(memory.map_or(0, |memory| memory.len())) };
    }
    memory.map_or(null_mut(), |memory| memory.as_ptr().cast())
}

/// Writes field `field`, of any kind, by copying `elements` elements from `data`. The number of
/// elements must be exact for a field of fixed shape, at most the maximum for a field padded to a
/// maximum, any number for one padded to the longest, and a whole number of items for a packed field.
/// `data` may point into memory that `slotline_sample_row` returned, even for the same field.
///
/// # Errors
///
/// `SLOTLINE_ERROR_INVALID`: a null pointer, a field that does not exist, data that is not aligned, `bool`s other than 0 and 1,
/// or a wrong number of elements. The sample then fails with this error, unless the callback writes the field afterwards.
///
/// # Safety
///
/// `sample` must be NULL or the pointer that this callback received; `data` must point to `elements` elements of the field's
/// type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_sample_write(
    sample: *mut slotline_sample,
    field: usize,
    data: *const c_void,
    elements: usize,
) -> slotline_status {
    // SAFETY: the caller guarantees that `sample` is NULL or valid, and that `data` points to `elements` elements.
    unsafe {
        ask(sample, SLOTLINE_ERROR_INVALID, |sample| {
            let outcome = sample.put_timed(field, data, elements);
            sample.status(field, outcome)
        })
    }
}

/// Writes field `field`, which must be padded, as the mask of another padded field of the sample that
/// has `elements` elements: `elements` copies of the element at `present`, and then zeros. `present` is
/// of the mask's type, and is usually 1.
///
/// # Errors
///
/// `SLOTLINE_ERROR_INVALID`: a null pointer, a field that does not exist or is not padded, an element
/// that is not aligned, a `bool` other than 0 and 1, or too many elements. The sample then fails with
/// this error, unless the callback writes the field afterwards.
///
/// # Safety
///
/// `sample` must be NULL or the pointer that this callback received; `present` must be NULL or point to an element of the
/// field's type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_sample_mask(
    sample: *mut slotline_sample,
    field: usize,
    present: *const c_void,
    elements: usize,
) -> slotline_status {
    // SAFETY: the caller guarantees that `sample` is NULL or valid, and that `present` is NULL or points to an element.
    unsafe {
        ask(sample, SLOTLINE_ERROR_INVALID, |sample| {
            let outcome = sample.put_mask(field, present, elements);
            sample.status(field, outcome)
        })
    }
}

/// Sets the reason why the callback fails. The message is UTF-8 and is copied. The callback must
/// then return a value other than 0 (for a stream, also other than 1). Does nothing for NULL.
///
/// # Safety
///
/// `sample` must be NULL or the pointer that this callback received; `message` must be NULL or end with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_sample_fail(sample: *mut slotline_sample, message: *const c_char) {
    // SAFETY: the caller upholds the contract of the longer form, which is the same.
    unsafe { slotline_sample_fail_with(sample, message, null_mut(), std::ptr::null(), None) }
}

/// Works like `slotline_sample_fail`, and attaches an object of the user, like
/// `slotline_fail_with`.
///
/// # Safety
///
/// The same as for `slotline_sample_fail`; `type` must be NULL or end with a NUL; any thread may call `drop` with `payload`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_sample_fail_with(
    sample: *mut slotline_sample,
    message: *const c_char,
    payload: *mut c_void,
    r#type: *const c_char,
    drop: slotline_drop,
) {
    guarded((), || {
        // SAFETY: the caller guarantees that the strings are NULL or end with a NUL, and that `drop` can be called.
        let cause = unsafe { Cause::from_c(message, payload, r#type, drop) };
        // SAFETY: the caller guarantees that `sample` is NULL or the pointer that this callback received.
        if let Some(sample) = unsafe { sample.as_mut() } {
            sample.failure = Some(cause);
        }
    });
}

/// Returns the next number of the sample's random generator. The numbers depend only on the seed, the epoch and the sample's
/// position in the pass, so they are the same for any number of workers, and in any thread. 0 for NULL.
///
/// # Safety
///
/// `sample` must be NULL or the pointer that this callback received.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_sample_random(sample: *mut slotline_sample) -> u64 {
    // SAFETY: the caller upholds the contract of `context`.
    unsafe { context(sample, 0, |context| context.rng().next_u64()) }
}

/// Returns the sample's position in the pass, from 0; for a stream, its position in the sequence
/// that this worker reads. 0 for NULL.
///
/// # Safety
///
/// The same as for `slotline_sample_random`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_sample_position(sample: *mut slotline_sample) -> u64 {
    // SAFETY: the caller upholds the contract of `context`.
    unsafe { context(sample, 0, |context| context.position()) }
}

/// Returns the number of the pass, from 0. 0 for NULL.
///
/// # Safety
///
/// The same as for `slotline_sample_random`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_sample_epoch(sample: *mut slotline_sample) -> u32 {
    // SAFETY: the caller upholds the contract of `context`.
    unsafe { context(sample, 0, |context| context.epoch()) }
}

/// Returns the index of the worker that reads the sample; -1 in the thread that requests batches,
/// or for NULL.
///
/// # Safety
///
/// The same as for `slotline_sample_random`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_sample_worker(sample: *mut slotline_sample) -> i64 {
    // SAFETY: the caller upholds the contract of `context`.
    unsafe { context(sample, -1, |context| context.worker().map_or(-1, |worker| worker as i64)) }
}

/// Returns 1 if the sample is no longer needed, because the pass was abandoned, or the loader was
/// stopped or freed. The callback should then fail with any message, so that the next pass, or
/// freeing the loader, does not wait for whatever the callback waits for. Otherwise returns 0, also
/// for NULL.
///
/// # Safety
///
/// The same as for `slotline_sample_random`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_sample_is_stopping(sample: *mut slotline_sample) -> i32 {
    // SAFETY: the caller upholds the contract of `context`.
    unsafe { context(sample, 0, |context| i32::from(context.stop().is_stopping())) }
}

/// Returns a file descriptor that is readable while `slotline_sample_is_stopping` returns 1. A
/// callback can wait for it with `poll`, together with its own descriptors; it must not be read or
/// closed. It is the same for all samples of a loader, and is valid until their callbacks have
/// returned. Returns -1 if there are no more descriptors, for NULL, and in a worker process that
/// was started by a command, where only `slotline_sample_is_stopping` is available.
///
/// # Safety
///
/// The same as for `slotline_sample_random`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_sample_stop_fd(sample: *mut slotline_sample) -> i32 {
    // SAFETY: the caller upholds the contract of `context`.
    unsafe { context(sample, -1, |context| context.stop().fd().map_or(-1, |fd| fd.as_raw_fd())) }
}
