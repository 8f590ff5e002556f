//! Random splits of a dataset.

use std::sync::Arc;

use super::{Dataset, Subset};
use crate::causes::with_causes;
use crate::rng::{Generator, IndexWord, RandpermError};
use crate::sampler::Order;

/// How far below 1 the sum of a split's fractions may be (the tolerance of Python's
/// `math.isclose`).
const CLOSE: f64 = 1e-9;

/// Splits a dataset at random into parts that share no samples (`torch.utils.data.random_split`).
///
/// The parts are the same as torch's for the same generator: one `randperm` of the dataset's length
/// is drawn from `generator` and cut into consecutive slices. The default in torch corresponds to
/// `&mut default_generator()`. Pass a [`SharedGenerator`](crate::rng::SharedGenerator) as
/// `&mut shared.lock()`.
///
/// `lengths` are numbers of samples (`usize`), which must add up to the dataset's length, or
/// fractions (`f64`) from 0 to 1, which must add up to 1 (at most 1e-9 below). The length of a
/// fraction is rounded down. The samples that remain are distributed among the parts one by one,
/// starting with the first part. A warning is logged for a fraction that gets no samples.
///
/// All parts share the dataset and one table of indices (see [`Subset`]).
///
/// torch instead treats all lengths as fractions if they add up to 1, even integers such as
/// `[1, 0]`.
///
/// ```
/// use slotline::Dataset;
/// use slotline::dataset::{TensorDataset, random_split};
/// use slotline::rng::Generator;
///
/// let digits = TensorDataset::new(slotline::source::digits())?;
/// let parts = random_split(digits, &[0.8, 0.2], &mut Generator::from_seed(42))?;
/// let [train, test] = <[_; 2]>::try_from(parts).expect("two lengths give two parts");
/// assert_eq!((train.len(), test.len()), (1438, 359));
///
/// let ten = slotline::dataset::from_fn(10, |index, _| Ok(index as i64));
/// let parts = random_split(ten, &[3, 7], &mut Generator::from_seed(42))?;
/// assert!(parts[0].indices().eq([2, 6, 1]));
/// # Ok::<(), slotline::BoxError>(())
/// ```
///
/// # Errors
///
/// If the lengths don't add up, a fraction is not between 0 and 1, or the memory for the indices cannot be allocated.
/// The generator is then unchanged.
pub fn random_split<D: Dataset, L: SplitLength>(
    dataset: D,
    lengths: &[L],
    generator: &mut Generator,
) -> Result<Vec<Subset<Arc<D>>>, SplitError> {
    let len = dataset.len();
    let lengths = L::numbers(lengths, len)?;
    // The sum is a u128, which the sum of a list that fits in memory cannot overflow.
    let sum = lengths.iter().map(|&length| length as u128).sum();
    if sum != len as u128 {
        return Err(SplitError::Sum { sum, len });
    }
    let mut table = Order::default();
    if u32::fits(len) {
        generator.randperm_into(len, table.u32_table())?;
    } else {
        generator.randperm_into(len, table.u64_table())?;
    }
    let (dataset, table) = (Arc::new(dataset), Arc::new(table));
    let mut end = 0;
    let part = |length| {
        let start = end;
        end += length;
        Subset::of_table(Arc::clone(&dataset), Arc::clone(&table), start..end)
    };
    Ok(lengths.into_iter().map(part).collect())
}

/// The error for a dataset that cannot be split.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SplitError {
    /// A fraction is not between 0 and 1.
    #[error("random_split: the fraction at index {index} is not between 0 and 1: {fraction}")]
    Fraction {
        /// The index of the fraction, counted from 0.
        index: usize,
        /// The fraction.
        fraction: f64,
    },
    /// The fractions don't add up to 1.
    #[error("random_split: the fractions add up to {sum}, not to 1; set the last one to 1 minus the others")]
    FractionSum {
        /// The sum of the fractions.
        sum: f64,
    },
    /// The lengths don't add up to the dataset's length.
    #[error(
        "random_split: the lengths add up to {sum}, but the dataset has {len} samples; give lengths for all of them"
    )]
    Sum {
        /// The sum of the lengths.
        sum: u128,
        /// The number of samples in the dataset.
        len: usize,
    },
    /// The order of the samples could not be drawn.
    #[error("random_split: the order of the samples could not be drawn: {}", with_causes(.0))]
    Randperm(RandpermError),
}

