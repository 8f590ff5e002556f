//! Reads the stored values of a PNG: grey values, or indices of the palette.

use std::borrow::Cow;
use std::io::Cursor;

use png::{BitDepth, ColorType, Transformations};

use super::{Limits, MAX_SIDE, data};
use crate::error::ImageError;
use crate::format::Format;

/// A PNG of one channel whose header was read.
pub(crate) struct Numbers<'a> {
    png: png::Reader<Cursor<Cow<'a, [u8]>>>,
    bytes: &'a [u8],
    pub(crate) size: [usize; 2],
}

/// Rows of stored values.
pub(crate) struct Rows<'m> {
    samples: &'m [u8],
    pitch: usize,
    bits: usize,
}

impl<'a> Numbers<'a> {
    pub(crate) fn open(bytes: &'a [u8], limits: Limits) -> Result<Self, ImageError> {
        let format = Format::of(bytes)?;
        let fail = |message: String| Err(ImageError::MaskKind { message });
        if format != Format::Png {
            return fail(format!("this is a {format}; convert it, without changing its numbers"));
        }
        let png = super::png::open(bytes, Transformations::IDENTITY)?;
        let (width, height) = (png.info().width as usize, png.info().height as usize);
        let limit = limits.max_pixels;
        if width > MAX_SIDE || height > MAX_SIDE || width.saturating_mul(height) > limit {
            return Err(ImageError::TooLarge { format, width, height, limit });
        }
        match png.info().color_type {
            ColorType::Grayscale | ColorType::Indexed => Ok(Self { png, bytes, size: [height, width] }),
            other => fail(format!("this one has colours of the type {other:?}; save it as classes")),
        }
    }

    /// Reads all rows into `memory`, so that damage is found even outside of the crop.
    pub(crate) fn read(mut self, memory: &mut Vec<u8>) -> Result<Rows<'_>, ImageError> {
        let bytes = self.bytes;
        let fail = |error: png::DecodingError| data(Format::Png, bytes, error);
        let [height, width] = self.size;
        let bits = match self.png.info().bit_depth {
            BitDepth::One => 1,
            BitDepth::Two => 2,
            BitDepth::Four => 4,
            BitDepth::Eight => 8,
            BitDepth::Sixteen => 16,
        };
        let pitch = (width * bits).div_ceil(8);
        let len = pitch * height;
        if memory.len() < len {
            memory.try_reserve_exact(len - memory.len()).map_err(|_| ImageError::Memory { bytes: len })?;
            memory.resize(len, 0);
        }
        self.png.next_frame(&mut memory[..len]).map_err(fail)?;
        Ok(Rows { samples: &memory[..len], pitch, bits })
    }
}

impl Rows<'_> {
    #[inline]
    pub(crate) fn at(&self, y: usize, x: usize) -> u16 {
        let row = &self.samples[y * self.pitch..][..self.pitch];
        match self.bits {
            8 => row[x].into(),
            16 => u16::from_be_bytes([row[2 * x], row[2 * x + 1]]),
            bits => {
                let bit = x * bits;
                (row[bit / 8] >> (8 - bits - bit % 8) & ((1 << bits) - 1)).into()
            }
        }
    }
}
