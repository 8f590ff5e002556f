//! The errors of this crate.

use std::path::PathBuf;

use crate::format::Format;

/// The error of a picture that cannot be decoded, or of an invalid parameter of a transform or a
/// pipeline.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// The bytes do not start like a picture of a known format.
    #[error("expected a JPEG, PNG, WebP, GIF or BMP picture, found {found}; {advice}")]
    Unknown {
        /// A description of what the bytes look like.
        found: String,
        /// What the user can do about it.
        advice: &'static str,
    },
    /// The picture's format is a cargo feature of this crate that is turned off.
    #[error("a {format} picture, which needs the cargo feature `{}` of slotline-image", format.feature())]
    Disabled {
        /// The format of the picture.
        format: Format,
    },
    /// A JPEG of a kind that only libjpeg-turbo can decode; the cargo feature `turbo` of this crate
    /// is turned off.
    #[error("a JPEG {kind}, which needs the cargo feature `turbo` of slotline-image")]
    NeedsTurbo {
        /// What is unusual about the JPEG.
        kind: &'static str,
    },
    /// The data is damaged, so the decoder rejects it or would have to guess a part of the picture.
    #[error(
        "a {format} of {len} bytes is cut short, damaged or of an unsupported kind: {message}; copy or download it \
         again, or remove it"
    )]
    Data {
        /// The format of the picture.
        format: Format,
        /// The length of the data, in bytes.
        len: usize,
        /// The decoder's message.
        message: String,
    },
    /// The picture has more pixels than the pipeline allows, or a side of more than 65,535.
    #[error(
        "a {format} of {width} × {height} pixels exceeds the limit of {limit} pixels, or of 65,535 for a side; store \
         it smaller, or raise `max_pixels` (in Rust) if you trust it"
    )]
    TooLarge {
        /// The format of the picture.
        format: Format,
        /// The width of the picture, in pixels.
        width: usize,
        /// The height of the picture, in pixels.
        height: usize,
        /// The maximum number of pixels.
        limit: usize,
    },
    /// Between two transforms the picture has more pixels than the pipeline allows, or a side of
    /// more than 65,535.
    #[error(
        "a picture of {} × {} pixels has {} × {} between two transforms, which exceeds the limit of {limit} pixels, or of \
         65,535 for a side; crop in front of transforms of colours, set `max_size` of resize, or raise `max_pixels` \
         (in Rust)",
        picture[1], picture[0], between[1], between[0]
    )]
    TooLargeBetween {
        /// The height and width of the decoded picture.
        picture: [usize; 2],
        /// The height and width of the picture between the two transforms.
        between: [usize; 2],
        /// The maximum number of pixels.
        limit: usize,
    },
    /// There is not enough memory for the decoded picture.
    #[error("cannot allocate the {bytes} bytes of a decoded picture; use fewer workers or smaller pictures")]
    Memory {
        /// The size of the memory that was requested, in bytes.
        bytes: usize,
    },
    /// A parameter is invalid, or does not fit the other transforms of the pipeline.
    #[error("{transform}: {parameter} {message}")]
    Parameter {
        /// The name of the transform, or `Pipeline`.
        transform: &'static str,
        /// The name of the parameter.
        parameter: &'static str,
        /// The value of the parameter, and what is wrong with it.
        message: String,
    },
    /// A text could not be parsed as a list of transforms.
    #[error("character {character} of the pipeline: {message}")]
    Text {
        /// The position of the wrong character, from 1.
        character: usize,
        /// What is wrong at this character, and what is allowed there.
        message: String,
    },
    /// The picture is too small for a transform.
    #[error("{transform}: a picture of {width} × {height} pixels is too small; {advice}")]
    TooSmall {
        /// The name of the transform.
        transform: &'static str,
        /// The width of the picture that the transform gets, in pixels.
        width: usize,
        /// The height of the picture that the transform gets, in pixels.
        height: usize,
        /// What the user can do about it.
        advice: &'static str,
    },
    /// A [`Mask`](crate::Mask) has another size than its picture.
    #[error(
        "a mask of {} × {} pixels for a picture of {} × {}; both need the same size, and with `exif` the mask that of the \
         upright picture", mask[1], mask[0], picture[1], picture[0]
    )]
    MaskSize {
        /// The height and width of the mask.
        mask: [usize; 2],
        /// The height and width of the picture.
        picture: [usize; 2],
    },
    /// The file of a [`Mask`](crate::Mask) does not store class numbers.
    #[error("a mask must be a PNG with a palette or of grey, whose numbers are the classes: {message}")]
    MaskKind {
        /// What the file is instead, or what the user can do.
        message: String,
    },
    /// A [`Draw`](crate::Draw) does not belong to the pipeline or to the picture.
    #[error("the draw does not fit: {message}")]
    Draw {
        /// A description of what does not fit.
        message: String,
    },
}

impl ImageError {
    pub(crate) fn parameter(transform: &'static str, parameter: &'static str, message: impl Into<String>) -> Self {
        Self::Parameter { transform, parameter, message: message.into() }
    }

    pub(crate) fn draw(message: impl Into<String>) -> Self {
        Self::Draw { message: message.into() }
    }
}

/// The error of a picture whose [file](crate::Image::path) is known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {error}", path.display())]
#[non_exhaustive]
pub struct FileError {
    /// The path of the file.
    pub path: PathBuf,
    /// The error of the picture.
    pub error: ImageError,
}

impl FileError {
    /// Creates the error from a picture's error and the path of its file.
    pub fn new(path: impl Into<PathBuf>, error: ImageError) -> Self {
        Self { path: path.into(), error }
    }
}
