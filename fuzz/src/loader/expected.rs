//! The expected results of each pass, computed by a plain loop in one thread, without prefetching.

use slotline::loader::{Budget, OnError};
use slotline::rng::SampleRng;
use slotline::rng::rand_core::Rng;

use super::received::{self, Failed, Fault, Received, Sample};
use super::what::{From, What};
use crate::plain::{self, Plain, Seeds};

/// The number of substitutes that the loader tries for a bad sample.
const SUBSTITUTES: usize = 8;

/// Computes the expected results of each pass in turn.
pub(super) struct Expected<'w> {
    what: &'w What,
    plain: Plain,
}

impl<'w> Expected<'w> {
    pub(super) fn new(what: &'w What) -> Self {
        Self { what, plain: Plain::new(what.seed, what.persistent) }
    }

    /// Returns all results of the next pass, in order.
    pub(super) fn pass(&mut self) -> Vec<Received> {
        let seeds = self.plain.pass();
        let (batches, samples) = self.batches(seeds.epoch);
        let pass = Pass { what: self.what, seeds, budget: budget(self.what.on_error, samples) };
        if let From::Stream(workers) = self.what.from {
            return pass.stream(workers);
        }
        let (mut received, mut position, mut bad) = (Vec::new(), 0, 0);
        for (task, indices) in batches.iter().enumerate() {
            received.extend(pass.batch(task, indices, position, &mut bad));
            position += indices.len();
        }
        received
    }

    /// Returns the indices of a pass in batches, and the number of its samples.
    fn batches(&mut self, epoch: u32) -> (Vec<Vec<usize>>, usize) {
        let What { batch_size, drop_last, from, items, .. } = self.what;
        let indices: Vec<usize> = match from {
            From::Lists(lists) => return (lists.clone(), 0),
            From::Stream(_) => return (Vec::new(), 0),
            From::Sequential => (0..items.faults.len()).collect(),
            From::Indices(indices) => What::rotated(indices, epoch as usize).collect(),
            From::Shuffle => self.plain.shuffled(items.faults.len()),
        };
        let batches = plain::batches(&indices, batch_size.unwrap_or(1), *drop_last);
        let samples = batches.iter().map(Vec::len).sum();
        (batches, samples)
    }
}

/// Returns the number of bad samples that a pass of `samples` samples may have.
fn budget(on_error: OnError, samples: usize) -> usize {
    let budget = match on_error {
        OnError::Skip(budget) | OnError::Replace(budget) => budget,
        _ => return 0,
    };
    match budget {
        Budget::Samples(most) => most,
        // The share is a multiple of 1/255, so the calculation is exact.
        Budget::Share(share) => (share * 255.0).round() as usize * samples / 255,
        other => unreachable!("{other:?} was not chosen"),
    }
}

struct Pass<'w> {
    what: &'w What,
    seeds: Seeds,
    budget: usize,
}

impl Pass<'_> {
    fn fault(&self, index: usize) -> Option<Fault> {
        self.what.items.faults.get(index).copied().unwrap_or(Some(Fault::Error))
    }

    fn sample(&self, index: usize, position: usize) -> Sample {
        Sample { index, word: self.seeds.word(position) }
    }

    /// Returns the index that replaces the bad sample at `position` after `attempt` other
    /// substitutes were bad, too.
    fn substitute(&self, position: usize, attempt: usize) -> usize {
        let key = SampleRng::new(self.seeds.base, 0, u64::MAX - 1).next_u64();
        let mut rng = SampleRng::new(key, self.seeds.epoch, position as u64);
        let word = (0..=attempt).fold(0, |_, _| rng.next_u64());
        ((u128::from(word) * self.what.items.faults.len() as u128) >> 64) as usize
    }

    /// Returns the result of a batch whose first sample is at position `first`, or `None` if all its samples were skipped.
    fn batch(&self, task: usize, indices: &[usize], first: usize, bad: &mut usize) -> Option<Received> {
        let (mut samples, mut bads, mut failure) = (Vec::new(), Vec::new(), None);
        'rows: for (row, &wanted) in indices.iter().enumerate() {
            let (position, mut index, mut tried) = (first + row, wanted, 0);
            while let Some(fault) = self.fault(index) {
                let failed = Failed { index, position, fault };
                if self.what.on_error == OnError::Raise {
                    failure = Some(failed);
                    break 'rows;
                }
                bads.push(failed);
                if let OnError::Skip(_) = self.what.on_error {
                    continue 'rows;
                }
                if tried == SUBSTITUTES {
                    failure = Some(Failed { index: wanted, position, fault: Fault::Error });
                    break 'rows;
                }
                index = self.substitute(position, tried);
                tried += 1;
            }
            samples.push(self.sample(index, position));
        }
        let dropped = samples.is_empty() && !indices.is_empty();
        let batch = received::Expected { samples, bads, failure, dropped };
        batch.received(self.seeds.epoch, task, bad, self.budget)
    }

    /// Returns the results of a stream. Its workers make batches in turn.
    fn stream(&self, workers: usize) -> Vec<Received> {
        let (mut received, mut bad) = (Vec::new(), 0);
        for batch in plain::in_turn((0..workers.max(1)).map(|id| self.lane(id, workers))) {
            received.extend(batch.received(self.seeds.epoch, received.len(), &mut bad, self.budget));
        }
        received
    }

    /// Returns all batches of one worker.
    fn lane(&self, worker: usize, workers: usize) -> Vec<received::Expected> {
        let what = self.what;
        let mut left = plain::share(worker, workers, what.items.faults.len()).enumerate();
        let (seeds, size) = (self.seeds.of_worker(worker), what.batch_size.unwrap_or(1));
        let (mut lane, mut last) = (Vec::new(), false);
        while !last {
            let mut batch = received::Expected { samples: Vec::new(), bads: Vec::new(), failure: None, dropped: false };
            // The loop ends when the batch has more bad samples than the budget allows, as a worker
            // does.
            while batch.samples.len() < size && batch.bads.len() <= self.budget {
                let Some((position, index)) = left.next() else {
                    last = true;
                    break;
                };
                match what.items.faults[index].map(|fault| Failed { index: position, position, fault }) {
                    None => batch.samples.push(Sample { index, word: seeds.word(position) }),
                    Some(failed) if failed.fault == Fault::Error && what.on_error != OnError::Raise => {
                        batch.bads.push(failed)
                    }
                    failure => {
                        batch.failure = failure;
                        break;
                    }
                }
            }
            batch.dropped = batch.samples.is_empty() || (last && what.drop_last && batch.samples.len() < size);
            last |= batch.failure.is_some_and(|failed| failed.fault == Fault::Panic);
            lane.push(batch);
        }
        lane
    }
}
