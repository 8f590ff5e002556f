//! Export of a batch's fields as DLPack tensors, which PyTorch, NumPy, JAX and other libraries
//! import without a copy.
//!
//! The structs are those of `dlpack.h`, version 1.1, repeated here so that slotline does not depend
//! on that header. C programs that access their fields include `dlpack.h` or their framework's
//! copy. An exported tensor holds a reference to its batch: the batch's memory returns to the
//! loader when the last tensor was deleted and the batch was freed, in any order and on any thread.
//!
//! Importers differ in what they accept. Therefore `byte_offset` is 0, strides are always set, and page-locked memory is
//! exported as plain host memory (`kDLCPU`).
//!
//! Tensors are writable (`READ_ONLY` is not set): the batch has exclusive ownership of the memory
//! until its last reference is released, and slotline does not read it before. This holds for both
//! kinds of structs. The struct without a version cannot mark a tensor as read-only, and importers
//! treat it differently (NumPy as read-only, PyTorch as writable; PyTorch ignores the flag).
//! Therefore the pointer is derived from the memory itself and not from a reference, and releasing
//! the batch's last reference normalises `bool`s to 0 and 1, in case the importer wrote other
//! values.

use std::ffi::c_void;
use std::ptr::null_mut;

use slotline::dtype::DType;

use crate::abi::{Failure, check, done, guarded, slotline_error, slotline_status};
use crate::batch::handle::slotline_batch;
use crate::fields::dtype::{dtype, slotline_dtype};
use crate::fields::tensor::{SLOTLINE_MAX_DIMS, slotline_tensor};

/// The device that holds a tensor's memory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DLDevice {
    /// 1 is host memory (`kDLCPU`), 2 is memory of a CUDA device (`kDLCUDA`).
    pub device_type: i32,
    /// The device's number; 0 for host memory.
    pub device_id: i32,
}

/// Host memory.
const HOST: DLDevice = DLDevice { device_type: 1, device_id: 0 };

/// The type of a tensor's elements.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DLDataType {
    /// 0 is signed, 1 unsigned, 2 floating point, 4 bfloat, 6 bool.
    pub code: u8,
    /// The number of bits of one element.
    pub bits: u8,
    /// The number of elements in a vector: always 1.
    pub lanes: u16,
}

/// A tensor.
#[repr(C)]
#[derive(Debug)]
pub struct DLTensor {
    /// The elements; NULL if there are none.
    pub data: *mut c_void,
    /// The device of the elements.
    pub device: DLDevice,
    /// The number of dimensions.
    pub ndim: i32,
    /// The type of the elements.
    pub dtype: DLDataType,
    /// The lengths of the dimensions.
    pub shape: *mut i64,
    /// The distance between neighbouring elements in each dimension, in elements.
    pub strides: *mut i64,
    /// Always 0.
    pub byte_offset: u64,
}

/// A tensor with its deleter, in the layout before DLPack 1.0.
#[repr(C)]
#[derive(Debug)]
pub struct DLManagedTensor {
    /// The tensor.
    pub dl_tensor: DLTensor,
    /// Used by the deleter.
    pub manager_ctx: *mut c_void,
    /// Called once, with this struct, on any thread.
    pub deleter: Option<unsafe extern "C" fn(*mut DLManagedTensor)>,
}

/// A version of DLPack.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DLPackVersion {
    /// A different major version has a different layout.
    pub major: u32,
    /// A different minor version has the same layout.
    pub minor: u32,
}

/// A tensor with its deleter and its version.
#[repr(C)]
#[derive(Debug)]
pub struct DLManagedTensorVersioned {
    /// Version 1.1.
    pub version: DLPackVersion,
    /// Used by the deleter.
    pub manager_ctx: *mut c_void,
    /// Called once, with this struct, on any thread.
    pub deleter: Option<unsafe extern "C" fn(*mut DLManagedTensorVersioned)>,
    /// 0: the tensor may be written (`READ_ONLY` is not set), and is not a copy (`IS_COPIED` is not set).
    pub flags: u64,
    /// The tensor.
    pub dl_tensor: DLTensor,
}

