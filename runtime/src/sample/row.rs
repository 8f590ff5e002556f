//! Functions by which a sample writes itself into its row.

use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;

use super::layout::{Column, INDICES, Kind, Layout};
use super::mismatch::{Mismatch, Problem};
use super::spill::Spill;
use super::width::RowWidth;
use crate::BoxError;
use crate::array::AnyArray;
use crate::dtype::{DType, Element, element, for_dtype};
use crate::shape::Shape;
use crate::streaming;
use crate::tensor::AnyTensorView;

/// The row of a batch that a sample writes itself into, field by field in declaration order.
pub struct Row<'a> {
    pub(super) layout: &'a Layout,
    /// The start of the cell, which is the memory of the batch.
    pub(super) cell: *mut u8,
    /// The number of the row, below `layout.rows`.
    pub(super) row: usize,
    /// The number of the next field.
    pub(super) next: usize,
    /// Stands for exclusive access to the row's bytes.
    memory: PhantomData<&'a mut u8>,
}

impl<'a> Row<'a> {
    /// Makes row `row`, counted from 0, of a cell (the memory of one batch).
    ///
    /// # Safety
    ///
    /// `cell` must be the start of a cell with this layout, aligned to its fields, with every byte
    /// initialised by zeros or by rows of this layout. `row` must be below the layout's number of
    /// rows. For `'a`, no other code may read or write that row. If the layout is sequential, no
    /// other code may read or write any other row, either.
    ///
    /// The rows of a sequential layout should be written from first to last. In another order they
    /// get wrong items, but every item is one that was written into the field.
    #[inline]
    pub(crate) unsafe fn new(layout: &'a Layout, cell: *mut u8, row: usize) -> Self {
        debug_assert!(row < layout.rows);
        Self { layout, cell, row, next: 0, memory: PhantomData }
    }

    /// Records the dataset index of the row's sample.
    #[inline]
    pub(crate) fn set_index(&mut self, index: i64) {
        // SAFETY: the indices of all rows come first in the cell, and this index belongs to this
        // row.
        unsafe { self.cell.add(INDICES).cast::<i64>().add(self.row).write(index) }
    }

    /// Writes the next field from `data`, in C order, which must have exactly the declared `shape`.
    ///
    /// # Errors
    ///
    /// If the dtype, the shape, or the number of elements differs from the declaration.
    #[inline(always)]
    pub fn write<T: Element>(&mut self, data: &[T], shape: &[usize]) -> Result<(), Mismatch> {
        let column = self.fixed(T::DTYPE, shape)?;
        if column.elements != data.len() {
            return Err(column.other(T::DTYPE, &[data.len()]));
        }
        self.next += 1;
        // SAFETY: see `fill`; the row is exclusive, so `data` is not part of it.
        unsafe { self.copy(data.as_ptr().cast(), self.address(column), size_of_val(data)) };
        Ok(())
    }

    /// Writes the next field, which must be one number.
    ///
    /// # Errors
    ///
    /// If the dtype or shape differs from the declaration.
    #[inline(always)]
    pub fn write_one<T: Element>(&mut self, value: T) -> Result<(), Mismatch> {
        self.fill(&[])?[0] = value;
        Ok(())
    }

    /// Returns the memory of the next field, which the caller must write. Every element must be
    /// written, since the memory still contains elements of an earlier batch.
    ///
    /// # Errors
    ///
    /// If the dtype or shape differs from the declaration.
    #[inline(always)]
    pub fn fill<T: Element>(&mut self, shape: &[usize]) -> Result<&mut [T], Mismatch> {
        let column = self.fixed(T::DTYPE, shape)?;
        Ok(self.elements(column))
    }

    /// Writes the next field from a tensor whose dtype is known only at run time.
    ///
    /// # Errors
    ///
    /// If the dtype or shape differs from the declaration.
    #[inline]
    pub fn write_any(&mut self, data: &AnyTensorView<'_>) -> Result<(), Mismatch> {
        // SAFETY: a tensor has as many valid elements of its dtype as its shape requires.
        unsafe { self.write_tensor(data.dtype(), data.shape(), data.bytes()) }
    }

