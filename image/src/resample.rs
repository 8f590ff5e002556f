//! Resizes planes, 16 rows of the result at a time, so that the data stays in the L1 cache.
//!
//! The vertical direction comes first; for it, a vector holds samples that are next to each other
//! in memory. Then the 16 rows are transposed, so that for the horizontal direction a vector holds
//! the same sample of 16 rows, and the results are transposed back. Numbers are in units of 1/256,
//! in 16 bits, and all arithmetic is on integers, so that every CPU computes the same result.

use std::ops::Range;

use crate::lanes::Lanes;
use crate::taps::{FEW, LANES, Taps};

pub(crate) const HALF: usize = LANES / 2;
/// The number of bytes that are read from a row at once.
pub(crate) const STRIDE: usize = 4 * LANES;

/// Eight columns of 16 rows: the part of a plane that is computed in one step.
pub(crate) type Block = [[u16; HALF]; LANES];

/// One plane of an image.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plane<'a> {
    /// The rows, followed by at least [`STRIDE`] bytes.
    pub(crate) samples: &'a [u8],
    /// The distance from one row to the next, in bytes.
    pub(crate) stride: usize,
    /// The distance from one pixel to the next, in bytes: 1, or the number of channels of a pixel.
    pub(crate) step: usize,
}

/// The values of 16 rows in one column.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(32))]
struct Column([u16; LANES]);

/// Calls a function that is specialised for the usual numbers of samples per row or column of the
/// result, with a fallback for any other number.
macro_rules! known {
    ($per:expr, $self:ident.$function:ident::<$lanes:ty $(, $more:tt)*>($($argument:expr),*)) => {
        match $per {
            2 => $self.$function::<$lanes, 2 $(, $more)*>($($argument),*),
            3 => $self.$function::<$lanes, 3 $(, $more)*>($($argument),*),
            4 => $self.$function::<$lanes, 4 $(, $more)*>($($argument),*),
            5 => $self.$function::<$lanes, 5 $(, $more)*>($($argument),*),
            _ => $self.$function::<$lanes, 0 $(, $more)*>($($argument),*),
        }
    };
}

/// Sixteen rows of the result that are still as wide as the plane, with all channels of its pixels.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    columns: Vec<Column>,
}

impl Rows {
    /// Returns the memory, in bytes, that is kept for planes of this width, whose pixels have
    /// `step` channels.
    pub(crate) fn memory(width: usize, step: usize) -> usize {
        (width * step).next_multiple_of(STRIDE) * size_of::<Column>()
    }

    /// Computes rows `y` to `y + 16` of the result, in the columns that `across` uses.
    /// [`Lanes::shrink`] calls this.
    #[inline(always)]
    pub(crate) fn shrink<L: Lanes>(&mut self, plane: Plane<'_>, y: usize, down: &Taps, across: &Taps) {
        if down.per > FEW {
            return self.shrink_much(plane, y, down, across);
        }
        known!(down.per, self.shrink_by::<L>(plane, y, down, across));
    }

    /// Returns the range of the blocks of a row that `across` uses, and their columns.
    fn columns(&mut self, step: usize, across: &Taps) -> (Range<usize>, &mut [Column]) {
        let steps = across.span[0] * step / STRIDE..(across.span[1] * step).div_ceil(STRIDE);
        if let Some(missing) = (steps.end * STRIDE).checked_sub(self.columns.len()).filter(|&missing| missing > 0) {
            self.columns.reserve_exact(missing);
            self.columns.resize(steps.end * STRIDE, Column::default());
        }
        (steps.clone(), &mut self.columns[steps.start * STRIDE..steps.end * STRIDE])
    }

