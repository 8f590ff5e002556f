//! A loader's state as plain data: what `state` returns and `load_state` takes.
//!
//! A state contains neither samples nor their order. It says how much of a pass was delivered, and
//! which states the generators had before the pass was drawn. A loader that resumes draws the same
//! pass again, and loads the rest of it.

#[cfg(doc)]
use crate::loader::consumer::loader::Loader;
use crate::loader::error::state::StateError;
use crate::loader::error::warning::Warning;
use crate::rng::GeneratorState;

/// The version of the states that slotline writes, and the first version that it can read.
///
/// In version 1, the names of custom samplers are type names, and the position of a generator is
/// two numbers.
pub(crate) const VERSION: u32 = 2;
pub(crate) const FIRST_VERSION: u32 = 1;

/// The maximum of any count in a state; greater numbers could overflow.
pub(crate) const MAX_COUNTED: usize = usize::MAX / 2;

/// The position of a loader: which batches of which pass were delivered, and what is needed to
/// continue with exactly the next one.
///
/// [`Loader::state`] returns a state at any time, and [`Loader::load_state`] resumes from it. A
/// state takes a few hundred bytes as JSON; for an iterable dataset, also a few for each worker,
/// and what the dataset saves for it. With the feature `serde` it implements `Serialize` and
/// `Deserialize`, and can be read on any machine. It includes a version number.
///
/// A batch counts as **delivered** when `next` has returned it; so does an error instead of a
/// batch. Before the first pass, and after a pass that has ended (`next` returned `None`), the
/// state is the start of the next pass.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct State {
    pub(crate) version: u32,
    pub(crate) kind: DatasetKind,
    /// The length of the dataset; `None` for an iterable dataset that does not know its length.
    pub(crate) dataset_len: Option<usize>,
    /// The batch size; `None` if samples are not batched.
    pub(crate) batch_size: Option<usize>,
    pub(crate) drop_last: bool,
    pub(crate) epoch: u32,
    /// The number of batches delivered in this pass.
    pub(crate) batches: usize,
    /// The batches that were not delivered although a later one was; ascending.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub(crate) missing: Vec<usize>,
    /// The number of bad samples that were skipped or replaced in the delivered part of this pass.
    #[cfg_attr(feature = "serde", serde(default))]
    pub(crate) bad_samples: usize,
    pub(crate) start: PassOrigin,
    /// The positions of the workers in an iterable dataset; `None` for other datasets.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub(crate) streams: Option<Streams>,
}

/// The kind of dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub(crate) enum DatasetKind {
    Indexed,
    Iterable,
}

/// The state of everything that a pass is drawn from, before the pass was drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct PassOrigin {
    /// The loader's own generator.
    pub(crate) generator: Option<GeneratorState>,
    /// The process's default generator, if the loader draws from it.
    pub(crate) default_generator: Option<GeneratorState>,
    /// Whether only the first pass draws a base seed (`persistent_workers`).
    pub(crate) persistent: bool,
    /// The base seed of all passes, if `persistent` is set; `None` before the first pass.
    pub(crate) base_seed: Option<u64>,
    /// The sampler's state; `None` for an iterable dataset.
    pub(crate) sampler: Option<SavedSampler>,
}

/// The saved state of a sampler.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct SavedSampler {
    pub(crate) name: String,
    /// What the sampler saved about itself; `None` if it saves nothing.
    pub(crate) saved: Option<String>,
}

/// The positions of all workers in an iterable dataset, at the end of the delivered part of the
/// pass.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Streams {
    pub(crate) num_workers: usize,
    /// The number of samples delivered.
    pub(crate) samples: usize,
    /// The worker whose batch comes next.
    pub(crate) turn: usize,
    /// The position of each worker; without workers, that of the calling thread.
    pub(crate) workers: Vec<Stream>,
}

/// The position of one worker in its part of an iterable dataset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Stream {
    /// The number of samples requested from the worker.
    pub(crate) samples: usize,
    pub(crate) ended: bool,
    /// What the dataset saved for the worker's cursor; `None` if the dataset saves nothing.
    pub(crate) saved: Option<String>,
}

impl State {
    /// The number of the state's pass, from 0.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The number of batches of the pass that were delivered, including errors instead of batches.
    pub fn batches(&self) -> usize {
        self.batches
    }

