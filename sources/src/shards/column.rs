//! The columns of samples in shards.

use slotline::dtype::DType;

use crate::record::CapacityHint;
use crate::{FieldKind, Value};

/// A column of the samples.
#[derive(Debug)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) encoding: Encoding,
    /// The size of a value in bytes, if it is fixed. Otherwise each sample stores the sizes.
    pub(crate) size: Option<usize>,
    /// Whether the column is read.
    pub(crate) chosen: bool,
}

/// The encoding of a column's values.
#[derive(Clone, Debug)]
pub(crate) enum Encoding {
    Bytes,
    /// UTF-8 text.
    Text,
    Number(DType),
    /// A byte for a truth value. Any value but 0 is true.
    Truth,
    /// An `i64`, written as decimal digits.
    StrInt,
    /// An `f64`, written as decimal digits.
    StrFloat,
    /// An array with this type and shape.
    Tensor(DType, Vec<usize>),
    /// The elements of a vector.
    Vector(DType),
    /// An array of any shape. `None` stands for an array of any type.
    Array(ParseArray, Option<DType>),
    /// An encoding that is not supported: Python objects, and data that only Python libraries can
    /// read.
    Refused,
}

/// A function that parses an array of any shape. `None` stands for an array of any type.
pub(crate) type ParseArray = for<'a> fn(&'a [u8], Option<DType>) -> Result<Array<'a>, String>;

/// An array with its type and shape.
#[derive(Debug)]
pub(crate) struct Array<'a> {
    dtype: DType,
    shape: Vec<i64>,
    elements: &'a [u8],
}

impl<'a> Array<'a> {
    /// The message about an array whose header is truncated.
    pub(crate) const CUT: &'static str = "an array that ends in its header";

    /// Creates an array, which must have as many elements as its shape says.
    pub(crate) fn new(dtype: DType, shape: Vec<i64>, elements: &'a [u8]) -> Result<Self, String> {
        let expected = shape.iter().try_fold(dtype.size() as i64, |product, &dim| product.checked_mul(dim));
        match expected == i64::try_from(elements.len()).ok() {
            true => Ok(Self { dtype, shape, elements }),
            false => Err(format!("an array of {dtype} and shape {shape:?} with {} bytes of elements", elements.len())),
        }
    }
}

/// The properties of one value of a column: the number of items, the number of dimensions, and the
/// type of an array.
#[derive(Clone, Copy)]
pub(super) struct Measured {
    items: u64,
    dims: u64,
    dtype: DType,
}

impl Column {
    /// Returns the fields of the column, given the properties of some of its values.
    pub(super) fn fields(&self, found: &[Measured]) -> Vec<(String, FieldKind)> {
        let room = CapacityHint::estimate(found.iter().map(|found| found.items));
        let kind = match &self.encoding {
            Encoding::Bytes => FieldKind::Bytes(room),
            Encoding::Text => FieldKind::Text(room),
            Encoding::Number(dtype) => FieldKind::Number(*dtype),
            Encoding::Truth => FieldKind::Number(DType::Bool),
            Encoding::StrInt => FieldKind::Number(DType::I64),
            Encoding::StrFloat => FieldKind::Number(DType::F64),
            Encoding::Tensor(dtype, shape) => FieldKind::Tensor(*dtype, shape.clone()),
            Encoding::Vector(dtype) => FieldKind::List(*dtype, room),
            Encoding::Array(_, dtype) => {
                let dtype = dtype.or(found.first().map(|found| found.dtype)).unwrap_or(DType::U8);
                let dims = CapacityHint::estimate(found.iter().map(|found| found.dims));
                let shape = (format!("{}.shape", self.name), FieldKind::List(DType::I64, dims));
                return vec![(self.name.clone(), FieldKind::List(dtype, room)), shape];
            }
            Encoding::Refused => unreachable!("refused columns are not chosen"),
        };
        vec![(self.name.clone(), kind)]
    }
}

impl Encoding {
    /// Returns the properties of a value.
    pub(super) fn measure(&self, bytes: &[u8]) -> Result<Measured, String> {
        let (items, dims, dtype) = match self {
            Self::Vector(dtype) => (bytes.len() / dtype.size(), 0, *dtype),
            Self::Array(parse, dtype) => {
                let array = parse(bytes, *dtype)?;
                (array.elements.len() / array.dtype.size(), array.shape.len(), array.dtype)
            }
            _ => (bytes.len(), 0, DType::U8),
        };
        Ok(Measured { items: items as u64, dims: dims as u64, dtype })
    }

    /// Decodes a value and passes it to `add`. For an array of any shape, which must be of type
    /// `dtype`, these are two values: the elements and the shape.
    pub(super) fn decode<'a>(
        &self,
        bytes: &'a [u8],
        dtype: DType,
        add: &mut impl FnMut(Value<'a>),
    ) -> Result<(), String> {
        match self {
            Self::Text => {
                std::str::from_utf8(bytes).map_err(|error| format!("a text that is not UTF-8: {error}"))?;
                add(bytes.into());
            }
            Self::Truth => match bytes {
                [byte] => add(Value::number(*byte != 0)),
                _ => return Err(format!("a truth value of {} bytes", bytes.len())),
            },
            Self::StrInt => add(digits(bytes, true)?),
            Self::StrFloat => add(digits(bytes, false)?),
            Self::Number(dtype) if bytes.len() != dtype.size() => {
                return Err(format!("a number of {} bytes instead of {}", bytes.len(), dtype.size()));
            }
            Self::Tensor(dtype, _) | Self::Vector(dtype) => {
                check(*dtype, bytes)?;
                add(bytes.into());
            }
            Self::Array(parse, declared) => {
                let array = parse(bytes, *declared)?;
                if array.dtype != dtype {
                    return Err(format!("an array of {}, and the first sample's is of {dtype}", array.dtype));
                }
                check(dtype, array.elements)?;
                add(array.elements.into());
                let shape: Vec<_> = array.shape.iter().flat_map(|dim| dim.to_ne_bytes()).collect();
                add(Value::Bytes(shape.into()));
            }
            _ => add(bytes.into()),
        }
        Ok(())
    }
}

/// Checks that the bytes are a whole number of elements, and that truth values are 0 or 1.
fn check(dtype: DType, bytes: &[u8]) -> Result<(), String> {
    if !bytes.len().is_multiple_of(dtype.size()) {
        return Err(format!("{} bytes, which are not whole elements of {dtype}", bytes.len()));
    }
    if dtype == DType::Bool && bytes.iter().any(|&byte| byte > 1) {
        return Err("a truth value that is neither 0 nor 1".into());
    }
    Ok(())
}

/// Parses a number from its text, as Python's `int` and `float` do.
fn digits<'a>(bytes: &[u8], integer: bool) -> Result<Value<'a>, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "a number that is not UTF-8".to_owned())?.trim();
    let wrong = |kind| format!("{:?}, which is not {kind}", text.chars().take(40).collect::<String>());
    if integer {
        return text.parse::<i64>().map(Value::number).map_err(|_| wrong("an i64"));
    }
    text.parse::<f64>().map(Value::number).map_err(|_| wrong("an f64"))
}
