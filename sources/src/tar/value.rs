//! Decodes the bytes of files.

use std::borrow::Cow;
use std::path::Path;

use slotline::array::AnyArray;
use slotline::source::parse_npy;

use super::Decode;
use crate::{Error, FieldKind, Value};

/// The problem of a file that does not have the contents that its extension promises, and what the
/// user can do.
#[derive(Debug)]
pub(super) struct Problem(pub(super) String, pub(super) &'static str);

impl Problem {
    /// Creates the error for a file of a sample.
    pub(super) fn in_sample(self, path: &Path, key: &[u8], field: &str, start: Option<u64>) -> Error {
        let problem = format!("the field {field} of the sample {}: {}", String::from_utf8_lossy(key), self.0);
        Error::format(path.display(), start, problem, self.1)
    }
}

pub(super) fn decode<'a>(decode: Decode, kind: &FieldKind, data: &'a [u8]) -> Result<Value<'a>, Problem> {
    match decode {
        Decode::Bytes => Ok(Value::from(data)),
        Decode::Text => text(data),
        Decode::Integer => {
            let parsed = std::str::from_utf8(data).ok().and_then(|text| text.trim().parse::<i64>().ok());
            parsed.map(Value::number).ok_or_else(|| {
                let found = String::from_utf8_lossy(&data[..data.len().min(20)]).escape_debug().to_string();
                Problem(format!("expected an integer, found `{found}`"), "correct the file, or `decode` it as bytes")
            })
        }
        Decode::Npy => {
            let array = npy(data)?;
            let FieldKind::Tensor(dtype, shape) = kind else { return Ok(Value::from(data)) };
            if (array.dtype(), array.shape()) != (*dtype, &shape[..]) {
                let problem = format!(
                    "expected {dtype} {shape:?} as in the first sample, found {} {:?}",
                    array.dtype(),
                    array.shape()
                );
                return Err(Problem(problem, "make all arrays alike, or `decode` the field as bytes"));
            }
            Ok(Value::Bytes(Cow::Owned(array.bytes().to_vec())))
        }
    }
}

/// Checks that the bytes are UTF-8.
pub(super) fn text(data: &[u8]) -> Result<Value<'_>, Problem> {
    match std::str::from_utf8(data) {
        Ok(_) => Ok(Value::from(data)),
        Err(error) => {
            let problem = format!("expected UTF-8, found another byte after {} bytes of it", error.valid_up_to());
            Err(Problem(problem, "write it as UTF-8, or `decode` it as bytes"))
        }
    }
}

/// Returns the kind of a field with NumPy arrays, from the dtype and the shape of its first array.
pub(super) fn npy_kind(data: &[u8]) -> Result<FieldKind, Problem> {
    npy(data).map(|array| FieldKind::Tensor(array.dtype(), array.shape().to_vec()))
}

fn npy(data: &[u8]) -> Result<AnyArray, Problem> {
    parse_npy(data).map_err(|error| Problem(error.to_string(), "write the file again, or `decode` it as bytes"))
}
