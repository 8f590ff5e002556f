//! The values of a column in memory, by row.

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

use super::schema::{Holds, Leaf};
use crate::decimal;

/// Some rows of a table: a column for each of its fields.
#[derive(Debug)]
pub(super) struct Chunk {
    /// The numbers of the table and of the part.
    pub(super) name: (u64, usize),
    columns: Vec<Column>,
    /// The memory that it takes, in bytes.
    pub(super) bytes: u64,
    /// Whether any value is missing.
    has_missing: bool,
}

/// What is missing in a row.
#[derive(Debug)]
pub(super) enum Missing {
    /// The value of the column with this number.
    Value(usize),
    /// An element of a list, or of a tensor.
    Element(usize),
}

#[derive(Debug)]
struct Column {
    dtype: DType,
    values: Values,
    missing: Option<NullBuffer>,
    /// Which elements are missing, of lists and tensors.
    holes: Option<NullBuffer>,
    /// What a missing value is taken for.
    zeros: Box<[u8]>,
}

#[derive(Debug)]
enum Values {
    /// Values of this many bytes.
    Fixed(Buffer, usize),
    /// Elements of so many bytes, between offsets.
    Narrow(Buffer, usize, ScalarBuffer<i32>),
    Wide(Buffer, usize, ScalarBuffer<i64>),
    /// The rows of another column.
    Dictionary(Vec<u32>, Arc<Column>),
}

impl Chunk {
    /// Takes the columns of a batch.
    ///
    /// What lies in `mapped` is not of the memory that they take.
    pub(super) fn new(name: (u64, usize), batch: &RecordBatch, leaves: &[Leaf], mapped: &[u8]) -> Result<Self, String> {
        let columns = leaves.iter().map(|leaf| {
            let (array, missing) = find(batch, leaf);
            let column = Column::new(&array, &leaf.holds, missing);
            column.map_err(|problem| format!("column {}: {problem}", leaf.name))
        });
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let has_missing = columns.iter().any(Column::has_missing);
        let bytes = columns.iter().map(|column| column.bytes(mapped)).sum();
        Ok(Self { name, columns, bytes, has_missing })
    }

    /// Returns the bytes of a value; zeros, or nothing, if it is missing.
    #[inline]
    pub(super) fn value(&self, column: usize, row: usize) -> &[u8] {
        self.columns[column].value(row)
    }

    /// Writes all values of a row.
    #[inline]
    pub(super) fn write(&self, row: usize, into: &mut Row<'_>) -> Result<(), BoxError> {
        into.write_run(|into| {
            self.columns.iter().try_for_each(|column| Ok(into.write_bytes(column.dtype, column.value(row))?))
        })
    }

    /// Returns what is missing in a row, if anything is; only elements if missing values are zeros.
    #[inline]
    pub(super) fn missing(&self, row: usize, zeros: bool) -> Option<Missing> {
        if !self.has_missing {
            return None;
        }
        self.columns.iter().enumerate().find_map(|(number, column)| match column.missing(row)? {
            true if zeros => None,
            true => Some(Missing::Value(number)),
            false => Some(Missing::Element(number)),
        })
    }
}

/// Returns the array of a column, and which of its values are missing since a struct above them is.
fn find(batch: &RecordBatch, leaf: &Leaf) -> (ArrayRef, Option<NullBuffer>) {
    let (mut array, mut missing) = (batch.column(leaf.path[0]).clone(), None);
    for &member in &leaf.path[1..] {
        missing = NullBuffer::union(missing.as_ref(), array.nulls());
        array = array.as_struct().column(member).clone();
    }
    (array, missing)
}

