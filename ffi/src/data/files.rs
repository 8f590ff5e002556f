//! Datasets in files and folders, whose format is detected.

use std::path::Path;
use std::sync::Arc;

#[cfg(feature = "image")]
use slotline_sources::pictures::Pictures;
use slotline_sources::{Error, OpenOptions};

use crate::abi::{Failure, SLOTLINE_ERROR_SOURCE};
use crate::data::indexed::Indexed;

/// Returns whether a name may refer to files: an existing path, a pattern, or a URL.
pub(crate) fn is_name(name: &str) -> bool {
    Path::new(name).exists() || name.contains(['{', '*', '?']) || name.contains("://")
}

/// Opens files. `options` is in the format that `OpenOptions` parses.
pub(crate) fn open(name: &str, options: &str) -> Result<Indexed, Failure> {
    if name.contains("://") {
        return Err(Failure::invalid(format!(
            "source: {name} is a URL, which this library does not open; download the files, or mount the bucket"
        )));
    }
    let options: OpenOptions = options.parse().map_err(|error: Error| Failure::invalid(error.to_string()))?;
    // SAFETY: the header forbids the program to modify Arrow files while they are used.
    let options = unsafe { options.map_arrow() };
    let records = options.open(name).map_err(|error| Failure::of(SLOTLINE_ERROR_SOURCE, &error))?;
    Ok(Indexed::Records(Arc::new(records)))
}

/// Returns the dataset with the pictures in a field decoded.
#[cfg(feature = "image")]
pub(crate) fn decode(
    dataset: &Indexed,
    pipeline: slotline_image::AnyPipeline,
    field: Option<&str>,
) -> Result<Indexed, Failure> {
    let why = match dataset {
        Indexed::Records(records) => {
            let pictures = Pictures::new((**records).clone(), pipeline, field);
            let pictures = pictures.map_err(|error| Failure::of(SLOTLINE_ERROR_SOURCE, &*error))?;
            return Ok(Indexed::Pictures(Arc::new(pictures)));
        }
        Indexed::Pictures(_) => "the pictures of the dataset are decoded already; use the dataset that was opened",
        _ => "the dataset was not opened from files; decode its pictures in a callback",
    };
    Err(Failure::invalid(why))
}