impl From<RandpermError> for SplitError {
    fn from(error: RandpermError) -> Self {
        Self::Randperm(error)
    }
}

/// The type of the lengths of a [`random_split`]: `usize` for numbers of samples, `f64` for fractions of the dataset.
pub trait SplitLength: sealed::Sealed + Copy {
    /// Converts these lengths to numbers of samples, for a dataset of `len` samples.
    #[doc(hidden)]
    fn numbers(lengths: &[Self], len: usize) -> Result<Vec<usize>, SplitError>;
}

mod sealed {
    /// Restricts the lengths to `usize` and `f64`.
    pub trait Sealed {}
    impl Sealed for usize {}
    impl Sealed for f64 {}
}

impl SplitLength for usize {
    fn numbers(lengths: &[Self], _: usize) -> Result<Vec<usize>, SplitError> {
        Ok(lengths.to_vec())
    }
}

impl SplitLength for f64 {
    fn numbers(fractions: &[Self], len: usize) -> Result<Vec<usize>, SplitError> {
        // The range does not contain NaN.
        if let Some(index) = fractions.iter().position(|fraction| !(0.0..=1.0).contains(fraction)) {
            return Err(SplitError::Fraction { index, fraction: fractions[index] });
        }
        let sum = exact_sum(fractions);
        if sum > 1.0 || 1.0 - sum > CLOSE {
            return Err(SplitError::FractionSum { sum });
        }
        let mut numbers: Vec<usize> = fractions.iter().map(|fraction| (len as f64 * fraction) as usize).collect();
        // From 2⁵³ samples on, the products of fraction and length are rounded, and their sum may be
        // too large. Then `left` is 0, and the caller's check of the sum fails.
        let left = len.saturating_sub(numbers.iter().fold(0, |sum, &number| sum.saturating_add(number)));
        // The fractions add up to about 1, so there is at least one.
        let (each, more) = (left / fractions.len(), left % fractions.len());
        for (index, number) in numbers.iter_mut().enumerate() {
            *number += each + usize::from(index < more);
            if *number == 0 {
                tracing::warn!(index, fraction = fractions[index], "random_split: this part has no samples");
            }
        }
        Ok(numbers)
    }
}

