//! Fields of a batch as DLPack tensors, which PyTorch, NumPy, JAX and others take without a copy.
//!
//! The structs are those of `dlpack.h`, version 1.1, written down here so that nothing has to be had for them; a C program
//! includes that header, or the one of its framework, to look into them. A tensor keeps a hold on its batch: the batch's
//! memory goes back to the loader when the last tensor was deleted and the batch was freed, in any order and on any thread.
//!
//! Importers differ in what they take, so: `byte_offset` is 0, strides are there, and page-locked memory is plain host memory
//! (`kDLCPU`).
//!
//! Tensors may be written, and say so (`READ_ONLY` is not set): the memory is the batch's alone until its last hold is given up,
//! and slotline reads none of it before then. That goes for both forms: the one without a version cannot say that a tensor is
//! read-only, and importers differ in what they take it for (NumPy: read-only, PyTorch: writable; and PyTorch does not look
//! at the flag). So the pointer comes from the memory itself and not from a reference, and of `bool`s the batch's last hold
//! makes sure that the importer left only 0 and 1.

use std::ffi::c_void;
use std::ptr::null_mut;

use slotline::dtype::{DType, Kind};

use crate::batch::slotline_batch;
use crate::boundary::{boundary, guarded};
use crate::check;
use crate::dtype::{dtype, slotline_dtype};
use crate::error::slotline_error;
use crate::failure::Failure;
use crate::status::{SLOTLINE_OK, slotline_status};
use crate::tensor::{SLOTLINE_MAX_DIMS, slotline_tensor};

/// Where a tensor's memory is.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DLDevice {
    /// 1 is host memory (`kDLCPU`), 2 a CUDA device's (`kDLCUDA`).
    pub device_type: i32,
    /// The device's number; 0 of host memory.
    pub device_id: i32,
}

/// Host memory.
const HOST: DLDevice = DLDevice { device_type: 1, device_id: 0 };

/// The type of a tensor's elements.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DLDataType {
    /// 0 is signed, 1 unsigned, 2 floating, 4 bfloat, 6 bool.
    pub code: u8,
    /// The bits of one.
    pub bits: u8,
    /// 1: no vectors.
    pub lanes: u16,
}

/// A tensor.
#[repr(C)]
#[derive(Debug)]
pub struct DLTensor {
    /// The elements; NULL if there are none.
    pub data: *mut c_void,
    /// Where they are.
    pub device: DLDevice,
    /// The number of dimensions.
    pub ndim: i32,
    /// The type of the elements.
    pub dtype: DLDataType,
    /// The lengths of the dimensions.
    pub shape: *mut i64,
    /// How many elements to go on by to raise an index by one.
    pub strides: *mut i64,
    /// 0.
    pub byte_offset: u64,
}

/// A tensor with what lets it go, as before version 1.0.
#[repr(C)]
#[derive(Debug)]
pub struct DLManagedTensor {
    /// The tensor.
    pub dl_tensor: DLTensor,
    /// For the deleter.
    pub manager_ctx: *mut c_void,
    /// Called once, with this struct, on any thread.
    pub deleter: Option<unsafe extern "C" fn(*mut DLManagedTensor)>,
}

/// A version of DLPack.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DLPackVersion {
    /// Another one is another layout.
    pub major: u32,
    /// Another one is the same layout.
    pub minor: u32,
}

/// A tensor with what lets it go, and its version.
#[repr(C)]
#[derive(Debug)]
pub struct DLManagedTensorVersioned {
    /// 1.1.
    pub version: DLPackVersion,
    /// For the deleter.
    pub manager_ctx: *mut c_void,
    /// Called once, with this struct, on any thread.
    pub deleter: Option<unsafe extern "C" fn(*mut DLManagedTensorVersioned)>,
    /// 0: it may be written (not `READ_ONLY`), and is no copy (not `IS_COPIED`).
    pub flags: u64,
    /// The tensor.
    pub dl_tensor: DLTensor,
}

const VERSION: DLPackVersion = DLPackVersion { major: 1, minor: 1 };

/// One of the two structs of exported tensors.
pub(crate) trait Managed: Sized {
    /// The struct, whose deleter drops the [`Exported`] that it is in.
    fn of<H>(dl_tensor: DLTensor) -> Self;

    fn context(&mut self) -> &mut *mut c_void;
    fn tensor(&mut self) -> &mut DLTensor;
}

/// An exported tensor: the struct, what it points to, and the hold on its memory.
struct Exported<M, H> {
    managed: M,
    shape: [i64; SLOTLINE_MAX_DIMS],
    strides: [i64; SLOTLINE_MAX_DIMS],
    _hold: H,
}

