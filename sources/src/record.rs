//! Samples whose fields are known only at run time: their names and kinds come from the files.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::str::FromStr;

use slotline::BoxError;
use slotline::dtype::{DType, Element};
use slotline::sample::{Dynamic, Fields, Row, Sample};
use smallvec::SmallVec;

use crate::Error;
use crate::files::room;

/// The kind of a field of a [`Record`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FieldKind {
    /// One number or truth value: `[B]` in a batch.
    Number(DType),
    /// A tensor of one shape in every sample: `[B, …]` in a batch.
    Tensor(DType, Vec<usize>),
    /// Any number of elements in each sample, packed in a batch.
    List(DType, CapacityHint),
    /// Any number of items of one shape in each sample, packed in a batch, such as boxes.
    Items(DType, Vec<usize>, CapacityHint),
    /// Bytes, packed in a batch as `u8`.
    Bytes(CapacityHint),
    /// UTF-8 text, packed in a batch as `u8`.
    Text(CapacityHint),
}

/// The capacity of a batch for a packed field, per sample of a full batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapacityHint {
    /// The number of items (elements or bytes) per sample.
    pub items: usize,
    /// Whether a sample may have more items than this.
    pub exceeded: bool,
}

impl CapacityHint {
    /// Chooses the capacity for samples of these lengths. It is the longest length if that is at
    /// most twice the mean. Otherwise it is twice the mean, and a batch that needs more
    /// [spills](Fields::spill).
    pub fn of(lengths: impl IntoIterator<Item = u64>) -> Self {
        let (mut most, mut sum, mut count) = (0_u64, 0_u128, 0_u128);
        for length in lengths {
            (most, sum, count) = (most.max(length), sum + u128::from(length), count + 1);
        }
        let twice = (2 * sum).div_ceil(count.max(1));
        let items = u128::from(most).min(twice).max(1);
        Self { items: usize::try_from(items).unwrap_or(usize::MAX), exceeded: u128::from(most) > twice }
    }

    /// Chooses the capacity from the lengths of some of the samples. Other samples may be longer.
    pub fn estimate(lengths: impl IntoIterator<Item = u64>) -> Self {
        Self { exceeded: true, ..Self::of(lengths) }
    }
}

/// The maximum number of fields of a file.
pub(crate) const MAX_FIELDS: usize = 4096;

/// The number of samples, or of shards, that are tried until one is not damaged, where the first
/// one decides about fields.
#[cfg(any(feature = "image", feature = "litdata", feature = "mds", feature = "tar"))]
pub(crate) const TRIED: usize = 16;

/// Returns an error if a file has too many fields, since some operations take time in proportion to
/// the square of their number.
pub(crate) fn check_count(name: impl fmt::Display, fields: usize) -> Result<(), Error> {
    if fields > MAX_FIELDS {
        let problem = format!("{fields} fields; the maximum is {MAX_FIELDS}");
        return Err(Error::format(name, None, problem, "write fewer"));
    }
    Ok(())
}

/// The name and the kind of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordField {
    /// The name, as in the file.
    pub name: String,
    /// The kind of the field's values.
    pub kind: FieldKind,
}

/// The fields that all records of a dataset have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordFields(Vec<RecordField>);

impl RecordFields {
    /// Creates the fields from their names and kinds.
    pub fn new(fields: impl IntoIterator<Item = (impl Into<String>, FieldKind)>) -> Self {
        Self(fields.into_iter().map(|(name, kind)| RecordField { name: name.into(), kind }).collect())
    }

    /// Returns the fields in order.
    pub fn as_slice(&self) -> &[RecordField] {
        &self.0
    }

