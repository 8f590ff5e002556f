//! Datasets in files and folders, whose format is detected.

use std::path::Path;
use std::sync::Arc;

#[cfg(feature = "image")]
use slotline_sources::pictures::{BoxFormat, Pictures};
use slotline_sources::{Error, OpenOptions};

use crate::abi::{Failure, SLOTLINE_ERROR_SOURCE};
use crate::data::indexed::Indexed;
#[cfg(feature = "image")]
use crate::data::picture_fields::{PictureFields, SLOTLINE_BOXES_CXCYWH, SLOTLINE_BOXES_XYWH};

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

/// Returns the dataset with the pictures in a field decoded, and the masks and boxes in others.
#[cfg(feature = "image")]
pub(crate) fn decode(
    dataset: &Indexed,
    pipeline: slotline_image::AnyPipeline,
    fields: &PictureFields<'_>,
) -> Result<Indexed, Failure> {
    let why = match dataset {
        Indexed::Records(records) => {
            let mut pictures = Pictures::builder((**records).clone(), pipeline);
            if let Some(field) = fields.field {
                pictures = pictures.field(field);
            }
            if let Some((field, dtype, fill)) = fields.mask {
                pictures = pictures.mask_as(field, dtype, fill);
            }
            if let Some((field, format)) = fields.boxes {
                let format = match format {
                    SLOTLINE_BOXES_XYWH => BoxFormat::Xywh,
                    SLOTLINE_BOXES_CXCYWH => BoxFormat::Cxcywh,
                    _ => BoxFormat::Xyxy,
                };
                pictures = pictures.boxes(field, format);
            }
            let pictures = pictures.build().map_err(|error| Failure::of(SLOTLINE_ERROR_SOURCE, &*error))?;
            return Ok(Indexed::Pictures(Arc::new(pictures)));
        }
        Indexed::Pictures(_) => "the pictures of the dataset are decoded already; use the dataset that was opened",
        _ => "the dataset was not opened from files; decode its pictures in a callback",
    };
    Err(Failure::invalid(why))
}
