//! A random permutation of given indices, as torch's `SubsetRandomSampler` draws it.
//!
//! Each pass draws one `randperm` from the sampler's generator, or from the default generator if it
//! has none. (`RandomSampler` draws only a seed from the default generator.)

use std::ops::Range;

use super::saved::{Saved, digest, put, put_generator};
use super::{Order, Sampler, SamplerError, make_room, with_generator};
use crate::BoxError;
use crate::rng::{Generator, IndexWord, SharedGenerator, fill_table, randperm_prefix};

/// The sampler's name in errors.
const NAME: &str = "SubsetRandomSampler";

/// Visits the given indices in random order, without replacement (`torch.utils.data.SubsetRandomSampler`).
///
/// The order is the same as torch's for the same generator. The list of indices may be empty, and
/// an index that occurs twice is visited twice. The sampler keeps the indices, each as a `usize`.
/// An order takes 4 more bytes per index, or 8 if an index or the number of indices is beyond 2³².
///
/// ```
/// use slotline::rng::Generator;
/// use slotline::sampler::{Sampler, SubsetRandomSampler};
///
/// let validation = SubsetRandomSampler::new((0..100).step_by(10));
/// let mut sampler = validation.generator(Generator::from_seed(42));
/// assert!(sampler.indices()?.eq([20, 60, 10, 80, 40, 50, 0, 90, 30, 70]));
/// # Ok::<(), slotline::sampler::SamplerError>(())
/// ```
#[derive(Clone)]
pub struct SubsetRandomSampler {
    indices: Vec<usize>,
    /// Whether the indices, and their positions in the list, fit in `u32`.
    narrow: bool,
    /// A digest of the indices. It is saved in states, so that a state with other indices is
    /// rejected.
    digest: u64,
    generator: Option<SharedGenerator>,
}

impl SubsetRandomSampler {
    /// Makes a sampler of these indices, which draws from the default generator. A `Vec<usize>` is
    /// used without a copy.
    ///
    /// The indices are not checked here. If one is not below the dataset's length, reading that
    /// sample fails.
    pub fn new(indices: impl IntoIterator<Item = usize>) -> Self {
        let indices: Vec<usize> = indices.into_iter().collect();
        let narrow = u32::fits(indices.len()) && indices.iter().all(|&index| u32::try_from(index).is_ok());
        let digest = digest(indices.iter().map(|&index| index as u64));
        Self { indices, narrow, digest, generator: None }
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

    /// Draws a pass into a table. Allocates the memory before it uses a generator.
    fn draw<I: IndexWord>(&self, default: &mut Generator, table: &mut Vec<I>) -> Result<(), SamplerError> {
        let n = self.indices.len();
        make_room(NAME, table, n)?;
        fill_table(table, 1, n);
        with_generator(self.generator.as_ref(), default, |generator| randperm_prefix(generator, table, n));
        for entry in table {
            *entry = I::from_index(self.indices[entry.index()]);
        }
        Ok(())
    }
}

impl Sampler for SubsetRandomSampler {
    fn len(&self) -> usize {
        self.indices.len()
    }

    fn memory(&self) -> usize {
        let entry = if self.narrow { size_of::<u32>() } else { size_of::<u64>() };
        self.len().saturating_mul(entry)
    }

    fn order(&mut self, default: &mut Generator, order: &mut Order) -> Result<(), SamplerError> {
        if self.narrow { self.draw(default, order.u32_table()) } else { self.draw(default, order.u64_table()) }
    }

    fn name(&self) -> &str {
        NAME
    }

    fn save(&self, to: &mut String) -> bool {
        put(to, "len", self.indices.len());
        put(to, "digest_of_indices", self.digest);
        put_generator(to, self.generator.as_ref());
        true
    }

