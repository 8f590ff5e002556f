//! The fields that samples declare, and their positions in a cell. Here a cell is the memory of one
//! batch.

use std::fmt;

use super::spill::Spill;
use super::width::RowWidth;
use crate::dtype::DType;
use crate::shape::{Shape, ShapeError};

/// The alignment of tensors in a cell, suitable for GPU copy engines and vector units.
pub(crate) const FIELD_ALIGN: usize = 256;

/// The way in which the samples of a batch are arranged in a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// All samples have the field's shape.
    Fixed,
    /// Each sample has its own length, and is padded to the field's shape.
    PaddedToMax,
    /// Each sample has its own length, and is padded to the longest one of the batch.
    PaddedToLongest,
    /// Each sample has its own length, and begins where the previous one ends.
    Packed,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Fixed => "of fixed shape",
            Kind::PaddedToMax => "padded to a maximum",
            Kind::PaddedToLongest => "padded to the longest sample",
            Kind::Packed => "packed",
        })
    }
}

/// One field of a sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    pub(crate) name: String,
    pub(crate) dtype: DType,
    pub(crate) shape: Shape,
    pub(crate) kind: Kind,
    /// The number of fields in the run (see [`Fields::named_run`]) that begins with this field; 0
    /// if none begins here.
    pub(crate) run: usize,
    /// The name of this field's part in a run of named parts; empty if the part is the whole
    /// sample. `None` outside of such runs.
    pub(crate) part: Option<String>,
}

impl Field {
    /// Returns the field's name: that of the struct's field, or its index in a tuple (`0`, `1.0`).
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the type of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the shape of the field in one sample. For a field that is padded to a maximum, the
    /// maximum. For a field that is packed or padded to the longest sample, the first dimension is
    /// the number of items or elements that a batch reserves for each sample; the samples of a
    /// batch share this memory.
    pub fn shape(&self) -> &[usize] {
        self.shape.dims()
    }

    /// Returns the size of an item of a packed field, in bytes, or of an element of a field that is
    /// padded to the longest sample. [`Layout::new`] has checked that it does not overflow.
    pub(crate) fn item_bytes(&self) -> usize {
        self.shape.row_elements() * self.dtype.size()
    }

    /// Returns whether samples have individual lengths and are padded, to `shape` or to the longest
    /// sample of the batch. Their lengths are then stored as well.
    pub fn is_padded(&self) -> bool {
        matches!(self.kind, Kind::PaddedToMax | Kind::PaddedToLongest)
    }

    /// Returns whether samples have individual lengths and are padded to the longest sample of the batch.
    pub fn is_padded_to_longest(&self) -> bool {
        self.kind == Kind::PaddedToLongest
    }

    /// Returns whether the samples of a batch share the memory reserved for the field.
    pub(crate) fn shares_room(&self) -> bool {
        matches!(self.kind, Kind::PaddedToLongest | Kind::Packed)
    }

    /// Returns whether samples have individual lengths and are concatenated. Their offsets are then
    /// stored as well.
    pub fn is_packed(&self) -> bool {
        self.kind == Kind::Packed
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Fixed => "",
            Kind::PaddedToMax => "up to ",
            Kind::PaddedToLongest => "padded ",
            Kind::Packed => "packed ",
        };
        write!(f, "{}: {} {kind}{}", self.name, self.dtype, self.shape)
    }
}

/// The fields of a sample, as [`Sample::declare`](super::Sample::declare) lists them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields {
    pub(super) list: Vec<Field>,
    /// The names of the structs and tuples around the field that is declared next.
    path: Vec<String>,
    /// Whether elements that do not fit in a batch may be moved to the heap (spill) regardless of the
    /// loader's option [`Overflow`](crate::loader::Overflow).
    spills: bool,
    error: Option<LayoutError>,
}

impl Fields {
    /// Makes an empty list of fields.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a field that has exactly `shape` in every sample.
    pub fn fixed(&mut self, dtype: DType, shape: &[usize]) {
        self.push(dtype, Shape::new(shape), Kind::Fixed);
    }

