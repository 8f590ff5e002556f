//! Rows that are padded to the longest one of their batch.
//!
//! The rows of such a column are written in sequence, by one thread. The rows written so far are
//! always contiguous, and each is as wide as the longest of them. When a longer row is written, the
//! rows before it are moved apart and padded again. If lengths are in random order, the i-th row is
//! the longest so far with a probability of 1/i, so that moving costs about as much as writing. If
//! the longest row comes first, nothing is moved.
//!
//! A [`RowWidth`], stored after the lengths of the rows, records the current width.

use super::layout::{Column, Kind};
use super::mismatch::{Mismatch, Problem};
use super::row::Row;
use super::spill::Spill;
use super::width::RowWidth;
use crate::dtype::{Element, for_dtype};
use crate::tensor::AnyTensorView;

/// Returns a pointer to a column's rows, in its cell or on the heap; the size of that memory in
/// bytes; and the distance in bytes from one row to the next. The distance is 0 if `rows` rows
/// would not fit, which happens only if another process has overwritten the column's [`RowWidth`].
///
/// # Safety
///
/// Those of [`RowWidth::of`], with a cell of `all` rows, which no other thread may write during the
/// call.
pub(super) unsafe fn rows(column: &Column, cell: *mut u8, all: usize, rows: usize) -> (*mut u8, usize, usize) {
    // SAFETY: the caller guarantees that the column has a `RowWidth`, and `Layout::spilling` put a spill
    // at this offset.
    let (width, start, bytes) = unsafe {
        let spilled = column.spill.and_then(|at| (*cell.add(at).cast::<Spill>()).memory());
        let (start, bytes) = spilled.unwrap_or_else(|| (cell.add(column.offset), column.stride * all));
        ((*RowWidth::of(column, cell, all)).width, start, bytes)
    };
    let width = usize::try_from(width).ok().and_then(|width| width.checked_mul(column.field.dtype.size()));
    let fits = |width: &usize| width.checked_mul(rows).is_some_and(|needed| needed <= bytes);
    (start, bytes, width.filter(fits).unwrap_or(0))
}

/// Changes the width of the first `rows` rows from `from` to `to`: moves them, and adds padding if
/// they become wider.
#[inline]
pub(super) fn change_width<T: Copy>(items: &mut [T], rows: usize, from: usize, to: usize, padding: T) {
    if from < to {
        for row in (0..rows).rev() {
            items.copy_within(row * from..(row + 1) * from, row * to);
            items[row * to + from..(row + 1) * to].fill(padding);
        }
    } else if to < from {
        for row in 0..rows {
            items.copy_within(row * from..row * from + to, row * to);
        }
    }
}

