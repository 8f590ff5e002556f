//! Reading a batch's columns back.

use std::fmt;
use std::marker::PhantomData;

use super::layout::{Column, Field, INDICES, Layout};
use crate::dtype::Element;
use crate::shape::Shape;
use crate::tensor::{AnyTensor, Tensor};

/// The columns of a batch: one tensor for each field, in the order declared.
///
/// Of a sample that was not batched they are the sample's own: each field has its own shape, without a first dimension
/// for the rows.
#[derive(Clone, Copy)]
pub struct Columns<'a> {
    columns: &'a [Column],
    slot: *const u8,
    /// Rows that the batch has, at most the layout's.
    rows: usize,
    /// Whether the tensors have a first dimension for the rows. Without it there is one row.
    batched: bool,
    next: usize,
    memory: PhantomData<&'a u8>,
}

impl<'a> Columns<'a> {
    /// # Safety
    ///
    /// As for [`Row::new`], with the first `rows` rows fully written and read-only for `'a`.
    #[inline]
    pub(crate) unsafe fn new(layout: &'a Layout, slot: *const u8, rows: usize) -> Self {
        debug_assert!(rows <= layout.rows);
        Self { columns: &layout.columns, slot, rows, batched: true, next: 0, memory: PhantomData }
    }

    /// The columns of row 0 alone, without the dimension that counts rows.
    ///
    /// # Safety
    ///
    /// As for [`new`](Self::new), with one row.
    #[cfg_attr(not(test), expect(dead_code, reason = "for loaders without batching"))]
    #[inline]
    pub(crate) unsafe fn single(layout: &'a Layout, slot: *const u8) -> Self {
        // SAFETY: the caller's word.
        Self { batched: false, ..unsafe { Self::new(layout, slot, 1) } }
    }

    /// How many fields there are.
    pub fn len(&self) -> usize {
        self.columns.len()
    }

    /// Whether there is no field.
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// What field `i` was declared to be; `None` if there is none.
    pub fn field(&self, i: usize) -> Option<&'a Field> {
        self.columns.get(i).map(|column| &column.field)
    }

    /// Field `i` of the batch, shape `[rows, …]` (of a single sample `[…]`); `None` if there is none. A ragged field is padded with zeros.
    pub fn get(&self, i: usize) -> Option<AnyTensor<'a>> {
        self.columns.get(i).map(|column| self.tensor(column))
    }

    /// How many elements each row of field `i` has, if that is a ragged field.
    pub fn lengths(&self, i: usize) -> Option<&'a [i64]> {
        self.columns.get(i).filter(|column| column.field.ragged).map(|column| self.lengths_of(column))
    }

    /// The next field, in the order declared: for [`Sample::tensors`](super::Sample::tensors).
    ///
    /// # Panics
    ///
    /// If there is none, or its elements are not `T`: the sample's `tensors` then contradicts its `declare`.
    #[inline]
    pub fn take<T: Element>(&mut self) -> Tensor<'a, T> {
        let column = self.advance();
        assert!(column.field.dtype == T::DTYPE, "field {} is not {}", column.field, T::DTYPE);
        // SAFETY: the column holds rows × elements elements of `T`, written or zero, aligned (see `Row::fill`).
        let data =
            unsafe { std::slice::from_raw_parts(self.slot.add(column.offset).cast(), self.rows * column.elements) };
        Tensor::from_checked(data, self.shape(column))
    }

    /// The next field, whatever its dtype.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn take_any(&mut self) -> AnyTensor<'a> {
        let column = self.advance();
        self.tensor(column)
    }

    /// The next field, a ragged one: its elements padded with zeros to `[rows, max]` (of a single sample to `[max]`), and each row's length.
    ///
    /// # Panics
    ///
    /// As [`take`](Self::take), or if the field is not ragged.
    pub fn take_ragged<T: Element>(&mut self) -> (Tensor<'a, T>, &'a [i64]) {
        let data = self.take();
        let column = &self.columns[self.next - 1];
        assert!(column.field.ragged, "field {} is not ragged", column.field);
        (data, self.lengths_of(column))
    }

    /// The next fields, as many as were declared as one [run](super::Fields::run); all that are left if the next one
    /// begins no run.
    pub(crate) fn take_run(&mut self) -> Columns<'a> {
        let left = self.columns.get(self.next..).unwrap_or_default();
        let run = left.first().map_or(0, |column| column.field.run);
        let columns = if run == 0 { left } else { &left[..run.min(left.len())] };
        self.next += columns.len();
        Columns { columns, next: 0, ..*self }
    }

    /// The dataset index of each row.
    #[inline]
    pub(crate) fn indices(&self) -> &'a [i64] {
        // SAFETY: the slot starts with an i64 for each row.
        unsafe { std::slice::from_raw_parts(self.slot.add(INDICES).cast(), self.rows) }
    }

    #[inline]
    fn advance(&mut self) -> &'a Column {
        self.next += 1;
        &self.columns[self.next - 1]
    }

    /// The shape of this column's tensor.
    #[inline]
    fn shape(&self, column: &Column) -> Shape {
        let shape = &column.field.shape;
        // `Layout::new` made sure that there is room for one dimension more.
        if self.batched { shape.stacked(self.rows).unwrap_or_default() } else { shape.clone() }
    }

    fn tensor(&self, column: &'a Column) -> AnyTensor<'a> {
        // SAFETY: as in `take`.
        unsafe {
            let bytes = std::slice::from_raw_parts(self.slot.add(column.offset), self.rows * column.stride);
            AnyTensor::from_raw_parts(column.field.dtype, self.shape(column), bytes)
        }
    }

    fn lengths_of(&self, column: &Column) -> &'a [i64] {
        // SAFETY: a ragged column has an i64 for each row there.
        unsafe { std::slice::from_raw_parts(self.slot.add(column.lengths).cast(), self.rows) }
    }
}

impl fmt::Debug for Columns<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.columns.iter().map(|column| column.field.to_string())).finish()
    }
}
