//! The processing of a picture by a program without slotline: a decoder, a resizing library, and a
//! loop that normalises.

use std::cell::RefCell;
use std::io::Cursor;

use fast_image_resize::images::Image;
use fast_image_resize::{FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer};
use turbojpeg::{Decompressor, PixelFormat};
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;

/// The width and height of a resized picture.
pub const SIDE: usize = 224;
const PLANE: usize = SIDE * SIDE;
/// The number of elements (pixels times channels) of a resized picture.
pub const ELEMENTS: usize = 3 * PLANE;
/// ImageNet's means and standard deviations.
pub const MEAN: [f32; 3] = [0.485, 0.456, 0.406];
/// See [`MEAN`].
pub const STD: [f32; 3] = [0.229, 0.224, 0.225];

/// A decoder of pictures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoder {
    /// libjpeg-turbo.
    Turbo,
    /// zune-jpeg.
    Zune,
    /// The crate png.
    Png,
}

/// The random choices for a picture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// The crop: top, left, height, width. `None` stands for the whole picture.
    pub crop: Option<[usize; 4]>,
    /// Whether the picture is mirrored from left to right.
    pub flip: bool,
}

/// The decoders and buffers that a thread keeps.
struct Tools {
    turbo: Decompressor,
    resizer: Resizer,
    pixels: Vec<u8>,
}

thread_local! {
    static TOOLS: RefCell<Tools> = RefCell::new(Tools {
        turbo: Decompressor::new().expect("libjpeg-turbo can allocate memory"),
        resizer: Resizer::new(),
        pixels: Vec::new(),
    });
}

/// Decodes a whole picture to RGB bytes, and resizes its crop. The result is not mirrored yet.
pub fn resized(decoder: Decoder, file: &[u8], steps: Steps) -> Vec<u8> {
    TOOLS.with_borrow_mut(|tools| {
        let [height, width] = tools.decode(decoder, file);
        let source = Image::from_slice_u8(width as u32, height as u32, &mut tools.pixels, PixelType::U8x3);
        let mut resized = Image::new(SIDE as u32, SIDE as u32, PixelType::U8x3);
        let mut options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::Bilinear));
        if let Some(crop) = steps.crop {
            let [top, left, height, width] = crop.map(|side| side as f64);
            options = options.crop(left, top, width, height);
        }
        tools.resizer.resize(&source.expect("as many bytes"), &mut resized, &options).expect("the same type");
        resized.into_vec()
    })
}

/// Returns the height and width of a picture.
pub fn size(decoder: Decoder, file: &[u8]) -> [usize; 2] {
    TOOLS.with_borrow_mut(|tools| match decoder {
        Decoder::Png => {
            let reader = png::Decoder::new(Cursor::new(file)).read_info().expect("a valid PNG");
            [reader.info().height as usize, reader.info().width as usize]
        }
        _ => {
            let header = tools.turbo.read_header(file).expect("a valid JPEG");
            [header.height, header.width]
        }
    })
}

impl Tools {
    /// Decodes a whole picture to `pixels`, and returns its height and width.
    fn decode(&mut self, decoder: Decoder, file: &[u8]) -> [usize; 2] {
        if decoder == Decoder::Png {
            let mut reader = png::Decoder::new(Cursor::new(file)).read_info().expect("a valid PNG");
            self.pixels.resize(reader.output_buffer_size().expect("a small picture"), 0);
            let info = reader.next_frame(&mut self.pixels).expect("a valid PNG");
            assert_eq!((info.color_type, info.bit_depth), (png::ColorType::Rgb, png::BitDepth::Eight));
            return [info.height as usize, info.width as usize];
        }
        let header = self.turbo.read_header(file).expect("a valid JPEG");
        let (width, height) = (header.width, header.height);
        if decoder == Decoder::Turbo {
            self.pixels.resize(width * height * 3, 0);
            let pixels = &mut self.pixels[..];
            let image = turbojpeg::Image { pixels, width, pitch: width * 3, height, format: PixelFormat::RGB };
            self.turbo.decompress(file, image).expect("a valid JPEG");
        } else {
            self.pixels = JpegDecoder::new(ZCursor::new(file)).decode().expect("a valid JPEG");
        }
        [height, width]
    }
}

/// Normalises interleaved RGB bytes into planar floats. Mirrors the picture from left to right if
/// `flip` is set.
pub fn normalise(pixels: &[u8], flip: bool, out: &mut [f32]) {
    let factors: [f32; 3] = std::array::from_fn(|i| 1.0 / (255.0 * STD[i]));
    let offsets: [f32; 3] = std::array::from_fn(|i| -MEAN[i] / STD[i]);
    let (red, rest) = out.split_at_mut(PLANE);
    let (green, blue) = rest.split_at_mut(PLANE);
    let planes = red.iter_mut().zip(green).zip(blue);
    for (pixel, ((red, green), blue)) in pixels.as_chunks::<3>().0.iter().zip(planes) {
        *red = f32::from(pixel[0]) * factors[0] + offsets[0];
        *green = f32::from(pixel[1]) * factors[1] + offsets[1];
        *blue = f32::from(pixel[2]) * factors[2] + offsets[2];
    }
    if flip {
        out.chunks_exact_mut(SIDE).for_each(<[f32]>::reverse);
    }
}
