//! Batch handles: their properties, their fields, and how they are freed.
//!
//! A handle is reference-counted ("holds"): one reference for the pointer that
//! `slotline_loader_next` returned, and one for each exported tensor. Releasing the last one drops
//! the batch, on any thread. Each thread caches the memory of some of the handles that it freed, so
//! that a training loop does not allocate.

use std::cell::RefCell;
use std::ffi::{c_char, c_void};
use std::fmt;
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

use slotline::Batch;
use slotline::sample::Dynamic;
#[cfg(feature = "cuda")]
use slotline_cuda::DeviceBatch;

use crate::abi::{Failure, Versioned, check, done, freed_twice, guarded, slotline_error, slotline_status, versioned};
use crate::batch::collate::Collated;
use crate::data::alone::Alone;
use crate::fields::dtype::{SLOTLINE_BOOL, slotline_dtype};
use crate::fields::field::About;
use crate::fields::tensor::{describe_field, describe_rows, slotline_tensor};

/// A batch. It owns the memory that workers wrote it into. Several threads may read it
/// concurrently, and any thread may free it, in any order, even after its loader.
pub struct slotline_batch {
    /// The number of references, combined with the bit `LENT`.
    holds: AtomicUsize,
    /// The content, initialised until the last reference is released.
    made: MaybeUninit<Made>,
    fields: Arc<[About]>,
}

/// A bit of `holds`: a field of `bool`s was exported, so that an importer may have written bytes
/// other than 0 and 1; or a field on a device was exported, whose stream may be in use.
const LENT: usize = 1 << (usize::BITS - 1);

/// The content of a batch.
#[derive(Debug)]
pub(crate) enum Made {
    /// Samples stacked into the loader's memory.
    Stacked(Batch<Dynamic>),
    /// An object that a collate callback made.
    Collated(Collated),
    /// A sample that was read individually; boxed, since it is larger than the other variants.
    Alone(Box<Alone>),
    /// Samples on a device, or being copied to it.
    #[cfg(feature = "cuda")]
    Device(Box<DeviceBatch>),
}

/// The maximum number of cached handles for each thread.
const SPARES: usize = 16;

thread_local! {
    /// Cached handles keep their `fields`: the next batch usually has the same ones, and counting
    /// that reference would take as long as everything else that a handle needs.
    #[expect(clippy::vec_box, reason = "the boxes themselves are reused")]
    static SPARE: RefCell<Vec<Box<slotline_batch>>> = const { RefCell::new(Vec::new()) };
}

impl slotline_batch {
    /// Returns a handle with one reference, which the caller owns.
    #[inline]
    pub(crate) fn boxed(made: Made, fields: &Arc<[About]>) -> *mut Self {
        // The cache is not available while the thread is exiting.
        let spare = SPARE.try_with(|spare| spare.borrow_mut().pop()).ok().flatten();
        let Some(mut spare) = spare else {
            let (holds, made) = (AtomicUsize::new(1), MaybeUninit::new(made));
            return Box::into_raw(Box::new(Self { holds, made, fields: fields.clone() }));
        };
        if !Arc::ptr_eq(&spare.fields, fields) {
            spare.fields = fields.clone();
        }
        *spare.holds.get_mut() = 1;
        spare.made.write(made);
        Box::into_raw(spare)
    }
}

impl slotline_batch {
    /// Returns the number of the device that the batch is on; -1 for the host.
    pub(crate) fn device(&self) -> i32 {
        #[cfg(feature = "cuda")]
        if let Some(batch) = self.on_device() {
            return batch.device().ordinal() as i32;
        }
        -1
    }

    /// Returns the content of the batch.
    #[inline]
    fn made(&self) -> &Made {
        // SAFETY: `boxed` initialised it, and only the `release` of the last reference drops it;
        // afterwards no handle exists to call this with.
        unsafe { self.made.assume_init_ref() }
    }

    /// Describes field `i` as a tensor.
    pub(crate) fn tensor(&self, i: usize) -> Result<slotline_tensor, Failure> {
        let mut tensor = slotline_tensor::defaults();
        self.describe(i, &mut tensor)?;
        Ok(tensor)
    }