    /// Adds up rows with 32-bit sums, for many rows.
    #[inline(always)]
    fn shrink_much(&mut self, plane: Plane<'_>, y: usize, down: &Taps, across: &Taps) {
        let Plane { samples, stride, step } = plane;
        let (steps, columns) = self.columns(step, across);
        for half in [0, HALF] {
            for (i, (first, weights)) in down.eight::<0>(y + half).enumerate() {
                for (step, columns) in steps.clone().zip(columns.as_chunks_mut::<STRIDE>().0) {
                    let mut sums = [1 << 7; STRIDE];
                    for (row, &weight) in weights.iter().enumerate() {
                        let at = (first + row) * stride + step * STRIDE;
                        let samples: &[u8; STRIDE] =
                            samples[at..].first_chunk().expect("there are further bytes behind the last row");
                        for (sum, &sample) in sums.iter_mut().zip(samples) {
                            *sum += u32::from(sample) * u32::from(weight);
                        }
                    }
                    for (column, sum) in columns.iter_mut().zip(sums) {
                        column.0[half + i] = (sum >> 8) as u16;
                    }
                }
            }
        }
    }

    #[inline(always)]
    fn shrink_by<L: Lanes, const P: usize>(&mut self, plane: Plane<'_>, y: usize, down: &Taps, across: &Taps) {
        let Plane { samples, stride, step } = plane;
        let (steps, columns) = self.columns(step, across);
        for half in [0, HALF] {
            for (step, columns) in steps.clone().zip(columns.as_chunks_mut::<STRIDE>().0) {
                let mut sums = [[initial::<L>(down.per); HALF]; STRIDE / LANES];
                for (i, (first, weights)) in down.eight::<P>(y + half).enumerate() {
                    let mut row = [initial::<L>(down.per); STRIDE / LANES];
                    let mut at = first * stride + step * STRIDE;
                    for &weight in weights {
                        let samples: &[u8; STRIDE] =
                            samples[at..].first_chunk().expect("there are further bytes behind the last row");
                        for (sums, samples) in row.as_chunks_mut::<2>().0.iter_mut().zip(samples.as_chunks().0) {
                            let [first, second] = L::widen(samples);
                            *sums = [sums[0].add(first, weight), sums[1].add(second, weight)];
                        }
                        at += stride;
                    }
                    for (sums, sum) in sums.iter_mut().zip(row) {
                        sums[i] = sum;
                    }
                }
                for (place, sums) in sums.iter().enumerate() {
                    // The position, in the input of `widen`, of the first byte from which `sums`
                    // was computed.
                    let x = place / 2 * 2 * LANES + place % 2 * HALF;
                    let turned = L::transpose(*sums);
                    for i in 0..HALF {
                        columns[x + i].0[half..][..HALF].copy_from_slice(&turned[i][0]);
                        columns[x + LANES + i].0[half..][..HALF].copy_from_slice(&turned[i][1]);
                    }
                }
            }
        }
    }

    /// Computes columns `x` to `x + 8` of one channel of the result, in units of 1/256, where a
    /// pixel has `step` channels. [`Lanes::block`] calls this.
    #[inline(always)]
    pub(crate) fn block<L: Lanes>(&self, x: usize, across: &Taps, step: usize, channel: usize) -> Block {
        match step {
            1 => known!(across.per, self.block_by::<L, 1>(x, across, step, channel)),
            3 => known!(across.per, self.block_by::<L, 3>(x, across, step, channel)),
            _ => known!(across.per, self.block_by::<L, 0>(x, across, step, channel)),
        }
    }

    #[inline(always)]
    fn block_by<L: Lanes, const P: usize, const STEP: usize>(
        &self,
        x: usize,
        across: &Taps,
        step: usize,
        channel: usize,
    ) -> Block {
        let step = if STEP == 0 { step } else { STEP };
        if across.per > FEW {
            let mut sums = [[1 << 15; LANES]; HALF];
            for (sums, (first, weights)) in sums.iter_mut().zip(across.eight::<0>(x)) {
                let columns = self.columns[first * step + channel..].iter().step_by(step);
                for (column, &weight) in columns.zip(weights) {
                    for (sum, &number) in sums.iter_mut().zip(&column.0) {
                        *sum += u32::from(number) * u32::from(weight);
                    }
                }
            }
            return std::array::from_fn(|y| std::array::from_fn(|x| (sums[x][y] >> 16) as u16));
        }
        let mut sums = [initial::<L>(across.per); HALF];
        for (sums, (first, weights)) in sums.iter_mut().zip(across.eight::<P>(x)) {
            let mut sum = *sums;
            let columns = &self.columns[first * step + channel..][..(weights.len() - 1) * step + 1];
            for (column, &weight) in columns.iter().step_by(step).zip(weights) {
                sum = sum.add(L::load(&column.0), weight);
            }
            *sums = sum;
        }
        let turned = L::transpose(sums);
        let mut block = [[0; HALF]; LANES];
        for i in 0..HALF {
            [block[i], block[HALF + i]] = turned[i];
        }
        block
    }
}

