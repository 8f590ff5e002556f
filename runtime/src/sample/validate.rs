//! Checks rows that another process wrote.

use crate::dtype::DType;
use crate::sample::layout::{Column, Kind, Layout};
use crate::sample::width::RowWidth;

impl Layout {
    /// Returns whether rows of this layout can be invalid: whether they have lengths or offsets, which
    /// could point outside the cell, or elements of type `bool`, for which only 0 and 1 are valid.
    pub(crate) fn can_be_invalid(&self) -> bool {
        self.columns.iter().any(|column| column.field.kind != Kind::Fixed || column.field.dtype == DType::Bool)
    }

    /// Returns whether the first `rows` rows of a cell (the memory of one batch) can be read, for any
    /// bytes that were written there: the ends of rows are within the cell, and each `bool` is 0 or 1.
    ///
    /// # Safety
    ///
    /// `cell` must be the start of a cell with this layout and at least this many rows, and without
    /// spills. No code may write it during the call.
    pub(crate) unsafe fn is_valid(&self, cell: *const u8, rows: usize) -> bool {
        debug_assert!(rows <= self.rows);
        // SAFETY: the caller upholds the contract.
        self.columns.iter().all(|column| unsafe { self.is_column_sound(column, cell, rows) })
    }

    /// Returns whether the first `rows` rows of one column can be read.
    ///
    /// # Safety
    ///
    /// Those of [`is_valid`](Self::is_valid).
    unsafe fn is_column_sound(&self, column: &Column, cell: *const u8, rows: usize) -> bool {
        // SAFETY: a column that is not fixed has an i64 for each row at this offset, and a packed
        // one another i64 before them.
        let ends = |count| unsafe { std::slice::from_raw_parts(cell.add(column.ends).cast::<i64>(), count) };
        let elements = match column.field.kind {
            Kind::Fixed => rows * column.elements,
            Kind::PaddedToMax => {
                let is_length = |&length: &i64| usize::try_from(length).is_ok_and(|length| length <= column.elements);
                if !ends(rows).iter().all(is_length) {
                    return false;
                }
                rows * column.elements
            }
            Kind::PaddedToLongest => {
                // SAFETY: the column has its `RowWidth` after the lengths.
                let state = unsafe { RowWidth::of(column, cell.cast_mut(), self.rows).read() };
                let (lengths, capacity) = (ends(rows), column.field.shape.rows() * self.rows);
                // Rows at the end that were left empty need no memory.
                let last = lengths.iter().rposition(|&length| length != 0).map_or(0, |row| row + 1);
                let needed = usize::try_from(state.width).ok().and_then(|width| width.checked_mul(last));
                let are_lengths = lengths.iter().all(|&length| (0..=state.width).contains(&length));
                if !are_lengths || needed.is_none_or(|needed| needed > capacity) {
                    return false;
                }
                capacity.min(rows.saturating_mul(state.width as usize))
            }
            Kind::Packed => {
                let (ends, capacity) = (ends(rows + 1), column.field.shape.rows() * self.rows);
                let total = usize::try_from(ends[rows]).ok().filter(|&total| total <= capacity);
                match total {
                    Some(total) if ends[0] == 0 && ends.is_sorted() => total * column.field.shape.row_elements(),
                    _ => return false,
                }
            }
        };
        // SAFETY: the column has this many elements, of one byte each.
        let bytes = || unsafe { std::slice::from_raw_parts(cell.add(column.offset), elements) };
        column.field.dtype != DType::Bool || bytes().iter().all(|&byte| byte <= 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Fields;

    #[test]
    fn only_rows_that_can_be_read_are_sound() {
        let mut fields = Fields::new();
        fields.fixed(DType::Bool, &[3]);
        fields.padded_to_max(DType::U16, 5);
        fields.packed(DType::Bool, &[2], 4);
        fields.padded_to_longest(DType::U16, 5);
        let layout = Layout::new(fields, 3).unwrap();
        assert!(layout.can_be_invalid());
        let mut cell = vec![0_u64; layout.size.div_ceil(8)];
        let [bools, padded, packed, longest] = &layout.columns[..] else { panic!() };
        let mut check = |at: usize, bytes: &[u8], rows: usize| {
            // SAFETY: the bytes are in the cell, which no other code uses.
            unsafe {
                let cell = cell.as_mut_ptr().cast::<u8>();
                let before = std::slice::from_raw_parts(cell.add(at), bytes.len()).to_vec();
                cell.add(at).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
                let sound = layout.is_valid(cell, rows);
                cell.add(at).copy_from_nonoverlapping(before.as_ptr(), before.len());
                sound
            }
        };
        let words = |words: &[i64]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>();
        for rows in 0..=3 {
            assert!(check(0, &[], rows));
        }
        assert!(check(bools.offset, &[1; 9], 3) && check(bools.offset + 6, &[2], 2));
        assert!(!check(bools.offset + 6, &[2], 3));
        assert!(check(padded.ends, &words(&[5, 0, 1]), 3) && check(padded.ends, &words(&[0, 0, 6]), 2));
        assert!(!check(padded.ends, &words(&[5, 0, 6]), 3) && !check(padded.ends, &words(&[-1]), 1));
        assert!(check(packed.ends, &words(&[0, 4, 4, 12]), 3) && check(packed.ends, &words(&[0, 12, 3]), 1));
        for ends in [[1, 4, 4, 12], [0, 4, 3, 12], [0, 4, 4, 13], [0, 4, 4, i64::MAX], [0, -1, 4, 4], [0, 0, 0, -1]] {
            assert!(!check(packed.ends, &words(&ends), 3), "{ends:?}");
        }
        let mut all = words(&[0, 0, 0, 2]);
        assert!(check(packed.ends, &all, 3));
        // In the cell, the column's items come before the ends of its rows.
        let mut items = vec![0; packed.ends - packed.offset];
        items[3] = 2;
        items.append(&mut all);
        assert!(!check(packed.offset, &items, 3));
        // The column has room for 15 elements: three rows of five. Its `RowWidth` is stored after the
        // lengths.
        let state = |lengths: [i64; 3], width| words(&[&lengths[..], &[width, 1, 3, 0]].concat());
        assert!(check(longest.ends, &state([5, 0, 3], 5), 3) && check(longest.ends, &state([7, 0, 9], 7), 2));
        for (lengths, width) in [([5, 0, 6], 5), ([5, 0, -1], 5), ([6, 6, 6], 6), ([0; 3], -1), ([0, 1, 0], i64::MAX)] {
            assert!(!check(longest.ends, &state(lengths, width), 3), "{lengths:?} {width}");
        }
        items[3] = 0;
        items[4] = 2;
        assert!(check(packed.offset, &items, 3));
    }
}