    /// Describes field `i` in the caller's struct.
    ///
    /// # Safety
    ///
    /// The same as for `versioned::write`.
    #[inline(always)]
    unsafe fn describe_to(&self, i: usize, out: *mut slotline_tensor) -> Result<(), Failure> {
        // SAFETY: the caller upholds the same contract.
        if let Some(out) = unsafe { versioned::whole(out) }
            && let (Made::Stacked(batch), Some(about)) = (self.made(), self.fields.get(i))
            && describe_rows(out, &batch.columns(), about, i)
        {
            return Ok(());
        }
        // SAFETY: the caller upholds the same contract.
        unsafe { self.describe_any_to(i, out) }
    }

    /// Does the same as `describe_to` for any field and any struct. It is not inlined, so that the
    /// usual case needs no stack memory.
    ///
    /// # Safety
    ///
    /// The same as for `versioned::write`.
    #[inline(never)]
    unsafe fn describe_any_to(&self, i: usize, out: *mut slotline_tensor) -> Result<(), Failure> {
        // SAFETY: the caller upholds the same contract.
        unsafe { versioned::fill(out, "out", |tensor| self.describe(i, tensor)) }
    }

    /// Describes field `i` in a tensor struct that contains its defaults.
    #[inline]
    pub(crate) fn describe(&self, i: usize, tensor: &mut slotline_tensor) -> Result<(), Failure> {
        let found = match (self.made(), self.fields.get(i)) {
            (Made::Stacked(batch), Some(about)) => describe_field(tensor, &batch.columns(), about, i),
            (Made::Alone(sample), Some(about)) => describe_field(tensor, &sample.columns(), about, i),
            #[cfg(feature = "cuda")]
            (Made::Device(batch), Some(about)) => crate::device::describe_field(tensor, batch, about, i),
            _ => false,
        };
        if found { Ok(()) } else { Err(no_field(i, self.fields.len())) }
    }

    /// Returns the batch on a device; `None` for a batch on the host.
    #[cfg(feature = "cuda")]
    pub(crate) fn on_device(&self) -> Option<&DeviceBatch> {
        if let Made::Device(batch) = self.made() { Some(batch) } else { None }
    }

    /// Takes the device batch out of its handle, if the caller has the only reference and no tensor
    /// was ever exported.
    ///
    /// # Safety
    ///
    /// `batch` must be a handle of a batch on a device, and the caller must own one of its
    /// references. If this returns the batch, it has consumed that reference.
    #[cfg(feature = "cuda")]
    pub(crate) unsafe fn into_device(batch: *mut Self) -> Option<Box<DeviceBatch>> {
        // SAFETY: the caller's reference keeps the handle alive.
        if unsafe { (*batch).holds.load(Ordering::Acquire) } != 1 {
            return None;
        }
        // SAFETY: there are no other references.
        if let Made::Device(batch) = unsafe { Self::take(batch) } { Some(batch) } else { None }
    }

    /// Adds a reference for an exported, writable tensor of type `dtype`. The reference must be
    /// [released](Self::release).
    pub(crate) fn hold(&self, dtype: slotline_dtype) {
        // Relaxed, as in `Arc`: the caller already has a reference.
        self.holds.fetch_add(1, Ordering::Relaxed);
        if dtype == SLOTLINE_BOOL || self.device() >= 0 {
            self.holds.fetch_or(LENT, Ordering::Relaxed);
        }
    }

    /// Sets every nonzero byte of exported `bool` fields to 1.
    fn normalise_bools(&self) {
        let columns = match self.made() {
            Made::Stacked(batch) => batch.columns(),
            Made::Alone(sample) => sample.columns(),
            _ => return,
        };
        for (i, _) in self.fields.iter().enumerate().filter(|(_, about)| about.dtype == SLOTLINE_BOOL) {
            let Some((_, memory)) = columns.raw(i) else { continue };
            // SAFETY: no other thread has access to the batch any more, and its bytes are initialised.
            let memory = unsafe { &mut *memory.as_ptr() };
            memory.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
        }
    }

