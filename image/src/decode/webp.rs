//! WebP pictures. Of animations, the first frame is decoded.

use std::borrow::Cow;
use std::io::Cursor;

use image_webp::{DecodingError, WebPDecoder};

use super::{Frame, Memory, Orientation, Picture, data, room};
use crate::error::ImageError;
use crate::format::Format;

/// The offset of the flags in the file; below are the flags that announce metadata.
const FLAGS: usize = 20;
const EXIF: u8 = 8;
const XMP: u8 = 4;

pub(super) struct Reader<'a> {
    webp: WebPDecoder<Cursor<Cow<'a, [u8]>>>,
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn open(bytes: &'a [u8]) -> Result<(Self, [usize; 2]), ImageError> {
        let len =
            bytes.get(4..).and_then(|bytes| bytes.first_chunk()).map_or(0, |len| u32::from_le_bytes(*len) as usize);
        if bytes.len() - 8 < len {
            return Err(data(Format::WebP, bytes, format!("it should have {} bytes", len.saturating_add(8))));
        }
        let fail = |error| data(Format::WebP, bytes, error);
        let new = |bytes| WebPDecoder::new(Cursor::new(bytes));
        let mut webp = match new(Cow::Borrowed(bytes)) {
            // Some programs remove EXIF and XMP data, but not the flags that announce it.
            Err(DecodingError::ChunkMissing) if Self::flags(bytes) & (EXIF | XMP) != 0 => {
                let mut bytes = bytes.to_vec();
                bytes[FLAGS] &= !(EXIF | XMP);
                new(Cow::Owned(bytes))
            }
            webp => webp,
        }
        .map_err(fail)?;
        // A limit for chunks of EXIF data whose length field exceeds the file.
        webp.set_memory_limit(bytes.len());
        let (width, height) = webp.dimensions();
        check_frames(bytes.get(12..).unwrap_or_default(), [width, height], false)
            .map_err(|message| data(Format::WebP, bytes, message))?;
        Ok((Self { webp, bytes }, [height as usize, width as usize]))
    }

    /// Returns the flags of the extended header, which announce the parts of the file, or 0 if
    /// there is no such header.
    fn flags(bytes: &[u8]) -> u8 {
        if bytes.get(12..16) == Some(b"VP8X") { bytes.get(FLAGS).copied().unwrap_or(0) } else { 0 }
    }

    pub(super) fn orientation(&mut self) -> Orientation {
        let has = |flag| Self::flags(self.bytes) & flag != 0;
        let exif = self.webp.exif_metadata().ok().flatten().filter(|_| has(EXIF));
        let xmp = self.webp.xmp_metadata().ok().flatten().filter(|_| has(XMP));
        Orientation::of(exif.as_deref(), xmp.as_deref())
    }

    pub(super) fn decode(mut self, memory: &mut Memory) -> Result<Picture<'_>, ImageError> {
        let bytes = self.bytes;
        let fail = |error: DecodingError| data(Format::WebP, bytes, error);
        let size = |(width, height): (u32, u32)| [height as usize, width as usize];
        let [height, width] = size(self.webp.dimensions());
        if !self.webp.is_animated() {
            let channels = if self.webp.has_alpha() { 4 } else { 3 };
            let len = width * height * channels;
            self.webp.read_image(&mut room(&mut memory.samples, len)?[..len]).map_err(fail)?;
            return Ok(Picture::packed(&memory.samples, channels, [Frame::same(height), Frame::same(width)]));
        }
        // The decoder would blend the first frame with the background. PIL uses the frame's
        // colours, on black.
        let ([top, left], still) = first_frame(bytes).ok_or_else(|| data(Format::WebP, bytes, "it has no frame"))?;
        let mut frame = WebPDecoder::new(Cursor::new(&still)).map_err(fail)?;
        let [h, w] = size(frame.dimensions());
        if top + h > height || left + w > width {
            return Err(data(Format::WebP, bytes, "its first frame exceeds the canvas"));
        }
        let channels = if frame.has_alpha() { 4 } else { 3 };
        let colours = &mut room(&mut memory.other, w * h * channels)?[..w * h * channels];
        frame.read_image(colours).map_err(fail)?;
        let pixels = &mut room(&mut memory.samples, 3 * width * height)?[..3 * width * height].as_chunks_mut::<3>().0;
        pixels.fill([0; 3]);
        for (row, colours) in pixels[top * width..].chunks_mut(width).zip(colours.chunks_exact(w * channels)) {
            for (pixel, colour) in row[left..].iter_mut().zip(colours.chunks_exact(channels)) {
                pixel.copy_from_slice(&colour[..3]);
            }
        }
        Ok(Picture::packed(&memory.samples, 3, [Frame::same(height), Frame::same(width)]))
    }
}

/// Returns the top and left side of the first frame of an animation, and the frame as a file of its
/// own.
fn first_frame(bytes: &[u8]) -> Option<([usize; 2], Vec<u8>)> {
    let mut chunks = bytes.get(12..)?;
    let frame = loop {
        let (&[a, b, c, d, len @ ..], rest) = chunks.split_first_chunk::<8>()?;
        let len = u32::from_le_bytes(len) as usize;
        if [a, b, c, d] == *b"ANMF" {
            break &rest[..len.min(rest.len())];
        }
        chunks = rest.get(len.checked_next_multiple_of(2)?..)?;
    };
    let (&[x0, x1, x2, y0, y1, y2, size @ .., _, _, _, _], frame) = frame.split_first_chunk::<16>()?;
    let place = |bytes: [u8; 3]| 2 * u32::from_le_bytes([bytes[0], bytes[1], bytes[2], 0]) as usize;
    // If alpha is in a chunk of its own, the file gets an extended header with the flag for alpha.
    let flags = b"VP8X\x0a\0\0\0\x10\0\0\0";
    let header = if frame.starts_with(b"ALPH") { [&flags[..], &size].concat() } else { Vec::new() };
    let len = (4 + header.len() + frame.len()) as u32;
    let still = [&b"RIFF"[..], &len.to_le_bytes(), b"WEBP", &header, frame].concat();
    Some(([place([y0, y1, y2]), place([x0, x1, x2])], still))
}

/// Checks that the lossy frames in these chunks have the size of the picture, or the one that the
/// animation declares, before the decoder allocates memory for them.
fn check_frames(mut chunks: &[u8], [width, height]: [u32; 2], in_frame: bool) -> Result<(), String> {
    while let Some((&[a, b, c, d, len @ ..], rest)) = chunks.split_first_chunk::<8>() {
        let len = u32::from_le_bytes(len) as usize;
        let content = &rest[..len.min(rest.len())];
        match [a, b, c, d] {
            // The sizes follow three bytes of the frame tag and three of the start code.
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