const VERSION: DLPackVersion = DLPackVersion { major: 1, minor: 1 };

/// One of the two structs in which a tensor is exported.
pub(crate) trait Managed: Sized {
    /// Returns the struct, whose deleter drops the [`Exported`] that contains it.
    fn of<H>(dl_tensor: DLTensor) -> Self;

    fn context(&mut self) -> &mut *mut c_void;
    fn tensor(&mut self) -> &mut DLTensor;
}

/// The allocation of an exported tensor: the struct, the arrays that it points to, and the
/// reference that keeps its memory alive.
struct Exported<M, H> {
    managed: M,
    shape: [i64; SLOTLINE_MAX_DIMS],
    strides: [i64; SLOTLINE_MAX_DIMS],
    _hold: H,
}

/// Deletes an exported tensor. Can be called from any thread.
///
/// # Safety
///
/// `context` must come from a tensor that [`export`] made with these types, and the tensor must be deleted only once.
unsafe fn delete<M, H>(context: *mut c_void) {
    // SAFETY: the caller guarantees that `export` made it and that this is the only deletion.
    guarded((), || drop(unsafe { Box::from_raw(context.cast::<Exported<M, H>>()) }));
}

macro_rules! managed {
    ($managed:ident, { $($field:ident: $value:expr),* }) => {
        impl Managed for $managed {
            fn of<H>(dl_tensor: DLTensor) -> Self {
                unsafe extern "C" fn deleter<H>(tensor: *mut $managed) {
                    // Accepts NULL, like `free`.
                    if !tensor.is_null() {
                        // SAFETY: the importer calls this once, and does not use the tensor afterwards.
                        unsafe { delete::<$managed, H>((*tensor).manager_ctx) };
                    }
                }
                Self { dl_tensor, manager_ctx: null_mut(), deleter: Some(deleter::<H>), $($field: $value),* }
            }

            fn context(&mut self) -> &mut *mut c_void {
                &mut self.manager_ctx
            }

            fn tensor(&mut self) -> &mut DLTensor {
                &mut self.dl_tensor
            }
        }
    };
}

managed!(DLManagedTensor, {});
managed!(DLManagedTensorVersioned, { version: VERSION, flags: 0 });

/// Exports a tensor on `device`; `hold` must keep its memory alive.
pub(crate) fn export<M: Managed, H: Send + 'static>(tensor: &slotline_tensor, device: DLDevice, hold: H) -> *mut M {
    let dl_tensor = DLTensor {
        // The pointer is `const` only in the C struct: it comes from `Columns::raw`, or is a device
        // address.
        data: if tensor.bytes == 0 { null_mut() } else { tensor.data.cast_mut() },
        device,
        ndim: tensor.ndim as i32,
        dtype: data_type(tensor.dtype),
        shape: null_mut(),
        strides: null_mut(),
        byte_offset: 0,
    };
    let (shape, strides) = (tensor.shape, tensor.strides);
    let exported = Box::into_raw(Box::new(Exported { managed: M::of::<H>(dl_tensor), shape, strides, _hold: hold }));
    // SAFETY: the box was just made, and no other reference to it exists. The pointers into it are derived from the pointer to
    // the whole box, so they are valid for all of it.
    unsafe {
        let (shape, strides) = (&raw mut (*exported).shape, &raw mut (*exported).strides);
        let managed = &raw mut (*exported).managed;
        let tensor = (*managed).tensor();
        (tensor.shape, tensor.strides) = (shape.cast(), strides.cast());
        *(*managed).context() = exported.cast();
        managed
    }
}

/// Converts a dtype to DLPack's representation.
fn data_type(number: slotline_dtype) -> DLDataType {
    let dtype = dtype(number, "dtype").unwrap_or(DType::Bool);
    DLDataType { code: dtype.kind() as u8, bits: 8 * dtype.size() as u8, lanes: 1 }
}

