//! Writing one sample into its row, and reading a batch's columns back.

use std::fmt;
use std::marker::PhantomData;

use super::layout::{Column, Field, INDICES, Layout};
use crate::dtype::{DType, Element};
use crate::shape::Shape;
use crate::tensor::{AnyTensor, Tensor};

/// A sample that is not what its fields were declared to be.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Misfit(Box<Problem>);

#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error("field {declared} was declared, but the sample has {dtype} {shape}")]
    Other { declared: Field, dtype: DType, shape: Shape },
    #[error("field {declared} was declared, but the sample has {found} elements; declare a greater maximum")]
    TooLong { declared: Field, found: usize },
    #[error("{declared} fields were declared, but the sample wrote {found}")]
    Count { declared: usize, found: usize },
    #[error("field {declared} was declared {}, but the sample writes it otherwise", if declared.ragged { "ragged" } else { "of fixed shape" })]
    Kind { declared: Field },
}

impl From<Problem> for Misfit {
    #[cold]
    fn from(problem: Problem) -> Self {
        Self(Box::new(problem))
    }
}

/// The row of a batch that one sample writes itself into, field after field in the order declared.
pub struct Row<'a> {
    layout: &'a Layout,
    /// Start of the slot.
    slot: *mut u8,
    /// Below `layout.rows`.
    row: usize,
    /// The next field.
    next: usize,
    /// The row's bytes are this row's alone.
    memory: PhantomData<&'a mut u8>,
}

impl<'a> Row<'a> {
    /// # Safety
    ///
    /// `slot` must be the start of a slot with this layout, aligned to its fields, with every byte initialised by
    /// zeros or by rows of this layout; `row` must be one of its rows, which for `'a` nobody else reads or writes.
    #[inline]
    pub(crate) unsafe fn new(layout: &'a Layout, slot: *mut u8, row: usize) -> Self {
        debug_assert!(row < layout.rows);
        Self { layout, slot, row, next: 0, memory: PhantomData }
    }

    /// Notes which sample the row is of.
    #[inline]
    pub(crate) fn set_index(&mut self, index: i64) {
        // SAFETY: the indices of all rows come first in the slot, and this one is this row's.
        unsafe { self.slot.add(INDICES).cast::<i64>().add(self.row).write(index) }
    }

    /// Writes the next field: `data`, in C order, of exactly the declared `shape`.
    ///
    /// # Errors
    ///
    /// If dtype, shape, or the number of elements differ from what was declared.
    #[inline]
    pub fn write<T: Element>(&mut self, data: &[T], shape: &[usize]) -> Result<(), Misfit> {
        let column = self.fixed(T::DTYPE, shape)?;
        if column.elements != data.len() {
            return Err(column.other(T::DTYPE, &[data.len()]));
        }
        self.elements(column).copy_from_slice(data);
        Ok(())
    }

    /// Writes the next field, one number.
    ///
    /// # Errors
    ///
    /// If dtype or shape differ from what was declared.
    #[inline]
    pub fn write_one<T: Element>(&mut self, value: T) -> Result<(), Misfit> {
        self.fill(&[])?[0] = value;
        Ok(())
    }

    /// The memory of the next field, to be written in place: every element, since it holds those of an earlier batch.
    ///
    /// # Errors
    ///
    /// If dtype or shape differ from what was declared.
    #[inline]
    pub fn fill<T: Element>(&mut self, shape: &[usize]) -> Result<&mut [T], Misfit> {
        let column = self.fixed(T::DTYPE, shape)?;
        Ok(self.elements(column))
    }

    /// Writes the next field from bytes in the machine's order, for a dtype known at run time.
    ///
    /// # Errors
    ///
    /// If dtype or shape differ from what was declared.
    #[inline]
    pub fn write_any(&mut self, data: &AnyTensor<'_>) -> Result<(), Misfit> {
        let column = self.fixed(data.dtype(), data.shape())?;
        self.next += 1;
        debug_assert_eq!(column.stride, data.bytes().len());
        // SAFETY: as for `fill`; a tensor has exactly the bytes of its shape, and its elements are valid.
        unsafe { std::ptr::copy_nonoverlapping(data.bytes().as_ptr(), self.place(column), column.stride) };
        Ok(())
    }

    /// Writes the next field, a ragged one: `data`, then zeros up to the declared maximum, and its length.
    ///
    /// # Errors
    ///
    /// If the dtype differs or `data` is longer than the declared maximum.
    #[inline]
    pub fn write_ragged<T: Element>(&mut self, data: &[T]) -> Result<(), Misfit> {
        let column = self.column()?;
        if column.field.dtype != T::DTYPE {
            return Err(column.other(T::DTYPE, &[data.len()]));
        }
        if !column.field.ragged {
            return Err(Problem::Kind { declared: column.field.clone() }.into());
        }
        if data.len() > column.elements {
            return Err(Problem::TooLong { declared: column.field.clone(), found: data.len() }.into());
        }
        self.next += 1;
        let to = self.place(column);
        // SAFETY: as for `fill`, with at most `elements` elements; zero bytes are a value of every element type. The
        // lengths lie apart from the elements, an i64 for each row.
        unsafe {
            std::ptr::copy_nonoverlapping(data.as_ptr().cast(), to, size_of_val(data));
            std::ptr::write_bytes(to.add(size_of_val(data)), 0, column.stride - size_of_val(data));
            self.slot.add(column.lengths).cast::<i64>().add(self.row).write(data.len() as i64);
        }
        Ok(())
    }