    /// Adds a field that has at most `max` elements in each sample.
    pub fn padded_to_max(&mut self, dtype: DType, max: usize) {
        self.push(dtype, Shape::new(&[max]), Kind::PaddedToMax);
    }

    /// Adds a field that has any number of elements in each sample, and is padded to the longest
    /// sample of the batch. A full batch has room for `capacity` elements per sample, including the
    /// padding.
    ///
    /// The longest sample is known only when all have been written, so each batch is filled by one
    /// thread.
    pub fn padded_to_longest(&mut self, dtype: DType, capacity: usize) {
        self.push(dtype, Shape::new(&[capacity]), Kind::PaddedToLongest);
    }

    /// Adds a field that has any number of items of shape `item` in each sample. The samples are
    /// concatenated. A full batch has room for `capacity` items per sample.
    ///
    /// The start of a sample is known only when the previous one has been written, so each batch is
    /// filled by one thread.
    pub fn packed(&mut self, dtype: DType, item: &[usize], capacity: usize) {
        self.push(dtype, Shape::new(item).and_then(|item| item.stacked(capacity)), Kind::Packed);
    }

    /// Lets the packed fields [spill](crate::loader::Overflow::Spill) to the heap regardless of the
    /// loader's option. For samples of known sizes, if room for the largest ones would waste most
    /// of the memory, but samples that do not fit must not be errors.
    ///
    /// Workers that are processes cannot spill.
    pub fn spill(&mut self) {
        self.spills = true;
    }

    /// Returns whether [`spill`](Self::spill) was called.
    pub(crate) fn spills(&self) -> bool {
        self.spills
    }

    /// Adds the fields that `declare` adds. Their names begin with `name`.
    pub fn named_by(&mut self, name: impl fmt::Display, declare: impl FnOnce(&mut Self)) {
        self.path.push(name.to_string());
        declare(self);
        self.path.pop();
    }

    /// Adds the fields of a part of the sample, which are known without a sample. Their names begin
    /// with `name`.
    pub(crate) fn named_fields(&mut self, name: impl fmt::Display, part: Self) {
        let alone = part.list.len() == 1;
        for mut field in part.list {
            // A single field whose name is only its index gets the part's name, as in
            // [`named`](Self::named).
            let nameless = alone && field.name == "0";
            field.name = if nameless { name.to_string() } else { format!("{name}.{}", field.name) };
            self.list.push(field);
        }
        self.spills |= part.spills;
        self.error = self.error.take().or(part.error);
    }

    pub(super) fn end_run(&mut self, first: usize) {
        let run = self.list.len() - first;
        if let Some(field) = self.list.get_mut(first) {
            field.run = run;
        }
    }

    /// Returns fields that fit the samples of several datasets, given whether each is empty and a
    /// function that returns its fields. Returns `None` if the first dataset with samples doesn't
    /// know its fields. If the fields of datasets differ, building a loader with them fails.
    pub(crate) fn of_all<F: FnOnce() -> Option<Fields>>(datasets: impl Iterator<Item = (bool, F)>) -> Option<Self> {
        let mut datasets = datasets.enumerate().filter(|(_, (is_empty, _))| !is_empty);
        let (first, (_, fields)) = datasets.next()?;
        let mut all = fields()?;
        for (dataset, (_, fields)) in datasets {
            if let Some(fields) = fields() {
                all.include([first, dataset], fields);
            }
        }
        Some(all)
    }

