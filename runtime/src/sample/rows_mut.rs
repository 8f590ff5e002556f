//! Writing many rows of a batch, one by one or field by field.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

use super::Sample;
use super::layout::{Column, Kind, Layout};
use super::mismatch::{Mismatch, Problem};
use super::row::Row;
use crate::BoxError;
use crate::dataset::ManyError;
use crate::dtype::DType;

/// The rows of a batch that a dataset writes in [one call](crate::Dataset::write_many), from first
/// to last. Each is written from a sample ([`push`](Self::push)), or several are written field by
/// field ([`fields`](Self::fields)).
pub struct RowsMut<'a> {
    layout: &'a Layout,
    /// The start of the cell, which is the memory of the batch.
    cell: *mut u8,
    /// The number of the next row. Borrowed, because the caller needs it after a panic.
    next: &'a mut usize,
    /// The number of the row that the first of `indices` belongs to.
    first: usize,
    /// The dataset index of each row.
    indices: &'a [usize],
    /// The rows that may be written, counted from `first`. A dataset that consists of several
    /// datasets restricts them to the rows of one dataset while that one writes.
    part: Range<usize>,
    /// Whether fields of `u8` accept elements of any dtype.
    untyped: bool,
    /// A callback that is called with true before a sample is written, and with false after it.
    watch: Option<&'a dyn Fn(bool)>,
    /// Stands for exclusive access to the rows' bytes.
    memory: PhantomData<&'a mut u8>,
}

impl<'a> RowsMut<'a> {
    /// Makes the rows from `next` on, one for each index. Writing rows advances `next`.
    ///
    /// # Safety
    ///
    /// Those of [`Row::new`], for each of the rows.
    pub(crate) unsafe fn new(
        layout: &'a Layout,
        cell: *mut u8,
        next: &'a mut usize,
        indices: &'a [usize],
        watch: Option<&'a dyn Fn(bool)>,
    ) -> Self {
        let first = *next;
        debug_assert!(first + indices.len() <= layout.rows);
        let part = 0..indices.len();
        Self { layout, cell, next, first, indices, part, untyped: false, watch, memory: PhantomData }
    }

    /// Returns the number of rows that were written.
    fn written(&self) -> usize {
        *self.next - self.first
    }

    /// Returns the number of rows that are left.
    pub fn left(&self) -> usize {
        self.part.end - self.written()
    }

    /// Writes the next row.
    ///
    /// # Errors
    ///
    /// Any error of the sample, such as a [`Mismatch`] with the declared fields, or an error if no
    /// row is left.
    #[inline]
    pub fn push(&mut self, sample: impl Sample) -> Result<(), BoxError> {
        if self.left() == 0 {
            return Err(ManyError::More { wanted: self.part.len() }.into());
        }
        let index = self.indices[self.written()];
        self.watch.inspect(|watch| watch(true));
        // SAFETY: the row is one of those that `new` received.
        let mut row = unsafe { Row::new(self.layout, self.cell, *self.next) };
        row.set_index(index as i64);
        sample.write(&mut row)?;
        row.finish()?;
        self.watch.inspect(|watch| watch(false));
        *self.next += 1;
        Ok(())
    }

    /// Lets [`fields`](Self::fields) of dtype `u8` and fixed shape accept the bytes of elements of
    /// any dtype. For datasets that declare all fields of a fixed shape as bytes.
    pub fn untyped(&mut self) {
        self.untyped = true;
    }

    /// Returns the fields of the next `rows` rows, to be written in declaration order.
    ///
    /// # Errors
    ///
    /// If fewer rows are left.
    pub fn fields(&mut self, rows: usize) -> Result<FieldsMut<'_, 'a>, BoxError> {
        if rows > self.left() {
            return Err(ManyError::More { wanted: self.part.len() }.into());
        }
        Ok(FieldsMut { rows: self, len: rows, field: 0 })
    }

    /// Calls `write` to write the next `rows` rows, and checks that it wrote all of them.
    ///
    /// # Errors
    ///
    /// The error of `write`, or an error if it wrote fewer rows or fewer are left.
    pub(crate) fn only(
        &mut self,
        rows: usize,
        write: impl FnOnce(&mut Self) -> Result<(), BoxError>,
    ) -> Result<(), BoxError> {
        if rows > self.left() {
            return Err(ManyError::More { wanted: self.part.len() }.into());
        }
        let before = self.written();
        let all = std::mem::replace(&mut self.part, before..before + rows);
        let outcome = write(self);
        self.part = all;
        outcome?;
        match self.written() - before {
            given if given < rows => Err(ManyError::Fewer { wanted: rows, given }.into()),
            _ => Ok(()),
        }
    }

    /// Checks that every row was written.
    pub(crate) fn finish(self) -> Result<(), ManyError> {
        let (wanted, given) = (self.indices.len(), self.written());
        if given < wanted { Err(ManyError::Fewer { wanted, given }) } else { Ok(()) }
    }
}

/// The fields of several rows of a batch, for data that is stored by field. The rows count as
/// written when [`finish`](Self::finish) returns.
pub struct FieldsMut<'r, 'a> {
    rows: &'r mut RowsMut<'a>,
    len: usize,
    /// The number of the next field.
    field: usize,
}

