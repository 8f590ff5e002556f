//! The first frame of GIF files, on the canvas of the whole animation.

use std::io::{Chain, Cursor, Read};

use super::{Frame, Memory, Picture, data, room};
use crate::error::ImageError;
use crate::format::Format;

pub(super) struct Reader<'a> {
    gif: gif::Decoder<Chain<Cursor<Vec<u8>>, &'a [u8]>>,
    bytes: &'a [u8],
    /// The height and width of the canvas, in pixels.
    size: [usize; 2],
}

impl<'a> Reader<'a> {
    /// Reads the file up to the first frame. The size includes that frame, since PIL enlarges a
    /// canvas that is too small for it.
    pub(super) fn open(bytes: &'a [u8]) -> Result<(Self, [usize; 2]), ImageError> {
        let mut options = gif::DecodeOptions::new();
        options.set_color_output(gif::ColorOutput::Indexed);
        // No limit is needed here: the size is checked before anything is decoded.
        options.set_memory_limit(gif::MemoryLimit::Unlimited);
        let fail = |message: &str| data(Format::Gif, bytes, message);
        let (head, rest) = split(bytes).ok_or_else(|| fail("it has no frame"))?;
        let mut gif = options.read_info(Cursor::new(head).chain(rest)).map_err(|error| fail(&error.to_string()))?;
        let frame = gif.next_frame_info().map_err(|error| fail(&error.to_string()))?;
        let frame = frame.ok_or_else(|| fail("it has no frame"))?;
        let [left, top, w, h] = [frame.left, frame.top, frame.width, frame.height].map(usize::from);
        let size = [(top + h).max(gif.height().into()), (left + w).max(gif.width().into())];
        Ok((Self { gif, bytes, size }, size))
    }

    pub(super) fn decode(mut self, memory: &mut Memory) -> Result<Picture<'_>, ImageError> {
        let bytes = self.bytes;
        let fail = |message: &str| data(Format::Gif, bytes, message);
        let [height, width] = self.size;
        let frame = self.gif.current_frame_info().ok_or_else(|| fail("it has no frame"))?;
        let [left, top, w, h] = [frame.left, frame.top, frame.width, frame.height].map(usize::from);
        // As in PIL, pixels that the frame does not cover have the transparent colour, or else the
        // first one.
        let beside = frame.transparent.unwrap_or(0);
        let indices = room(&mut memory.other, w * h)?;
        self.gif.read_into_buffer(&mut indices[..w * h]).map_err(|error| fail(&error.to_string()))?;
        let palette = self.gif.palette().map_err(|error| fail(&error.to_string()))?;
        // In PIL, an index beyond the palette is black. The exception: if each entry i of the
        // palette is the grey (i, i, i), such an index is that grey, too.
        let shades = palette.chunks(3).zip(0..=255).all(|(colour, shade)| colour == [shade; 3]);
        let colour = |index: u8| {
            let colour = palette.get(3 * usize::from(index)..).and_then(|at| at.first_chunk()).copied();
            colour.unwrap_or([if shades { index } else { 0 }; 3])
        };
        let pixels = room(&mut memory.samples, 3 * width * height)?;
        let pixels = &mut pixels[..3 * width * height].as_chunks_mut::<3>().0;
        if (w, h) != (width, height) {
            pixels.fill(colour(beside));
        }
        for (row, indices) in pixels[top * width..].chunks_mut(width).zip(memory.other[..w * h].chunks_exact(w.max(1)))
        {
            for (pixel, &index) in row[left..][..w].iter_mut().zip(indices) {
                *pixel = colour(index);
            }
        }
        Ok(Picture::packed(&memory.samples, 3, [Frame::same(height), Frame::same(width)]))
    }
}

/// Splits the file before the first frame. Like PIL, keeps the transparency in the first part, and
/// skips other extensions and stray bytes.
fn split(bytes: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let (flags, mut at) = (*bytes.get(10)?, 13);
    let mut head = bytes.get(..at)?.to_vec();
    if flags & 0x80 == 0 {
        // Without a palette, PIL uses the index of a pixel as its brightness.
        head[10] |= 0x87;
        head.extend((0..=255).flat_map(|shade| [shade; 3]));
    } else {
        at += 6 << (flags & 7);
        head.extend(bytes.get(13..at)?);
    }
    loop {
        match bytes.get(at..)? {
            [0x2c, ..] => return Some((head, &bytes[at..])),
            [0x3b, ..] | [] => return None,
            [0x21, label, len, block @ ..] => {
                if let (0xf9, 4.., Some([flags, _, _, transparent])) = (label, len, block.first_chunk())
                    && flags & 1 != 0
                {
                    head.extend([0x21, 0xf9, 4, 1, 0, 0, *transparent, 0]);
                }
                at += 2;
                while *bytes.get(at)? > 0 {
                    at += 1 + usize::from(bytes[at]);
                }
                at += 1;
            }
            _ => at += 1,
        }
    }
}
