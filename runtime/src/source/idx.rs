//! IDX, the format of MNIST's files.
//!
//! A file consists of two zero bytes, one byte for the type, one for the number of dimensions, the
//! lengths of the dimensions as big-endian u32, and the elements, big-endian, in C order.

use std::path::Path;

use super::error::{FormatError, FormatErrorKind, SourceError};
use super::file::Source;
use super::layout::{ByteOrder, Layout};
use crate::array::AnyArray;
use crate::dtype::DType;

/// The number of bytes before the lengths of the dimensions.
const FIXED: usize = 4;

/// The length of the longest possible header, in bytes. The number of dimensions is one byte.
const LONGEST_HEADER: usize = FIXED + 4 * u8::MAX as usize;

/// Reads an IDX file into memory.
///
/// Supports all types of the format: u8, i8, i16, i32, f32 and f64. Elements are converted to the machine's byte order.
/// Reading elements of more than one byte temporarily needs twice the memory of the data.
///
/// ```no_run
/// use slotline::source::read_idx;
///
/// let images = read_idx("train-images-idx3-ubyte")?;
/// println!("{} images of {} bytes", images.len(), images.row_size());
/// # Ok::<(), slotline::source::SourceError>(())
/// ```
///
/// # Errors
///
/// If the file can't be opened or read, isn't an IDX file, has more than [`MAX_DIMS`](crate::shape::MAX_DIMS)
/// dimensions, or isn't exactly as long as its header says.
pub fn read_idx(path: impl AsRef<Path>) -> Result<AnyArray, SourceError> {
    let path = path.as_ref();
    let mut source = Source::open(path)?;
    let layout = header(&source.prefix(LONGEST_HEADER as u64)?, source.len).map_err(|problem| problem.of(path))?;
    let data = source.read(layout.data_start, layout.data_len)?;
    layout.decode_vec(data).map_err(|problem| problem.of(path))
}

/// Parses the bytes of an IDX file into a new array. Works like [`read_idx`], for data that is
/// already in memory.
///
/// ```
/// use slotline::source::parse_idx;
///
/// let array = parse_idx(&[0, 0, 0x0b, 1, 0, 0, 0, 2, 1, 0, 0xff, 0xff])?;
/// assert_eq!(array.typed::<i16>().unwrap().as_slice(), [256, -1]);
/// # Ok::<(), slotline::source::FormatError>(())
/// ```
///
/// # Errors
///
/// Those of [`read_idx`] that concern the contents.
pub fn parse_idx(bytes: &[u8]) -> Result<AnyArray, FormatError> {
    let layout = header(bytes, bytes.len() as u64)?;
    let data = &bytes[layout.data_start..];
    layout.decode(data)
}

/// Returns the layout that a header describes. `bytes` are the file's first bytes, and `file_len`
/// its length in bytes.
fn header(bytes: &[u8], file_len: u64) -> Result<Layout, FormatError> {
    let magic = || FormatError::magic("an IDX file", bytes);
    let &[0, 0, code, ndim] = bytes.first_chunk::<FIXED>().ok_or_else(magic)? else {
        return Err(magic());
    };
    let dtype = match code {
        0x08 => DType::U8,
        0x09 => DType::I8,
        0x0b => DType::I16,
        0x0c => DType::I32,
        0x0d => DType::F32,
        0x0e => DType::F64,
        _ => {
            return Err(FormatError::new(
                FormatErrorKind::Header,
                "an IDX type code (08, 09, 0b, 0c, 0d or 0e)",
                format!("{code:02x} in the third byte"),
                "check that this is an IDX file",
            ));
        }
    };
    let data_start = FIXED + 4 * usize::from(ndim);
    let Some(lengths) = bytes.get(FIXED..data_start) else {
        return Err(FormatError::new(
            FormatErrorKind::Truncated,
            format!("an IDX header of {data_start} bytes for {ndim} dimensions"),
            format!("only {file_len}"),
            "the file is truncated: write or download it again",
        ));
    };
    let (lengths, _) = lengths.as_chunks::<4>();
    let dims: Vec<u64> = lengths.iter().map(|length| u32::from_be_bytes(*length).into()).collect();
    Layout::new(dtype, ByteOrder::Big, &dims, data_start, file_len)
}
