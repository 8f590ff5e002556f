//! Memory for a single sample outside of any batch.

use std::fmt;
use std::io;

use super::layout::{Fields, Kind, Layout, LayoutError};
use super::width::RowWidth;
use super::{Columns, Dynamic, Row, Sample};
use crate::BoxError;
use crate::arena::{Memory, Pages};
use crate::causes::with_causes;
use crate::tensor::AnyTensorView;

/// Memory for the fields of one sample, which can be written, read, and copied into a batch.
///
/// Use this if a sample must exist before there is a row for it, or if samples are written by
/// foreign code (FFI). The memory is reused for the next sample. Packed fields get as much memory
/// as they need.
///
/// ```
/// use slotline::sample::{OwnedSample, Fields, Packed, Sample};
///
/// let sample = (7_i64, Packed::new(&[1.0_f32, 2.0, 3.0], 2));
/// let mut apart = OwnedSample::new(Fields::of(&sample))?;
/// apart.fill(|row| sample.write(row))?;
/// assert_eq!(apart.columns().get(1).unwrap().shape(), [3]);
/// # Ok::<(), slotline::BoxError>(())
/// ```
pub struct OwnedSample {
    /// The layout of one row, with spilling.
    layout: Layout,
    /// Memory of the layout's size, owned exclusively.
    pages: Pages,
}

/// The error for an [`OwnedSample`] that cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OwnedSampleError {
    /// The fields have no valid layout.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The memory could not be allocated.
    #[error("cannot allocate {bytes} bytes for a sample: {}", with_causes(source))]
    Memory {
        /// The number of bytes requested.
        bytes: usize,
        /// The system's error.
        r#source: io::Error,
    },
}

impl OwnedSample {
    /// Allocates memory for a sample of these fields, filled with zeros.
    ///
    /// # Errors
    ///
    /// If the fields have no valid layout, or the memory cannot be allocated.
    pub fn new(fields: Fields) -> Result<Self, OwnedSampleError> {
        let layout = Layout::new(fields, 1)?.spilling()?;
        let pages =
            Pages::new(layout.size).map_err(|source| OwnedSampleError::Memory { bytes: layout.size, source })?;
        Ok(Self { layout, pages })
    }

    /// Calls `write` to write a sample, which replaces the previous one.
    ///
    /// # Errors
    ///
    /// The error of `write`, or a [`Mismatch`](super::Mismatch) if it did not write all fields.
    pub fn fill(&mut self, write: impl FnOnce(&mut Row<'_>) -> Result<(), BoxError>) -> Result<(), BoxError> {
        // SAFETY: the pages were zeroed, are aligned, belong to `self`, and only rows of this
        // layout are written there.
        let mut row = unsafe { Row::new(&self.layout, self.pages.start().as_ptr(), 0) };
        write(&mut row)?;
        Ok(row.finish()?)
    }

    /// Returns the fields of the sample that was written last, as an unbatched sample.
    pub fn columns(&self) -> Columns<'_> {
        // SAFETY: no code writes while `self` is borrowed, and unwritten bytes are zero.
        unsafe { Columns::single(&self.layout, self.pages.start().as_ptr()) }
    }

    /// Returns the elements of field `i`, without padding.
    fn elements(&self, i: usize) -> AnyTensorView<'_> {
        let columns = self.columns();
        let all = columns.get(i).expect("the field exists");
        match columns.lengths(i) {
            Some(&[len]) => all.first_elements(len as usize),
            _ => all,
        }
    }
}

impl Drop for OwnedSample {
    fn drop(&mut self) {
        // SAFETY: the pages belong to `self`, and only rows of this layout were written there.
        unsafe { self.layout.free_spills(self.pages.start().as_ptr()) };
    }
}

impl Sample for &OwnedSample {
    type Schema = Dynamic;

