//! [`ShardShuffleSampler`]: a random order that stays within a few shards at a time.
//!
//! The shards are put in random order and divided into groups of at most `window` shards, whose
//! sizes are as equal as possible. The groups follow each other, and the samples of each group are
//! permuted by a [`Cipher`], which needs no table. So an index is found by two binary searches:
//! over the groups, and over the shards of a group.

use std::num::NonZero;
use std::ops::Range;
use std::sync::Arc;

use slotline::BoxError;
use slotline::rng::{Generator, SharedGenerator};
use slotline::sampler::{
    Cipher, GOLDEN, Order, Sampler, SamplerError, Saved, digest, put, put_generator, with_generator,
};

use super::SequenceError;

/// The sampler's name in errors.
const NAME: &str = "ShardShuffleSampler";

/// A sampler that visits each sample once in random order, but stays within `window` shards at a
/// time. This is for data that is larger than the machine's page cache or its cache of downloads,
/// and for formats that are slow to read at random.
///
/// A shard is a range of indices that are stored together: a file, or a row group of a Parquet
/// file. Each pass puts all shards in a new random order, takes `window` of them at a time, and
/// shuffles the samples of these completely. So a cache needs room for `window` shards, and for as
/// many again if the next ones are to be fetched meanwhile.
///
/// `window` decides how good the shuffle is. With all shards in the window, it is as good as
/// [`RandomSampler`](slotline::sampler::RandomSampler)'s. With a window of 1, consecutive samples
/// are always from the same shard. If the samples of a shard are alike (of one class or one source,
/// for example), use a window of dozens of shards. (Among the shuffle algorithms of Mosaic
/// Streaming, `py1b` with blocks of whole shards is similar, and `py1s` is like a window of 1.)
///
/// ```
/// use slotline::rng::Generator;
/// use slotline::sampler::Sampler;
/// use slotline_sequences::sampler::ShardShuffleSampler;
///
/// // 1000 shards of 50 samples, 8 at a time.
/// let mut sampler = ShardShuffleSampler::new([50; 1000], 8)?.generator(Generator::from_seed(42));
/// let mut shards: Vec<usize> = sampler.indices()?.take(400).map(|index| index / 50).collect();
/// shards.sort();
/// shards.dedup();
/// assert_eq!(shards.len(), 8);
/// # Ok::<(), slotline::BoxError>(())
/// ```
///
/// `shard_lens` of slotline-sources' `Records` returns the lengths of the shards.
///
/// Each pass draws one number from the generator, as torch's `random_()` does, and its order
/// depends only on that number. With
/// [`DistributedSampler::over`](slotline::sampler::DistributedSampler::over), ranks share a pass:
/// at any time all are in the same shards, and each reads some of the samples of every shard. Ranks
/// on one machine can share a cache. A machine with some of the ranks reads all shards; if each
/// machine is to read only some, give each its own files. Computing an index takes about a tenth of
/// a microsecond. A pass takes 20 bytes of memory for each shard and none for the samples.
#[derive(Clone, Debug)]
pub struct ShardShuffleSampler {
    /// For each shard that has samples, its first index and its length.
    shards: Arc<[(usize, usize)]>,
    len: usize,
    window: NonZero<usize>,
    generator: Option<SharedGenerator>,
}

impl ShardShuffleSampler {
    /// Makes a sampler over consecutive shards of these lengths, which shuffles the samples of
    /// `window` shards at a time. It draws from the default generator. There may be no samples.
    ///
    /// # Errors
    ///
    /// [`SequenceError::NoWindow`] if `window` is 0, [`SequenceError::TooLong`] if there are more
    /// samples than a `usize` counts.
    pub fn new(lens: impl IntoIterator<Item = usize>, window: usize) -> Result<Self, SequenceError> {
        let window = NonZero::new(window).ok_or(SequenceError::NoWindow { sampler: NAME })?;
        let (mut len, mut shards) = (0_usize, Vec::new());
        for shard in lens {
            if shard > 0 {
                shards.push((len, shard));
            }
            len = len.checked_add(shard).ok_or(SequenceError::TooLong { sampler: NAME })?;
        }
        Ok(Self { shards: shards.into(), len, window, generator: None })
    }

    /// Sets the generator to draw from: the sampler's own [`Generator`], or a [`SharedGenerator`].
    ///
    /// A clone of the sampler draws from the same generator.
    #[must_use]
    pub fn generator(mut self, generator: impl Into<SharedGenerator>) -> Self {
        self.generator = Some(generator.into());
        self
    }

    fn digest(&self) -> u64 {
        digest(self.shards.iter().map(|&(_, len)| len as u64))
    }
}

/// The order of the shards in one pass.
struct Pass {
    seed: u64,
    shards: Arc<[(usize, usize)]>,
    /// The shards in the order of the pass, each with the position after its last sample.
    order: Vec<(u32, usize)>,
    /// For each group, the index of its first shard in `order`, and the position after the group.
    groups: Vec<(usize, usize)>,
}

impl Pass {
    fn new(shards: &Arc<[(usize, usize)]>, window: NonZero<usize>, seed: u64) -> Self {
        let (n, cipher) = (shards.len(), Cipher::new(shards.len(), seed, 0));
        let mut end = 0;
        let order: Vec<_> = (0..n)
            .map(|position| {
                let shard = cipher.index(position);
                end += shards[shard].1;
                (shard as u32, end)
            })
            .collect();
        let groups = n.div_ceil(window.get());
        // The product of two lengths fits in 128 bits.
        let first = |group: usize| (group as u128 * n as u128 / groups as u128) as usize;
        let groups = (0..groups).map(|group| (first(group), order[first(group + 1) - 1].1)).collect();
        Self { seed, shards: shards.clone(), order, groups }
    }

