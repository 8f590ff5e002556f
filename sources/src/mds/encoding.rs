//! The encodings of MDS columns, after `streaming/base/format/mds/encodings.py` (mosaicml-streaming
//! 0.13.0).

use slotline::dtype::DType;

use crate::shards::{Array, Encoding};

/// Returns the encoding with this name, and the size of a value in bytes if it is fixed. Returns
/// `None` if there is no such encoding.
pub(super) fn encoding(name: &str) -> Option<(Encoding, Option<usize>)> {
    let encoding = match name {
        "bytes" | "jpeg" | "png" => Encoding::Bytes,
        "str" | "json" | "str_decimal" => Encoding::Text,
        "int" => return encoding("int64"),
        "str_int" => Encoding::StrInt,
        "str_float" => Encoding::StrFloat,
        "ndarray" => Encoding::Array(array, None),
        "pil" | "pkl" | "jpegarray" | "jpeg_array" => Encoding::Refused,
        _ if name.starts_with("list[") => Encoding::Refused,
        _ => match name.strip_prefix("ndarray:").map(|args| args.split_once(':').unwrap_or((args, ""))) {
            Some((dtype, "")) => Encoding::Array(array, Some(numpy(dtype)?)),
            Some((dtype, shape)) => {
                let shape: Option<Vec<usize>> = shape.split(',').map(|dim| dim.parse().ok()).collect();
                let (dtype, shape) = (numpy(dtype)?, shape?);
                let size = shape.iter().try_fold(dtype.size(), |product, &dim| product.checked_mul(dim))?;
                // Sizes are stored as u32.
                let size = Some(size).filter(|size| (1..=u32::MAX as usize).contains(size))?;
                return Some((Encoding::Tensor(dtype, shape), Some(size)));
            }
            None => {
                let dtype = numpy(name)?;
                return Some((Encoding::Number(dtype), Some(dtype.size())));
            }
        },
    };
    Some((encoding, None))
}

/// The types that arrays may have: NumPy's name, the code in the file, and the dtype.
const TYPES: [(&str, u8, DType); 11] = [
    ("uint8", 8, DType::U8),
    ("int8", 9, DType::I8),
    ("uint16", 16, DType::U16),
    ("int16", 17, DType::I16),
    ("float16", 18, DType::F16),
    ("uint32", 32, DType::U32),
    ("int32", 33, DType::I32),
    ("float32", 34, DType::F32),
    ("uint64", 64, DType::U64),
    ("int64", 65, DType::I64),
    ("float64", 66, DType::F64),
];

fn numpy(name: &str) -> Option<DType> {
    TYPES.into_iter().find(|found| found.0 == name).map(|found| found.2)
}

/// Parses an array of any shape, and of any type if `dtype` is `None`.
fn array(bytes: &[u8], dtype: Option<DType>) -> Result<Array<'_>, String> {
    let (dtype, rest) = match dtype {
        Some(dtype) => (dtype, bytes),
        None => {
            let (&code, rest) = bytes.split_first().ok_or(Array::CUT)?;
            let found = TYPES.into_iter().find(|found| found.1 == code);
            (found.ok_or_else(|| format!("an array of the unknown type {code}"))?.2, rest)
        }
    };
    let (&byte, rest) = rest.split_first().ok_or(Array::CUT)?;
    let (dims, size) = (usize::from(byte >> 2), 1 << (byte & 3));
    let (dims, elements) = rest.split_at_checked(dims * size).ok_or(Array::CUT)?;
    let dim = |dim: &[u8]| {
        let mut word = [0; 8];
        word[..size].copy_from_slice(dim);
        i64::try_from(u64::from_le_bytes(word)).map_err(|_| "a shape that is too large".to_owned())
    };
    Array::new(dtype, dims.chunks_exact(size).map(dim).collect::<Result<_, _>>()?, elements)
}
