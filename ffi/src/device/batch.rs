//! Batches on a device.

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

/// A batch on a device, or on its way to the device. Several threads may use it at once, and any thread may free it, in any
/// order, even after its loader. Each exported tensor also keeps its memory.
#[derive(Debug)]
pub struct slotline_device_batch {
    batch: DeviceBatch,
    fields: Arc<[About]>,
    /// Whether a tensor was ever exported; the tensor's owner does not know the stream on which the batch is released.
    exported: AtomicBool,
}

impl slotline_device_batch {
    /// Returns a handle that the caller owns.
    pub(crate) fn boxed(batch: DeviceBatch, fields: &Arc<[About]>) -> *mut Self {
        let exported = AtomicBool::new(false);
        Arc::into_raw(Arc::new(Self { batch, fields: fields.clone(), exported })).cast_mut()
    }

    /// Describes field `i`; its addresses are device addresses.
    fn tensor(&self, i: usize) -> Result<slotline_tensor, Failure> {
        let (Some(about), Some(field)) = (self.fields.get(i), self.batch.field(i)) else {
            return Err(Failure::invalid(format!("field is {i}, but the batch has {} fields", self.fields.len())));
        };
        let data: *const c_void = std::ptr::without_provenance(field.ptr() as usize);
        let mut tensor = slotline_tensor::defaults();
        describe(&mut tensor, about, field.shape(), data, field.bytes());
        if let Some((ends, count)) = field.ends() {
            (tensor.ends, tensor.num_ends) = (std::ptr::without_provenance(ends as usize), count);
        }
        Ok(tensor)
    }

    /// Wraps the caller's stream.
    ///
    /// # Safety
    ///
    /// The same as for `Stream::from_raw`.
    unsafe fn stream(&self, stream: *mut c_void) -> Stream {
        // SAFETY: the caller upholds the contract of `Stream::from_raw`.
        unsafe { Stream::from_raw(self.batch.device(), stream) }
    }
}

/// Returns the number of samples in the batch. 0 for NULL.
///
/// # Safety
///
/// `batch` must be NULL or a batch that was neither freed nor released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_device_batch_len(batch: *const slotline_device_batch) -> usize {
    // SAFETY: the caller guarantees that `batch` is NULL, or neither freed nor released.
    unsafe { batch.as_ref() }.map_or(0, |batch| batch.batch.len())
}

/// Returns the number of the batch in its pass, from 0. 0 for NULL.
///
/// # Safety
///
/// The same as for `slotline_device_batch_len`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_device_batch_task(batch: *const slotline_device_batch) -> usize {
    // SAFETY: the caller guarantees that `batch` is NULL, or neither freed nor released.
    unsafe { batch.as_ref() }.map_or(0, |batch| batch.batch.batch_index())
}

/// Returns the number of the batch's pass, from 0. 0 for NULL.
///
/// # Safety
///
/// The same as for `slotline_device_batch_len`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_device_batch_epoch(batch: *const slotline_device_batch) -> u32 {
    // SAFETY: the caller guarantees that `batch` is NULL, or neither freed nor released.
    unsafe { batch.as_ref() }.map_or(0, |batch| batch.batch.epoch())
}

/// Returns the dataset index of each sample, in host memory that lives as long as the batch. NULL for NULL.
///
/// # Safety
///
/// The same as for `slotline_device_batch_len`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_device_batch_indices(batch: *const slotline_device_batch) -> *const i64 {
    // SAFETY: the caller guarantees that `batch` is NULL, or neither freed nor released.
    unsafe { batch.as_ref() }.map_or(null(), |batch| batch.batch.indices().as_ptr())
}

/// Returns the number of fields. 0 for NULL.
///
/// # Safety
///
/// The same as for `slotline_device_batch_len`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_device_batch_num_fields(batch: *const slotline_device_batch) -> usize {
    // SAFETY: the caller guarantees that `batch` is NULL, or neither freed nor released.
    unsafe { batch.as_ref() }.map_or(0, |batch| batch.fields.len())
}

/// Describes field `i` in `*out`. `data` and `ends` are device addresses, to be read on streams that the batch was made ready
/// on. The caller must set `out->struct_size`.
///
/// # Errors
///
/// `SLOTLINE_ERROR_INVALID`: a null pointer, a struct that is too short, or a field that does not exist.
///
/// # Safety
///
/// The same as for `slotline_device_batch_len`; `out` must be NULL or writable for `out->struct_size` bytes; `error` must be
/// NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_device_batch_field(
    batch: *const slotline_device_batch,
    i: usize,
    out: *mut slotline_tensor,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller upholds the contracts of `boundary`, `reference` and `write`.
    unsafe {
        boundary(error, || {
            let tensor = check::reference(batch, "batch")?.tensor(i)?;
            versioned::write(out, &tensor, "out")?;
            Ok(SLOTLINE_OK)
        })
    }
}

/// Makes `stream`, a `cudaStream_t`, wait for the copy: work that is launched on it from now on may read the batch. The host
/// does not wait. The stream is recorded: freeing the batch has the same effect as releasing it on each recorded stream.
///
/// # Errors
///
/// `SLOTLINE_ERROR_INVALID`: `batch` is NULL. `SLOTLINE_ERROR_DEVICE`: a fifth stream, or an error of the driver.
///
/// # Safety
///
/// The same as for `slotline_device_batch_len`. `stream` must belong to the device's primary context or be one of CUDA's
/// default streams (0, 1, 2), and must not be destroyed before the batch, and all tensors exported from it, were freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_device_batch_ready_on(
    batch: *const slotline_device_batch,
    stream: *mut c_void,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller upholds the contracts of `boundary`, `reference` and `Stream::from_raw`.
    unsafe {
        boundary(error, || {
            let batch = check::reference(batch, "batch")?;
            batch.batch.ready_on(&batch.stream(stream))?;
            Ok(SLOTLINE_OK)
        })
    }
}