    fn declare(&self, fields: &mut Fields) {
        for column in &self.layout.columns {
            let field = &column.field;
            match (field.is_padded(), field.is_packed(), field.shape()) {
                (true, _, &[capacity]) if field.is_padded_to_longest() => {
                    fields.padded_to_longest(field.dtype, capacity)
                }
                (true, _, &[max]) => fields.padded_to_max(field.dtype, max),
                (_, true, &[capacity, ref item @ ..]) => fields.packed(field.dtype, item, capacity),
                (_, _, shape) => fields.fixed(field.dtype, shape),
            }
        }
    }

    fn write(self, row: &mut Row<'_>) -> Result<(), BoxError> {
        for (i, column) in self.layout.columns.iter().enumerate() {
            match column.field.kind {
                Kind::PaddedToLongest => {
                    // SAFETY: the pages are a cell of this layout, which no code writes while `self`
                    // is borrowed.
                    let state = unsafe { RowWidth::of(column, self.pages.start().as_ptr(), self.layout.rows).read() };
                    row.write_padded_like(&self.elements(i), state)?;
                }
                Kind::PaddedToMax => {
                    let columns = self.columns();
                    let (Some(all), Some(&[len])) = (columns.get(i), columns.lengths(i)) else {
                        unreachable!("the field exists and has a length");
                    };
                    row.copy_padded_to_max(&all, len as usize)?;
                }
                Kind::Fixed | Kind::Packed => row.write_elements(&self.elements(i))?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for OwnedSample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedSample").field("columns", &self.columns()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Packed, PaddedToMax, Schema, tests::TestCell};

    type Mixed<'a> = ([u8; 2], PaddedToMax<'a, i16>, Packed<'a, f64>, bool);

    fn mixed<'a>(padded: &'a [i16], packed: &'a [f64]) -> Mixed<'a> {
        ([1, 2], PaddedToMax::new(padded, 3).padding(-1), Packed::new(packed, 1), true)
    }

    #[test]
    fn a_single_sample_is_copied_into_batches() {
        let numbers: Vec<f64> = (0..100).map(f64::from).collect();
        let mut apart = OwnedSample::new(Fields::of(&mixed(&[], &[]))).unwrap();
        let mut cell = TestCell::spilling(&mixed(&[], &[]), 3);
        let runs = [(&[7_i16][..], &numbers[..100]), (&[8, 9, 10], &numbers[..0]), (&[], &numbers[40..43])];
        for (row, (padded, packed)) in runs.into_iter().enumerate() {
            apart.fill(|row| mixed(padded, packed).write(row)).unwrap();
            let (bytes, padded_back, packed_back, yes) = <Mixed<'_> as Sample>::Schema::tensors(&mut apart.columns());
            assert_eq!((bytes.as_slice(), yes.as_slice()), (&[1, 2][..], &[true][..]));
            assert_eq!((padded_back.row(0), packed_back.row(0).as_slice()), (padded, packed));
            cell.write(row, &apart).unwrap();
        }
        let (_, padded, packed, _) = <Mixed<'_> as Sample>::Schema::tensors(&mut cell.batch(3));
        assert_eq!(packed.offsets(), [0, 100, 100, 103]);
        for (row, (padded_row, packed_row)) in runs.into_iter().enumerate() {
            assert_eq!((padded.row(row), packed.row(row).as_slice()), (padded_row, packed_row));
        }
        assert_eq!(padded.padded().as_slice(), [7, -1, -1, 8, 9, 10, -1, -1, -1]);
    }

    #[test]
    fn an_incomplete_sample_is_an_error() {
        let mut apart = OwnedSample::new(Fields::of(&(1_u8, 2_u8))).unwrap();
        let error = apart.fill(|row| Ok(row.write_one(7_u8)?)).unwrap_err().to_string();
        assert!(error.contains("2 fields were declared, but the sample wrote 1"), "{error}");
        let beyond = |row: &mut Row<'_>| {
            row.go_to(usize::MAX);
            Ok(row.write_one(7_u8)?)
        };
        let error = apart.fill(beyond).unwrap_err().to_string();
        assert!(error.contains("2 fields were declared, but the sample wrote"), "{error}");
    }
}