    fn index(&self, position: usize) -> usize {
        let group = self.groups.partition_point(|&(_, end)| end <= position);
        let (first, end) = self.groups[group];
        let start = group.checked_sub(1).map_or(0, |before| self.groups[before].1);
        let seed = self.seed.wrapping_add((group as u64 + 1).wrapping_mul(GOLDEN));
        let position = start + Cipher::new(end - start, seed, 0).index(position - start);
        let place = first + self.order[first..].partition_point(|&(_, end)| end <= position);
        let (shard, end) = self.order[place];
        let (start, len) = self.shards[shard as usize];
        start + len - (end - position)
    }
}

impl Sampler for ShardShuffleSampler {
    fn len(&self) -> usize {
        self.len
    }

    fn memory(&self) -> usize {
        let groups = self.shards.len().div_ceil(self.window.get());
        self.shards.len() * size_of::<(u32, usize)>() + groups * size_of::<(usize, usize)>()
    }

    fn order(&mut self, default: &mut Generator, order: &mut Order) -> Result<(), SamplerError> {
        let seed = with_generator(self.generator.as_ref(), default, Generator::random_i64) as u64;
        let pass = Pass::new(&self.shards, self.window, seed);
        *order = Order::computed(self.len, self.memory(), move |position| pass.index(position));
        Ok(())
    }

    fn name(&self) -> &str {
        NAME
    }

    fn save(&self, to: &mut String) -> bool {
        put(to, "digest_of_lens", self.digest());
        put(to, "window", self.window);
        put_generator(to, self.generator.as_ref());
        true
    }

    fn restore(&mut self, saved: &str, _: Range<usize>) -> Result<(), BoxError> {
        let saved = Saved { sampler: NAME, text: saved };
        saved.check("digest_of_lens", self.digest())?;
        saved.check("window", self.window)?;
        saved.restore_generator(self.generator.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::order_of;
    use proptest::prelude::*;

    fn shard_of(lens: &[usize], index: usize) -> usize {
        let mut end = 0;
        lens.iter()
            .position(|len| {
                end += len;
                index < end
            })
            .unwrap()
    }

    #[test]
    fn bad_arguments_are_errors_and_no_samples_are_none() {
        let error = ShardShuffleSampler::new([1], 0).unwrap_err().to_string();
        assert!(error.contains("window is 0; set it to the number of shards"), "{error}");
        assert!(ShardShuffleSampler::new([usize::MAX, 1], 1).is_err());
        for lens in [&[][..], &[0, 0]] {
            let mut empty = ShardShuffleSampler::new(lens.iter().copied(), 3).unwrap();
            assert!(order_of(&mut empty, &mut Generator::new()).is_empty());
        }
    }

    #[test]
    fn passes_differ_and_draw_one_number() {
        let mut sampler = ShardShuffleSampler::new([20; 20], 4).unwrap();
        let mut default = Generator::from_seed(3);
        let passes = [(); 2].map(|()| order_of(&mut sampler, &mut default));
        assert_eq!(default.drawn(), 4);
        // Each window has the samples of four shards in random order, and the windows of the second
        // pass have other shards.
        let shards =
            |pass: &[usize]| pass[..80].iter().map(|index| index / 20).collect::<std::collections::BTreeSet<_>>();
        assert_ne!(shards(&passes[0]), shards(&passes[1]));
        let neighbours = passes[0].windows(2).filter(|pair| pair[0] + 1 == pair[1]).count();
        assert!(neighbours < 20, "{neighbours} of 400");
        let same_shard = passes[0].windows(2).filter(|pair| pair[0] / 20 == pair[1] / 20).count();
        assert!((60..140).contains(&same_shard), "{same_shard} of about 100");
    }

    #[test]
    fn all_shards_at_a_time_are_a_whole_shuffle() {
        let mut sampler = ShardShuffleSampler::new([10; 100], usize::MAX).unwrap();
        let order = order_of(&mut sampler, &mut Generator::from_seed(1));
        let early = order[..500].iter().filter(|&&index| index < 500).count();
        assert!((200..300).contains(&early), "{early} of about 250");
    }

    proptest! {
        #[test]
        fn each_sample_comes_once_and_a_window_of_shards_is_in_use(
            lens in proptest::collection::vec(0_usize..30, 0..40), window in 1_usize..50, seed: u64,
        ) {
            let mut sampler = ShardShuffleSampler::new(lens.clone(), window).unwrap();
            let (mut default, mut order) = (Generator::from_seed(seed), Order::default());
            sampler.order(&mut default, &mut order).unwrap();
            prop_assert_eq!((order.len(), order.memory()), (sampler.len(), sampler.memory()));
            let order: Vec<usize> = order.iter().collect();
            let mut sorted = order.clone();
            sorted.sort_unstable();
            prop_assert!(sorted.into_iter().eq(0..lens.iter().sum()));
            // A shard is in use from the position of its first sample to that of its last one.
            let shards: Vec<usize> = order.iter().map(|&index| shard_of(&lens, index)).collect();
            let use_of = |shard| {
                let first = shards.iter().position(|&other| other == shard)?;
                Some(first..=shards.iter().rposition(|&other| other == shard)?)
            };
            let uses: Vec<_> = (0..lens.len()).filter_map(use_of).collect();
            for position in 0..order.len() {
                prop_assert!(uses.iter().filter(|used| used.contains(&position)).count() <= window);
            }
        }
    }
}
