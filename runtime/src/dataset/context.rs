//! [`Context`], which a dataset receives together with the index of a sample. It provides per-sample
//! random numbers, and memory that is reused.

use std::any::Any;
use std::fmt;

use crate::dataset::StopToken;
use crate::dtype::{DType, Element};
use crate::rng::SampleRng;
use crate::rng::rand_core::Rng;
use crate::sampler::ReplicaStride;

/// The state that a thread keeps while it reads samples.
///
/// The random numbers are a function of the loader's seed, the epoch and the sample's position in
/// the pass. They are the same for any number of workers and, with
/// [`DistributedSampler`](crate::sampler::DistributedSampler), of replicas. The memory belongs to
/// the thread and is reused from sample to sample.
///
/// The default context, for reading a dataset without a loader, is at position 0 of epoch 0 with seed 0.
#[derive(Default)]
pub struct Context {
    seed: u64,
    epoch: u32,
    position: u64,
    /// The positions of the samples of the current bulk read.
    together: ReplicaStride,
    worker: Option<usize>,
    /// Tells whether the sample is still needed; `None` outside of a loader.
    stop: Option<StopToken>,
    rng: Option<SampleRng>,
    /// The memory of [`buffer`](Self::buffer), in 64-bit words for alignment.
    buffer: Vec<u64>,
    locals: Vec<Box<dyn Any + Send>>,
    /// The contexts that [`parts`](Self::parts) and [`part`](Self::part) have made so far. Each is at
    /// the same sample as this context.
    parts: Vec<Context>,
}

impl Context {
    pub(crate) fn new(worker: Option<usize>, stop: Option<StopToken>) -> Self {
        Self { worker, stop, ..Self::default() }
    }

    /// Starts a sample of a pass. Sets every field each time, as the dataset may have replaced the
    /// context with another one.
    #[inline]
    pub(crate) fn start(&mut self, seed: u64, epoch: u32, position: u64) {
        if !self.parts.is_empty() {
            self.start_pass(seed, epoch);
        }
        (self.seed, self.epoch) = (seed, epoch);
        self.start_sample(position);
    }

    /// Starts a bulk read of several samples.
    pub(crate) fn start_many(&mut self, seed: u64, epoch: u32, together: ReplicaStride) {
        self.start(seed, epoch, together.first);
        self.set_together(together);
    }

    /// Sets the pass that the following samples belong to.
    pub(crate) fn start_pass(&mut self, seed: u64, epoch: u32) {
        (self.seed, self.epoch) = (seed, epoch);
        for (i, part) in self.parts.iter_mut().enumerate() {
            part.start_pass(part_seed(seed, i), epoch);
        }
    }

    /// Starts a sample.
    #[inline]
    pub(crate) fn start_sample(&mut self, position: u64) {
        (self.position, self.together.first) = (position, position);
        self.rng = None;
        if !self.parts.is_empty() {
            self.start_parts(position);
        }
    }

    #[inline(never)]
    fn start_parts(&mut self, position: u64) {
        self.parts.iter_mut().for_each(|part| part.start_sample(position));
    }

    /// Moves to sample `number`, counted from 0, of a [bulk read](super::Dataset::get_many). The
    /// position is then that sample's, and its random numbers start from the beginning.
    pub fn go_to(&mut self, number: usize) {
        let together = self.together;
        self.start_sample(together.of(number));
        self.set_together(together);
    }

    /// Calls `read` to read some samples of a bulk read, with this context renumbered: sample 0 of
    /// `read` is sample `first` of the bulk read. Restores the numbering afterwards.
    pub(crate) fn with_samples_from<T>(&mut self, first: usize, read: impl FnOnce(&mut Self) -> T) -> T {
        let together = self.together;
        self.go_to(first);
        self.set_together(together.from(first));
        let outcome = read(self);
        self.set_together(together);
        outcome
    }

    fn set_together(&mut self, together: ReplicaStride) {
        self.together = together;
        self.parts.iter_mut().for_each(|part| part.set_together(together));
    }

    /// Returns this sample's random numbers. A second call continues the sequence.
    #[inline]
    pub fn rng(&mut self) -> &mut SampleRng {
        self.rng.get_or_insert_with(|| SampleRng::new(self.seed, self.epoch, self.position))
    }

    /// Returns the sample's position in the pass, from 0; for a [replica](crate::sampler::DistributedSampler), in the
    /// pass over all replicas.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Returns the number of passes that the loader made before this one.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Returns the number of the worker that reads the sample; `None` on the consumer's thread.
    pub fn worker(&self) -> Option<usize> {
        self.worker
    }

