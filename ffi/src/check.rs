//! Pointers from outside, looked at before they are used.

use std::ffi::{CStr, c_char};

use slotline::shape::MAX_DIMS;

use crate::failure::Failure;

/// What a pointer points to.
///
/// # Safety
///
/// Unless it is null or not aligned, `pointer` must point to a `T` that is there, and not written, for `'a`.
#[inline]
pub(crate) unsafe fn reference<'a, T>(pointer: *const T, name: &str) -> Result<&'a T, Failure> {
    check(pointer, name)?;
    // SAFETY: the caller's word, and it is neither null nor misaligned.
    Ok(unsafe { &*pointer })
}

/// The same pointer, to a place for a result, which becomes `empty` first of all. No reference: until the result is written, the
/// callbacks that make it may look at the place, too.
///
/// # Safety
///
/// Unless it is null or not aligned, `pointer` must be writable.
#[inline]
pub(crate) unsafe fn place<T: Copy>(pointer: *mut T, empty: T, name: &str) -> Result<*mut T, Failure> {
    check(pointer, name)?;
    // SAFETY: the caller's word.
    unsafe { pointer.write(empty) };
    Ok(pointer)
}

/// Whether a pointer may be one to a `T`.
#[inline]
fn check<T>(pointer: *const T, name: &str) -> Result<(), Failure> {
    if pointer.is_null() {
        return Err(null(name));
    }
    if !pointer.is_aligned() {
        return Err(misaligned(name, align_of::<T>()));
    }
    Ok(())
}

#[cold]
fn null(name: &str) -> Failure {
    Failure::invalid(format!("{name} is NULL"))
}

#[cold]
pub(crate) fn misaligned(name: &str, align: usize) -> Failure {
    Failure::invalid(format!("{name} is not aligned: its address must be a multiple of {align}"))
}

/// The elements from a pointer on. If there are none, it may be NULL.
///
/// # Safety
///
/// As of `reference`, for `len` elements.
pub(crate) unsafe fn slice<'a, T>(pointer: *const T, len: usize, name: &str) -> Result<&'a [T], Failure> {
    if len == 0 {
        return Ok(&[]);
    }
    check(pointer, name)?;
    if len.checked_mul(size_of::<T>()).is_none_or(|bytes| bytes > isize::MAX as usize) {
        return Err(Failure::invalid(format!("{name}: {len} elements are more than memory can have")));
    }
    // SAFETY: the caller's word, and it is neither null nor misaligned nor too long.
    Ok(unsafe { std::slice::from_raw_parts(pointer, len) })
}

/// A text that ends with a NUL.
///
/// # Safety
///
/// Unless it is null, there must be a NUL, and nothing up to it may be written for `'a`.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, name: &str) -> Result<&'a str, Failure> {
    if pointer.is_null() {
        return Err(null(name));
    }
    // SAFETY: the caller's word.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|error| Failure::invalid(format!("{name} is not UTF-8: {error}")))
}

/// A text that ends with a NUL, as well as it can be read; `None` for NULL.
///
/// # Safety
///
/// As of `text`.
pub(crate) unsafe fn lossy(pointer: *const c_char) -> Option<String> {
    // SAFETY: the caller's word.
    (!pointer.is_null()).then(|| unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned())
}

/// A shape.
///
/// # Safety
///
/// As of `slice`.
pub(crate) unsafe fn shape(pointer: *const i64, ndim: u32, name: &str) -> Result<Vec<usize>, Failure> {
    // A number that was never set is not read after.
    if ndim as usize > MAX_DIMS {
        return Err(Failure::invalid(format!("{name}: expected at most {MAX_DIMS} dimensions, found {ndim}")));
    }
    // SAFETY: the caller's word.
    let dims = unsafe { slice(pointer, ndim as usize, name)? };
    let dim = |&dim: &i64| usize::try_from(dim).map_err(|_| Failure::invalid(format!("{name}: {dim} is no length")));
    dims.iter().map(dim).collect()
}
