//! The pipeline: the size and numbers of decoded images, and how they may be decoded.

use std::cell::RefCell;

use crate::colour::{Channel, Pixel, Planes};
use crate::decode::{Decoder, Picture, Wanted};
use crate::error::ImageError;
#[cfg(target_arch = "x86_64")]
use crate::lanes::Avx2;
use crate::lanes::Lanes;
use crate::resample::{HALF, Rows};
use crate::taps::{LANES, Tables};

/// The default maximum number of pixels of a JPEG, see [`Pipeline::max_pixels`]. PIL rejects larger images too.
const MAX_PIXELS: usize = 178_956_970;

/// Decodes JPEGs, resizes them to one size, normalises them, and stores them channel by channel.
///
/// Resizing is bilinear with antialiasing, as in PIL and torchvision (`antialias=True`), to exactly the target's
/// size. The image is not cropped, and is stretched to the target's proportions.
///
/// [`new`](Pipeline::new) produces `f32` values between 0 and 1 unless [normalised](Pipeline::normalize);
/// [`bytes`](Pipeline::bytes) produces `u8`.
#[derive(Clone, Debug)]
pub struct Pipeline<T = f32> {
    wanted: Wanted,
    /// For images in brightness and colour differences, and for images in red, green and blue.
    channels: [[Channel; 3]; 2],
    element: std::marker::PhantomData<fn() -> T>,
}

impl Pipeline {
    /// Creates a pipeline for images of `height × width` pixels as `f32`, from 0 for black to 1.
    ///
    /// # Errors
    ///
    /// Fails if a side is 0 or above 65,535.
    pub fn new(height: usize, width: usize) -> Result<Self, ImageError> {
        Self::with(height, width, [0.0; 3], [1.0; 3])
    }

    /// Subtracts `mean` from the channels and divides them by `std`, both in units of the brightest value, as
    /// torchvision's `Normalize` does.
    ///
    /// # Errors
    ///
    /// Fails if a mean is not finite, or if a standard deviation is not above 0 and finite.
    pub fn normalize(mut self, mean: [f32; 3], std: [f32; 3]) -> Result<Self, ImageError> {
        for (channel, (mean, std)) in mean.into_iter().zip(std).enumerate() {
            if !mean.is_finite() || !std.is_normal() || std < 0.0 {
                return Err(ImageError::Normalisation { channel, mean: mean.to_string(), std: std.to_string() });
            }
        }
        self.channels = [Planes::YCbCr, Planes::Rgb].map(|planes| Channel::all(planes, mean, std));
        Ok(self)
    }
}

impl Pipeline<u8> {
    /// Creates a pipeline for images of `height × width` pixels as rounded bytes, from 0 for black to 255.
    ///
    /// # Errors
    ///
    /// Fails if a side is 0 or above 65,535.
    pub fn bytes(height: usize, width: usize) -> Result<Self, ImageError> {
        Self::with(height, width, [0.0; 3], [1.0 / 255.0; 3])
    }
}

impl<T: Pixel> Pipeline<T> {
    fn with(height: usize, width: usize, mean: [f32; 3], std: [f32; 3]) -> Result<Self, ImageError> {
        let sides = 1..=65_535;
        if !sides.contains(&height) || !sides.contains(&width) {
            return Err(ImageError::Target { height, width });
        }
        Ok(Self {
            wanted: Wanted { height, width, reduced: true, max_pixels: MAX_PIXELS },
            channels: [Planes::YCbCr, Planes::Rgb].map(|planes| Channel::all(planes, mean, std)),
            element: std::marker::PhantomData,
        })
    }

    /// Sets whether images may be decoded at a half, a quarter or an eighth of their size if that is still at least
    /// the target's size in both directions (default: `true`). This is faster, and the result is a little sharper,
    /// since the decoder's reduction is a better filter than resizing; see the [crate
    /// documentation](crate#speed-and-exactness).
    pub fn reduced(mut self, reduced: bool) -> Self {
        self.wanted.reduced = reduced;
        self
    }

    /// Sets the maximum number of pixels of a JPEG (default: 178,956,970, PIL's limit). It protects against small
    /// files that claim to be very large.
    pub fn max_pixels(mut self, max_pixels: usize) -> Self {
        self.wanted.max_pixels = max_pixels;
        self
    }

    /// Returns the shape of a decoded image: `[3, height, width]`.
    pub fn shape(&self) -> [usize; 3] {
        [3, self.wanted.height, self.wanted.width]
    }

    /// Decodes the image in `jpeg` into `out`, in C order of its [`shape`](Self::shape): all red, then all green,
    /// then all blue values.
    ///
    /// # Errors
    ///
    /// Fails if the bytes are not a whole, undamaged JPEG, or if the image is too large; see [`ImageError`]. `out`
    /// may then be partially overwritten.
    ///
    /// # Panics
    ///
    /// Panics if the length of `out` does not match the shape.
    pub fn decode(&self, jpeg: &[u8], out: &mut [T]) -> Result<(), ImageError> {
        let [channels, height, width] = self.shape();
        assert_eq!(out.len(), channels * height * width, "an image has shape {:?}", self.shape());
        T::decode(self, jpeg, out)
    }