    /// Returns the index of the field with this name.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|field| field.name == name)
    }

    /// Returns the fields in the form in which a loader declares them.
    pub fn declared(&self) -> Fields {
        let mut fields = Fields::new();
        self.declare(&mut fields);
        fields
    }

    #[cfg(feature = "image")]
    pub(crate) fn push(&mut self, name: String, kind: FieldKind) {
        self.0.push(RecordField { name, kind });
    }

    #[cfg(feature = "image")]
    pub(crate) fn set_kind(&mut self, field: usize, kind: FieldKind) {
        self.0[field].kind = kind;
    }

    pub(crate) fn declare(&self, fields: &mut Fields) {
        fields.named_run(self.0.iter().map(|field| (field.name.clone(), Declared(&field.kind))));
        if self.0.iter().any(|field| matches!(field.kind.room(), Some(CapacityHint { exceeded: true, .. }))) {
            fields.spill();
        }
    }
}

impl FieldKind {
    /// Returns the type of the elements.
    pub fn dtype(&self) -> DType {
        match *self {
            Self::Number(dtype) | Self::Tensor(dtype, _) | Self::List(dtype, _) | Self::Items(dtype, ..) => dtype,
            Self::Bytes(_) | Self::Text(_) => DType::U8,
        }
    }

    /// Returns the same kind with another capacity, if it has one.
    pub(crate) fn with_room(&self, new: impl FnOnce(CapacityHint) -> CapacityHint) -> Self {
        let mut kind = self.clone();
        if let Self::List(_, room) | Self::Items(_, _, room) | Self::Bytes(room) | Self::Text(room) = &mut kind {
            *room = new(*room);
        }
        kind
    }

    /// Returns the value that replaces a missing one if `missing_as_zero` is set.
    pub(crate) fn zero(&self) -> io::Result<Value<'static>> {
        let items = match self {
            Self::Number(_) => 1,
            Self::Tensor(_, shape) => shape.iter().fold(1, |items, dim| dim.saturating_mul(items)),
            Self::List(..) | Self::Items(..) | Self::Bytes(_) | Self::Text(_) => 0,
        };
        let mut bytes = Vec::new();
        room(&mut bytes, items.saturating_mul(self.dtype().size()))?;
        Ok(Value::Bytes(Cow::Owned(bytes)))
    }

    /// Returns the size in bytes of an item of a packed field.
    #[cfg(any(feature = "arrow", feature = "parquet"))]
    pub(crate) fn item_bytes(&self) -> usize {
        let elements = if let Self::Items(_, item, _) = self { item.iter().product() } else { 1 };
        elements * self.dtype().size()
    }

    /// Returns the capacity of a packed field; `None` for other kinds.
    pub fn room(&self) -> Option<CapacityHint> {
        match *self {
            Self::List(_, room) | Self::Items(_, _, room) | Self::Bytes(room) | Self::Text(room) => Some(room),
            Self::Number(_) | Self::Tensor(..) => None,
        }
    }
}

impl fmt::Display for FieldKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(dtype) => write!(f, "{dtype}"),
            Self::Tensor(dtype, shape) => write!(f, "{dtype} {shape:?}"),
            Self::List(dtype, _) => write!(f, "{dtype} list"),
            Self::Items(dtype, item, _) => write!(f, "{dtype} {item:?} list"),
            Self::Bytes(_) => f.write_str("bytes"),
            Self::Text(_) => f.write_str("text"),
        }
    }
}

/// Parses a kind from text: `bytes`, `text`, `i64`, `f32 [2, 3]`, `i64 list`. The capacity of the
/// result is 0.
impl FromStr for FieldKind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let room = CapacityHint { items: 1, exceeded: true };
        let (dtype, rest) = text.split_once(' ').unwrap_or((text, ""));
        let shape = || -> Option<Vec<usize>> {
            rest.strip_prefix('[')?.strip_suffix(']')?.split(',').map(|dim| dim.trim().parse().ok()).collect()
        };
        let kind = match (text, dtype.parse(), rest) {
            ("bytes", ..) => Some(Self::Bytes(room)),
            ("text", ..) => Some(Self::Text(room)),
            (_, Ok(dtype), "") => Some(Self::Number(dtype)),
            (_, Ok(dtype), "list") => Some(Self::List(dtype, room)),
            (_, Ok(dtype), _) => shape().map(|shape| Self::Tensor(dtype, shape)),
            (_, Err(_), _) => None,
        };
        let advice = "write bytes, text, a type as i64, a tensor as f32 [2, 3], or a list as i64 list";
        kind.ok_or_else(|| Error::usage(format!("{text} is no kind of a field"), advice))
    }
}

