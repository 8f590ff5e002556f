//! Operations on the neighbours of a pixel: sharpness and blur.

use super::vector::{byte, multiply_add, vectorized};
use super::{Pixels, exact};

/// Blends a picture with a smoothed copy of it. Pixels at the sides do not change.
pub(super) fn sharpness(pixels: &mut Pixels<'_>, factor: f64, exact: bool) {
    let [height, width] = pixels.size;
    if height <= 2 || width <= 2 {
        return;
    }
    let area = height * width;
    let (planes, other) = (&mut *pixels.planes, &mut *pixels.other);
    other.clear();
    other.reserve_exact(planes.len());
    other.extend_from_slice(planes);
    for (from, to) in other.chunks_exact(area).zip(planes.chunks_exact_mut(area)).take(3) {
        for y in 1..height - 1 {
            let rows = [y - 1, y, y + 1].map(|y| &from[y * width..][..width]);
            sharpen_row(rows, &mut to[y * width..][1..width - 1], factor, exact);
        }
    }
}

vectorized! {
    /// Computes a row except for its ends, from the row and the rows above and below.
    fn sharpen_row(rows: [&[u8]; 3], out: &mut [u8], factor: f64, exact: bool) {
        const BLOCK: usize = 64;

        let rest = (1.0 - factor) as f32;
        for (i, out) in out.chunks_mut(BLOCK).enumerate() {
            let [above, row, below] = rows.map(|row| &row[i * BLOCK..][..out.len() + 2]);
            let mut sums = [0_u16; BLOCK + 2];
            for (((sum, &a), &b), &c) in sums.iter_mut().zip(above).zip(row).zip(below) {
                *sum = u16::from(a) + u16::from(b) + u16::from(c);
            }
            let around = sums.iter().zip(&sums[1..]).zip(&sums[2..]);
            for ((out, ((a, b), c)), &centre) in out.iter_mut().zip(around).zip(&row[1..]) {
                // The centre has five times the weight of its neighbours. The mean is rounded to
                // nearest; there are no ties.
                let sum = a + b + c + 4 * u16::from(centre);
                let (smooth, centre) = (f32::from((2 * sum + 13) / 26), f32::from(centre));
                let mixed = if exact {
                    exact::mixed(smooth, centre, factor as f32)
                } else {
                    multiply_add::<FMA>(smooth - centre, rest, centre)
                };
                *out = byte(mixed.clamp(0.0, 255.0));
            }
        }
    }
}

/// Blurs with a Gaussian kernel. Beyond its sides, the picture is mirrored.
pub(super) fn blur(pixels: &mut Pixels<'_>, [across, down]: [usize; 2], [sigma_x, sigma_y]: [f64; 2]) {
    let [height, width] = pixels.size;
    let Pixels { planes, numbers, .. } = pixels;
    // Buffers: both kernels, a row with its mirrored ends, a row of results, and the plane between
    // the two directions.
    let padded = width + across - 1;
    let len = across + down + padded + width + height * width;
    numbers.clear();
    numbers.reserve_exact(len);
    numbers.resize(len, 0.0);
    let (across, rest) = numbers.split_at_mut(across);
    let (down, rest) = rest.split_at_mut(down);
    let (row, rest) = rest.split_at_mut(padded);
    let (sums, between) = rest.split_at_mut(width);
    kernel(sigma_x, across);
    kernel(sigma_y, down);
    for plane in planes.chunks_exact_mut(height * width).take(3) {
        for (from, to) in plane.chunks_exact(width).zip(between.chunks_exact_mut(width)) {
            for (i, value) in row.iter_mut().enumerate() {
                *value = f32::from(from[mirrored(i, across.len() / 2, width)]);
            }
            weigh(across.iter().enumerate().map(|(i, &weight)| (&row[i..][..width], weight)), to);
        }
        for (y, to) in plane.chunks_exact_mut(width).enumerate() {
            let row = |i: usize| &between[mirrored(y + i, down.len() / 2, height) * width..][..width];
            weigh(down.iter().enumerate().map(|(i, &weight)| (row(i), weight)), sums);
            rounded(sums, to);
        }
    }
}

/// Returns which of `len` pixels is at position `i - before`, if the pixels are mirrored at both
/// ends.
fn mirrored(i: usize, before: usize, len: usize) -> usize {
    let at = i.abs_diff(before);
    if at < len { at } else { 2 * (len - 1) - at }
}

/// Computes the weights of a Gaussian kernel, whose sum is 1.
fn kernel(sigma: f64, weights: &mut [f32]) {
    let half = (weights.len() / 2) as f64;
    let weight = |i: usize| (-((i as f64 - half) / sigma).powi(2) / 2.0).exp();
    let sum: f64 = (0..weights.len()).map(weight).sum();
    weights.iter_mut().enumerate().for_each(|(i, out)| *out = (weight(i) / sum) as f32);
}

/// Adds up weighted rows.
fn weigh<'a>(rows: impl Iterator<Item = (&'a [f32], f32)>, sums: &mut [f32]) {
    sums.fill(0.0);
    for (row, weight) in rows {
        add(row, weight, sums);
    }
}

vectorized! {
    fn add(row: &[f32], weight: f32, sums: &mut [f32]) {
        sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += value * weight);
    }
}

vectorized! {
    fn rounded(numbers: &[f32], out: &mut [u8]) {
        out.iter_mut().zip(numbers).for_each(|(out, number)| *out = byte((number + 0.5).min(255.0)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_sums_up_to_one_and_sides_are_mirrored() {
        let mut kernel = [0.0; 5];
        super::kernel(1.5, &mut kernel);
        assert!((kernel.iter().sum::<f32>() - 1.0).abs() < 1e-6);
        assert_eq!((kernel[0], kernel[1]), (kernel[4], kernel[3]));
        let places: Vec<_> = (0..8).map(|i| mirrored(i, 2, 4)).collect();
        assert_eq!(places, [2, 1, 0, 1, 2, 3, 2, 1]);
    }
}