    /// What the sample called the next field when it declared a [run](super::Fields::named_run) of named ones.
    pub(crate) fn next_part(&self) -> Option<&'a str> {
        let layout = self.layout;
        layout.columns.get(self.next)?.field.part.as_deref()
    }

    /// Whether every field was written.
    #[inline]
    pub(crate) fn finish(self) -> Result<(), Misfit> {
        let (declared, found) = (self.layout.columns.len(), self.next);
        if declared == found { Ok(()) } else { Err(Problem::Count { declared, found }.into()) }
    }

    /// The next field. It counts as written (`next`) only when it is, so that a sample which swallows an error is found
    /// out in `finish`.
    #[inline]
    fn column(&self) -> Result<&'a Column, Misfit> {
        let (layout, next) = (self.layout, self.next);
        let count = || Problem::Count { declared: layout.columns.len(), found: next + 1 };
        layout.columns.get(next).ok_or_else(|| count().into())
    }

    /// The next field, if it is one of fixed shape, and this one.
    #[inline]
    fn fixed(&self, dtype: DType, shape: &[usize]) -> Result<&'a Column, Misfit> {
        let column = self.column()?;
        if column.field.dtype != dtype || !same(column.field.shape.dims(), shape) || column.field.ragged {
            return Err(column.other(dtype, shape));
        }
        Ok(column)
    }

    /// The memory of the next field, which was found to be `column`, of `T`; it counts as written.
    #[inline]
    fn elements<T: Element>(&mut self, column: &Column) -> &mut [T] {
        debug_assert_eq!(column.field.dtype, T::DTYPE);
        self.next += 1;
        // SAFETY: the column has `elements` elements of `T` in each row; its offset and stride keep their alignment,
        // and their bytes were only ever zeros or elements of this column. The row is ours (`new`).
        unsafe { std::slice::from_raw_parts_mut(self.place(column).cast(), column.elements) }
    }

    #[inline]
    fn place(&self, column: &Column) -> *mut u8 {
        // SAFETY: the row is below the layout's rows, so this stays inside the slot.
        unsafe { self.slot.add(column.offset + self.row * column.stride) }
    }
}

impl Column {
    /// The error of a sample that has something else here.
    #[cold]
    fn other(&self, dtype: DType, shape: &[usize]) -> Misfit {
        let declared = self.field.clone();
        match Shape::new(shape) {
            Ok(shape) if !declared.ragged || dtype != declared.dtype => {
                Problem::Other { declared, dtype, shape }.into()
            }
            _ => Problem::Kind { declared }.into(),
        }
    }
}

/// Whether two shapes are equal: a loop, since for these few words calling `memcmp` would take longer than comparing.
#[inline]
fn same(a: &[usize], b: &[usize]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a == b)
}

impl fmt::Debug for Row<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Row").field("row", &self.row).field("next_field", &self.next).finish_non_exhaustive()
    }
}

/// The columns of a batch: one tensor for each field, in the order declared.
#[derive(Clone, Copy)]
pub struct Columns<'a> {
    columns: &'a [Column],
    slot: *const u8,
    /// Rows that the batch has, at most the layout's.
    rows: usize,
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
        Self { columns: &layout.columns, slot, rows, next: 0, memory: PhantomData }
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

    /// Field `i` of the batch, shape `[rows, …]`; `None` if there is none. A ragged field is padded with zeros.
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
        Tensor::from_checked(data, stacked(column, self.rows))
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

    /// The next field, a ragged one: its elements padded with zeros to `[rows, max]`, and each row's length.
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

    fn tensor(&self, column: &'a Column) -> AnyTensor<'a> {
        // SAFETY: as in `take`.
        unsafe {
            let bytes = std::slice::from_raw_parts(self.slot.add(column.offset), self.rows * column.stride);
            AnyTensor::from_raw_parts(column.field.dtype, stacked(column, self.rows), bytes)
        }
    }

    fn lengths_of(&self, column: &Column) -> &'a [i64] {
        // SAFETY: a ragged column has an i64 for each row there.
        unsafe { std::slice::from_raw_parts(self.slot.add(column.lengths).cast(), self.rows) }
    }
}

/// The shape of a batch of this column. `Layout::new` made sure that there is room for one dimension more.
#[inline]
fn stacked(column: &Column, rows: usize) -> Shape {
    column.field.shape.stacked(rows).unwrap_or_default()
}

impl fmt::Debug for Columns<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.columns.iter().map(|column| column.field.to_string())).finish()
    }
}
