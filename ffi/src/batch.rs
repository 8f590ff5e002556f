//! Batches: what they say of themselves, and how they are let go.
//!
//! A handle counts its holds: the one that `slotline_loader_next` gave, and one for each tensor that was exported. The batch
//! goes when the last one does, on whichever thread. So that a loop allocates nothing, each thread keeps the memory of some
//! handles that it freed.

use std::cell::RefCell;
use std::ffi::{c_char, c_void};
use std::fmt;
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

use slotline::Batch;
use slotline::sample::Dynamic;

use crate::boundary::{boundary, guarded};
use crate::check;
use crate::collate::Collated;
use crate::dtype::{SLOTLINE_BOOL, slotline_dtype};
use crate::error::slotline_error;
use crate::failure::Failure;
use crate::field::About;
use crate::status::{SLOTLINE_OK, slotline_status};
use crate::tensor::{describe_field, slotline_tensor};
use crate::versioned::{self, Versioned};

/// A batch: the hold on the memory that workers wrote it into. Several threads may read it at once, and any may free it, in
/// any order, also after its loader.
pub struct slotline_batch {
    /// How many holds there are, and `LENT`.
    holds: AtomicUsize,
    /// Until it goes.
    made: MaybeUninit<Made>,
    fields: Arc<[About]>,
}

/// A field of `bool`s was exported, so that there may be other bytes than 0 and 1 in it.
const LENT: usize = 1 << (usize::BITS - 1);

/// What a batch is.
#[derive(Debug)]
pub(crate) enum Made {
    /// Samples stacked in the loader's memory.
    Stacked(Batch<Dynamic>),
    /// What a collate callback made.
    Collated(Collated),
}

/// Handles of which a thread keeps the memory.
const SPARES: usize = 16;

thread_local! {
    /// With the fields that they had: those of the next batch are most often the same, and to count who has them takes as
    /// long as the rest of a handle.
    #[expect(clippy::vec_box, reason = "the memory of the boxes is what is kept")]
    static SPARE: RefCell<Vec<Box<slotline_batch>>> = const { RefCell::new(Vec::new()) };
}

/// A handle whose batch has gone, or goes: its memory is kept when this is dropped.
struct Empty(Option<Box<slotline_batch>>);

impl slotline_batch {
    /// A handle with one hold, which is the caller's.
    #[inline]
    pub(crate) fn boxed(made: Made, fields: &Arc<[About]>) -> *mut Self {
        // A thread that is about to end has no such memory any more.
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

impl Drop for Empty {
    fn drop(&mut self) {
        let Some(handle) = self.0.take() else { return };
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < SPARES {
                spare.push(handle);
            }
        });
    }
}

impl slotline_batch {
    /// What it is.
    #[inline]
    fn made(&self) -> &Made {
        // SAFETY: `boxed` has put it there, and only `release` of the last hold takes it out, after which there is no handle to
        // call this with.
        unsafe { self.made.assume_init_ref() }
    }

    /// Field `i` as a tensor.
    pub(crate) fn tensor(&self, i: usize) -> Result<slotline_tensor, Failure> {
        let mut tensor = slotline_tensor::defaults();
        self.describe(i, &mut tensor)?;
        Ok(tensor)
    }

    /// Describes field `i` in a tensor that has its defaults.
    #[inline]
    pub(crate) fn describe(&self, i: usize, tensor: &mut slotline_tensor) -> Result<(), Failure> {
        let found = match (self.made(), self.fields.get(i)) {
            (Made::Stacked(batch), Some(about)) => describe_field(tensor, &batch.columns(), about, i),
            _ => false,
        };
        if found { Ok(()) } else { Err(no_field(i, self.fields.len())) }
    }

    /// One hold more, to be [released](Self::release): that of a tensor of this type, which may be written.
    pub(crate) fn hold(&self, dtype: slotline_dtype) {
        // As of `Arc`: who has a hold can give one.
        self.holds.fetch_add(1, Ordering::Relaxed);
        if dtype == SLOTLINE_BOOL {
            self.holds.fetch_or(LENT, Ordering::Relaxed);
        }
    }

    /// Makes `bool`s of all that importers left in fields of them: what is not 0 is true.
    fn mend(&self) {
        let Made::Stacked(batch) = self.made() else { return };
        let columns = batch.columns();
        for (i, _) in self.fields.iter().enumerate().filter(|(_, about)| about.dtype == SLOTLINE_BOOL) {
            let Some((_, memory)) = columns.raw(i) else { continue };
            // SAFETY: nobody else has the batch any more, and its bytes are initialised.
            let memory = unsafe { &mut *memory.as_ptr() };
            memory.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
        }
    }

    /// Gives up one hold; with the last one the batch goes.
    ///
    /// # Safety
    ///
    /// `batch` must be a handle, and one hold the caller's.
    #[inline]
    pub(crate) unsafe fn release(batch: *mut Self) {
        // SAFETY: as long as there is a hold, the handle is there.
        let holds = unsafe { &(*batch).holds };
        // With the only hold there is nobody else to count. The fences are those of `Arc`: whatever others did with the
        // batch comes before it goes.
        if holds.load(Ordering::Acquire) != 1 {
            let before = holds.fetch_sub(1, Ordering::Release);
            if before & !LENT != 1 {
                return;
            }
            fence(Ordering::Acquire);
            if before & LENT != 0 {
                // SAFETY: the handle and its batch go only below.
                unsafe { (*batch).mend() };
            }
        }
        // SAFETY: it was made by `boxed`, and nobody else has a hold.
        let mut empty = Empty(Some(unsafe { Box::from_raw(batch) }));
        if let Some(handle) = &mut empty.0 {
            // SAFETY: it was there up to now, and nobody can ask for it any more. If dropping it panics, the memory is kept all the
            // same.
            unsafe { handle.made.assume_init_drop() };
        }
    }
}

