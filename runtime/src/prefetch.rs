//! Asking the CPU to bring memory into its caches before it is read.

use crate::dtype::{Element, bytes_of};

/// Bytes in a cache line on the CPUs that this module has instructions for.
const LINE: usize = 64;

/// Of a longer run, this many lines: the CPU's own prefetcher sees the run from there and goes on. (For a row of 13 lines
/// that is too late: asking for the first four of them gained a tenth, asking for all of them a half.)
const HEAD_LINES: usize = 32;

/// Hints to the CPU that these elements will be read soon: the first 32 cache lines of them. For a
/// [`Dataset::prefetch`](crate::Dataset::prefetch) of one's own.
///
/// ```
/// use slotline::BoxError;
/// use slotline::dataset::{Context, Dataset, prefetch};
///
/// /// Crops of a long text.
/// struct Crops(Vec<u16>);
///
/// impl Dataset for Crops {
///     type Sample<'a> = &'a [u16];
///
///     fn len(&self) -> usize {
///         self.0.len() / 1024
///     }
///
///     fn get<'a>(&'a self, index: usize, _: &'a mut Context) -> Result<&'a [u16], BoxError> {
///         Ok(&self.0[index * 1024..][..1024])
///     }
///
///     fn prefetch(&self, index: usize) {
///         prefetch(&self.0[index * 1024..][..1024]);
///     }
/// }
/// ```
///
/// Never faults, and reads nothing from disk for memory that is mapped but not loaded. Does nothing on machines
/// other than x86-64.
#[inline]
pub fn prefetch<T: Element>(elements: &[T]) {
    let bytes = bytes_of(elements);
    let hinted = &bytes[..bytes.len().min(HEAD_LINES * LINE)];
    // By twos and counted by hand: iterators over lines cost more instructions than the hints.
    let mut offset = 0;
    while offset < hinted.len() {
        hint(hinted.as_ptr().wrapping_add(offset));
        hint(hinted.as_ptr().wrapping_add(offset + LINE));
        offset += 2 * LINE;
    }
    // A run that doesn't start on a line's first byte ends one line further than the steps above reach.
    if let Some(last) = hinted.last() {
        hint(last);
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
fn hint(address: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a prefetch accesses nothing as far as the program can see and can't fault, whatever the address; its
    // instruction is part of SSE, which every x86-64 CPU has.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[inline]
fn hint(_address: *const u8) {}
