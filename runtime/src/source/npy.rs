//! NumPy's .npy files: a Python dictionary as text, then the elements.

use std::path::Path;

use memmap2::MmapOptions;

use super::error::{FormatError, SourceError};
use super::file::Source;
use super::layout::{ByteOrder, Layout};
use super::npy_header::{LONGEST_HEADER, header};
use crate::array::AnyArray;
use crate::dtype::DType;

/// Maps a .npy file into memory: rows are read from disk when they are first used, and the system may drop them again.
///
/// Versions 1 to 3 of the format, any dtype that [`DType`] names (NumPy itself has no bfloat16), C order. Data that can't be used where it is gets
/// copied into memory instead, as by [`read_npy`]: big-endian elements (on a little-endian machine), elements that
/// aren't aligned to their size (in files not written by NumPy itself), and bool, whose bytes must be checked.
/// [`AnyArray::is_mapped`] tells which it was.
///
/// Where it can't be promised that nobody changes the file, use [`read_npy`]. (To read each row from the file instead would take
/// a system call: 1400 ns for 784 bytes that are in memory already, where the mapping takes 240.)
///
/// ```no_run
/// use slotline::source::map_npy;
///
/// // SAFETY: nobody changes the file while this program runs.
/// let features = unsafe { map_npy("features.npy")? };
/// let rows = features.typed::<f32>().expect("saved as float32");
/// println!("{} rows of shape {:?}", rows.len(), &rows.shape()[1..]);
/// # Ok::<(), slotline::source::SourceError>(())
/// ```
///
/// # Errors
///
/// As [`read_npy`], or if the file can't be mapped.
///
/// # Safety
///
/// While the array lives, nobody may write to the file or change its length: neither this process, by whatever path or handle,
/// nor another one. The array's elements are `&[T]` of this very file, which Rust takes for unchanging.
///
/// To replace the file, write a new one and rename it over the old one, or remove it: the mapping keeps the old data.
///
/// What happens all the same, on Linux: if the file is cut short, the next read of a missing page ends this process with the
/// signal SIGBUS, and the rest of the last page that is left reads as zeros. If it is written to, rows hold old or new bytes, or
/// some of each; every pattern of bits is a value of every type that is mapped. What a compiler makes of code that reads an
/// element twice and finds two values, nobody can say. A private mapping would not help: it shows what is written to pages that
/// were not touched yet.
pub unsafe fn map_npy(path: impl AsRef<Path>) -> Result<AnyArray, SourceError> {
    let path = path.as_ref();
    let (mut source, layout) = open(path)?;
    if layout.order == ByteOrder::NATIVE && layout.dtype != DType::Bool {
        // SAFETY: the map is read-only and private to the array, and every pattern of bits is a value of every dtype but bool,
        // which isn't mapped. That nobody changes the file meanwhile is the caller's word.
        let map = unsafe { MmapOptions::new().len(layout.data_start + layout.data_len).map(source.file()) };
        let map = map.map_err(|error| source.error("map", error))?;
        if let Some(array) = AnyArray::from_map(map, layout.data_start, layout.dtype, layout.shape.clone()) {
            return Ok(array);
        }
    }
    read(path, &mut source, layout)
}

/// Reads a .npy file into memory.
///
/// Versions 1 to 3 of the format, any dtype that [`DType`] names (NumPy itself has no bfloat16), C order. While elements of more than one byte are read, the
/// data is in memory twice. Later changes of the file don't matter.
///
/// # Errors
///
/// If the file can't be opened or read; isn't a .npy file; holds another type (complex, dates, text,
/// objects, records), Fortran order, or more than [`MAX_DIMS`](crate::shape::MAX_DIMS) dimensions; or isn't exactly as
/// long as its header says.
pub fn read_npy(path: impl AsRef<Path>) -> Result<AnyArray, SourceError> {
    let path = path.as_ref();
    let (mut source, layout) = open(path)?;
    read(path, &mut source, layout)
}

/// Reads a .npy file's bytes into an array of its own; [`read_npy`] for what is in memory already.
///
/// # Errors
///
/// As [`read_npy`], for what is wrong with the bytes.
pub fn parse_npy(bytes: &[u8]) -> Result<AnyArray, FormatError> {
    let layout = header(bytes, bytes.len() as u64)?;
    let data = &bytes[layout.data_start..];
    layout.decode(data)
}

/// Safe code can't have elements that safe code can change.
///
/// ```compile_fail,E0133
/// let features = slotline::source::map_npy("features.npy");
/// ```
#[cfg(doctest)]
struct MappingIsUnsafe;

fn open(path: &Path) -> Result<(Source<'_>, Layout), SourceError> {
    let mut source = Source::open(path)?;
    let prefix = source.prefix(LONGEST_HEADER as u64)?;
    let layout = header(&prefix, source.len).map_err(|problem| problem.of(path))?;
    Ok((source, layout))
}

fn read(path: &Path, source: &mut Source<'_>, layout: Layout) -> Result<AnyArray, SourceError> {
    let data = source.read(layout.data_start, layout.data_len)?;
    layout.decode_vec(data).map_err(|problem| problem.of(path))
}