    /// Returns a token that tells whether the sample is still needed, so that reading it can stop
    /// early.
    pub fn stop(&mut self) -> &StopToken {
        self.stop.get_or_insert_default()
    }

    /// Returns memory for `len` elements, with arbitrary contents. Allocates only if `len` is
    /// larger than in all calls before.
    ///
    /// # Panics
    ///
    /// Panics if the memory cannot be allocated. A loader treats that like any other [error](crate::loader::OnError) of a
    /// sample.
    pub fn buffer<T: Element>(&mut self, len: usize) -> &mut [T] {
        let words = len.saturating_mul(size_of::<T>()).div_ceil(size_of::<u64>());
        if let Some(more) = words.checked_sub(self.buffer.len()) {
            let reserved = self.buffer.try_reserve_exact(more);
            assert!(reserved.is_ok(), "cannot allocate {} bytes for a buffer", words.saturating_mul(size_of::<u64>()));
            self.buffer.resize(words, 0);
        }
        if T::DTYPE == DType::Bool {
            self.buffer[..words].fill(0);
        }
        // SAFETY: the words hold at least `len` elements, are aligned for any element type, and are initialised. Any
        // bits are a value of every element type except bool, for which they are zero.
        unsafe { std::slice::from_raw_parts_mut(self.buffer.as_mut_ptr().cast(), len) }
    }

    /// Returns this thread's value of type `T`, such as a decoder, a file handle or a buffer. It is
    /// made on first use and kept.
    pub fn local<T: Default + Send + 'static>(&mut self) -> &mut T {
        let known = self.locals.iter().position(|local| local.is::<T>());
        let at = known.unwrap_or_else(|| {
            self.locals.push(Box::<T>::default());
            self.locals.len() - 1
        });
        self.locals[at].downcast_mut().expect("was found by its type")
    }

    /// Returns contexts for `N` parts of the sample, so that each part can be read from a separate
    /// dataset while the other parts exist.
    ///
    /// Each part has its own memory and random numbers. What part `i` draws depends only on the seed, the epoch, the
    /// position and `i`, and is independent of the other parts and of this context's [`rng`](Self::rng). The parts are
    /// made on first use and kept; a second call for the same sample returns the same ones, which continue their random
    /// numbers.
    ///
    /// ```
    /// use slotline::BoxError;
    /// use slotline::dataset::{Context, Dataset};
    ///
    /// /// Questions and their answers, from two datasets of equal length.
    /// struct Pairs<Q, A> {
    ///     questions: Q,
    ///     answers: A,
    /// }
    ///
    /// impl<Q: Dataset, A: Dataset> Dataset for Pairs<Q, A> {
    ///     type Sample<'a> = (Q::Sample<'a>, A::Sample<'a>); // or a struct of yours
    ///
    ///     fn len(&self) -> usize {
    ///         self.questions.len()
    ///     }
    ///
    ///     fn get<'a>(&'a self, index: usize, cx: &'a mut Context) -> Result<Self::Sample<'a>, BoxError> {
    ///         let [question, answer] = cx.parts();
    ///         Ok((self.questions.get(index, question)?, self.answers.get(index, answer)?))
    ///     }
    /// }
    /// ```
    #[inline]
    pub fn parts<const N: usize>(&mut self) -> &mut [Self; N] {
        while self.parts.len() < N {
            self.add_part();
        }
        self.parts.first_chunk_mut().expect("at least N parts were made")
    }

    /// Returns the context for part `i` of the sample; see [`parts`](Self::parts). For samples
    /// whose parts are read one after another, and whose number of parts is known only at run time.
    #[inline]
    pub fn part(&mut self, i: usize) -> &mut Self {
        while self.parts.len() <= i {
            self.add_part();
        }
        &mut self.parts[i]
    }

    #[cold]
    fn add_part(&mut self) {
        let mut part = Self::new(self.worker, self.stop.clone());
        part.start_pass(part_seed(self.seed, self.parts.len()), self.epoch);
        (part.position, part.together) = (self.position, self.together);
        self.parts.push(part);
    }
}

/// Returns the seed of part `i`: the first number of the per-sample generator with `i` as the epoch,
/// at a position that no pass reaches.
fn part_seed(seed: u64, i: usize) -> u64 {
    SampleRng::new(seed, i as u32, u64::MAX).next_u64()
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("epoch", &self.epoch)
            .field("position", &self.position)
            .field("worker", &self.worker)
            .finish_non_exhaustive()
    }
}

