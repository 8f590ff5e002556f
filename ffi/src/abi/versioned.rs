//! Structs that begin with their own size, so that later versions can add fields.
//!
//! The caller's struct may come from an earlier version and be shorter: the missing fields take their defaults. Or it may come
//! from a later version and be longer: the fields that this version does not know must be zero, which means "as before" in
//! every later field.

use std::mem::MaybeUninit;

use super::check::{misaligned, reference};
use super::failure::Failure;

/// A struct whose first field is its size, a `usize`.
///
/// # Safety
///
/// It must be `repr(C)` and begin with a `usize`, and any bytes copied from C must be a valid value: it contains only numbers
/// and pointers.
pub(crate) unsafe trait Versioned: Copy {
    /// The size of the struct in the first version that was released: [`end`] of the field that was the last one then. It never
    /// changes after that, so that programs compiled for that version keep working.
    const FIRST: usize = Self::END;
    /// The offset at which its last field ends: [`end`] of that field. This must also be the end of the struct. A later field
    /// that fits into trailing padding would not change the size, so neither side would notice it; reserved fields fill such
    /// padding.
    const END: usize;

    /// Returns a struct with all defaults: zeros, unless it says otherwise.
    fn defaults() -> Self {
        // SAFETY: any bytes make a valid struct.
        unsafe { std::mem::zeroed() }
    }

    /// Whether all reserved fields are zero.
    fn is_known(&self) -> bool {
        true
    }
}

/// The offset at which a field of `Self` ends.
macro_rules! end {
    ($field:ident) => {
        std::mem::offset_of!(Self, $field) + $crate::abi::versioned::size_of_field(|this: &Self| &this.$field)
    };
}
pub(crate) use end;

pub(crate) const fn size_of_field<T, F>(_: fn(&T) -> &F) -> usize {
    size_of::<F>()
}

/// Copies a struct from C. `own` takes ownership of the struct's pointers, even if the struct is then refused because it sets
/// fields that this version does not know.
///
/// # Safety
///
/// Unless it is null or not aligned, `pointer` must point to a size. If that size is at least `FIRST` and fits in memory,
/// `pointer` must be readable for as many bytes.
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
        // SAFETY: the caller guarantees that `size` bytes are readable, and `check` has checked that a slice can have that
        // many.
        let rest = unsafe { std::slice::from_raw_parts(pointer.cast::<u8>().add(size_of::<T>()), more) };
        if rest.iter().any(|&byte| byte != 0) {
            return Err(newer(name));
        }
    }
    Ok((known, owned))
}

/// A struct of a list with what `own` took from it, or the reason why it was refused.
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

/// Returns the caller's struct, to be written as a whole, if it has exactly the fields of this version. Otherwise, [`fill`] says
/// what is wrong with it.
///
/// # Safety
///
/// The same as for `write`; nothing else may use the struct meanwhile.
#[inline]
pub(crate) unsafe fn whole<'a, T: Versioned>(to: *mut T) -> Option<&'a mut MaybeUninit<T>> {
    if to.is_null() || !to.is_aligned() {
        return None;
    }
    // SAFETY: the caller guarantees that `to` points to a size, and to as many bytes.
    unsafe { (*to.cast::<usize>() == size_of::<T>()).then(|| &mut *to.cast()) }
}

/// Sets a struct of the caller to its defaults and has `fill` fill it in, in place if the caller's struct has room for all
/// fields.
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
    // Otherwise `write` reports what is wrong with the struct.
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

/// Writes a struct to the caller's memory, as far as there is room for it. Bytes that this version does not know become zero.
///
/// # Safety
///
/// `to` must be writable for as many bytes as its `struct_size` says.
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

    /// A struct to which a later version may add fields.
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
        // SAFETY: a size is either refused, or equal to that of the memory.
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
            // SAFETY: it is refused before anything is written.
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
