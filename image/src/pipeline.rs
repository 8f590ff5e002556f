//! What becomes of pictures: their size, their numbers, and how they may be decoded.

use std::cell::RefCell;

use crate::colour::{Channel, Pixel, Planes};
use crate::decode::{Decoder, Picture, Wanted};
use crate::error::ImageError;
#[cfg(target_arch = "x86_64")]
use crate::lanes::Avx2;
use crate::lanes::Lanes;
use crate::resample::{HALF, Rows};
use crate::taps::{LANES, Tables};

/// The most pixels of a JPEG, unless [`Pipeline::max_pixels`] says otherwise; PIL refuses larger ones, too.
const MAX_PIXELS: usize = 178_956_970;

/// What becomes of each JPEG: decoded, resized to one size, normalised, channel after channel.
///
/// Resizing is bilinear with antialiasing, as PIL's and torchvision's (`antialias=True`), to exactly the target's size:
/// the picture is not cropped, and its proportions become the target's.
///
/// [`new`](Pipeline::new) makes `f32` between 0 and 1 unless [normalised](Pipeline::normalize); [`bytes`](Pipeline::bytes)
/// makes `u8`.
#[derive(Clone, Debug)]
pub struct Pipeline<T = f32> {
    wanted: Wanted,
    /// Of pictures in brightness and differences, and in red, green and blue.
    channels: [[Channel; 3]; 2],
    element: std::marker::PhantomData<fn() -> T>,
}

impl Pipeline {
    /// Pictures of `height × width` pixels as `f32`, from 0 for black to 1.
    ///
    /// # Errors
    ///
    /// If a side is 0 or above 65,535.
    pub fn new(height: usize, width: usize) -> Result<Self, ImageError> {
        Self::with(height, width, [0.0; 3], [1.0; 3])
    }

    /// Takes `mean` from the channels and divides them by `std`, in units of the brightest value, as torchvision's
    /// `Normalize` does.
    ///
    /// # Errors
    ///
    /// If a mean isn't finite, or a standard deviation isn't above 0 and finite.
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
    /// Pictures of `height × width` pixels as bytes, rounded, from 0 for black to 255.
    ///
    /// # Errors
    ///
    /// If a side is 0 or above 65,535.
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

    /// Whether pictures may be decoded at a half, a quarter or an eighth of their size where that is still at least
    /// the target's in both directions (default: they may). It is faster, and the result a little sharper, as the
    /// decoder's reduction is a better filter than resizing has; see the [module](crate#speed-and-exactness).
    pub fn reduced(mut self, reduced: bool) -> Self {
        self.wanted.reduced = reduced;
        self
    }

    /// The most pixels a JPEG may have (default: 178,956,970, which is PIL's limit); a small file can claim to be very
    /// large.
    pub fn max_pixels(mut self, max_pixels: usize) -> Self {
        self.wanted.max_pixels = max_pixels;
        self
    }

    /// The shape of a picture: `[3, height, width]`.
    pub fn shape(&self) -> [usize; 3] {
        [3, self.wanted.height, self.wanted.width]
    }

    /// Writes the picture that `jpeg` holds into `out`, in C order of its [`shape`](Self::shape): all red, all green, all
    /// blue values.
    ///
    /// # Errors
    ///
    /// If the bytes aren't a whole, undamaged JPEG, or it is too large; see [`ImageError`]. `out` may be overwritten in
    /// part then.
    ///
    /// # Panics
    ///
    /// If `out` isn't as long as the shape says.
    pub fn decode(&self, jpeg: &[u8], out: &mut [T]) -> Result<(), ImageError> {
        let [channels, height, width] = self.shape();
        assert_eq!(out.len(), channels * height * width, "a picture has shape {:?}", self.shape());
        T::decode(self, jpeg, out)
    }

    /// [`decode`](Self::decode), for an `out` of the right length. Inlined into a function for each element type, so that it is
    /// compiled with this crate and not, by its own profile, with whatever crate uses it.
    #[inline(always)]
    pub(crate) fn decode_here(&self, jpeg: &[u8], out: &mut [T]) -> Result<(), ImageError> {
        SCRATCH.with_borrow_mut(|scratch| {
            let Scratch { decoder, canvas } = scratch;
            let picture = decoder.decode(jpeg, self.wanted)?;
            let channels = &self.channels[usize::from(picture.colours == Planes::Rgb)];
            #[cfg(target_arch = "x86_64")]
            if is_x86_feature_detected!("avx2") {
                // SAFETY: the CPU has what this function is compiled for.
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

/// What a thread keeps from one picture to the next.
#[derive(Debug, Default)]
struct Scratch {
    decoder: Decoder,
    canvas: Canvas,
}

/// Between planes and numbers.
#[derive(Debug, Default)]
struct Canvas {
    /// Of the first plane and the others: down and across.
    tables: [[Tables; 2]; 2],
    /// Of each plane.
    rows: [Rows; 3],
}

impl Canvas {
    /// [`paint`](Self::paint), compiled for CPUs with vectors of 32 bytes. It gives the same numbers.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn paint_avx2<T: Pixel>(&mut self, picture: &Picture<'_>, channels: &[Channel; 3], out: &mut [T]) {
        self.paint::<Avx2, T>(picture, channels, out);
    }

    /// Brings a picture to the size of the target and writes its numbers, 16 rows at a time.
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
        let mut outs = [0; 3].map(|_| rest.split_off_mut(..height * width).expect("three channels of that size"));
        let planes = || std::iter::once(&picture.first).chain(picture.others.iter().flatten());
        // A grey picture's differences stay what they are here: none.
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
                        // Mostly it is a whole one, whose length the compiler then knows.
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

/// The nearest of the element type, for as many numbers as there is room.
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
                // SAFETY: the CPU was asked.
                unsafe { Canvas::default().paint_avx2(&picture, &channels, &mut other) };
                assert!(one.iter().zip(&other).all(|(one, other)| one.to_bits() == other.to_bits()));
            }
        }
    }
}