impl FieldsMut<'_, '_> {
    /// Writes the next field of all rows, which must have a fixed shape. `pieces` together are the
    /// bytes of the field's elements, row after row; a piece may end anywhere, even within a row. The
    /// bytes are in the machine's byte order and need not be aligned.
    ///
    /// # Errors
    ///
    /// If the dtype differs from the declaration, or the pieces have more or fewer bytes than the rows.
    pub fn write_fixed<'b>(
        &mut self,
        dtype: DType,
        pieces: impl IntoIterator<Item = &'b [u8]>,
    ) -> Result<(), Mismatch> {
        if self.len == 0 {
            return Ok(());
        }
        let row = self.row(0);
        let column = row.column()?;
        let len = column.stride * self.len;
        let other =
            |found: usize| Err(Problem::Rows { declared: column.field.clone(), rows: self.len, len, found }.into());
        if self.taken_as(column, dtype) != column.field.dtype || column.field.kind != Kind::Fixed {
            return Err(column.other(dtype, column.field.shape.dims()));
        }
        let (start, mut written) = (row.address(column), 0);
        for piece in pieces {
            if piece.len() > len - written {
                return other(written + piece.len());
            }
            if dtype == DType::Bool && piece.iter().any(|&byte| byte > 1) {
                return Err(Problem::Bool { declared: column.field.clone() }.into());
            }
            // Most pieces are one number. A copy of constant length takes a fraction of the time.
            //
            // SAFETY: the rows are exclusive, and have room for `len` bytes in this column, one row
            // after another. The bytes are valid elements, since any bits are a value of every
            // element type except bool, whose values were checked.
            unsafe {
                let (from, to) = (piece.as_ptr(), start.add(written));
                match piece.len() {
                    8 => std::ptr::copy_nonoverlapping(from, to, 8),
                    4 => std::ptr::copy_nonoverlapping(from, to, 4),
                    bytes => row.copy(from, to, bytes),
                }
            }
            written += piece.len();
        }
        if written < len {
            return other(written);
        }
        self.field += 1;
        Ok(())
    }

    /// Checks that the next field has this dtype and shape.
    pub(crate) fn expect(&self, dtype: DType, shape: &[usize]) -> Result<(), Mismatch> {
        if self.len == 0 {
            return Ok(());
        }
        let row = self.row(0);
        let column = row.column()?;
        match column.field.dtype == dtype && column.field.shape.dims() == shape {
            true => Ok(()),
            false => Err(column.other(dtype, shape)),
        }
    }

    /// Writes the next field of all rows. There is one value for each row: the bytes of the row's
    /// elements, as [`Row::write_bytes`] receives them. Text has dtype `u8` and must be UTF-8, which
    /// is not checked here: if it is not, reading the text from the batch panics.
    ///
    /// # Errors
    ///
    /// Those of [`Row::write_bytes`], or an error if there are fewer or more values than rows.
    pub fn write_each<'b>(&mut self, dtype: DType, values: impl IntoIterator<Item = &'b [u8]>) -> Result<(), BoxError> {
        let mut values = values.into_iter();
        for given in 0..self.len {
            let value = values.next().ok_or(ManyError::Fewer { wanted: self.len, given })?;
            let mut row = self.row(given);
            let column = row.column()?;
            let taken_as = self.taken_as(column, dtype);
            if taken_as != dtype && dtype == DType::Bool && value.iter().any(|&byte| byte > 1) {
                return Err(Mismatch::from(Problem::Bool { declared: column.field.clone() }).into());
            }
            row.write_bytes(taken_as, value)?;
        }
        if values.next().is_some() {
            return Err(ManyError::More { wanted: self.len }.into());
        }
        self.field += 1;
        Ok(())
    }

    /// Returns the dtype to compare with the column's declaration for elements of `dtype`: `U8` if the
    /// column accepts the bytes of any elements (see [`RowsMut::untyped`]), otherwise `dtype` itself.
    #[inline]
    fn taken_as(&self, column: &Column, dtype: DType) -> DType {
        let as_bytes = self.rows.untyped && (column.field.dtype, column.field.kind) == (DType::U8, Kind::Fixed);
        if as_bytes { DType::U8 } else { dtype }
    }

    /// Marks the rows as written.
    ///
    /// # Errors
    ///
    /// If not every field was written.
    pub fn finish(self) -> Result<(), Mismatch> {
        if self.len > 0 {
            self.row(0).finish()?;
        }
        let indices = &self.rows.indices[self.rows.written()..];
        for (number, &index) in indices[..self.len].iter().enumerate() {
            self.row(number).set_index(index as i64);
        }
        *self.rows.next += self.len;
        Ok(())
    }

    /// Returns row `number` of these rows, counted from 0, ready to write the next field.
    #[inline]
    fn row(&self, number: usize) -> Row<'_> {
        // SAFETY: the row is one of those that `RowsMut::new` received. Rows of a packed field are
        // written from first to last.
        let mut row = unsafe { Row::new(self.rows.layout, self.rows.cell, *self.rows.next + number) };
        row.go_to(self.field);
        row
    }
}

impl fmt::Debug for RowsMut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowsMut").field("left", &self.left()).finish_non_exhaustive()
    }
}

impl fmt::Debug for FieldsMut<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FieldsMut").field("rows", &self.len).field("next_field", &self.field).finish_non_exhaustive()
    }
}
