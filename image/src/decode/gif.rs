//! The first frame of GIF files, on the canvas of the whole animation.

use std::io::Cursor;

use super::{Frame, Memory, Picture, data, room};
use crate::error::ImageError;
use crate::format::Format;

pub(super) struct Reader<'a> {
    gif: gif::Decoder<Cursor<&'a [u8]>>,
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn open(bytes: &'a [u8]) -> Result<(Self, [usize; 2]), ImageError> {
        let mut options = gif::DecodeOptions::new();
        options.set_color_output(gif::ColorOutput::Indexed);
        // A frame cannot be larger than the canvas, whose size is checked before anything is decoded.
        options.check_frame_consistency(true);
        options.set_memory_limit(gif::MemoryLimit::Unlimited);
        let gif = options.read_info(Cursor::new(bytes)).map_err(|error| data(Format::Gif, bytes, error))?;
        let size = [gif.height().into(), gif.width().into()];
        Ok((Self { gif, bytes }, size))
    }

    pub(super) fn decode(mut self, memory: &mut Memory) -> Result<Picture<'_>, ImageError> {
        let bytes = self.bytes;
        let fail = |message: &str| data(Format::Gif, bytes, message);
        let (height, width) = (usize::from(self.gif.height()), usize::from(self.gif.width()));
        let frame = self.gif.next_frame_info().map_err(|error| fail(&error.to_string()))?;
        let frame = frame.ok_or_else(|| fail("it has no frame"))?;
        let [left, top, w, h] = [frame.left, frame.top, frame.width, frame.height].map(usize::from);
        if left + w > width || top + h > height {
            return Err(fail("its first frame exceeds the canvas"));
        }
        // What the frame does not cover is transparent, or has the first colour, as in PIL.
        let beside = frame.transparent.unwrap_or(0);
        let indices = room(&mut memory.other, w * h)?;
        self.gif.read_into_buffer(&mut indices[..w * h]).map_err(|error| fail(&error.to_string()))?;
        let palette = self.gif.palette().map_err(|error| fail(&error.to_string()))?;
        let colour = |index: u8| palette.get(3 * usize::from(index)..).and_then(|at| at.first_chunk()).copied();
        let pixels = room(&mut memory.samples, 3 * width * height)?;
        let pixels = &mut pixels[..3 * width * height].as_chunks_mut::<3>().0;
        if (w, h) != (width, height) {
            pixels.fill(colour(beside).unwrap_or([0; 3]));
        }
        for (row, indices) in pixels[top * width..].chunks_mut(width).zip(memory.other[..w * h].chunks_exact(w.max(1)))
        {
            for (pixel, &index) in row[left..][..w].iter_mut().zip(indices) {
                // PIL takes colours beyond the palette as black.
                *pixel = colour(index).unwrap_or([0; 3]);
            }
        }
        Ok(Picture::packed(&memory.samples, 3, [Frame::same(height), Frame::same(width)]))
    }
}
