//! The columns of an Arrow schema, as fields of samples, and which buffers of a batch they are in.
//!
//! A batch lists its buffers in the order of a walk over all columns, depth first. How many each type has is fixed, apart
//! from views and unions, which are not read.

use std::path::Path;

use arrow_ipc::{Field, Precision, Schema, Type};
use slotline::dtype::DType;

use crate::Error;

/// The maximum depth of nested columns.
const DEEPEST: usize = 32;

/// A column that is a field of samples, or part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Leaf {
    /// The names down to it, joined by dots.
    pub(super) name: String,
    pub(super) holds: Holds,
    /// The buffers that tell which values are missing, and the nodes that count them: of the column, and of those above.
    pub(super) validity: Vec<(usize, usize)>,
    /// Those of the values in a fixed number of elements: any that is missing is an error.
    pub(super) inner_validity: Option<(usize, usize)>,
    /// The buffer of offsets, and whether they have 8 bytes, of a column of any number of elements.
    pub(super) offsets: Option<(usize, bool)>,
    /// The buffer of the elements.
    pub(super) data: usize,
}

/// What a column holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Holds {
    /// Truth values, as bits.
    Bits,
    Number(DType),
    Tensor(DType, Vec<usize>),
    List(DType),
    Bytes,
    Text,
}

impl Leaf {
    /// Returns the bytes of the elements of a row, if their number is fixed.
    pub(super) fn row_bytes(&self) -> usize {
        match &self.holds {
            Holds::Number(dtype) => dtype.size(),
            Holds::Tensor(dtype, shape) => dtype.size() * shape.iter().product::<usize>(),
            Holds::List(dtype) => dtype.size(),
            Holds::Bits | Holds::Bytes | Holds::Text => 1,
        }
    }
}

/// Returns the columns that `chosen` names, or all, and the number of nodes and buffers of a batch.
pub(super) struct Columns {
    pub(super) leaves: Vec<Leaf>,
    /// Columns that are not read, and why.
    pub(super) others: Vec<(String, String)>,
    pub(super) nodes: usize,
    pub(super) buffers: usize,
}

impl Columns {
    pub(super) fn parse(path: &Path, schema: Schema<'_>) -> Result<Self, Error> {
        let wrong = |problem: String| Error::format(path.display(), None, problem, "write the file again with Arrow");
        if schema.endianness() != arrow_ipc::Endianness::Little {
            return Err(wrong("a file of a big-endian machine".to_owned()));
        }
        let mut columns = Self { leaves: Vec::new(), others: Vec::new(), nodes: 0, buffers: 0 };
        for field in schema.fields().into_iter().flatten() {
            let name = field.name().ok_or_else(|| wrong("a column without a name".to_owned()))?;
            columns
                .add(field, name.to_owned(), Vec::new(), 0)
                .map_err(|problem| wrong(format!("column {name}: {problem}")))?;
        }
        Ok(columns)
    }

    /// Counts the node and the first buffer of a column: that of missing values.
    fn node(&mut self) -> (usize, usize) {
        (self.nodes, self.buffers) = (self.nodes + 1, self.buffers + 1);
        (self.buffers - 1, self.nodes - 1)
    }

    fn buffer(&mut self) -> usize {
        self.buffers += 1;
        self.buffers - 1
    }

    /// Adds a column, or those in it.
    fn add(
        &mut self,
        field: Field<'_>,
        name: String,
        mut validity: Vec<(usize, usize)>,
        depth: usize,
    ) -> Result<(), String> {
        if depth > DEEPEST {
            return Err(format!("nested more than {DEEPEST} deep"));
        }
        let children: Vec<Field<'_>> = field.children().map(|children| children.iter().collect()).unwrap_or_default();
        let only = || children.first().copied().filter(|_| children.len() == 1).ok_or("a list without a type");
        let leaf =
            |name, validity, holds, offsets, data| Leaf { name, holds, validity, inner_validity: None, offsets, data };
        if field.dictionary().is_some() {
            self.skip(field, depth)?;
            self.others.push((name, "values in a dictionary".to_owned()));
            return Ok(());
        }
        match field.type_type() {
            Type::Struct_ => {
                validity.push(self.node());
                for child in children {
                    let name = format!("{name}.{}", child.name().unwrap_or_default());
                    self.add(child, name, validity.clone(), depth + 1)?;
                }
            }
            Type::Utf8 | Type::Binary | Type::LargeUtf8 | Type::LargeBinary => {
                validity.push(self.node());
                let wide = matches!(field.type_type(), Type::LargeUtf8 | Type::LargeBinary);
                let is_text = matches!(field.type_type(), Type::LargeUtf8 | Type::Utf8);
                let (offsets, data) = (self.buffer(), self.buffer());
                let holds = if is_text { Holds::Text } else { Holds::Bytes };
                self.leaves.push(leaf(name, validity, holds, Some((offsets, wide)), data));
            }
            Type::FixedSizeBinary => {
                validity.push(self.node());
                let width = field.type_as_fixed_size_binary().map_or(0, |of| of.byteWidth());
                let width = usize::try_from(width).map_err(|_| format!("values of {width} bytes"))?;
                let data = self.buffer();
                self.leaves.push(leaf(name, validity, Holds::Tensor(DType::U8, vec![width]), None, data));
            }
            Type::List | Type::LargeList => {
                let child = only()?;
                match number(child) {
                    Some(dtype) if child.dictionary().is_none() => {
                        validity.push(self.node());
                        let offsets = (self.buffer(), field.type_type() == Type::LargeList);
                        let inner = self.node();
                        let data = self.buffer();
                        let leaf = leaf(name, validity, Holds::List(dtype), Some(offsets), data);
                        self.leaves.push(Leaf { inner_validity: Some(inner), ..leaf });
                    }
                    _ => self.unread(field, name, "a list of other values than numbers", depth)?,
                }
            }
            Type::FixedSizeList => self.tensor(field, name, validity, depth)?,
            _ => match (field.type_type(), number(field)) {
                (Type::Bool, _) => {
                    validity.push(self.node());
                    let data = self.buffer();
                    self.leaves.push(leaf(name, validity, Holds::Bits, None, data));
                }
                (_, Some(dtype)) => {
                    validity.push(self.node());
                    let data = self.buffer();
                    self.leaves.push(leaf(name, validity, Holds::Number(dtype), None, data));
                }
                (other, None) => self.unread(field, name, other.variant_name().unwrap_or("a new type"), depth)?,
            },
        }
        Ok(())
    }

