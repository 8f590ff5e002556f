//! Batches on the device.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use slotline_cuda::{DeviceBatch, Stream};

use crate::boundary::{boundary, guarded};
use crate::check;
use crate::dlpack::{DLDevice, DLManagedTensor, DLManagedTensorVersioned, Managed, export};
use crate::error::slotline_error;
use crate::failure::Failure;
use crate::field::About;
use crate::status::{SLOTLINE_OK, slotline_status};
use crate::tensor::{describe, slotline_tensor};
use crate::versioned::{self, Versioned};

/// A batch on a device, or on its way there. Several threads may use it at once, and any may free it, in any order, also after
/// its loader.
///
/// Its handle is one hold of an `Arc`, and each tensor that was exported has one more.
#[derive(Debug)]
pub struct slotline_device_batch {
    batch: DeviceBatch,
    fields: Arc<[About]>,
    /// Whether a tensor was ever exported: whoever had it knows nothing of the stream that the batch is released on.
    exported: AtomicBool,
}

impl slotline_device_batch {
    /// A handle, which is the caller's.
    pub(crate) fn boxed(batch: DeviceBatch, fields: &Arc<[About]>) -> *mut Self {
        let exported = AtomicBool::new(false);
        Arc::into_raw(Arc::new(Self { batch, fields: fields.clone(), exported })).cast_mut()
    }

    /// Field `i`; its addresses are the device's.
    fn tensor(&self, i: usize) -> Result<slotline_tensor, Failure> {
        let (Some(about), Some(field)) = (self.fields.get(i), self.batch.field(i)) else {
            return Err(Failure::invalid(format!("field is {i}, and there are {} fields", self.fields.len())));
        };
        let data: *const c_void = std::ptr::without_provenance(field.ptr() as usize);
        let mut tensor = slotline_tensor::defaults();
        describe(&mut tensor, about, field.shape(), data, field.bytes());
        if let Some((ends, count)) = field.ends() {
            (tensor.ends, tensor.num_ends) = (std::ptr::without_provenance(ends as usize), count);
        }
        Ok(tensor)
    }

    /// The caller's stream.
    ///
    /// # Safety
    ///
    /// As of `Stream::from_raw`.
    unsafe fn stream(&self, stream: *mut c_void) -> Stream {
        // SAFETY: the caller's word.
        unsafe { Stream::from_raw(self.batch.device(), stream) }
    }
}

/// How many samples it has. 0 for NULL.
///
/// # Safety
///
/// `batch` must be NULL or a batch that was neither freed nor released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_device_batch_len(batch: *const slotline_device_batch) -> usize {
    // SAFETY: the caller's word.
    unsafe { batch.as_ref() }.map_or(0, |batch| batch.batch.len())
}

/// Its number in the pass, from 0. 0 for NULL.
///
/// # Safety
///
/// As of `slotline_device_batch_len`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_device_batch_task(batch: *const slotline_device_batch) -> usize {
    // SAFETY: the caller's word.
    unsafe { batch.as_ref() }.map_or(0, |batch| batch.batch.task())
}

/// The number of its pass, from 0. 0 for NULL.
///
/// # Safety
///
/// As of `slotline_device_batch_len`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_device_batch_epoch(batch: *const slotline_device_batch) -> u32 {
    // SAFETY: the caller's word.
    unsafe { batch.as_ref() }.map_or(0, |batch| batch.batch.epoch())
}

/// The dataset index of each sample, in host memory that lives as long as the batch. NULL for NULL.
///
/// # Safety
///
/// As of `slotline_device_batch_len`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_device_batch_indices(batch: *const slotline_device_batch) -> *const i64 {
    // SAFETY: the caller's word.
    unsafe { batch.as_ref() }.map_or(null(), |batch| batch.batch.indices().as_ptr())
}

/// How many fields it has. 0 for NULL.
///
/// # Safety
///
/// As of `slotline_device_batch_len`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_device_batch_num_fields(batch: *const slotline_device_batch) -> usize {
    // SAFETY: the caller's word.
    unsafe { batch.as_ref() }.map_or(0, |batch| batch.fields.len())
}

/// Says where field `i` is: `data` and `ends` are addresses on the device, to be read on streams that the batch was made ready
/// on. `out->struct_size` must be set.
///
/// # Errors
///
/// `SLOTLINE_INVALID`: a null pointer, a short struct, or no such field.
///
/// # Safety
///
/// As of `slotline_device_batch_len`; `out` must be NULL or writable for `out->struct_size` bytes; `error` NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_device_batch_field(
    batch: *const slotline_device_batch,
    i: usize,
    out: *mut slotline_tensor,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller's word.
    unsafe {
        boundary(error, || {
            let tensor = check::reference(batch, "batch")?.tensor(i)?;
            versioned::write(out, &tensor, "out")?;
            Ok(SLOTLINE_OK)
        })
    }
}

/// Has `stream`, a `cudaStream_t`, wait for the copy: what is launched on it from now on may read the batch. The host does
/// not wait. The stream is noted: freeing the batch is as much as releasing it on each such stream.
///
/// # Errors
///
/// `SLOTLINE_INVALID`: no batch. `SLOTLINE_DEVICE`: a fifth stream, or what the driver says.
///
/// # Safety
///
/// As of `slotline_device_batch_len`; `stream` must be one of the device's primary context, or one of CUDA's default streams
/// (0, 1, 2), and not be destroyed before the batch, and all tensors exported of it, are gone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_device_batch_ready_on(
    batch: *const slotline_device_batch,
    stream: *mut c_void,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller's word.
    unsafe {
        boundary(error, || {
            let batch = check::reference(batch, "batch")?;
            batch.batch.ready_on(&batch.stream(stream))?;
            Ok(SLOTLINE_OK)
        })
    }
}

