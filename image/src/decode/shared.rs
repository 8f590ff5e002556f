//! Functions that both decoders of JPEGs use.

use super::exif::Segments;

/// The maximum number of scans of a small picture.
pub(super) const MAX_SCANS: usize = 500;

/// Returns the maximum number of scans of a picture, which is more than any encoder writes: 500 up
/// to half a megapixel, and fewer for larger pictures, but at least 32. Each scan is a pass over
/// the whole picture, which takes 3 ns per pixel, and a malicious file of a few kilobytes may have
/// hundreds. (zune-jpeg makes twice as many passes if it finds damage and warnings are not errors.)
pub(super) fn most_scans(pixels: usize) -> usize {
    ((1 << 28) / pixels).clamp(32, MAX_SCANS)
}

/// Converts a CMYK pixel to RGB, in the first three bytes. The inks are inverted (255 is no ink),
/// as in files of Adobe's programs; PIL assumes the same.
pub(super) fn to_rgb(pixel: &mut [u8; 4]) {
    let [c, m, y, k] = *pixel;
    let colour = |ink: u8| {
        let product = u32::from(255 - ink) * u32::from(k) + 128;
        k - (((product >> 8) + product) >> 8) as u8
    };
    *pixel = [colour(c), colour(m), colour(y), k];
}

/// Whether there is an end marker after the start of the image data. (A thumbnail before that has
/// an end marker, too.) If there is none, the decoders only warn.
pub(super) fn ends(bytes: &[u8]) -> bool {
    let mut segments = Segments::new(bytes);
    segments.by_ref().for_each(drop);
    segments.rest.windows(2).rev().any(|marker| marker == [0xff, 0xd9])
}
