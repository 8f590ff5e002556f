//! PNGs, read row by row: rows above the window are not kept, and rows below it are read only if
//! the whole file is checked.

use std::borrow::Cow;
use std::io::Cursor;
use std::iter;

use super::{DecodeRequest, Frame, Memory, Orientation, Picture, data, room};
use crate::error::ImageError;
use crate::format::Format;

pub(super) struct Reader<'a> {
    png: png::Reader<Cursor<Cow<'a, [u8]>>>,
    bytes: &'a [u8],
}

/// Reads the header. All checksums of the pixels are checked, whereas PIL checks only the one
/// inside of the compressed data.
pub(super) fn open(
    bytes: &[u8],
    transformations: png::Transformations,
) -> Result<png::Reader<Cursor<Cow<'_, [u8]>>>, ImageError> {
    let mut options = png::DecodeOptions::default();
    options.set_ignore_adler32(false);
    let mut decoder = png::Decoder::new_with_options(Cursor::new(without_unknown(bytes)), options);
    decoder.set_transformations(transformations);
    decoder.read_info().map_err(|error| data(Format::Png, bytes, error))
}

/// Removes critical chunks of unknown kinds before the rows, which PIL skips and the decoder would
/// reject.
fn without_unknown(bytes: &[u8]) -> Cow<'_, [u8]> {
    let is_unknown = |kind: [u8; 4]| kind[0].is_ascii_uppercase() && !matches!(&kind, b"IHDR" | b"PLTE" | b"IEND");
    let head = || chunks(bytes).take_while(|(kind, ..)| kind != b"IDAT");
    if !head().any(|(kind, ..)| is_unknown(kind)) {
        return bytes.into();
    }
    let kept = head().filter(|(kind, ..)| !is_unknown(*kind)).map(|(.., chunk)| chunk);
    let end = 8 + head().map(|(.., chunk)| chunk.len()).sum::<usize>();
    iter::once(&bytes[..8]).chain(kept).chain([&bytes[end..]]).collect::<Vec<_>>().concat().into()
}

/// Returns the chunks up to the last complete one: their kind, their data, and all of their bytes.
fn chunks(bytes: &[u8]) -> impl Iterator<Item = ([u8; 4], &[u8], &[u8])> {
    let mut rest = bytes.get(8..).unwrap_or_default();
    iter::from_fn(move || {
        let (&len, behind) = rest.split_first_chunk()?;
        let len = u32::from_be_bytes(len) as usize;
        let (chunk, others) = rest.split_at_checked(len.checked_add(12)?)?;
        rest = others;
        Some((*behind.first_chunk()?, &chunk[8..8 + len], chunk))
    })
}

impl<'a> Reader<'a> {
    pub(super) fn open(bytes: &'a [u8]) -> Result<(Self, [usize; 2]), ImageError> {
        // Expands to eight bits of grey or of red, green and blue, possibly with alpha.
        let png = open(bytes, png::Transformations::EXPAND | png::Transformations::STRIP_16)?;
        let info = png.info();
        let colours = info.palette.as_ref().map_or(0, |palette| palette.len());
        if info.color_type == png::ColorType::Indexed && (!colours.is_multiple_of(3) || colours > 3 * 256) {
            return Err(data(Format::Png, bytes, format!("its palette has {colours} bytes")));
        }
        let size = [info.height as usize, info.width as usize];
        Ok((Self { png, bytes }, size))
    }

    /// Reads the orientation from EXIF or XMP data, which may be in several kinds of chunks, before
    /// and after the rows. The last chunk of each counts.
    pub(super) fn orientation(&self) -> Orientation {
        let (mut exif, mut raw, mut xmp) = (None, None, None);
        for (kind, data, chunk) in chunks(self.bytes).take_while(|(kind, ..)| kind != b"IEND") {
            let keyword = data.split(|&byte| byte == 0).next().unwrap_or_default();
            match (&kind, keyword) {
                (b"eXIf", _) => exif = Some(data.to_vec()),
                (b"tEXt", b"exif") => exif = Some(data[5.min(data.len())..].to_vec()),
                (b"tEXt" | b"zTXt" | b"iTXt", b"Raw profile type exif") => raw = text(chunk),
                (b"tEXt" | b"zTXt" | b"iTXt", b"XML:com.adobe.xmp") => xmp = text(chunk).or(xmp),
                _ => {}
            }
        }
        let exif = exif.or_else(|| unhex(&raw?));
        Orientation::of(exif.as_deref(), xmp.as_deref().map(str::as_bytes))
    }

