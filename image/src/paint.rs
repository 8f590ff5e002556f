//! Resizes decoded planes to the size of the result, and converts them to the result's numbers, 16
//! rows at a time.

use crate::axis_map::AxisMap;
use crate::channel::Channel;
use crate::decode::{OtherChannels, Picture};
use crate::lanes::Lanes;
#[cfg(target_arch = "x86_64")]
use crate::lanes::{Avx2, has_avx2};
use crate::number::Number;
use crate::resample::{Block, HALF, Rows};
use crate::taps::{Axis, LANES, Tables};

/// The resized rows, and the tables of resizing. A thread keeps them.
#[derive(Debug, Default)]
pub(crate) struct Canvas {
    /// The tables of the first plane and of the other two, each for rows and for columns.
    tables: [[Tables; 2]; 2],
    /// The resized rows of each plane.
    rows: [Rows; 3],
}

/// The order of the result's dimensions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Channels, height, width.
    #[default]
    Chw,
    /// Height, width, channels.
    Hwc,
}

impl Layout {
    /// Returns the index of a number in a picture of this size.
    #[inline(always)]
    pub(crate) fn place(self, [height, width]: [usize; 2], channel: usize, y: usize, x: usize) -> usize {
        match self {
            Self::Chw => (channel * height + y) * width + x,
            Self::Hwc => (y * width + x) * 3 + channel,
        }
    }
}

/// The description of the result: the maps of rows and columns, the channels, and the layout.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'a> {
    pub(crate) places: [AxisMap; 2],
    pub(crate) channels: &'a [Channel; 3],
    pub(crate) layout: Layout,
    /// The value of constant padding in each channel, as a fraction of full brightness.
    pub(crate) fill: [f32; 3],
}

impl Canvas {
    /// Resizes a picture and writes the numbers of the result. They are the same on all CPUs.
    #[inline(always)]
    pub(crate) fn paint<T: Number>(&mut self, picture: &Picture<'_>, target: Target<'_>, out: &mut [T]) {
        #[cfg(target_arch = "x86_64")]
        if has_avx2() {
            // SAFETY: the CPU supports AVX2 and F16C, as checked above.
            unsafe { self.paint_avx2(picture, target, out) };
            return;
        }
        self.paint_with::<[u16; LANES], T>(picture, target, out);
    }

    /// Like [`paint_with`](Self::paint_with), but compiled for CPUs with 32-byte vectors.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,f16c")]
    fn paint_avx2<T: Number>(&mut self, picture: &Picture<'_>, target: Target<'_>, out: &mut [T]) {
        self.paint_with::<Avx2, T>(picture, target, out);
    }

    #[inline(always)]
    fn paint_with<L: Lanes, T: Number>(&mut self, picture: &Picture<'_>, target: Target<'_>, out: &mut [T]) {
        let Self { tables: [first, others], rows } = self;
        let [of_first, of_others] = picture
            .frames
            .map(|[down, across]| [Axis::new(down, target.places[0]), Axis::new(across, target.places[1])]);
        let (height, width) = (of_first[0].out(), of_first[1].out());
        let [down, across] = first;
        let first = [down.of(of_first[0]), across.of(of_first[1])];
        let [down, across] = others;
        let others = match picture.others {
            OtherChannels::Planes(_) => [down.of(of_others[0]), across.of(of_others[1])],
            _ => first,
        };
        let taps = [first, others, others];
        let more = match &picture.others {
            OtherChannels::Planes(planes) => &planes[..],
            _ => &[],
        };
        let packed = matches!(picture.others, OtherChannels::Packed);
        // For a grey picture, the colour differences keep this initial value, which means no
        // difference.
        let mut blocks: [[Block; 2]; 3] = [[[[128 << 8; HALF]; LANES]; 2]; 3];
        for y in (0..height).step_by(LANES) {
            L::shrink(&mut rows[0], picture.first, y, taps[0][0], taps[0][1]);
            for (i, plane) in more.iter().enumerate() {
                L::shrink(&mut rows[i + 1], *plane, y, taps[1][0], taps[1][1]);
            }
            for x in (0..width).step_by(LANES) {
                for half in [0, 1] {
                    let x = x + half * HALF;
                    let step = picture.first.step;
                    blocks[0][half] = L::block(&rows[0], x, taps[0][1], step, 0);
                    for channel in 1..3 {
                        if packed {
                            blocks[channel][half] = L::block(&rows[0], x, taps[0][1], step, channel);
                        } else if !more.is_empty() {
                            blocks[channel][half] = L::block(&rows[channel], x, taps[1][1], 1, 0);
                        }
                    }
                }
                let len = LANES.min(width - x);
                for i in 0..LANES.min(height - y) {
                    let at = (y + i) * width + x;
                    for (c, channel) in target.channels.iter().enumerate() {
                        let numbers: [[T; HALF]; 2] = std::array::from_fn(|half| {
                            let [a, b, c] = &blocks;
                            T::nearest::<L>(L::channel([&a[half][i], &b[half][i], &c[half][i]], channel))
                        });
                        let numbers = numbers.as_flattened();
                        match target.layout {
                            Layout::Chw => {
                                let out = &mut out[c * height * width + at..][..len];
                                // Usually there are 16 numbers; with a constant length the compiler
                                // vectorises the loop.
                                if let Ok(out) = <&mut [T; LANES]>::try_from(&mut *out) {
                                    out.copy_from_slice(numbers);
                                } else {
                                    out.copy_from_slice(&numbers[..len]);
                                }
                            }
                            Layout::Hwc => {
                                let pixels = out[3 * at..][..3 * len].as_chunks_mut::<3>().0;
                                pixels.iter_mut().zip(numbers).for_each(|(pixel, &number)| pixel[c] = number);
                            }
                        }
                    }
                }
            }
        }
        fill::<L, T>(target, out);
    }
}

