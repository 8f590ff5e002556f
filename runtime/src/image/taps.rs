//! Which samples of a plane make one row or column of the target, and how much each counts.

/// How many rows of the target are made at once; tables are padded to a multiple of it.
pub(super) const LANES: usize = 16;

/// One direction of a plane, on its way to the target.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Axis {
    /// How many samples there are, at least one.
    pub(super) samples: usize,
    /// How many of them the picture covers: a little less if its size is no multiple of a sample's.
    pub(super) span: f64,
    /// How many the target has, at least one.
    pub(super) out: usize,
}

/// The samples of each place of the target, `per` side by side with weights that sum up to 1.
///
/// They are those of a triangle as wide as two samples of the target (two of the plane, if that is more), which is what
/// PIL and torchvision call bilinear with antialiasing. The weights are fractions of 65,536.
#[derive(Debug, Default)]
pub(super) struct Taps {
    axis: Axis,
    pub(super) per: usize,
    /// The first of the `per` samples, for each place; `first + per` is at most the number of samples.
    pub(super) first: Vec<u32>,
    /// `per` for each place; all zero in the padding.
    pub(super) weights: Vec<u16>,
}

impl Taps {
    /// Makes this the table of `axis`, unless it is that already.
    pub(super) fn set(&mut self, axis: Axis) {
        if self.axis == axis {
            return;
        }
        let Axis { samples, span, out } = axis;
        let scale = span / out as f64;
        let width = scale.max(1.0);
        let per = samples.min((2.0 * width).ceil() as usize + 1);
        let padded = out.next_multiple_of(LANES);
        self.first.clear();
        self.first.resize(padded, 0);
        self.weights.clear();
        self.weights.resize(padded * per, 0);
        for (i, (first, weights)) in self.first.iter_mut().zip(self.weights.chunks_exact_mut(per)).take(out).enumerate()
        {
            let centre = (i as f64 + 0.5) * scale;
            let from = ((centre - width).max(0.0) as usize).min(samples - per);
            *first = from as u32;
            fill(weights, from as f64 + 0.5 - centre, 1.0 / width);
        }
        self.axis = axis;
        self.per = per;
    }

    /// The first sample of place `i`, and the weights from there.
    #[inline(always)]
    pub(super) fn of(&self, i: usize) -> (usize, &[u16]) {
        (self.first[i] as usize, &self.weights[i * self.per..][..self.per])
    }
}

/// The weights of samples that lie at `offset`, `offset + 1`, … from the middle of the triangle.
fn fill(weights: &mut [u16], offset: f64, slope: f64) {
    let weight = |k: usize| (1.0 - (offset + k as f64).abs() * slope).max(0.0);
    let sum: f64 = (0..weights.len()).map(weight).sum();
    let unit = 65_536.0 / sum;
    let (mut left, mut greatest) = (65_536, 0);
    for k in 0..weights.len() {
        weights[k] = (weight(k) * unit + 0.5) as u16;
        left -= i32::from(weights[k]);
        if weights[k] > weights[greatest] {
            greatest = k;
        }
    }
    // What rounding left over goes where it matters least. A single weight of 1 is one too much for 16 bits, and stays
    // 65,535.
    weights[greatest] = (i32::from(weights[greatest]) + left).clamp(0, 65_535) as u16;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taps(samples: usize, span: f64, out: usize) -> Taps {
        let mut taps = Taps::default();
        taps.set(Axis { samples, span, out });
        taps
    }

    #[test]
    fn weights_sum_up_to_one_and_stay_inside_the_plane() {
        for samples in [1, 2, 3, 7, 15, 188, 375, 500, 4_001, 60_000] {
            for out in [1, 2, 5, 16, 224, 331] {
                for span in [samples as f64, samples as f64 - 0.5] {
                    let taps = taps(samples, span, out);
                    assert_eq!(taps.first.len(), out.next_multiple_of(LANES));
                    for i in 0..out {
                        let (first, weights) = taps.of(i);
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
        // Around the border of two samples: 1/8, 3/8, 3/8, 1/8, and nothing further.
        let taps = taps(16, 16.0, 8);
        let (first, weights) = taps.of(3);
        let at = |sample: usize| sample.checked_sub(first).and_then(|k| weights.get(k)).copied().unwrap_or(0);
        assert_eq!([4, 5, 6, 7, 8, 9].map(at), [0, 8_192, 24_576, 24_576, 8_192, 0]);
    }

    #[test]
    fn the_same_size_is_a_copy() {
        let taps = taps(20, 20.0, 20);
        for i in 0..20 {
            let (first, weights) = taps.of(i);
            assert_eq!(weights.iter().position(|&weight| weight == 65_535).unwrap() + first, i);
        }
    }
}
