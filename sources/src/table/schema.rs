//! Converts the columns of a table to fields of samples.

use arrow_array::types::{ArrowPrimitiveType, Float16Type};
use arrow_schema::{DataType, Field, Fields, Schema};
use slotline::dtype::{DType, Element, bytes_of};

use crate::columns::{DECIMALS, NESTED, NO_VALUES};
use crate::{CapacityHint, DefaultNumber, FieldKind};

type Half = <Float16Type as ArrowPrimitiveType>::Native;

/// The maximum depth of nested columns.
pub(super) const DEEPEST: usize = 64;

/// The maximum length of the names of all columns, in bytes.
const LONGEST: usize = 64 << 20;

/// A column, or a member of a struct, that becomes a field of samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Leaf {
    /// The names on the path to it, joined by dots.
    pub(super) name: String,
    /// The index of the column, followed by the indices of the struct members on the path.
    pub(super) path: Vec<usize>,
    /// The kind of the field. Its capacity is chosen later.
    pub(super) kind: FieldKind,
}

/// Returns the bytes of a number for a column of this kind, or `None` if it does not fit.
pub(super) fn number_of(kind: &FieldKind, number: DefaultNumber) -> Option<Box<[u8]>> {
    fn integer<T: Element + TryFrom<i64>>(number: DefaultNumber) -> Option<Box<[u8]>> {
        let number = T::try_from(number.integer()?).ok()?;
        Some(bytes_of(&[number]).into())
    }
    let &FieldKind::Number(dtype) = kind else { return None };
    match dtype {
        DType::Bool => number.integer().filter(|number| matches!(number, 0 | 1)).map(|bit| [bit as u8].into()),
        DType::U8 => integer::<u8>(number),
        DType::I8 => integer::<i8>(number),
        DType::U16 => integer::<u16>(number),
        DType::I16 => integer::<i16>(number),
        DType::U32 => integer::<u32>(number),
        DType::I32 => integer::<i32>(number),
        DType::U64 => integer::<u64>(number),
        DType::I64 => integer::<i64>(number),
        // Rounds to the nearest float. Returns `None` if that is infinite although the number is
        // not.
        DType::F16 => {
            let (wide, near) = (number.float()?, Half::from_f64(number.float()?));
            (near.is_finite() || !wide.is_finite()).then(|| near.to_ne_bytes().into())
        }
        DType::F32 => {
            let (wide, near) = (number.float()?, number.float()? as f32);
            (near.is_finite() || !wide.is_finite()).then(|| near.to_ne_bytes().into())
        }
        DType::F64 => number.float().map(|number| number.to_ne_bytes().into()),
        _ => None,
    }
}

/// The columns of a file.
#[derive(Debug, Default)]
pub(super) struct Columns {
    pub(super) leaves: Vec<Leaf>,
    /// The names of columns that are not supported, and why.
    pub(super) others: Vec<(String, String)>,
    /// The length of all names together, in bytes.
    names: usize,
}

impl Columns {
    /// Returns the names of all columns.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.leaves.iter().map(|leaf| &*leaf.name).chain(self.others.iter().map(|(name, _)| &**name))
    }

    /// Returns the columns of a schema. Decimals are included if `decimals` is set.
    pub(super) fn new(schema: &Schema, decimals: bool) -> Result<Self, String> {
        let mut columns = Self::default();
        columns.add_all(schema.fields(), None, decimals)?;
        Ok(columns)
    }

    fn add_all(&mut self, fields: &Fields, above: Option<&(String, Vec<usize>)>, decimals: bool) -> Result<(), String> {
        for (number, field) in fields.iter().enumerate() {
            let (name, mut path) = match above {
                Some((name, path)) => (format!("{name}.{}", field.name()), path.clone()),
                None => (field.name().clone(), Vec::new()),
            };
            path.push(number);
            self.names += name.len();
            if self.names > LONGEST || path.len() > DEEPEST {
                return Err(format!(
                    "names of more than {LONGEST} bytes, or structs that are more than {DEEPEST} deep"
                ));
            }
            if let DataType::Struct(members) = field.data_type() {
                self.add_all(members, Some(&(name, path)), decimals)?;
                continue;
            }
            match kind(field.data_type(), decimals) {
                Ok(kind) => self.leaves.push(Leaf { name, path, kind }),
                Err(what) => self.others.push((name, what)),
            }
        }
        Ok(())
    }
}

/// Returns the kind of a column, or why it is not supported.
fn kind(of: &DataType, decimals: bool) -> Result<FieldKind, String> {
    let room = CapacityHint { items: 1, exceeded: true };
    let is_decimal =
        |of: &DataType| matches!(of, DataType::Decimal32(..) | DataType::Decimal64(..) | DataType::Decimal128(..));
    let elements = |field: &Field| match field.data_type() {
        of if is_decimal(of) => kind(of, decimals).map(|_| DType::F64),
        of => number(of).ok_or_else(|| NESTED.to_owned()),
    };
    let len = |len: i32| usize::try_from(len).map_err(|_| format!("values of the length {len}"));
    Ok(match of {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => FieldKind::Text(room),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => FieldKind::Bytes(room),
        DataType::FixedSizeBinary(width) => FieldKind::Tensor(DType::U8, vec![len(*width)?]),
        DataType::FixedSizeList(field, size) => FieldKind::Tensor(elements(field)?, vec![len(*size)?]),
        DataType::List(field) | DataType::LargeList(field) => match field.data_type() {
            DataType::FixedSizeList(item, size @ 1..) => FieldKind::Items(elements(item)?, vec![len(*size)?], room),
            _ => FieldKind::List(elements(field)?, room),
        },
        DataType::ListView(field) | DataType::LargeListView(field) => FieldKind::List(elements(field)?, room),
        of if is_decimal(of) && decimals => FieldKind::Number(DType::F64),
        of if is_decimal(of) => return Err(DECIMALS.to_owned()),
        DataType::Decimal256(..) => return Err("decimals of more than 128 bits".to_owned()),
        DataType::Null => return Err(NO_VALUES.to_owned()),
        DataType::Dictionary(_, values) => kind(values, decimals).map_err(|what| format!("{what} in a dictionary"))?,
        DataType::Map(..) => return Err("maps".to_owned()),
        DataType::Union(..) => return Err("unions".to_owned()),
        other => FieldKind::Number(number(other).ok_or_else(|| other.to_string())?),
    })
}

/// Returns the dtype of a column of numbers. Dates, times and durations are read as integers.
fn number(of: &DataType) -> Option<DType> {
    Some(match of {
        DataType::Boolean => DType::Bool,
        DataType::Int8 => DType::I8,
        DataType::UInt8 => DType::U8,
        DataType::Int16 => DType::I16,
        DataType::UInt16 => DType::U16,
        DataType::Int32 | DataType::Date32 | DataType::Time32(_) => DType::I32,
        DataType::UInt32 => DType::U32,
        DataType::UInt64 => DType::U64,
        DataType::Int64 | DataType::Date64 | DataType::Time64(_) => DType::I64,
        DataType::Timestamp(..) | DataType::Duration(_) => DType::I64,
        DataType::Float16 => DType::F16,
        DataType::Float32 => DType::F32,
        DataType::Float64 => DType::F64,
        _ => return None,
    })
}
