//! [`LengthBatchSampler`]: batches of samples of similar lengths, which differ in size.
//!
//! All R replicas draw the same list of batches, and replica r takes the batches r, r + R, … of the
//! list. So in each step, the replicas take R consecutive batches of the list, which is in random
//! order.

use std::num::NonZero;
use std::ops::Range;
use std::sync::Arc;

use slotline::BoxError;
use slotline::rng::{Generator, SharedGenerator, default_generator};
use slotline::sampler::{
    Order, SampledBatches, Sampler, SamplerError, Saved, Spans, digest, make_room, put, put_generator, with_generator,
};

use super::length_grouped::{checked, digest_of, longest_first};
use super::{SequenceError, permute};

/// The sampler's name in errors.
const NAME: &str = "LengthBatchSampler";

/// The number of batches whose samples are sorted together, the same as in transformers.
const GROUP: usize = 50;

/// A batch sampler that makes batches of samples of similar lengths. The batches differ in size,
/// which is set by a [budget of tokens](Self::token_budget) or by [buckets](Self::buckets) of
/// lengths. Pass it to [`Builder::batch_sampler`](slotline::loader::Builder::batch_sampler).
///
/// Each sample is visited once. The batches come in random order, and each pass has different ones.
///
/// ```
/// use slotline::Loader;
/// use slotline::dataset::from_fn;
/// use slotline::rng::Generator;
/// use slotline_sequences::sampler::LengthBatchSampler;
///
/// let lengths: Vec<usize> = (0..1000).map(|i| 1 + i * 37 % 100).collect();
/// // A batch, padded to its longest sample, has at most 400 tokens.
/// let sampler = LengthBatchSampler::token_budget(lengths.clone(), 400)?.generator(Generator::from_seed(42));
/// let dataset = from_fn(1000, |index, _| Ok(index as i64));
/// let mut loader = Loader::builder(dataset).batch_sampler(sampler).build()?;
/// let mut samples = 0;
/// for batch in loader.epoch()? {
///     let batch = batch?;
///     let longest = batch.indices().iter().map(|&index| lengths[index as usize]).max();
///     assert!(longest.is_some_and(|longest| longest * batch.len() <= 400));
///     samples += batch.len();
/// }
/// assert_eq!(samples, 1000);
/// # Ok::<(), slotline::BoxError>(())
/// ```
///
/// # Ranks
///
/// With [`replicas`](Self::replicas), all ranks draw the same list of batches and share it, and
/// **each rank takes the same number of batches**. If the number of batches is not divisible by the
/// number of ranks, batches from the start of the list are repeated, or some are
/// [dropped](Self::drop_last). All ranks need a generator of their own with the same seed, and must
/// begin the same number of passes. A [state](slotline::loader::Loader::state) of any rank, taken
/// when all had delivered the same number of batches, can be loaded by any number of ranks: the
/// rest of the pass is shared among them. The random numbers that a sample draws do not depend on
/// the number of ranks.
///
/// # Bad samples
///
/// A sample that [replaces](slotline::loader::OnError::Replace) a bad one is not longer than the
/// bad one, so that a batch stays within its budget or its bucket.
///
/// # Memory
///
/// The memory of a batch has room for [`max_batch_size`](Self::max_batch_size) samples, a large
/// number if there are many short samples. For
/// [`PaddedToLongest`](slotline::sample::PaddedToLongest) and [`Packed`](slotline::sample::Packed)
/// fields, whose samples share the room of their batch, declare a maximum length of the budget
/// divided by the maximum batch size, rounded up. The sampler takes up to 36 bytes for each sample.
#[derive(Clone, Debug)]
pub struct LengthBatchSampler {
    lengths: Arc<[u32]>,
    by: By,
    most: usize,
    shuffle: bool,
    drop_last: bool,
    replicas: NonZero<usize>,
    rank: usize,
    generator: Option<SharedGenerator>,
    /// The pass to resume. If there is none, its number of batches is 0.
    resumed: Resumed,
    /// The batches of the last drawn pass.
    spans: Spans,
    /// Buffers for the sorted indices, and for the ranges of the batches among them.
    scratch: Scratch,
}

#[derive(Clone, Debug, Default)]
struct Scratch {
    sorted: Vec<u32>,
    ends: Vec<u32>,
    batches: Vec<u32>,
    sorting: super::length_grouped::Scratch<u32>,
}

