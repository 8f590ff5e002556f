//! A sample that a callback writes.

use std::ffi::{c_char, c_void};
use std::fmt;
use std::ptr::{NonNull, null_mut};
use std::slice;

use slotline::BoxError;
use slotline::dataset::Context;
use slotline::dtype::DType;
use slotline::rng::rand_core::Rng;
use slotline::sample::Row;
use slotline::shape::Shape;
use slotline::tensor::AnyTensorView;

use crate::boundary::guarded;
use crate::callback::words;
use crate::dtype;
use crate::field::{Declared, SLOTLINE_FIXED};
use crate::status::{SLOTLINE_INVALID, SLOTLINE_OK, slotline_status};

/// The most fields that a dataset of callbacks has: as many as a word has bits.
pub(crate) const MOST_FIELDS: usize = u64::BITS as usize;

/// A sample being written, lent to a callback: for its thread only, and until it returns.
pub struct slotline_sample {
    /// The row, whose own lifetimes are those of the call.
    row: NonNull<c_void>,
    context: NonNull<Context>,
    fields: NonNull<[Declared]>,
    /// A bit for each field.
    written: u64,
    /// Fields whose memory the callback has.
    lent: u64,
    /// What the callback says.
    failure: Option<String>,
    /// The last field that was refused and not written since, and why.
    refused: Option<(usize, String)>,
}

impl slotline_sample {
    /// Has `callback` write a sample of these fields into a row; it gives 0, or 1 if `end` says that there may be no sample,
    /// or fails. Whether there was a sample.
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
            written: 0,
            lent: 0,
            failure: None,
            refused: None,
        };
        let code = callback(&raw mut sample);
        // First, since such memory must not stay behind, whatever else fails.
        let spoiled = mend(row, fields, sample.lent)?;
        if let Some(message) = sample.failure.take() {
            return Err(message.into());
        }
        if let Some((field, why)) = sample.refused.take() {
            return Err(format!("field {field}: {why}").into());
        }
        match code {
            0 => {}
            1 if end => return Ok(false),
            code => return Err(format!("the callback gave {code} for a sample").into()),
        }
        let written = sample.written;
        let missing = fields.iter().enumerate().find(|&(i, _)| written & 1 << i == 0);
        if let Some((i, field)) = missing {
            return Err(format!("the callback did not write field {i} ({:?})", field.name).into());
        }
        if let Some((i, field)) = spoiled {
            return Err(format!("field {i} ({:?}) has a bool that is neither 0 nor 1", field.name).into());
        }
        row.go_to(fields.len());
        Ok(true)
    }

    /// The row, the fields and the context.
    fn parts(&mut self) -> (&mut Row<'_>, &[Declared]) {
        // SAFETY: they are borrowed for as long as the callback has the sample (`write`), by nobody else, and not beyond it.
        unsafe { (self.row.cast::<Row<'_>>().as_mut(), self.fields.as_ref()) }
    }

    /// The memory of a field of fixed shape.
    fn lend(&mut self, field: usize) -> Option<NonNull<[u8]>> {
        let (row, fields) = self.parts();
        fields.get(field).filter(|declared| declared.kind == SLOTLINE_FIXED)?;
        row.go_to(field);
        let memory = row.fill_raw().ok()?;
        self.note(field);
        self.lent |= 1 << field;
        Some(memory)
    }

    /// Notes that a field is written.
    fn note(&mut self, field: usize) {
        self.written |= 1 << field;
        self.refused.take_if(|refused| refused.0 == field);
    }

    /// Writes a field.
    ///
    /// # Safety
    ///
    /// `data` must be NULL or point to as many elements of the field's type.
    unsafe fn put(&mut self, field: usize, data: *const c_void, elements: usize) -> Result<(), String> {
        let (row, fields) = self.parts();
        let Some(declared) = fields.get(field) else {
            return Err(format!("field is {field}, and there are {} fields", fields.len()));
        };
        let dtype = declared.dtype;
        let bytes = elements.checked_mul(dtype.size()).filter(|&bytes| bytes <= isize::MAX as usize);
        let Some(bytes) = bytes else { return Err(format!("{elements} elements are more than memory can have")) };
        let start = match data.cast::<u8>() {
            _ if elements == 0 => NonNull::<u64>::dangling().cast::<u8>().as_ptr(),
            data if data.is_null() => return Err("data is NULL".into()),
            data if data.align_offset(dtype.align()) != 0 => {
                return Err(format!("data is not aligned: its address must be a multiple of {}", dtype.align()));
            }
            data => data.cast_mut(),
        };
        // SAFETY: the caller's word; the address is aligned and not null.
        if !dtype::valid(dtype, unsafe { slice::from_raw_parts(start, bytes) }) {
            return Err("data has a bool that is neither 0 nor 1".into());
        }
        row.go_to(field);
        if declared.kind == SLOTLINE_FIXED
            && let Ok(memory) = row.fill_raw()
            && memory.len() == bytes
        {
            // No references, and a copy that may overlap: the data may be this very row, as `slotline_sample_row` lent it.
            // SAFETY: as many bytes are in both, and these are valid elements.
            unsafe { std::ptr::copy(start.cast_const(), memory.as_ptr().cast(), bytes) };
        } else {
            let shape = Shape::new(&[elements]).unwrap_or_default();
            // SAFETY: the bytes are so many valid elements, and aligned. Nothing writes them meanwhile: of a batch only fields of
            // fixed shape are lent, and none of these is written here.
            let data = unsafe { AnyTensorView::from_raw_parts(dtype, shape, slice::from_raw_parts(start, bytes)) };
            row.go_to(field);
            row.write_elements(&data).map_err(|error| error.to_string())?;
        }
        self.note(field);
        Ok(())
    }
}

/// Clears the `bool`s that a callback had the memory of, by the bits of their fields, where they are neither 0 nor 1; the last
/// such field.
fn mend<'f>(row: &mut Row<'_>, fields: &'f [Declared], lent: u64) -> Result<Option<(usize, &'f Declared)>, BoxError> {
    let mut spoiled = None;
    for (i, field) in fields.iter().enumerate().filter(|(_, field)| field.dtype == DType::Bool) {
        if lent & 1 << i != 0 {
            row.go_to(i);
            let memory = row.fill_raw()?;
            // SAFETY: the row is ours again, and its bytes are initialised.
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

/// Asks a sample for something, with an answer for NULL.
///
/// # Safety
///
/// `sample` must be NULL or what this callback was given.
#[inline]
unsafe fn ask<T: Copy>(sample: *mut slotline_sample, no: T, question: impl FnOnce(&mut slotline_sample) -> T) -> T {
    // SAFETY: the caller's word.
    unsafe { sample.as_mut() }.map_or(no, |sample| guarded(no, || question(sample)))
}

/// Asks for what belongs to the sample's context.
///
/// # Safety
///
/// As of `ask`.
unsafe fn context<T: Copy>(sample: *mut slotline_sample, no: T, question: impl FnOnce(&mut Context) -> T) -> T {
    // SAFETY: the caller's word; the context is borrowed for as long as the callback has the sample.
    unsafe { ask(sample, no, |sample| question(sample.context.as_mut())) }
}

/// The memory of field `field`, one of fixed shape, for the callback to write: every element, in C order, since it holds those
/// of an earlier batch. It is in the batch itself, and the field counts as written. `bytes`, unless NULL, becomes how many
/// there are. NULL if there is no such field, or it is not of fixed shape. `bool`s must be 0 or 1.
///
/// # Safety
///
/// `sample` must be NULL or what this callback was given; `bytes` NULL or writable. The memory may be written until the
/// callback returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_sample_row(
    sample: *mut slotline_sample,
    field: usize,
    bytes: *mut usize,
) -> *mut c_void {
    // SAFETY: the caller's word.
    let memory = unsafe { ask(sample, None, |sample| sample.lend(field)) };
    if !bytes.is_null() {
        // SAFETY: the caller's word.
        unsafe { bytes.write(memory.map_or(0, |memory| memory.len())) };
    }
    memory.map_or(null_mut(), |memory| memory.as_ptr().cast())
}

/// Writes field `field`, of any kind: copies `elements` elements from `data`. A field of fixed shape takes exactly those that
/// it has, a ragged one at most as many, a packed one whole items. `data` may be memory that `slotline_sample_row` lent, also
/// that of the same field.
///
/// # Errors
///
/// `SLOTLINE_INVALID`, which is also what the sample then fails with, unless the field is written after that: a null pointer,
/// no such field, data that is not aligned, `bool`s other than 0 and 1, or not as many elements as there must be.
///
/// # Safety
///
/// `sample` must be NULL or what this callback was given; `data` must point to so many elements of the field's type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_sample_write(
    sample: *mut slotline_sample,
    field: usize,
    data: *const c_void,
    elements: usize,
) -> slotline_status {
    // SAFETY: the caller's word.
    unsafe {
        ask(sample, SLOTLINE_INVALID, |sample| match sample.put(field, data, elements) {
            Ok(()) => SLOTLINE_OK,
            Err(why) => {
                // What was there is not what the callback wants.
                if field < sample.fields.len() {
                    sample.written &= !(1 << field);
                }
                sample.refused = Some((field, why));
                SLOTLINE_INVALID
            }
        })
    }
}

/// Says why there is no sample, in UTF-8, which is copied. The callback must then return something other than 0 (and of a
/// stream other than 1). Does nothing with NULL.
///
/// # Safety
///
/// `sample` must be NULL or what this callback was given; `message` NULL or end with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_sample_fail(sample: *mut slotline_sample, message: *const c_char) {
    // SAFETY: the caller's word.
    unsafe { ask(sample, (), |sample| sample.failure = Some(words(message))) };
}

