//! Random draws by weight, as in torch's `WeightedRandomSampler` (which calls `torch.multinomial`
//! on f64).
//!
//! With replacement, for at least two samples: the running sums of the weights are divided by the
//! total, and the last one is set to 1. For each sample a uniform number is drawn, and the sample
//! is the first index whose sum is not below it, found by binary search.
//!
//! Without replacement, or for a single sample: for each index i an exponential number qᵢ = -ln(1 -
//! uᵢ) is drawn, and the pass consists of the indices with the greatest wᵢ / qᵢ, in descending
//! order. Since qᵢ / wᵢ is distributed like the time of the first event of a Poisson process of rate
//! wᵢ, this is the order in which n such processes would have their first events, and the
//! probability that an index comes next is its weight's share of the weights that remain. (Source: P. S. Efraimidis and P. G.
//! Spirakis, "Weighted random sampling with a reservoir", Information Processing Letters 97(5),
//! 2006.)
//!
//! The logarithm is that of the C library, as in torch. Its last bit differs between libraries, so
//! two machines may have different orders if two quotients are equal up to that bit. About one pass
//! in 10¹⁵ / n² has such a pair.

use std::collections::TryReserveError;
use std::num::NonZero;
use std::ops::Range;

use super::saved::{Saved, digest, put, put_generator};
use super::{Order, Sampler, SamplerError, make_room, with_generator};
use crate::BoxError;
use crate::rng::{Generator, IndexWord, SharedGenerator};

/// The sampler's name in errors.
const NAME: &str = "WeightedRandomSampler";

/// Draws indices with probabilities in proportion to their weights (`torch.utils.data.WeightedRandomSampler`).
///
/// The order is the same as torch's for the same generator. The weights do not have to add up to 1,
/// and an index of weight 0 is never drawn. By default indices are drawn with replacement, as in
/// torch.
///
/// The sampler keeps the weights, 8 bytes each. A pass takes 8 more bytes for each weight, which
/// are kept for the next pass. The order takes 4 bytes for each sample drawn (8 if there are more
/// than 2³² weights); without replacement, 4 bytes for each weight above 0, as all of them are
/// compared.
///
/// ```
/// use slotline::rng::Generator;
/// use slotline::sampler::{Sampler, WeightedRandomSampler};
///
/// let weights = [0.1, 0.9, 0.4, 0.7, 3.0, 0.6];
/// let mut sampler = WeightedRandomSampler::new(weights, 5)?.generator(Generator::from_seed(42));
/// assert!(sampler.indices()?.eq([1, 1, 1, 1, 4]));
///
/// let mut sampler = WeightedRandomSampler::new(weights, 5)?.replacement(false)?.generator(Generator::from_seed(42));
/// assert!(sampler.indices()?.eq([1, 3, 4, 2, 0]));
/// # Ok::<(), slotline::sampler::SamplerError>(())
/// ```
#[derive(Clone)]
pub struct WeightedRandomSampler {
    /// The weights, which are finite and not negative, with a finite, positive sum.
    weights: Vec<f64>,
    /// The number of weights above 0.
    positive: usize,
    /// A digest of the weights. It is saved in states, so that a state with other weights is
    /// rejected.
    digest: u64,
    num_samples: NonZero<usize>,
    replacement: bool,
    generator: Option<SharedGenerator>,
    /// Memory that a pass reuses, for the running sums of the weights or the quotients. Empty before
    /// the first pass.
    scratch: Vec<f64>,
}

impl WeightedRandomSampler {
    /// Makes a sampler that draws `num_samples` indices per pass, with replacement, from the default generator.
    ///
    /// `weights` has one weight for each sample of the dataset. A `Vec<f64>` is used without a copy.
    ///
    /// # Errors
    ///
    /// [`SamplerError::NoSamples`] if `num_samples` is 0, [`SamplerError::Weight`] if a weight is negative or not
    /// finite, [`SamplerError::WeightSum`] if no weight is above 0 or their sum is not finite.
    pub fn new(weights: impl IntoIterator<Item = f64>, num_samples: usize) -> Result<Self, SamplerError> {
        let num_samples = NonZero::new(num_samples).ok_or(SamplerError::NoSamples { sampler: NAME })?;
        let weights: Vec<f64> = weights.into_iter().collect();
        let (mut sum, mut positive) = (0.0, 0);
        for (index, &weight) in weights.iter().enumerate() {
            if !(weight >= 0.0 && weight.is_finite()) {
                return Err(SamplerError::Weight { sampler: NAME, index, weight });
            }
            sum += weight;
            positive += usize::from(weight > 0.0);
        }
        if !(sum > 0.0 && sum.is_finite()) {
            return Err(SamplerError::WeightSum { sampler: NAME, sum });
        }
        let digest = digest(weights.iter().map(|weight| weight.to_bits()));
        Ok(Self { weights, positive, digest, num_samples, replacement: true, generator: None, scratch: Vec::new() })
    }