/// A pass to resume: each of `replicas` replicas had `position` batches before, and `dealt` batches
/// of the list were distributed in all. [`Spans::after`] gets these numbers.
#[derive(Clone, Copy, Debug, Default)]
struct Resumed {
    position: usize,
    dealt: usize,
    /// The number of replicas before; it may differ from the present number.
    replicas: usize,
}

/// The rule by which samples are grouped into batches.
#[derive(Clone, Debug)]
enum By {
    Tokens { max_tokens: usize, padded: bool },
    Buckets { boundaries: Arc<[usize]>, sizes: Arc<[usize]> },
}

impl LengthBatchSampler {
    /// Makes batches of as many samples as possible with at most `max_tokens` tokens. By default,
    /// the tokens include the padding to the longest sample of the batch (see
    /// [`padded`](Self::padded)). The sampler draws from the default generator.
    ///
    /// For each pass, a permutation of the samples is cut into groups of about 50 batches, and each
    /// group is sorted from long to short and cut into batches.
    ///
    /// # Errors
    ///
    /// [`SequenceError::TokenBudget`] if a sample is longer than `max_tokens`,
    /// [`SequenceError::Length`] if a length is 2³² or more, [`SequenceError::TooLong`] if there
    /// are more than 2³² - 1 samples.
    pub fn token_budget(lengths: impl IntoIterator<Item = usize>, max_tokens: usize) -> Result<Self, SequenceError> {
        let made = Self::new(lengths, By::Tokens { max_tokens, padded: true })?;
        if let Some(index) = made.lengths.iter().position(|&length| length as usize > max_tokens) {
            let length = made.lengths[index] as usize;
            return Err(SequenceError::TokenBudget { sampler: NAME, index, length, max_tokens });
        }
        Ok(made.sized())
    }

    /// Makes batches from buckets of lengths. Bucket i has the samples whose lengths are at least
    /// `boundaries[i - 1]` and less than `boundaries[i]`, in batches of `batch_sizes[i]`. So there
    /// is one batch size more than boundaries (as in TensorFlow's `bucket_by_sequence_length`). The
    /// sampler draws from the default generator.
    ///
    /// The last batch of a bucket may be smaller.
    ///
    /// # Errors
    ///
    /// [`SequenceError::Buckets`] if the number of batch sizes is not the number of boundaries plus
    /// 1 or the boundaries do not ascend, [`SamplerError::NoBatchSize`] if a batch size is 0,
    /// [`SequenceError::Length`] if a length is 2³² or more, [`SequenceError::TooLong`] if there
    /// are more than 2³² - 1 samples.
    pub fn buckets(
        lengths: impl IntoIterator<Item = usize>,
        boundaries: impl IntoIterator<Item = usize>,
        batch_sizes: impl IntoIterator<Item = usize>,
    ) -> Result<Self, SequenceError> {
        let boundaries: Arc<[usize]> = boundaries.into_iter().collect();
        let sizes: Arc<[usize]> = batch_sizes.into_iter().collect();
        if sizes.len() != boundaries.len() + 1 || !boundaries.is_sorted_by(|a, b| a < b) {
            let boundaries = boundaries.to_vec();
            return Err(SequenceError::Buckets { sampler: NAME, boundaries, batch_sizes: sizes.len() });
        }
        if sizes.contains(&0) {
            return Err(SamplerError::NoBatchSize { sampler: NAME }.into());
        }
        Ok(Self::new(lengths, By::Buckets { boundaries, sizes })?.sized())
    }

    fn new(lengths: impl IntoIterator<Item = usize>, by: By) -> Result<Self, SequenceError> {
        let lengths = checked(NAME, lengths)?;
        if lengths.len() >= u32::MAX as usize {
            return Err(SequenceError::TooLong { sampler: NAME });
        }
        Ok(Self {
            lengths,
            by,
            most: usize::MAX,
            shuffle: true,
            drop_last: false,
            replicas: NonZero::<usize>::MIN,
            rank: 0,
            generator: None,
            resumed: Resumed::default(),
            spans: Spans::default(),
            scratch: Scratch::default(),
        })
    }

