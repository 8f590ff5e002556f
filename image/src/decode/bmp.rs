//! BMP files with 1, 4, 8, 16, 24 or 32 bits per pixel, with palettes, colour masks and run-length
//! encoding.

use super::{Frame, Memory, Picture, data, room};
use crate::error::ImageError;
use crate::format::Format;

pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    /// The height and width of the picture, in pixels.
    size: [usize; 2],
    /// The offset of the stored rows in the file, in bytes.
    start: usize,
    bits: usize,
    run_lengths: bool,
    /// Whether the first stored row is the top row.
    downwards: bool,
    /// The masks of the bits of red, green and blue.
    masks: [u32; 3],
    palette: Box<[[u8; 3]; 256]>,
}

impl<'a> Reader<'a> {
    pub(super) fn open(bytes: &'a [u8]) -> Result<(Self, [usize; 2]), ImageError> {
        let reader = Self::read(bytes).map_err(|message| data(Format::Bmp, bytes, message))?;
        let size = reader.size;
        Ok((reader, size))
    }

    fn read(bytes: &'a [u8]) -> Result<Self, String> {
        let short = |at: usize| number::<2>(bytes, at).map(|number| number as u16);
        let long = |at: usize| number::<4>(bytes, at);
        let (start, header) = (long(10)? as usize, long(14)? as usize);
        // OS/2's header begins with the same 40 bytes.
        let (width, height, bits, compression, colours) = match header {
            12 => (i32::from(short(18)?), i32::from(short(20)?), short(24)?, 0, 0),
            40 | 52 | 56 | 64 | 108 | 124 => {
                (long(18)? as i32, long(22)? as i32, short(28)?, long(30)?, long(46)? as usize)
            }
            _ => return Err(format!("its header has {header} bytes, which is unknown")),
        };
        let width = usize::try_from(width).map_err(|_| format!("its width is {width}"))?;
        let masks = match (compression, bits) {
            (0, 16) => [31 << 10, 31 << 5, 31],
            (0, 32) => [0xff << 16, 0xff << 8, 0xff],
            (3, 16 | 32) => [long(54)?, long(58)?, long(62)?],
            (0, 1 | 4 | 8 | 24) | (1, 8) | (2, 4) => [0; 3],
            _ => return Err(format!("{bits} bits with compression {compression} are not supported")),
        };
        let mut palette = Box::new([[0; 3]; 256]);
        if bits <= 8 {
            let most = 1 << bits;
            let colours = if colours == 0 { most } else { colours.min(most) };
            // Colours beyond the end of the palette are black.
            let end = start.clamp(14 + header, bytes.len().max(14 + header));
            let entries =
                bytes.get(14 + header..end).unwrap_or_default().chunks_exact(if header == 12 { 3 } else { 4 });
            for (colour, entry) in palette.iter_mut().zip(entries).take(colours) {
                *colour = [entry[2], entry[1], entry[0]];
            }
        }
        Ok(Self {
            bytes,
            size: [height.unsigned_abs() as usize, width],
            start,
            bits: bits.into(),
            run_lengths: matches!(compression, 1 | 2),
            downwards: height < 0,
            masks,
            palette,
        })
    }