impl Column {
    fn new(array: &ArrayRef, holds: &Holds, above: Option<NullBuffer>) -> Result<Self, String> {
        let missing =
            NullBuffer::union(above.as_ref(), array.logical_nulls().as_ref()).filter(|nulls| nulls.null_count() > 0);
        let mut holes = None;
        let values = match array.data_type() {
            DataType::Utf8 => of_bytes(array.as_string::<i32>()),
            DataType::Binary => of_bytes(array.as_binary::<i32>()),
            DataType::LargeUtf8 => of_bytes(array.as_string::<i64>()),
            DataType::LargeBinary => of_bytes(array.as_binary::<i64>()),
            DataType::Utf8View => of_views(array.as_string_view()),
            DataType::BinaryView => of_views(array.as_binary_view()),
            DataType::FixedSizeBinary(size) => {
                Values::Fixed(array.as_fixed_size_binary().values().clone(), *size as usize)
            }
            DataType::FixedSizeList(_, len) => {
                let list = array.as_fixed_size_list();
                let (elements, size) = elements(list.values())?;
                holes = list.values().nulls().cloned();
                Values::Fixed(elements, size * *len as usize)
            }
            DataType::List(_) => {
                let list = array.as_list::<i32>();
                let (elements, size) = elements(list.values())?;
                holes = list.values().nulls().cloned();
                Values::Narrow(elements, size, list.offsets().inner().clone())
            }
            DataType::LargeList(_) => {
                let list = array.as_list::<i64>();
                let (elements, size) = elements(list.values())?;
                holes = list.values().nulls().cloned();
                Values::Wide(elements, size, list.offsets().inner().clone())
            }
            DataType::ListView(_) => of_list_views::<i32>(array, &mut holes)?,
            DataType::LargeListView(_) => of_list_views::<i64>(array, &mut holes)?,
            DataType::Dictionary(..) => of_dictionary(array, holds)?,
            _ => {
                let (elements, size) = elements(array)?;
                Values::Fixed(elements, size)
            }
        };
        let holes = holes.filter(|nulls| nulls.null_count() > 0);
        let zeros = match (&values, &missing) {
            (Values::Fixed(_, size), Some(_)) => vec![0; *size].into(),
            (Values::Dictionary(_, of), Some(_)) => vec![0; of.fixed().unwrap_or(0)].into(),
            _ => Box::default(),
        };
        Ok(Self { dtype: holds.dtype(), values, missing, holes, zeros })
    }

    /// Returns the bytes of a value, if all have the same number.
    fn fixed(&self) -> Option<usize> {
        match &self.values {
            Values::Fixed(_, size) => Some(*size),
            Values::Dictionary(_, of) => of.fixed(),
            Values::Narrow(..) | Values::Wide(..) => None,
        }
    }

    #[inline]
    fn value(&self, row: usize) -> &[u8] {
        if self.missing.as_ref().is_some_and(|missing| missing.is_null(row)) {
            return &self.zeros;
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
        self.missing.is_some() || self.holes.is_some() || of_dictionary
    }

    /// Returns whether the value is missing (true), or an element of it (false).
    fn missing(&self, row: usize) -> Option<bool> {
        if self.missing.as_ref().is_some_and(|missing| missing.is_null(row)) {
            return Some(true);
        }
        if let Values::Dictionary(keys, of) = &self.values {
            return of.missing(keys[row] as usize);
        }
        let holes = self.holes.as_ref()?;
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
        (values + nulls(&self.missing) + nulls(&self.holes) + 128) as u64
    }
}

/// Returns the bytes of numbers, and those of one.
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

fn of_offsets<O: OffsetSizeTrait>(bytes: Buffer, size: usize, offsets: ScalarBuffer<O>) -> Values {
    let offsets = offsets.into_inner();
    match O::IS_LARGE {
        true => Values::Wide(bytes, size, offsets.into()),
        false => Values::Narrow(bytes, size, offsets.into()),
    }
}

fn of_views<T: ByteViewType + ?Sized>(array: &GenericByteViewArray<T>) -> Values {
    let (mut bytes, mut ends) = (Vec::new(), vec![0_i64]);
    for row in 0..array.len() {
        if array.is_valid(row) {
            let value: &[u8] = array.value(row).as_ref();
            bytes.extend_from_slice(value);
        }
        ends.push(bytes.len() as i64);
    }
    Values::Wide(bytes.into(), 1, ends.into())
}

fn of_list_views<O: OffsetSizeTrait>(array: &ArrayRef, holes: &mut Option<NullBuffer>) -> Result<Values, String> {
    let list = array.as_list_view::<O>();
    let (elements, size) = elements(list.values())?;
    let (mut bytes, mut ends, mut valid) = (Vec::new(), vec![0_i64], Vec::new());
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

fn of_dictionary(array: &ArrayRef, holds: &Holds) -> Result<Values, String> {
    let array = array.as_any_dictionary();
    let of = Column::new(array.values(), holds, None)?;
    // A missing value may have any key, also if there are no values.
    let keys = if array.values().is_empty() { vec![0; array.len()] } else { array.normalized_keys() };
    let keys =
        keys.into_iter().map(|key| u32::try_from(key).map_err(|_| "a dictionary of more than 2^32 values".to_owned()));
    Ok(Values::Dictionary(keys.collect::<Result<_, _>>()?, Arc::new(of)))
}