/// A counted reference to a batch.
struct BatchHold(*const slotline_batch);

// SAFETY: any thread may release a reference, as any thread may call `slotline_batch_free`.
unsafe impl Send for BatchHold {}

impl Drop for BatchHold {
    fn drop(&mut self) {
        // SAFETY: this value owns one reference, and releases it only here.
        unsafe { slotline_batch::release(self.0.cast_mut()) };
    }
}

/// Exports field `i` of a batch.
///
/// # Safety
///
/// The same as for `slotline_batch_dlpack`.
unsafe fn export_field<M: Managed>(
    batch: *const slotline_batch,
    i: usize,
    stream: *mut c_void,
    out: *mut *mut M,
) -> Result<(), Failure> {
    // SAFETY: the caller guarantees that `batch` is NULL or was not freed, and that `out` is NULL or writable.
    let (out, handle) = unsafe { (&mut *check::place(out, null_mut(), "out")?, check::reference(batch, "batch")?) };
    let tensor = handle.tensor(i)?;
    let device = match handle.device() {
        -1 => HOST,
        device_id => DLDevice { device_type: 2, device_id },
    };
    #[cfg(feature = "cuda")]
    if let Some(batch) = handle.on_device() {
        // SAFETY: the caller upholds the same contract.
        unsafe { crate::device::ready_on(batch, stream) }?;
    }
    #[cfg(not(feature = "cuda"))]
    let _ = stream;
    handle.hold(tensor.dtype);
    *out = export(&tensor, device, BatchHold(batch));
    Ok(())
}

/// Exports field `i` of a batch as a DLPack tensor, without a copy, for `torch::from_dlpack` and other importers of version 1.
/// For a padded or packed field the tensor contains the elements; `slotline_tensor` describes where rows end.
///
/// The caller owns the tensor, and must call its `deleter` or pass it to an importer that does. The tensor keeps the batch's
/// memory alive, so the batch may be freed before the tensor. A thread may write to the tensor while no other thread reads or
/// writes the field; the batch and other tensors of the field then show the new values. Write only 0 and 1 to `bool`s. On
/// failure `*out` is NULL. Can be called from any thread.
///
/// For a batch on a device, the tensor is for use on `stream`, which waits for the batch as with
/// `slotline_batch_ready_on`. The loader reuses the memory once the batch was freed, all tensors
/// exported from it were deleted, and the stream has reached the point of the last of these calls.
/// The `deleter` may therefore be called as soon as all work that reads the tensor has been
/// launched. For a batch on the host, `stream` has no effect.
///
/// # Errors
///
/// `SLOTLINE_ERROR_INVALID`: a null pointer, or a field that does not exist. `SLOTLINE_ERROR_DEVICE`: as for
/// `slotline_batch_ready_on`.
///
/// # Safety
///
/// `batch` must be NULL or a batch that was not freed; `out` and `error` must be NULL or writable. For a batch on a device,
/// `stream` must be as for `slotline_batch_ready_on`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_batch_dlpack(
    batch: *const slotline_batch,
    i: usize,
    stream: *mut c_void,
    out: *mut *mut DLManagedTensorVersioned,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller upholds the contracts of `boundary` and `export_field`.
    unsafe { done(error, || export_field(batch, i, stream, out)) }
}

/// Exports field `i` of a batch as a DLPack tensor without a version, for importers from before
/// DLPack 1.0, such as `at::fromDLPack`. (NumPy treats such a tensor as read-only.) Otherwise it
/// works like `slotline_batch_dlpack`.
///
/// # Errors
///
/// The same as for `slotline_batch_dlpack`.
///
/// # Safety
///
/// The same as for `slotline_batch_dlpack`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_batch_dlpack_unversioned(
    batch: *const slotline_batch,
    i: usize,
    stream: *mut c_void,
    out: *mut *mut DLManagedTensor,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller upholds the contracts of `boundary` and `export_field`.
    unsafe { done(error, || export_field(batch, i, stream, out)) }
}
