//! Structs that begin with their own size, so that later versions can add fields.
//! Structs that begin with their own size, so that later versions can add fields.
//!
//! The caller's struct may be from an earlier version and shorter: its missing fields take their
//! defaults. Or it may be from a later version and longer: the fields unknown to this version must
//! be zero, which in every later field means the earlier behaviour.

use std::mem::MaybeUninit;

use super::check::{misaligned, reference};
use super::failure::Failure;

/// A C struct whose first field is its size, a `usize`.
///
/// # Safety
///
/// The type must be `repr(C)`, begin with a `usize`, and contain only numbers and pointers, so that
/// any bytes copied from C are a valid value.
pub(crate) unsafe trait Versioned: Copy {
    /// The size of the struct in the first released version: the [`end`] of its last field in that
    /// version. It never changes after the release, so that programs compiled for that version keep
    /// working.
    const FIRST: usize = Self::END;
    /// The offset at which the last field ends: the [`end`] of that field. It must equal the
    /// struct's size: a later field that fits into trailing padding would not change the size, so
    /// neither side would notice it. Reserved fields fill such padding.
    const END: usize;

    /// Returns a struct with all defaults, which are zeros unless this is overridden.
    fn defaults() -> Self {
        // SAFETY: any bytes make a valid struct.
        unsafe { std::mem::zeroed() }
    }

    /// Returns whether all reserved fields are zero.
    fn is_known(&self) -> bool {
        true
    }
}

/// Returns the offset at which a field of `Self` ends.
macro_rules! end {
    ($field:ident) => {
        std::mem::offset_of!(Self, $field) + $crate::abi::versioned::size_of_field(|this: &Self| &this.$field)
    };
}
pub(crate) use end;

pub(crate) const fn size_of_field<T, F>(_: fn(&T) -> &F) -> usize {
    size_of::<F>()
}

/// Copies a struct from C. `own` takes ownership of the struct's pointers, even if the struct is
/// then rejected because it sets fields that this version does not know.
///
/// # Safety
///
/// Unless it is null or misaligned, `pointer` must point to a size. If that size is at least
/// `FIRST` and fits in memory, `pointer` must be readable for that many bytes.
#[inline]
pub(crate) unsafe fn read<T: Versioned, O>(
    pointer: *const T,
    name: &str,
    own: impl FnOnce(&T) -> O,
) -> Result<(T, O), Failure> {
    const { assert!(T::END == size_of::<T>(), "the struct ends in padding") };
    // SAFETY: the caller guarantees that `pointer` is null, misaligned, or points to a size.
    let size = *unsafe { reference(pointer.cast::<usize>(), name)? };
    if !pointer.is_aligned() {
        return Err(misaligned(name, align_of::<T>()));
    }
    check(size, T::FIRST, name)?;
    let mut known = MaybeUninit::new(T::defaults());
    // SAFETY: the caller guarantees that `size` bytes are readable, and the copy stays within both structs. Any bytes make a
    // valid struct (`Versioned`).
    let known = unsafe {
        std::ptr::copy_nonoverlapping(pointer.cast::<u8>(), known.as_mut_ptr().cast(), size.min(size_of::<T>()));
        known.assume_init()
    };
    let owned = own(&known);
    if !known.is_known() {
        return Err(newer(name));
    }
    if let Some(more) = size.checked_sub(size_of::<T>()).filter(|&more| more > 0) {
        // SAFETY: the caller guarantees that `size` bytes are readable, and `check` has verified
        // that a slice may have that length.
        let rest = unsafe { std::slice::from_raw_parts(pointer.cast::<u8>().add(size_of::<T>()), more) };
        if rest.iter().any(|&byte| byte != 0) {
            return Err(newer(name));
        }
    }
    Ok((known, owned))
}

/// An element of a list with the result of `own`, or the reason why the element was rejected.
pub(crate) type Element<T, O> = Result<(T, O), Failure>;