#[cold]
fn no_field(i: usize, fields: usize) -> Failure {
    Failure::invalid(format!("field is {i}, and the batch has {fields} fields"))
}

impl fmt::Debug for slotline_batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.made().fmt(f)
    }
}

/// Asks a batch for something, with an answer for NULL.
///
/// # Safety
///
/// `batch` must be NULL or a batch that was not freed.
#[inline]
unsafe fn ask<T>(
    batch: *const slotline_batch,
    otherwise: T,
    stacked: impl FnOnce(&Batch<Dynamic>) -> T,
    collated: impl FnOnce(&Collated) -> T,
) -> T {
    // SAFETY: the caller's word.
    match unsafe { batch.as_ref() }.map(slotline_batch::made) {
        Some(Made::Stacked(batch)) => stacked(batch),
        Some(Made::Collated(batch)) => collated(batch),
        None => otherwise,
    }
}

/// How many samples it has: the batch size, or less for the last one, or where bad samples are skipped. 0 for NULL.
///
/// # Safety
///
/// `batch` must be NULL or a batch that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_batch_len(batch: *const slotline_batch) -> usize {
    // SAFETY: the caller's word.
    unsafe { ask(batch, 0, Batch::len, |batch| batch.indices.len()) }
}

/// Its number in the pass, from 0; of one that a collate callback made, how many batches, and errors in the places of batches,
/// came before it in the pass. 0 for NULL.
///
/// # Safety
///
/// As of `slotline_batch_len`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_batch_task(batch: *const slotline_batch) -> usize {
    // SAFETY: the caller's word.
    unsafe { ask(batch, 0, Batch::task, |batch| batch.task) }
}

/// The number of its pass, from 0. 0 for NULL.
///
/// # Safety
///
/// As of `slotline_batch_len`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_batch_epoch(batch: *const slotline_batch) -> u32 {
    // SAFETY: the caller's word.
    unsafe { ask(batch, 0, Batch::epoch, |batch| batch.epoch) }
}

/// The dataset index of each of its samples, as many as `slotline_batch_len` says; of a stream their numbers in what their
/// worker reads; of one that a collate callback made, -1 where that is not known. It lives as long as the batch. NULL for
/// NULL.
///
/// # Safety
///
/// As of `slotline_batch_len`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_batch_indices(batch: *const slotline_batch) -> *const i64 {
    // SAFETY: the caller's word.
    unsafe { ask(batch, null(), |batch| batch.indices().as_ptr(), |batch| batch.indices.as_ptr()) }
}

/// What the collate callback made; it belongs to the batch. NULL if there is none.
///
/// # Safety
///
/// As of `slotline_batch_len`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_batch_user(batch: *const slotline_batch) -> *mut c_void {
    // SAFETY: the caller's word.
    unsafe { ask(batch, null_mut(), |_| null_mut(), |batch| batch.batch) }
}

/// How many fields it has; none, if a collate callback made it. 0 for NULL.
///
/// # Safety
///
/// As of `slotline_batch_len`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_batch_num_fields(batch: *const slotline_batch) -> usize {
    // SAFETY: the caller's word.
    unsafe { batch.as_ref() }.map_or(0, |batch| batch.fields.len())
}

/// Says where field `i` is. `out->struct_size` must be set; what it points to belongs to the batch.
///
/// # Errors
///
/// `SLOTLINE_INVALID`: a null pointer, a short struct, or no such field.
///
/// # Safety
///
/// As of `slotline_batch_len`; `out` must be NULL or writable for `out->struct_size` bytes; `error` NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_batch_field(
    batch: *const slotline_batch,
    i: usize,
    out: *mut slotline_tensor,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller's word.
    unsafe {
        boundary(error, || {
            let batch = check::reference(batch, "batch")?;
            versioned::fill(out, "out", |tensor| batch.describe(i, tensor))?;
            Ok(SLOTLINE_OK)
        })
    }
}

/// Says where the field with this name is; see `slotline_batch_field`.
///
/// # Errors
///
/// As of `slotline_batch_field`.
///
/// # Safety
///
/// As of `slotline_batch_field`; `name` must be NULL or end with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_batch_field_by_name(
    batch: *const slotline_batch,
    name: *const c_char,
    out: *mut slotline_tensor,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller's word.
    unsafe {
        boundary(error, || {
            let (batch, name) = (check::reference(batch, "batch")?, check::text(name, "name")?);
            let i = batch.fields.iter().position(|about| about.name.to_bytes() == name.as_bytes());
            let i = i.ok_or_else(|| {
                let known: Vec<_> = batch.fields.iter().map(|about| about.name.to_string_lossy()).collect();
                Failure::invalid(format!("no field is called {name:?}; there are {}", known.join(", ")))
            })?;
            versioned::fill(out, "out", |tensor| batch.describe(i, tensor))?;
            Ok(SLOTLINE_OK)
        })
    }
}

/// Frees a batch: its memory goes back to the loader, for another one, unless a tensor that was exported still has it. Any
/// thread, in any order, also after the loader; NULL is fine.
///
/// # Safety
///
/// As of `slotline_batch_len`; nobody may use it, or what it lent, from then on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_batch_free(batch: *mut slotline_batch) {
    if !batch.is_null() {
        // SAFETY: the caller gives its hold up.
        guarded((), || unsafe { slotline_batch::release(batch) });
    }
}