/// Frees a batch, even if this function fails. Its memory is filled again once `stream` has reached this point, the last tensor
/// exported from it was deleted, and the tensors' streams have reached the point of their deletion. All reads, except those of
/// tensors, must come before this point, on this stream or on streams that it has waited for. The batch may have been made
/// ready on four other streams.
///
/// # Errors
///
/// `SLOTLINE_ERROR_INVALID`: `batch` is NULL. `SLOTLINE_ERROR_DEVICE`: an error of the driver; the memory is then leaked,
/// because it is unknown when it is no longer in use.
///
/// # Safety
///
/// The same as for `slotline_device_batch_ready_on`; the handle must not be used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_device_batch_release_on(
    batch: *mut slotline_device_batch,
    stream: *mut c_void,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: `boxed` made the batch; the caller upholds the contracts of `boundary`, `reference` and `Stream::from_raw`.
    unsafe {
        boundary(error, || {
            check::reference(batch, "batch")?;
            let batch = Arc::from_raw(batch.cast_const());
            let stream = batch.stream(stream);
            match Arc::try_unwrap(batch) {
                Ok(alone) if !alone.exported.load(Ordering::Relaxed) => alone.batch.release_on(&stream)?,
                // The streams of tensors must still be waited for, even if the tensors were deleted. The last hold releases the
                // batch on all recorded streams.
                Ok(alone) => alone.batch.also_used_by(&stream)?,
                Err(shared) => shared.batch.also_used_by(&stream)?,
            }
            Ok(SLOTLINE_OK)
        })
    }
}

/// Blocks this thread until the copy is complete.
///
/// # Errors
///
/// `SLOTLINE_ERROR_INVALID`: `batch` is NULL. `SLOTLINE_ERROR_DEVICE`: an error of the driver.
///
/// # Safety
///
/// The same as for `slotline_device_batch_len`; `error` must be NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_device_batch_wait(
    batch: *const slotline_device_batch,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller upholds the contracts of `boundary` and `reference`.
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
/// The same as for `slotline_device_batch_dlpack`.
unsafe fn export_field<M: Managed>(
    batch: *const slotline_device_batch,
    i: usize,
    stream: *mut c_void,
    out: *mut *mut M,
) -> Result<slotline_status, Failure> {
    // SAFETY: the caller guarantees that `batch` is NULL or valid, and that `out` is NULL or writable.
    let (out, handle) = unsafe { (check::place(out, null_mut(), "out")?, check::reference(batch, "batch")?) };
    let tensor = handle.tensor(i)?;
    // SAFETY: the caller upholds the contract of `Stream::from_raw`.
    handle.batch.ready_on(&unsafe { handle.stream(stream) })?;
    handle.exported.store(true, Ordering::Relaxed);
    // SAFETY: `boxed` made the batch, and the caller has a hold on it.
    let hold = unsafe {
        Arc::increment_strong_count(batch);
        Arc::from_raw(batch)
    };
    let device_id = handle.batch.device().ordinal() as i32;
    let exported = export(&tensor, DLDevice { device_type: 2, device_id }, hold);
    // SAFETY: `place` has checked that `out` is not NULL, so the caller guarantees that it is writable.
    unsafe { out.write(exported) };
    Ok(SLOTLINE_OK)
}

/// Exports field `i` as a DLPack tensor on the device, without a copy, for use on `stream`. The stream waits for the batch as
/// with `slotline_device_batch_ready_on`. The memory is filled again once the batch was freed, all tensors exported
/// from it were deleted, and the stream has reached the point of the last of these calls. The `deleter` may therefore
/// be called, on any thread, as soon as all work that reads the tensor has been launched.
///
/// On failure `*out` is NULL.
///
/// # Errors
///
/// The same as for `slotline_device_batch_ready_on`; `SLOTLINE_ERROR_INVALID` also for a field that does not exist.
///
/// # Safety
///
/// The same as for `slotline_device_batch_ready_on`; `out` must be NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_device_batch_dlpack(
    batch: *const slotline_device_batch,
    i: usize,
    stream: *mut c_void,
    out: *mut *mut DLManagedTensorVersioned,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller upholds the contracts of `boundary` and `export_field`.
    unsafe { boundary(error, || export_field(batch, i, stream, out)) }
}

/// Exports field `i` as a DLPack tensor without a version, for importers from before DLPack 1.0. Otherwise the same as
/// `slotline_device_batch_dlpack`.
///
/// # Errors
///
/// The same as for `slotline_device_batch_dlpack`.
///
/// # Safety
///
/// The same as for `slotline_device_batch_dlpack`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_device_batch_dlpack_unversioned(
    batch: *const slotline_device_batch,
    i: usize,
    stream: *mut c_void,
    out: *mut *mut DLManagedTensor,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller upholds the contracts of `boundary` and `export_field`.
    unsafe { boundary(error, || export_field(batch, i, stream, out)) }
}

/// Frees a batch. Does nothing for NULL. Its memory is filled again once all streams that it was made ready on have reached
/// this point, and the last tensor exported from it was deleted. Can be called from any thread, in any order. If the loader was
/// freed before, the call waits for these streams, at most 5 s.
///
/// # Safety
///
/// The same as for `slotline_device_batch_len`; the batch must not be used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_device_batch_free(batch: *mut slotline_device_batch) {
    if !batch.is_null() {
        // SAFETY: `boxed` made the handle, and the caller gives up its hold.
        guarded((), || drop(unsafe { Arc::from_raw(batch.cast_const()) }));
    }
}
