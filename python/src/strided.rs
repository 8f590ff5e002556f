//! Copies of tensors whose elements do not lie one after another.
//!
//! The dimensions are merged where they can be, and then copied by the innermost one if its elements lie one after another
//! (a crop). Otherwise the elements that are next to each other in memory lie along another dimension (pictures whose
//! channels come last): the two dimensions are copied tile by tile, so that a cache line is read once.

/// A dimension: its length, and the distance from one element to the next in the source and in the copy, in bytes.
#[derive(Clone, Copy, Debug)]
struct Dim {
    len: usize,
    from: isize,
    to: isize,
}

/// Elements of a tile along the innermost dimension, and at most along the other one.
const TILE: usize = 256;
const NARROW: usize = 16;

/// Copies elements of `size` bytes to `to`, one after another.
///
/// # Safety
///
/// The strides, in elements, must lead to elements of the source, and `to` must have room for all of them.
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
    // Innermost first, as the elements of the copy lie.
    // SAFETY: the caller's guarantee, for the same elements in other dimensions.
    unsafe {
        match size {
            1 => walk::<1>(from, to, &dims),
            2 => walk::<2>(from, to, &dims),
            4 => walk::<4>(from, to, &dims),
            8 => walk::<8>(from, to, &dims),
            16 => walk::<16>(from, to, &dims),
            _ => {
                // Elements of other sizes are runs of bytes.
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
/// As for [`copy`].
unsafe fn walk<const N: usize>(from: *const u8, to: *mut u8, dims: &[Dim]) {
    let Some((&inner, outer)) = dims.split_first() else {
        // SAFETY: there is one element.
        unsafe { std::ptr::copy_nonoverlapping(from, to, N) };
        return;
    };
    // The dimension whose elements are closest to each other in the source.
    let closest = outer.iter().enumerate().min_by_key(|(_, dim)| dim.from.unsigned_abs());
    match closest.filter(|(_, dim)| dim.from.unsigned_abs() < inner.from.unsigned_abs()) {
        Some((place, &across)) => {
            let rest: Vec<Dim> = outer.iter().enumerate().filter(|&(i, _)| i != place).map(|(_, dim)| *dim).collect();
            // SAFETY: the tiles cover the two dimensions.
            unsafe { each(from, to, &rest, &mut |from, to| tiles::<N>(from, to, inner, across)) };
        }
        None if inner.from == N as isize => {
            // SAFETY: `inner.len` elements of `N` bytes lie one after another in both.
            unsafe { each(from, to, outer, &mut |from, to| std::ptr::copy_nonoverlapping(from, to, inner.len * N)) };
        }
        // SAFETY: the caller's guarantee.
        None => unsafe { each(from, to, outer, &mut |from, to| line::<N>(from, to, inner, inner.len)) },
    }
}

/// Calls `with` for each place along these dimensions.
///
/// # Safety
///
/// The dimensions must lead to elements of the source and of the copy.
unsafe fn each(from: *const u8, to: *mut u8, dims: &[Dim], with: &mut dyn FnMut(*const u8, *mut u8)) {
    let Some((dim, inner)) = dims.split_last() else { return with(from, to) };
    for i in 0..dim.len as isize {
        // SAFETY: the caller's guarantee.
        unsafe { each(from.offset(i * dim.from), to.offset(i * dim.to), inner, with) };
    }
}

/// Copies two dimensions in tiles.
///
/// # Safety
///
/// As for [`copy`].
unsafe fn tiles<const N: usize>(from: *const u8, to: *mut u8, inner: Dim, across: Dim) {
    for first in (0..across.len).step_by(NARROW) {
        for start in (0..inner.len).step_by(TILE) {
            let len = TILE.min(inner.len - start);
            for i in first..across.len.min(first + NARROW) {
                // SAFETY: both are within their dimensions.
                unsafe {
                    let from = from.offset(start as isize * inner.from + i as isize * across.from);
                    let to = to.offset(start as isize * inner.to + i as isize * across.to);
                    line::<N>(from, to, inner, len);
                }
            }
        }
    }
}

/// Copies `len` elements along a dimension, which lie one after another in the copy.
///
/// # Safety
///
/// As for [`copy`].
#[inline]
unsafe fn line<const N: usize>(from: *const u8, to: *mut u8, dim: Dim, len: usize) {
    let to = to.cast::<[u8; N]>();
    for i in 0..len {
        // SAFETY: the caller's guarantee; arrays of bytes need no alignment.
        unsafe { to.add(i).write(from.offset(i as isize * dim.from).cast::<[u8; N]>().read()) };
    }
}
