//! Structs that begin with their own size, so that they can grow.
//!
//! The caller's struct may be of an earlier version, and shorter: what it lacks takes its default. Or of a later one, and
//! longer: what we do not know must be zero, which is every later field's "as before".

use std::mem::MaybeUninit;

use crate::check::{misaligned, reference};
use crate::failure::Failure;

/// A struct whose first field is its size, a `usize`.
///
/// # Safety
///
/// It must be `repr(C)` and begin with a `usize`; copying its bytes from C must give a valid one: numbers and pointers only.
pub(crate) unsafe trait Versioned: Copy {
    /// Its size in the first version that had it.
    const FIRST: usize = size_of::<Self>();
    /// Where its last field ends: [`end`] of that field. It must be the struct's end, too. A field that a later version puts
    /// into padding would not change the size, and so not be noticed by either side; reserved fields fill padding up.
    const END: usize;

    /// One with all defaults.
    fn defaults() -> Self;

    /// Whether what is reserved in it is zero.
    fn is_known(&self) -> bool {
        true
    }
}

/// Where a field of `Self` ends.
macro_rules! end {
    ($field:ident) => {
        std::mem::offset_of!(Self, $field) + $crate::versioned::size_of_field(|this: &Self| &this.$field)
    };
}
pub(crate) use end;

pub(crate) const fn size_of_field<T, F>(_: fn(&T) -> &F) -> usize {
    size_of::<F>()
}

/// Copies a struct from outside. `own` takes over what it brings, also if it is then refused since it says what we do not know.
///
/// # Safety
///
/// Unless it is null or not aligned, `pointer` must point to a size, and as many bytes as it says, if that is at least
/// `FIRST` and no more than memory can have.
#[inline]
pub(crate) unsafe fn read<T: Versioned, O>(
    pointer: *const T,
    name: &str,
    own: impl FnOnce(&T) -> O,
) -> Result<(T, O), Failure> {
    const { assert!(T::END == size_of::<T>(), "the struct ends in padding") };
    // SAFETY: the caller's word.
    let size = *unsafe { reference(pointer.cast::<usize>(), name)? };
    if !pointer.is_aligned() {
        return Err(misaligned(name, align_of::<T>()));
    }
    check(size, T::FIRST, name)?;
    let mut known = MaybeUninit::new(T::defaults());
    // SAFETY: the caller's word; the copy is within both. Whatever of it is copied, it stays valid (`Versioned`).
    let known = unsafe {
        std::ptr::copy_nonoverlapping(pointer.cast::<u8>(), known.as_mut_ptr().cast(), size.min(size_of::<T>()));
        known.assume_init()
    };
    let owned = own(&known);
    if !known.is_known() {
        return Err(newer(name));
    }
    if let Some(more) = size.checked_sub(size_of::<T>()).filter(|&more| more > 0) {
        // SAFETY: the caller's word; `check` has seen that there are no more bytes than a slice can have.
        let rest = unsafe { std::slice::from_raw_parts(pointer.cast::<u8>().add(size_of::<T>()), more) };
        if rest.iter().any(|&byte| byte != 0) {
            return Err(newer(name));
        }
    }
    Ok((known, owned))
}

/// A struct of a list, with what it brought, or why it was refused.
pub(crate) type Element<T, O> = Result<(T, O), Failure>;

/// Copies a list of structs from outside, as `read` does. They lie as far from each other as the first one says that it
/// is long; each can fail by itself.
///
/// # Safety
///
/// As of `read`, for each of `len` structs.
pub(crate) unsafe fn list<T: Versioned, O>(
    pointer: *const T,
    len: usize,
    name: &str,
    own: impl Fn(&T) -> O,
) -> Result<Vec<Element<T, O>>, Failure> {
    if len == 0 {
        return Ok(Vec::new());
    }
    // SAFETY: the caller's word.
    let size = *unsafe { reference(pointer.cast::<usize>(), name)? };
    check(size, T::FIRST, name)?;
    if !size.is_multiple_of(align_of::<T>()) || size.checked_mul(len).is_none_or(|bytes| bytes > isize::MAX as usize) {
        return Err(Failure::invalid(format!("{name}: struct_size is {size}, which {len} structs cannot have")));
    }
    let each = |i: usize| {
        // SAFETY: the caller's word.
        unsafe { read(nth(pointer, i, size, name)?, name, &own) }
    };
    Ok((0..len).map(each).collect())
}

/// Element `i` of a list whose first one is of this size, if it says that it is of the same.
///
/// # Safety
///
/// As of `read`, for each of so many structs.
unsafe fn nth<T>(first: *const T, i: usize, size: usize, name: &str) -> Result<*const T, Failure> {
    // SAFETY: the caller's word: all of them are of one size.
    let element = unsafe { first.byte_add(i * size) };
    // SAFETY: the caller's word.
    let own = *unsafe { reference(element.cast::<usize>(), name)? };
    if own != size {
        return Err(Failure::invalid(format!("struct_size is {own}, and that of the first one {size}")));
    }
    Ok(element)
}

