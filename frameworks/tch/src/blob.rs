//! Tensors that use the memory of a batch, and keep the batch alive.

use std::ffi::{CStr, c_char, c_void};
use std::sync::Arc;

use slotline::sample::Dynamic;
use slotline::{Batch, BoxError};
use tch::Tensor;
use torch_sys::C_tensor;

unsafe extern "C" {
    /// Creates a tensor over foreign memory; defined in `from_blob.cpp`.
    fn slotline_tch_from_blob(
        data: *mut c_void,
        dims: *const i64,
        ndims: usize,
        scalar_type: i8,
        drop: unsafe extern "C" fn(*mut c_void),
        owner: *mut c_void,
        message: *mut c_char,
        size: usize,
    ) -> *mut C_tensor;
}

/// Creates a tensor over field `i` of a batch, whose elements have this scalar type of libtorch.
/// The tensor keeps the batch alive.
pub(crate) fn tensor(batch: &Arc<Batch<Dynamic>>, i: usize, scalar_type: i8) -> Result<Tensor, BoxError> {
    let (shape, memory) = batch.columns().raw(i).ok_or("the field does not exist")?;
    let dims = shape.dims().iter().map(|&dim| i64::try_from(dim)).collect::<Result<Vec<_>, _>>()?;
    let owner = Arc::into_raw(Arc::clone(batch)).cast_mut();
    let mut message = [0; 1024];
    // SAFETY: the memory has as many elements as the shape, of this type. It stays valid while the
    // batch exists, and the tensor keeps the batch until `drop_owner` is called. libtorch may write
    // to the memory, as `raw` allows: each field is given to one tensor, and the batch was moved,
    // so no other code reads it. The buffer for the message has the stated size.
    let tensor = unsafe {
        slotline_tch_from_blob(
            memory.as_ptr().cast(),
            dims.as_ptr(),
            dims.len(),
            scalar_type,
            drop_owner,
            owner.cast(),
            message.as_mut_ptr(),
            message.len(),
        )
    };
    if tensor.is_null() {
        // SAFETY: the message was zeroed, and its last byte is not written.
        return Err(unsafe { CStr::from_ptr(message.as_ptr()) }.to_string_lossy().into());
    }
    // SAFETY: the function returns a new tensor of libtorch, as those of torch-sys do, which tch
    // deletes.
    Ok(unsafe { Tensor::from_ptr(tensor) })
}

/// Drops a reference to a batch. libtorch calls this when it frees the tensor.
///
/// # Safety
///
/// `owner` must be from `Arc::into_raw`, and not be used again.
unsafe extern "C" fn drop_owner(owner: *mut c_void) {
    // SAFETY: the caller upholds the contract.
    drop(unsafe { Arc::from_raw(owner.cast_const().cast::<Batch<Dynamic>>()) });
}