/// Frees a batch, in any case: its memory is filled again once `stream` has come to this point, the last tensor that was
/// exported of it is gone, and the tensors' streams have come to where that was. All reads but those of tensors must be before
/// this point, on this stream or on others that it has waited for. The batch may have been made ready on four other streams.
///
/// # Errors
///
/// `SLOTLINE_INVALID`: no batch. `SLOTLINE_DEVICE`: what the driver says; the memory is then leaked, as nobody can tell when it is
/// free.
///
/// # Safety
///
/// As of `slotline_device_batch_ready_on`; nobody may use the handle from then on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_device_batch_release_on(
    batch: *mut slotline_device_batch,
    stream: *mut c_void,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller's word, and it was made by `boxed`.
    unsafe {
        boundary(error, || {
            check::reference(batch, "batch")?;
            let batch = Arc::from_raw(batch.cast_const());
            let stream = batch.stream(stream);
            match Arc::try_unwrap(batch) {
                Ok(alone) if !alone.exported.load(Ordering::Relaxed) => alone.batch.release_on(&stream)?,
                // The streams of tensors are still waited for, be they deleted or not. The batch is released on all streams
                // that were noted when the last of its holds goes.
                Ok(alone) => alone.batch.also_used_by(&stream)?,
                Err(shared) => shared.batch.also_used_by(&stream)?,
            }
            Ok(SLOTLINE_OK)
        })
    }
}

/// Waits, in this thread, for the copy.
///
/// # Errors
///
/// `SLOTLINE_INVALID`: no batch. `SLOTLINE_DEVICE`: what the driver says.
///
/// # Safety
///
/// As of `slotline_device_batch_len`; `error` must be NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_device_batch_wait(
    batch: *const slotline_device_batch,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller's word.
    unsafe {
        boundary(error, || {
            check::reference(batch, "batch")?.batch.wait()?;
            Ok(SLOTLINE_OK)
        })
    }
}

/// Exports field `i` of a batch.
///
/// # Safety
///
/// As of `slotline_device_batch_dlpack`.
unsafe fn export_field<M: Managed>(
    batch: *const slotline_device_batch,
    i: usize,
    stream: *mut c_void,
    out: *mut *mut M,
) -> Result<slotline_status, Failure> {
    // SAFETY: the caller's word.
    let (out, handle) = unsafe { (check::place(out, null_mut(), "out")?, check::reference(batch, "batch")?) };
    let tensor = handle.tensor(i)?;
    // SAFETY: the caller's word.
    handle.batch.ready_on(&unsafe { handle.stream(stream) })?;
    handle.exported.store(true, Ordering::Relaxed);
    // SAFETY: it was made by `boxed`, and the caller has a hold.
    let hold = unsafe {
        Arc::increment_strong_count(batch);
        Arc::from_raw(batch)
    };
    let device_id = handle.batch.device().ordinal() as i32;
    let exported = export(&tensor, DLDevice { device_type: 2, device_id }, hold);
    // SAFETY: the caller's word.
    unsafe { out.write(exported) };
    Ok(SLOTLINE_OK)
}

/// Exports field `i` as a DLPack tensor on the device, without a copy, to be used on `stream`, which waits for the batch as by
/// `slotline_device_batch_ready_on`. Its memory is filled again when the batch and all its tensors are gone, and the stream has
/// come to that point: the `deleter` may be called, on any thread, as soon as all that reads the tensor is launched there.
///
/// `*out` is NULL if it fails.
///
/// # Errors
///
/// As of `slotline_device_batch_ready_on`, or no such field.
///
/// # Safety
///
/// As of `slotline_device_batch_ready_on`; `out` must be NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_device_batch_dlpack(
    batch: *const slotline_device_batch,
    i: usize,
    stream: *mut c_void,
    out: *mut *mut DLManagedTensorVersioned,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller's word.
    unsafe { boundary(error, || export_field(batch, i, stream, out)) }
}

/// The same as a tensor without a version, for importers from before DLPack 1.0.
///
/// # Errors
///
/// As of `slotline_device_batch_dlpack`.
///
/// # Safety
///
/// As of `slotline_device_batch_dlpack`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_device_batch_dlpack_unversioned(
    batch: *const slotline_device_batch,
    i: usize,
    stream: *mut c_void,
    out: *mut *mut DLManagedTensor,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller's word.
    unsafe { boundary(error, || export_field(batch, i, stream, out)) }
}

/// Frees a batch; NULL is fine. Its memory is filled again once all streams that it was made ready on have come to this point,
/// and the last tensor that was exported of it is gone. Any thread, in any order; after its loader it waits for these streams,
/// at most 5 s.
///
/// # Safety
///
/// As of `slotline_device_batch_len`; nobody may use it from then on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_device_batch_free(batch: *mut slotline_device_batch) {
    if !batch.is_null() {
        // SAFETY: it was made by `boxed`, and the caller gives its hold up.
        guarded((), || drop(unsafe { Arc::from_raw(batch.cast_const()) }));
    }
}