    /// Writes the next field from row `i` of an array, without copying the shape of the row as a
    /// view would.
    ///
    /// # Panics
    ///
    /// If the array has no such row.
    #[inline]
    pub(super) fn write_row_of(&mut self, array: &AnyArray, i: usize) -> Result<(), Mismatch> {
        // SAFETY: a row of an array is a tensor of this dtype and shape.
        unsafe { self.write_tensor(array.dtype(), array.row_shape(), array.row_bytes(i)) }
    }

    /// Makes field `i`, in declaration order, the next one. For samples whose fields come in
    /// another order, or all at once. This is not checked: a field that is never written keeps the
    /// contents of an earlier batch. The caller must write every field, and at the end move past
    /// the last one.
    pub fn go_to(&mut self, i: usize) {
        self.next = i;
    }

    /// Returns the number of the next field, in declaration order.
    pub fn next_field(&self) -> usize {
        self.next
    }

    /// Returns the memory of the next field as bytes, for a field of fixed shape and any dtype. The
    /// field counts as written.
    ///
    /// The memory is returned as a pointer, for foreign code (FFI). Such code must write valid
    /// elements of the dtype (for `Bool`, only 0 and 1), and may write only while it borrows the
    /// row.
    ///
    /// # Errors
    ///
    /// If the field is padded or packed, or there are no more fields.
    pub fn fill_raw(&mut self) -> Result<NonNull<[u8]>, Mismatch> {
        let column = self.column()?;
        if column.field.kind != Kind::Fixed {
            return Err(column.otherwise());
        }
        self.next += 1;
        let start = NonNull::new(self.address(column)).expect("a cell is not null");
        Ok(NonNull::slice_from_raw_parts(start, column.stride))
    }

    /// Writes the next field, of any kind, from all elements of `data` in C order. The shape of
    /// `data` is ignored. Its number of elements must be exactly that of a field of fixed shape, at
    /// most the maximum of a field that is padded to a maximum, any number for a field that is
    /// padded to the longest sample, and a multiple of the item size of a packed field.
    ///
    /// # Errors
    ///
    /// Those of [`write`](Self::write), [`write_padded_to_max`](Self::write_padded_to_max) and
    /// [`write_packed`](Self::write_packed).
    pub fn write_elements(&mut self, data: &AnyTensorView<'_>) -> Result<(), Mismatch> {
        fn typed<T: Element>(row: &mut Row<'_>, column: &Column, data: &AnyTensorView<'_>) -> Result<(), Mismatch> {
            let elements = column.elements_of::<T>(data)?;
            match column.field.kind {
                Kind::Fixed => row.write(elements, column.field.shape.dims()),
                Kind::PaddedToMax => row.write_padded_to_max(elements),
                Kind::PaddedToLongest => row.write_padded_like(data, RowWidth::default()),
                Kind::Packed => row.write_packed(elements, column.field.shape.row_dims()),
            }
        }
        let column = self.column()?;
        for_dtype!(column.field.dtype, T => typed::<T>(self, column, data))
    }

    /// Writes the next field, which must be padded to a maximum or to the longest sample of the
    /// batch, from all elements of `data` in C order, as [`PaddedToMax`](super::PaddedToMax) and
    /// [`PaddedToLongest`](super::PaddedToLongest) do. `padding` is one element. `multiple` has no
    /// effect on a field that is padded to a maximum.
    ///
    /// # Errors
    ///
    /// If the dtype differs, `padding` is not one element, or there is no room for the elements.
    pub fn write_padded(
        &mut self,
        data: &AnyTensorView<'_>,
        padding: &AnyTensorView<'_>,
        multiple: usize,
    ) -> Result<(), Mismatch> {
        fn typed<T: Element>(
            row: &mut Row<'_>,
            column: &Column,
            data: &[T],
            padding: &AnyTensorView<'_>,
            multiple: usize,
        ) -> Result<(), Mismatch> {
            let padding = column.one_of(padding)?;
            row.fill_any_padded(data.len(), padding, multiple)?.copy_from_slice(data);
            Ok(())
        }
        let column = self.column()?;
        for_dtype!(column.field.dtype, T => typed::<T>(self, column, column.elements_of(data)?, padding, multiple))
    }

