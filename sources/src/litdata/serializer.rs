//! The serializers of LitData, after `litdata/streaming/serializers.py` (litdata 0.2.76).

use slotline::dtype::DType;

/// How a leaf of an item is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Serializer {
    Bytes,
    Text,
    /// A byte; any but 0 is true.
    Bool,
    Int,
    Float,
    /// The elements of a vector.
    Vector(DType),
    /// An array with its type and shape: numbers are little-endian from NumPy, and big-endian from torch.
    Array {
        torch: bool,
    },
    /// Python objects, and what only Python's libraries read.
    Refused,
}

impl Serializer {
    /// Returns the serializer with this name.
    pub(super) fn named(name: &str) -> Self {
        let (kind, argument) = name.split_once(':').unwrap_or((name, ""));
        let code = || argument.parse().ok();
        match kind {
            "bytes" | "jpeg" | "image" | "file" => Self::Bytes,
            "str" => Self::Text,
            "bool" => Self::Bool,
            "int" => Self::Int,
            "float" => Self::Float,
            "no_header_numpy" => code().and_then(numpy).map_or(Self::Refused, Self::Vector),
            "no_header_tensor" => code().and_then(torch).map_or(Self::Refused, Self::Vector),
            "numpy" => Self::Array { torch: false },
            "tensor" => Self::Array { torch: true },
            _ => Self::Refused,
        }
    }
}

/// NumPy's types by their codes (`_NUMPY_DTYPES_MAPPING`).
fn numpy(code: u32) -> Option<DType> {
    Some(match code {
        0 => DType::I8,
        1 => DType::I16,
        2 => DType::I32,
        3 => DType::I64,
        4 => DType::U8,
        5 => DType::U16,
        6 => DType::U32,
        7 => DType::U64,
        8 => DType::F16,
        9 => DType::F32,
        10 => DType::F64,
        11 => DType::Complex64,
        12 => DType::Complex128,
        13 => DType::Bool,
        _ => return None,
    })
}

/// torch's types by their codes (`_TORCH_DTYPES_MAPPING`).
fn torch(code: u32) -> Option<DType> {
    Some(match code {
        0 | 1 => DType::F32,
        2 | 3 => DType::F64,
        4 | 5 => DType::Complex64,
        6 | 7 => DType::Complex128,
        8 | 9 => DType::F16,
        10 => DType::BF16,
        11 => DType::U8,
        12 => DType::I8,
        13 | 14 => DType::I16,
        15 | 16 => DType::I32,
        17 | 18 => DType::I64,
        19 => DType::Bool,
        20 => DType::U16,
        _ => return None,
    })
}

/// An array with its type and shape.
#[derive(Debug)]
pub(super) struct Array<'a> {
    pub(super) dtype: DType,
    pub(super) shape: Vec<i64>,
    pub(super) elements: &'a [u8],
}

impl<'a> Array<'a> {
    pub(super) fn parse(bytes: &'a [u8], from_torch: bool) -> Result<Self, String> {
        let cut = || "an array that ends in its header".to_owned();
        let word = |bytes: [u8; 4]| if from_torch { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) };
        let (words, _) = bytes.as_chunks::<4>();
        let [code, rank, rest @ ..] = words else { return Err(cut()) };
        let (code, rank) = (word(*code), word(*rank) as usize);
        let dtype = if from_torch { torch(code) } else { numpy(code) };
        let dtype = dtype.ok_or_else(|| format!("an array of the type {code}, which is not read"))?;
        let shape: Vec<_> = rest.get(..rank).ok_or_else(cut)?.iter().map(|dim| i64::from(word(*dim))).collect();
        let elements = &bytes[8 + 4 * rank..];
        let expected = shape.iter().try_fold(dtype.size() as i64, |product, &dim| product.checked_mul(dim));
        if expected != i64::try_from(elements.len()).ok() {
            return Err(format!("an array of {dtype} and shape {shape:?} with {} bytes of elements", elements.len()));
        }
        Ok(Self { dtype, shape, elements })
    }
}

/// Checks that bytes are whole elements, and that truth values are 0 or 1.
pub(super) fn check(dtype: DType, bytes: &[u8]) -> Result<(), String> {
    if !bytes.len().is_multiple_of(dtype.size()) {
        return Err(format!("{} bytes, which are not whole elements of {dtype}", bytes.len()));
    }
    if dtype == DType::Bool && bytes.iter().any(|&byte| byte > 1) {
        return Err("a truth value that is neither 0 nor 1".into());
    }
    Ok(())
}
