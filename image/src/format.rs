//! The formats of pictures, recognised by their first bytes.

use std::fmt;

use crate::error::ImageError;

/// A format of pictures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// JPEG: baseline and progressive, 8 bits; with the feature `turbo` also arithmetic and
    /// lossless. In a file with several pictures (MPO), the first is read.
    Jpeg,
    /// PNG.
    Png,
    /// WebP, lossy or lossless. Of animations, the first frame is read.
    WebP,
    /// GIF, of which the first frame is read.
    Gif,
    /// BMP.
    Bmp,
}

impl Format {
    /// Recognises the format of a picture by its first bytes.
    ///
    /// # Errors
    ///
    /// [`ImageError::Unknown`] describes what the bytes look like instead.
    ///
    /// ```
    /// use slotline_image::Format;
    ///
    /// assert_eq!(Format::of(b"\x89PNG\r\n\x1a\n...").unwrap(), Format::Png);
    /// assert!(Format::of(b"<html>").unwrap_err().to_string().contains("a web page"));
    /// ```
    pub fn of(bytes: &[u8]) -> Result<Self, ImageError> {
        match bytes {
            [0xff, 0xd8, ..] => Ok(Self::Jpeg),
            [0x89, b'P', b'N', b'G', ..] => Ok(Self::Png),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Ok(Self::WebP),
            [b'G', b'I', b'F', b'8', ..] => Ok(Self::Gif),
            [b'B', b'M', ..] => Ok(Self::Bmp),
            _ => Err(unknown(bytes)),
        }
    }

    /// Returns the name of the cargo feature that reads this format.
    pub(crate) fn feature(self) -> &'static str {
        match self {
            Self::Jpeg => "jpeg",
            Self::Png => "png",
            Self::WebP => "webp",
            Self::Gif => "gif",
            Self::Bmp => "bmp",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Jpeg => "JPEG",
            Self::Png => "PNG",
            Self::WebP => "WebP",
            Self::Gif => "GIF",
            Self::Bmp => "BMP",
        })
    }
}

/// Creates the error for bytes that are not a picture of a known format, and describes what they
/// look like.
#[cold]
fn unknown(bytes: &[u8]) -> ImageError {
    let (found, advice) = match KNOWN.iter().find(|(magic, _)| bytes.starts_with(magic)) {
        Some(&(_, found)) => (found.to_owned(), "convert it first, or remove it"),
        None if bytes.is_empty() => ("no bytes".to_owned(), "copy or download it again"),
        None => {
            let start = &bytes[..bytes.len().min(8)];
            (format!("bytes that start with {start:02x?}"), "check that this is the intended data")
        }
    };
    ImageError::Unknown { found, advice }
}

/// The first bytes of files that are often found instead of a picture, and what such files are.
const KNOWN: &[(&[u8], &str)] = &[
    (b"RIFF", "a RIFF file that is not WebP"),
    (b"II*\0", "a TIFF image"),
    (b"MM\0*", "a TIFF image"),
    (b"\0\0\0\x0cJXL", "a JPEG XL image"),
    (b"\xff\x0a", "a JPEG XL image"),
    (b"\0\0\0\x0cjP", "a JPEG 2000 image"),
    (b"\0\0\0 ftypavif", "an AVIF image"),
    (b"\0\0\0\x1cftypavif", "an AVIF image"),
    (b"<", "a web page or XML"),
];