impl Row<'_> {
    /// Returns memory for `len` elements of the next field, which must be
    /// [padded](super::Fields::padded_to_longest) to the longest sample of the batch. The caller
    /// must write all `len` elements. Each row of the batch becomes as long as the longest sample,
    /// rounded up to a multiple of `multiple`, and is padded with `padding`.
    ///
    /// If this sample is longer than all before it, the rows before it are moved and padded again.
    /// A batch is therefore fastest to write if its longest sample comes first.
    ///
    /// # Errors
    ///
    /// If the field's dtype is not `T`, or if the batch does not have enough room and the loader
    /// does not let the elements [spill](crate::loader::Overflow::Spill).
    pub fn fill_padded<T: Element>(&mut self, len: usize, padding: T, multiple: usize) -> Result<&mut [T], Mismatch> {
        let column = self.column_of::<T>(Kind::PaddedToLongest, &[len])?;
        let (row, rows) = (self.row, self.layout.rows);
        // SAFETY: the column has its `RowWidth` after the lengths, and the row has exclusive access to
        // the cell, as the layout is sequential.
        let state = unsafe { &mut *RowWidth::of(column, self.cell, rows) };
        // SAFETY: the column has an i64 for each row at this offset, and the row has exclusive
        // access to the cell.
        let lengths = unsafe { std::slice::from_raw_parts_mut(self.cell.add(column.ends).cast::<i64>(), rows) };
        let was = state.before(row, &lengths[..row]);
        let width = len.checked_next_multiple_of(multiple.max(1)).map(|own| own.max(was.needed));
        let end = width.and_then(|width| width.checked_mul(row + 1));
        let (Some(width), Some(end)) = (width, end) else {
            return Err(self.wide(column, usize::MAX));
        };
        // Other processes may have written anything into the `RowWidth`, so it is checked.
        let capacity = column.field.shape.rows() * rows;
        if column.spill.is_none()
            && (end > capacity || was.stride.checked_mul(row).is_none_or(|before| before > capacity))
        {
            return Err(self.wide(column, width));
        }
        let bytes = size_of::<T>();
        // SAFETY: the column begins inside the cell, to which the row has exclusive access. The
        // rows before this one are at multiples of the stride.
        let items = unsafe {
            let items = self.cell.add(column.offset);
            match column.spill {
                Some(at) => {
                    let spill = &mut *self.cell.add(at).cast::<Spill>();
                    self.reserve_items(
                        column,
                        spill,
                        items,
                        row * was.stride * bytes,
                        end.max(row * was.stride),
                        row == 0,
                    )?
                }
                None => items,
            }
        };
        // SAFETY: there is room for this many elements (by the checks above, or `reserve_items`), which
        // are zeros or elements of this column.
        let items = unsafe { std::slice::from_raw_parts_mut(items.cast::<T>(), end.max(row * was.stride)) };
        change_width(items, row, was.stride, width, padding);
        lengths[row] = len as i64;
        *state = RowWidth::new(width, multiple.max(1), row + 1, padding);
        self.next += 1;
        let own = &mut items[row * width..end];
        own[len..].fill(padding);
        Ok(&mut own[..len])
    }

    #[cold]
    fn wide(&self, column: &Column, width: usize) -> Mismatch {
        let (declared, rows, all) = (column.field.clone(), self.row + 1, self.layout.rows);
        Problem::Wide { width, rows, all, capacity: declared.shape.rows() * all, declared }.into()
    }

    /// Writes the next field from `data`, a sample that was first written into another cell. `state`
    /// is that cell's [`RowWidth`], whose padding and multiple are used here, too.
    pub(crate) fn write_padded_like(&mut self, data: &AnyTensorView<'_>, state: RowWidth) -> Result<(), Mismatch> {
        fn typed<T: Element>(
            row: &mut Row<'_>,
            column: &Column,
            data: &AnyTensorView<'_>,
            state: RowWidth,
        ) -> Result<(), Mismatch> {
            let data = column.elements_of(data)?;
            row.fill_padded::<T>(data.len(), state.padding(), state.unit as usize)?.copy_from_slice(data);
            Ok(())
        }
        let column = self.column()?;
        for_dtype!(column.field.dtype, T => typed::<T>(self, column, data, state))
    }

    /// Leaves the row empty in the fields that are padded to the longest sample, even if elements
    /// were written. If the rows before it were widened for it, they are narrowed again.
    pub(super) fn leave_empty_longest(self) {
        let (layout, row) = (self.layout, self.row);
        for column in layout.columns.iter().filter(|column| column.field.kind == Kind::PaddedToLongest) {
            // SAFETY: see `fill_padded`.
            let (state, lengths) = unsafe {
                let lengths = std::slice::from_raw_parts_mut(self.cell.add(column.ends).cast::<i64>(), layout.rows);
                (&mut *RowWidth::of(column, self.cell, layout.rows), lengths)
            };
            // SAFETY: the column has a `RowWidth`, and the row has exclusive access to the cell.
            let (start, bytes, stride) = unsafe { rows(column, self.cell, layout.rows, row) };
            let was = state.leave_empty(row, &lengths[..row]);
            lengths[row] = 0;
            let needed = was.needed.saturating_mul(column.field.dtype.size());
            if needed < stride {
                // SAFETY: this is the memory of all rows, to which this row has exclusive access,
                // as the layout is sequential.
                let items = unsafe { std::slice::from_raw_parts_mut(start, bytes) };
                change_width(items, row, stride, needed, 0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::TestCell;
    use super::super::{Mask, PaddedTensor, PaddedToLongest, PaddedToMax, Schema};
    use super::*;
    use crate::dtype::complex128;
    use proptest::prelude::*;

    #[test]
    fn rows_move_apart_and_together() {
        let mut items = [1, 2, 3, 4, 5, 6, 0, 0, 0];
        change_width(&mut items, 3, 2, 3, 9);
        assert_eq!(items, [1, 2, 9, 3, 4, 9, 5, 6, 9]);
        change_width(&mut items, 3, 3, 1, 7);
        assert_eq!(items[..3], [1, 3, 5]);
        change_width(&mut items, 3, 1, 1, 7);
        change_width(&mut items, 2, 0, 2, 7);
        assert_eq!(items[..4], [7; 4]);
    }

    #[test]
    fn elements_of_sixteen_bytes_are_padded() {
        let numbers = [1.0, 2.0, 3.0].map(|re| complex128 { re, im: -re });
        let row = |data| PaddedToLongest::new(data, 3).padding(numbers[2]);
        let mut cell = TestCell::new(&row(&[]), 2);
        for (i, data) in [&numbers[..1], &numbers[..2]].into_iter().enumerate() {
            cell.write(i, row(data)).unwrap();
        }
        let found = <PaddedToLongest<'static, complex128>>::tensors(&mut cell.batch(2));
        assert_eq!(found.padded().as_slice(), [numbers[0], numbers[2], numbers[0], numbers[1]]);
    }

    fn padded(data: &[u16]) -> (PaddedToLongest<'_, u16>, Mask<i64>) {
        let padded = PaddedToLongest::new(data, 6).padding(99).multiple_of(3);
        let mask = padded.mask(1);
        (padded, mask)
    }

    fn read<'b>(cell: &'b TestCell, rows: usize) -> (PaddedTensor<'b, u16>, PaddedTensor<'b, i64>) {
        <(PaddedToLongest<'static, u16>, PaddedToMax<'static, i64>)>::tensors(&mut cell.batch(rows))
    }

    fn wanted(rows: &[&[u16]]) -> Vec<u16> {
        let width = rows.iter().map(|row| row.len().next_multiple_of(3)).max().unwrap_or(0);
        rows.iter().flat_map(|row| row.iter().copied().chain(std::iter::repeat_n(99, width - row.len()))).collect()
    }

    proptest! {
        #[test]
        fn rows_are_as_wide_as_the_longest(
            batches in proptest::collection::vec(
                proptest::collection::vec((0_usize..12, 0_u8..6), 0..5), 1..4,
            ),
            spills: bool,
        ) {
            let numbers: Vec<u16> = (0..12).collect();
            let mut cell = if spills { TestCell::spilling(&padded(&[]), 4) } else { TestCell::new(&padded(&[]), 4) };
            for batch in batches {
                // Each row is written, left empty, written and then left empty, or written twice.
                let (mut rows, mut empty): (Vec<&[u16]>, Vec<usize>) = (Vec::new(), Vec::new());
                for (row, &(len, how)) in batch.iter().enumerate() {
                    let longest = rows.iter().map(|row| row.len()).max().unwrap_or(0);
                    let fits = |len: usize| spills || len.max(longest).next_multiple_of(3) * (row + 1) <= 24;
                    let data = &numbers[..len];
                    if how == 2 && fits(11) {
                        cell.write(row, padded(&numbers[1..])).unwrap();
                    }
                    let written = if how == 0 { None } else { Some(cell.write(row, padded(data))) };
                    if let Some(Err(error)) = &written {
                        let error = error.to_string();
                        prop_assert!(error.contains("the batch has room for 24; declare room for at least"), "{}", error);
                    }
                    prop_assert!(written.as_ref().is_none_or(|written| written.is_ok() == fits(len)));
                    if how < 2 || written.is_some_and(|written| written.is_err()) {
                        cell.leave_empty(row);
                        empty.push(row);
                        rows.push(&[]);
                    } else {
                        rows.push(data);
                    }
                }
                cell.compact_rows(&empty, rows.len());
                let rows: Vec<_> =
                    rows.iter().enumerate().filter(|(row, _)| !empty.contains(row)).map(|(_, row)| *row).collect();
                let (tokens, mask) = read(&cell, rows.len());
                let want = wanted(&rows);
                if !rows.is_empty() {
                    prop_assert_eq!(tokens.padded().shape().to_vec(), [rows.len(), want.len() / rows.len()]);
                }
                prop_assert_eq!(tokens.padded().as_slice(), &want);
                let lengths: Vec<i64> = rows.iter().map(|row| row.len() as i64).collect();
                prop_assert_eq!((tokens.lengths(), mask.lengths()), (&lengths[..], &lengths[..]));
                for (row, kept) in rows.iter().enumerate() {
                    prop_assert_eq!(tokens.row(row), *kept);
                    let (ones, present) = (mask.padded().row(row), |at: usize| i64::from(at < kept.len()));
                    prop_assert!(ones.as_slice().iter().enumerate().all(|(at, &one)| one == present(at)));
                }
            }
        }
    }
}