impl fmt::Display for RecordField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.kind)
    }
}

/// A field without values, which is used only to declare it.
struct Declared<'a>(&'a FieldKind);

impl Sample for Declared<'_> {
    type Schema = Dynamic;

    fn declare(&self, fields: &mut Fields) {
        match self.0 {
            FieldKind::Number(dtype) => fields.fixed(*dtype, &[]),
            FieldKind::Tensor(dtype, shape) => fields.fixed(*dtype, shape),
            FieldKind::List(dtype, room) => fields.packed(*dtype, &[], room.items),
            FieldKind::Items(dtype, item, room) => fields.packed(*dtype, item, room.items),
            FieldKind::Bytes(room) | FieldKind::Text(room) => fields.packed(DType::U8, &[], room.items),
        }
    }

    fn write(self, _: &mut Row<'_>) -> Result<(), BoxError> {
        Err("a declaration has no value".into())
    }
}

/// The value of one field.
#[derive(Clone, Debug)]
pub enum Value<'a> {
    /// One number, made by a decoder.
    Number(Number),
    /// The bytes of the elements in the machine's byte order, at any alignment; for a text, its
    /// UTF-8.
    Bytes(Cow<'a, [u8]>),
}

impl<'a> From<&'a [u8]> for Value<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Bytes(Cow::Borrowed(bytes))
    }
}

impl Value<'_> {
    /// Creates the value of a number.
    pub fn number<T: Element>(number: T) -> Self {
        Self::Number(Number::new(number))
    }

    /// Returns the bytes of the elements in the machine's byte order.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Number(number) => number.bytes(),
            Self::Bytes(bytes) => bytes,
        }
    }
}

/// A number of any dtype.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number {
    bytes: [u8; 8],
    dtype: DType,
}

impl Number {
    /// Creates a number from an element.
    pub fn new<T: Element>(number: T) -> Self {
        let mut bytes = [0; 8];
        bytes[..size_of::<T>()].copy_from_slice(slotline::dtype::bytes_of(std::slice::from_ref(&number)));
        Self { bytes, dtype: T::DTYPE }
    }

    /// Returns the type of the number.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the bytes of the number in the machine's byte order.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.dtype.size()]
    }
}

/// One sample: a value for each of the dataset's fields.
#[derive(Clone, Debug)]
pub struct Record<'a> {
    fields: &'a RecordFields,
    values: Values<'a>,
}