    /// Sets whether indices are drawn with replacement, so that they may repeat; true by default.
    ///
    /// # Errors
    ///
    /// [`SamplerError::TooFewWeights`] if `replacement` is false and fewer weights than samples are
    /// above 0. (torch has the same requirement, but only checks that there are at least as many
    /// *weights* as samples, and otherwise draws indices of weight 0.)
    pub fn replacement(mut self, replacement: bool) -> Result<Self, SamplerError> {
        let (num_samples, positive) = (self.len(), self.positive);
        if !replacement && positive < num_samples {
            return Err(SamplerError::TooFewWeights { sampler: NAME, num_samples, positive });
        }
        self.replacement = replacement;
        Ok(self)
    }

    /// Sets the generator to draw from: a [`Generator`] that only this sampler uses, or a
    /// [`SharedGenerator`].
    ///
    /// A clone of the sampler draws from the same generator.
    #[must_use]
    pub fn generator(mut self, generator: impl Into<SharedGenerator>) -> Self {
        self.generator = Some(generator.into());
        self
    }

    /// Returns whether samples are drawn by binary search in the running sums. Otherwise the
    /// quotients of all indices are compared.
    fn bisects(&self) -> bool {
        self.replacement && self.num_samples.get() > 1
    }

    /// Returns the number of table entries that drawing a pass needs.
    fn entries(&self) -> usize {
        if self.bisects() { self.num_samples.get() } else { self.positive }
    }

    /// Returns whether the indices fit in u32.
    fn is_narrow(&self) -> bool {
        u32::fits(self.weights.len())
    }

    /// Draws a pass into a table. Allocates the memory before it uses a generator.
    fn draw<I: IndexWord>(&mut self, default: &mut Generator, table: &mut Vec<I>) -> Result<(), SamplerError> {
        make_room(NAME, table, self.entries())?;
        let bytes = self.weights.len().saturating_mul(size_of::<f64>());
        let no_memory = |source: TryReserveError| SamplerError::Memory { sampler: NAME, bytes, source };
        self.scratch.clear();
        self.scratch.try_reserve_exact(self.weights.len()).map_err(no_memory)?;
        let (k, bisects) = (self.len(), self.bisects());
        let (weights, scratch) = (&self.weights, &mut self.scratch);
        with_generator(self.generator.as_ref(), default, |generator| {
            if bisects {
                draw_by_sum(generator, weights, k, scratch, table)
            } else {
                draw_by_race(generator, weights, k, scratch, table)
            }
        });
        Ok(())
    }
}

impl Sampler for WeightedRandomSampler {
    fn len(&self) -> usize {
        self.num_samples.get()
    }

    fn memory(&self) -> usize {
        let entry = if self.is_narrow() { size_of::<u32>() } else { size_of::<u64>() };
        let scratch = self.weights.len().saturating_mul(size_of::<f64>());
        self.entries().saturating_mul(entry).saturating_add(scratch)
    }

    fn order(&mut self, default: &mut Generator, order: &mut Order) -> Result<(), SamplerError> {
        if self.is_narrow() { self.draw(default, order.u32_table()) } else { self.draw(default, order.u64_table()) }
    }

    fn name(&self) -> &str {
        NAME
    }

    fn save(&self, to: &mut String) -> bool {
        put(to, "digest_of_weights", self.digest);
        put(to, "num_samples", self.num_samples);
        put(to, "replacement", self.replacement);
        put_generator(to, self.generator.as_ref());
        true
    }

    fn restore(&mut self, saved: &str, _: Range<usize>) -> Result<(), BoxError> {
        let saved = Saved { sampler: NAME, text: saved };
        saved.check("digest_of_weights", self.digest)?;
        saved.check("num_samples", self.num_samples)?;
        saved.check("replacement", self.replacement)?;
        saved.restore_generator(self.generator.as_ref())
    }
}