    pub(super) fn decode(self, memory: &mut Memory) -> Result<Picture<'_>, ImageError> {
        let [height, width] = self.size;
        let fail = |message: &str| data(Format::Bmp, self.bytes, message);
        let stored = self.bytes.get(self.start..).unwrap_or_default();
        // The length of a stored row is a multiple of four bytes. In the last row, unused bytes may
        // be missing.
        let (used, pitch) = ((width * self.bits).div_ceil(8), (width * self.bits).div_ceil(32) * 4);
        if !self.run_lengths && stored.len() < pitch * (height - 1) + used {
            return Err(fail("rows are missing"));
        }
        if self.run_lengths {
            let indices = &mut room(&mut memory.other, width * height)?[..width * height];
            indices.fill(0);
            expand(stored, self.bits, width, indices).ok_or_else(|| fail("rows are missing"))?;
        }
        let pixels = &mut room(&mut memory.samples, 3 * width * height)?[..3 * width * height];
        for (y, row) in pixels.chunks_exact_mut(3 * width).enumerate() {
            let y = if self.downwards { y } else { height - 1 - y };
            let row = row.as_chunks_mut::<3>().0;
            if self.run_lengths {
                let indices = &memory.other[y * width..][..width];
                row.iter_mut().zip(indices).for_each(|(pixel, &index)| *pixel = self.palette[usize::from(index)]);
            } else {
                self.row(&stored[pitch * y..][..used], row);
            }
        }
        Ok(Picture::packed(&memory.samples, 3, [Frame::same(height), Frame::same(width)]))
    }

    /// Decodes a row that is not compressed.
    fn row(&self, stored: &[u8], row: &mut [[u8; 3]]) {
        match self.bits {
            24 => row.iter_mut().zip(stored.as_chunks().0).for_each(|(pixel, &[b, g, r])| *pixel = [r, g, b]),
            32 if self.masks == [0xff << 16, 0xff << 8, 0xff] => {
                row.iter_mut().zip(stored.as_chunks().0).for_each(|(pixel, &[b, g, r, _])| *pixel = [r, g, b]);
            }
            32 => {
                let numbers = stored.as_chunks().0.iter().map(|&bytes| u32::from_le_bytes(bytes));
                row.iter_mut().zip(numbers).for_each(|(pixel, number)| *pixel = self.masked(number));
            }
            16 => {
                let numbers = stored.as_chunks().0.iter().map(|&bytes| u16::from_le_bytes(bytes).into());
                row.iter_mut().zip(numbers).for_each(|(pixel, number)| *pixel = self.masked(number));
            }
            bits => {
                for (x, pixel) in row.iter_mut().enumerate() {
                    let bit = x * bits;
                    let index = usize::from(stored[bit / 8]) >> (8 - bits - bit % 8) & ((1 << bits) - 1);
                    *pixel = self.palette[index];
                }
            }
        }
    }

    /// Returns the colour of a pixel whose channels are given by masks. Channels are scaled to the
    /// full range, rounded down as PIL does.
    fn masked(&self, number: u32) -> [u8; 3] {
        self.masks.map(|mask| {
            let shift = mask.trailing_zeros() % 32;
            let (part, most) = (u64::from((number & mask) >> shift), u64::from(mask >> shift));
            (part * 255).checked_div(most).unwrap_or(0) as u8
        })
    }
}

/// Reads a little-endian number of `N` bytes.
fn number<const N: usize>(bytes: &[u8], at: usize) -> Result<u32, String> {
    let bytes = bytes.get(at..at + N).ok_or("its header is not complete")?;
    Ok(bytes.iter().rev().fold(0, |number, &byte| number << 8 | u32::from(byte)))
}

/// Expands run-length encoding to an index for each pixel, in the order of the file. Returns `None`
/// if bytes are missing.
fn expand(stored: &[u8], bits: usize, width: usize, indices: &mut [u8]) -> Option<()> {
    let (mut x, mut y, height) = (0, 0, indices.len() / width);
    let mut rest = stored;
    let index = |byte: u8, i: usize| match (bits, i % 2) {
        (4, 0) => byte >> 4,
        (4, _) => byte & 15,
        _ => byte,
    };
    while y < height {
        let Some((&[count, value], behind)) = rest.split_first_chunk() else {
            // Some programs leave out the code that ends the picture.
            return (y == height - 1 && x >= width).then_some(());
        };
        rest = behind;
        // Pixels beyond the end of a row are ignored.
        let row = &mut indices[y * width..][..width];
        let places = row.iter_mut().skip(x);
        match (count, value) {
            (0, 0) => (x, y) = (0, y + 1),
            (0, 1) => return Some(()),
            (0, 2) => {
                let (&[right, up], behind) = rest.split_first_chunk()?;
                rest = behind;
                (x, y) = (x + usize::from(right), y + usize::from(up));
            }
            (0, count) => {
                let count = usize::from(count);
                let len = (count * bits).div_ceil(8);
                let bytes = rest.get(..len)?;
                places.take(count).enumerate().for_each(|(i, place)| *place = index(bytes[i * bits / 8], i));
                x += count;
                rest = rest.get(len.next_multiple_of(2)..).unwrap_or_default();
            }
            (count, value) => {
                places.take(count.into()).enumerate().for_each(|(i, place)| *place = index(value, i));
                x += usize::from(count);
            }
        }
    }
    Some(())
}