    /// Writes the next field, which must be padded to a maximum or to the longest sample of the
    /// batch, as the [`Mask`](super::Mask) of a sample of `len` elements: `len` copies of `present`,
    /// which is one element, padded with zeros. `multiple` has no effect on a field that is padded
    /// to a maximum.
    ///
    /// # Errors
    ///
    /// If the dtype differs, `present` is not one element, or there is no room for the elements.
    pub fn write_mask(&mut self, present: &AnyTensorView<'_>, len: usize, multiple: usize) -> Result<(), Mismatch> {
        fn typed<T: Element>(row: &mut Row<'_>, present: T, len: usize, multiple: usize) -> Result<(), Mismatch> {
            let zero = element(0).expect("all types have a zero");
            row.fill_any_padded(len, zero, multiple)?.fill(present);
            Ok(())
        }
        let column = self.column()?;
        for_dtype!(column.field.dtype, T => typed::<T>(self, column.one_of(present)?, len, multiple))
    }

    /// Writes the next field, which must be padded to a maximum, from a whole row of such a field:
    /// `len` elements and their padding.
    pub(super) fn copy_padded_to_max(&mut self, all: &AnyTensorView<'_>, len: usize) -> Result<(), Mismatch> {
        fn typed<T: Element>(row: &mut Row<'_>, all: &[T], len: usize) -> Result<(), Mismatch> {
            row.fill_padded_to_max(len)?.copy_from_slice(all);
            Ok(())
        }
        let column = self.column()?;
        for_dtype!(column.field.dtype, T => match column.elements_of::<T>(all)? {
            all if all.len() == column.elements => typed(self, all, len),
            _ => Err(column.other(all.dtype(), all.shape())),
        })
    }

    /// Returns memory for `len` elements of the next field, which is padded in either way; the
    /// padding is already written.
    fn fill_any_padded<T: Element>(&mut self, len: usize, padding: T, multiple: usize) -> Result<&mut [T], Mismatch> {
        if self.column()?.field.kind != Kind::PaddedToMax {
            return self.fill_padded(len, padding, multiple);
        }
        let (own, rest) = self.fill_padded_to_max(len)?.split_at_mut(len);
        rest.fill(padding);
        Ok(own)
    }

    /// Writes the next field, which must be [padded to a maximum](super::Fields::padded_to_max):
    /// writes `data`, zeros up to the maximum, and the length.
    ///
    /// # Errors
    ///
    /// If the dtype differs, or `data` is longer than the declared maximum.
    #[inline]
    pub fn write_padded_to_max<T: Element>(&mut self, data: &[T]) -> Result<(), Mismatch> {
        let column = self.column_of::<T>(Kind::PaddedToMax, &[data.len()])?;
        if data.len() > column.elements {
            return Err(Problem::TooLong { declared: column.field.clone(), found: data.len() }.into());
        }
        self.next += 1;
        let to = self.address(column);
        // SAFETY: see `fill`. There are at most `elements` elements, and zero bytes are a value of
        // every element type. The lengths, an i64 for each row, are separate from the elements.
        unsafe {
            self.copy(data.as_ptr().cast(), to, size_of_val(data));
            std::ptr::write_bytes(to.add(size_of_val(data)), 0, column.stride - size_of_val(data));
            self.cell.add(column.ends).cast::<i64>().add(self.row).write(data.len() as i64);
        }
        Ok(())
    }

