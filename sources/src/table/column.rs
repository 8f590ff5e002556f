//! Columns of a table in memory, with access to their values by row.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, ByteArrayType, ByteViewType, Decimal32Type, Decimal64Type, Decimal128Type,
};
use arrow_array::{Array, ArrayRef, GenericByteArray, GenericByteViewArray, OffsetSizeTrait, RecordBatch};
use arrow_buffer::{Buffer, NullBuffer, ScalarBuffer};
use arrow_schema::DataType;

use slotline::BoxError;
use slotline::dtype::DType;
use slotline::sample::Row;

use super::MIN;
use super::schema::Leaf;
use crate::record::Rows;
use crate::{FieldKind, decimal};

/// Some rows of a table: a column for each of its fields.
#[derive(Debug)]
pub(super) struct Chunk {
    /// The number of the table, which is unique in this process, and the index of the part (row
    /// group or batch) in the table.
    pub(super) name: (u64, usize),
    columns: Vec<Column>,
    /// The size of the memory that the chunk takes, in bytes.
    pub(super) bytes: u64,
    /// Whether any value in the chunk is missing.
    has_missing: bool,
}

/// The missing value or element of a row.
#[derive(Debug)]
pub(super) enum Missing {
    /// The value of the column with this index.
    Value(usize),
    /// An element of a list, or of a tensor.
    Element(usize),
}

/// The values of a column.
#[derive(Debug)]
pub(super) struct Column {
    dtype: DType,
    values: Values,
    /// Which values are missing; `None` if none is. It is boxed to keep `Column` small, so that
    /// many columns fit in the CPU's cache.
    gaps: Option<Box<Gaps>>,
}

/// The missing values of a column.
#[derive(Debug)]
struct Gaps {
    missing: Option<NullBuffer>,
    /// Which elements of lists and tensors are missing.
    holes: Option<NullBuffer>,
    /// The bytes that replace a missing value; `None` if missing values are errors.
    default: Option<Box<[u8]>>,
}

#[derive(Debug)]
enum Values {
    /// Values of this many bytes each.
    Fixed(Buffer, usize),
    /// Elements of this many bytes each, and the offsets of the values.
    Narrow(Buffer, usize, ScalarBuffer<i32>),
    Wide(Buffer, usize, ScalarBuffer<i64>),
    /// For each row, the row of another column that has the value.
    Dictionary(Vec<u32>, Arc<Column>),
}

impl Chunk {
    /// Creates a chunk of these columns. Memory that is part of `mapped` is not counted in its
    /// size.
    pub(super) fn new(name: (u64, usize), columns: Vec<Column>, mapped: &[u8]) -> Self {
        let has_missing = columns.iter().any(Column::has_missing);
        let bytes = columns.iter().map(|column| column.bytes(mapped)).sum();
        Self { name, columns, bytes, has_missing }
    }

    /// Returns the number of columns.
    pub(super) fn columns(&self) -> usize {
        self.columns.len()
    }

    /// Returns the type of a column's elements.
    pub(super) fn dtype(&self, column: usize) -> DType {
        self.columns[column].dtype
    }

    /// Returns the bytes of all values of a column and the size of one value, if all have the same
    /// size and none is missing.
    pub(super) fn plain(&self, column: usize) -> Option<(&[u8], usize)> {
        match &self.columns[column] {
            Column { values: Values::Fixed(bytes, size), gaps: None, .. } => Some((bytes, *size)),
            _ => None,
        }
    }

    /// Whether anything is missing in these rows, by the rules of [`missing`](Self::missing).
    pub(super) fn is_missing(&self, mut rows: Range<usize>) -> bool {
        self.has_missing && rows.any(|row| self.missing(row).is_some())
    }

    /// Returns what is missing in a row, if anything is that has no default.
    #[inline]
    pub(super) fn missing(&self, row: usize) -> Option<Missing> {
        if !self.has_missing {
            return None;
        }
        self.columns.iter().enumerate().find_map(|(number, column)| match column.missing(row)? {
            true if column.has_default() => None,
            true => Some(Missing::Value(number)),
            false => Some(Missing::Element(number)),
        })
    }
}

impl Rows for Chunk {
    /// Returns the bytes of a value. For a missing value these are the default, or nothing.
    #[inline]
    fn value(&self, column: usize, row: usize) -> &[u8] {
        self.columns[column].value(row)
    }

    #[inline]
    fn write(&self, row: usize, into: &mut Row<'_>) -> Result<(), BoxError> {
        into.write_run(|into| {
            self.columns.iter().try_for_each(|column| Ok(into.write_bytes(column.dtype, column.value(row))?))
        })
    }
}