    /// Extends these fields so that the samples of another dataset fit, too: a packed or padded
    /// field gets the larger of the two capacities, and fields may spill if those of either dataset
    /// may. Everything else must be equal. `first` and `dataset` are the numbers of the two datasets, for
    /// the error.
    fn include(&mut self, [first, dataset]: [usize; 2], other: Self) {
        let other_len = other.list.len();
        // The lengths of runs can also differ. The fields' texts don't show that, but their names
        // do.
        let names = (other_len != self.list.len()).then(|| {
            let names = |fields: &Self| fields.list.iter().map(Field::name).collect::<Vec<_>>().join(", ");
            (names(self), names(&other))
        });
        let mut differing = None;
        for (own, other) in self.list.iter_mut().zip(other.list) {
            let (capacity, other_capacity) = (own.shape.dims().first().copied(), other.shape.dims().first().copied());
            let shape = if own.kind == Kind::Fixed || other_capacity <= capacity { &own.shape } else { &other.shape };
            let merged = Field { shape: shape.clone(), ..own.clone() };
            let fits = |field: &Field| match field.kind {
                Kind::Fixed => *field == merged,
                Kind::PaddedToMax => Field { shape: merged.shape.clone(), ..field.clone() } == merged,
                Kind::PaddedToLongest => Field { shape: merged.shape.clone(), ..field.clone() } == merged,
                Kind::Packed => {
                    let items = field.shape.dims().get(1..) == merged.shape.dims().get(1..);
                    items && Field { shape: merged.shape.clone(), ..field.clone() } == merged
                }
            };
            if !(fits(own) && fits(&other)) {
                differing.get_or_insert((format!("field {other}"), format!("field {own}")));
                break;
            }
            *own = merged;
        }
        if let Some((own, other)) = names {
            differing = Some((format!("{other_len} fields ({other})"), format!("{} ({own})", self.list.len())));
        }
        if let Some((found, declared)) = differing {
            self.fail(LayoutError::Differs { dataset, found, first, declared });
        }
        self.spills |= other.spills;
        self.error = self.error.take().or(other.error);
    }

    /// Records that the sample can't be written into a batch, so that building the loader fails
    /// with this error. Only the first error is kept.
    pub fn fail(&mut self, error: LayoutError) {
        self.error.get_or_insert(error);
    }

    /// Returns the fields declared so far.
    pub fn as_slice(&self) -> &[Field] {
        &self.list
    }

    fn push(&mut self, dtype: DType, shape: Result<Shape, ShapeError>, kind: Kind) {
        let name = if self.path.is_empty() { self.list.len().to_string() } else { self.path.join(".") };
        match shape {
            Ok(shape) => self.list.push(Field { name, dtype, shape, kind, run: 0, part: None }),
            Err(error) => self.fail(error.into()),
        }
    }
}

/// The position of a field in a cell, which is the memory of one batch.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub(crate) field: Field,
    /// The number of bytes from the start of the cell to row 0; a multiple of `FIELD_ALIGN`.
    pub(crate) offset: usize,
    /// The number of elements in one row (the maximum for a padded field, the room for a packed
    /// field).
    pub(crate) elements: usize,
    /// The number of bytes from one row to the next. The rows of a packed field, or of one padded
    /// to the longest, share `rows` times this many bytes.
    pub(crate) stride: usize,
    /// The number of bytes from the start of the cell to the i64s that describe the rows. For a
    /// padded field they are each row's length, followed by the [`RowWidth`](super::width::RowWidth) if
    /// it is padded to the longest. For a packed field they are a 0 and then the end of each row,
    /// in items.
    pub(crate) ends: usize,
    /// The number of bytes from the start of the cell to the column's [`Spill`], if its elements
    /// may spill.
    pub(crate) spill: Option<usize>,
}

/// The positions of all fields and indices in a cell.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) columns: Box<[Column]>,
    /// The number of rows in a full batch.
    pub(crate) rows: usize,
    /// The size of a cell, in bytes.
    pub(crate) size: usize,
    /// Whether long copies into rows [bypass the caches](crate::streaming).
    pub(crate) streaming: bool,
}

/// The offset of the dataset indices of the rows, one i64 each, at the start of each cell.
pub(crate) const INDICES: usize = 0;

