//! What can be wrong with a picture, or with what is asked of it.

use std::path::PathBuf;

/// Why a JPEG can't become a row.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// The bytes don't start as a JPEG does.
    #[error("expected a JPEG, found {found}; {advice}")]
    NotJpeg {
        /// What they look like.
        found: String,
        /// What to do about it.
        advice: &'static str,
    },
    /// The decoder refuses the data, or would have to guess a part of the picture.
    #[error(
        "a JPEG of {len} bytes is cut short, damaged or of a kind that can't be decoded: {message}; copy or download it again, or leave it out"
    )]
    Data {
        /// How many bytes there are.
        len: usize,
        /// What the decoder says.
        message: String,
    },
    /// The picture has more pixels than the pipeline admits.
    #[error(
        "a JPEG of {width} × {height} pixels is more than the {limit} pixels allowed; raise `max_pixels` if you trust it"
    )]
    TooLarge {
        /// Pixels in a row.
        width: usize,
        /// Rows.
        height: usize,
        /// The limit.
        limit: usize,
    },
    /// There is no memory for the decoded picture.
    #[error("no memory for the {bytes} bytes of a decoded JPEG; use fewer workers or smaller pictures")]
    Memory {
        /// How many bytes were asked for.
        bytes: usize,
    },
    /// The target has no pixels, or more than 65,535 in a direction.
    #[error("the target is {height} × {width} pixels; each must be between 1 and 65,535")]
    Target {
        /// Rows.
        height: usize,
        /// Pixels in a row.
        width: usize,
    },
    /// Numbers that can't be normalised with.
    #[error(
        "channel {channel} is to be normalised with mean {mean} and std {std}; both must be finite, and std above 0"
    )]
    Normalisation {
        /// 0 for red, 1 for green, 2 for blue.
        channel: usize,
        /// What was given, in words, so that errors can be compared.
        mean: String,
        /// The same.
        std: String,
    },
}

/// Why the JPEG of a [file](crate::Jpeg::path) can't become a row.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {error}", path.display())]
#[non_exhaustive]
pub struct FileError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub error: ImageError,
}

impl ImageError {
    /// For bytes that don't start as a JPEG does: says what they look like instead.
    pub(crate) fn not_jpeg(bytes: &[u8]) -> Self {
        let (found, advice) = match KNOWN.iter().find(|(magic, _)| bytes.starts_with(magic)) {
            Some(&(_, found)) => (found.to_owned(), "convert it to JPEG first"),
            None if bytes.is_empty() => ("no bytes".to_owned(), "copy or download it again"),
            None => {
                let start = &bytes[..bytes.len().min(8)];
                (format!("bytes that start with {start:02x?}"), "check that the data is what you mean")
            }
        };
        Self::NotJpeg { found, advice }
    }
}

/// First bytes of what is often found in place of a JPEG.
const KNOWN: &[(&[u8], &str)] = &[
    (b"\x89PNG", "a PNG picture"),
    (b"GIF8", "a GIF picture"),
    (b"RIFF", "a WebP picture or another RIFF file"),
    (b"BM", "a BMP picture"),
    (b"II*\0", "a TIFF picture"),
    (b"MM\0*", "a TIFF picture"),
    (b"\0\0\0\x0cJXL", "a JPEG XL picture"),
    (b"\0\0\0\x0cjP", "a JPEG 2000 picture"),
    (b"<", "a web page or XML"),
];