    /// Returns the memory of the next field, which must be [padded to a
    /// maximum](super::Fields::padded_to_max), with room for the maximum, and sets its length to
    /// `len`. Every element must be written, including the padding.
    ///
    /// # Errors
    ///
    /// If the dtype differs, or `len` is greater than the declared maximum.
    pub fn fill_padded_to_max<T: Element>(&mut self, len: usize) -> Result<&mut [T], Mismatch> {
        let column = self.column_of::<T>(Kind::PaddedToMax, &[len])?;
        if len > column.elements {
            return Err(Problem::TooLong { declared: column.field.clone(), found: len }.into());
        }
        // SAFETY: the lengths, an i64 for each row, are separate from the elements.
        unsafe { self.cell.add(column.ends).cast::<i64>().add(self.row).write(len as i64) };
        Ok(self.elements(column))
    }

    /// Writes the next field, which must be packed. `data` consists of items of the declared shape
    /// `item` in C order, which follow directly after those of the previous row.
    ///
    /// # Errors
    ///
    /// If the dtype or shape differs from the declaration, the last item is incomplete, or the batch does not have
    /// enough room, unless the loader lets the items [spill](crate::loader::Overflow::Spill).
    pub fn write_packed<T: Element>(&mut self, data: &[T], item: &[usize]) -> Result<(), Mismatch> {
        let column = self.column_of::<T>(Kind::Packed, &[data.len()])?;
        if !same(column.field.shape.row_dims(), item) {
            return Err(Problem::Items { declared: column.field.clone(), found: item.into() }.into());
        }
        let to = self.extend(column, data.len())?;
        // SAFETY: `extend` has made room for this many elements of `T`.
        unsafe { self.copy(data.as_ptr().cast(), to, size_of_val(data)) };
        Ok(())
    }

    /// Writes the next field from the bytes of its elements, which are in the machine's byte order
    /// and need not be aligned. There must be exactly as many as a field of fixed shape has, or any
    /// number of complete items of a packed field.
    ///
    /// # Errors
    ///
    /// If the dtype or the number of elements differs from the declaration, the field is padded, a `Bool` is neither 0
    /// nor 1, or a packed field has no room (see [`write_packed`](Self::write_packed)).
    pub fn write_bytes(&mut self, dtype: DType, bytes: &[u8]) -> Result<(), Mismatch> {
        let column = self.column()?;
        // Computed only for an error, since a division takes longer than everything else that
        // writing a number needs.
        let elements = || bytes.len() / dtype.size();
        if column.field.dtype != dtype {
            return Err(column.other(dtype, &[elements()]));
        }
        if dtype == DType::Bool && bytes.iter().any(|&byte| byte > 1) {
            return Err(Problem::Bool { declared: column.field.clone() }.into());
        }
        let to = match column.field.kind {
            Kind::Fixed if bytes.len() == column.stride => {
                self.next += 1;
                self.address(column)
            }
            Kind::Packed if bytes.len().is_multiple_of(dtype.size()) => self.extend(column, elements())?,
            Kind::Fixed | Kind::Packed => return Err(column.other(dtype, &[elements()])),
            Kind::PaddedToMax | Kind::PaddedToLongest => return Err(column.otherwise()),
        };
        // SAFETY: see `fill`, or `extend` has made room for this many elements. The bytes are valid
        // elements, since any bits are a value of every element type except bool, whose values were
        // checked.
        unsafe { self.copy(bytes.as_ptr(), to, bytes.len()) };
        Ok(())
    }

    /// Extends the next field, which is the packed `column`, by this many elements, and returns a
    /// pointer to where the caller must write them. The field counts as written.
    #[inline(always)]
    fn extend(&mut self, column: &Column, elements: usize) -> Result<*mut u8, Mismatch> {
        // `Layout::new` rejects empty items, so `size` is not 0.
        let (size, rows, row) = (column.field.shape.row_elements(), self.layout.rows, self.row);
        if !elements.is_multiple_of(size) {
            return Err(Problem::Uneven { declared: column.field.clone(), found: elements }.into());
        }
        let found = elements / size;
        // SAFETY: a packed column has one i64 more than it has rows at this offset, all of them
        // exclusive to this row (`new`).
        let ends = unsafe { std::slice::from_raw_parts_mut(self.cell.add(column.ends).cast::<i64>(), rows + 1) };
        let before = ends[row] as usize;
        // SAFETY: this row has exclusive access to the cell, as the layout is sequential.
        let items = unsafe { self.reserve_packed(column, ends, found)? };
        self.next += 1;
        ends[row + 1] = (before + found) as i64;
        // SAFETY: `reserve_packed` returned memory for `before` items and `found` more.
        Ok(unsafe { items.add(before * column.field.item_bytes()) })
    }