/// Returns the array of a column. Also returns which of its values are missing because a struct
/// that contains them is.
fn find(batch: &RecordBatch, leaf: &Leaf) -> (ArrayRef, Option<NullBuffer>) {
    let (mut array, mut missing) = (batch.column(leaf.path[0]).clone(), None);
    for &member in &leaf.path[1..] {
        missing = NullBuffer::union(missing.as_ref(), array.nulls());
        array = array.as_struct().column(member).clone();
    }
    (array, missing)
}

impl Column {
    /// Takes a column out of a batch. `default` replaces missing values; with `None` they are
    /// errors. At most `limit` bytes are copied.
    pub(super) fn of(batch: &RecordBatch, leaf: &Leaf, default: Option<&[u8]>, limit: u64) -> Result<Self, String> {
        let (array, missing) = find(batch, leaf);
        Self::new(&array, &leaf.kind, missing, default, limit)
    }

    fn new(
        array: &ArrayRef,
        kind: &FieldKind,
        above: Option<NullBuffer>,
        default: Option<&[u8]>,
        limit: u64,
    ) -> Result<Self, String> {
        let missing =
            NullBuffer::union(above.as_ref(), array.logical_nulls().as_ref()).filter(|nulls| nulls.null_count() > 0);
        let mut holes = None;
        let values = match array.data_type() {
            DataType::Utf8 => of_bytes(array.as_string::<i32>()),
            DataType::Binary => of_bytes(array.as_binary::<i32>()),
            DataType::LargeUtf8 => of_bytes(array.as_string::<i64>()),
            DataType::LargeBinary => of_bytes(array.as_binary::<i64>()),
            DataType::Utf8View => of_views(array.as_string_view(), limit)?,
            DataType::BinaryView => of_views(array.as_binary_view(), limit)?,
            DataType::FixedSizeBinary(size) => {
                Values::Fixed(array.as_fixed_size_binary().values().clone(), *size as usize)
            }
            DataType::FixedSizeList(_, len) => {
                let list = array.as_fixed_size_list();
                let (elements, size) = elements(list.values())?;
                holes = list.values().nulls().cloned();
                Values::Fixed(elements, size * *len as usize)
            }
            DataType::List(_) => of_list::<i32>(array, &mut holes)?,
            DataType::LargeList(_) => of_list::<i64>(array, &mut holes)?,
            DataType::ListView(_) => of_list_views::<i32>(array, &mut holes, limit)?,
            DataType::LargeListView(_) => of_list_views::<i64>(array, &mut holes, limit)?,
            DataType::Dictionary(..) => of_dictionary(array, kind, default, limit)?,
            _ => {
                let (elements, size) = elements(array)?;
                Values::Fixed(elements, size)
            }
        };
        let holes = holes.filter(|nulls| nulls.null_count() > 0);
        let gaps = (missing.is_some() || holes.is_some())
            .then(|| Box::new(Gaps { missing, holes, default: default.map(Into::into) }));
        Ok(Self { dtype: kind.dtype(), values, gaps })
    }

    fn has_default(&self) -> bool {
        match (&self.gaps, &self.values) {
            (Some(gaps), _) if gaps.default.is_some() => true,
            (_, Values::Dictionary(_, of)) => of.has_default(),
            _ => false,
        }
    }

    #[inline]
    fn value(&self, row: usize) -> &[u8] {
        if let Some(gaps) = &self.gaps
            && gaps.has(row)
        {
            return gaps.default.as_deref().unwrap_or_default();
        }
        match &self.values {
            Values::Fixed(bytes, size) => &bytes[row * size..][..*size],
            Values::Narrow(bytes, size, offsets) => {
                &bytes[offsets[row] as usize * size..offsets[row + 1] as usize * size]
            }
            Values::Wide(bytes, size, offsets) => {
                &bytes[offsets[row] as usize * size..offsets[row + 1] as usize * size]
            }
            Values::Dictionary(keys, of) => of.value(keys[row] as usize),
        }
    }

    fn has_missing(&self) -> bool {
        let of_dictionary = matches!(&self.values, Values::Dictionary(_, of) if of.has_missing());
        self.gaps.is_some() || of_dictionary
    }

