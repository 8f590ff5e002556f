//! PNGs, row by row: those above the window are not kept, those below it not read unless the whole file is checked.

use std::io::Cursor;

use super::{Frame, Memory, Orientation, Picture, Want, data, room};
use crate::error::ImageError;
use crate::format::Format;

pub(super) struct Reader<'a> {
    png: png::Reader<Cursor<&'a [u8]>>,
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn open(bytes: &'a [u8]) -> Result<(Self, [usize; 2]), ImageError> {
        let mut decoder = png::Decoder::new(Cursor::new(bytes));
        // Eight bits of grey or of red, green and blue, maybe with alpha.
        decoder.set_transformations(png::Transformations::EXPAND | png::Transformations::STRIP_16);
        let png = decoder.read_info().map_err(|error| data(Format::Png, bytes, error))?;
        let size = [png.info().height as usize, png.info().width as usize];
        Ok((Self { png, bytes }, size))
    }

    /// EXIF and XMP data may be in several kinds of chunks, in front of the rows and behind them.
    pub(super) fn orientation(&self) -> Orientation {
        let (mut head, mut notes) = (self.bytes[..8].to_vec(), false);
        let mut rest = &self.bytes[8..];
        while let Some((len, kind)) = rest.split_first_chunk::<4>().zip(rest.get(4..8)) {
            let len = u32::from_be_bytes(*len.0) as usize;
            let Some((chunk, behind)) = rest.split_at_checked(len.saturating_add(12)) else { break };
            rest = behind;
            match kind {
                b"IHDR" | b"PLTE" => head.extend_from_slice(chunk),
                b"eXIf" | b"tEXt" | b"zTXt" | b"iTXt" => {
                    notes = true;
                    head.extend_from_slice(chunk);
                }
                _ => {}
            }
        }
        // An empty first chunk of rows, at which reading the header ends.
        head.extend_from_slice(b"\0\0\0\0IDAT\x35\xaf\x06\x1e");
        let read = || png::Decoder::new(Cursor::new(&head[..])).read_info().ok();
        let Some(png) = notes.then(read).flatten() else { return Orientation::default() };
        let info = png.info();
        let mut texts = info.uncompressed_latin1_text.iter().map(|text| (&text.keyword, Some(text.text.clone())));
        let mut compressed = info.compressed_latin1_text.iter().map(|text| (&text.keyword, text.get_text().ok()));
        let is_exif = |(name, _): &(&String, _)| *name == "Raw profile type exif";
        let raw = || texts.find(is_exif).or_else(|| compressed.find(is_exif)).and_then(|text| unhex(&text.1?));
        let exif = info.exif_metadata.as_ref().map(|exif| exif.to_vec()).or_else(raw);
        let xmp = info.utf8_text.iter().find(|text| text.keyword == "XML:com.adobe.xmp");
        let xmp = xmp.and_then(|text| text.get_text().ok());
        Orientation::of(exif.as_deref(), xmp.as_deref().map(str::as_bytes))
    }

    pub(super) fn decode(mut self, memory: &mut Memory, want: Want) -> Result<Picture<'_>, ImageError> {
        let bytes = self.bytes;
        let channels = self.png.output_color_type().0.samples();
        let [height, width] = [self.png.info().height as usize, self.png.info().width as usize];
        let pitch = width * channels;
        if self.png.info().interlaced {
            let pixels = room(&mut memory.samples, pitch * height)?;
            self.png.next_frame(&mut pixels[..pitch * height]).map_err(|error| data(Format::Png, bytes, error))?;
            return Ok(Picture::packed(&memory.samples, channels, [Frame::same(height), Frame::same(width)]));
        }
        let [top, bottom] = want.window[0];
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
        if want.whole {
            while self.png.next_row().map_err(|error| data(Format::Png, bytes, error))?.is_some() {}
        }
        let rows = Frame { samples: bottom - top, scale: 1.0, skipped: top as f64 };
        Ok(Picture::packed(&memory.samples, channels, [rows, Frame::same(width)]))
    }
}

/// Returns the bytes of a text as ImageMagick writes it: a name, their number, and their digits, on lines of their own.
fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text.splitn(4, '\n').nth(3)?.bytes().filter(|digit| !digit.is_ascii_whitespace()).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.chunks(2).map(byte).collect()
}
