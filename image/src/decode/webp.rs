//! WebP pictures; of animations the first frame.

use std::io::Cursor;

use image_webp::WebPDecoder;

use super::{Frame, Memory, Orientation, Picture, data, room};
use crate::error::ImageError;
use crate::format::Format;

pub(super) struct Reader<'a> {
    webp: WebPDecoder<Cursor<&'a [u8]>>,
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn open(bytes: &'a [u8]) -> Result<(Self, [usize; 2]), ImageError> {
        let mut webp = WebPDecoder::new(Cursor::new(bytes)).map_err(|error| data(Format::WebP, bytes, error))?;
        // Chunks of EXIF data that claim to be longer than the file.
        webp.set_memory_limit(bytes.len());
        let (width, height) = webp.dimensions();
        Ok((Self { webp, bytes }, [height as usize, width as usize]))
    }

    pub(super) fn orientation(&mut self) -> Orientation {
        let exif = self.webp.exif_metadata().ok().flatten();
        exif.map(|exif| Orientation::of_exif(&exif)).unwrap_or_default()
    }

    pub(super) fn decode(mut self, memory: &mut Memory) -> Result<Picture<'_>, ImageError> {
        let (width, height) = self.webp.dimensions();
        let (width, height) = (width as usize, height as usize);
        let channels = if self.webp.has_alpha() { 4 } else { 3 };
        let len = width * height * channels;
        let pixels = &mut room(&mut memory.samples, len)?[..len];
        let outcome =
            if self.webp.is_animated() { self.webp.read_frame(pixels).map(drop) } else { self.webp.read_image(pixels) };
        outcome.map_err(|error| data(Format::WebP, self.bytes, error))?;
        Ok(Picture::packed(&memory.samples, channels, [Frame::same(height), Frame::same(width)]))
    }
}