/// Fills `table` with `k` draws with replacement. `sums` and `table` are empty and have enough
/// capacity.
fn draw_by_sum<I: IndexWord>(
    generator: &mut Generator,
    weights: &[f64],
    k: usize,
    sums: &mut Vec<f64>,
    table: &mut Vec<I>,
) {
    let mut total = 0.0;
    sums.extend(weights.iter().map(|weight| {
        total += weight;
        total
    }));
    for sum in sums.iter_mut() {
        *sum /= total;
    }
    if let Some(last) = sums.last_mut() {
        *last = 1.0;
    }
    table.extend((0..k).map(|_| {
        let uniform = generator.rand_f64();
        I::from_index(sums.partition_point(|&sum| sum < uniform))
    }));
}

/// Fills `table` with `k` draws without replacement. `quotients` and `table` are empty and have
/// enough capacity. At least `k` weights are above 0.
fn draw_by_race<I: IndexWord>(
    generator: &mut Generator,
    weights: &[f64],
    k: usize,
    quotients: &mut Vec<f64>,
    table: &mut Vec<I>,
) {
    quotients.extend(weights.iter().map(|weight| weight / -(-generator.rand_f64()).ln_1p()));
    // Indices of weight 0 are excluded: their quotient is 0 or, in one of 2⁵³ draws, NaN.
    table.extend((0..weights.len()).filter(|&index| weights[index] > 0.0).map(I::from_index));
    let first_is_greater = |a: &I, b: &I| {
        let (a, b) = (a.index(), b.index());
        quotients[b].total_cmp(&quotients[a]).then(a.cmp(&b))
    };
    if k < table.len() {
        table.select_nth_unstable_by(k, first_is_greater);
        table.truncate(k);
    }
    table.sort_unstable_by(first_is_greater);
}

