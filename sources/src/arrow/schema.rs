//! The columns of an Arrow schema, as fields of samples, and which buffers of a batch they are in.
//!
//! A batch lists its nodes and buffers in the order of a walk over all columns, depth first. How many each type has is
//! fixed, apart from views: those have any number of buffers more, which a batch counts. [`walk`](super::walk) moves them
//! behind the others, so that each column's buffers have the same numbers in all batches of a file.

use std::collections::BTreeMap;
use std::path::Path;

use arrow_ipc::{Field, Int, MetadataVersion, Precision, Schema, Type, UnionMode};
use slotline::dtype::DType;

use crate::Error;
use crate::columns::{DECIMALS, NESTED, NO_VALUES};

/// The maximum depth of nested columns.
const DEEPEST: usize = 32;

/// The maximum length of the names of all columns, in bytes.
const LONGEST: usize = 64 << 20;

/// A column that is a field of samples, or part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Leaf {
    /// The names down to it, joined by dots.
    pub(super) name: String,
    pub(super) holds: Holds,
    /// The buffers that tell which values are missing, and the nodes that count them: of the column, and of those above.
    pub(super) validity: Vec<(usize, usize)>,
    /// Those of the values in a list: any that is missing is an error.
    pub(super) inner_validity: Option<(usize, usize)>,
    /// How the values lie.
    pub(super) layout: Layout,
    /// The buffer of the elements, of the views, or of the indices.
    pub(super) data: usize,
}

/// How the values of a column lie in buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// One after another, all of the same size.
    Fixed,
    /// Between the offsets in another buffer, of 8 bytes if they are wide.
    Offsets { buffer: usize, wide: bool },
    /// At the offsets in one buffer, as long as another one says.
    Sizes { offsets: usize, sizes: usize, wide: bool },
    /// In views of 16 bytes, or where those say. Its number among the columns of views.
    Views(usize),
    /// In a dictionary of this number, at indices of a type.
    Dictionary(usize, DType),
}

/// What a column holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Holds {
    /// Truth values, as bits.
    Bits,
    Number(DType),
    /// Integers of this many bytes, to be divided by ten to the power of the scale.
    Decimal(usize, i32),
    Tensor(DType, Vec<usize>),
    List(DType),
    Bytes,
    Text,
}

impl Leaf {
    /// Returns the bytes of the elements of a row, if their number is fixed; otherwise those of one element.
    pub(super) fn row_bytes(&self) -> usize {
        match &self.holds {
            Holds::Number(dtype) | Holds::List(dtype) => dtype.size(),
            Holds::Decimal(width, _) => *width,
            Holds::Tensor(dtype, shape) => dtype.size() * shape.iter().product::<usize>(),
            Holds::Bits | Holds::Bytes | Holds::Text => 1,
        }
    }
}

/// The columns of a file, or those in one of its dictionaries.
#[derive(Debug, Default)]
pub(super) struct Columns {
    pub(super) leaves: Vec<Leaf>,
    /// Columns that are not read, and why.
    pub(super) others: Vec<(String, String)>,
    /// The columns of the dictionaries, of which each has one, and their numbers by their ids.
    pub(super) dictionaries: Vec<Columns>,
    pub(super) numbers: BTreeMap<i64, usize>,
    /// The number of nodes and buffers of a batch, without those that views have in addition.
    pub(super) nodes: usize,
    pub(super) buffers: usize,
    /// Before which buffers those of each column of views are.
    pub(super) views: Vec<usize>,
    /// The bytes of all names.
    names: usize,
}

/// What decides how columns are read.
#[derive(Clone, Copy, Debug)]
struct How {
    /// Whether decimals are read.
    decimals: bool,
    /// Whether unions have a buffer of missing values, as before version 1 of Arrow.
    old: bool,
}

