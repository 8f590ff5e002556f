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
        check_frames(bytes.get(12..).unwrap_or_default(), [width, height], false)
            .map_err(|message| data(Format::WebP, bytes, message))?;
        Ok((Self { webp, bytes }, [height as usize, width as usize]))
    }

    pub(super) fn orientation(&mut self) -> Orientation {
        let exif = self.webp.exif_metadata().ok().flatten();
        exif.map(|exif| Orientation::of_exif(&exif)).unwrap_or_default()
    }

    pub(super) fn decode(mut self, memory: &mut Memory) -> Result<Picture<'_>, ImageError> {
        let (width, height) = self.webp.dimensions();
        // The decoder computes with 32 bits.
        if self.webp.is_animated() && width.checked_mul(height).is_none_or(|area| area.checked_mul(4).is_none()) {
            return Err(data(Format::WebP, self.bytes, "an animation of too many pixels"));
        }
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

/// Checks that the lossy frames in these chunks have the size of the picture, or the one that an animation says, before
/// the decoder takes memory for them.
fn check_frames(mut chunks: &[u8], [width, height]: [u32; 2], in_frame: bool) -> Result<(), String> {
    while let Some((&[a, b, c, d, len @ ..], rest)) = chunks.split_first_chunk::<8>() {
        let len = u32::from_le_bytes(len) as usize;
        let content = &rest[..len.min(rest.len())];
        match [a, b, c, d] {
            // Three bytes of a tag, and three of a code.
            [b'V', b'P', b'8', b' '] => {
                let Some(&[w0, w1, h0, h1]) = content.get(6..10).and_then(|bytes| bytes.first_chunk()) else {
                    return Err("a frame has no header".to_owned());
                };
                let [w, h] = [[w0, w1], [h0, h1]].map(|side| u32::from(u16::from_le_bytes(side) & 0x3fff));
                if [w, h] != [width, height] {
                    return Err(format!("a frame of {w} × {h} pixels where {width} × {height} were announced"));
                }
            }
            [b'A', b'N', b'M', b'F'] if !in_frame => {
                if let Some((&[.., w0, w1, w2, h0, h1, h2, _, _, _, _], frame)) = content.split_first_chunk::<16>() {
                    let side = |bytes: [u8; 3]| 1 + u32::from_le_bytes([bytes[0], bytes[1], bytes[2], 0]);
                    check_frames(frame, [side([w0, w1, w2]), side([h0, h1, h2])], true)?;
                }
            }
            _ => {}
        }
        chunks = rest.get(len.next_multiple_of(2)..).unwrap_or_default();
    }
    Ok(())
}