/// The values of a record.
#[derive(Clone, Debug)]
enum Values<'a> {
    Listed(SmallVec<[Value<'a>; 4]>),
    /// A row of columns that are in memory.
    Row(&'a dyn Rows, usize),
}

/// Columns in memory that can write a whole row without making a list of its values.
pub(crate) trait Rows: fmt::Debug + Send + Sync {
    /// Returns the bytes of a value: its elements in the machine's byte order, or the UTF-8 of a
    /// text.
    fn value(&self, field: usize, row: usize) -> &[u8];

    /// Writes all values of a row.
    fn write(&self, row: usize, into: &mut Row<'_>) -> Result<(), BoxError>;
}

impl<'a> Record<'a> {
    /// Creates a record with these fields. There must be one value for each field, in order.
    pub fn new(fields: &'a RecordFields, values: impl IntoIterator<Item = Value<'a>>) -> Self {
        Self { fields, values: Values::Listed(values.into_iter().collect()) }
    }

    /// Creates the record of a row, which must have a value for each field.
    pub(crate) fn of_row(fields: &'a RecordFields, rows: &'a dyn Rows, row: usize) -> Self {
        Self { fields, values: Values::Row(rows, row) }
    }

    /// Returns the fields of the record.
    pub fn fields(&self) -> &'a RecordFields {
        self.fields
    }

    pub(crate) fn into_values(self) -> SmallVec<[Value<'a>; 4]> {
        match self.values {
            Values::Listed(values) => values,
            Values::Row(rows, row) => {
                (0..self.fields.0.len()).map(|field| Value::from(rows.value(field, row))).collect()
            }
        }
    }

    /// Returns the bytes of a field: its elements in the machine's byte order, or the UTF-8 of a
    /// text. Returns `None` if there is no field with this name.
    pub fn bytes(&self, name: &str) -> Option<&[u8]> {
        self.fields.position(name).and_then(|i| self.value(i))
    }

    /// Returns the bytes of a field like [`bytes`](Self::bytes), but for as long as the dataset and
    /// the [`Context`] are borrowed, so that another sample can hold them. Also returns `None` if
    /// the bytes were made for this record, by decoding.
    ///
    /// [`Context`]: slotline::dataset::Context
    pub fn borrowed(&self, name: &str) -> Option<&'a [u8]> {
        let field = self.fields.position(name)?;
        match &self.values {
            Values::Listed(values) => match values.get(field)? {
                Value::Bytes(Cow::Borrowed(bytes)) => Some(bytes),
                Value::Bytes(Cow::Owned(_)) | Value::Number(_) => None,
            },
            Values::Row(rows, row) => Some(rows.value(field, *row)),
        }
    }

    /// Returns the bytes of field `i`, like [`bytes`](Self::bytes), or `None` if there is no such
    /// field.
    pub fn value(&self, i: usize) -> Option<&[u8]> {
        match &self.values {
            Values::Listed(values) => values.get(i).map(Value::bytes),
            Values::Row(rows, row) => (i < self.fields.0.len()).then(|| rows.value(i, *row)),
        }
    }

    /// Writes field `i`, which must exist.
    pub(crate) fn write_value(&self, i: usize, row: &mut Row<'_>) -> Result<(), BoxError> {
        let dtype = self.fields.0[i].kind.dtype();
        match &self.values {
            Values::Listed(values) => match &values[i] {
                Value::Number(number) => row.write_bytes(number.dtype, number.bytes())?,
                Value::Bytes(bytes) => row.write_bytes(dtype, bytes)?,
            },
            Values::Row(rows, at) => row.write_bytes(dtype, rows.value(i, *at))?,
        }
        Ok(())
    }

    /// Returns the text of a field. Returns `None` if there is no field with this name, or if it is
    /// not a text.
    pub fn text(&self, name: &str) -> Option<&str> {
        let i = self.fields.position(name)?;
        let is_text = matches!(self.fields.0[i].kind, FieldKind::Text(_));
        is_text.then(|| self.value(i).and_then(|bytes| std::str::from_utf8(bytes).ok()))?
    }

    /// Returns the elements of a field. Returns `None` if there is no field with this name, or if
    /// its elements are not of type `T`.
    pub fn elements<T: Element>(&self, name: &str) -> Option<Vec<T>> {
        let i = self.fields.position(name)?;
        if self.fields.0[i].kind.dtype() != T::DTYPE {
            return None;
        }
        slotline::dtype::from_bytes(self.value(i)?)
    }

    /// Returns the number in a field. Returns `None` if there is no field with this name, or if it
    /// is not a single `T`.
    pub fn number<T: Element>(&self, name: &str) -> Option<T> {
        match self.elements(name)?[..] {
            [number] => Some(number),
            _ => None,
        }
    }
}

impl Sample for Record<'_> {
    type Schema = Dynamic;

    fn declare(&self, fields: &mut Fields) {
        self.fields.declare(fields);
    }

    fn write(self, row: &mut Row<'_>) -> Result<(), BoxError> {
        let fields = match &self.values {
            Values::Listed(values) => values.len().min(self.fields.0.len()),
            Values::Row(rows, at) => return rows.write(*at, row),
        };
        row.write_run(|row| (0..fields).try_for_each(|i| self.write_value(i, row)))
    }
}
