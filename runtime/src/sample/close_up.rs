//! Taking rows out of a batch.

use super::layout::{INDICES, Kind, Layout};

/// Moves rows of a batch down so that they take the places of the `empty` ones, which are in ascending order. The batch then
/// has that many rows less. Of packed fields the empty rows must have no items.
///
/// # Safety
///
/// As for [`Row::new`](super::Row::new), with the first `rows` rows, among which are the empty ones, and all of them the
/// caller's alone.
pub(crate) unsafe fn close_up(layout: &Layout, slot: *mut u8, empty: &[usize], rows: usize) {
    debug_assert!(empty.is_sorted() && empty.iter().all(|&row| row < rows) && rows <= layout.rows);
    let word = size_of::<i64>();
    // SAFETY: each column has a piece of its size for each row, and so have the indices and the ends, of packed fields after
    // a first one that stays; they are the caller's alone, and the pieces of a column are of one kind.
    unsafe {
        move_down(slot.add(INDICES), word, empty, rows);
        for column in &layout.columns {
            if column.field.kind != Kind::Packed {
                move_down(slot.add(column.offset), column.stride, empty, rows);
            }
            match column.field.kind {
                Kind::Fixed => {}
                Kind::Padded => move_down(slot.add(column.ends), word, empty, rows),
                // A row without items ends where the one before does: without its end nobody sees it.
                Kind::Packed => move_down(slot.add(column.ends + word), word, empty, rows),
            }
        }
    }
}

/// Moves pieces of `size` bytes, one for each row, so that there are none of empty rows in between.
///
/// # Safety
///
/// From `start` there must be so many pieces that are the caller's alone, and the empty rows must be among them.
unsafe fn move_down(start: *mut u8, size: usize, empty: &[usize], rows: usize) {
    let Some(&(mut to)) = empty.first() else { return };
    for (i, &row) in empty.iter().enumerate() {
        let run = row + 1..empty.get(i + 1).copied().unwrap_or(rows);
        // SAFETY: both ends are within the pieces (the caller's word), as `to` is at most `row`.
        unsafe { std::ptr::copy(start.add(run.start * size), start.add(to * size), run.len() * size) };
        to += run.len();
    }
}