/// Returns the sum with a correction for rounding, as Python's `sum` does since version 3.12, so
/// that 0.1 + 0.7 + 0.2 is 1.
///
/// A. Neumaier, "Rundungsfehleranalyse einiger Verfahren zur Summation endlicher Summen", ZAMM 54, 1974.
fn exact_sum(numbers: &[f64]) -> f64 {
    let (mut sum, mut lost) = (0.0_f64, 0.0);
    for &number in numbers {
        let next = sum + number;
        lost += if sum >= number { (sum - next) + number } else { (number - next) + sum };
        sum = next;
    }
    sum + lost
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::from_fn;
    use proptest::prelude::*;

    fn lengths<L: SplitLength>(len: usize, lengths: &[L]) -> Result<Vec<usize>, SplitError> {
        let mut generator = Generator::from_seed(1);
        let parts = random_split(from_fn(len, |i, _| Ok(i as i64)), lengths, &mut generator);
        assert_eq!(generator.drawn(), if parts.is_ok() { len.saturating_sub(1) as u64 } else { 0 });
        Ok(parts?.iter().map(Dataset::len).collect())
    }

    #[test]
    fn the_remainder_of_fractions_goes_to_parts_in_turn() {
        assert_eq!(lengths(10, &[0.33, 0.33, 0.34]).unwrap(), [4, 3, 3]);
        assert_eq!(lengths(5, &[0.25; 4]).unwrap(), [2, 1, 1, 1]);
        assert_eq!(lengths(3, &[0.5, 0.0, 0.5]).unwrap(), [2, 0, 1]);
        assert_eq!(lengths(2, &[0.25; 4]).unwrap(), [1, 1, 0, 0]);
        assert_eq!(lengths(0, &[0.5, 0.5]).unwrap(), [0, 0]);
        assert_eq!(lengths(7, &[1.0]).unwrap(), [7]);
    }

    #[test]
    fn numbers_are_taken_as_they_are() {
        assert_eq!(lengths(7, &[0, 3, 4]).unwrap(), [0, 3, 4]);
        assert_eq!(lengths::<usize>(0, &[]).unwrap(), [0; 0]);
        assert_eq!(lengths(1, &[1, 0]).unwrap(), [1, 0]);
    }

    #[test]
    fn lengths_that_do_not_add_up_are_errors() {
        let error = lengths(7, &[3, 3]).unwrap_err();
        assert!(matches!(error, SplitError::Sum { sum: 6, len: 7 }));
        assert!(error.to_string().contains("add up to 6, but the dataset has 7 samples"), "{error}");
        assert!(matches!(lengths(7, &[usize::MAX, 8]), Err(SplitError::Sum { sum, .. }) if sum == (1 << 64) + 7));
        assert!(matches!(lengths::<usize>(7, &[]), Err(SplitError::Sum { sum: 0, len: 7 })));
        for fractions in [&[][..], &[0.5], &[0.5, 0.6], &[1.0, 1.0], &[0.5, 0.499_999]] {
            assert!(matches!(lengths(7, fractions), Err(SplitError::FractionSum { .. })), "{fractions:?}");
        }
    }

    #[test]
    fn a_fraction_outside_0_to_1_is_named() {
        for (fractions, bad) in [([1.5, -0.5], 0), ([0.5, f64::NAN], 1), ([0.5, f64::INFINITY], 1), ([0.0, -1e-300], 1)]
        {
            let error = lengths(7, &fractions).unwrap_err();
            assert!(matches!(error, SplitError::Fraction { index, .. } if index == bad), "{error}");
        }
        let error = lengths(7, &[1.5, -0.5]).unwrap_err().to_string();
        assert!(error.contains("fraction at index 0 is not between 0 and 1: 1.5"), "{error}");
    }

    #[test]
    fn fractions_add_up_to_1_despite_rounding() {
        assert_eq!(exact_sum(&[0.1; 10]), 1.0);
        assert_eq!(lengths(10, &[0.1; 10]).unwrap(), [1; 10]);
        assert_eq!(lengths(10, &[0.5, 0.5 - 1e-10]).unwrap(), [6, 4]);
    }

    #[test]
    fn datasets_that_are_too_large_are_errors() {
        assert!(matches!(lengths(usize::MAX, &[usize::MAX]), Err(SplitError::Randperm(RandpermError::Memory { .. }))));
        // As an f64 the length is 2⁶⁴, and half of it is 2⁶³, so the two parts have one sample too
        // many.
        assert!(matches!(lengths(usize::MAX, &[0.5, 0.5]), Err(SplitError::Sum { .. })));
        assert!(lengths(usize::MAX - 1, &[1.0 - 1e-10, 0.0]).is_err());
    }

    proptest! {
        #[test]
        fn any_fractions_give_every_sample_to_one_part(
            weights in proptest::collection::vec(0_u32..1000, 1..9), len in 0_usize..2000,
        ) {
            let whole = f64::from(weights.iter().sum::<u32>().max(1));
            let fractions: Vec<f64> = weights.iter().map(|&weight| f64::from(weight) / whole).collect();
            match lengths(len, &fractions) {
                Ok(parts) => prop_assert_eq!(parts.iter().sum::<usize>(), len),
                // Fractions that add up to slightly more than 1 are an error in torch, too.
                Err(error) => prop_assert!(matches!(error, SplitError::FractionSum { .. }), "{}", error),
            }
        }
    }
}
