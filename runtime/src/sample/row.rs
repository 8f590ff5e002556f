//! Writing one sample into its row.

use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;

use super::layout::{Column, INDICES, Kind, Layout};
use super::mismatch::{Mismatch, Problem};
use super::spill::Spill;
use crate::BoxError;
use crate::dtype::{DType, Element, for_dtype};
use crate::shape::Shape;
use crate::tensor::AnyTensorView;

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
    /// zeros or by rows of this layout; `row` must be one of its rows, which for `'a` nobody else reads or writes, nor
    /// any other row if the layout is sequential.
    ///
    /// Rows of a sequential layout should be written from the first to the last. Out of turn they hold wrong items, but
    /// none that are not the field's.
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
    #[inline(always)]
    pub fn write<T: Element>(&mut self, data: &[T], shape: &[usize]) -> Result<(), Mismatch> {
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
    #[inline(always)]
    pub fn write_one<T: Element>(&mut self, value: T) -> Result<(), Mismatch> {
        self.fill(&[])?[0] = value;
        Ok(())
    }

    /// The memory of the next field, to be written in place: every element, since it holds those of an earlier batch.
    ///
    /// # Errors
    ///
    /// If dtype or shape differ from what was declared.
    #[inline(always)]
    pub fn fill<T: Element>(&mut self, shape: &[usize]) -> Result<&mut [T], Mismatch> {
        let column = self.fixed(T::DTYPE, shape)?;
        Ok(self.elements(column))
    }

    /// Writes the next field from bytes in the machine's order, for a dtype known at run time.
    ///
    /// # Errors
    ///
    /// If dtype or shape differ from what was declared.
    #[inline]
    pub fn write_any(&mut self, data: &AnyTensorView<'_>) -> Result<(), Mismatch> {
        let column = self.fixed(data.dtype(), data.shape())?;
        self.next += 1;
        // SAFETY: as for `fill`; a tensor's elements are valid.
        let bytes = unsafe { std::slice::from_raw_parts_mut(self.place(column), column.stride) };
        bytes.copy_from_slice(data.bytes());
        Ok(())
    }

    /// Makes field `i`, in the order declared, the next one: for samples that have their fields in another order, or at once.
    /// One that is never written keeps what an earlier batch has there, and nobody notices: whoever goes back and forth must
    /// see to it, and [go](Self::go_to) behind the last field at the end.
    pub fn go_to(&mut self, i: usize) {
        self.next = i;
    }

    /// The memory of the next field, one of fixed shape, as bytes, of whatever dtype; it counts as written.
    ///
    /// A pointer, since it is for code that the compiler does not see: such code must leave valid elements of the dtype there
    /// (for `Bool`, only 0 and 1), and may write only as long as the row is lent to it.
    ///
    /// # Errors
    ///
    /// If the field is ragged or packed, or there is none.
    pub fn fill_raw(&mut self) -> Result<NonNull<[u8]>, Mismatch> {
        let column = self.column()?;
        if column.field.kind != Kind::Fixed {
            return Err(column.otherwise());
        }
        self.next += 1;
        let start = NonNull::new(self.place(column)).expect("a slot is somewhere");
        Ok(NonNull::slice_from_raw_parts(start, column.stride))
    }

    /// Writes the next field, of whatever kind, from all elements of `data` in C order, whatever its shape: exactly those that
    /// a field of fixed shape has, at most as many as a ragged one, whole items of a packed one.
    ///
    /// # Errors
    ///
    /// As those of [`write`](Self::write), [`write_ragged`](Self::write_ragged) and [`write_packed`](Self::write_packed).
    pub fn write_elements(&mut self, data: &AnyTensorView<'_>) -> Result<(), Mismatch> {
        fn typed<T: Element>(row: &mut Row<'_>, column: &Column, data: &AnyTensorView<'_>) -> Result<(), Mismatch> {
            let Some(data) = data.typed::<T>() else { return Err(column.other(data.dtype(), data.shape())) };
            match column.field.kind {
                Kind::Fixed => row.write(data.as_slice(), column.field.shape.dims()),
                Kind::Padded => row.write_ragged(data.as_slice()),
                Kind::Packed => row.write_packed(data.as_slice(), column.field.shape.row_dims()),
            }
        }
        let column = self.column()?;
        for_dtype!(column.field.dtype, T => typed::<T>(self, column, data))
    }

    /// Writes the next field, a ragged one: `data`, then zeros up to the declared maximum, and its length.
    ///
    /// # Errors
    ///
    /// If the dtype differs or `data` is longer than the declared maximum.
    #[inline]
    pub fn write_ragged<T: Element>(&mut self, data: &[T]) -> Result<(), Mismatch> {
        let column = self.column_of::<T>(Kind::Padded, &[data.len()])?;
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
            self.slot.add(column.ends).cast::<i64>().add(self.row).write(data.len() as i64);
        }
        Ok(())
    }

    /// Writes the next field, a packed one: `data`, whole items of the declared shape `item` in C order, right after
    /// those of the row before.
    ///
    /// # Errors
    ///
    /// If dtype or shape differ from what was declared, the last item is not whole, or the batch has no room for so
    /// many, unless the loader lets them [spill](crate::loader::Overflow::Spill).
    pub fn write_packed<T: Element>(&mut self, data: &[T], item: &[usize]) -> Result<(), Mismatch> {
        let column = self.column_of::<T>(Kind::Packed, &[data.len()])?;
        let declared = || column.field.clone();
        if !same(column.field.shape.row_dims(), item) {
            return Err(Problem::Items { declared: declared(), found: item.into() }.into());
        }
        // `Layout::new` lets no item be empty.
        let (size, rows, row) = (column.field.shape.row_elements(), self.layout.rows, self.row);
        if !data.len().is_multiple_of(size) {
            return Err(Problem::Uneven { declared: declared(), found: data.len() }.into());
        }
        let found = data.len() / size;
        // SAFETY: a packed column has an i64 for each row there and one more, all of them ours (`new`).
        let ends = unsafe { std::slice::from_raw_parts_mut(self.slot.add(column.ends).cast::<i64>(), rows + 1) };
        let before = ends[row] as usize;
        // SAFETY: the slot is ours, as the layout is sequential.
        let items = unsafe { self.room(column, ends, found)? };
        self.next += 1;
        ends[row + 1] = (before + found) as i64;
        // SAFETY: as for `fill`, from item `before` on: it and `found` more are no more than there is room for.
        unsafe {
            let to = items.cast::<T>().add(before * size);
            std::ptr::copy_nonoverlapping(data.as_ptr(), to, data.len());
        }
        Ok(())
    }

    /// Where a packed column has its items, which are as many as `ends` says before this row, with room for `found` more.
    ///
    /// What is there is never less than any of the column's `ends`, whichever batch they are of: they are what was written
    /// at some time, room is only added to, and when it is taken away, they are cleared.
    ///
    /// # Safety
    ///
    /// Nobody else may read or write the slot, and `ends` must be the column's.
    #[inline]
    unsafe fn room(&self, column: &Column, ends: &mut [i64], found: usize) -> Result<*mut u8, Mismatch> {
        let (before, room) = (ends[self.row] as usize, column.field.shape.rows() * self.layout.rows);
        // SAFETY: the column begins inside the slot.
        let items = unsafe { self.slot.add(column.offset) };
        match column.spill {
            // SAFETY: the caller's word; `Layout::spilling` put a spill there, and zeros are one.
            Some(at) => unsafe {
                let spill = &mut *self.slot.add(at).cast::<Spill>();
                self.room_or_spill(column, spill, items, ends, found)
            },
            None if before > room || found > room - before => Err(self.full(column, before, found, room)),
            None => Ok(items),
        }
    }

    /// The same of a column that may spill: from its own memory to the heap, and there to a greater piece.
    ///
    /// # Safety
    ///
    /// As of `room`, with the column's spill and the items in its own memory.
    unsafe fn room_or_spill(
        &self,
        column: &Column,
        spill: &mut Spill,
        items: *mut u8,
        ends: &mut [i64],
        found: usize,
    ) -> Result<*mut u8, Mismatch> {
        let before = ends[self.row] as usize;
        // The first items of another batch.
        if before == 0 && spill.free() {
            ends.fill(0);
        }
        let item = column.field.item_bytes();
        let (items, room) = match spill.memory() {
            Some((memory, bytes)) => (memory, bytes / item),
            None => (items, column.field.shape.rows() * self.layout.rows),
        };
        // The items before fit: they were written there, or moved by `grow` to where there is more; a piece of the heap is let go
        // of with the last items in it (above), or with the slot.
        if room.checked_sub(before).is_some_and(|free| found <= free) {
            return Ok(items);
        }
        let bytes = before.saturating_add(found).saturating_mul(item);
        // SAFETY: the items before are there (see `room`).
        let grown = unsafe { spill.grow(items, before * item, bytes) };
        grown.ok_or_else(|| Problem::NoMemory { declared: column.field.clone(), bytes }.into())
    }

    #[cold]
    fn full(&self, column: &Column, before: usize, found: usize, room: usize) -> Mismatch {
        let declared = column.field.clone();
        Problem::Full { declared, row: self.row, rows: self.layout.rows, before, found, room }.into()
    }

    /// Leaves the row without items in the packed fields, whatever was written: the next one begins where it does.
    pub(crate) fn leave_empty(self) {
        let (layout, row) = (self.layout, self.row);
        for column in layout.columns.iter().filter(|column| column.field.kind == Kind::Packed) {
            // SAFETY: as for `write_packed`.
            let ends =
                unsafe { std::slice::from_raw_parts_mut(self.slot.add(column.ends).cast::<i64>(), layout.rows + 1) };
            ends[row + 1] = ends[row];
        }
    }

    /// Writes a [run](super::Fields::named_run) of fields by `write`, and checks that it wrote the whole run that was declared
    /// here: after one field less, the next part of the sample would be written into the rest of the run.
    ///
    /// # Errors
    ///
    /// What `write` fails with, or a [`Mismatch`] if it wrote another number of fields than the run has. Where no run was
    /// declared (a dataset may list its fields itself), the number is not checked.
    pub fn write_run(&mut self, write: impl FnOnce(&mut Self) -> Result<(), BoxError>) -> Result<(), BoxError> {
        let first = self.next;
        let declared = self.layout.columns.get(first).map_or(0, |column| column.field.run);
        write(self)?;
        match self.next.saturating_sub(first) {
            found if declared != 0 && declared != found => Err(Mismatch::from(Problem::Run { declared, found }).into()),
            _ => Ok(()),
        }
    }

    /// The name that the next field was given in a [run](super::Fields::named_run); `None` if it was given none, or no field
    /// is left. A sample compares it with its own part, since the dtype and shape of two parts may well be the same.
    pub fn next_part(&self) -> Option<&'a str> {
        let layout = self.layout;
        layout.columns.get(self.next)?.field.part.as_deref()
    }

    /// Whether every field was written.
    #[inline]
    pub(crate) fn finish(self) -> Result<(), Mismatch> {
        let (declared, found) = (self.layout.columns.len(), self.next);
        if declared == found { Ok(()) } else { Err(Problem::Count { declared, found }.into()) }
    }

    /// The next field. It counts as written (`next`) only when it is, so that a sample which swallows an error is found
    /// out in `finish`.
    #[inline(always)]
    fn column(&self) -> Result<&'a Column, Mismatch> {
        let (layout, next) = (self.layout, self.next);
        let count = || Problem::Count { declared: layout.columns.len(), found: next.saturating_add(1) };
        layout.columns.get(next).ok_or_else(|| count().into())
    }

    /// The next field, if it is one of this kind, of `T`; `shape` is what the sample has.
    #[inline]
    fn column_of<T: Element>(&self, kind: Kind, shape: &[usize]) -> Result<&'a Column, Mismatch> {
        let column = self.column()?;
        if column.field.dtype != T::DTYPE {
            return Err(column.other(T::DTYPE, shape));
        }
        if column.field.kind != kind {
            return Err(column.otherwise());
        }
        Ok(column)
    }

    /// The next field, if it is one of fixed shape, and this one.
    #[inline(always)]
    fn fixed(&self, dtype: DType, shape: &[usize]) -> Result<&'a Column, Mismatch> {
        let column = self.column()?;
        if column.field.dtype != dtype || !same(column.field.shape.dims(), shape) || column.field.kind != Kind::Fixed {
            return Err(column.other(dtype, shape));
        }
        Ok(column)
    }

    /// The memory of the next field, which was found to be `column`, of `T`; it counts as written.
    #[inline(always)]
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
    fn other(&self, dtype: DType, shape: &[usize]) -> Mismatch {
        let declared = self.field.clone();
        match Shape::new(shape) {
            Ok(shape) if declared.kind == Kind::Fixed || dtype != declared.dtype => {
                Problem::Other { declared, dtype, shape }.into()
            }
            _ => self.otherwise(),
        }
    }

    /// The error of a sample that has something of another kind here.
    #[cold]
    fn otherwise(&self) -> Mismatch {
        Problem::Kind { declared: self.field.clone() }.into()
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
