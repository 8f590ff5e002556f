//! Copies of tensors whose elements are not contiguous.
//!
//! Dimensions are merged where possible. If the elements of the innermost dimension are contiguous
//! (as in a crop), whole lines are copied. Otherwise adjacent elements in memory belong to another
//! dimension (as in pictures with the channels last): the two dimensions are copied tile by tile,
//! so that each cache line is read once.

/// A dimension: its length, and the distance between its elements in the source and in the copy, in
/// bytes.
#[derive(Clone, Copy, Debug)]
struct Dim {
    len: usize,
    from: isize,
    to: isize,
}

/// The elements of a tile along the innermost dimension, and the most along the other.
const TILE: usize = 256;
const NARROW: usize = 16;

/// Copies elements of `size` bytes to `to`, contiguously.
///
/// # Safety
///
/// The strides, in elements, must reach only elements of the source, and `to` must have room for
/// all of them.
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, shape: &[i64], strides: &[i64], size: usize) {
    let mut dims: Vec<Dim> = Vec::with_capacity(shape.len() + 1);
    let mut step = size as isize;
    for (&len, &stride) in shape.iter().zip(strides).rev() {
        if len == 0 {
            return;
        }
        let dim = Dim { len: len as usize, from: stride as isize * size as isize, to: step };
        step *= len as isize;
        match dims.last_mut() {
            _ if len == 1 => {}
            Some(inner) if inner.from * inner.len as isize == dim.from => inner.len *= dim.len,
            _ => dims.push(dim),
        }
    }
    // The dimensions are in the order of the copy's memory, innermost first. SAFETY: guaranteed by
    // the caller, for the same elements in merged dimensions.
    unsafe {
        match size {
            1 => walk::<1>(from, to, &dims),
            2 => walk::<2>(from, to, &dims),
            4 => walk::<4>(from, to, &dims),
            8 => walk::<8>(from, to, &dims),
            16 => walk::<16>(from, to, &dims),
            _ => {
                // An element of another size is a dimension of bytes.
                dims.insert(0, Dim { len: size, from: 1, to: 1 });
                walk::<1>(from, to, &dims);
            }
        }
    }
}

/// Copies elements of `N` bytes.
///
/// # Safety
///
/// The same as for [`copy`].
unsafe fn walk<const N: usize>(from: *const u8, to: *mut u8, dims: &[Dim]) {
    let Some((&inner, outer)) = dims.split_first() else {
        // SAFETY: there is exactly one element.
        unsafe { std::ptr::copy_nonoverlapping(from, to, N) };
        return;
    };
    // The outer dimension whose elements are closest to each other in the source.
    let closest = outer.iter().enumerate().min_by_key(|(_, dim)| dim.from.unsigned_abs());
    match closest.filter(|(_, dim)| dim.from.unsigned_abs() < inner.from.unsigned_abs()) {
        Some((place, &across)) => {
            let rest: Vec<Dim> = outer.iter().enumerate().filter(|&(i, _)| i != place).map(|(_, dim)| *dim).collect();
            // SAFETY: the tiles cover exactly the two dimensions.
            unsafe { each(from, to, &rest, &mut |from, to| tiles::<N>(from, to, inner, across)) };
        }
        None if inner.from == N as isize => {
            // SAFETY: `inner.len` elements of `N` bytes are contiguous in both.
            unsafe { each(from, to, outer, &mut |from, to| std::ptr::copy_nonoverlapping(from, to, inner.len * N)) };
        }
        // SAFETY: guaranteed by the caller.
        None => unsafe { each(from, to, outer, &mut |from, to| line::<N>(from, to, inner, inner.len)) },
    }
}

/// Calls `with` for each position along these dimensions.
///
/// # Safety
///
/// The dimensions must reach only elements of the source and of the copy.
unsafe fn each(from: *const u8, to: *mut u8, dims: &[Dim], with: &mut dyn FnMut(*const u8, *mut u8)) {
    let Some((dim, inner)) = dims.split_last() else { return with(from, to) };
    for i in 0..dim.len as isize {
        // SAFETY: guaranteed by the caller.
        unsafe { each(from.offset(i * dim.from), to.offset(i * dim.to), inner, with) };
    }
}

/// Copies two dimensions in tiles.
///
/// # Safety
///
/// The same as for [`copy`].
unsafe fn tiles<const N: usize>(from: *const u8, to: *mut u8, inner: Dim, across: Dim) {
    for first in (0..across.len).step_by(NARROW) {
        for start in (0..inner.len).step_by(TILE) {
            let len = TILE.min(inner.len - start);
            for i in first..across.len.min(first + NARROW) {
                // SAFETY: both indices are within their dimensions.
                unsafe {
                    let from = from.offset(start as isize * inner.from + i as isize * across.from);
                    let to = to.offset(start as isize * inner.to + i as isize * across.to);
                    line::<N>(from, to, inner, len);
                }
            }
        }
    }
}

/// Copies `len` elements along a dimension, to contiguous memory.
///
/// # Safety
///
/// The same as for [`copy`].
#[inline]
unsafe fn line<const N: usize>(from: *const u8, to: *mut u8, dim: Dim, len: usize) {
    let to = to.cast::<[u8; N]>();
    for i in 0..len {
        // SAFETY: guaranteed by the caller; arrays of bytes need no alignment.
        unsafe { to.add(i).write(from.offset(i as isize * dim.from).cast::<[u8; N]>().read()) };
    }
}