impl Columns {
    pub(super) fn parse(
        path: &Path,
        schema: Schema<'_>,
        version: MetadataVersion,
        decimals: bool,
    ) -> Result<Self, Error> {
        let wrong = |problem: String| Error::format(path.display(), None, problem, "write the file again with Arrow");
        if schema.endianness() != arrow_ipc::Endianness::Little {
            return Err(wrong("a file of a big-endian machine".to_owned()));
        }
        let how = How { decimals, old: version < MetadataVersion::V5 };
        let mut columns = Self::default();
        for field in schema.fields().into_iter().flatten() {
            let name = field.name().ok_or_else(|| wrong("a column without a name".to_owned()))?;
            columns
                .add(field, name.to_owned(), Vec::new(), 0, how)
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
        how: How,
    ) -> Result<(), String> {
        if depth > DEEPEST {
            return Err(format!("nested more than {DEEPEST} deep"));
        }
        self.names += name.len();
        if self.names > LONGEST {
            return Err(format!("names of more than {LONGEST} bytes"));
        }
        if field.dictionary().is_some() {
            return self.indices(field, name, validity, depth, how);
        }
        if field.type_type() == Type::Struct_ {
            validity.push(self.node());
            for child in field.children().into_iter().flatten() {
                let name = format!("{name}.{}", child.name().unwrap_or_default());
                self.add(child, name, validity.clone(), depth + 1, how)?;
            }
            return Ok(());
        }
        match holds(field, how) {
            Ok(holds) => self.values(field, name, validity, holds),
            Err(what) => {
                self.skip(field, depth, how)?;
                self.others.push((name, what));
            }
        }
        Ok(())
    }

    /// Adds a column of values.
    fn values(&mut self, field: Field<'_>, name: String, mut validity: Vec<(usize, usize)>, holds: Holds) {
        validity.push(self.node());
        let (mut inner_validity, mut layout) = (None, Layout::Fixed);
        match field.type_type() {
            of @ (Type::Utf8 | Type::Binary | Type::LargeUtf8 | Type::LargeBinary) => {
                let wide = matches!(of, Type::LargeUtf8 | Type::LargeBinary);
                layout = Layout::Offsets { buffer: self.buffer(), wide };
            }
            of @ (Type::List | Type::LargeList) => {
                layout = Layout::Offsets { buffer: self.buffer(), wide: of == Type::LargeList };
                inner_validity = Some(self.node());
            }
            of @ (Type::ListView | Type::LargeListView) => {
                let (offsets, sizes) = (self.buffer(), self.buffer());
                layout = Layout::Sizes { offsets, sizes, wide: of == Type::LargeListView };
                inner_validity = Some(self.node());
            }
            Type::FixedSizeList => inner_validity = Some(self.node()),
            _ => {}
        }
        let data = self.buffer();
        if matches!(field.type_type(), Type::Utf8View | Type::BinaryView) {
            self.views.push(self.buffers);
            layout = Layout::Views(self.views.len() - 1);
        }
        self.leaves.push(Leaf { name, holds, validity, inner_validity, layout, data });
    }

    /// Adds a column of indices, whose values are in a dictionary.
    fn indices(
        &mut self,
        field: Field<'_>,
        name: String,
        mut validity: Vec<(usize, usize)>,
        depth: usize,
        how: How,
    ) -> Result<(), String> {
        let Some(dictionary) = field.dictionary() else { return Ok(()) };
        let index = match dictionary.indexType() {
            Some(of) => integer(of).ok_or_else(|| format!("indices of {} bits", of.bitWidth()))?,
            None => DType::I32,
        };
        let holds = match holds(field, how) {
            Ok(holds) => holds,
            Err(what) => {
                self.skip(field, depth, how)?;
                self.others.push((name, format!("{what} in a dictionary")));
                return Ok(());
            }
        };
        let mut columns = Self::default();
        columns.values(field, name.clone(), Vec::new(), holds.clone());
        let number = *self.numbers.entry(dictionary.id()).or_insert(self.dictionaries.len());
        match self.dictionaries.get(number).map(|other| &other.leaves[0]) {
            None => self.dictionaries.push(columns),
            // Several columns may share a dictionary.
            Some(other) if *other == (Leaf { name: other.name.clone(), ..columns.leaves.remove(0) }) => {}
            Some(_) => return Err("a dictionary of values of two types".to_owned()),
        }
        validity.push(self.node());
        let (data, layout) = (self.buffer(), Layout::Dictionary(number, index));
        self.leaves.push(Leaf { name, holds, validity, inner_validity: None, layout, data });
        Ok(())
    }

    /// Counts the nodes and buffers of a column that is not read.
    fn skip(&mut self, field: Field<'_>, depth: usize, how: How) -> Result<(), String> {
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
            Type::ListView | Type::LargeListView => 3,
            Type::Union => {
                let is_dense = field.type_as_union().is_some_and(|of| of.mode() == UnionMode::Dense);
                1 + usize::from(is_dense) + usize::from(how.old)
            }
            // Lists and maps have offsets; all others values.
            _ => 2,
        };
        if matches!(field.type_type(), Type::Utf8View | Type::BinaryView) {
            self.views.push(self.buffers);
        }
        for child in field.children().into_iter().flatten() {
            self.skip(child, depth + 1, how)?;
        }
        Ok(())
    }
}