/// Returns the initial value of a sum of `count` products. It compensates for their truncation,
/// which removes half of the last bit from each on average.
#[inline(always)]
fn initial<L: Lanes>(count: usize) -> L {
    L::splat((count / 2) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::axis_map::AxisMap;
    use crate::decode::Frame;
    use crate::taps::{Axis, Tables};

    /// Computes the filter by its definition: the weight of every sample, for each row or column of
    /// the result.
    fn weights(samples: usize, span: f64, out: usize) -> Vec<Vec<f64>> {
        let scale = span / out as f64;
        let width = scale.max(1.0);
        let weight = |i: usize, k: usize| (1.0 - (k as f64 + 0.5 - (i as f64 + 0.5) * scale).abs() / width).max(0.0);
        let row = |i| {
            let sum: f64 = (0..samples).map(|k| weight(i, k)).sum();
            (0..samples).map(|k| weight(i, k) / sum).collect()
        };
        (0..out).map(row).collect()
    }

    #[test]
    fn planes_of_any_size_match_the_filter() {
        let (mut tables, mut rows_of) = ([Tables::default(), Tables::default()], Rows::default());
        for (height, width, rows, columns) in [
            (1, 1, 5, 3),
            (3, 2, 17, 40),
            (188, 250, 224, 224),
            (375, 500, 224, 224),
            (100, 90, 30, 7),
            (40, 3, 40, 3),
            (3_000, 20, 2, 3),
            (20, 9_000, 3, 2),
            (700, 650, 20, 17),
        ] {
            for (step, channel) in [(1, 0), (3, 1), (4, 2)] {
                let stride = width * step;
                let samples: Vec<u8> = (0..height * stride + STRIDE).map(|i| (i * i / 7 + i * 31) as u8).collect();
                let plane = Plane { samples: &samples, stride, step };
                let axis = |samples: usize, span: f64, out| {
                    let mut places = AxisMap::all(samples);
                    places.resize(out);
                    Axis::new(Frame { samples, scale: span / samples as f64, skipped: 0.0 }, places)
                };
                let span = [height as f64, width as f64 - 0.25];
                let (in_rows, in_columns) = (weights(height, span[0], rows), weights(width, span[1], columns));
                let [down, across] = &mut tables;
                let (down, across) = (down.of(axis(height, span[0], rows)), across.of(axis(width, span[1], columns)));
                for y in (0..rows).step_by(LANES) {
                    rows_of.shrink::<[u16; 16]>(plane, y, down, across);
                    for x in (0..columns).step_by(13) {
                        let block = rows_of.block::<[u16; 16]>(x / HALF * HALF, across, step, channel);
                        for i in (0..LANES.min(rows - y)).step_by(5) {
                            let found = f64::from(block[i][x % HALF]) / 256.0;
                            let sum = |row: &[u8]| -> f64 {
                                let row = row.iter().skip(channel).step_by(step);
                                in_columns[x].iter().zip(row).map(|(weight, &it)| weight * f64::from(it)).sum()
                            };
                            let expected: f64 = in_rows[y + i]
                                .iter()
                                .zip(samples.chunks(stride))
                                .map(|(weight, row)| weight * sum(row))
                                .sum();
                            assert!(
                                (found - expected).abs() < 0.06,
                                "{height}×{width}, {y}+{i}, {x}: {found} {expected}"
                            );
                        }
                    }
                }
            }
        }
    }
}
