//! The fields of a batch, as tensors that C can read.

use std::ffi::{c_char, c_void};
use std::ptr::{null, null_mut};

use slotline::sample::Columns;
use slotline::shape::MAX_DIMS;

use crate::dtype::slotline_dtype;
use crate::field::{About, slotline_kind};
use crate::versioned::{self, Versioned};

/// The maximum number of dimensions of a tensor.
pub const SLOTLINE_MAX_DIMS: usize = 8;
const _: () = assert!(SLOTLINE_MAX_DIMS == MAX_DIMS);

/// A field of a batch, in place: in C order, read-only, and valid until the batch is freed.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct slotline_tensor {
    /// `sizeof(slotline_tensor)`, set by the caller.
    pub struct_size: usize,
    /// The name of the field, in UTF-8; it lives as long as the batch.
    pub name: *const c_char,
    /// The type of the elements.
    pub dtype: slotline_dtype,
    /// The number of dimensions.
    pub ndim: u32,
    /// The lengths of the dimensions. Fixed field: `[rows, ...]`. Ragged field: `[rows, max]`, with zeros after each row's
    /// elements. Packed field: `[items, ...]`, with the items of all rows in sequence. Without batching, fixed and ragged
    /// fields lack the first dimension.
    pub shape: [i64; SLOTLINE_MAX_DIMS],
    /// The distance between neighbouring elements in each dimension, in elements.
    pub strides: [i64; SLOTLINE_MAX_DIMS],
    /// The elements, aligned to their type.
    pub data: *const c_void,
    /// The size of the elements, in bytes.
    pub bytes: usize,
    /// Ragged field: the number of elements of each row. Packed field: the offsets at which each row's items begin, followed by
    /// the end of the last row. Fixed field: NULL.
    pub ends: *const i64,
    /// The number of `ends`.
    pub num_ends: usize,
    /// How samples are laid out in the field.
    pub kind: slotline_kind,
    /// 0; reserved for later versions.
    pub reserved: u32,
}

// SAFETY: it contains only numbers and pointers, and its first field is its size.
unsafe impl Versioned for slotline_tensor {
    const FIRST: usize = versioned::end!(reserved);
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

/// Returns the description of field `i` of some columns, if its rows all have the same shape, which is known in advance.
#[inline]
pub(crate) fn fixed_field(columns: &Columns<'_>, about: &About, i: usize) -> Option<slotline_tensor> {
    let known = about.rows.as_ref()?;
    let (rows, data) = columns.raw_rows(i)?;
    let mut shape = known.shape;
    shape[0] = rows as i64;
    Some(slotline_tensor {
        struct_size: size_of::<slotline_tensor>(),
        name: about.name.as_ptr(),
        dtype: about.dtype,
        ndim: known.ndim,
        shape,
        strides: known.strides,
        data: data.as_ptr().cast_const().cast(),
        bytes: rows * known.bytes,
        ends: null(),
        num_ends: 0,
        kind: about.kind,
        reserved: 0,
    })
}

/// Describes field `i` of some columns; returns `false` if it does not exist.
#[inline]
pub(crate) fn describe_field(tensor: &mut slotline_tensor, columns: &Columns<'_>, about: &About, i: usize) -> bool {
    // This creates no reference, because the owner of an exported tensor may be writing to the memory.
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

/// Describes a field, in C order and without the ends of its rows, in a tensor that holds its defaults.
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
    in_order(shape, &mut tensor.shape, &mut tensor.strides);
}

/// Writes the lengths and the strides of a tensor in C order.
#[inline]
pub(crate) fn in_order(dims: &[usize], lens: &mut [i64; MAX_DIMS], strides: &mut [i64; MAX_DIMS]) {
    // The product fits in an `i64`: no tensor in memory has more elements, even if dimensions of length 0 are left out
    // (`Shape::elements`).
    let mut stride = 1;
    for (place, &dim) in dims.iter().enumerate().rev() {
        (lens[place], strides[place]) = (dim as i64, stride);
        stride *= (dim as i64).max(1);
    }
}