    /// Returns a pointer to a packed column's items. The memory contains the items of the rows
    /// before this one, and has room for `found` more items.
    ///
    /// The memory always has room for all items that the column's `ends` count, including those of
    /// earlier batches: the items counted there were written at some time, the capacity only grows, and
    /// when heap memory is freed, `ends` are cleared.
    ///
    /// # Safety
    ///
    /// No other code may read or write the cell, and `ends` must be those of the column.
    #[inline]
    unsafe fn reserve_packed(&self, column: &Column, ends: &mut [i64], found: usize) -> Result<*mut u8, Mismatch> {
        let (before, capacity) = (ends[self.row] as usize, column.field.shape.rows() * self.layout.rows);
        // SAFETY: the column begins inside the cell.
        let items = unsafe { self.cell.add(column.offset) };
        match column.spill {
            // SAFETY: the caller has exclusive access to the cell. `Layout::spilling` put a spill
            // at this offset, and zeros are a valid spill.
            Some(at) => unsafe {
                let spill = &mut *self.cell.add(at).cast::<Spill>();
                self.reserve_or_spill(column, spill, items, ends, found)
            },
            None if before > capacity || found > capacity - before => Err(self.full(column, before, found, capacity)),
            None => Ok(items),
        }
    }

    /// Works like [`reserve_packed`](Self::reserve_packed), for a column that may spill: if the items do not fit, moves
    /// them from the cell to the heap, or to a larger heap allocation.
    ///
    /// # Safety
    ///
    /// Those of `reserve_packed`. `spill` must be the column's, and `items` the column's memory in the cell.
    unsafe fn reserve_or_spill(
        &self,
        column: &Column,
        spill: &mut Spill,
        items: *mut u8,
        ends: &mut [i64],
        found: usize,
    ) -> Result<*mut u8, Mismatch> {
        let before = ends[self.row] as usize;
        // No items before this row: a new batch begins.
        if before == 0 && spill.free() {
            ends.fill(0);
        }
        let kept = before * column.field.item_bytes();
        // SAFETY: the caller upholds the contract, and the items before this row were written there
        // (see `reserve_packed`).
        unsafe { self.reserve_items(column, spill, items, kept, before.saturating_add(found), false) }
    }

    /// Returns a pointer to memory for `items` items of a column that may spill, in the cell or on
    /// the heap. The first `kept` bytes of the column's items are preserved. If `is_first`, the first
    /// row of another batch is being written, and the heap memory of the last batch is freed.
    ///
    /// # Safety
    ///
    /// Those of `reserve_packed`. `spill` must be the column's, and `start` the column's memory in the cell.
    /// The first `kept` bytes must have been written there or on the heap.
    pub(super) unsafe fn reserve_items(
        &self,
        column: &Column,
        spill: &mut Spill,
        start: *mut u8,
        kept: usize,
        items: usize,
        is_first: bool,
    ) -> Result<*mut u8, Mismatch> {
        if is_first {
            spill.free();
        }
        let item = column.field.item_bytes();
        let (start, capacity) = match spill.memory() {
            Some((memory, bytes)) => (memory, bytes / item),
            None => (start, column.field.shape.rows() * self.layout.rows),
        };
        // Rows that were left empty may lie beyond the capacity.
        let kept = kept.min(capacity * item);
        if items <= capacity {
            return Ok(start);
        }
        let bytes = items.saturating_mul(item);
        // SAFETY: the caller guarantees that the kept bytes can be read.
        let grown = unsafe { spill.grow(start, kept, bytes) };
        grown.ok_or_else(|| Problem::NoMemory { declared: column.field.clone(), bytes }.into())
    }