    /// Sets whether the budget includes the padding of a batch whose samples are padded to the
    /// longest; true by default. Otherwise it counts only the samples' own tokens, which is right
    /// for batches that are packed. This has no effect on buckets.
    #[must_use]
    pub fn padded(mut self, count_padding: bool) -> Self {
        if let By::Tokens { padded, .. } = &mut self.by {
            *padded = count_padding;
        }
        self.most = usize::MAX;
        self.sized()
    }

    /// Limits the number of samples of a batch, which is otherwise large for short samples. By
    /// default only the budget or the buckets' batch sizes limit it.
    ///
    /// # Errors
    ///
    /// [`SamplerError::NoBatchSize`] if `samples` is 0.
    pub fn limit(mut self, samples: usize) -> Result<Self, SamplerError> {
        if samples == 0 {
            return Err(SamplerError::NoBatchSize { sampler: NAME });
        }
        self.most = self.most.min(samples);
        Ok(self)
    }

    /// Sets whether batches are drawn at random; true by default. If false, which is useful for
    /// evaluation, the generator is not used: with a token budget, the samples are taken from the
    /// longest to the shortest, and with buckets, in the dataset's order.
    #[must_use]
    pub fn shuffle(mut self, shuffle: bool) -> Self {
        self.shuffle = shuffle;
        self
    }

    /// Gives this sampler the batches of rank `rank` out of `num_replicas`; by default it makes all
    /// of them.
    ///
    /// # Errors
    ///
    /// [`SamplerError::NoReplicas`] if `num_replicas` is 0, [`SamplerError::Rank`] if `rank` is not
    /// below it.
    pub fn replicas(mut self, num_replicas: usize, rank: usize) -> Result<Self, SamplerError> {
        self.replicas = NonZero::new(num_replicas).ok_or(SamplerError::NoReplicas { sampler: NAME })?;
        if rank >= num_replicas {
            return Err(SamplerError::Rank { sampler: NAME, rank, num_replicas });
        }
        self.rank = rank;
        Ok(self)
    }

    /// Sets whether batches at the end of the list are dropped if their number is not divisible by
    /// the number of ranks. If false, which is the default, batches from the start are repeated
    /// instead.
    #[must_use]
    pub fn drop_last(mut self, drop_last: bool) -> Self {
        self.drop_last = drop_last;
        self
    }

    /// Sets the generator to draw from: the sampler's own [`Generator`], or a [`SharedGenerator`].
    ///
    /// A clone of the sampler draws from the same generator.
    #[must_use]
    pub fn generator(mut self, generator: impl Into<SharedGenerator>) -> Self {
        self.generator = Some(generator.into());
        self
    }

    /// Returns the maximum number of samples of a batch; at least 1.
    pub fn max_batch_size(&self) -> usize {
        self.most.max(1)
    }

    /// Draws the next pass, and returns its batches as lists of indices. Locks the process's
    /// default generator while drawing.
    ///
    /// # Errors
    ///
    /// If the memory cannot be allocated, or there are [replicas](Self::replicas) and no generator
    /// was set.
    pub fn batches(&mut self) -> Result<Vec<Vec<usize>>, SamplerError> {
        let mut order = Order::default();
        self.draw(&mut default_generator(), &mut order)?;
        let batch = |task| self.spans.of(task).map(|position| order.index(position)).collect();
        Ok((0..self.spans.len()).map(batch).collect())
    }

    /// Sets the maximum number of samples of a batch to what the budget or the buckets allow. For a
    /// budget, k samples have at least as many tokens as the k shortest ones.
    fn sized(mut self) -> Self {
        let most = match &self.by {
            &By::Tokens { max_tokens, padded } => {
                let mut sorted = self.lengths.to_vec();
                sorted.sort_unstable();
                let mut sum = 0;
                let fits = |(before, &length): (usize, &u32)| {
                    sum += length as usize;
                    (if padded { length as usize * (before + 1) } else { sum }) <= max_tokens
                };
                sorted.iter().enumerate().map(fits).take_while(|&fits| fits).count()
            }
            By::Buckets { sizes, .. } => sizes.iter().copied().max().unwrap_or(1).min(self.lengths.len()),
        };
        self.most = self.most.min(most);
        self
    }