/// The error for fields that have no valid layout.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// The shape of a field is invalid.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// The size of one batch overflows.
    #[error("{rows} rows of field {field} are larger than this machine can address; make batch_size smaller")]
    TooLarge {
        /// The field.
        field: String,
        /// The number of rows in a batch.
        rows: usize,
    },
    /// The size of one sample, or of one item of a packed field, overflows.
    #[error(
        "a sample of field {field}, or an item of it, has more bytes than this machine can address; make its shape smaller"
    )]
    TooLargeSample {
        /// The field.
        field: String,
    },
    /// An item of a packed field has no elements.
    #[error("field {field}: its items have no elements, so a batch can't count them; use items with elements")]
    EmptyItems {
        /// The field.
        field: String,
    },
    /// Two parts of a sample have the same name.
    #[error("two parts of a sample have the field name {field}, so they can't be distinguished; rename a key")]
    SameName {
        /// The name.
        field: String,
    },
    /// A part of a [run](Fields::named_run) does not have exactly one field.
    #[error(
        "part {name:?} of a sample must be one field, but has {fields}, or is a run itself; add its fields one by one"
    )]
    Part {
        /// The part's name.
        name: String,
        /// The number of fields that it has.
        fields: usize,
    },
    /// The datasets of a sequence have samples with different fields.
    #[error(
        "dataset {dataset} has {found}, but dataset {first} has {declared}; datasets in sequence must have the same \
         fields, in the same order"
    )]
    Differs {
        /// The dataset whose samples differ, counted from 0.
        dataset: usize,
        /// The field of this dataset that differs, or its number of fields.
        found: String,
        /// The first dataset that is not empty, counted from 0.
        first: usize,
        /// The corresponding field, or number of fields, of the datasets before.
        declared: String,
    },
    /// A part of a sample has no fixed size, or no fields.
    #[error(
        "{found} has no place of fixed size in a batch; give the loader a collate function (for values, collate_values of slotline-value)"
    )]
    NoPlace {
        /// A description of the part and of its position in the sample.
        found: String,
    },
}

impl Layout {
    pub(crate) fn new(fields: Fields, rows: usize) -> Result<Self, LayoutError> {
        if let Some(error) = fields.error {
            return Err(error);
        }
        let reserve = |end: &mut usize, bytes: Option<usize>| -> Option<usize> {
            let start = end.checked_next_multiple_of(FIELD_ALIGN)?;
            // No allocation is larger than isize::MAX, and pointer arithmetic requires that.
            *end = start.checked_add(bytes?).filter(|&end| end <= isize::MAX as usize)?;
            Some(start)
        };
        let mut end = INDICES;
        let too_large = |field: &str| LayoutError::TooLarge { field: field.to_owned(), rows };
        let words = rows.checked_mul(size_of::<i64>());
        reserve(&mut end, words).ok_or_else(|| too_large("indices"))?;
        let mut columns = Vec::with_capacity(fields.list.len());
        for field in fields.list {
            let too_large = || too_large(&field.to_string());
            let too_large_sample = || LayoutError::TooLargeSample { field: field.to_string() };
            let bytes = |elements: usize| {
                let bytes = elements.checked_mul(field.dtype.size());
                bytes.filter(|&bytes| bytes <= isize::MAX as usize).ok_or_else(too_large_sample)
            };
            if field.kind == Kind::Packed {
                if field.shape.row_dims().contains(&0) {
                    return Err(LayoutError::EmptyItems { field: field.to_string() });
                }
                // If the capacity is 0, an item's size is not checked elsewhere.
                bytes(field.shape.row().elements().ok_or_else(too_large_sample)?)?;
            } else {
                // The batch has one more dimension. `elements` ignores zeros, as views do.
                field.shape.stacked(rows)?.elements().ok_or_else(too_large)?;
            }
            let elements = field.shape.elements().ok_or_else(too_large_sample)?;
            let stride = bytes(elements)?;
            let offset = reserve(&mut end, stride.checked_mul(rows)).ok_or_else(too_large)?;
            let ends = match field.kind {
                Kind::Fixed => 0,
                Kind::PaddedToMax => reserve(&mut end, words).ok_or_else(too_large)?,
                Kind::PaddedToLongest => {
                    reserve(&mut end, words.and_then(|n| n.checked_add(size_of::<RowWidth>()))).ok_or_else(too_large)?
                }
                Kind::Packed => reserve(&mut end, words.and_then(|n| n.checked_add(8))).ok_or_else(too_large)?,
            };
            columns.push(Column { field, offset, elements, stride, ends, spill: None });
        }
        Ok(Self { columns: columns.into(), rows, size: end, streaming: false })
    }

