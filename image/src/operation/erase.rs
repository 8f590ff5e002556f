//! Erasing: replaces a rectangle of a picture.

use slotline::rng::SampleRng;
use slotline::rng::rand_core::Rng;

use super::Pixels;
use crate::paint::Layout;

/// The replacement for the pixels of a rectangle.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Erasing {
    /// One value for each channel, from 0 to 255, or after
    /// [`Normalize`](crate::transform::Normalize) in normalised units.
    Value([f32; 3]),
    /// Independent random numbers of the standard normal distribution, generated from this seed.
    Noise(u64),
}

/// Replaces a rectangle of a picture of bytes.
pub(super) fn bytes(pixels: &mut Pixels<'_>, at: [usize; 2], size: [usize; 2], value: Erasing) {
    let (area, whole) = (pixels.area(), pixels.size);
    erase(&mut pixels.planes[..3 * area], Layout::Chw, whole, at, size, value, |number| number as u8);
}

/// Replaces a rectangle of a picture whose size is `whole`.
pub(crate) fn erase<T: Copy>(
    out: &mut [T],
    layout: Layout,
    [height, width]: [usize; 2],
    [top, left]: [usize; 2],
    [rows, columns]: [usize; 2],
    value: Erasing,
    convert: impl Fn(f32) -> T,
) {
    let seed = if let Erasing::Noise(seed) = value { seed } else { 0 };
    let mut noise = Noise { rng: SampleRng::new(seed, 0, 0), second: None };
    for c in 0..3 {
        for y in top..top + rows {
            for x in left..left + columns {
                let number = match value {
                    Erasing::Value(values) => values[c],
                    Erasing::Noise(_) => noise.next(),
                };
                out[layout.place([height, width], c, y, x)] = convert(number);
            }
        }
    }
}

/// A generator of numbers of the standard normal distribution, by the method of Box and Muller.
struct Noise {
    rng: SampleRng,
    second: Option<f32>,
}

impl Noise {
    fn next(&mut self) -> f32 {
        if let Some(second) = self.second.take() {
            return second;
        }
        let bits = self.rng.next_u64();
        // The first number is above 0 and at most 1.
        let (first, turn) = ((bits >> 32) + 1, bits as u32);
        let radius = (-2.0 * (first as f64 / 4_294_967_296.0).ln()).sqrt();
        let (sin, cos) = (f64::from(turn) / 4_294_967_296.0 * std::f64::consts::TAU).sin_cos();
        self.second = Some((radius * sin) as f32);
        (radius * cos) as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_of_the_standard_normal_distribution() {
        let mut noise = Noise { rng: SampleRng::new(3, 0, 0), second: None };
        let numbers: Vec<f64> = (0..100_000).map(|_| f64::from(noise.next())).collect();
        let mean = |power: i32| numbers.iter().map(|number| number.powi(power)).sum::<f64>() / 100_000.0;
        assert!(mean(1).abs() < 0.02 && (mean(2) - 1.0).abs() < 0.03 && mean(3).abs() < 0.06);
        assert!((mean(4) - 3.0).abs() < 0.2);
    }
}
