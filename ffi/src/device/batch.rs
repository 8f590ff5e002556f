//! Functions for batches on a device: their streams, and waiting for their copies.

use std::ffi::c_void;

use slotline_cuda::{DeviceBatch, Stream};

use crate::abi::{Failure, check, done, slotline_error, slotline_status};
use crate::batch::handle::{slotline_batch, slotline_batch_free};
use crate::fields::field::About;
use crate::fields::tensor::{describe, slotline_tensor};

/// Describes field `i` in a tensor struct that contains its defaults; the addresses are device
/// addresses.
pub(crate) fn describe_field(tensor: &mut slotline_tensor, batch: &DeviceBatch, about: &About, i: usize) -> bool {
    let Some(field) = batch.field(i) else { return false };
    describe(tensor, about, field.shape(), std::ptr::without_provenance(field.ptr() as usize), field.bytes());
    if let Some((ends, count)) = field.ends() {
        (tensor.ends, tensor.num_ends) = (std::ptr::without_provenance(ends as usize), count);
    }
    true
}

/// Makes the caller's stream wait for the copy of the batch.
///
/// # Safety
///
/// The same as for `Stream::from_raw`.
pub(crate) unsafe fn ready_on(batch: &DeviceBatch, stream: *mut c_void) -> Result<(), Failure> {
    // SAFETY: the caller upholds the contract of `Stream::from_raw`.
    Ok(batch.ready_on(&unsafe { Stream::from_raw(batch.device(), stream) })?)
}

/// Returns the device batch of a handle, or an error for a batch on the host.
///
/// # Safety
///
/// The same as for `slotline_batch_len`.
unsafe fn on_device<'b>(batch: *const slotline_batch) -> Result<&'b DeviceBatch, Failure> {
    // SAFETY: the caller upholds this function's safety contract.
    let batch = unsafe { check::reference(batch, "batch") }?.on_device();
    batch.ok_or_else(|| Failure::invalid("batch is on the host, and not on a device (slotline_batch_device)"))
}

/// Makes `stream`, a `cudaStream_t`, wait for the copy of the batch: work that is launched on it
/// from now on may read the batch. The host does not wait. The stream is recorded: freeing the
/// batch has the same effect as releasing it on each recorded stream. `stream` must belong to the
/// device's primary context or be one of CUDA's default streams (0, 1, 2), and must not be
/// destroyed before the batch and all tensors exported from it were freed.
///
/// # Errors
///
/// `SLOTLINE_ERROR_INVALID`: `batch` is NULL or on the host. `SLOTLINE_ERROR_DEVICE`: a fifth stream, or an error of the driver.
///
/// # Safety
///
/// The same as for `slotline_batch_len`. `stream` must be as described above; `error`
/// must be NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_batch_ready_on(
    batch: *const slotline_batch,
    stream: *mut c_void,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller upholds the contracts of `boundary`, `reference` and `Stream::from_raw`.
    unsafe { done(error, || ready_on(on_device(batch)?, stream)) }
}

/// Frees a batch, even if this function fails. Its memory is reused once `stream` has reached this
/// point, the last tensor exported from it was deleted, and the tensors' streams have reached the
/// point of their deletion. All reads, except through tensors, must come before this point, on this
/// stream or on streams that it has waited for. The batch may have been made ready on at most four
/// other streams.
///
/// # Errors
///
/// `SLOTLINE_ERROR_INVALID`: `batch` is NULL or on the host. `SLOTLINE_ERROR_DEVICE`: an error of the driver; the memory is then
/// leaked, because it is unknown when it is no longer in use.
///
/// # Safety
///
/// The same as for `slotline_batch_ready_on`; the handle must not be used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_batch_release_on(
    batch: *mut slotline_batch,
    stream: *mut c_void,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller upholds the contracts of `boundary`, `on_device` and `Stream::from_raw`,
    // and transfers its reference.
    unsafe {
        done(error, || {
            let used = match on_device(batch) {
                Ok(shared) => {
                    let stream = Stream::from_raw(shared.device(), stream);
                    if let Some(alone) = slotline_batch::into_device(batch) {
                        return Ok(alone.release_on(&stream)?);
                    }
                    // The streams of tensors must still be waited for, even if the tensors were
                    // deleted. Releasing the last reference releases the batch on all recorded
                    // streams.
                    shared.also_used_by(&stream).map_err(Failure::from)
                }
                Err(failure) => Err(failure),
            };
            slotline_batch_free(batch);
            used
        })
    }
}

/// Blocks the calling thread until the batch is completely copied.
///
/// # Errors
///
/// `SLOTLINE_ERROR_INVALID`: `batch` is NULL or on the host. `SLOTLINE_ERROR_DEVICE`: an error of the driver.
///
/// # Safety
///
/// The same as for `slotline_batch_len`; `error` must be NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_batch_wait(
    batch: *const slotline_batch,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller upholds the contracts of `boundary` and `on_device`.
    unsafe { done(error, || Ok(on_device(batch)?.wait()?)) }
}