    /// Adds a [`Spill`] at the end of each cell for each column whose rows share their memory. It
    /// records whether the column's items are on the heap.
    pub(crate) fn spilling(mut self) -> Result<Self, LayoutError> {
        for column in self.columns.iter_mut().filter(|column| column.field.shares_room()) {
            let at = self.size.checked_next_multiple_of(align_of::<Spill>());
            let end = at.and_then(|at| at.checked_add(size_of::<Spill>())).filter(|&end| end <= isize::MAX as usize);
            let too_large = || LayoutError::TooLarge { field: column.field.to_string(), rows: self.rows };
            self.size = end.ok_or_else(too_large)?;
            column.spill = at;
        }
        Ok(self)
    }

    /// Returns whether columns may spill.
    pub(crate) fn spills(&self) -> bool {
        self.columns.iter().any(|column| column.spill.is_some())
    }

    /// Frees the heap memory of a cell's columns.
    ///
    /// # Safety
    ///
    /// `cell` must be the start of a cell with this layout, as for [`Row::new`](super::Row::new),
    /// to which the caller must have exclusive access.
    pub(crate) unsafe fn free_spills(&self, cell: *mut u8) {
        for at in self.columns.iter().filter_map(|column| column.spill) {
            // SAFETY: `spilling` put an aligned spill at this offset, for which zeros are valid,
            // and the caller has exclusive access to the cell.
            unsafe { &mut *cell.add(at).cast::<Spill>() }.free();
        }
    }

    /// Copies a cell into another one, including its heap memory.
    ///
    /// # Panics
    ///
    /// If the heap memory cannot be allocated.
    ///
    /// # Safety
    ///
    /// At `from` and `to` there must be [`size`](Self::size) bytes, aligned like cells. `from` must
    /// be a cell with this layout that no code writes during the call. The caller must have
    /// exclusive access to `to`, which must have no heap memory.
    pub(crate) unsafe fn copy(&self, from: *const u8, to: *mut u8) {
        // The spills come after everything else, in the order of the columns.
        let spills = self.columns.iter().filter_map(|column| column.spill);
        // SAFETY: the caller guarantees both cells' sizes, and that `to` does not overlap `from`.
        unsafe { std::ptr::copy_nonoverlapping(from, to, spills.clone().next().unwrap_or(self.size)) };
        for at in spills {
            // SAFETY: `spilling` put an aligned spill at this offset in each of the cells, and
            // zeros are a valid spill.
            let (theirs, ours) = unsafe { (&*from.add(at).cast::<Spill>(), &mut *to.add(at).cast::<Spill>()) };
            *ours = theirs.copy().expect("the heap memory can be allocated");
        }
    }

