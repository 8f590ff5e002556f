//! The errors of this crate.

use std::path::PathBuf;

/// A JPEG cannot be decoded, or a pipeline's parameters are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// The bytes do not start like a JPEG.
    #[error("expected a JPEG, found {found}; {advice}")]
    NotJpeg {
        /// What the bytes look like.
        found: String,
        /// What to do about it.
        advice: &'static str,
    },
    /// The decoder rejects the data, or would have to guess a part of the image.
    #[error(
        "a JPEG of {len} bytes is cut short, damaged or of an unsupported kind: {message}; copy or download it again, \
         or remove it"
    )]
    Data {
        /// The length of the data, in bytes.
        len: usize,
        /// The decoder's message.
        message: String,
    },
    /// The image has more pixels than the pipeline allows.
    #[error(
        "a JPEG of {width} × {height} pixels exceeds the limit of {limit} pixels; raise `max_pixels` if you trust it"
    )]
    TooLarge {
        /// The width of the image, in pixels.
        width: usize,
        /// The height of the image, in pixels.
        height: usize,
        /// The maximum number of pixels.
        limit: usize,
    },
    /// There is not enough memory for the decoded image.
    #[error("cannot allocate the {bytes} bytes of a decoded JPEG; use fewer workers or smaller images")]
    Memory {
        /// The requested size, in bytes.
        bytes: usize,
    },
    /// The target has no pixels, or a side of more than 65,535.
    #[error("the target is {height} × {width} pixels; each side must be between 1 and 65,535")]
    Target {
        /// The height of the target, in pixels.
        height: usize,
        /// The width of the target, in pixels.
        width: usize,
    },
    /// A mean or a standard deviation is invalid.
    #[error("channel {channel} has mean {mean} and std {std}; both must be finite, and std must be above 0")]
    Normalisation {
        /// The channel: 0 for red, 1 for green, 2 for blue.
        channel: usize,
        /// The given mean, as text so that errors can be compared.
        mean: String,
        /// The given standard deviation, as text.
        std: String,
    },
}

/// The JPEG of a [file](crate::Jpeg::path) cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {error}", path.display())]
#[non_exhaustive]
pub struct FileError {
    /// The path of the file.
    pub path: PathBuf,
    /// The error of the JPEG.
    pub error: ImageError,
}

impl ImageError {
    /// Creates the error for bytes that do not start like a JPEG, and describes what they look like.
    pub(crate) fn not_jpeg(bytes: &[u8]) -> Self {
        let (found, advice) = match KNOWN.iter().find(|(magic, _)| bytes.starts_with(magic)) {
            Some(&(_, found)) => (found.to_owned(), "convert it to JPEG first"),
            None if bytes.is_empty() => ("no bytes".to_owned(), "copy or download it again"),
            None => {
                let start = &bytes[..bytes.len().min(8)];
                (format!("bytes that start with {start:02x?}"), "check that this is the intended data")
            }
        };
        Self::NotJpeg { found, advice }
    }
}

/// The first bytes of data that is often found instead of a JPEG.
const KNOWN: &[(&[u8], &str)] = &[
    (b"\x89PNG", "a PNG image"),
    (b"GIF8", "a GIF image"),
    (b"RIFF", "a WebP image or another RIFF file"),
    (b"BM", "a BMP image"),
    (b"II*\0", "a TIFF image"),
    (b"MM\0*", "a TIFF image"),
    (b"\0\0\0\x0cJXL", "a JPEG XL image"),
    (b"\0\0\0\x0cjP", "a JPEG 2000 image"),
    (b"<", "a web page or XML"),
];
