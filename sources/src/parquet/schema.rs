//! The columns of a Parquet schema, as fields of samples.

use parquet::basic::{ConvertedType, LogicalType, Repetition, Type as Physical};
use parquet::schema::types::{SchemaDescriptor, Type};
use slotline::dtype::DType;

use crate::columns::{DECIMALS, NESTED, NO_VALUES};

/// The maximum length of the names of all columns, in bytes.
const LONGEST: usize = 64 << 20;

/// A column that is a field of samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Leaf {
    /// The names down to it, joined by dots, without those that a list has inside.
    pub(super) name: String,
    /// Its number among all columns.
    pub(super) column: usize,
    pub(super) holds: Holds,
    /// The definition level of a value that is there.
    pub(super) full: i16,
    /// For a list, the definition level of an element, missing or not.
    pub(super) element: Option<i16>,
}

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holds {
    Number(DType),
    /// Bytes of a fixed length.
    Fixed(usize),
    Bytes,
    Text,
}

/// What is known on the way down to a column.
#[derive(Clone, Default)]
struct Way {
    names: Vec<String>,
    /// The definition level, and that of the repeated part.
    level: i16,
    element: Option<i16>,
    /// How many repeated parts there are.
    repeated: usize,
}

/// The columns of a file.
#[derive(Default)]
pub(super) struct Columns {
    pub(super) leaves: Vec<Leaf>,
    /// Columns that are not read, and why.
    pub(super) others: Vec<(String, String)>,
    /// How many there are.
    count: usize,
    /// The bytes of all names.
    names: usize,
}

impl Columns {
    /// Returns the columns of a schema, with its decimals if those are read; `None` if their names are too long.
    pub(super) fn new(schema: &SchemaDescriptor, decimals: bool) -> Option<Self> {
        let mut columns = Self::default();
        for field in schema.root_schema().get_fields() {
            add(field, &Way::default(), decimals, &mut columns)?;
        }
        Some(columns)
    }
}

fn add(field: &Type, way: &Way, decimals: bool, columns: &mut Columns) -> Option<()> {
    let mut way = way.clone();
    columns.names += field.name().len() + way.names.iter().map(String::len).sum::<usize>();
    if columns.names > LONGEST {
        return None;
    }
    let info = field.get_basic_info();
    let repetition = if info.has_repetition() { info.repetition() } else { Repetition::REQUIRED };
    // The parts below the repeated one of a list are names of the format, such as `list.element`.
    if way.repeated == 0 && repetition != Repetition::REPEATED || way.names.is_empty() {
        way.names.push(field.name().to_owned());
    }
    if repetition != Repetition::REQUIRED {
        way.level += 1;
    }
    if repetition == Repetition::REPEATED {
        way.repeated += 1;
        way.element = Some(way.level);
    }
    if field.is_group() {
        let members = field.get_fields();
        if way.repeated > 0 && members.len() > 1 {
            // Each member of the structs in a list would be a list.
            way.repeated += 1;
        }
        for member in members {
            add(member, &way, decimals, columns)?;
        }
        return Some(());
    }
    let (name, column) = (way.names.join("."), columns.count);
    match holds(field, decimals) {
        Ok(holds) if way.repeated == 0 || (way.repeated == 1 && matches!(holds, Holds::Number(_))) => {
            columns.leaves.push(Leaf { name, column, holds, full: way.level, element: way.element });
        }
        Ok(_) => columns.others.push((name, NESTED.to_owned())),
        Err(what) => columns.others.push((name, what)),
    }
    columns.count += 1;
    Some(())
}

/// Whether the values of a column are decimals.
pub(super) fn is_decimal(field: &Type) -> bool {
    let info = field.get_basic_info();
    info.converted_type() == ConvertedType::DECIMAL
        || matches!(info.logical_type_ref(), Some(LogicalType::Decimal { .. }))
}

/// Returns what a column holds, or why it can't be read.
fn holds(field: &Type, decimals: bool) -> Result<Holds, String> {
    let info = field.get_basic_info();
    let converted = info.converted_type();
    if matches!(info.logical_type_ref(), Some(LogicalType::Unknown)) {
        return Err(NO_VALUES.to_owned());
    }
    if is_decimal(field) {
        let is_wide = match field {
            Type::PrimitiveType { physical_type: Physical::FIXED_LEN_BYTE_ARRAY, type_length, .. } => *type_length > 16,
            _ => false,
        };
        return match (is_wide, decimals) {
            (true, _) => Err("decimals of more than 128 bits".to_owned()),
            (false, true) => Ok(Holds::Number(DType::F64)),
            (false, false) => Err(DECIMALS.to_owned()),
        };
    }
    Ok(match field.get_physical_type() {
        Physical::BOOLEAN => Holds::Number(DType::Bool),
        Physical::INT32 => Holds::Number(match converted {
            ConvertedType::INT_8 => DType::I8,
            ConvertedType::INT_16 => DType::I16,
            ConvertedType::UINT_8 => DType::U8,
            ConvertedType::UINT_16 => DType::U16,
            ConvertedType::UINT_32 => DType::U32,
            _ => DType::I32,
        }),
        Physical::INT64 if converted == ConvertedType::UINT_64 => Holds::Number(DType::U64),
        Physical::INT64 => Holds::Number(DType::I64),
        Physical::FLOAT => Holds::Number(DType::F32),
        Physical::DOUBLE => Holds::Number(DType::F64),
        Physical::INT96 => Holds::Number(DType::I64),
        Physical::FIXED_LEN_BYTE_ARRAY => match (info.logical_type_ref(), field) {
            (Some(LogicalType::Float16), _) => Holds::Number(DType::F16),
            (_, Type::PrimitiveType { type_length, .. }) => {
                Holds::Fixed(usize::try_from(*type_length).map_err(|_| "values of a negative length".to_owned())?)
            }
            (_, Type::GroupType { .. }) => return Err("a group".to_owned()),
        },
        Physical::BYTE_ARRAY => {
            let is_text = matches!(converted, ConvertedType::UTF8 | ConvertedType::JSON | ConvertedType::ENUM)
                || matches!(info.logical_type_ref(), Some(LogicalType::String | LogicalType::Json | LogicalType::Enum));
            if is_text { Holds::Text } else { Holds::Bytes }
        }
    })
}

impl Holds {
    /// Returns the bytes of one value, if they are fixed.
    pub(super) fn size(self) -> usize {
        match self {
            Self::Number(dtype) => dtype.size(),
            Self::Fixed(len) => len,
            Self::Bytes | Self::Text => 1,
        }
    }
}
