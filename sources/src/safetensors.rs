//! The rows of the tensors in a .safetensors file.
//!
//! The layout, according to the description of the format in safetensors 0.8, is: the length of the
//! header as u64, the header in JSON, and the tensors one after another without gaps. Numbers are
//! little-endian.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use slotline::dtype::DType;

use crate::columns::is_in;
use crate::files::Span;
use crate::open::SAFETENSORS;
use crate::rows::{Column, Place, Rows};
use crate::{Error, Options, Records};

/// The maximum length of a header in bytes, the same as in safetensors itself.
const LONGEST_HEADER: u64 = 100_000_000;
const ADVICE: &str = "write the file again with safetensors, or copy it again";

/// Options for reading a .safetensors file. Sample `i` is row `i` of each tensor. By default all
/// tensors are read, sorted by name; they must have the same length.
pub type SafetensorsOptions = Options<Safetensors>;

/// The format of .safetensors files; only a type parameter. A dataset of such a file is one of
/// [`Rows`].
#[derive(Debug)]
pub enum Safetensors {}

#[derive(Deserialize)]
struct Listed {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

impl SafetensorsOptions {
    /// Opens a file.
    ///
    /// # Errors
    ///
    /// If the file can't be read, if its header is invalid, or if the tensors have different
    /// lengths or a type that [`DType`] does not have.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Records<Rows>, Error> {
        let (set, path) = (&self.set, path.as_ref());
        set.check(SAFETENSORS)?;
        let files = set.files([path])?;
        let wrong = |offset: u64, problem: String| Error::format(path.display(), offset, problem, ADVICE);
        let found = files.file_len(0).unwrap_or(0);
        let mut memory = Vec::new();
        let prefix = files.read(Span { file: 0, start: 0, len: Some(found.min(8)) }, &mut memory)?;
        let len = prefix.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        let len = len.ok_or_else(|| wrong(0, format!("expected a header, found {found} bytes")))?;
        if len > LONGEST_HEADER || len > found - 8 {
            return Err(wrong(0, format!("a header of {len} bytes in a file of {found}")));
        }
        let header = files.read(Span { file: 0, start: 8, len: Some(len) }, &mut memory)?;
        let (columns, listed) =
            parse(header, found - 8 - len, set.columns.as_deref()).map_err(|problem| wrong(8, problem))?;
        Rows::of(path, files, columns, &listed, set.columns.as_deref())
    }
}

/// Parses the header of a file that has `data` bytes after it. Returns the tensors, at least those
/// with these names, and the names of all tensors.
fn parse(header: &[u8], data: u64, names: Option<&[String]>) -> Result<(Vec<Column>, Vec<String>), String> {
    let start = 8 + header.len() as u64;
    let tensors: BTreeMap<String, serde_json::Value> =
        serde_json::from_slice(header).map_err(|error| format!("not a header of safetensors: {error}"))?;
    let (mut columns, mut ranges, mut all) = (Vec::new(), Vec::new(), Vec::new());
    for (name, value) in tensors {
        if name == "__metadata__" {
            continue;
        }
        let listed: Listed = serde_json::from_value(value).map_err(|error| format!("tensor {name:?}: {error}"))?;
        all.push(name.clone());
        let [first, end] = listed.data_offsets;
        ranges.push((first, end));
        let Some(dtype) = dtype(&listed.dtype) else {
            if names.is_none_or(|names| names.iter().any(|chosen| is_in(&name, chosen))) {
                return Err(format!("tensor {name:?} has the type {}: leave it out with `columns`", listed.dtype));
            }
            continue;
        };
        if Column::bytes(dtype, &listed.shape).is_none_or(|bytes| first.checked_add(bytes) != Some(end)) {
            return Err(format!("tensor {name:?} of {dtype} and shape {:?} is from {first} to {end}", listed.shape));
        }
        columns.push((name, dtype, listed.shape, first));
    }
    ranges.sort_unstable();
    let mut before = 0;
    for (first, end) in ranges {
        if first != before || end < first {
            return Err(format!("a tensor is from {first} to {end}, and the one before ends at {before}"));
        }
        before = end;
    }
    if before != data {
        return Err(format!("the tensors have {before} bytes, and the file has {data} after the header"));
    }
    let column = |(name, dtype, shape, first)| Column { name, dtype, shape, place: Place::File(start + first) };
    Ok((columns.into_iter().map(column).collect(), all))
}

fn dtype(name: &str) -> Option<DType> {
    Some(match name {
        "BOOL" => DType::Bool,
        "U8" => DType::U8,
        "I8" => DType::I8,
        "U16" => DType::U16,
        "I16" => DType::I16,
        "F16" => DType::F16,
        "BF16" => DType::BF16,
        "U32" => DType::U32,
        "I32" => DType::I32,
        "F32" => DType::F32,
        "U64" => DType::U64,
        "I64" => DType::I64,
        "F64" => DType::F64,
        "C64" => DType::Complex64,
        _ => return None,
    })
}