    /// Returns `Some(true)` if the value is missing, and `Some(false)` if an element of it is.
    fn missing(&self, row: usize) -> Option<bool> {
        if self.gaps.as_ref().is_some_and(|gaps| gaps.has(row)) {
            return Some(true);
        }
        if let Values::Dictionary(keys, of) = &self.values {
            return of.missing(keys[row] as usize);
        }
        let holes = self.gaps.as_ref()?.holes.as_ref()?;
        let range = match &self.values {
            Values::Narrow(_, _, offsets) => offsets[row] as usize..offsets[row + 1] as usize,
            Values::Wide(_, _, offsets) => offsets[row] as usize..offsets[row + 1] as usize,
            Values::Fixed(bytes, size) => {
                let len = size * holes.len() / bytes.len().max(1);
                row * len..(row + 1) * len
            }
            Values::Dictionary(..) => return None,
        };
        range.into_iter().any(|element| holes.is_null(element)).then_some(false)
    }

    fn bytes(&self, mapped: &[u8]) -> u64 {
        let own = |buffer: &Buffer| if mapped.as_ptr_range().contains(&buffer.as_ptr()) { 0 } else { buffer.len() };
        let nulls = |nulls: &Option<NullBuffer>| nulls.as_ref().map_or(0, |nulls| own(nulls.buffer()));
        let values = match &self.values {
            Values::Fixed(bytes, _) => own(bytes),
            Values::Narrow(bytes, _, offsets) => own(bytes) + own(offsets.inner()),
            Values::Wide(bytes, _, offsets) => own(bytes) + own(offsets.inner()),
            Values::Dictionary(keys, of) => 4 * keys.len() + of.bytes(mapped) as usize,
        };
        let gaps = self.gaps.as_ref().map_or(0, |gaps| nulls(&gaps.missing) + nulls(&gaps.holes));
        (values + gaps + 128) as u64
    }
}

impl Gaps {
    #[inline]
    fn has(&self, row: usize) -> bool {
        self.missing.as_ref().is_some_and(|missing| missing.is_null(row))
    }
}

/// Returns the bytes of an array of numbers, and the size of one number.
fn elements(array: &ArrayRef) -> Result<(Buffer, usize), String> {
    fn decimals<T: ArrowPrimitiveType>(array: &ArrayRef, scale: i8) -> (Buffer, usize)
    where
        T::Native: Into<i128>,
    {
        let values = array.as_primitive::<T>().values().iter();
        let values: Vec<f64> = values.map(|&value| decimal::to_f64(value.into(), scale.into())).collect();
        (Buffer::from_vec(values), 8)
    }
    Ok(match array.data_type() {
        DataType::Boolean => (array.as_boolean().values().iter().map(u8::from).collect::<Vec<_>>().into(), 1),
        DataType::Decimal32(_, scale) => decimals::<Decimal32Type>(array, *scale),
        DataType::Decimal64(_, scale) => decimals::<Decimal64Type>(array, *scale),
        DataType::Decimal128(_, scale) => decimals::<Decimal128Type>(array, *scale),
        other => {
            let size = other.primitive_width().ok_or_else(|| format!("unexpected values: {other}"))?;
            let data = array.to_data();
            (data.buffers()[0].slice_with_length(data.offset() * size, data.len() * size), size)
        }
    })
}

fn of_bytes<T: ByteArrayType>(array: &GenericByteArray<T>) -> Values {
    of_offsets(array.values().clone(), 1, array.offsets().inner().clone())
}

fn of_list<O: OffsetSizeTrait>(array: &ArrayRef, holes: &mut Option<NullBuffer>) -> Result<Values, String> {
    let (list, offsets) = (array.as_list::<O>(), array.as_list::<O>().offsets());
    if let Some(items) = list.values().as_fixed_size_list_opt() {
        let (elements, size) = elements(items.values())?;
        let len = items.value_length() as usize;
        *holes = NullBuffer::union(items.nulls().map(|nulls| nulls.expand(len)).as_ref(), items.values().nulls());
        let offsets: Vec<i64> = offsets.iter().map(|offset| (offset.as_usize() * len) as i64).collect();
        return Ok(Values::Wide(elements, size, offsets.into()));
    }
    let (elements, size) = elements(list.values())?;
    *holes = list.values().nulls().cloned();
    Ok(of_offsets(elements, size, offsets.inner().clone()))
}

fn of_offsets<O: OffsetSizeTrait>(bytes: Buffer, size: usize, offsets: ScalarBuffer<O>) -> Values {
    let offsets = offsets.into_inner();
    match O::IS_LARGE {
        true => Values::Wide(bytes, size, offsets.into()),
        false => Values::Narrow(bytes, size, offsets.into()),
    }
}