/// Deletes an exported tensor. On any thread.
///
/// # Safety
///
/// `context` must be that of a tensor of [`export`] with these types, which is deleted once.
unsafe fn delete<M, H>(context: *mut c_void) {
    // SAFETY: the caller's word: it was made by `export`.
    guarded((), || drop(unsafe { Box::from_raw(context.cast::<Exported<M, H>>()) }));
}

macro_rules! managed {
    ($managed:ident, { $($field:ident: $value:expr),* }) => {
        impl Managed for $managed {
            fn of<H>(dl_tensor: DLTensor) -> Self {
                unsafe extern "C" fn deleter<H>(tensor: *mut $managed) {
                    // As `free`: NULL is fine.
                    if !tensor.is_null() {
                        // SAFETY: whoever imported it calls this once, and does not use it any more.
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

/// Exports a tensor that is on `device`; its memory must be there as long as `hold` is.
pub(crate) fn export<M: Managed, H: Send + 'static>(tensor: &slotline_tensor, device: DLDevice, hold: H) -> *mut M {
    let dl_tensor = DLTensor {
        // The pointer was `const` for C's sake only: it comes from `Columns::raw`, or is a device's.
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
    // SAFETY: just made, and nobody else has it. The pointers into it are of the box's, and so good for all of it.
    unsafe {
        let (shape, strides) = (&raw mut (*exported).shape, &raw mut (*exported).strides);
        let managed = &raw mut (*exported).managed;
        let tensor = (*managed).tensor();
        (tensor.shape, tensor.strides) = (shape.cast(), strides.cast());
        *(*managed).context() = exported.cast();
        managed
    }
}

/// A dtype in DLPack's words.
fn data_type(number: slotline_dtype) -> DLDataType {
    let dtype = dtype(number, "dtype").unwrap_or(DType::Bool);
    let code = match dtype.kind() {
        Kind::Signed => 0,
        Kind::Unsigned => 1,
        Kind::Float => 2,
        Kind::BFloat => 4,
        _ => 6,
    };
    DLDataType { code, bits: 8 * dtype.size() as u8, lanes: 1 }
}

/// One hold on a batch.
struct BatchHold(*const slotline_batch);

// SAFETY: holds may be given up on any thread, as `slotline_batch_free` may be called on any.
unsafe impl Send for BatchHold {}

impl Drop for BatchHold {
    fn drop(&mut self) {
        // SAFETY: this hold is ours, and given up once.
        unsafe { slotline_batch::release(self.0.cast_mut()) };
    }
}

/// Exports field `i` of a batch.
///
/// # Safety
///
/// `batch` must be NULL or a batch that was not freed; `out` NULL or writable.
unsafe fn export_field<M: Managed>(
    batch: *const slotline_batch,
    i: usize,
    out: *mut *mut M,
) -> Result<slotline_status, Failure> {
    // SAFETY: the caller's word.
    let (out, handle) = unsafe { (&mut *check::place(out, null_mut(), "out")?, check::reference(batch, "batch")?) };
    let tensor = handle.tensor(i)?;
    handle.hold(tensor.dtype);
    *out = export(&tensor, HOST, BatchHold(batch));
    Ok(SLOTLINE_OK)
}

/// Exports field `i` of a batch as a DLPack tensor, without a copy: for `torch::from_dlpack` and whatever else takes one of
/// version 1. Of a ragged or packed field these are the elements; see `slotline_tensor` for where rows end.
///
/// The tensor is the caller's, who calls its `deleter`, or gives it to an importer that will. It keeps the batch's memory, so
/// that the batch may be freed before it. It may be written, by one thread while no other one reads or writes the field; the
/// batch itself, and other tensors of the field, then show what was written. `bool`s that are written should be 0 or 1. Any
/// thread; `*out` is NULL if it fails.
///
/// # Errors
///
/// `SLOTLINE_INVALID`: a null pointer, or no such field.
///
/// # Safety
///
/// `batch` must be NULL or a batch that was not freed; `out` and `error` NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_batch_dlpack(
    batch: *const slotline_batch,
    i: usize,
    out: *mut *mut DLManagedTensorVersioned,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller's word.
    unsafe { boundary(error, || export_field(batch, i, out)) }
}

/// The same as a tensor without a version, for importers from before DLPack 1.0: `at::fromDLPack`, for one. (NumPy takes such a
/// tensor for read-only.)
///
/// # Errors
///
/// As of `slotline_batch_dlpack`.
///
/// # Safety
///
/// As of `slotline_batch_dlpack`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_batch_dlpack_unversioned(
    batch: *const slotline_batch,
    i: usize,
    out: *mut *mut DLManagedTensor,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller's word.
    unsafe { boundary(error, || export_field(batch, i, out)) }
}