/// Copies a list of structs from C, as `read` does. The `struct_size` of the first element is the stride of the list. Each
/// element can fail separately.
///
/// # Safety
///
/// The same as for `read`, for each of `len` structs.
pub(crate) unsafe fn list<T: Versioned, O>(
    pointer: *const T,
    len: usize,
    name: &str,
    own: impl Fn(&T) -> O,
) -> Result<Vec<Element<T, O>>, Failure> {
    if len == 0 {
        return Ok(Vec::new());
    }
    // SAFETY: the caller guarantees that `pointer` is null, misaligned, or points to a size.
    let size = *unsafe { reference(pointer.cast::<usize>(), name)? };
    check(size, T::FIRST, name)?;
    if !size.is_multiple_of(align_of::<T>()) || size.checked_mul(len).is_none_or(|bytes| bytes > isize::MAX as usize) {
        return Err(Failure::invalid(format!(
            "{name}: struct_size is {size}, which {len} structs cannot have; set it to sizeof"
        )));
    }
    let each = |i: usize| {
        // SAFETY: the caller upholds the contract of `read` for each of `len` structs.
        unsafe { read(nth(pointer, i, size, name)?, name, &own) }
    };
    Ok((0..len).map(each).collect())
}

/// Returns element `i` of a list with this stride, if the element has the same `struct_size`.
///
/// # Safety
///
/// The same as for `read`, for each of the first `i + 1` structs.
unsafe fn nth<T>(first: *const T, i: usize, size: usize, name: &str) -> Result<*const T, Failure> {
    // SAFETY: the caller guarantees that the list has an element `i`, and all elements have the same size.
    let element = unsafe { first.byte_add(i * size) };
    // SAFETY: the caller guarantees that the element begins with its size.
    let own = *unsafe { reference(element.cast::<usize>(), name)? };
    if own != size {
        return Err(Failure::invalid(format!(
            "struct_size is {own}, but the first element's is {size}; set both to sizeof"
        )));
    }
    Ok(element)
}

/// Returns the caller's struct for writing it as a whole, if it has exactly the size of this
/// version. For any other struct, the caller of this function uses [`fill`], which also reports
/// errors.
///
/// # Safety
///
/// The same as for `write`; nothing else may use the struct during `'a`.
#[inline]
pub(crate) unsafe fn whole<'a, T: Versioned>(to: *mut T) -> Option<&'a mut MaybeUninit<T>> {
    if to.is_null() || !to.is_aligned() {
        return None;
    }
    // SAFETY: the caller guarantees that `to` points to a size, and is writable for that many
    // bytes.
    unsafe { (*to.cast::<usize>() == size_of::<T>()).then(|| &mut *to.cast()) }
}

/// Sets the caller's struct to its defaults and calls `fill` with it. If the struct is shorter than
/// this version's, `fill` gets a temporary one, which is then copied.
///
/// # Safety
///
/// The same as for `write`.
#[inline]
pub(crate) unsafe fn fill<T: Versioned>(
    to: *mut T,
    name: &str,
    fill: impl FnOnce(&mut T) -> Result<(), Failure>,
) -> Result<(), Failure> {
    // SAFETY: the caller guarantees that `to` is null, misaligned, or points to a size.
    let size = *unsafe { reference(to.cast::<usize>(), name)? };
    // A struct of another size is filled in a temporary one; `write` reports an invalid size.
    if !(size_of::<T>()..=isize::MAX as usize).contains(&size) || !to.is_aligned() {
        let mut value = T::defaults();
        fill(&mut value)?;
        // SAFETY: the caller upholds the contract of `write`.
        return unsafe { write(to, &value, name) };
    }
    // SAFETY: the caller guarantees that `size` bytes are writable. The size that the caller set is kept.
    unsafe {
        to.write(T::defaults());
        let outcome = fill(&mut *to);
        to.cast::<usize>().write(size);
        to.cast::<u8>().add(size_of::<T>()).write_bytes(0, size - size_of::<T>());
        outcome
    }
}

/// Writes a struct to the caller's memory, truncated to the caller's size. Bytes beyond this
/// version's struct are set to zero.
///
/// # Safety
///
/// `to` must be writable for the number of bytes in its `struct_size`.
#[inline]
pub(crate) unsafe fn write<T: Versioned>(to: *mut T, value: &T, name: &str) -> Result<(), Failure> {
    const { assert!(T::END == size_of::<T>(), "the struct ends in padding") };
    // SAFETY: the caller guarantees that `to` is null, misaligned, or points to a size.
    let size = *unsafe { reference(to.cast::<usize>(), name)? };
    if !to.is_aligned() {
        return Err(misaligned(name, align_of::<T>()));
    }
    if size == size_of::<T>() {
        // SAFETY: the caller guarantees that `size` bytes are writable. The size that the caller set is kept.
        unsafe {
            to.write(*value);
            to.cast::<usize>().write(size);
        }
        return Ok(());
    }
    check(size, T::FIRST, name)?;
    // SAFETY: the caller guarantees that `size` bytes are writable, and the copy stays within both structs. The size that the
    // caller set is kept.
    unsafe {
        std::ptr::copy_nonoverlapping((&raw const *value).cast::<u8>(), to.cast(), size.min(size_of::<T>()));
        to.cast::<usize>().write(size);
        if let Some(more) = size.checked_sub(size_of::<T>()) {
            to.cast::<u8>().add(size_of::<T>()).write_bytes(0, more);
        }
    }
    Ok(())
}

