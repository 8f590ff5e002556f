//! Decodes a file to samples: its pixels, or those of the part that is needed.
//!
//! A picture is [opened](OpenedImage::new) first, which reads its size. The caller then decides
//! which part it needs, and [decodes](OpenedImage::decode) that part into memory that its thread
//! keeps.

#[cfg(feature = "bmp")]
mod bmp;
mod exif;
mod frame;
#[cfg(feature = "gif")]
mod gif;
#[cfg(feature = "png")]
pub(crate) mod numbers;
#[cfg(feature = "turbo")]
mod parts;
#[cfg(feature = "png")]
mod png;
#[cfg(feature = "jpeg")]
mod shared;
#[cfg(feature = "turbo")]
mod turbo;
#[cfg(feature = "webp")]
mod webp;
#[cfg(all(feature = "jpeg", not(feature = "turbo")))]
mod zune;

pub(crate) use self::exif::Orientation;
pub(crate) use self::frame::Frame;
#[cfg(feature = "turbo")]
use self::parts as jpeg;
#[cfg(all(feature = "jpeg", not(feature = "turbo")))]
use self::zune as jpeg;
use crate::channel::Planes;
use crate::error::ImageError;
use crate::format::Format;
use crate::resample::{Plane, STRIDE};

/// The longest side of a picture, in pixels. It limits the memory of a row.
pub(crate) const MAX_SIDE: usize = 65_535;

/// The limits for pictures that are accepted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) max_pixels: usize,
    #[cfg_attr(not(feature = "jpeg"), allow(dead_code))]
    pub(crate) strict: bool,
}

/// The part of a picture that is needed, in pixels of the file. The first number of each pair is
/// about rows, the second about columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DecodeRequest {
    /// The ranges of pixels that have a weight in the result.
    pub(crate) window: [[usize; 2]; 2],
    /// The size of the crop, in pixels of the file.
    pub(crate) crop: [usize; 2],
    /// The size that the crop is resized to.
    pub(crate) size: [usize; 2],
    /// Whether the picture may be decoded at a reduced size, as long as the crop is still at least
    /// as large as `size`.
    pub(crate) reduced: bool,
    /// Whether the pixels must be bit for bit those of the whole picture, without separate planes.
    pub(crate) exact: bool,
    /// Whether the whole file is read, so that damage is found anywhere.
    pub(crate) whole: bool,
}

/// A picture whose header was read.
pub(crate) struct OpenedImage<'a> {
    reader: Reader<'a>,
    pub(crate) height: usize,
    pub(crate) width: usize,
}