/// Reserves memory for the values of views. Several views may refer to the same bytes, so the sum
/// may exceed the size of the file.
fn room(lens: impl Iterator<Item = usize>, limit: u64) -> Result<Vec<u8>, String> {
    let bytes = lens.fold(0, usize::saturating_add);
    if bytes as u64 > limit.max(MIN) {
        return Err(format!("values of {bytes} bytes, more than {limit}; raise `memory_limit`"));
    }
    let mut room = Vec::new();
    room.try_reserve_exact(bytes).map_err(|_| format!("cannot allocate {bytes} bytes for its values"))?;
    Ok(room)
}

fn of_views<T: ByteViewType + ?Sized>(array: &GenericByteViewArray<T>, limit: u64) -> Result<Values, String> {
    let valid = (0..array.len()).filter(|&row| array.is_valid(row));
    // The lower 32 bits of a view are its length.
    let mut bytes = room(valid.map(|row| array.views()[row] as u32 as usize), limit)?;
    let mut ends = vec![0_i64];
    for row in 0..array.len() {
        if array.is_valid(row) {
            let value: &[u8] = array.value(row).as_ref();
            bytes.extend_from_slice(value);
        }
        ends.push(bytes.len() as i64);
    }
    Ok(Values::Wide(bytes.into(), 1, ends.into()))
}

fn of_list_views<O: OffsetSizeTrait>(
    array: &ArrayRef,
    holes: &mut Option<NullBuffer>,
    limit: u64,
) -> Result<Values, String> {
    let list = array.as_list_view::<O>();
    let (elements, size) = elements(list.values())?;
    let rows = (0..list.len()).filter(|&row| list.is_valid(row));
    let mut bytes = room(rows.map(|row| list.value_size(row).as_usize().saturating_mul(size)), limit)?;
    let (mut ends, mut valid) = (vec![0_i64], Vec::new());
    for row in 0..list.len() {
        if list.is_valid(row) {
            let (start, len) = (list.value_offset(row).as_usize(), list.value_size(row).as_usize());
            bytes.extend_from_slice(&elements[start * size..][..len * size]);
            if let Some(nulls) = list.values().nulls() {
                valid.extend((start..start + len).map(|element| nulls.is_valid(element)));
            }
        }
        ends.push((bytes.len() / size) as i64);
    }
    *holes = (!valid.is_empty()).then(|| NullBuffer::from(valid));
    Ok(Values::Wide(bytes.into(), size, ends.into()))
}

fn of_dictionary(array: &ArrayRef, kind: &FieldKind, default: Option<&[u8]>, limit: u64) -> Result<Values, String> {
    let array = array.as_any_dictionary();
    let of = Column::new(array.values(), kind, None, default, limit)?;
    // The key of a missing value may be anything, even if there are no values.
    let keys = if array.values().is_empty() { vec![0; array.len()] } else { array.normalized_keys() };
    let keys =
        keys.into_iter().map(|key| u32::try_from(key).map_err(|_| "a dictionary of more than 2^32 values".to_owned()));
    Ok(Values::Dictionary(keys.collect::<Result<_, _>>()?, Arc::new(of)))
}

#[cfg(test)]
mod tests {
    use arrow_array::{BinaryViewArray, Int64Array, ListViewArray};
    use arrow_schema::Field;

    use super::*;
    use crate::CapacityHint;

    #[test]
    fn views_of_the_same_bytes_have_a_limit() {
        // The array has 1,024 views of 1 MiB each.
        let view = (1_u128 << 20) | (0x61616161 << 32);
        let data: Buffer = vec![b'a'; 1 << 20].into();
        let texts: ArrayRef = Arc::new(BinaryViewArray::new(vec![view; 1024].into(), vec![data], None));
        let elements = Arc::new(Int64Array::from(vec![7; 1 << 17]));
        let field = Arc::new(Field::new("item", DataType::Int64, true));
        let (starts, lens) = (vec![0; 1024].into(), vec![1 << 17; 1024].into());
        let lists: ArrayRef = Arc::new(ListViewArray::new(field, starts, lens, elements, None));
        let room = CapacityHint::of([]);
        for (array, kind) in [(texts, FieldKind::Bytes(room)), (lists, FieldKind::List(DType::I64, room))] {
            let error = Column::new(&array, &kind, None, None, 1 << 29).unwrap_err();
            assert_eq!(error, "values of 1073741824 bytes, more than 536870912; raise `memory_limit`");
            let column = Column::new(&array.slice(0, 2), &kind, None, None, 0).unwrap();
            assert_eq!(column.value(1).len(), 1 << 20);
        }
    }
}
