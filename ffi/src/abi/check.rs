//! Checks of pointers from C before they are used.

use std::ffi::{CStr, c_char};

use slotline::shape::MAX_DIMS;

use super::failure::Failure;

/// Converts a pointer to a reference.
///
/// # Safety
///
/// Unless it is null or not aligned, `pointer` must point to a valid `T` that is not written during `'a`.
#[inline]
pub(crate) unsafe fn reference<'a, T>(pointer: *const T, name: &str) -> Result<&'a T, Failure> {
    self::pointer(pointer, name)?;
    // SAFETY: `pointer` is neither null nor misaligned; the caller upholds the rest.
    Ok(unsafe { &*pointer })
}

/// Writes `empty` to the place for a result, and returns the same pointer. It does not return a
/// reference, since callbacks that run before the result is written may read the place too.
///
/// # Safety
///
/// Unless it is null or not aligned, `pointer` must be writable.
#[inline]
pub(crate) unsafe fn place<T: Copy>(pointer: *mut T, empty: T, name: &str) -> Result<*mut T, Failure> {
    self::pointer(pointer, name)?;
    // SAFETY: `pointer` is neither null nor misaligned, so the caller guarantees that it is writable.
    unsafe { pointer.write(empty) };
    Ok(pointer)
}

/// Checks that a pointer is neither null nor misaligned.
#[inline]
pub(crate) fn pointer<T>(pointer: *const T, name: &str) -> Result<(), Failure> {
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

/// Returns `len` elements that start at a pointer. If `len` is 0, the pointer may be NULL.
///
/// # Safety
///
/// The same as for `reference`, for `len` elements.
pub(crate) unsafe fn slice<'a, T>(pointer: *const T, len: usize, name: &str) -> Result<&'a [T], Failure> {
    if len == 0 {
        return Ok(&[]);
    }
    self::pointer(pointer, name)?;
    if len.checked_mul(size_of::<T>()).is_none_or(|bytes| bytes > isize::MAX as usize) {
        return Err(Failure::invalid(format!("{name}: {len} elements do not fit in memory")));
    }
    // SAFETY: `pointer` is neither null nor misaligned, and `len` is not too large; the caller upholds the rest.
    Ok(unsafe { std::slice::from_raw_parts(pointer, len) })
}

/// Returns a string that ends with a NUL.
///
/// # Safety
///
/// Unless it is null, `pointer` must point to a string that ends with a NUL and is not written during `'a`.
pub(crate) unsafe fn text<'a>(pointer: *const c_char, name: &str) -> Result<&'a str, Failure> {
    if pointer.is_null() {
        return Err(null(name));
    }
    // SAFETY: `pointer` is not null, so the caller guarantees that it points to a string that ends with a NUL.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|error| Failure::invalid(format!("{name} is not UTF-8: {error}")))
}

/// Returns a flag as a `bool`. Only 0 and 1 are valid; any other number was probably meant for
/// another parameter.
pub(crate) fn flag(value: u8, name: &str) -> Result<bool, Failure> {
    if value > 1 {
        return Err(Failure::invalid(format!("{name} is {value}, but is a flag; set it to 0 or 1")));
    }
    Ok(value == 1)
}

/// Converts a shape from C.
///
/// # Safety
///
/// The same as for `slice`.
pub(crate) unsafe fn shape(pointer: *const i64, ndim: u32, name: &str) -> Result<Vec<usize>, Failure> {
    // This check comes first, so that an uninitialised `ndim` does not lead to a read out of bounds.
    if ndim as usize > MAX_DIMS {
        return Err(Failure::invalid(format!("{name}: expected at most {MAX_DIMS} dimensions, found {ndim}")));
    }
    // SAFETY: the caller upholds the contract of `slice`, which is the same.
    let dims = unsafe { slice(pointer, ndim as usize, name)? };
    let dim =
        |&dim: &i64| usize::try_from(dim).map_err(|_| Failure::invalid(format!("{name}: {dim} is not a valid length")));
    dims.iter().map(dim).collect()
}
