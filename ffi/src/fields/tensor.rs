//! Descriptions of a batch's fields as tensors for C.

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::ptr::null;

use slotline::sample::Columns;
use slotline::shape::MAX_DIMS;

use crate::abi::{Versioned, versioned};
use crate::fields::dtype::slotline_dtype;
use crate::fields::field::{About, in_order, slotline_kind};

/// The maximum number of dimensions of a tensor.
pub const SLOTLINE_MAX_DIMS: usize = 8;
const _: () = assert!(SLOTLINE_MAX_DIMS == MAX_DIMS);

/// A field of a batch, in place: contiguous in C order, read-only, and valid until the batch is
/// freed.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct slotline_tensor {
    /// `sizeof(slotline_tensor)`, set by the caller.
    pub struct_size: usize,
    /// The name of the field, in UTF-8; valid until the batch is freed.
    pub name: *const c_char,
    /// The type of the elements.
    pub dtype: slotline_dtype,
    /// The number of dimensions.
    pub ndim: u32,
    /// The lengths of the dimensions. Fixed field: `[rows, ...]`. Padded field: `[rows, max]`, or
    /// `[rows, longest]` if it is padded to the longest, with padding after each row's elements. Packed
    /// field: `[items, ...]`, with the items of all rows one after another. Without batching, fixed
    /// and padded fields lack the first dimension.
    pub shape: [i64; SLOTLINE_MAX_DIMS],
    /// The distance between neighbouring elements in each dimension, in elements.
    pub strides: [i64; SLOTLINE_MAX_DIMS],
    /// The elements, aligned to their type.
    pub data: *const c_void,
    /// The size of the elements, in bytes.
    pub bytes: usize,
    /// Padded field: the number of elements of each row. Packed field: the offsets at which each row's items begin, followed by
    /// the end of the last row. Fixed field: NULL.
    pub ends: *const i64,
    /// The number of elements in `ends`.
    pub num_ends: usize,
    /// How samples are laid out in the field.
    pub kind: slotline_kind,
    /// 0; reserved for later versions.
    pub reserved: u32,
}

// SAFETY: it contains only numbers and pointers, and its first field is its size.
unsafe impl Versioned for slotline_tensor {
    const END: usize = versioned::end!(reserved);
}

/// Describes field `i` if all of its rows have the same, known shape; returns whether they have.
#[inline]
pub(crate) fn describe_rows(
    tensor: &mut MaybeUninit<slotline_tensor>,
    columns: &Columns<'_>,
    about: &About,
    i: usize,
) -> bool {
    let Some(known) = &about.rows else { return false };
    let Some((rows, data)) = columns.raw_rows(i) else { return false };
    let tensor = tensor.write(slotline_tensor {
        struct_size: size_of::<slotline_tensor>(),
        name: about.name.as_ptr(),
        dtype: about.dtype,
        ndim: known.ndim,
        shape: known.shape,
        strides: known.strides,
        data: data.as_ptr().cast_const().cast(),
        bytes: rows * known.bytes,
        ends: null(),
        num_ends: 0,
        kind: about.kind,
        reserved: 0,
    });
    tensor.shape[0] = rows as i64;
    true
}

/// Describes field `i`; returns `false` if it does not exist.
#[inline]
pub(crate) fn describe_field(tensor: &mut slotline_tensor, columns: &Columns<'_>, about: &About, i: usize) -> bool {
    // Does not create a reference, because the owner of an exported tensor may be writing to the
    // memory.
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

/// Describes a field in C order, without the ends of its rows, in a tensor struct that contains its
/// defaults.
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
