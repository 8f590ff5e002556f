//! NumPy's `.npy` files, which consist of a Python dictionary as text, followed by the elements.

use std::path::Path;

use memmap2::MmapOptions;

use super::error::{FormatError, SourceError};
use super::file::Source;
use super::layout::{ByteOrder, Layout};
use super::npy_header::NpyHeader;
use crate::array::AnyArray;
use crate::dtype::DType;

/// Memory-maps a `.npy` file. Rows are read from disk when they are first used, and the system may
/// evict them again.
///
/// Supports versions 1 to 3 of the format, all dtypes that [`DType`] names (NumPy itself has no
/// bfloat16), and C order.
/// Data that can't be used in place is copied into memory, as by [`read_npy`]: big-endian elements
/// (on a little-endian machine), elements that aren't aligned to their size (in files not written
/// by NumPy itself), and bool, whose bytes must be checked. [`AnyArray::is_mapped`] returns whether
/// the elements are mapped.
///
/// If you can't guarantee that the file does not change, use [`read_npy`]. (A system call for each
/// row would be slow: for a row of 784 bytes that is already in the system's cache it takes 1400
/// ns, compared to 240 ns with the mapping.)
///
/// ```no_run
/// use slotline::source::map_npy;
///
/// // SAFETY: the file does not change while this program runs.
/// let features = unsafe { map_npy("features.npy")? };
/// let rows = features.typed::<f32>().expect("saved as float32");
/// println!("{} rows of shape {:?}", rows.len(), &rows.shape()[1..]);
/// # Ok::<(), slotline::source::SourceError>(())
/// ```
///
/// # Errors
///
/// Those of [`read_npy`], or if the file can't be mapped.
///
/// # Safety
///
/// While the array exists, no code may write to the file or change its length: neither this
/// process, through any path or handle, nor another process. The array's elements are `&[T]` over
/// this file, which Rust assumes to be immutable.
///
/// To replace the file, write a new one and rename it over the old one, or remove the old one: the
/// mapping keeps the old data.
///
/// If the file changes anyway, on Linux the following happens. If the file is truncated, the next
/// read of a missing page ends this process with the signal SIGBUS, and the rest of the last
/// remaining page reads as zeros. If it is written to, rows contain old or new bytes, or a mixture;
/// every bit pattern is a value of every type that is mapped. The behaviour of compiled code that
/// reads an element twice and finds two values is undefined. A private mapping would not prevent
/// this, since it shows changes to pages that were not accessed yet.
pub unsafe fn map_npy(path: impl AsRef<Path>) -> Result<AnyArray, SourceError> {
    let path = path.as_ref();
    let (mut source, layout) = open(path)?;
    if layout.order == ByteOrder::NATIVE && layout.dtype != DType::Bool {
        // SAFETY: the map is read-only and private to the array, and every bit pattern is a value of every dtype except
        // bool, which isn't mapped. The caller guarantees that the file does not change while it is mapped.
        let map = unsafe { MmapOptions::new().len(layout.data_start + layout.data_len).map(source.file()) };
        let map = map.map_err(|error| source.error("map", error))?;
        if let Some(array) = AnyArray::from_map(map, layout.data_start, layout.dtype, layout.shape.clone()) {
            return Ok(array);
        }
    }
    read(path, &mut source, layout)
}

/// Reads a `.npy` file into memory.
///
/// Supports versions 1 to 3 of the format, all dtypes that [`DType`] names (NumPy itself has no bfloat16), and C order.
/// Reading elements of more than one byte temporarily needs twice the memory of the data. Later changes to the file
/// have no effect.
///
/// # Errors
///
/// If the file can't be opened or read, isn't a `.npy` file, has an unsupported type (extended
/// floats, dates, text, objects, records), Fortran order (of several dimensions), or more than
/// [`MAX_DIMS`](crate::shape::MAX_DIMS) dimensions, or isn't exactly as long as its header says.
pub fn read_npy(path: impl AsRef<Path>) -> Result<AnyArray, SourceError> {
    let path = path.as_ref();
    let (mut source, layout) = open(path)?;
    read(path, &mut source, layout)
}

/// Parses the bytes of a `.npy` file into a new array. Works like [`read_npy`], for data that is
/// already in memory.
///
/// # Errors
///
/// Those of [`read_npy`] that concern the contents.
pub fn parse_npy(bytes: &[u8]) -> Result<AnyArray, FormatError> {
    let layout = layout(bytes, bytes.len() as u64)?;
    let data = &bytes[layout.data_start..];
    layout.decode(data)
}

/// Checks that mapping is unsafe, since safe code could change the file.
///
/// ```compile_fail,E0133
/// let features = slotline::source::map_npy("features.npy");
/// ```
#[cfg(doctest)]
struct MappingIsUnsafe;

fn open(path: &Path) -> Result<(Source<'_>, Layout), SourceError> {
    let mut source = Source::open(path)?;
    let prefix = source.prefix(NpyHeader::LONGEST as u64)?;
    let layout = layout(&prefix, source.len).map_err(|problem| problem.of(path))?;
    Ok((source, layout))
}

/// Returns the layout that a header describes. `bytes` are the file's first bytes, and `file_len`
/// its length in bytes.
fn layout(bytes: &[u8], file_len: u64) -> Result<Layout, FormatError> {
    let NpyHeader { dtype, big_endian, dims, data_start } = NpyHeader::parse(bytes)?;
    let order = if big_endian { ByteOrder::Big } else { ByteOrder::Little };
    Layout::new(dtype, order, &dims, data_start, file_len)
}

fn read(path: &Path, source: &mut Source<'_>, layout: Layout) -> Result<AnyArray, SourceError> {
    let data = source.read(layout.data_start, layout.data_len)?;
    layout.decode_vec(data).map_err(|problem| problem.of(path))
}