/// The next of the sample's own random numbers: a function of the seed, the epoch and the sample's position in the pass, and
/// so the same for any number of workers, whoever reads the sample. 0 for NULL.
///
/// # Safety
///
/// `sample` must be NULL or what this callback was given.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_sample_random(sample: *mut slotline_sample) -> u64 {
    // SAFETY: the caller's word.
    unsafe { context(sample, 0, |context| context.rng().next_u64()) }
}

/// The sample's place in the pass, from 0; of a stream its number in what this worker reads. 0 for NULL.
///
/// # Safety
///
/// As of `slotline_sample_random`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_sample_position(sample: *mut slotline_sample) -> u64 {
    // SAFETY: the caller's word.
    unsafe { context(sample, 0, |context| context.position()) }
}

/// The number of the pass, from 0. 0 for NULL.
///
/// # Safety
///
/// As of `slotline_sample_random`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_sample_epoch(sample: *mut slotline_sample) -> u32 {
    // SAFETY: the caller's word.
    unsafe { context(sample, 0, |context| context.epoch()) }
}

/// The number of the worker that reads the sample; -1 in the thread that asks for batches, or for NULL.
///
/// # Safety
///
/// As of `slotline_sample_random`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_sample_worker(sample: *mut slotline_sample) -> i64 {
    // SAFETY: the caller's word.
    unsafe { context(sample, -1, |context| context.worker().map_or(-1, |worker| worker as i64)) }
}
