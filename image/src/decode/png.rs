//! PNGs, row by row: those above the window are not kept, those below it not read.

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

    pub(super) fn orientation(&self) -> Orientation {
        self.png.info().exif_metadata.as_ref().map(|exif| Orientation::of_exif(exif)).unwrap_or_default()
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
        let rows = Frame { samples: bottom - top, scale: 1.0, skipped: top as f64 };
        Ok(Picture::packed(&memory.samples, channels, [rows, Frame::same(width)]))
    }
}
