//! The rows of the arrays in one of NumPy's .npz files.

use std::io::Read;
use std::path::Path;

use slotline::source::NpyHeader;

use crate::columns::is_in;
use crate::files::Span;
use crate::open::NPZ;
use crate::rows::{Column, Place, Rows};
use crate::window::{Cursor, Progress, Window};
use crate::{Error, Options, Records};

const ADVICE: &str = "write the file again with NumPy's `np.savez`, or copy it again";

/// Options for reading an .npz file. Sample `i` is row `i` of each array, in the order of the file.
/// By default all arrays are read; they must have the same length.
///
/// Arrays that `np.savez` wrote are read in place, row by row, and their checksums are not checked.
/// Arrays that `np.savez_compressed` wrote are unpacked into memory when the file is opened, up to
/// [`memory_limit`](crate::Options::memory_limit), and their checksums are checked.
pub type NpzOptions = Options<Npz>;

/// The format of NumPy's .npz files; only a type parameter. A dataset of such a file is one of
/// [`Rows`].
#[derive(Debug)]
pub enum Npz {}

impl NpzOptions {
    /// Opens a file.
    ///
    /// # Errors
    ///
    /// If the file can't be read or is not an .npz file, or if its arrays are big-endian, in
    /// Fortran order, of a type that [`DType`](slotline::dtype::DType) does not have, of different
    /// lengths, or larger than the memory limit.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Records<Rows>, Error> {
        let (set, path) = (&self.set, path.as_ref());
        set.check(NPZ)?;
        let files = set.files([path])?;
        let wrong = |offset: Option<u64>, problem: String| Error::format(path.display(), offset, problem, ADVICE);
        let found = files.file_len(0).unwrap_or(0);
        let progress = Progress::default();
        let mut archive = zip::ZipArchive::new(Cursor::new(Window::new(&files, 0, &progress)))
            .map_err(|error| wrong(None, format!("not a zip archive: {error}")))?;
        let (mut columns, mut listed) = (Vec::<Column>::new(), Vec::new());
        let (mut memory, mut left) = (Vec::new(), set.memory_limit());
        for i in 0..archive.len() {
            let member = archive.by_index_raw(i).map_err(|error| wrong(None, format!("member {i}: {error}")))?;
            let name = member.name().map_err(|error| wrong(None, format!("the name of member {i}: {error}")))?;
            let array = name.strip_suffix(".npy").unwrap_or(&name);
            listed.push(array.to_owned());
            if set.columns.as_ref().is_some_and(|names| !names.iter().any(|chosen| is_in(array, chosen))) {
                continue;
            }
            if array == &*name {
                let problem = format!("{name:?} is not an array");
                return Err(Error::in_file(path, problem, "choose the arrays with `columns`"));
            }
            let name = array.to_owned();
            let (size, packed) = (member.size(), member.compressed_size());
            let Some(start) = member.data_start() else {
                return Err(wrong(None, format!("array {name:?} has no data")));
            };
            let problem = |problem: String| {
                let advice = "write the file again with NumPy's `np.savez`, or leave the array out with `columns`";
                Error::format(path.display(), start, format!("array {name:?}: {problem}"), advice)
            };
            if start.checked_add(packed).is_none_or(|end| end > found) {
                return Err(problem(format!("{packed} bytes, and the file has {found}")));
            }
            let (method, crc) = (member.compression(), member.crc32());
            let at = |len: u64| Span { file: 0, start, len: Some(len) };
            let (header, place) = match method {
                zip::CompressionMethod::Stored if size == packed => {
                    let prefix = files.read(at(size.min(NpyHeader::LONGEST as u64)), &mut memory)?;
                    let header = header(prefix, size).map_err(problem)?;
                    let place = Place::File(start + header.data_start as u64);
                    (header, place)
                }
                zip::CompressionMethod::Deflated => {
                    if size > left {
                        let problem =
                            format!("array {name:?} has {size} bytes, unpacked, and the limit has {left} left");
                        let advice = "raise `memory_limit`, or write the file with `np.savez`";
                        return Err(Error::format(path.display(), start, problem, advice));
                    }
                    let bytes = unpack(files.read(at(packed), &mut memory)?, size, crc).map_err(problem)?;
                    left -= size;
                    let header = header(&bytes, size).map_err(problem)?;
                    let start = header.data_start;
                    (header, Place::Memory(bytes, start))
                }
                _ => return Err(problem(format!("the compression {method:?} is not read"))),
            };
            columns.push(Column { name, dtype: header.dtype, shape: header.dims, place });
        }
        Rows::of(path, files, columns, &listed, set.columns.as_deref())
    }
}

/// Unpacks a member of known size and checksum. Memory is allocated as the data is unpacked, not by
/// the stated size.
fn unpack(packed: &[u8], size: u64, crc: u32) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = flate2::read::DeflateDecoder::new(packed).take(size.saturating_add(1)).read_to_end(&mut bytes);
    read.map_err(|error| format!("can't be unpacked: {error}"))?;
    let mut sum = flate2::Crc::new();
    sum.update(&bytes);
    if bytes.len() as u64 != size || sum.sum() != crc {
        return Err(format!("does not unpack to {size} bytes with the check sum {crc:08x}"));
    }
    Ok(bytes)
}

/// Parses the header of a .npy file of `size` bytes, given its first bytes.
fn header(bytes: &[u8], size: u64) -> Result<NpyHeader, String> {
    let header = NpyHeader::parse(bytes).map_err(|error| error.to_string())?;
    let NpyHeader { dtype, big_endian, ref dims, data_start } = header;
    if big_endian {
        return Err(format!("big-endian {dtype} is not read; save little-endian numbers"));
    }
    if Column::bytes(dtype, dims).and_then(|bytes| bytes.checked_add(data_start as u64)) != Some(size) {
        return Err(format!("{dtype} of shape {dims:?} after {data_start} bytes of header, in {size} bytes"));
    }
    Ok(header)
}