/// Memory for the indices of bulk reads: one list for each nested read, as a subset may contain a
/// subset.
#[derive(Default)]
pub(super) struct Scratch(pub(super) Vec<Vec<usize>>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_numbers_belong_to_the_sample() {
        let mut cx = Context::default();
        cx.start_pass(7, 1);
        cx.start_sample(3);
        let drawn = [cx.rng().next_u64(), cx.rng().next_u64()];
        assert_ne!(drawn[0], drawn[1]);
        cx.start_sample(4);
        assert_ne!(cx.rng().next_u64(), drawn[0]);
        let mut other = Context::new(Some(5), None);
        other.start_pass(7, 1);
        other.start_sample(3);
        assert_eq!([other.rng().next_u64(), other.rng().next_u64()], drawn);
    }

    #[test]
    fn samples_that_are_read_together_have_separate_numbers() {
        let draw = |cx: &mut Context| {
            let [a, b] = cx.parts();
            let parts = [a.rng().next_u64(), b.rng().next_u64()];
            (cx.position(), cx.rng().next_u64(), parts)
        };
        let mut alone = Context::default();
        alone.start_pass(7, 1);
        let mut together = Context::default();
        together.start_pass(7, 1);
        together.start_sample(20);
        for sample in [2, 0, 1, 1] {
            alone.start_sample(20 + sample as u64);
            together.go_to(sample);
            assert_eq!(draw(&mut together), draw(&mut alone));
        }
        // The context of a part numbers the samples of the bulk read as its parent does.
        let [part] = together.parts();
        part.go_to(2);
        assert_eq!(part.position(), 22);
    }

    #[test]
    fn memory_is_reused() {
        let mut cx = Context::default();
        let address = cx.buffer::<f64>(100).as_ptr() as usize;
        cx.buffer::<u8>(800).fill(255);
        assert_eq!(cx.buffer::<u16>(400).as_ptr() as usize, address);
        assert!(cx.buffer::<bool>(800).iter().all(|&b| !b));
        cx.local::<Vec<String>>().push("kept".into());
        *cx.local::<u32>() += 1;
        assert_eq!((cx.local::<Vec<String>>().len(), *cx.local::<u32>()), (1, 1));
    }

    #[test]
    fn parts_have_separate_numbers_for_each_sample() {
        let draw = |cx: &mut Context| {
            let [a, b] = cx.parts();
            let (first, second) = (a.rng().next_u64(), b.rng().next_u64());
            let [within] = b.parts();
            ([first, second, within.rng().next_u64()], cx.rng().next_u64())
        };
        let mut used = Context::new(Some(3), None);
        let mut seen = std::collections::HashSet::new();
        for (seed, epoch, position) in [(7, 0, 0), (7, 0, 1), (7, 1, 1), (8, 1, 1)] {
            used.start_pass(seed, epoch);
            used.start_sample(position);
            let drawn = draw(&mut used);
            let mut fresh = Context::default();
            fresh.start_pass(seed, epoch);
            fresh.start_sample(position);
            assert_eq!(drawn, draw(&mut fresh), "the age of the parts does not matter");
            let [a, _] = used.parts();
            assert_eq!((a.position(), a.epoch(), a.worker()), (position, epoch, Some(3)));
            assert_ne!(a.rng().next_u64(), drawn.0[0], "a second call continues the sequence");
            seen.extend(drawn.0);
            seen.insert(drawn.1);
        }
        assert_eq!(seen.len(), 4 * 4);
    }

    #[test]
    fn a_part_by_number_is_the_same_as_one_of_several() {
        let draw = |cx: &mut Context| cx.rng().next_u64();
        let (mut alone, mut together) = (Context::default(), Context::default());
        for cx in [&mut alone, &mut together] {
            cx.start_pass(7, 1);
            cx.start_sample(20);
        }
        let drawn: Vec<u64> = together.parts::<3>().iter_mut().map(draw).collect();
        assert_eq!([2, 0, 1].map(|i| draw(alone.part(i))), [drawn[2], drawn[0], drawn[1]]);
    }

    #[test]
    fn parts_have_separate_memory_and_keep_it() {
        let mut cx = Context::default();
        let [a, b] = cx.parts();
        let (ours, theirs) = (a.buffer::<u8>(8), b.buffer::<u8>(8));
        ours.fill(1);
        theirs.fill(2);
        assert_eq!((ours[0], theirs[0]), (1, 2));
        let start = ours.as_ptr();
        cx.start_sample(1);
        let [a, _, _] = cx.parts();
        assert_eq!(a.buffer::<u8>(8).as_ptr(), start);
        let [] = cx.parts();
    }
}