    fn restore(&mut self, saved: &str, _: Range<usize>) -> Result<(), BoxError> {
        let saved = Saved { sampler: NAME, text: saved };
        saved.check("len", self.indices.len())?;
        saved.check("digest_of_indices", self.digest)?;
        saved.restore_generator(self.generator.as_ref())
    }
}

/// Shows the number of indices and only the first few, as there may be millions.
impl std::fmt::Debug for SubsetRandomSampler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct(NAME)
            .field("len", &self.indices.len())
            .field("first", &&self.indices[..self.indices.len().min(8)])
            .field("generator", &self.generator)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::order_of;
    use proptest::prelude::*;

    #[test]
    fn a_given_generator_continues_from_pass_to_pass() {
        let (given, mut default) = (SharedGenerator::from(Generator::from_seed(1)), Generator::new());
        let mut sampler = SubsetRandomSampler::new([5, 5, 7, 9]).generator(given.clone());
        let mut twin = Generator::from_seed(1);
        for _ in 0..3 {
            let mut permutation: Vec<u32> = Vec::new();
            twin.randperm_into(4, &mut permutation).unwrap();
            let want: Vec<usize> = permutation.iter().map(|&position| [5, 5, 7, 9][position as usize]).collect();
            assert_eq!(order_of(&mut sampler, &mut default), want);
        }
        assert_eq!((given.lock().drawn(), default.drawn()), (9, 0));
    }

    #[test]
    fn no_indices_make_an_empty_pass() {
        let mut default = Generator::new();
        let mut sampler = SubsetRandomSampler::new([]);
        assert_eq!((sampler.len(), sampler.memory()), (0, 0));
        assert!(order_of(&mut sampler, &mut default).is_empty());
        assert_eq!(default.drawn(), 0);
    }

    #[test]
    #[cfg(target_pointer_width = "64")]
    fn indices_beyond_32_bits_use_the_wide_table() {
        let mut sampler = SubsetRandomSampler::new([1 << 40, u32::MAX as usize, usize::MAX]);
        assert_eq!(sampler.memory(), 24);
        let mut indices = order_of(&mut sampler, &mut Generator::new());
        indices.sort_unstable();
        assert_eq!(indices, [u32::MAX as usize, 1 << 40, usize::MAX]);
        assert_eq!(SubsetRandomSampler::new([u32::MAX as usize]).memory(), 4);
    }

    #[test]
    fn later_passes_reuse_the_memory() {
        let mut sampler = SubsetRandomSampler::new((0..300).rev());
        let (mut default, mut order) = (Generator::new(), Order::default());
        sampler.order(&mut default, &mut order).unwrap();
        let memory = order.memory();
        assert_eq!(memory, sampler.memory());
        let table = order.u32_table().as_ptr();
        sampler.order(&mut default, &mut order).unwrap();
        assert_eq!((order.memory(), order.u32_table().as_ptr()), (memory, table));
    }

    #[test]
    fn debug_shows_only_the_start() {
        let shown = format!("{:?}", SubsetRandomSampler::new(0..1000));
        assert!(shown.contains("len: 1000, first: [0, 1, 2, 3, 4, 5, 6, 7]"), "{shown}");
    }

    proptest! {
        #[test]
        fn a_pass_is_the_given_indices_in_both_widths(
            indices in proptest::collection::vec(0usize..1000, 0..200), seed: u64,
        ) {
            let sampler = SubsetRandomSampler::new(indices.clone());
            let (mut narrow, mut wide) = (Vec::<u32>::new(), Vec::<u64>::new());
            sampler.draw(&mut Generator::from_seed(seed), &mut narrow).unwrap();
            sampler.draw(&mut Generator::from_seed(seed), &mut wide).unwrap();
            prop_assert!(narrow.iter().map(|&index| u64::from(index)).eq(wide.iter().copied()));
            let (mut drawn, mut given) = (Order::from(narrow).iter().collect::<Vec<_>>(), indices);
            drawn.sort_unstable();
            given.sort_unstable();
            prop_assert_eq!(drawn, given);
        }
    }
}
