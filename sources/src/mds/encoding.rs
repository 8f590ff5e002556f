//! The encodings of MDS columns, after `streaming/base/format/mds/encodings.py` (mosaicml-streaming 0.13.0).

use slotline::dtype::DType;

use crate::Value;

/// How a column is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Bytes,
    /// UTF-8: `str`, `json`, `str_decimal`.
    Text,
    Number(DType),
    /// An i64 in decimal digits.
    StrInt,
    /// An f64 in decimal digits.
    StrFloat,
    /// An array of one type and shape.
    Array(DType, Vec<usize>),
    /// An array of any shape, and of any type if there is none.
    AnyArray(Option<DType>),
    /// Can't be read: Python objects, or pictures that only Pillow reads.
    Refused,
}

impl Encoding {
    /// Returns the encoding with this name; `None` if there is none.
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "bytes" | "jpeg" | "png" => Self::Bytes,
            "str" | "json" | "str_decimal" => Self::Text,
            "int" => Self::Number(DType::I64),
            "str_int" => Self::StrInt,
            "str_float" => Self::StrFloat,
            "ndarray" => Self::AnyArray(None),
            "pil" | "pkl" | "jpegarray" | "jpeg_array" => Self::Refused,
            _ if name.starts_with("list[") => Self::Refused,
            _ => match name.strip_prefix("ndarray:").map(|args| args.split_once(':').unwrap_or((args, ""))) {
                Some((dtype, "")) => Self::AnyArray(Some(numpy(dtype)?)),
                Some((dtype, shape)) => {
                    let shape: Option<Vec<usize>> = shape.split(',').map(|dim| dim.parse().ok()).collect();
                    let (dtype, shape) = (numpy(dtype)?, shape?);
                    let product = shape.iter().try_fold(dtype.size(), |product, &dim| product.checked_mul(dim))?;
                    if product == 0 || product > u32::MAX as usize {
                        return None; // Sizes are u32.
                    }
                    Self::Array(dtype, shape)
                }
                None => Self::Number(numpy(name)?),
            },
        })
    }

    /// Returns the bytes of a value, if all have the same.
    pub(super) fn size(&self) -> Option<usize> {
        match self {
            Self::Number(dtype) => Some(dtype.size()),
            Self::Array(dtype, shape) => Some(shape.iter().product::<usize>() * dtype.size()),
            _ => None,
        }
    }
}

/// Parses a NumPy name of the types that arrays may have.
fn numpy(name: &str) -> Option<DType> {
    Some(match name {
        "uint8" => DType::U8,
        "int8" => DType::I8,
        "uint16" => DType::U16,
        "int16" => DType::I16,
        "float16" => DType::F16,
        "uint32" => DType::U32,
        "int32" => DType::I32,
        "float32" => DType::F32,
        "uint64" => DType::U64,
        "int64" => DType::I64,
        "float64" => DType::F64,
        _ => return None,
    })
}

/// Returns the type with this code.
fn coded(code: u8) -> Option<DType> {
    Some(match code {
        8 => DType::U8,
        9 => DType::I8,
        16 => DType::U16,
        17 => DType::I16,
        18 => DType::F16,
        32 => DType::U32,
        33 => DType::I32,
        34 => DType::F32,
        64 => DType::U64,
        65 => DType::I64,
        66 => DType::F64,
        _ => return None,
    })
}

/// An array with its type and shape.
#[derive(Debug)]
pub(super) struct AnyArray<'a> {
    pub(super) dtype: DType,
    pub(super) shape: Vec<i64>,
    pub(super) elements: &'a [u8],
}

impl<'a> AnyArray<'a> {
    /// Parses an array of any shape, and of any type if `dtype` is `None`.
    pub(super) fn parse(bytes: &'a [u8], dtype: Option<DType>) -> Result<Self, String> {
        let cut = || "an array that ends in its header".to_owned();
        let (dtype, rest) = match dtype {
            Some(dtype) => (dtype, bytes),
            None => {
                let (&code, rest) = bytes.split_first().ok_or_else(cut)?;
                (coded(code).ok_or_else(|| format!("an array of the unknown type {code}"))?, rest)
            }
        };
        let (&byte, rest) = rest.split_first().ok_or_else(cut)?;
        let (dims, size) = (usize::from(byte >> 2), 1 << (byte & 3));
        let (dims, elements) = rest.split_at_checked(dims * size).ok_or_else(cut)?;
        let mut shape = Vec::with_capacity(dims.len() / size);
        for dim in dims.chunks_exact(size) {
            let mut word = [0; 8];
            word[..size].copy_from_slice(dim);
            shape.push(i64::try_from(u64::from_le_bytes(word)).map_err(|_| "a shape that is too large".to_owned())?);
        }
        let expected = shape.iter().try_fold(dtype.size() as i64, |product, &dim| product.checked_mul(dim));
        if expected != i64::try_from(elements.len()).ok() {
            return Err(format!("an array of {dtype} and shape {shape:?} with {} bytes of elements", elements.len()));
        }
        Ok(Self { dtype, shape, elements })
    }
}

/// Parses a number from decimal digits, as Python's `int` and `float` do.
pub(super) fn digits<'a>(bytes: &[u8], integer: bool) -> Result<Value<'a>, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "a number that is not UTF-8".to_owned())?.trim();
    let wrong = |kind| format!("{:?}, which is not {kind}", text.chars().take(40).collect::<String>());
    if integer {
        return text.parse::<i64>().map(Value::number).map_err(|_| wrong("an i64"));
    }
    text.parse::<f64>().map(Value::number).map_err(|_| wrong("an f64"))
}