    #[cold]
    fn full(&self, column: &Column, before: usize, found: usize, capacity: usize) -> Mismatch {
        let declared = column.field.clone();
        Problem::Full { declared, row: self.row, rows: self.layout.rows, before, found, capacity }.into()
    }

    /// Leaves the row empty in the packed fields, even if items were written. The next row begins
    /// where this one does.
    pub(crate) fn leave_empty(self) {
        let (layout, row) = (self.layout, self.row);
        for column in layout.columns.iter().filter(|column| column.field.kind == Kind::Packed) {
            // SAFETY: see `write_packed`.
            let ends =
                unsafe { std::slice::from_raw_parts_mut(self.cell.add(column.ends).cast::<i64>(), layout.rows + 1) };
            ends[row + 1] = ends[row];
        }
        self.leave_empty_longest();
    }

    /// Writes a [run](super::Fields::named_run) of fields with `write`, and checks that it wrote
    /// the whole run that was declared here. Otherwise, if it wrote one field too few, the next
    /// part of the sample would be written into the rest of the run.
    ///
    /// # Errors
    ///
    /// The error of `write`, or a [`Mismatch`] if it wrote a different number of fields than the
    /// run has. If no run was declared (the dataset may list its fields itself), the number is not
    /// checked.
    pub fn write_run(&mut self, write: impl FnOnce(&mut Self) -> Result<(), BoxError>) -> Result<(), BoxError> {
        let first = self.next;
        let declared = self.layout.columns.get(first).map_or(0, |column| column.field.run);
        write(self)?;
        match self.next.saturating_sub(first) {
            found if declared != 0 && declared != found => Err(Mismatch::from(Problem::Run { declared, found }).into()),
            _ => Ok(()),
        }
    }