/// Writes the colour of constant padding.
#[inline(always)]
pub(crate) fn fill<L: Lanes, T: Number>(target: Target<'_>, out: &mut [T]) {
    let [height, width] = target.places.map(|places| places.out);
    let [[top, bottom], [left, right]] = target.places.map(|places| places.content());
    if (top, bottom, left, right) == (0, height, 0, width) {
        return;
    }
    for c in 0..3 {
        let value = target.channels[c].of_colour(target.fill[c]);
        let [value, ..] = T::nearest::<L>([value; 8]);
        for y in 0..height {
            let (empty, sides) = if (top..bottom).contains(&y) { (0..left, right..width) } else { (0..width, 0..0) };
            for x in empty.chain(sides) {
                out[target.layout.place([height, width], c, y, x)] = value;
            }
        }
    }
}

/// Converts planes of red, green and blue bytes, which already have the result's size, to the
/// result's numbers.
#[inline(always)]
pub(crate) fn convert<T: Number>(planes: &[u8], area: usize, channels: &[Channel; 3], layout: Layout, out: &mut [T]) {
    #[cfg(target_arch = "x86_64")]
    if has_avx2() {
        // SAFETY: the CPU supports AVX2 and F16C, as checked above.
        unsafe { convert_avx2(planes, area, channels, layout, out) };
        return;
    }
    convert_with::<[u16; LANES], T>(planes, area, channels, layout, out);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,f16c")]
fn convert_avx2<T: Number>(planes: &[u8], area: usize, channels: &[Channel; 3], layout: Layout, out: &mut [T]) {
    convert_with::<Avx2, T>(planes, area, channels, layout, out);
}

#[inline(always)]
fn convert_with<L: Lanes, T: Number>(
    planes: &[u8],
    area: usize,
    channels: &[Channel; 3],
    layout: Layout,
    out: &mut [T],
) {
    for (c, (plane, channel)) in planes.chunks_exact(area).zip(channels).enumerate() {
        let (factor, offset) = (channel.factors[c] * 256.0, channel.offset);
        let numbers = |bytes: [u8; HALF]| T::nearest::<L>(bytes.map(|byte| f32::from(byte) * factor + offset));
        let (eights, rest) = plane.as_chunks::<HALF>();
        let mut end = [0; HALF];
        end[..rest.len()].copy_from_slice(rest);
        match layout {
            Layout::Chw => {
                let (out, out_rest) = out[c * area..][..area].as_chunks_mut::<HALF>();
                out.iter_mut().zip(eights).for_each(|(out, &eight)| *out = numbers(eight));
                out_rest.copy_from_slice(&numbers(end)[..rest.len()]);
            }
            Layout::Hwc => {
                let pixels = out.as_chunks_mut::<3>().0;
                for (pixels, &eight) in pixels.chunks_mut(HALF).zip(eights.iter().chain([&end])) {
                    pixels.iter_mut().zip(numbers(eight)).for_each(|(pixel, number)| pixel[c] = number);
                }
            }
        }
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use crate::channel::Planes;
    use crate::decode::Frame;
    use crate::resample::{Plane, STRIDE};

    #[test]
    fn every_cpu_gets_the_same_numbers() {
        if !has_avx2() {
            return;
        }
        let channels = Channel::all(Planes::YCbCr, [0.4, 0.5, 0.6], [0.2, 0.3, 0.25]);
        for (height, width, rows, columns) in [(1, 1, 3, 2), (50, 70, 33, 20), (375, 500, 224, 224), (900, 20, 40, 45)]
        {
            let samples: Vec<u8> = (0..height * width * 4 + STRIDE).map(|i| (i * i / 11 + i * 7) as u8).collect();
            let plane = |step| Plane { samples: &samples, stride: width * step, step };
            let places = |len, size| {
                let mut places = AxisMap::all(len);
                places.resize(size);
                places.mirror();
                places
            };
            let places = [places(height, rows), places(width, columns)];
            for (step, others) in [
                (1, OtherChannels::None),
                (1, OtherChannels::Planes([plane(1), plane(1)])),
                (2, OtherChannels::None),
                (3, OtherChannels::Packed),
                (4, OtherChannels::Packed),
            ] {
                let frames = [Frame::same(height), Frame::same(width)];
                let picture = Picture { colours: Planes::YCbCr, first: plane(step), others, frames: [frames; 2] };
                for layout in [Layout::Chw, Layout::Hwc] {
                    let target = Target { places, channels: &channels, layout, fill: [0.0; 3] };
                    let (mut one, mut other) = (vec![0.0_f32; 3 * rows * columns], vec![1.0; 3 * rows * columns]);
                    Canvas::default().paint_with::<[u16; LANES], f32>(&picture, target, &mut one);
                    // SAFETY: the CPU supports AVX2 and F16C, as checked above.
                    unsafe { Canvas::default().paint_avx2(&picture, target, &mut other) };
                    assert!(one.iter().zip(&other).all(|(one, other)| one.to_bits() == other.to_bits()));
                    let channels = &Channel::all(Planes::YCbCr, [0.0; 3], [1.0 / 255.0; 3]);
                    let target = Target { channels, ..target };
                    let (mut one, mut other) = (vec![0_u8; 3 * rows * columns], vec![1; 3 * rows * columns]);
                    Canvas::default().paint_with::<[u16; LANES], u8>(&picture, target, &mut one);
                    // SAFETY: the CPU supports AVX2 and F16C, as checked above.
                    unsafe { Canvas::default().paint_avx2(&picture, target, &mut other) };
                    assert_eq!(one, other);
                }
            }
        }
    }
}
