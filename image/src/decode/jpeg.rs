//! JPEGs: what does not depend on the decoder, which is libjpeg-turbo with the feature `turbo`, and zune-jpeg otherwise.

use super::exif::Segments;
#[cfg(feature = "turbo")]
use super::parts::Decoder;
#[cfg(not(feature = "turbo"))]
use super::zune::Decoder;
use super::{DecodeRequest, Limits, Memory, Orientation, Picture, data};
use crate::error::ImageError;
use crate::format::Format;

pub(super) struct Reader<'a> {
    decoder: Decoder<'a>,
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn open(bytes: &'a [u8], limits: Limits) -> Result<(Self, [usize; 2]), ImageError> {
        let (decoder, size) = Decoder::open(bytes, limits.strict)?;
        Ok((Self { decoder, bytes }, size))
    }

    pub(super) fn orientation(&self) -> Orientation {
        Orientation::of_jpeg(self.bytes)
    }

    pub(super) fn decode(self, memory: &mut Memory, request: DecodeRequest) -> Result<Picture<'_>, ImageError> {
        // The decoders only warn about what is missing at the end, and libjpeg does not read what is below a region.
        if !ends(self.bytes) {
            return Err(data(Format::Jpeg, self.bytes, "it has no end marker"));
        }
        self.decoder.decode(memory, request)
    }
}

/// The maximum number of scans of a picture, more than any encoder writes: 500 of up to half a megapixel, and fewer of larger
/// ones, but 32. Each scan is a pass over the whole picture, of 3 ns per pixel, and a malicious file of a few kilobytes may have
/// hundreds.
pub(super) fn most_scans(pixels: usize) -> usize {
    ((1 << 28) / pixels).clamp(32, 500)
}

/// Whether there is an end marker after the start of the image. (A thumbnail before it has an end marker, too.)
fn ends(bytes: &[u8]) -> bool {
    let mut segments = Segments::new(bytes);
    segments.by_ref().for_each(drop);
    segments.rest.windows(2).rev().any(|marker| marker == [0xff, 0xd9])
}

/// Converts a CMYK pixel to RGB, in its first three bytes. The inks are inverted (255 is no ink), as Adobe's programs
/// write them and PIL assumes.
pub(super) fn to_rgb(pixel: &mut [u8; 4]) {
    let [c, m, y, k] = *pixel;
    let colour = |ink: u8| {
        let product = u32::from(255 - ink) * u32::from(k) + 128;
        k - (((product >> 8) + product) >> 8) as u8
    };
    *pixel = [colour(c), colour(m), colour(y), k];
}