    /// Returns the content of the batch, if no other references exist.
    pub(crate) fn made_mut(&mut self) -> Option<&mut Made> {
        // Acquire: other threads' accesses to the memory happen before it is written again.
        if self.holds.load(Ordering::Acquire) != 1 {
            return None;
        }
        // SAFETY: `boxed` initialised it, and this reference keeps it.
        Some(unsafe { self.made.assume_init_mut() })
    }

    /// Releases one reference; the last one drops the batch.
    ///
    /// # Safety
    ///
    /// `batch` must be a handle, and the caller must own one of its references.
    #[inline]
    pub(crate) unsafe fn release(batch: *mut Self) {
        // SAFETY: the caller's reference keeps the handle alive.
        let holds = unsafe { &(*batch).holds };
        // With only one reference, no atomic decrement is needed. The orderings are those of `Arc`:
        // everything that other threads did with the batch happens before it is dropped.
        if holds.load(Ordering::Acquire) != 1 {
            let before = holds.fetch_sub(1, Ordering::Release);
            if before & !LENT == 0 {
                freed_twice("batch");
            }
            if before & !LENT != 1 {
                return;
            }
            fence(Ordering::Acquire);
            if before & LENT != 0 {
                // SAFETY: this was the last reference, so the handle and its batch are alive until
                // they are dropped below.
                unsafe { (*batch).normalise_bools() };
            }
        }
        // SAFETY: there are no other references.
        drop(unsafe { Self::take(batch) });
    }

    /// Takes the content out of a handle, and puts the handle's memory into the cache.
    ///
    /// # Safety
    ///
    /// `batch` must be a handle of which the caller owns the only reference.
    #[inline]
    unsafe fn take(batch: *mut Self) -> Made {
        // SAFETY: `boxed` created the handle, and there are no other references.
        let mut handle = unsafe { Box::from_raw(batch) };
        // A cached handle has no references.
        *handle.holds.get_mut() = 0;
        // SAFETY: the content is initialised, and the handle is not accessed until it gets another
        // content.
        let made = unsafe { handle.made.assume_init_read() };
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < SPARES {
                spare.push(handle);
            }
        });
        made
    }
}

#[cold]
fn no_field(i: usize, fields: usize) -> Failure {
    Failure::invalid(format!("field is {i}, but the batch has {fields} fields"))
}

impl fmt::Debug for slotline_batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.made().fmt(f)
    }
}

/// Returns a property of a batch, or the default for NULL.
macro_rules! ask {
    ($batch:expr, $otherwise:expr, $made:ident => $stacked:expr, $collated:expr, $alone:expr) => {{
        let alone = $alone;
        // SAFETY: the caller guarantees that the batch is NULL or was not freed.
        match unsafe { $batch.as_ref() }.map(slotline_batch::made) {
            Some(Made::Stacked($made)) => $stacked,
            Some(Made::Collated($made)) => $collated,
            Some(Made::Alone(sample)) => alone(sample),
            #[cfg(feature = "cuda")]
            Some(Made::Device($made)) => $stacked,
            None => $otherwise,
        }
    }};
}

/// Returns the number of samples in the batch: the batch size, or less for the last batch or where bad samples are skipped. 0
/// for NULL.
///
/// # Safety
///
/// `batch` must be NULL or a batch that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_batch_len(batch: *const slotline_batch) -> usize {
    ask!(batch, 0, it => it.len(), it.indices.len(), |_: &Alone| 1)
}

/// Returns the number of the batch in its pass, from 0. For a batch that a collate callback made,
/// this is the number of batches and of errors in place of a batch that came before it in the pass.
/// 0 for NULL.
///
/// # Safety
///
/// The same as for `slotline_batch_len`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_batch_index(batch: *const slotline_batch) -> usize {
    ask!(batch, 0, it => it.batch_index(), it.task, |_: &Alone| 0)
}

/// Returns the number of the pass that the batch belongs to, from 0. 0 for NULL.
///
/// # Safety
///
/// The same as for `slotline_batch_len`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_batch_epoch(batch: *const slotline_batch) -> u32 {
    ask!(batch, 0, it => it.epoch(), it.epoch, |_: &Alone| 0)
}