enum Reader<'a> {
    #[cfg(feature = "jpeg")]
    Jpeg(jpeg::Reader<'a>),
    #[cfg(feature = "png")]
    Png(Box<png::Reader<'a>>),
    #[cfg(feature = "webp")]
    WebP(Box<webp::Reader<'a>>),
    #[cfg(feature = "gif")]
    Gif(Box<gif::Reader<'a>>),
    #[cfg(feature = "bmp")]
    Bmp(Box<bmp::Reader<'a>>),
    /// Rows of pixels, and the number of bytes of each pixel.
    Pixels(&'a [u8], usize),
}

impl<'a> OpenedImage<'a> {
    /// Recognises the format of a file, and reads its header.
    #[allow(unused_variables, unreachable_code)] // Without any format.
    pub(crate) fn new(bytes: &'a [u8], limits: Limits) -> Result<Self, ImageError> {
        let format = Format::of(bytes)?;
        let (reader, [height, width]): (Reader<'a>, [usize; 2]) = match format {
            #[cfg(feature = "jpeg")]
            Format::Jpeg => jpeg::Reader::open(bytes, limits).map(|(reader, size)| (Reader::Jpeg(reader), size))?,
            #[cfg(feature = "png")]
            Format::Png => png::Reader::open(bytes).map(|(reader, size)| (Reader::Png(reader.into()), size))?,
            #[cfg(feature = "webp")]
            Format::WebP => webp::Reader::open(bytes).map(|(reader, size)| (Reader::WebP(reader.into()), size))?,
            #[cfg(feature = "gif")]
            Format::Gif => gif::Reader::open(bytes).map(|(reader, size)| (Reader::Gif(reader.into()), size))?,
            #[cfg(feature = "bmp")]
            Format::Bmp => bmp::Reader::open(bytes).map(|(reader, size)| (Reader::Bmp(reader.into()), size))?,
            #[allow(unreachable_patterns)] // With every format.
            _ => return Err(ImageError::Disabled { format }),
        };
        if width == 0 || height == 0 {
            return Err(data(format, bytes, "it has no pixels"));
        }
        let limit = limits.max_pixels;
        if width > MAX_SIDE || height > MAX_SIDE || width.saturating_mul(height) > limit {
            return Err(ImageError::TooLarge { format, width, height, limit });
        }
        Ok(Self { reader, height, width })
    }

    /// Creates a picture that is not in a file, from rows of pixels of one or three bytes.
    pub(crate) fn of_pixels(bytes: &'a [u8], [height, width]: [usize; 2], channels: usize) -> Self {
        Self { reader: Reader::Pixels(bytes, channels), height, width }
    }

    /// Reads the orientation that the file stores.
    pub(crate) fn orientation(&mut self) -> Orientation {
        match &mut self.reader {
            #[cfg(feature = "jpeg")]
            Reader::Jpeg(reader) => reader.orientation(),
            #[cfg(feature = "png")]
            Reader::Png(reader) => reader.orientation(),
            #[cfg(feature = "webp")]
            Reader::WebP(reader) => reader.orientation(),
            #[allow(unreachable_patterns)]
            _ => Orientation::default(),
        }
    }

    /// Decodes at least the requested part into `memory`.
    #[allow(unused_variables)] // Without any format.
    pub(crate) fn decode<'m>(self, memory: &'m mut Memory, request: DecodeRequest) -> Result<Picture<'m>, ImageError> {
        memory.warned = false;
        match self.reader {
            #[cfg(feature = "jpeg")]
            Reader::Jpeg(reader) => reader.decode(memory, request),
            #[cfg(feature = "png")]
            Reader::Png(reader) => reader.decode(memory, request),
            #[cfg(feature = "webp")]
            Reader::WebP(reader) => reader.decode(memory),
            #[cfg(feature = "gif")]
            Reader::Gif(reader) => reader.decode(memory),
            #[cfg(feature = "bmp")]
            Reader::Bmp(reader) => reader.decode(memory),
            Reader::Pixels(bytes, channels) => {
                let frames = [self.height, self.width].map(Frame::same);
                let samples = room(&mut memory.samples, bytes.len())?;
                samples[..bytes.len()].copy_from_slice(bytes);
                Ok(Picture::packed(samples, channels, frames))
            }
        }
    }
}

/// The memory that pictures are decoded into. A thread keeps it from one picture to the next.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    samples: Vec<u8>,
    /// The pixels in a second representation, for formats that need one.
    #[cfg_attr(not(any(feature = "webp", feature = "gif", feature = "bmp")), allow(dead_code))]
    other: Vec<u8>,
    /// Whether the decoder warned about the last picture.
    pub(crate) warned: bool,
}

/// A decoded picture.
#[derive(Debug)]
pub(crate) struct Picture<'a> {
    pub(crate) colours: Planes,
    /// The first plane: red, brightness, or all channels of each pixel.
    pub(crate) first: Plane<'a>,
    pub(crate) others: OtherChannels<'a>,
    /// How samples correspond to pixels of the file: for the first plane and for the others, in
    /// rows and in columns.
    pub(crate) frames: [[Frame; 2]; 2],
}

/// The location of the second and the third channel.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OtherChannels<'a> {
    /// The picture is grey and has no other channels.
    None,
    /// The two channels are in planes of their own.
    Planes([Plane<'a>; 2]),
    /// The two channels follow the first one in each pixel.
    Packed,
}

impl<'a> Picture<'a> {
    /// Creates a picture from rows of `channels` bytes per pixel: grey, grey with alpha, RGB, or
    /// RGB with alpha. Alpha is ignored.
    pub(crate) fn packed(samples: &'a [u8], channels: usize, frames: [Frame; 2]) -> Self {
        let stride = frames[1].samples * channels;
        debug_assert!(samples.len() >= stride * frames[0].samples + STRIDE);
        Self {
            colours: if channels < 3 { Planes::YCbCr } else { Planes::Rgb },
            first: Plane { samples, stride, step: channels },
            others: if channels < 3 { OtherChannels::None } else { OtherChannels::Packed },
            frames: [frames; 2],
        }
    }
}

/// Returns memory for `len` samples, plus the bytes after them that vector instructions may read.
/// Enlarges the memory if necessary.
pub(crate) fn room(memory: &mut Vec<u8>, len: usize) -> Result<&mut [u8], ImageError> {
    let bytes = len.saturating_add(STRIDE);
    if memory.len() < bytes {
        memory.try_reserve_exact(bytes - memory.len()).map_err(|_| ImageError::Memory { bytes })?;
        memory.resize(bytes, 0);
    }
    Ok(&mut memory[..bytes])
}

/// Creates the error for a file that could not be decoded, with the decoder's message.
#[cold]
pub(crate) fn data(format: Format, bytes: &[u8], message: impl ToString) -> ImageError {
    ImageError::Data { format, len: bytes.len(), message: message.to_string() }
}
