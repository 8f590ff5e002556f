//! BMP files.

use zune_bmp::BmpDecoder;
use zune_bmp::zune_core::bytestream::ZCursor;
use zune_bmp::zune_core::colorspace::ColorSpace;
use zune_bmp::zune_core::options::DecoderOptions;

use super::{Frame, Memory, Picture, data, room};
use crate::error::ImageError;
use crate::format::Format;

pub(super) struct Reader<'a> {
    bmp: BmpDecoder<ZCursor<&'a [u8]>>,
    bytes: &'a [u8],
    size: [usize; 2],
}

impl<'a> Reader<'a> {
    pub(super) fn open(bytes: &'a [u8]) -> Result<(Self, [usize; 2]), ImageError> {
        // Sizes are checked after the header.
        let options = DecoderOptions::default().set_max_width(usize::MAX).set_max_height(usize::MAX);
        let mut bmp = BmpDecoder::new_with_options(ZCursor::new(bytes), options);
        bmp.decode_headers().map_err(|error| data(Format::Bmp, bytes, format!("{error:?}")))?;
        let (width, height) = bmp.dimensions().ok_or_else(|| data(Format::Bmp, bytes, "it has no size"))?;
        let size = [height, width];
        Ok((Self { bmp, bytes, size }, size))
    }

    pub(super) fn decode(mut self, memory: &mut Memory) -> Result<Picture<'_>, ImageError> {
        let [height, width] = self.size;
        let channels = match self.bmp.colorspace() {
            Some(ColorSpace::Luma) => 1,
            Some(ColorSpace::RGBA) => 4,
            Some(ColorSpace::RGB) => 3,
            other => return Err(data(Format::Bmp, self.bytes, format!("its colours are {other:?}"))),
        };
        let len = width * height * channels;
        let pixels = room(&mut memory.samples, len)?;
        let outcome = self.bmp.decode_into(&mut pixels[..len]);
        outcome.map_err(|error| data(Format::Bmp, self.bytes, format!("{error:?}")))?;
        Ok(Picture::packed(&memory.samples, channels, [Frame::same(height), Frame::same(width)]))
    }
}