    /// Returns the number of samples that are sorted together.
    fn group(&self, max_tokens: usize) -> usize {
        let n = self.lengths.len();
        if !self.shuffle {
            return n.max(1);
        }
        let tokens: u128 = self.lengths.iter().map(|&length| u128::from(length)).sum();
        // The average number of samples of a batch.
        let batch = (max_tokens as u128 * n as u128).checked_div(tokens).unwrap_or(n as u128);
        let batch = (batch as usize).clamp(1, self.most.max(1));
        batch.saturating_mul((n / batch.saturating_mul(4)).clamp(1, GROUP))
    }

    /// Sorts the indices of the next pass into batches, in `scratch`.
    fn cut(&self, scratch: &mut Scratch, generator: &mut Generator) -> Result<(), SamplerError> {
        let n = self.lengths.len();
        let Scratch { sorted, ends, sorting, .. } = scratch;
        self.list(generator, n, sorted)?;
        ends.clear();
        let length = |index: &u32| self.lengths[*index as usize] as usize;
        match &self.by {
            &By::Tokens { max_tokens, padded } => {
                let group = self.group(max_tokens);
                for (number, group) in sorted.chunks_mut(group).enumerate().map(|(i, chunk)| (i * group, chunk)) {
                    longest_first(group, |index| self.lengths[*index as usize], sorting);
                    let (mut start, mut longest, mut sum) = (0, 0, 0);
                    for (at, index) in group.iter().enumerate() {
                        let (samples, own) = (at - start + 1, length(index));
                        let tokens = if padded { longest.max(own) * samples } else { sum + own };
                        if samples > 1 && (tokens > max_tokens || samples > self.most) {
                            ends.push((number + at) as u32);
                            (start, longest, sum) = (at, 0, 0);
                        }
                        (longest, sum) = (longest.max(own), sum + own);
                    }
                    ends.push((number + group.len()) as u32);
                }
            }
            By::Buckets { boundaries, sizes } => {
                let bucket = |index: &u32| boundaries.partition_point(|&boundary| boundary <= length(index));
                sorted.sort_by_key(bucket);
                let mut start = 0;
                for samples in sorted.chunk_by(|a, b| bucket(a) == bucket(b)) {
                    let size = sizes[bucket(&samples[0])].min(self.most);
                    let last = start + samples.len();
                    ends.extend((start..last).step_by(size).map(|first| (first + size).min(last) as u32));
                    start = last;
                }
            }
        }
        Ok(())
    }

    /// Fills `table` with 0 .. `n`, in random order if batches are drawn at random.
    fn list(&self, generator: &mut Generator, n: usize, table: &mut Vec<u32>) -> Result<(), SamplerError> {
        if self.shuffle {
            return permute(NAME, generator, n, table);
        }
        make_room(NAME, table, n)?;
        table.extend(0..n as u32);
        Ok(())
    }

    /// Draws the next pass: writes all samples of the list of batches to `order`, and this
    /// replica's batches to `spans`.
    fn draw(&mut self, default: &mut Generator, order: &mut Order) -> Result<(), SamplerError> {
        if self.shuffle && self.replicas.get() > 1 && self.generator.is_none() {
            return Err(SequenceError::ReplicasWithoutGenerator { sampler: NAME }.into());
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut ends = std::mem::take(&mut self.spans).into_ends();
        let table = order.u32_table();
        make_room(NAME, table, self.lengths.len())?;
        let drawn: Result<usize, SamplerError> = with_generator(self.generator.as_ref(), default, |generator| {
            self.cut(&mut scratch, generator)?;
            let batches = scratch.ends.len();
            self.list(generator, batches, &mut scratch.batches)?;
            Ok(batches)
        });
        let batches = drawn?;
        make_room(NAME, &mut ends, batches)?;
        for &batch in &scratch.batches {
            let batch = batch as usize;
            let start = batch.checked_sub(1).map_or(0, |before| scratch.ends[before]);
            table.extend_from_slice(&scratch.sorted[start as usize..scratch.ends[batch] as usize]);
            ends.push(table.len() as u32);
        }
        self.scratch = scratch;
        let Resumed { position, dealt, replicas } = std::mem::take(&mut self.resumed);
        // At the end of a pass, each of the replicas may have been given one repeated batch.
        if dealt >= batches.saturating_add(replicas.max(1)) {
            let error = format!("{NAME}: the state's pass had {dealt} batches or more, but there are {batches}");
            return Err(BoxError::from(error).into());
        }
        self.spans = Spans::new(ends).replicas(self.replicas, self.rank, self.drop_last).after(position, dealt);
        Ok(())
    }
}

/// The sampler that a loader uses with these batches. It is a separate type, since its indices have
/// no use without the batches.
struct Planned(LengthBatchSampler);

impl From<LengthBatchSampler> for SampledBatches {
    fn from(sampler: LengthBatchSampler) -> Self {
        let most = sampler.max_batch_size();
        Self::planned(Planned(sampler), most)
    }
}

impl Sampler for Planned {
    /// Returns the number of samples of all replicas.
    fn len(&self) -> usize {
        self.0.lengths.len()
    }

