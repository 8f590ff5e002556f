//! Reading a batch's columns back.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::NonNull;

use super::layout::{Column, Field, INDICES, Kind, Layout};
use super::spill::Spill;
use crate::dtype::Element;
use crate::shape::Shape;
use crate::tensor::{AnyTensorView, TensorView};

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

/// Where a field of a batch lies in its [`Columns::bytes`]. Places begin at multiples of 256 bytes from the first one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The bytes of its elements.
    pub data: Range<usize>,
    /// The shape that they have, as of [`Columns::get`].
    pub shape: Shape,
    /// The bytes of [`lengths`](Columns::lengths) or [`offsets`](Columns::offsets), an `i64` each, if it has them.
    pub ends: Option<Range<usize>>,
    /// Whether the elements are not there but on the heap, as they [may be](crate::loader::Overflow::Spill) where they found
    /// no room; `data` is then empty.
    pub spilled: bool,
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

    /// Field `i` of the batch, shape `[rows, …]` (of a single sample `[…]`); `None` if there is none. A ragged field is
    /// padded with zeros; a packed one has the items of all rows, one right after the other, shape `[total, …]`.
    #[inline]
    pub fn get(&self, i: usize) -> Option<AnyTensorView<'a>> {
        self.columns.get(i).map(|column| self.tensor(column))
    }

    /// Which field has this name; `None` if there is none. Fields are named by who declares them: those of a derived sample by
    /// the struct's fields, those of a tuple by their place, `0`, `1`, …
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

    /// The memory of field `i`, with the shape that [`get`](Self::get) says; `None` if there is none.
    ///
    /// A pointer, since it is for code that the compiler does not see. Such code may write there as long as the batch lasts and
    /// nothing else reads the field; when the batch is dropped or copied the elements must be valid ones of the field's dtype (for `Bool`,
    /// only 0 and 1).
    #[inline]
    pub fn raw(&self, i: usize) -> Option<(Shape, NonNull<[u8]>)> {
        let column = self.columns.get(i)?;
        let (start, shape, elements) = self.extent(column);
        let start = NonNull::new(start.cast_mut()).expect("a slot is somewhere");
        Some((shape, NonNull::slice_from_raw_parts(start, elements * column.field.dtype.size())))
    }

    /// How many elements each row of field `i` has, if that is a ragged field.
    pub fn lengths(&self, i: usize) -> Option<&'a [i64]> {
        self.columns.get(i).filter(|column| column.field.is_ragged()).map(|column| self.ends(column))
    }

    /// Where each row of field `i` begins, and where the last one ends, in items, if that is a packed field: one more
    /// than there are rows.
    pub fn offsets(&self, i: usize) -> Option<&'a [i64]> {
        self.columns.get(i).filter(|column| column.field.is_packed()).map(|column| self.ends(column))
    }

    /// The memory of all fields as one piece, to be copied as a whole: from where the first one begins to where the last
    /// one's rows end, with what lies between fields. [`place`](Self::place) says where each one is in it.
    pub fn bytes(&self) -> &'a [u8] {
        let first = self.first();
        let end = |i| self.place(i).map_or(0, |place| place.ends.map_or(place.data.end, |ends| ends.end));
        let len = (0..self.columns.len()).map(end).max().unwrap_or_default();
        // SAFETY: all places are within the slot, whose memory is initialised, and nobody writes it for `'a`.
        unsafe { std::slice::from_raw_parts(self.slot.add(first), len) }
    }

    /// Where field `i` is in [`bytes`](Self::bytes); `None` if there is none.
    pub fn place(&self, i: usize) -> Option<Place> {
        let column = self.columns.get(i)?;
        let (_, shape, elements) = self.extent(column);
        let from = |offset: usize, len: usize| offset - self.first()..offset - self.first() + len;
        let packed = usize::from(column.field.is_packed());
        let ends = (column.ends > 0).then(|| from(column.ends, (packed + self.rows) * size_of::<i64>()));
        // A batch without rows wrote nothing over what an earlier one left.
        let spilled = elements > 0 && self.spill(column).is_some();
        let bytes = if spilled { 0 } else { elements * column.field.dtype.size() };
        Some(Place { data: from(column.offset, bytes), shape, ends, spilled })
    }

    /// Where the first field begins.
    fn first(&self) -> usize {
        self.columns.first().map_or(INDICES, |column| column.offset)
    }

    /// The next field, in the order declared: for [`Schema::tensors`](super::Schema::tensors).
    ///
    /// # Panics
    ///
    /// If there is none, or its elements are not `T`: the sample's `tensors` then contradicts its `declare`.
    #[inline]
    pub fn take<T: Element>(&mut self) -> TensorView<'a, T> {
        let column = self.advance();
        assert!(column.field.dtype == T::DTYPE, "field {} is not {}", column.field, T::DTYPE);
        let (start, shape, elements) = self.extent(column);
        // SAFETY: the column has so many elements of `T` there, written or zero, aligned (see `Row::fill`).
        let data = unsafe { std::slice::from_raw_parts(start.cast(), elements) };
        TensorView::from_checked(data, shape)
    }

    /// The next field, whatever its dtype.
    ///
    /// # Panics
    ///
    /// If there is none.
    pub fn take_any(&mut self) -> AnyTensorView<'a> {
        let column = self.advance();
        self.tensor(column)
    }

    /// The next field, a ragged one: its elements padded with zeros to `[rows, max]` (of a single sample to `[max]`),
    /// and each row's length.
    ///
    /// # Panics
    ///
    /// As [`take`](Self::take), or if the field is not ragged.
    pub fn take_ragged<T: Element>(&mut self) -> (TensorView<'a, T>, &'a [i64]) {
        let data = self.take();
        let column = &self.columns[self.next - 1];
        assert!(column.field.is_ragged(), "field {} is not ragged", column.field);
        (data, self.ends(column))
    }

    /// The next field, a packed one: the items of all rows, `[total, …]`, and where each row begins and the last one
    /// ends, in items.
    ///
    /// # Panics
    ///
    /// As [`take`](Self::take), or if the field is not packed.
    pub fn take_packed<T: Element>(&mut self) -> (TensorView<'a, T>, &'a [i64]) {
        let data = self.take();
        let column = &self.columns[self.next - 1];
        assert!(column.field.is_packed(), "field {} is not packed", column.field);
        (data, self.ends(column))
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
        let Some(column) = self.columns.get(self.next) else { no_more_fields(self.columns.len()) };
        self.next += 1;
        column
    }

    /// Where this column's tensor is, its shape, and how many elements that makes. `Layout::new` made sure that there is
    /// room for the first dimension.
    #[inline]
    fn extent(&self, column: &Column) -> (*const u8, Shape, usize) {
        let shape = &column.field.shape;
        // SAFETY: the column begins inside the slot.
        let start = unsafe { self.slot.add(column.offset) };
        match column.field.kind {
            // Whatever was written here is within the room that there is (`Row::room`).
            Kind::Packed => {
                let total = self.ends(column)[self.rows] as usize;
                let start = self.spill(column).unwrap_or(start);
                (start, shape.row().stacked(total).unwrap_or_default(), total * shape.row_elements())
            }
            _ if self.batched => (start, shape.stacked(self.rows).unwrap_or_default(), self.rows * column.elements),
            _ => (start, shape.clone(), column.elements),
        }
    }

    /// Where a packed column's items are on the heap, if they are there.
    fn spill(&self, column: &Column) -> Option<*const u8> {
        // SAFETY: `Layout::spilling` put a spill there, and while the rows are read nobody writes it.
        let spill = unsafe { &*self.slot.add(column.spill?).cast::<Spill>() };
        spill.memory().map(|(start, _)| start.cast_const())
    }

    /// The packed fields whose items found no room in the batch, and how many items they have.
    pub(crate) fn spilled(&self) -> impl Iterator<Item = (&'a Field, usize)> {
        let spilled = self.columns.iter().filter(|column| self.spill(column).is_some());
        // A batch without rows wrote nothing over what an earlier one left.
        spilled.map(|column| (&column.field, self.ends(column)[self.rows] as usize)).filter(|&(_, items)| items > 0)
    }

    #[inline]
    fn tensor(&self, column: &'a Column) -> AnyTensorView<'a> {
        let (start, shape, elements) = self.extent(column);
        // SAFETY: as in `take`.
        unsafe {
            let bytes = std::slice::from_raw_parts(start, elements * column.field.dtype.size());
            AnyTensorView::from_raw_parts(column.field.dtype, shape, bytes)
        }
    }

    /// What says where the rows of a ragged or packed field end.
    fn ends(&self, column: &Column) -> &'a [i64] {
        let first = usize::from(column.field.is_packed());
        // SAFETY: such a column has an i64 for each row there, and a packed one a 0 before them.
        unsafe { std::slice::from_raw_parts(self.slot.add(column.ends).cast(), first + self.rows) }
    }
}

impl fmt::Debug for Columns<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.columns.iter().map(|column| column.field.to_string())).finish()
    }
}

/// By value: what gives its address away stays in memory.
#[cold]
#[inline(never)]
fn no_more_fields(fields: usize) -> ! {
    panic!(
        "the batch has {fields} fields, and its schema takes more; a part of a sample without a fixed number of fields must \
         declare them as a run (Fields::named_run)"
    )
}