/// Has `fill` write a struct outside, from its defaults on, where it is if it has room there for all that we know.
///
/// # Safety
///
/// As of `write`.
#[inline]
pub(crate) unsafe fn fill<T: Versioned>(
    to: *mut T,
    name: &str,
    fill: impl FnOnce(&mut T) -> Result<(), Failure>,
) -> Result<(), Failure> {
    // SAFETY: the caller's word.
    let size = *unsafe { reference(to.cast::<usize>(), name)? };
    // Or else `write` says what is wrong with it.
    if !(size_of::<T>()..=isize::MAX as usize).contains(&size) || !to.is_aligned() {
        let mut value = T::defaults();
        fill(&mut value)?;
        // SAFETY: the caller's word.
        return unsafe { write(to, &value, name) };
    }
    // SAFETY: the caller's word. The size stays the caller's.
    unsafe {
        to.write(T::defaults());
        let outcome = fill(&mut *to);
        to.cast::<usize>().write(size);
        to.cast::<u8>().add(size_of::<T>()).write_bytes(0, size - size_of::<T>());
        outcome
    }
}

/// Writes a struct to outside, as far as it has room there; what we do not know becomes zero.
///
/// # Safety
///
/// `to` must be writable for as many bytes as the size there says.
#[inline]
pub(crate) unsafe fn write<T: Versioned>(to: *mut T, value: &T, name: &str) -> Result<(), Failure> {
    const { assert!(T::END == size_of::<T>(), "the struct ends in padding") };
    // SAFETY: the caller's word.
    let size = *unsafe { reference(to.cast::<usize>(), name)? };
    if !to.is_aligned() {
        return Err(misaligned(name, align_of::<T>()));
    }
    check(size, T::FIRST, name)?;
    // SAFETY: the caller's word; the copy is within both. The size stays the caller's.
    unsafe {
        std::ptr::copy_nonoverlapping((&raw const *value).cast::<u8>(), to.cast(), size.min(size_of::<T>()));
        to.cast::<usize>().write(size);
        if let Some(more) = size.checked_sub(size_of::<T>()) {
            to.cast::<u8>().add(size_of::<T>()).write_bytes(0, more);
        }
    }
    Ok(())
}

/// The same for element `i` of a list, whose elements lie as far from each other as the first one says that it is long.
///
/// # Safety
///
/// As of `write`, for each of so many structs.
pub(crate) unsafe fn write_nth<T: Versioned>(to: *mut T, i: usize, value: &T, name: &str) -> Result<(), Failure> {
    // SAFETY: the caller's word.
    unsafe {
        let size = *reference(to.cast::<usize>(), name)?;
        check(size, T::FIRST, name)?;
        // What it says of itself must not lead beyond it.
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
        return Failure::invalid(format!("{name}: struct_size is {size}, which is more than memory can have"));
    }
    Failure::invalid(format!(
        "{name}: struct_size is {size}, and the struct has {first} bytes at least; set it to sizeof"
    ))
}

#[cold]
fn newer(name: &str) -> Failure {
    Failure::invalid(format!(
        "{name} is of a later version of slotline.h than this library, and sets a field that the library does not know; \
         use the library that the header came with"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of which a later version may have more.
    #[repr(C)]
    #[derive(Clone, Copy, Debug)]
    struct Numbers {
        struct_size: usize,
        number: u32,
        reserved: u32,
    }

    // SAFETY: numbers, the first one the size.
    unsafe impl Versioned for Numbers {
        const END: usize = end!(reserved);

        fn defaults() -> Self {
            Self { struct_size: size_of::<Self>(), number: 7, reserved: 0 }
        }

        fn is_known(&self) -> bool {
            self.reserved == 0
        }
    }

    fn outcome(numbers: Numbers) -> Result<u32, String> {
        let outside = (numbers, [0_u64; 2]);
        // SAFETY: sizes that are neither too short nor too long are those of what is there.
        let read = unsafe { read(&raw const outside.0, "numbers", |_| ()) };
        read.map(|(numbers, ())| numbers.number).map_err(|failure| failure.message)
    }

    #[test]
    fn a_size_that_no_struct_can_have_and_what_is_reserved_are_refused() {
        assert_eq!(outcome(Numbers::defaults()), Ok(7));
        for size in [usize::MAX, isize::MAX as usize + 1] {
            let mut outside = Numbers { struct_size: size, ..Numbers::defaults() };
            // SAFETY: it is refused before it is written.
            let filled = unsafe { fill(&raw mut outside, "numbers", |_| Ok(())) };
            assert!(filled.unwrap_err().message.contains("more than memory can have"));
            let message = outcome(outside).unwrap_err();
            assert_eq!(message, format!("numbers: struct_size is {size}, which is more than memory can have"));
        }
        assert!(outcome(Numbers { struct_size: 8, ..Numbers::defaults() }).unwrap_err().contains("at least"));
        assert!(outcome(Numbers { reserved: 1, ..Numbers::defaults() }).unwrap_err().contains("later version"));
    }
}