    /// Adds lists of a fixed length, of numbers or of such lists.
    fn tensor(
        &mut self,
        field: Field<'_>,
        name: String,
        mut validity: Vec<(usize, usize)>,
        depth: usize,
    ) -> Result<(), String> {
        let (mut shape, mut child) = (Vec::new(), field);
        while child.type_type() == Type::FixedSizeList && child.dictionary().is_none() && shape.len() <= DEEPEST {
            let size = child.type_as_fixed_size_list().map_or(0, |of| of.listSize());
            shape.push(usize::try_from(size).map_err(|_| format!("lists of {size} values"))?);
            child = child.children().and_then(|all| all.iter().next()).ok_or("a list without a type")?;
        }
        let items = shape.iter().try_fold(8_usize, |bytes, &size| bytes.checked_mul(size));
        let dtype = number(child).filter(|_| child.dictionary().is_none() && items.is_some());
        // Missing values below the outermost list are looked for at one level only.
        let Some(dtype) = dtype.filter(|_| shape.len() == 1) else {
            return self.unread(field, name, "lists of a fixed length of other values than numbers", depth);
        };
        validity.push(self.node());
        let inner = self.node();
        let data = self.buffer();
        let holds = Holds::Tensor(dtype, shape);
        self.leaves.push(Leaf { name, holds, validity, inner_validity: Some(inner), offsets: None, data });
        Ok(())
    }

    /// Counts the nodes and buffers of a column that is not read.
    fn unread(&mut self, field: Field<'_>, name: String, what: &str, depth: usize) -> Result<(), String> {
        self.skip(field, depth)?;
        self.others.push((name, what.to_owned()));
        Ok(())
    }

    fn skip(&mut self, field: Field<'_>, depth: usize) -> Result<(), String> {
        if depth > DEEPEST {
            return Err(format!("nested more than {DEEPEST} deep"));
        }
        self.nodes += 1;
        if field.dictionary().is_some() {
            self.buffers += 2;
            return Ok(());
        }
        self.buffers += match field.type_type() {
            Type::Null | Type::RunEndEncoded => 0,
            Type::Struct_ | Type::FixedSizeList => 1,
            Type::Utf8 | Type::Binary | Type::LargeUtf8 | Type::LargeBinary => 3,
            Type::Union | Type::Utf8View | Type::BinaryView | Type::ListView | Type::LargeListView => {
                let name = field.type_type().variant_name().unwrap_or_default();
                return Err(format!("{name} is not read; cast it before writing, or leave it out"));
            }
            // Lists and maps have offsets; all others values.
            _ => 2,
        };
        for child in field.children().into_iter().flatten() {
            self.skip(child, depth + 1)?;
        }
        Ok(())
    }
}

/// Returns the dtype of a column of numbers. Dates, times and durations are their integers.
fn number(field: Field<'_>) -> Option<DType> {
    Some(match field.type_type() {
        Type::Int => {
            let int = field.type_as_int()?;
            match (int.bitWidth(), int.is_signed()) {
                (8, true) => DType::I8,
                (8, false) => DType::U8,
                (16, true) => DType::I16,
                (16, false) => DType::U16,
                (32, true) => DType::I32,
                (32, false) => DType::U32,
                (64, true) => DType::I64,
                (64, false) => DType::U64,
                _ => return None,
            }
        }
        Type::FloatingPoint => match field.type_as_floating_point()?.precision() {
            Precision::HALF => DType::F16,
            Precision::SINGLE => DType::F32,
            Precision::DOUBLE => DType::F64,
            _ => return None,
        },
        Type::Date => match field.type_as_date()?.unit() {
            arrow_ipc::DateUnit::DAY => DType::I32,
            _ => DType::I64,
        },
        Type::Time => match field.type_as_time()?.bitWidth() {
            32 => DType::I32,
            _ => DType::I64,
        },
        Type::Timestamp | Type::Duration => DType::I64,
        _ => return None,
    })
}
