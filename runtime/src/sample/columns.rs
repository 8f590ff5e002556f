//! Access to the fields of a batch as tensors.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::NonNull;

use super::layout::{Column, Field, INDICES, Kind, Layout};
use super::longest;
use super::spill::Spill;
use crate::dtype::Element;
use crate::shape::Shape;
use crate::tensor::{AnyTensorView, TensorView};

/// The fields of a batch as tensors, in declaration order.
///
/// For an unbatched sample, each tensor has the field's own shape, without a first dimension for the rows.
#[derive(Clone, Copy)]
pub struct Columns<'a> {
    columns: &'a [Column],
    cell: *const u8,
    /// The number of rows of the batch, at most `layout_rows`.
    rows: usize,
    /// The number of rows of a full batch.
    layout_rows: usize,
    /// Whether the tensors have a first dimension for the rows. If not, there is one row.
    batched: bool,
    next: usize,
    memory: PhantomData<&'a u8>,
}

/// The position of a batch's field in [`Columns::bytes`]. Each tensor begins at a multiple of 256
/// bytes from the first one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldBytes {
    /// The byte range of the elements.
    pub data: Range<usize>,
    /// The shape of the elements, as in [`Columns::get`].
    pub shape: Shape,
    /// The byte range of [`lengths`](Columns::lengths) or [`offsets`](Columns::offsets), one `i64`
    /// each, if the field has them.
    pub ends: Option<Range<usize>>,
    /// Whether the elements are on the heap instead, because the batch had [no
    /// room](crate::loader::Overflow::Spill) for them. `data` is then empty.
    pub spilled: bool,
}

impl<'a> Columns<'a> {
    /// Makes the columns of the first `rows` rows of a cell (the memory of one batch).
    ///
    /// # Safety
    ///
    /// Those of [`Row::new`]. The first `rows` rows must be fully written, and no code may write to
    /// them for `'a`.
    #[inline]
    pub(crate) unsafe fn new(layout: &'a Layout, cell: *const u8, rows: usize) -> Self {
        debug_assert!(rows <= layout.rows);
        Self {
            columns: &layout.columns,
            cell,
            rows,
            layout_rows: layout.rows,
            batched: true,
            next: 0,
            memory: PhantomData,
        }
    }

    /// Makes the columns of row 0 only, without the first dimension for the rows.
    ///
    /// # Safety
    ///
    /// Those of [`new`](Self::new), with one row.
    #[inline]
    pub(crate) unsafe fn single(layout: &'a Layout, cell: *const u8) -> Self {
        // SAFETY: the caller upholds the contract of `new` for one row.
        Self { batched: false, ..unsafe { Self::new(layout, cell, 1) } }
    }

    /// Returns the number of fields.
    pub fn len(&self) -> usize {
        self.columns.len()
    }

