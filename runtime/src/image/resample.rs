//! Making planes smaller (or larger): 16 rows of the target at a time, which stay in the first cache.
//!
//! Down the columns first, where neighbours in memory are neighbours of a vector. Then the 16 rows are turned over, so
//! that the other direction has neighbours, too: the same sample of 16 rows. Then they are turned back. Numbers are
//! fractions of 256 in 16 bits and all arithmetic is of integers, so that every CPU gets the same.

use super::taps::{LANES, Taps};
use super::transpose::transpose;

/// What 16 rows have in one column.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(32))]
pub(super) struct Column([u16; LANES]);

/// One plane of a picture.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plane<'a> {
    pub(super) samples: &'a [u8],
    /// From one row to the next; a multiple of [`LANES`].
    pub(super) stride: usize,
}

/// Room for 16 rows on their way through.
#[derive(Debug, Default)]
pub(super) struct Resampler {
    columns: Vec<Column>,
}

impl Resampler {
    /// Writes rows `y` to `y + 16` of the target, in fractions of 256, into `rows`, which has as many of `across`'s
    /// padded width.
    #[inline(always)]
    pub(super) fn rows(&mut self, plane: Plane<'_>, y: usize, down: &Taps, across: &Taps, rows: &mut [u16]) {
        let Plane { samples, stride } = plane;
        if self.columns.len() < stride {
            self.columns.resize(stride, Column::default());
        }
        let columns = &mut self.columns[..stride];
        for half in [0, LANES / 2] {
            for (x, columns) in columns.chunks_exact_mut(LANES).enumerate() {
                let mut sums = [Sum::new(down.per); LANES / 2];
                for (i, sum) in sums.iter_mut().enumerate() {
                    let (first, weights) = down.of(y + half + i);
                    let mut at = first * stride + x * LANES;
                    for &weight in weights {
                        let samples: &[u8; LANES] = samples[at..].first_chunk().expect("strides are whole vectors");
                        sum.add(samples.map(|sample| u16::from(sample) << 8), weight);
                        at += stride;
                    }
                }
                let (left, right) = columns.split_at_mut(LANES / 2);
                for (columns, turned) in [(left, turn(&sums, 0)), (right, turn(&sums, LANES / 2))] {
                    for (column, numbers) in columns.iter_mut().zip(turned) {
                        column.0[half..][..LANES / 2].copy_from_slice(&numbers);
                    }
                }
            }
        }
        let width = across.first.len();
        for x in (0..width).step_by(LANES / 2) {
            let mut sums = [Sum::new(across.per); LANES / 2];
            for (i, sum) in sums.iter_mut().enumerate() {
                let (first, weights) = across.of(x + i);
                for (column, &weight) in columns[first..][..weights.len()].iter().zip(weights) {
                    sum.add(column.0, weight);
                }
            }
            for half in [0, LANES / 2] {
                for (i, numbers) in turn(&sums, half).into_iter().enumerate() {
                    rows[(half + i) * width + x..][..LANES / 2].copy_from_slice(&numbers);
                }
            }
        }
    }
}

/// Weighted sums of 16 numbers each.
#[derive(Clone, Copy)]
struct Sum([u16; LANES]);

impl Sum {
    /// The sum of nothing, before `count` are added: products are cut off, which takes half of the last bit from each.
    #[inline(always)]
    fn new(count: usize) -> Self {
        Self([(count / 2) as u16; LANES])
    }

    /// Adds these, of which `weight` counts in 65,536.
    #[inline(always)]
    fn add(&mut self, numbers: [u16; LANES], weight: u16) {
        for (sum, number) in self.0.iter_mut().zip(numbers) {
            *sum = sum.saturating_add(((u32::from(number) * u32::from(weight)) >> 16) as u16);
        }
    }
}

/// Eight of each sum from `from` on, turned over.
#[inline(always)]
fn turn(sums: &[Sum; LANES / 2], from: usize) -> [[u16; LANES / 2]; LANES / 2] {
    let mut rows = [[0; LANES / 2]; LANES / 2];
    for (row, sum) in rows.iter_mut().zip(sums) {
        row.copy_from_slice(&sum.0[from..][..LANES / 2]);
    }
    transpose(rows)
}

#[cfg(test)]
mod tests {
    use super::super::taps::Axis;
    use super::*;

    /// The same by definition.
    fn expected(plane: Plane<'_>, down: Axis, across: Axis, y: usize, x: usize) -> f64 {
        let weights = |axis: Axis, i: usize| {
            let scale = axis.span / axis.out as f64;
            let (centre, width) = ((i as f64 + 0.5) * scale, scale.max(1.0));
            let weights: Vec<f64> =
                (0..axis.samples).map(|k| (1.0 - (k as f64 + 0.5 - centre).abs() / width).max(0.0)).collect();
            let sum: f64 = weights.iter().sum();
            weights.into_iter().map(move |weight| weight / sum).collect::<Vec<_>>()
        };
        let (rows, columns) = (weights(down, y), weights(across, x));
        rows.iter()
            .enumerate()
            .map(|(i, row)| {
                let samples = &plane.samples[i * plane.stride..];
                row * columns.iter().zip(samples).map(|(weight, &sample)| weight * f64::from(sample)).sum::<f64>()
            })
            .sum()
    }

    #[test]
    fn planes_of_any_size_come_out_as_the_filter_says() {
        let (mut down, mut across, mut resampler) = (Taps::default(), Taps::default(), Resampler::default());
        for (height, width, rows, columns) in
            [(1, 1, 5, 3), (3, 2, 17, 40), (188, 250, 224, 224), (375, 500, 224, 224), (100, 90, 30, 7), (40, 3, 40, 3)]
        {
            let stride = usize::next_multiple_of(width, LANES);
            let samples: Vec<u8> = (0..height * stride).map(|i| (i * i / 7 + i * 31) as u8).collect();
            let plane = Plane { samples: &samples, stride };
            let vertical = Axis { samples: height, span: height as f64, out: rows };
            let horizontal = Axis { samples: width, span: width as f64 - 0.25, out: columns };
            down.set(vertical);
            across.set(horizontal);
            let mut found = vec![0; LANES * across.first.len()];
            for y in (0..rows).step_by(LANES) {
                resampler.rows(plane, y, &down, &across, &mut found);
                for i in (0..LANES.min(rows - y)).step_by(3) {
                    for x in (0..columns).step_by(5) {
                        let found = f64::from(found[i * across.first.len() + x]) / 256.0;
                        let expected = expected(plane, vertical, horizontal, y + i, x);
                        assert!((found - expected).abs() < 0.06, "{height}×{width}, {y}+{i}, {x}: {found} {expected}");
                    }
                }
            }
        }
    }
}
