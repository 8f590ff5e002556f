//! Blends of several datasets, in the order of Megatron's `BlendedDataset`.

use super::layout::Layout;
use super::plan::Plan;
use crate::files::{Files, Span};
use crate::{Error, Format, Input, Record, RecordFields};

/// The samples of several [`Gpt`](super::Gpt), in the order of Megatron's `BlendedDataset`
/// (megatron-core 0.16.1). Made by [`GptOptions::blend`](super::GptOptions::blend) and
/// [`blend_all`](super::GptOptions::blend_all).
#[derive(Debug)]
pub struct Blend {
    pub(super) files: Files,
    pub(super) plans: Vec<Plan>,
    /// For each sample, the index of its dataset, and the index of the sample in that dataset.
    pub(super) order: Vec<(u16, u32)>,
    pub(super) layout: Layout,
}

impl Blend {
    /// Returns the index of the dataset that sample `index` is from, and the sample's index in that
    /// dataset. Returns `None` if there is no such sample.
    pub fn part(&self, index: usize) -> Option<(usize, usize)> {
        self.order.get(index).map(|&(part, sample)| (part.into(), sample as usize))
    }

    /// Takes each sample from the dataset that is furthest behind its weight
    /// (`build_blending_indices`).
    pub(super) fn weighted(plans: &[Plan], weights: &[f64], samples: u64) -> Result<Vec<(u16, u32)>, Error> {
        check(plans.len())?;
        let mut taken = vec![0_u32; plans.len()];
        // The list grows while samples are found to exist, as `samples` could be any number.
        let mut order = Vec::new();
        for i in 0..samples {
            let part = furthest_behind(weights, &taken, i, |_| true);
            if taken[part] as usize >= plans[part].len() {
                let problem = format!("dataset {part} has {} samples, and the blend needs more", plans[part].len());
                return Err(Error::usage(problem, "ask for fewer samples"));
            }
            order.push((part as u16, taken[part]));
            taken[part] += 1;
        }
        Ok(order)
    }

    /// Takes every sample of each dataset (`build_exhaustive_blending_indices`).
    pub(super) fn exhaustive(plans: &[Plan]) -> Result<Vec<(u16, u32)>, Error> {
        check(plans.len())?;
        let total: u64 = plans.iter().map(|plan| plan.len() as u64).sum();
        let weights: Vec<_> = plans.iter().map(|plan| plan.len() as f64 / total as f64).collect();
        let mut taken = vec![0_u32; plans.len()];
        Ok((0..total)
            .map(|i| {
                let part = furthest_behind(&weights, &taken, i, |part| (taken[part] as usize) < plans[part].len());
                taken[part] += 1;
                (part as u16, taken[part] - 1)
            })
            .collect())
    }
}

fn check(parts: usize) -> Result<(), Error> {
    // Megatron has the same limit.
    if parts == 0 || parts >= 32767 {
        return Err(Error::usage(format!("a blend of {parts} datasets"), "blend from 1 to 32766 of them"));
    }
    Ok(())
}

fn furthest_behind(weights: &[f64], taken: &[u32], i: u64, has_more: impl Fn(usize) -> bool) -> usize {
    let (mut most, mut part) = (f64::MIN, 0);
    for candidate in (0..weights.len()).filter(|&part| has_more(part)) {
        let behind = weights[candidate] * (i.max(1) as f64) - f64::from(taken[candidate]);
        if behind > most {
            (most, part) = (behind, candidate);
        }
    }
    part
}

/// Divides weights by their sum.
pub(super) fn normalized(weights: &[f64]) -> Result<Vec<f64>, Error> {
    check(weights.len())?;
    let total = sum(weights);
    if !total.is_finite() || weights.iter().any(|&weight| weight.is_nan() || weight <= 0.0) {
        return Err(Error::usage(format!("weights {weights:?}"), "set weights above 0"));
    }
    Ok(weights.iter().map(|weight| weight / total).collect())
}

/// Adds numbers in the order of NumPy's `sum` (`pairwise_sum` of NumPy 2.1), since Megatron's order
/// depends on the last bit.
fn sum(numbers: &[f64]) -> f64 {
    match numbers.len() {
        0..8 => numbers.iter().sum(),
        8..=128 => {
            let (eights, rest) = numbers.as_chunks::<8>();
            let mut r = eights[0];
            for eight in &eights[1..] {
                r.iter_mut().zip(eight).for_each(|(sum, number)| *sum += number);
            }
            let start = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
            rest.iter().fold(start, |sum, number| sum + number)
        }
        len => {
            let half = len / 2 - (len / 2) % 8;
            sum(&numbers[..half]) + sum(&numbers[half..])
        }
    }
}

/// Returns the number of samples that Megatron's builder requests from a dataset
/// (`_get_size_per_split_per_dataset`).
pub(super) fn samples_of_part(weight: f64, samples: u64) -> u64 {
    ((samples as f64 * weight).ceil() * (1.0 + 0.005)).ceil() as u64
}

impl Format for Blend {
    fn len(&self) -> usize {
        self.order.len()
    }

    fn fields(&self) -> &RecordFields {
        &self.layout.fields
    }

    fn files(&self) -> &Files {
        &self.files
    }

    fn spans(&self, index: usize, each: &mut dyn FnMut(Span)) {
        let (part, sample) = self.order[index];
        self.plans[usize::from(part)].spans(sample as usize, part.into()).for_each(each);
    }

    fn read<'a>(&'a self, index: usize, input: Input<'a>) -> Result<Record<'a>, Error> {
        let (part, sample) = self.order[index];
        self.layout.read(input, self.plans[usize::from(part)].spans(sample as usize, part.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected sums are those of `numpy.sum` in NumPy 2.1.3.
    #[test]
    fn sums_are_those_of_numpy() {
        let expected = [
            (1, 0.3333333333333333),
            (7, 1.328968253968254),
            (8, 1.4289682539682538),
            (9, 1.5198773448773446),
            (20, 2.190813250217275),
            (128, 3.948591338265976),
            (129, 3.956224926052236),
            (200, 4.387956567549058),
            (1000, 5.987467865541362),
        ];
        for (len, want) in expected {
            let numbers: Vec<_> = (0..len).map(|i| 1.0 / f64::from(i + 3)).collect();
            assert_eq!(sum(&numbers), want, "{len} numbers");
        }
    }
}