    /// Returns whether there are no fields.
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// Returns the declaration of field `i`; `None` if there is no field `i`.
    pub fn field(&self, i: usize) -> Option<&'a Field> {
        self.columns.get(i).map(|column| &column.field)
    }

    /// Returns field `i` of the batch, with shape `[rows, …]` (`[…]` for an unbatched sample);
    /// `None` if there is no field `i`. The rows of a padded field include the padding. A packed
    /// field has the concatenated items of all rows, with shape `[total, …]`.
    #[inline]
    pub fn get(&self, i: usize) -> Option<AnyTensorView<'a>> {
        self.columns.get(i).map(|column| self.tensor(column))
    }

    /// Returns the number of the field with this name; `None` if there is none. The fields of a
    /// struct that derives `Sample` keep their names, and those of a tuple are named by their
    /// indices: `0`, `1`, and so on.
    ///
    /// ```
    /// use slotline::dataset::from_fn;
    /// use slotline::{Loader, Sample};
    ///
    /// #[derive(Sample)]
    /// struct Point {
    ///     x: f32,
    ///     label: i64,
    /// }
    ///
    /// let points = from_fn(4, |i, _| Ok(Point { x: 0.5, label: i as i64 }));
    /// let mut loader = Loader::builder(points).batch_size(4).build()?.untyped();
    /// let batch = loader.epoch()?.next().expect("a batch")?;
    /// let columns = batch.columns();
    /// let labels = columns.position("label").and_then(|i| columns.get(i)).expect("there are labels");
    /// assert_eq!(labels.typed::<i64>().expect("i64").as_slice(), [0, 1, 2, 3]);
    /// # Ok::<(), slotline::BoxError>(())
    /// ```
    pub fn position(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.field.name() == name)
    }

    /// Returns the memory of field `i`, with the same shape as [`get`](Self::get); `None` if there is no field `i`.
    ///
    /// The memory is returned as a pointer, for foreign code (FFI). Such code may write to it until
    /// the batch is dropped, as long as nothing else reads the field. When the batch is dropped or
    /// copied, the elements must be valid for the field's dtype (for `Bool`, only 0 and 1).
    #[inline]
    pub fn raw(&self, i: usize) -> Option<(Shape, NonNull<[u8]>)> {
        let column = self.columns.get(i)?;
        let (start, shape, elements) = self.extent(column);
        let start = NonNull::new(start.cast_mut()).expect("a cell is not null");
        Some((shape, NonNull::slice_from_raw_parts(start, elements * column.field.dtype.size())))
    }

    /// Returns the number of rows and a pointer to the memory of field `i`, if each row has exactly
    /// the field's declared shape. Works like [`raw`](Self::raw), for code that already knows the
    /// shape. Returns `None` if there is no field `i`, if the field is padded or packed, or for an
    /// unbatched sample.
    #[inline]
    pub fn raw_rows(&self, i: usize) -> Option<(usize, NonNull<u8>)> {
        let column = self.columns.get(i).filter(|column| self.batched && column.field.kind == Kind::Fixed)?;
        // SAFETY: the column begins inside the cell.
        let start = unsafe { self.cell.add(column.offset) };
        Some((self.rows, NonNull::new(start.cast_mut())?))
    }

    /// Returns the length of each row of field `i`, in elements; `None` if the field is not padded.
    pub fn lengths(&self, i: usize) -> Option<&'a [i64]> {
        self.columns.get(i).filter(|column| column.field.is_padded()).map(|column| self.ends(column))
    }

    /// Returns the start of each row of field `i`, in items, followed by the end of the last row.
    /// There is one more entry than there are rows. Returns `None` if the field is not packed.
    pub fn offsets(&self, i: usize) -> Option<&'a [i64]> {
        self.columns.get(i).filter(|column| column.field.is_packed()).map(|column| self.ends(column))
    }

    /// Returns the memory of all fields as one slice, so that it can be copied as a whole. It
    /// extends from the start of the first field to the end of the last one, including the gaps
    /// between them. [`field_bytes`](Self::field_bytes) returns the position of each field.
    pub fn bytes(&self) -> &'a [u8] {
        let first = self.first();
        let end = |i| self.field_bytes(i).map_or(0, |field| field.ends.map_or(field.data.end, |ends| ends.end));
        let len = (0..self.columns.len()).map(end).max().unwrap_or_default();
        // SAFETY: all positions are within the cell, whose memory is initialised, and no code writes to it for `'a`.
        unsafe { std::slice::from_raw_parts(self.cell.add(first), len) }
    }

    /// Returns the position of field `i` in [`bytes`](Self::bytes); `None` if there is no field `i`.
    pub fn field_bytes(&self, i: usize) -> Option<FieldBytes> {
        let column = self.columns.get(i)?;
        let (_, shape, elements) = self.extent(column);
        let from = |offset: usize, len: usize| offset - self.first()..offset - self.first() + len;
        let packed = usize::from(column.field.is_packed());
        let ends = (column.ends > 0).then(|| from(column.ends, (packed + self.rows) * size_of::<i64>()));
        // If there are no rows, the spill may still have the state of an earlier batch.
        let spilled = elements > 0 && self.spill(column).is_some();
        let bytes = if spilled { 0 } else { elements * column.field.dtype.size() };
        Some(FieldBytes { data: from(column.offset, bytes), shape, ends, spilled })
    }

    /// Returns the offset of the first field.
    fn first(&self) -> usize {
        self.columns.first().map_or(INDICES, |column| column.offset)
    }

    /// Takes the next field, in declaration order. For implementations of
    /// [`Schema::tensors`](super::Schema::tensors).
    ///
    /// # Panics
    ///
    /// If there are no more fields, or the elements are not of type `T`, which means that the
    /// schema's `tensors` contradicts the sample's `declare`.
    #[inline(always)] // The caller's compiler can then omit an unused shape.
    pub fn take<T: Element>(&mut self) -> TensorView<'a, T> {
        let column = self.advance();
        assert!(column.field.dtype == T::DTYPE, "field {} is not {}", column.field, T::DTYPE);
        let (start, shape, elements) = self.extent(column);
        // SAFETY: the column has this many elements of `T`, which are aligned, and written or zero
        // (see `Row::fill`).
        let data = unsafe { std::slice::from_raw_parts(start.cast(), elements) };
        TensorView::from_checked(data, shape)
    }

    /// Takes the next field, of any dtype.
    ///
    /// # Panics
    ///
    /// If there are no more fields.
    pub fn take_any(&mut self) -> AnyTensorView<'a> {
        let column = self.advance();
        self.tensor(column)
    }

    /// Takes the next field, which must be padded. Returns its elements, padded to `[rows, max]` or
    /// `[rows, longest]` (`[max]` or `[longest]` for an unbatched sample), and each row's length.
    ///
    /// # Panics
    ///
    /// If there are no more fields, the elements are not of type `T`, or the field is not padded.
    pub fn take_padded<T: Element>(&mut self) -> (TensorView<'a, T>, &'a [i64]) {
        let data = self.take();
        let column = &self.columns[self.next - 1];
        assert!(column.field.is_padded(), "field {} is not padded", column.field);
        (data, self.ends(column))
    }

    /// Takes the next field, which must be packed. Returns the items of all rows, with shape
    /// `[total, …]`, and the start of each row followed by the end of the last one, in items.
    ///
    /// # Panics
    ///
    /// If there are no more fields, the elements are not of type `T`, or the field is not packed.
    pub fn take_packed<T: Element>(&mut self) -> (TensorView<'a, T>, &'a [i64]) {
        let data = self.take();
        let column = &self.columns[self.next - 1];
        assert!(column.field.is_packed(), "field {} is not packed", column.field);
        (data, self.ends(column))
    }

    /// Takes the fields of the next [run](super::Fields::named_run) (a group of fields that are read together), or all
    /// remaining fields if no run begins here.
    pub(crate) fn take_run(&mut self) -> Columns<'a> {
        let left = self.columns.get(self.next..).unwrap_or_default();
        let run = left.first().map_or(0, |column| column.field.run);
        let columns = if run == 0 { left } else { &left[..run.min(left.len())] };
        self.next += columns.len();
        Columns { columns, next: 0, ..*self }
    }

    /// Returns the dataset index of each row.
    #[inline]
    pub(crate) fn indices(&self) -> &'a [i64] {
        // SAFETY: the cell starts with an i64 for each row.
        unsafe { std::slice::from_raw_parts(self.cell.add(INDICES).cast(), self.rows) }
    }

    #[inline]
    fn advance(&mut self) -> &'a Column {
        let Some(column) = self.columns.get(self.next) else { no_more_fields(self.columns.len()) };
        self.next += 1;
        column
    }

    /// Returns the start of this column's tensor, its shape, and its number of elements. The first
    /// dimension can be added to the shape, as `Layout::new` has checked.
    #[inline(always)] // A call would copy the shape through memory twice.
    fn extent(&self, column: &Column) -> (*const u8, Shape, usize) {
        let shape = &column.field.shape;
        // SAFETY: the column begins inside the cell.
        let start = unsafe { self.cell.add(column.offset) };
        match column.field.kind {
            Kind::PaddedToLongest => self.longest(column),
            Kind::Packed => self.packed(column),
            _ if self.batched => (start, shape.stack(self.rows), self.rows * column.elements),
            _ => (start, shape.clone(), column.elements),
        }
    }

    /// Works like [`extent`](Self::extent), for a column that is padded to the longest row. This
    /// function and [`packed`](Self::packed) are not inlined, so that they cost other columns
    /// nothing.
    #[inline(never)]
    fn longest(&self, column: &Column) -> (*const u8, Shape, usize) {
        // SAFETY: the cell is one of this layout, and no code writes it for `'a`.
        let (items, _, bytes) = unsafe { longest::rows(column, self.cell.cast_mut(), self.layout_rows, self.rows) };
        let (row, rows) = (Shape::new(&[bytes / column.field.dtype.size()]).unwrap_or_default(), self.rows);
        let elements = rows * row.rows();
        let shape = if self.batched { row.stack(rows) } else { row };
        (items.cast_const(), shape, elements)
    }

    /// Works like [`extent`](Self::extent), for a packed column. `Row::reserve_packed` ensures that the total
    /// is within the memory.
    #[inline(never)]
    fn packed(&self, column: &Column) -> (*const u8, Shape, usize) {
        let shape = &column.field.shape;
        let total = self.ends(column)[self.rows] as usize;
        // SAFETY: the column begins inside the cell.
        let start = self.spill(column).unwrap_or_else(|| unsafe { self.cell.add(column.offset) });
        (start, shape.row().stack(total), total * shape.row_elements())
    }

    /// Returns the memory of a packed column's items on the heap, if they are there.
    fn spill(&self, column: &Column) -> Option<*const u8> {
        // SAFETY: `Layout::spilling` put a spill at this offset, and no code writes it while the
        // rows are read.
        let spill = unsafe { &*self.cell.add(column.spill?).cast::<Spill>() };
        spill.memory().map(|(start, _)| start.cast_const())
    }

    /// Returns the fields whose contents did not fit in the batch and are on the heap. Each comes with
    /// its number of items if it is packed, or of elements if it is padded to the longest sample.
    pub(crate) fn spilled(&self) -> impl Iterator<Item = (&'a Field, usize)> {
        let spilled = self.columns.iter().filter(|column| self.spill(column).is_some());
        // If there are no rows, the spill may still have the state of an earlier batch.
        let items = |column: &'a Column| match column.field.kind {
            Kind::Packed => self.ends(column)[self.rows] as usize,
            _ => self.extent(column).2,
        };
        spilled.map(move |column| (&column.field, items(column))).filter(|&(_, items)| items > 0)
    }

    #[inline]
    fn tensor(&self, column: &'a Column) -> AnyTensorView<'a> {
        let (start, shape, elements) = self.extent(column);
        // SAFETY: the column has this many elements of its dtype, which are aligned, and written or
        // zero.
        unsafe {
            let bytes = std::slice::from_raw_parts(start, elements * column.field.dtype.size());
            AnyTensorView::from_raw_parts(column.field.dtype, shape, bytes)
        }
    }

    /// Returns the lengths of the rows of a padded field, or the offsets of a packed one.
    fn ends(&self, column: &Column) -> &'a [i64] {
        let first = usize::from(column.field.is_packed());
        // SAFETY: the column has an i64 for each row at this offset, and a packed one an additional
        // 0 before them.
        unsafe { std::slice::from_raw_parts(self.cell.add(column.ends).cast(), first + self.rows) }
    }
}

impl fmt::Debug for Columns<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.columns.iter().map(|column| column.field.to_string())).finish()
    }
}

/// Panics with a message that contains the number of fields. `fields` is passed by value, since a
/// reference would force the caller to keep its variable in memory instead of a register.
#[cold]
#[inline(never)]
fn no_more_fields(fields: usize) -> ! {
    panic!(
        "the batch has {fields} fields, but its schema takes more; a part of a sample without a fixed number of fields must \
         declare them as a run (Fields::named_run)"
    )
}