    /// The seed of the loader's own generator; `None` if it drew from the process's default
    /// generator.
    pub fn seed(&self) -> Option<u64> {
        self.start.generator.map(|state| state.seed)
    }

    /// Returns this state as if exactly the batches of an indexed dataset before number `next` had
    /// been delivered.
    #[doc(hidden)]
    #[must_use]
    pub fn up_to(mut self, next: usize) -> Self {
        self.batches = next;
        self.missing.clear();
        self
    }

    /// Returns this state as if batch `batch` of an indexed dataset, or an error instead of it, had
    /// not been delivered. Bad samples of that batch stay counted. For a caller of `next` that
    /// could not pass the batch on to its own caller.
    #[doc(hidden)]
    #[must_use]
    pub fn without(mut self, batch: usize) -> Self {
        if batch < self.next()
            && let Err(at) = self.missing.binary_search(&batch)
        {
            self.missing.insert(at, batch);
            self.batches -= 1;
            while self.missing.last().is_some_and(|last| last + 1 == self.next()) {
                self.missing.pop();
            }
        }
        self
    }

    /// The number of the batch after the last one that was delivered.
    pub(crate) fn next(&self) -> usize {
        self.batches.saturating_add(self.missing.len())
    }

    /// Returns a warning if an iterable dataset has to be read again up to this position.
    pub(crate) fn fast_forward(&self) -> Option<Warning> {
        let mut streams = self.streams.iter().flat_map(|streams| &streams.workers);
        let slow = streams.any(|stream| !stream.ended && stream.samples > 0 && stream.saved.is_none());
        slow.then_some(Warning::FastForward { what: "the iterable dataset" })
    }

    /// Checks everything in the state that does not depend on the loader.
    pub(crate) fn check(&self) -> Result<(), StateError> {
        let PassOrigin { generator, default_generator, persistent, base_seed, sampler } = &self.start;
        if generator.or(*default_generator).is_none() {
            return Err(StateError::malformed("generator", "missing", "a pass is drawn from a generator"));
        }
        if *persistent && self.epoch > 0 && base_seed.is_none() {
            return Err(StateError::malformed("base_seed", "missing", "persistent workers need one"));
        }
        let streams = self.streams.iter().flat_map(|streams| &streams.workers);
        let counts = [("batches", self.batches), ("bad_samples", self.bad_samples)];
        let counts = counts.into_iter().chain(streams.map(|stream| ("samples", stream.samples)));
        if let Some((field, count)) = counts.into_iter().find(|&(_, count)| count > MAX_COUNTED) {
            return Err(StateError::malformed(field, count, "no loader can count that far"));
        }
        let ascending = self.missing.is_sorted_by(|a, b| a < b);
        let within = self.missing.last().is_none_or(|&last| last < self.next());
        if !ascending || !within {
            let reason = "it must list, in ascending order, batches before the last one delivered";
            return Err(StateError::malformed("missing", format!("{:?}", self.missing), reason));
        }
        let iterable = self.kind == DatasetKind::Iterable;
        if iterable == sampler.is_some() {
            let is = if iterable { "present" } else { "missing" };
            return Err(StateError::malformed("sampler", is, "only datasets by index have one"));
        }
        match &self.streams {
            None if iterable => Err(StateError::malformed("streams", "missing", "iterable datasets need them")),
            Some(_) if !iterable => Err(StateError::malformed("streams", "present", "datasets by index have none")),
            Some(_) if !self.missing.is_empty() => {
                Err(StateError::malformed("missing", "present", "iterable datasets have none"))
            }
            Some(streams) => streams.check(),
            None => Ok(()),
        }
    }
}

impl Streams {
    fn check(&self) -> Result<(), StateError> {
        let count = self.num_workers.max(1);
        if self.workers.len() != count {
            let reason = format!("num_workers is {}", self.num_workers);
            return Err(StateError::malformed("workers", format!("a list of {}", self.workers.len()), reason));
        }
        if self.turn >= count {
            let reason = format!("num_workers is {}", self.num_workers);
            return Err(StateError::malformed("turn", self.turn, reason));
        }
        Ok(())
    }
}

/// Checks that no more batches were delivered before the state than its pass has (`tasks`).
pub(crate) fn check_batches(state: &State, tasks: usize) -> Result<(), StateError> {
    if state.next() > tasks {
        return Err(StateError::malformed("batches", state.next(), format!("its pass has {tasks}")));
    }
    Ok(())
}