    fn memory(&self) -> usize {
        // Three terms: the order and the sorted indices; the buffer for sorting; the ends of the
        // batches of the pass, and of the sorted batches with their order. A batch has at least one
        // sample.
        self.0.lengths.len().saturating_mul(2 * size_of::<u32>() + 12 + 3 * size_of::<u32>())
    }

    fn order(&mut self, default: &mut Generator, order: &mut Order) -> Result<(), SamplerError> {
        self.0.draw(default, order)
    }

    fn spans(&self) -> Option<Spans> {
        Some(self.0.spans.clone())
    }

    fn lengths(&self) -> Option<Arc<[u32]>> {
        Some(self.0.lengths.clone())
    }

    fn name(&self) -> &str {
        NAME
    }

    fn save(&self, to: &mut String) -> bool {
        put(to, "digest_of_lengths", digest_of(&self.0.lengths));
        match &self.0.by {
            By::Tokens { max_tokens, padded } => {
                put(to, "max_tokens", max_tokens);
                put(to, "padded", padded);
            }
            By::Buckets { boundaries, sizes } => {
                let both = boundaries.iter().chain(&sizes[..]).map(|&number| number as u64);
                put(to, "digest_of_buckets", digest(both));
            }
        }
        put(to, "max_batch_size", self.0.most);
        put(to, "shuffle", self.0.shuffle);
        put(to, "drop_last", self.0.drop_last);
        put(to, "num_replicas", self.0.replicas);
        put(to, "position", self.0.resumed.position);
        put(to, "dealt", self.0.resumed.dealt);
        put_generator(to, self.0.generator.as_ref());
        true
    }

    /// `seen` counts batches, not samples.
    fn restore(&mut self, saved: &str, seen: Range<usize>) -> Result<(), BoxError> {
        let saved = Saved { sampler: NAME, text: saved };
        saved.check("digest_of_lengths", digest_of(&self.0.lengths))?;
        match &self.0.by {
            By::Tokens { max_tokens, padded } => {
                saved.check("max_tokens", max_tokens)?;
                saved.check("padded", padded)?;
            }
            By::Buckets { boundaries, sizes } => {
                let both = boundaries.iter().chain(&sizes[..]).map(|&number| number as u64);
                saved.check("digest_of_buckets", digest(both))?;
            }
        }
        saved.check("max_batch_size", self.0.most)?;
        saved.check("shuffle", self.0.shuffle)?;
        saved.check("drop_last", self.0.drop_last)?;
        let replicas: NonZero<usize> = saved.get("num_replicas")?;
        let (position, dealt) = (saved.get("position")?, saved.get("dealt")?);
        // A pass has no more batches than samples, besides those that are repeated at its end.
        if position > dealt
            || dealt > self.0.lengths.len().saturating_add(replicas.get())
            || (position == 0) != (dealt == 0)
        {
            return Err(saved.impossible("dealt", dealt, "that contradicts the saved position"));
        }
        if seen.start < position {
            return Err(saved.impossible("position", position, "fewer batches were delivered"));
        }
        let mut resumed = Resumed { position, dealt, replicas: replicas.get() };
        if seen.start == seen.end {
            let given = (seen.end - position).saturating_mul(replicas.get());
            (resumed.position, resumed.dealt) = (seen.end, dealt.saturating_add(given));
        } else if replicas != self.0.replicas {
            let reason = "another number of replicas can resume only if no batch was skipped (in_order)";
            return Err(saved.impossible("num_replicas", replicas, reason));
        }
        saved.restore_generator(self.0.generator.as_ref())?;
        self.0.resumed = resumed;
        Ok(())
    }

    fn restart(&mut self) {
        self.0.resumed = Resumed::default();
    }
}
