//! Removal of rows from a batch.

use super::layout::{INDICES, Kind, Layout};
use super::longest;

/// Removes the `empty` rows, given in ascending order, from a batch by moving the rows after them
/// down. The empty rows must have no items in packed fields.
///
/// # Safety
///
/// Those of [`Row::new`](super::Row::new), for the first `rows` rows, to which the caller must have
/// exclusive access. The empty rows must be among them.
pub(crate) unsafe fn compact_rows(layout: &Layout, cell: *mut u8, empty: &[usize], rows: usize) {
    debug_assert!(empty.is_sorted() && empty.iter().all(|&row| row < rows) && rows <= layout.rows);
    let word = size_of::<i64>();
    // SAFETY: a column has one piece of equal size for each row. So do the indices and the ends
    // (for a packed field, after an initial 0, which is not moved). The caller has exclusive access
    // to them, and all pieces of a column have one type.
    unsafe {
        move_down(cell.add(INDICES), word, empty, rows);
        for column in &layout.columns {
            match column.field.kind {
                Kind::Fixed | Kind::PaddedToMax => move_down(cell.add(column.offset), column.stride, empty, rows),
                Kind::PaddedToLongest => {
                    // Empty rows at the end may lie beyond the memory, so they are not included.
                    let last = (0..rows).rev().find(|row| !empty.contains(row)).map_or(0, |row| row + 1);
                    let (items, _, width) = longest::rows(column, cell, layout.rows, last);
                    move_down(items, width, empty, rows);
                }
                Kind::Packed => {}
            }
            match column.field.kind {
                Kind::Fixed => {}
                Kind::PaddedToMax | Kind::PaddedToLongest => move_down(cell.add(column.ends), word, empty, rows),
                // A row without items ends where the row before it does, so removing its end does
                // not affect other rows.
                Kind::Packed => move_down(cell.add(column.ends + word), word, empty, rows),
            }
        }
    }
}

/// Moves pieces of `size` bytes, one for each row, so that no gaps remain for the empty rows.
///
/// # Safety
///
/// At `start` there must be `rows` pieces to which the caller has exclusive access, and the empty
/// rows must be among them.
unsafe fn move_down(start: *mut u8, size: usize, empty: &[usize], rows: usize) {
    let Some(&(mut to)) = empty.first() else { return };
    for (i, &row) in empty.iter().enumerate() {
        let run = row + 1..empty.get(i + 1).copied().unwrap_or(rows);
        // SAFETY: both ranges are within the pieces, as the caller guarantees, and `to` is at most `row`.
        unsafe { std::ptr::copy(start.add(run.start * size), start.add(to * size), run.len() * size) };
        to += run.len();
    }
}
