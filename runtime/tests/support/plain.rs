//! A plain loop with which loaders are compared: one thread, no prefetching, written from torch's
//! rules and independently of the loader's code. The fuzz targets include this file, too.
#![allow(dead_code)] // Each test binary uses only a part of it.

use std::ops::Range;

use slotline::rng::rand_core::Rng;
use slotline::rng::{Generator, SampleRng};

/// A loop's random numbers: it makes the same draws from a generator as the passes of a loader, in
/// the same order.
pub(crate) struct Plain {
    generator: Generator,
    /// The base seed of all passes if the workers are persistent, drawn when the first pass begins;
    /// `None` until then.
    base: Option<u64>,
    persistent: bool,
    epoch: u32,
}

impl Plain {
    pub(crate) fn new(seed: u64, persistent: bool) -> Self {
        Self { generator: Generator::from_seed(seed), base: None, persistent, epoch: 0 }
    }

    /// Returns a loop that begins with pass `epoch`, with a generator of this seed from which
    /// `words` words were drawn before.
    pub(crate) fn after(seed: u64, words: u64, epoch: u32) -> Self {
        let mut plain = Self { epoch, ..Self::new(seed, false) };
        plain.generator.discard(words);
        plain
    }

    /// Begins the next pass, and returns its seeds.
    pub(crate) fn pass(&mut self) -> Seeds {
        let base = match self.base.filter(|_| self.persistent) {
            Some(base) => base,
            None => *self.base.insert(self.generator.random_i64() as u64),
        };
        self.epoch += 1;
        Seeds { base, epoch: self.epoch - 1 }
    }

    /// Draws a permutation of the indices below `len`, as torch's `RandomSampler` does.
    pub(crate) fn shuffled(&mut self, len: usize) -> Vec<usize> {
        let mut order = Vec::<u64>::new();
        self.generator.randperm_into(len, &mut order).expect("a small permutation");
        // torch draws a second permutation, of which a whole pass uses nothing.
        self.generator.randperm_into(len, &mut Vec::<u64>::new()).expect("a small permutation");
        order.into_iter().map(|index| index as usize).collect()
    }
}

/// The seeds that determine the random numbers of the samples of a pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seeds {
    pub(crate) base: u64,
    pub(crate) epoch: u32,
}

impl Seeds {
    /// Returns the seeds of a worker that makes its own pass over an iterable dataset.
    pub(crate) fn of_worker(self, worker: usize) -> Self {
        Self { base: self.base.wrapping_add(worker as u64), ..self }
    }

    /// Returns the first random word of the sample at a position of the pass.
    pub(crate) fn word(self, position: usize) -> u64 {
        SampleRng::new(self.base, self.epoch, position as u64).next_u64()
    }
}

/// Divides a sequence into batches of `size`.
pub(crate) fn batches<T: Clone>(samples: &[T], size: usize, drop_last: bool) -> Vec<Vec<T>> {
    samples.chunks(size).filter(|batch| !drop_last || batch.len() == size).map(<[T]>::to_vec).collect()
}

/// Returns the range that a worker reads of an iterable dataset of `len` samples. If `workers` is
/// 0, the calling thread reads the whole range.
pub(crate) fn share(worker: usize, workers: usize, len: usize) -> Range<usize> {
    let each = len.div_ceil(workers.max(1));
    len.min(worker * each)..len.min((worker + 1) * each)
}

/// Takes one item of each sequence in turn, until all sequences have ended.
pub(crate) fn in_turn<T>(sequences: impl IntoIterator<Item = impl IntoIterator<Item = T>>) -> Vec<T> {
    let mut sequences: Vec<_> = sequences.into_iter().map(IntoIterator::into_iter).collect();
    let mut all = Vec::new();
    loop {
        let before = all.len();
        all.extend(sequences.iter_mut().filter_map(Iterator::next));
        if all.len() == before {
            return all;
        }
    }
}