/// Returns the dataset indices of the samples, as many as `slotline_batch_len` returns. For a
/// stream, each is the sample's position in the sequence that its worker reads. For a batch that a
/// collate callback made, an unknown index is -1. The array is valid until the batch is freed. NULL
/// for NULL.
///
/// # Safety
///
/// The same as for `slotline_batch_len`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_batch_indices(batch: *const slotline_batch) -> *const i64 {
    ask!(batch, null(), it => it.indices().as_ptr(), it.indices.as_ptr(), |sample: &Alone| sample.index().as_ptr())
}

/// Returns the object that the collate callback made, which is owned by the batch. NULL if there is
/// none.
///
/// # Safety
///
/// The same as for `slotline_batch_len`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_batch_user(batch: *const slotline_batch) -> *mut c_void {
    // SAFETY: the caller upholds this function's safety contract.
    match unsafe { batch.as_ref() }.map(slotline_batch::made) {
        Some(Made::Collated(batch)) => batch.batch,
        _ => null_mut(),
    }
}

/// Returns the number of fields; 0 if a collate callback made the batch, or for NULL.
///
/// # Safety
///
/// The same as for `slotline_batch_len`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_batch_num_fields(batch: *const slotline_batch) -> usize {
    // SAFETY: the caller upholds this function's safety contract.
    unsafe { batch.as_ref() }.map_or(0, |batch| batch.fields.len())
}

/// Returns the number of the device that the batch is on, or is being copied to; -1 for a batch on
/// the host, or for NULL.
///
/// # Safety
///
/// The same as for `slotline_batch_len`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_batch_device(batch: *const slotline_batch) -> i32 {
    // SAFETY: the caller upholds this function's safety contract.
    unsafe { batch.as_ref() }.map_or(-1, slotline_batch::device)
}

/// Describes field `i` in `*out`. The caller must set `out->struct_size`. The memory that the
/// struct points to is owned by the batch. For a batch on a device, `data` and `ends` are device
/// addresses, to be read on streams on which the batch was made ready (`slotline_batch_ready_on`).
///
/// # Errors
///
/// `SLOTLINE_ERROR_INVALID`: a null pointer, a struct that is too short, or a field that does not exist.
///
/// # Safety
///
/// The same as for `slotline_batch_len`; `out` must be NULL or writable for `out->struct_size` bytes; `error` must be NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_batch_field(
    batch: *const slotline_batch,
    i: usize,
    out: *mut slotline_tensor,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller upholds this function's safety contract.
    unsafe { done(error, || check::reference(batch, "batch")?.describe_to(i, out)) }
}

/// Describes the field with the given name; see `slotline_batch_field`.
///
/// # Errors
///
/// The same as for `slotline_batch_field`.
///
/// # Safety
///
/// The same as for `slotline_batch_field`; `name` must be NULL or end with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_batch_field_by_name(
    batch: *const slotline_batch,
    name: *const c_char,
    out: *mut slotline_tensor,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller upholds this function's safety contract.
    unsafe {
        done(error, || {
            let (batch, name) = (check::reference(batch, "batch")?, check::text(name, "name")?);
            let i = batch.fields.iter().position(|about| about.name.to_bytes() == name.as_bytes());
            let i = i.ok_or_else(|| {
                let known: Vec<_> = batch.fields.iter().map(|about| about.name.to_string_lossy()).collect();
                Failure::invalid(format!("no field is named {name:?}; the fields are {}", known.join(", ")))
            })?;
            batch.describe_to(i, out)
        })
    }
}

/// Frees a batch. Its memory returns to the loader, unless an exported tensor still uses it. Can be
/// called from any thread, in any order, even after the loader was freed. Does nothing for NULL.
///
/// Memory on a device is reused once all streams on which the batch was made ready have reached
/// this point; if the loader was freed before, the call waits for these streams, at most 5 s.
/// Freeing a batch twice aborts the process with a message on the standard error, unless its memory
/// was returned to the system or belongs to another batch.
///
/// # Safety
///
/// The same as for `slotline_batch_len`; the batch, and the pointers taken from it, must not be used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_batch_free(batch: *mut slotline_batch) {
    if !batch.is_null() {
        // SAFETY: the caller transfers its reference.
        guarded((), || unsafe { slotline_batch::release(batch) });
    }
}
