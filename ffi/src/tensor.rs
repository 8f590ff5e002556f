//! Fields of a batch, as tensors that C can read.

use std::ffi::{c_char, c_void};
use std::ptr::{null, null_mut};

use slotline::sample::Columns;
use slotline::shape::MAX_DIMS;

use crate::dtype::slotline_dtype;
use crate::field::{About, slotline_kind};
use crate::versioned::{self, Versioned};

/// The most dimensions that a tensor has.
pub const SLOTLINE_MAX_DIMS: usize = 8;
const _: () = assert!(SLOTLINE_MAX_DIMS == MAX_DIMS);

/// A field of a batch, where it is: in C order, read only, until the batch is freed.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct slotline_tensor {
    /// `sizeof(slotline_tensor)`, set by the caller.
    pub struct_size: usize,
    /// Its name, in UTF-8; it lives as long as the batch.
    pub name: *const c_char,
    /// The type of its elements.
    pub dtype: slotline_dtype,
    /// How many dimensions it has.
    pub ndim: u32,
    /// Their lengths: `[rows, ...]` of a fixed field; `[rows, max]` of a ragged one, with zeros behind each row's own
    /// elements; `[items, ...]` of a packed one, with the items of all rows one after the other. Without batches the first
    /// two lack the dimension of the rows.
    pub shape: [i64; SLOTLINE_MAX_DIMS],
    /// How many elements to go on by to raise the index of a dimension by one.
    pub strides: [i64; SLOTLINE_MAX_DIMS],
    /// The elements, aligned to their type.
    pub data: *const c_void,
    /// Their bytes.
    pub bytes: usize,
    /// Of a ragged field how many elements each row has; of a packed one where each row's items begin, and where the last
    /// one's end. NULL of a fixed one.
    pub ends: *const i64,
    /// How many `ends` there are.
    pub num_ends: usize,
    /// How samples lie in it.
    pub kind: slotline_kind,
    /// 0, for later versions.
    pub reserved: u32,
}

// SAFETY: numbers and pointers, the first one the size.
unsafe impl Versioned for slotline_tensor {
    const END: usize = versioned::end!(reserved);

    fn defaults() -> Self {
        Self {
            struct_size: size_of::<Self>(),
            name: null(),
            dtype: 0,
            ndim: 0,
            shape: [0; SLOTLINE_MAX_DIMS],
            strides: [0; SLOTLINE_MAX_DIMS],
            data: null_mut(),
            bytes: 0,
            ends: null(),
            num_ends: 0,
            kind: 0,
            reserved: 0,
        }
    }
}

/// Field `i` of some columns; `false` if there is none.
#[inline]
pub(crate) fn describe_field(tensor: &mut slotline_tensor, columns: &Columns<'_>, about: &About, i: usize) -> bool {
    // No reference: whoever has a tensor that was exported may be writing there.
    let Some((shape, memory)) = columns.raw(i) else { return false };
    describe(tensor, about, shape.dims(), memory.as_ptr().cast::<c_void>().cast_const(), memory.len());
    let ends = match about.kind {
        0 => None,
        _ => columns.lengths(i).or_else(|| columns.offsets(i)),
    };
    if let Some(ends) = ends {
        (tensor.ends, tensor.num_ends) = (ends.as_ptr(), ends.len());
    }
    true
}

/// A tensor of a field, in C order, without the ends of its rows; `tensor` has its defaults before.
#[inline]
pub(crate) fn describe(
    tensor: &mut slotline_tensor,
    about: &About,
    shape: &[usize],
    data: *const c_void,
    bytes: usize,
) {
    (tensor.name, tensor.dtype, tensor.kind) = (about.name.as_ptr(), about.dtype, about.kind);
    (tensor.ndim, tensor.data, tensor.bytes) = (shape.len() as u32, data, bytes);
    // No tensor that is in memory has more elements than an i64 can count, zeros left out (`Shape::elements`).
    let mut stride = 1;
    for (place, &dim) in shape.iter().enumerate().rev() {
        tensor.shape[place] = dim as i64;
        tensor.strides[place] = stride;
        stride *= (dim as i64).max(1);
    }
}
