//! Copying rows of tensors and arrays to contiguous memory.

use crate::dlpack::View;

/// The number of rows between the prefetch and the copy, since rows of a shuffled dataset are
/// scattered.
const AHEAD: usize = 8;
/// The most bytes of a row to prefetch. After that, the processor's own prefetcher continues.
const MAX_AHEAD: usize = 1024;

/// Several rows of one tensor or array.
#[derive(Debug)]
pub(crate) struct RowView {
    /// A view of the first row.
    first: View<'static>,
    /// The offset of each row from the first, in bytes.
    offsets: Vec<isize>,
}

impl RowView {
    /// Selects the rows at these indices; negative ones count from the end. Returns `None` if a row
    /// does not exist.
    pub(crate) fn new(view: &View<'static>, index: &[i64]) -> Option<Self> {
        let (&len, shape) = view.shape.split_first()?;
        let (stride, strides) = match view.strides {
            Some(strides) => {
                let (&first, rest) = strides.split_first()?;
                (first, Some(rest))
            }
            None => (shape.iter().product(), None),
        };
        let step = stride * i64::try_from(view.dtype.bytes()?).ok()?;
        let mut offsets = Vec::with_capacity(index.len());
        for &k in index {
            let k = if k < 0 { k + len } else { k };
            if !(0..len).contains(&k) {
                return None;
            }
            offsets.push((k * step) as isize);
        }
        Some(Self { first: View { data: view.data, dtype: view.dtype, shape, strides }, offsets })
    }

    /// Returns a view of one row, which has the type and shape of all rows.
    pub(crate) fn first(&self) -> &View<'static> {
        &self.first
    }

    pub(crate) fn len(&self) -> usize {
        self.offsets.len()
    }

    pub(crate) fn views(&self) -> impl Iterator<Item = View<'static>> {
        self.offsets.iter().map(|&offset| View { data: self.first.data.wrapping_offset(offset), ..self.first })
    }

    /// Copies the rows to `to`.
    ///
    /// # Safety
    ///
    /// `to` must have room for all rows, and the viewed memory must exist.
    pub(crate) unsafe fn copy(&self, to: *mut u8) {
        let row = self.first.bytes().unwrap_or(0);
        // SAFETY: guaranteed by the caller for each of these.
        unsafe {
            match row {
                0 => {}
                _ if !self.first.is_dense() => {
                    self.views().enumerate().for_each(|(k, view)| view.copy(to.add(k * row)));
                }
                1 => self.copy_small::<1>(to),
                2 => self.copy_small::<2>(to),
                4 => self.copy_small::<4>(to),
                8 => self.copy_small::<8>(to),
                _ => {
                    for (k, &offset) in self.offsets.iter().enumerate() {
                        if let Some(&later) = self.offsets.get(k + AHEAD) {
                            prefetch(self.first.data.wrapping_offset(later), row);
                        }
                        to.add(k * row).copy_from_nonoverlapping(self.first.data.offset(offset), row);
                    }
                }
            }
        }
    }

    /// Copies rows of a constant size, which takes less time than calling `memcpy` for each.
    ///
    /// # Safety
    ///
    /// The same as for [`copy`](Self::copy), and a row must have `N` contiguous bytes.
    unsafe fn copy_small<const N: usize>(&self, to: *mut u8) {
        let to = to.cast::<[u8; N]>();
        for (k, &offset) in self.offsets.iter().enumerate() {
            // SAFETY: the caller guarantees that both are valid. Arrays of bytes need no alignment.
            unsafe { *to.add(k) = *self.first.data.offset(offset).cast::<[u8; N]>() };
        }
    }
}

/// Copies rows of separate tensors and arrays, all of which have `row` bytes.
///
/// # Safety
///
/// `to` must have room for all rows, and the viewed memory must exist.
pub(crate) unsafe fn copy(views: &[View<'_>], row: usize, to: *mut u8) {
    for (k, view) in views.iter().enumerate() {
        if let Some(later) = views.get(k + AHEAD) {
            prefetch(later.data, row);
        }
        // SAFETY: guaranteed by the caller.
        unsafe { view.copy(to.add(k * row)) };
    }
}

/// Tells the processor to prefetch memory.
fn prefetch(start: *const u8, len: usize) {
    for offset in (0..len.min(MAX_AHEAD)).step_by(64) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a hint, which may name any address.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(offset).cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (start, offset);
    }
}
