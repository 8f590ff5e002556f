//! The samples of a plane from which each row or column of the result is computed, and their
//! weights.

use crate::axis_map::AxisMap;
use crate::decode::Frame;

/// The number of rows of the result that are computed at once. Tables are padded to a multiple of
/// it.
pub(crate) const LANES: usize = 16;

/// The maximum number of samples whose products are added up in 16 bits. With more, the rounding
/// errors would become noticeable.
pub(crate) const FEW: usize = 32;

/// One direction of a plane, and how it maps to the result.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Axis {
    /// The range of the samples that may be used; at least one.
    samples: [usize; 2],
    /// The position at which the crop begins, in samples. It may be inside of a sample, if samples
    /// are larger than pixels.
    start: f64,
    /// The number of samples for each place (row or column) that the crop is resized to.
    scale: f64,
    places: AxisMap,
}

impl Axis {
    pub(crate) fn new(frame: Frame, places: AxisMap) -> Self {
        let [start, end] = places.crop.map(|pixel| pixel as f64 * frame.scale - frame.skipped);
        let last = frame.samples - 1;
        let from = (start.max(0.0) as usize).min(last);
        let to = (end.ceil().max(0.0) as usize).clamp(from + 1, frame.samples);
        Self { samples: [from, to], start, scale: (end - start) / places.size as f64, places }
    }

    /// Returns the number of rows or columns of the result.
    pub(crate) fn out(&self) -> usize {
        self.places.out
    }
}

/// A table of the samples for each row or column of the result: `per` adjacent samples, with
/// weights whose sum is 1.
///
/// The filter is a triangle with a half-width of one pixel of the result, or one sample of the
/// plane if that is larger; PIL and torchvision call it bilinear with antialiasing. The weights are
/// in units of 1/65,536. Padding has no weights.
#[derive(Debug, Default)]
pub(crate) struct Taps {
    axis: Axis,
    pub(crate) per: usize,
    /// The range of the samples that are used.
    pub(crate) span: [usize; 2],
    /// The first of the `per` samples for each row or column; `first + per` is at most the end of
    /// the axis' samples.
    pub(crate) first: Vec<u32>,
    /// `per` weights for each row or column; all zero in the padding.
    pub(crate) weights: Vec<u16>,
}

impl Taps {
    #[cfg(test)]
    fn new(axis: Axis) -> Self {
        let mut taps = Self::default();
        taps.set(axis);
        taps
    }

    /// Computes the table for this axis.
    fn set(&mut self, axis: Axis) {
        let Axis { samples: [low, high], start, scale, places } = axis;
        let width = scale.max(1.0);
        let per = (high - low).min((2.0 * width).ceil() as usize);
        let padded = places.out.next_multiple_of(LANES);
        (self.axis, self.per, self.span) = (axis, per, [high, low]);
        self.first.clear();
        self.first.reserve_exact(padded);
        self.first.resize(padded, low as u32);
        self.weights.clear();
        self.weights.reserve_exact(padded * per);
        self.weights.resize(padded * per, 0);
        let entries = self.first.iter_mut().zip(self.weights.chunks_exact_mut(per));
        for (i, (first, weights)) in entries.take(places.out).enumerate() {
            let Some(place) = places.of(i) else { continue };
            let centre = start + (place as f64 + 0.5) * scale;
            let from = ((centre - width + 0.5).max(0.0) as usize).clamp(low, high - per);
            *first = from as u32;
            fill(weights, centre - 0.5 - from as f64, 1.0 / width);
            self.span = [self.span[0].min(from), self.span[1].max(from + per)];
        }
        if self.span[0] > self.span[1] {
            // All of the result is padding.
            self.span = [low, low + per];
        }
    }

    /// Returns, for each of the eight rows or columns from `i` on, the first sample and the `per`
    /// weights. `i` must be a multiple of eight. `P` is equal to `per`, so that the compiler knows
    /// it, or 0 if `per` is known only at run time.
    #[inline(always)]
    pub(crate) fn eight<const P: usize>(&self, i: usize) -> impl Iterator<Item = (usize, &[u16])> {
        let per = if P == 0 { self.per } else { P };
        let weights = self.weights[i * per..][..8 * per].chunks_exact(per);
        self.first[i..][..8].iter().map(|&first| first as usize).zip(weights)
    }
}

/// The most recently used tables of one direction. Most datasets have pictures of a few sizes only.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    made: Vec<Taps>,
    /// The index of the table that was replaced last.
    next: usize,
}

impl Tables {
    pub(crate) const KEPT: usize = 8;