    /// Implements [`decode`](Self::decode) for an `out` of the right length. It is inlined into a function for each
    /// element type, so that it is compiled in this crate, and not in the crate that uses it, with that crate's
    /// profile.
    #[inline(always)]
    pub(crate) fn decode_here(&self, jpeg: &[u8], out: &mut [T]) -> Result<(), ImageError> {
        SCRATCH.with_borrow_mut(|scratch| {
            let Scratch { decoder, canvas } = scratch;
            let picture = decoder.decode(jpeg, self.wanted)?;
            let channels = &self.channels[usize::from(picture.colours == Planes::Rgb)];
            #[cfg(target_arch = "x86_64")]
            if is_x86_feature_detected!("avx2") {
                // SAFETY: the CPU supports AVX2, as checked above.
                unsafe { canvas.paint_avx2(&picture, channels, out) };
                return Ok(());
            }
            canvas.paint::<[u16; LANES], T>(&picture, channels, out);
            Ok(())
        })
    }
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// The memory that a thread keeps from one image to the next.
#[derive(Debug, Default)]
struct Scratch {
    decoder: Decoder,
    canvas: Canvas,
}

/// The resized rows and the tables that turn planes into numbers.
#[derive(Debug, Default)]
struct Canvas {
    /// Tables of the first plane and of the other two: down and across.
    tables: [[Tables; 2]; 2],
    /// The rows of each plane.
    rows: [Rows; 3],
}

impl Canvas {
    /// Like [`paint`](Self::paint), but compiled for CPUs with 32-byte vectors. The results are the same.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn paint_avx2<T: Pixel>(&mut self, picture: &Picture<'_>, channels: &[Channel; 3], out: &mut [T]) {
        self.paint::<Avx2, T>(picture, channels, out);
    }

    /// Resizes an image to the target's size and writes its numbers, 16 rows at a time.
    #[inline(always)]
    fn paint<L: Lanes, T: Pixel>(&mut self, picture: &Picture<'_>, channels: &[Channel; 3], out: &mut [T]) {
        let Self { tables: [first, others], rows } = self;
        let mut i = 0;
        let taps = [first, others].map(|tables| {
            i += 1;
            let ([down, across], axes) = (tables, picture.axes[i - 1]);
            [down.of(axes[0]), across.of(axes[1])]
        });
        let (height, width) = (picture.axes[0][0].out, picture.axes[0][1].out);
        let mut rest = out;
        let mut outs =
            [0; 3].map(|_| rest.split_off_mut(..height * width).expect("`out` holds three channels of that size"));
        let planes = || std::iter::once(&picture.first).chain(picture.others.iter().flatten());
        // For a grey image the colour differences keep this value, which represents no difference.
        let mut blocks = [[[[128 << 8; HALF]; LANES]; 2]; 3];
        for y in (0..height).step_by(LANES) {
            for (i, (plane, rows)) in planes().zip(&mut *rows).enumerate() {
                rows.shrink::<L>(*plane, y, taps[i.min(1)][0]);
            }
            for x in (0..width).step_by(LANES) {
                for (i, (_, (blocks, rows))) in planes().zip(blocks.iter_mut().zip(&*rows)).enumerate() {
                    for (half, block) in blocks.iter_mut().enumerate() {
                        *block = rows.block::<L>(x + half * HALF, taps[i.min(1)][1]);
                    }
                }
                let len = LANES.min(width - x);
                for i in 0..LANES.min(height - y) {
                    let at = (y + i) * width + x;
                    for (channel, out) in channels.iter().zip(&mut outs) {
                        let mut numbers = [[0.0; HALF]; 2];
                        for (half, numbers) in numbers.iter_mut().enumerate() {
                            let [a, b, c] = &blocks;
                            *numbers = L::channel([&a[half][i], &b[half][i], &c[half][i]], channel);
                        }
                        let (numbers, out) = (numbers.as_flattened(), &mut out[at..][..len]);
                        // Mostly it is a whole row of lanes, so that the compiler knows the length.
                        if let Ok(out) = <&mut [T; LANES]>::try_from(&mut *out) {
                            put(numbers, out);
                        } else {
                            put(numbers, out);
                        }
                    }
                }
            }
        }
    }
}

/// Writes the nearest values of the element type, up to the length of `out`.
#[inline(always)]
fn put<T: Pixel>(numbers: &[f32], out: &mut [T]) {
    for (out, &number) in out.iter_mut().zip(numbers) {
        *out = T::nearest(number);
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use crate::resample::{Plane, STRIDE};
    use crate::taps::Axis;

    #[test]
    fn every_cpu_gets_the_same_numbers() {
        if !is_x86_feature_detected!("avx2") {
            return;
        }
        let channels = Channel::all(Planes::YCbCr, [0.4, 0.5, 0.6], [0.2, 0.3, 0.25]);
        for (height, width, rows, columns) in [(1, 1, 3, 2), (50, 70, 33, 20), (375, 500, 224, 224), (900, 20, 40, 45)]
        {
            let stride = usize::next_multiple_of(width, STRIDE);
            let samples: Vec<u8> = (0..height * stride).map(|i| (i * i / 11 + i * 7) as u8).collect();
            let plane = Plane { samples: &samples, stride };
            let axis = |samples: usize, out| Axis { samples, span: samples as f64, out };
            let axes = [axis(height, rows), axis(width, columns)];
            for others in [None, Some([plane, plane])] {
                let picture = Picture { colours: Planes::YCbCr, first: plane, others, axes: [axes, axes] };
                let (mut one, mut other) = (vec![0.0_f32; 3 * rows * columns], vec![1.0; 3 * rows * columns]);
                Canvas::default().paint::<[u16; LANES], f32>(&picture, &channels, &mut one);
                // SAFETY: the CPU supports AVX2, as checked above.
                unsafe { Canvas::default().paint_avx2(&picture, &channels, &mut other) };
                assert!(one.iter().zip(&other).all(|(one, other)| one.to_bits() == other.to_bits()));
            }
        }
    }
}