    /// Returns whether the rows of a cell must be written in sequence, by one thread, because the
    /// position of a row depends on the rows before it.
    pub(crate) fn is_sequential(&self) -> bool {
        self.columns.iter().any(|column| column.field.shares_room())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_laid_out_in_order_and_aligned() {
        let mut fields = Fields::new();
        fields.fixed(DType::U8, &[3, 5]);
        fields.fixed(DType::I64, &[]);
        fields.padded_to_max(DType::U16, 7);
        fields.packed(DType::F32, &[4], 3);
        let layout = Layout::new(fields, 10).unwrap();
        let columns: Vec<_> = layout.columns.iter().map(|c| (c.offset, c.elements, c.stride, c.ends)).collect();
        assert_eq!(columns, [(256, 15, 15, 0), (512, 1, 8, 0), (768, 7, 14, 1024), (1280, 12, 48, 1792)]);
        assert_eq!(layout.size, 1792 + 88);
        let spilling = layout.clone().spilling().unwrap();
        assert_eq!((spilling.size, spilling.columns[3].spill), (layout.size + 16, Some(layout.size)));
        assert_eq!(spilling.columns[2].spill, None);
        assert_eq!(layout.columns[2].field.to_string(), "2: u16 up to [7]");
        assert_eq!(layout.columns[3].field.to_string(), "3: f32 packed [3, 4]");
    }

    #[test]
    fn only_packed_fields_are_sequential() {
        let mut fields = Fields::new();
        fields.fixed(DType::U8, &[3]);
        fields.padded_to_max(DType::U8, 3);
        assert!(!Layout::new(fields.clone(), 2).unwrap().is_sequential());
        fields.packed(DType::U8, &[], 3);
        assert!(Layout::new(fields, 2).unwrap().is_sequential());
    }

    #[test]
    fn fields_have_the_same_names_without_a_sample() {
        let sample = (1_u8, (2.0_f32, [3_i64; 2]), [[4_u16; 3]; 1]);
        let mut fields = Fields::new();
        fields.named_fields(0, Fields::of(&sample.0));
        fields.named_fields(1, Fields::of(&sample.1));
        fields.named_fields(2, Fields::of(&sample.2));
        assert_eq!(fields, Fields::of(&sample));
    }

    #[test]
    fn sizes_that_overflow_are_errors() {
        let mut fields = Fields::new();
        fields.fixed(DType::F64, &[1 << 40, 1 << 10]);
        let error = Layout::new(fields.clone(), 1 << 10).unwrap_err().to_string();
        assert!(error.contains("1024 rows of field 0: f64 [1099511627776, 1024]"), "{error}");
        let mut one = Fields::new();
        one.fixed(DType::F64, &[1 << 40, 1 << 20]);
        let error = Layout::new(one, 1).unwrap_err().to_string();
        assert!(error.contains("field 0: f64 [1099511627776, 1048576]") && error.contains("shape smaller"), "{error}");
        assert!(matches!(Layout::new(Fields::new(), usize::MAX), Err(LayoutError::TooLarge { .. })));
        fields.fixed(DType::U8, &[1; 8]);
        assert!(Layout::new(fields, 1).is_err(), "a batch would have nine dimensions");
        let mut fields = Fields::new();
        fields.fixed(DType::U8, &[1; 9]);
        assert!(matches!(Layout::new(fields, 1), Err(LayoutError::Shape(_))));
    }

    #[test]
    fn packed_fields_that_cannot_fit_are_errors() {
        let layout = |item: &[usize], capacity, rows| {
            let mut fields = Fields::new();
            fields.packed(DType::F64, item, capacity);
            Layout::new(fields, rows)
        };
        let error = layout(&[4, 0], 5, 2).unwrap_err().to_string();
        assert!(error.contains("field 0: f64 packed [5, 4, 0]: its items have no elements"), "{error}");
        assert!(matches!(layout(&[], 1 << 50, 1 << 20), Err(LayoutError::TooLarge { .. })));
        assert!(matches!(layout(&[1 << 40, 1 << 40], 0, 1), Err(LayoutError::TooLargeSample { .. })));
        let error = layout(&[1 << 61], 0, 1).unwrap_err().to_string();
        assert!(error.contains("field 0: f64 packed [0, 2305843009213693952]"), "{error}");
        assert!(matches!(layout(&[1; 8], 1, 1), Err(LayoutError::Shape(_))));
        assert_eq!(layout(&[1; 7], 1, 1).unwrap().columns[0].stride, 8, "no dimension is added for the batch");
    }
}
