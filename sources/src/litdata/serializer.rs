//! The serializers of LitData, after `litdata/streaming/serializers.py` (litdata 0.2.76).

use slotline::dtype::DType::{
    self, BF16, Bool, Complex64, Complex128, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64,
};

use crate::shards::{Array, Encoding};

/// Returns how a leaf of an item is stored, from the name of its serializer.
pub(super) fn encoding(name: &str) -> Encoding {
    let (kind, argument) = name.split_once(':').unwrap_or((name, ""));
    let vector = |types: &[DType]| {
        let found = argument.parse().ok().and_then(|code: usize| types.get(code));
        found.map_or(Encoding::Refused, |&dtype| Encoding::Vector(dtype))
    };
    match kind {
        "bytes" | "jpeg" | "image" | "file" => Encoding::Bytes,
        "str" => Encoding::Text,
        "bool" => Encoding::Truth,
        "int" => Encoding::Number(I64),
        "float" => Encoding::Number(F64),
        "no_header_numpy" => vector(&NUMPY),
        "no_header_tensor" => vector(&TORCH),
        // Numbers in the header are little-endian from NumPy, and big-endian from torch.
        "numpy" => Encoding::Array(|bytes, _| array(bytes, &NUMPY, u32::from_le_bytes), None),
        "tensor" => Encoding::Array(|bytes, _| array(bytes, &TORCH, u32::from_be_bytes), None),
        _ => Encoding::Refused,
    }
}

/// NumPy's types by their codes (`_NUMPY_DTYPES_MAPPING`).
const NUMPY: [DType; 14] = [I8, I16, I32, I64, U8, U16, U32, U64, F16, F32, F64, Complex64, Complex128, Bool];

/// torch's types by their codes (`_TORCH_DTYPES_MAPPING`).
const TORCH: [DType; 21] = [
    F32, F32, F64, F64, Complex64, Complex64, Complex128, Complex128, F16, F16, BF16, U8, I8, I16, I16, I32, I32, I64,
    I64, Bool, U16,
];

/// Parses an array with its type and shape.
fn array<'a>(bytes: &'a [u8], types: &[DType], word: fn([u8; 4]) -> u32) -> Result<Array<'a>, String> {
    let (words, _) = bytes.as_chunks::<4>();
    let [code, rank, rest @ ..] = words else { return Err(Array::CUT.to_owned()) };
    let (code, rank) = (word(*code), word(*rank) as usize);
    let dtype = types.get(code as usize).ok_or_else(|| format!("an array of the type {code}, which is not read"))?;
    let shape = rest.get(..rank).ok_or(Array::CUT)?.iter().map(|dim| i64::from(word(*dim)));
    Array::new(*dtype, shape.collect(), &bytes[8 + 4 * rank..])
}
