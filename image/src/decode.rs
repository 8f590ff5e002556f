//! Decodes bytes to planes with libjpeg-turbo, and holds the memory that it decodes into.

use turbojpeg::{Colorspace, DecompressHeader, Decompressor, PixelFormat, ScalingFactor, Subsamp};

use crate::colour::Planes;
use crate::error::ImageError;
use crate::resample::{Plane, STRIDE};
use crate::taps::Axis;

/// The reduced sizes to decode at, smallest first. libjpeg-turbo has no vector instructions for its other sizes (7/8
/// to 3/8): 5/8 takes longer than the full size.
const REDUCED: [ScalingFactor; 3] = [ScalingFactor::ONE_EIGHTH, ScalingFactor::ONE_QUARTER, ScalingFactor::ONE_HALF];

/// The maximum number of scans, more than any encoder writes. Each scan costs a pass over the whole image, and a
/// malicious file may have thousands.
const MAX_SCANS: u32 = 500;

/// The memory that images are decoded into.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    /// The planes, back to back.
    planes: Vec<u8>,
    /// The pixels of images that cannot be decoded to planes.
    pixels: Vec<u8>,
}

/// A decoded image.
#[derive(Debug)]
pub(crate) struct Picture<'a> {
    pub(crate) colours: Planes,
    /// The first plane, red or brightness, and the other two, which a grey image does not have.
    pub(crate) first: Plane<'a>,
    pub(crate) others: Option<[Plane<'a>; 2]>,
    /// The mapping of the first plane, and of the other two, to the target: `[rows, columns]`.
    pub(crate) axes: [[Axis; 2]; 2],
}

/// The target size, and the limits on decoding.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) height: usize,
    pub(crate) width: usize,
    pub(crate) reduced: bool,
    pub(crate) max_pixels: usize,
}

impl Decoder {
    /// Decodes a JPEG. Uses a reduced size if that is allowed and still at least as large as the target.
    pub(crate) fn decode(&mut self, bytes: &[u8], wanted: Wanted) -> Result<Picture<'_>, ImageError> {
        if !bytes.starts_with(b"\xff\xd8") {
            return Err(ImageError::not_jpeg(bytes));
        }
        // Each image gets a new decompressor: a reused one would apply the tables of the previous image to images
        // without tables, and the output must not depend on earlier images.
        let mut turbo = Decompressor::new().map_err(|error| data(bytes, error))?;
        turbo.set_scan_limit(MAX_SCANS).map_err(|error| data(bytes, error))?;
        let header = turbo.read_header(bytes).map_err(|error| data(bytes, error))?;
        let DecompressHeader { width, height, subsamp, colorspace, is_lossless, .. } = header;
        if width.saturating_mul(height) > wanted.max_pixels {
            return Err(ImageError::TooLarge { width, height, limit: wanted.max_pixels });
        }
        let enough =
            |factor: &&ScalingFactor| factor.scale(width) >= wanted.width && factor.scale(height) >= wanted.height;
        let reduced = REDUCED.iter().find(enough).filter(|_| wanted.reduced && !is_lossless);
        let factor = reduced.copied().unwrap_or(ScalingFactor::ONE);
        turbo.set_scaling_factor(factor).map_err(|error| data(bytes, error))?;
        let scaled = header.scaled(factor);

        let planar = matches!(colorspace, Colorspace::YCbCr | Colorspace::Gray) && subsamp != Subsamp::Unknown;
        let (colours, subsamp) =
            if planar && !is_lossless { (Planes::YCbCr, subsamp) } else { (Planes::Rgb, Subsamp::None) };
        let layout =
            turbojpeg::YuvImage { pixels: (), width: scaled.width, align: STRIDE, height: scaled.height, subsamp };
        let (first, other) = (layout.y_width() * layout.y_height(), layout.uv_width() * layout.uv_height());
        let others = if subsamp == Subsamp::Gray { 0 } else { 2 * other };
        let planes = room(&mut self.planes, first + others)?;
        if colours == Planes::YCbCr {
            let turbojpeg::YuvImage { width, align, height, subsamp, .. } = layout;
            let image = turbojpeg::YuvImage { pixels: &mut planes[..], width, align, height, subsamp };
            turbo.decompress_to_yuv(bytes, image).map_err(|error| data(bytes, error))?;
        } else {
            let cmyk = matches!(colorspace, Colorspace::CMYK | Colorspace::YCCK);
            let format = if cmyk { PixelFormat::CMYK } else { PixelFormat::RGB };
            let pitch = scaled.width * format.size();
            let pixels = room(&mut self.pixels, pitch * scaled.height)?;
            let image =
                turbojpeg::Image { pixels: &mut pixels[..], width: scaled.width, pitch, height: scaled.height, format };
            turbo.decompress(bytes, image).map_err(|error| data(bytes, error))?;
            for (y, row) in pixels.chunks_exact(pitch).enumerate() {
                for (x, pixel) in row.chunks_exact(format.size()).enumerate() {
                    for (channel, value) in rgb(pixel).into_iter().enumerate() {
                        planes[channel * first + y * layout.y_width() + x] = value;
                    }
                }
            }
        }

        let planes = &self.planes[..first + others];
        let (y, rest) = planes.split_at(first);
        let others = (others > 0).then(|| {
            let stride = layout.uv_width();
            [Plane { samples: &rest[..other], stride }, Plane { samples: &rest[other..], stride }]
        });
        let axes = |per_row: usize, per_column: usize| {
            let axis = |size: usize, per: usize, out| {
                let span = (size * factor.num()) as f64 / (factor.denom() * per) as f64;
                Axis { samples: factor.scale(size).div_ceil(per), span, out }
            };
            [axis(height, per_column, wanted.height), axis(width, per_row, wanted.width)]
        };
        Ok(Picture {
            colours,
            first: Plane { samples: y, stride: layout.y_width() },
            others,
            axes: [axes(1, 1), axes(subsamp.width(), subsamp.height())],
        })
    }
}

/// Returns the colour of a pixel. Four numbers are cyan, magenta, yellow and black, inverted as Adobe's programs
/// write them.
fn rgb(pixel: &[u8]) -> [u8; 3] {
    match *pixel {
        [c, m, y, k] => [c, m, y].map(|ink| ((u32::from(ink) * u32::from(k) + 127) / 255) as u8),
        _ => [pixel[0], pixel[1], pixel[2]],
    }
}

/// Returns the first `len` bytes of `memory`, which grows if necessary.
fn room(memory: &mut Vec<u8>, len: usize) -> Result<&mut [u8], ImageError> {
    if memory.len() < len {
        memory.try_reserve_exact(len - memory.len()).map_err(|_| ImageError::Memory { bytes: len })?;
        memory.resize(len, 0);
    }
    Ok(&mut memory[..len])
}

/// Creates the error for these bytes, with the decoder's message.
#[cold]
fn data(bytes: &[u8], error: turbojpeg::Error) -> ImageError {
    let message = match error {
        // If a file has tables but no image, the sizes in its header are -1.
        turbojpeg::Error::IntegerOverflow(_) => "it contains no image".to_owned(),
        turbojpeg::Error::TurboJpegError(message) => message,
        other => other.to_string(),
    };
    ImageError::Data { len: bytes.len(), message }
}