/// Returns what the values of a column are, or why they can't be read. If they are in a dictionary, it is about those.
fn holds(field: Field<'_>, how: How) -> Result<Holds, String> {
    let children = field.children();
    let child = || children.filter(|children| children.len() == 1).map(|children| children.get(0));
    // What is in a list may not be in a dictionary.
    let numbers = || child().filter(|child| child.dictionary().is_none()).and_then(number);
    let len = |len: i32| usize::try_from(len).map_err(|_| format!("values of the length {len}"));
    Ok(match field.type_type() {
        Type::Bool => Holds::Bits,
        Type::Utf8 | Type::LargeUtf8 | Type::Utf8View => Holds::Text,
        Type::Binary | Type::LargeBinary | Type::BinaryView => Holds::Bytes,
        Type::FixedSizeBinary => {
            let width = field.type_as_fixed_size_binary().map_or(0, |of| of.byteWidth());
            Holds::Tensor(DType::U8, vec![len(width)?])
        }
        Type::FixedSizeList => {
            let size = field.type_as_fixed_size_list().map_or(0, |of| of.listSize());
            Holds::Tensor(numbers().ok_or(NESTED)?, vec![len(size)?])
        }
        Type::List | Type::LargeList | Type::ListView | Type::LargeListView => Holds::List(numbers().ok_or(NESTED)?),
        Type::Decimal => {
            let of = field.type_as_decimal().ok_or("decimals without a type")?;
            match of.bitWidth() {
                bits @ (32 | 64 | 128) if how.decimals => Holds::Decimal(bits as usize / 8, of.scale()),
                32 | 64 | 128 => return Err(DECIMALS.to_owned()),
                bits => return Err(format!("decimals of {bits} bits")),
            }
        }
        Type::Null => return Err(NO_VALUES.to_owned()),
        other => match number(field) {
            Some(dtype) => Holds::Number(dtype),
            None => return Err(other.variant_name().unwrap_or("a new type").to_owned()),
        },
    })
}

/// Returns the dtype of integers.
fn integer(int: Int<'_>) -> Option<DType> {
    Some(match (int.bitWidth(), int.is_signed()) {
        (8, true) => DType::I8,
        (8, false) => DType::U8,
        (16, true) => DType::I16,
        (16, false) => DType::U16,
        (32, true) => DType::I32,
        (32, false) => DType::U32,
        (64, true) => DType::I64,
        (64, false) => DType::U64,
        _ => return None,
    })
}

/// Returns the dtype of a column of numbers. Dates, times and durations are their integers.
fn number(field: Field<'_>) -> Option<DType> {
    Some(match field.type_type() {
        Type::Int => return integer(field.type_as_int()?),
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