    /// Returns the name of the next field's part in a [run](super::Fields::named_run); `None` if it
    /// has no name, or there are no more fields. A sample should compare it with its own name for
    /// the part, since two fields may have the same dtype and shape.
    pub fn next_part(&self) -> Option<&'a str> {
        let layout = self.layout;
        layout.columns.get(self.next)?.field.part.as_deref()
    }

    /// Checks that every field was written.
    #[inline]
    pub(crate) fn finish(self) -> Result<(), Mismatch> {
        let (declared, found) = (self.layout.columns.len(), self.next);
        if declared == found { Ok(()) } else { Err(Problem::Count { declared, found }.into()) }
    }

    /// Returns the next field. `next` is advanced only when the field is written, so that `finish`
    /// detects a sample that ignores an error.
    #[inline(always)]
    pub(super) fn column(&self) -> Result<&'a Column, Mismatch> {
        let (layout, next) = (self.layout, self.next);
        let count = || Problem::Count { declared: layout.columns.len(), found: next.saturating_add(1) };
        layout.columns.get(next).ok_or_else(|| count().into())
    }

    /// Returns the next field, if it has this kind and dtype `T`. `shape` is the sample's shape,
    /// for the error.
    #[inline]
    pub(super) fn column_of<T: Element>(&self, kind: Kind, shape: &[usize]) -> Result<&'a Column, Mismatch> {
        let column = self.column()?;
        if column.field.dtype != T::DTYPE {
            return Err(column.other(T::DTYPE, shape));
        }
        if column.field.kind != kind {
            return Err(column.otherwise());
        }
        Ok(column)
    }

    /// Returns the next field, if it has exactly this dtype and fixed shape.
    #[inline(always)]
    fn fixed(&self, dtype: DType, shape: &[usize]) -> Result<&'a Column, Mismatch> {
        let column = self.column()?;
        if column.field.dtype != dtype || !same(column.field.shape.dims(), shape) || column.field.kind != Kind::Fixed {
            return Err(column.other(dtype, shape));
        }
        Ok(column)
    }

    /// Returns the memory of the next field, `column`, as elements of type `T`. The field counts as written.
    #[inline(always)]
    fn elements<T: Element>(&mut self, column: &Column) -> &mut [T] {
        debug_assert_eq!(column.field.dtype, T::DTYPE);
        self.next += 1;
        // SAFETY: the column has `elements` elements of `T` in each row, aligned by its offset and
        // stride. Only zeros and elements of this column were ever written there. The row is
        // exclusive (`new`).
        unsafe { std::slice::from_raw_parts_mut(self.address(column).cast(), column.elements) }
    }

    /// Writes the next field from the bytes of a tensor.
    ///
    /// # Safety
    ///
    /// The bytes must be valid elements of this dtype, as many as a tensor of this shape has.
    #[inline]
    unsafe fn write_tensor(&mut self, dtype: DType, shape: &[usize], bytes: &[u8]) -> Result<(), Mismatch> {
        let column = self.fixed(dtype, shape)?;
        debug_assert_eq!(bytes.len(), column.stride);
        self.next += 1;
        // SAFETY: see `fill`; the field has as many bytes as a tensor of its shape.
        unsafe { self.copy(bytes.as_ptr(), self.address(column), bytes.len()) };
        Ok(())
    }

    /// Copies bytes into the row, past the caches if the layout asks for it and there are enough of
    /// them.
    ///
    /// # Safety
    ///
    /// Those of [`copy_nonoverlapping`](std::ptr::copy_nonoverlapping).
    #[inline(always)]
    pub(super) unsafe fn copy(&self, from: *const u8, to: *mut u8, len: usize) {
        if len >= streaming::MIN && self.layout.streaming {
            // SAFETY: the caller guarantees it.
            unsafe { streaming::copy(from, to, len) }
        } else {
            // SAFETY: the caller guarantees it.
            unsafe { std::ptr::copy_nonoverlapping(from, to, len) }
        }
    }

    #[inline]
    pub(super) fn address(&self, column: &Column) -> *mut u8 {
        // SAFETY: the row is below the layout's number of rows, so the result is inside the cell.
        unsafe { self.cell.add(column.offset + self.row * column.stride) }
    }
}

impl Column {
    /// Makes the error for a sample with another dtype or shape than this column.
    #[cold]
    pub(super) fn other(&self, dtype: DType, shape: &[usize]) -> Mismatch {
        let declared = self.field.clone();
        match Shape::new(shape) {
            Ok(shape) if declared.kind == Kind::Fixed || dtype != declared.dtype => {
                Problem::Other { declared, dtype, shape }.into()
            }
            _ => self.otherwise(),
        }
    }

    /// Returns all elements of `data`, if they have the column's type, which is `T`.
    pub(super) fn elements_of<'d, T: Element>(&self, data: &AnyTensorView<'d>) -> Result<&'d [T], Mismatch> {
        let data = data.typed::<T>().ok_or_else(|| self.other(data.dtype(), data.shape()));
        data.map(|data| data.as_slice())
    }

    /// Returns the only element of `data`, if it has the column's type, which is `T`.
    fn one_of<T: Element>(&self, data: &AnyTensorView<'_>) -> Result<T, Mismatch> {
        match self.elements_of(data)? {
            &[one] => Ok(one),
            _ => Err(self.other(data.dtype(), data.shape())),
        }
    }

    /// Makes the error for a sample with another kind of field than this column.
    #[cold]
    fn otherwise(&self) -> Mismatch {
        Problem::Kind { declared: self.field.clone() }.into()
    }
}

/// Returns whether two shapes are equal. Uses a loop, since a call of `memcmp` is slower for such
/// short slices.
#[inline]
fn same(a: &[usize], b: &[usize]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a == b)
}

impl fmt::Debug for Row<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Row").field("row", &self.row).field("next_field", &self.next).finish_non_exhaustive()
    }
}
