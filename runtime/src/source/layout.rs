//! The position and type of the elements in a file, checked against the file's size, and decoding
//! of the elements.

use super::error::{FormatError, FormatErrorKind};
use crate::array::{AnyArray, Array};
use crate::dtype::{DType, complex64, complex128, for_dtype};
use crate::shape::{MAX_DIMS, Shape};

/// The order of bytes within a number. A complex element consists of two numbers, the real part
/// first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ByteOrder {
    Little,
    Big,
}

impl ByteOrder {
    /// This machine's byte order.
    pub(super) const NATIVE: ByteOrder = if cfg!(target_endian = "big") { ByteOrder::Big } else { ByteOrder::Little };
}

/// The position and type of the elements in a file. The elements extend to the end of the file.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    pub(super) dtype: DType,
    /// The byte order; the machine's own for elements of one byte.
    pub(super) order: ByteOrder,
    pub(super) shape: Shape,
    /// The number of bytes before the first element.
    pub(super) data_start: usize,
    /// The size of the elements in bytes: from `data_start` to the end of the file.
    pub(super) data_len: usize,
}

impl Layout {
    /// Makes a layout from the values of a header, and checks it against the size of the file in
    /// bytes.
    pub(super) fn new(
        dtype: DType,
        order: ByteOrder,
        dims: &[u64],
        data_start: usize,
        file_len: u64,
    ) -> Result<Layout, FormatError> {
        let shape = shape_of(dims)?;
        let sizes = shape.elements().and_then(|elements| {
            let data_len = elements.checked_mul(dtype.size()).filter(|&n| isize::try_from(n).is_ok())?;
            Some((data_len, u64::try_from(data_start.checked_add(data_len)?).ok()?))
        });
        let Some((data_len, needed)) = sizes else {
            return Err(too_large(dims));
        };
        if needed != file_len {
            return Err(wrong_size(dtype, &shape, data_start, needed, file_len));
        }
        let order = if dtype.size() == 1 { ByteOrder::NATIVE } else { order };
        Ok(Layout { dtype, order, shape, data_start, data_len })
    }

    /// Makes the array from its bytes, without a copy if the elements are bytes, otherwise like
    /// [`decode`](Layout::decode).
    pub(super) fn decode_vec(self, data: Vec<u8>) -> Result<AnyArray, FormatError> {
        if self.dtype != DType::U8 {
            return self.decode(&data);
        }
        array(data, self.shape)
    }

    /// Makes the array from its `data_len` bytes, which are copied and converted to the machine's
    /// byte order.
    pub(super) fn decode(self, data: &[u8]) -> Result<AnyArray, FormatError> {
        match self.dtype {
            DType::Bool => check_bools(data)?,
            DType::U8 => return array(data.to_vec(), self.shape),
            _ => {}
        }
        for_dtype!(self.dtype, T => {
            // If the last number is incomplete, the check of the length fails below.
            let (words, _) = data.as_chunks::<{ size_of::<T>() }>();
            let numbers: Vec<T> = match self.order {
                ByteOrder::Little => words.iter().map(|word| T::from_le_bytes(*word)).collect(),
                ByteOrder::Big => words.iter().map(|word| T::from_be_bytes(*word)).collect(),
            };
            array(numbers, self.shape)
        })
    }
}

/// Gives other element types the conversion functions that integers and floating-point numbers
/// have.
trait FromBytes<const SIZE: usize> {
    fn from_le_bytes(bytes: [u8; SIZE]) -> Self;
    fn from_be_bytes(bytes: [u8; SIZE]) -> Self;
}

impl FromBytes<1> for bool {
    fn from_le_bytes([byte]: [u8; 1]) -> Self {
        byte == 1
    }

    fn from_be_bytes([byte]: [u8; 1]) -> Self {
        byte == 1
    }
}

macro_rules! complex {
    ($($type:ident of $part:ident;)*) => {$(
        impl FromBytes<{ size_of::<$type>() }> for $type {
            fn from_le_bytes(bytes: [u8; size_of::<$type>()]) -> Self {
                let [re, im] = halves(bytes).map($part::from_le_bytes);
                $type { re, im }
            }

            fn from_be_bytes(bytes: [u8; size_of::<$type>()]) -> Self {
                let [re, im] = halves(bytes).map($part::from_be_bytes);
                $type { re, im }
            }
        }
    )*};
}

complex! {
    complex64 of f32;
    complex128 of f64;
}

fn halves<const SIZE: usize, const HALF: usize>(bytes: [u8; SIZE]) -> [[u8; HALF]; 2] {
    const { assert!(SIZE == 2 * HALF) };
    let (halves, _) = bytes.as_chunks::<HALF>();
    [halves[0], halves[1]]
}

fn array<T: crate::dtype::Element>(data: Vec<T>, shape: Shape) -> Result<AnyArray, FormatError> {
    let wrong = |error: crate::shape::ShapeError| {
        FormatError::new(FormatErrorKind::Shape, "data that fits its shape", error.to_string(), "write the file again")
    };
    Array::with_shape(data, shape).map(AnyArray::from).map_err(wrong)
}

/// Checks that each byte is 0 or 1, as `bool` requires.
fn check_bools(data: &[u8]) -> Result<(), FormatError> {
    match data.iter().position(|&byte| byte > 1) {
        None => Ok(()),
        Some(at) => Err(FormatError::new(
            FormatErrorKind::Value,
            "0 or 1 in an array of bool",
            format!("{} as element {at}", data[at]),
            "save it as uint8",
        )),
    }
}

fn shape_of(dims: &[u64]) -> Result<Shape, FormatError> {
    if dims.len() > MAX_DIMS {
        return Err(FormatError::new(
            FormatErrorKind::Shape,
            format!("at most {MAX_DIMS} dimensions"),
            format!("{}", dims.len()),
            "reshape the array to fewer before saving it",
        ));
    }
    let mut lengths = [0; MAX_DIMS];
    for (length, &dim) in lengths.iter_mut().zip(dims) {
        *length = usize::try_from(dim).map_err(|_| too_large(dims))?;
    }
    Shape::new(&lengths[..dims.len()]).map_err(|_| too_large(dims))
}

fn too_large(dims: &[u64]) -> FormatError {
    FormatError::new(
        FormatErrorKind::Shape,
        "a shape that fits in memory",
        format!("{dims:?}"),
        "the header is damaged: write or download the file again",
    )
}

fn wrong_size(dtype: DType, shape: &Shape, data_start: usize, needed: u64, file_len: u64) -> FormatError {
    let (kind, found, advice) = if file_len < needed {
        (FormatErrorKind::Truncated, "only ", "the file is truncated: write or download it again")
    } else {
        (FormatErrorKind::TooLong, "", "the header doesn't belong to this data: write or download the file again")
    };
    let expected = format!("{needed} bytes for {dtype} {shape} after a header of {data_start}");
    FormatError::new(kind, expected, format!("{found}{file_len}"), advice)
}