/// Shows the number of weights and only the first few, as there may be millions.
impl std::fmt::Debug for WeightedRandomSampler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct(NAME)
            .field("weights", &self.weights.len())
            .field("first", &&self.weights[..self.weights.len().min(8)])
            .field("num_samples", &self.num_samples)
            .field("replacement", &self.replacement)
            .field("generator", &self.generator)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::order_of;
    use proptest::prelude::*;

    const WEIGHTS: [f64; 6] = [0.1, 0.9, 0.4, 0.7, 3.0, 0.6];

    #[test]
    fn replacement_does_not_affect_a_single_sample() {
        for seed in 0..200 {
            let with = WeightedRandomSampler::new(WEIGHTS, 1).unwrap();
            let mut drawn = [with.clone(), with.replacement(false).unwrap()].map(|mut sampler| {
                let mut default = Generator::from_seed(seed);
                (order_of(&mut sampler, &mut default), default.drawn(), sampler.memory())
            });
            let (one, draws, memory) = &drawn[1];
            assert_eq!((one.len(), *draws, *memory), (1, 12, 6 * 8 + 6 * 4));
            drawn.swap(0, 1);
            assert_eq!(drawn[0], drawn[1]);
        }
    }

    #[test]
    fn later_passes_reuse_the_memory() {
        let weights = || (0..500).map(|i| f64::from(i % 7));
        for (k, replacement) in [(1, true), (900, true), (1, false), (300, false)] {
            let sampler = WeightedRandomSampler::new(weights(), k).unwrap();
            let mut sampler = sampler.replacement(replacement).unwrap();
            let (mut default, mut order) = (Generator::new(), Order::default());
            sampler.order(&mut default, &mut order).unwrap();
            let held = |sampler: &WeightedRandomSampler, order: &mut Order| {
                let memory = order.memory() + sampler.scratch.capacity() * 8;
                (memory, sampler.scratch.as_ptr(), order.u32_table().as_ptr())
            };
            let first = held(&sampler, &mut order);
            assert_eq!(first.0, sampler.memory(), "{sampler:?}");
            sampler.order(&mut default, &mut order).unwrap();
            assert_eq!(order.len(), k);
            assert_eq!(held(&sampler, &mut order), first, "{sampler:?}");
        }
    }

    #[test]
    fn bad_arguments_are_errors() {
        let error = |weights: &[f64], k| {
            let sampler = WeightedRandomSampler::new(weights.iter().copied(), k);
            sampler.and_then(|sampler| sampler.replacement(false)).unwrap_err().to_string()
        };
        for (weights, k, want) in [
            (&[1.0][..], 0, "WeightedRandomSampler: num_samples is 0; set it to a positive number"),
            (&[1.0, -0.5], 1, "weight 1 is -0.5; weights must be finite and not negative"),
            (&[f64::NAN], 1, "weight 0 is NaN"),
            (&[1.0, f64::INFINITY], 1, "weight 1 is inf"),
            (&[], 1, "the weights add up to 0; at least one must be positive"),
            (&[0.0, -0.0], 1, "the weights add up to 0"),
            (&[f64::MAX, f64::MAX], 1, "the weights add up to inf"),
            (&[1.0, 0.0, 2.0], 3, "3 samples without replacement, but only 2 weights are above 0; reduce"),
        ] {
            let error = error(weights, k);
            assert!(error.contains(want), "{error}");
        }
    }

    #[test]
    fn orders_that_are_too_large_draw_nothing() {
        let (mut default, mut order) = (Generator::new(), Order::default());
        let mut sampler = WeightedRandomSampler::new([1.0], usize::MAX).unwrap();
        let error = sampler.order(&mut default, &mut order).unwrap_err();
        assert!(matches!(error, SamplerError::Memory { bytes: usize::MAX, .. }), "{error}");
        assert_eq!((default.drawn(), order.len(), sampler.memory()), (0, 0, usize::MAX));
    }

    /// Returns a draw by torch's algorithm, written as a scan, where the sampler uses binary
    /// search.
    fn first_not_below(weights: &[f64], uniform: f64) -> usize {
        let total: f64 = weights.iter().sum();
        let mut sum = 0.0;
        for (index, weight) in weights[..weights.len() - 1].iter().enumerate() {
            sum += weight;
            if sum / total >= uniform {
                return index;
            }
        }
        weights.len() - 1
    }

    fn weights() -> impl Strategy<Value = Vec<f64>> {
        let weight = prop_oneof![1 => Just(0.0), 4 => 0.0..10.0f64, 1 => 0.0..1e-300f64, 1 => 0.0..1e300f64];
        let weights = proptest::collection::vec(weight, 1..80);
        weights.prop_filter("a sum above 0", |weights| weights.iter().any(|&weight| weight > 0.0))
    }

    proptest! {
        #[test]
        fn with_replacement_is_a_scan_of_the_running_sum(weights in weights(), k in 2usize..200, seed: u64) {
            let mut sampler = WeightedRandomSampler::new(weights.clone(), k).unwrap();
            let drawn = order_of(&mut sampler, &mut Generator::from_seed(seed));
            let mut twin = Generator::from_seed(seed);
            let want: Vec<usize> = (0..k).map(|_| first_not_below(&weights, twin.rand_f64())).collect();
            prop_assert_eq!(drawn, want);
        }

        #[test]
        fn without_replacement_is_the_head_of_the_sorted_race(weights in weights(), share in 0.0..1.0f64, seed: u64) {
            let positive = weights.iter().filter(|&&weight| weight > 0.0).count();
            let k = 1 + (positive as f64 * share) as usize;
            prop_assume!(k <= positive);
            let mut sampler = WeightedRandomSampler::new(weights.clone(), k).unwrap().replacement(false).unwrap();
            let drawn = order_of(&mut sampler, &mut Generator::from_seed(seed));
            let mut twin = Generator::from_seed(seed);
            let mut race: Vec<(f64, usize)> =
                weights.iter().enumerate().map(|(i, w)| (w / -(-twin.rand_f64()).ln_1p(), i)).collect();
            race.sort_by(|a, b| b.0.total_cmp(&a.0));
            let want: Vec<usize> = race.into_iter().filter(|&(_, i)| weights[i] > 0.0).map(|(_, i)| i).take(k).collect();
            prop_assert_eq!(drawn, want);
        }

        #[test]
        fn both_widths_draw_the_same(weights in weights(), k in 1usize..200, seed: u64) {
            let mut sampler = WeightedRandomSampler::new(weights, k).unwrap();
            let (mut narrow, mut wide) = (Vec::<u32>::new(), Vec::<u64>::new());
            sampler.draw(&mut Generator::from_seed(seed), &mut narrow).unwrap();
            sampler.draw(&mut Generator::from_seed(seed), &mut wide).unwrap();
            prop_assert!(narrow.iter().map(|&index| u64::from(index)).eq(wide.iter().copied()));
        }
    }
}