    /// Returns the maximum memory, in bytes, of a table for `out` rows or columns, where `len`
    /// samples are resized to `size`.
    pub(crate) fn memory(len: usize, size: usize, out: usize) -> usize {
        let per = len.min((2.0 * (len as f64 / size as f64).max(1.0)).ceil() as usize + 1);
        Self::KEPT * (size_of::<Taps>() + out.next_multiple_of(LANES) * (size_of::<u32>() + per * size_of::<u16>()))
    }

    /// Returns the table for this axis. Computes it if necessary.
    pub(crate) fn of(&mut self, axis: Axis) -> &Taps {
        let place = match self.made.iter().position(|taps| taps.axis == axis) {
            Some(place) => place,
            None => {
                if self.made.len() < Self::KEPT {
                    self.made.push(Taps::default());
                    self.next = self.made.len() - 1;
                } else {
                    self.next = (self.next + 1) % Self::KEPT;
                }
                self.made[self.next].set(axis);
                // All tables get the capacity of the largest, so that the number of allocations
                // does not depend on which one is replaced next.
                let most = self.made.iter().map(|taps| taps.weights.capacity()).max().unwrap_or(0);
                for taps in self.made.iter_mut().filter(|taps| taps.weights.capacity() < most) {
                    taps.weights.reserve_exact(most - taps.weights.len());
                }
                self.next
            }
        };
        &self.made[place]
    }
}

/// Computes the weights of adjacent samples, the first of which is `centre` before the middle of
/// the triangle.
fn fill(weights: &mut [u16], centre: f64, slope: f64) {
    let weight = |k: usize| (1.0 - (centre - k as f64).abs() * slope).max(0.0);
    let sum: f64 = (0..weights.len()).map(weight).sum();
    // The rounding error of each weight is added to the next one, so that the sum of many small
    // weights is right. A single weight of 1 would exceed 16 bits by one, and is 65,535.
    let (unit, mut left) = (65_536.0 / sum, 0.0);
    for (k, rounded) in weights.iter_mut().enumerate() {
        left += weight(k) * unit;
        let whole = (left + 0.5).floor();
        *rounded = whole.min(65_535.0) as u16;
        left -= whole;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(samples: usize, span: f64, out: usize) -> Axis {
        let len = span.round() as usize;
        let frame = Frame { samples, scale: span / len as f64, skipped: 0.0 };
        let mut places = AxisMap::all(len);
        places.resize(out);
        Axis::new(frame, places)
    }

    fn taps(samples: usize, span: f64, out: usize) -> Taps {
        Taps::new(axis(samples, span, out))
    }

    fn of(taps: &Taps, i: usize) -> (usize, &[u16]) {
        taps.eight::<0>(i / 8 * 8).nth(i % 8).unwrap()
    }

    #[test]
    fn weights_sum_up_to_one_and_stay_inside_the_plane() {
        for samples in [1, 2, 3, 7, 15, 188, 375, 500, 4_001, 60_000] {
            for out in [1, 2, 5, 16, 224, 331] {
                for span in [samples as f64, samples as f64 - 0.5] {
                    let taps = taps(samples, span, out);
                    assert_eq!(taps.first.len(), out.next_multiple_of(LANES));
                    for i in 0..out {
                        let (first, weights) = of(&taps, i);
                        assert!(first + weights.len() <= samples);
                        let sum: u32 = weights.iter().map(|&weight| u32::from(weight)).sum();
                        assert!((65_535..=65_536).contains(&sum), "{samples} to {out}: {sum}");
                    }
                    assert!(taps.weights[out * taps.per..].iter().all(|&weight| weight == 0));
                }
            }
        }
    }

    #[test]
    fn halving_has_the_weights_of_a_triangle() {
        // The samples around the border of two source samples have the weights 1/8, 3/8, 3/8, 1/8,
        // and 0 beyond.
        let taps = taps(16, 16.0, 8);
        let (first, weights) = of(&taps, 3);
        let at = |sample: usize| sample.checked_sub(first).and_then(|k| weights.get(k)).copied().unwrap_or(0);
        assert_eq!([4, 5, 6, 7, 8, 9].map(at), [0, 8_192, 24_576, 24_576, 8_192, 0]);
    }

    #[test]
    fn a_full_cache_still_returns_the_right_tables() {
        let mut tables = Tables::default();
        for round in 0..3 {
            for samples in (1..3 * Tables::KEPT).chain([5, 5, 1]) {
                let axis = axis(samples, samples as f64, 3);
                assert_eq!(tables.of(axis).axis, axis, "{round}");
            }
        }
        assert_eq!(tables.made.len(), Tables::KEPT);
    }

    #[test]
    fn the_same_size_is_a_copy() {
        let taps = taps(20, 20.0, 20);
        for i in 0..20 {
            let (first, weights) = of(&taps, i);
            assert_eq!(weights.iter().position(|&weight| weight == 65_535).unwrap() + first, i);
        }
    }
}