    pub(super) fn decode(mut self, memory: &mut Memory, request: DecodeRequest) -> Result<Picture<'_>, ImageError> {
        let bytes = self.bytes;
        let channels = self.png.output_color_type().0.samples();
        let [height, width] = [self.png.info().height as usize, self.png.info().width as usize];
        let (colours, bits) = (self.png.info().color_type, self.png.info().bit_depth);
        if request.exact && (colours, bits) == (png::ColorType::Grayscale, png::BitDepth::Sixteen) {
            // PIL clips 16-bit grey values to 255.
            let numbers = &mut room(&mut memory.other, 2 * width * height)?[..2 * width * height];
            let mut png = open(bytes, png::Transformations::IDENTITY)?;
            png.next_frame(numbers).map_err(|error| data(Format::Png, bytes, error))?;
            let pixels = room(&mut memory.samples, width * height)?.iter_mut().zip(numbers.as_chunks().0);
            pixels.for_each(|(pixel, &number)| *pixel = u16::from_be_bytes(number).min(255) as u8);
            return Ok(Picture::packed(&memory.samples, 1, [Frame::same(height), Frame::same(width)]));
        }
        let pitch = width * channels;
        if self.png.info().interlaced {
            let pixels = room(&mut memory.samples, pitch * height)?;
            self.png.next_frame(&mut pixels[..pitch * height]).map_err(|error| data(Format::Png, bytes, error))?;
            return Ok(Picture::packed(&memory.samples, channels, [Frame::same(height), Frame::same(width)]));
        }
        let [top, bottom] = request.window[0];
        let pixels = room(&mut memory.samples, pitch * (bottom - top))?;
        let mut rows = pixels.chunks_exact_mut(pitch);
        for y in 0..bottom {
            let row = self.png.next_row().map_err(|error| data(Format::Png, bytes, error))?;
            let row = row.ok_or_else(|| data(Format::Png, bytes, "rows are missing"))?;
            if y >= top {
                let wrong = || data(Format::Png, bytes, "a row has the wrong length");
                let to = rows.next().expect("there is room for each row of the window");
                to.copy_from_slice(row.data().get(..pitch).ok_or_else(wrong)?);
            }
        }
        if request.whole {
            while self.png.next_row().map_err(|error| data(Format::Png, bytes, error))?.is_some() {}
        }
        let rows = Frame { samples: bottom - top, scale: 1.0, skipped: top as f64 };
        Ok(Picture::packed(&memory.samples, channels, [rows, Frame::same(width)]))
    }
}

/// Returns the text of a text chunk of any kind, by reading the chunk as a part of a PNG of one
/// pixel.
fn text(chunk: &[u8]) -> Option<String> {
    let head = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\0\x01\0\0\0\x01\x08\0\0\0\0\x3a\x7e\x9b\x55";
    let png = [head, chunk, b"\0\0\0\0IDAT\x35\xaf\x06\x1e"].concat();
    let png = png::Decoder::new(Cursor::new(png)).read_info().ok()?;
    let info = png.info();
    let plain = info.uncompressed_latin1_text.first().map(|text| text.text.clone());
    let compressed = || info.compressed_latin1_text.first()?.get_text().ok();
    plain.or_else(compressed).or_else(|| info.utf8_text.first()?.get_text().ok())
}

/// Decodes bytes that ImageMagick writes as text: lines with a name, the number of bytes, and
/// hexadecimal digits.
fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text.splitn(4, '\n').nth(3)?.bytes().filter(|digit| !digit.is_ascii_whitespace()).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.chunks(2).map(byte).collect()
}
