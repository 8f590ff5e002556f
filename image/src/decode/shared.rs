//! What both decoders of JPEGs share.

use super::exif::Segments;

/// The maximum number of scans of a small picture.
pub(super) const MAX_SCANS: usize = 500;

/// The maximum number of scans of a picture, more than any encoder writes: 500 of up to half a megapixel, and fewer of larger
/// ones, but 32. Each scan is a pass over the whole picture, of 3 ns per pixel, and a malicious file of a few kilobytes may
/// have hundreds. (With zune-jpeg there are twice as many passes if it finds damage and warnings are not errors.)
pub(super) fn most_scans(pixels: usize) -> usize {
    ((1 << 28) / pixels).clamp(32, MAX_SCANS)
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

/// Whether there is an end marker after the start of the image. (A thumbnail before it has an end marker, too.) The decoders
/// only warn if there is none.
pub(super) fn ends(bytes: &[u8]) -> bool {
    let mut segments = Segments::new(bytes);
    segments.by_ref().for_each(drop);
    segments.rest.windows(2).rev().any(|marker| marker == [0xff, 0xd9])
}
