//! Removal of rows from a batch.

use super::layout::{INDICES, Kind, Layout};
use super::longest;

/// Removes the `empty` rows, given in ascending order, from a batch: moves the rows after them down. In packed fields
/// the empty rows must have no items.
///
/// # Safety
///
/// The same as for [`Row::new`](super::Row::new), for the first `rows` rows, all of which the caller must have
/// exclusively. The empty rows must be among them.
pub(crate) unsafe fn compact_rows(layout: &Layout, slot: *mut u8, empty: &[usize], rows: usize) {
    debug_assert!(empty.is_sorted() && empty.iter().all(|&row| row < rows) && rows <= layout.rows);
    let word = size_of::<i64>();
    // SAFETY: each column has a piece of its size for each row, as have the indices and the ends (those of packed
    // fields after a first one, which stays). The caller has them exclusively, and the pieces of a column have one
    // type.
    unsafe {
        move_down(slot.add(INDICES), word, empty, rows);
        for column in &layout.columns {
            match column.field.kind {
                Kind::Fixed | Kind::PaddedToMax => move_down(slot.add(column.offset), column.stride, empty, rows),
                Kind::PaddedToLongest => {
                    // Rows at the end may be empty, and beyond the memory.
                    let last = (0..rows).rev().find(|row| !empty.contains(row)).map_or(0, |row| row + 1);
                    let (items, _, width) = longest::rows(column, slot, layout.rows, last);
                    move_down(items, width, empty, rows);
                }
                Kind::Packed => {}
            }
            match column.field.kind {
                Kind::Fixed => {}
                Kind::PaddedToMax | Kind::PaddedToLongest => move_down(slot.add(column.ends), word, empty, rows),
                // A row without items ends where the row before it does, so removing its end has no effect on the
                // others.
                Kind::Packed => move_down(slot.add(column.ends + word), word, empty, rows),
            }
        }
    }
}

/// Moves pieces of `size` bytes, one for each row, to close the gaps of the empty rows.
///
/// # Safety
///
/// From `start` there must be `rows` pieces that the caller has exclusively, and the empty rows must be among them.
unsafe fn move_down(start: *mut u8, size: usize, empty: &[usize], rows: usize) {
    let Some(&(mut to)) = empty.first() else { return };
    for (i, &row) in empty.iter().enumerate() {
        let run = row + 1..empty.get(i + 1).copied().unwrap_or(rows);
        // SAFETY: both ranges are within the pieces, as the caller guarantees, and `to` is at most `row`.
        unsafe { std::ptr::copy(start.add(run.start * size), start.add(to * size), run.len() * size) };
        to += run.len();
    }
}