/// Writes element `i` of a list, whose stride is the `struct_size` of its first element.
///
/// # Safety
///
/// The same as for `write`, for each of the first `i + 1` structs.
pub(crate) unsafe fn write_nth<T: Versioned>(to: *mut T, i: usize, value: &T, name: &str) -> Result<(), Failure> {
    // SAFETY: the caller upholds the contract of `write` for each of these structs.
    unsafe {
        let size = *reference(to.cast::<usize>(), name)?;
        check(size, T::FIRST, name)?;
        // `nth` checks the element's own size, so that the write does not go beyond the element.
        let element = nth(to, i, size, name).map_err(|failure| failure.within(name, i))?;
        write(element.cast_mut(), value, name)
    }
}

#[inline]
fn check(size: usize, first: usize, name: &str) -> Result<(), Failure> {
    if (first..=isize::MAX as usize).contains(&size) { Ok(()) } else { Err(wrong(size, first, name)) }
}

#[cold]
fn wrong(size: usize, first: usize, name: &str) -> Failure {
    if size >= first {
        return Failure::invalid(format!("{name}: struct_size is {size}, which does not fit in memory"));
    }
    Failure::invalid(format!(
        "{name}: struct_size is {size}, but the struct has at least {first} bytes; set it to sizeof"
    ))
}

#[cold]
fn newer(name: &str) -> Failure {
    Failure::invalid(format!(
        "{name} comes from a later version of slotline.h, and sets a field that this library does not know; \
         use the library that the header came with"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A struct to which a later version has added a field.
    #[repr(C)]
    #[derive(Clone, Copy, Debug)]
    struct Numbers {
        struct_size: usize,
        number: u32,
        reserved: u32,
        added: u64,
    }

    // SAFETY: it contains only numbers, and its first field is its size.
    unsafe impl Versioned for Numbers {
        const FIRST: usize = end!(reserved);
        const END: usize = end!(added);

        fn defaults() -> Self {
            Self { struct_size: size_of::<Self>(), number: 7, reserved: 0, added: 9 }
        }

        fn is_known(&self) -> bool {
            self.reserved == 0
        }
    }

    fn outcome(numbers: Numbers) -> Result<(u32, u64), String> {
        let outside = (numbers, [0_u64; 2]);
        // SAFETY: a size is either rejected, or equals the size of the memory.
        let read = unsafe { read(&raw const outside.0, "numbers", |_| ()) };
        read.map(|(numbers, ())| (numbers.number, numbers.added)).map_err(|failure| failure.message)
    }

    #[test]
    fn fields_that_the_first_version_does_not_have_take_their_defaults() {
        for (struct_size, added) in [(16, 9), (24, 5)] {
            assert_eq!(outcome(Numbers { struct_size, number: 3, reserved: 0, added: 5 }), Ok((3, added)));
        }
    }

    #[test]
    fn impossible_sizes_and_unknown_fields_are_refused() {
        assert_eq!(outcome(Numbers::defaults()), Ok((7, 9)));
        for size in [usize::MAX, isize::MAX as usize + 1] {
            let mut outside = Numbers { struct_size: size, ..Numbers::defaults() };
            // SAFETY: the size is rejected before anything is written.
            let filled = unsafe { fill(&raw mut outside, "numbers", |_| Ok(())) };
            assert!(filled.unwrap_err().message.contains("does not fit in memory"));
            let message = outcome(outside).unwrap_err();
            assert_eq!(message, format!("numbers: struct_size is {size}, which does not fit in memory"));
        }
        assert!(outcome(Numbers { struct_size: 8, ..Numbers::defaults() }).unwrap_err().contains("at least"));
        assert!(outcome(Numbers { struct_size: 15, ..Numbers::defaults() }).unwrap_err().contains("at least 16"));
        assert!(outcome(Numbers { reserved: 1, ..Numbers::defaults() }).unwrap_err().contains("later version"));
    }
}
