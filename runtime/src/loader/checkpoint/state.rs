//! A loader's state as plain data: what `state` returns and `load_state` takes.
//!
//! A state holds no samples and no order. It says how far a pass was delivered, and where the generators were before
//! the pass was drawn. A loader that resumes from it draws the pass again, which gives the same pass, and loads the
//! rest of it.

#[cfg(doc)]
use crate::loader::consumer::loader::Loader;
use crate::loader::error::state::StateError;
use crate::loader::error::warning::Warning;
use crate::rng::GeneratorState;

/// The version of states that slotline writes, and the first version that it reads.
///
/// Version 1 uses type names as the names of samplers, and two numbers for a generator's place.
pub(crate) const VERSION: u32 = 2;
pub(crate) const FIRST_VERSION: u32 = 1;

/// The maximum of any count; greater numbers could overflow.
pub(crate) const MAX_COUNTED: usize = usize::MAX / 2;

/// How far a loader is: which batches of which pass were delivered, and what is needed to continue with exactly the
/// next one.
///
/// [`Loader::state`] returns it at any time, and [`Loader::load_state`] resumes from it. It is small (a few hundred
/// bytes as JSON; for an iterable dataset also a few for each worker, and what its cursors save), and meant to be
/// stored: with the feature `serde` it implements `Serialize` and `Deserialize`. It includes its version, and any
/// machine can read it back.
///
/// It says how far the pass was **delivered**, that is, returned by `next`; errors instead of batches count as
/// delivered. Before the first pass, and after one that has ended (`next` returned `None`), it is the start of the next
/// pass.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct State {
    pub(crate) version: u32,
    pub(crate) kind: DatasetKind,
    /// `None` for an iterable dataset that does not know its length.
    pub(crate) dataset_len: Option<usize>,
    /// `None` if samples are not batched.
    pub(crate) batch_size: Option<usize>,
    pub(crate) drop_last: bool,
    pub(crate) epoch: u32,
    /// Batches delivered in this pass.
    pub(crate) batches: usize,
    /// Batches that were not delivered, below the highest number that was; ascending.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub(crate) missing: Vec<usize>,
    /// Bad samples that were skipped or replaced in the delivered part of this pass.
    #[cfg_attr(feature = "serde", serde(default))]
    pub(crate) bad_samples: usize,
    pub(crate) start: PassOrigin,
    /// Only for an iterable dataset.
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

/// The state of everything that a pass is drawn from, before it was drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct PassOrigin {
    /// The loader's own generator.
    pub(crate) generator: Option<GeneratorState>,
    /// The process's default generator, if it was drawn from.
    pub(crate) default_generator: Option<GeneratorState>,
    /// Whether only the first pass draws a base seed.
    pub(crate) persistent: bool,
    /// That base seed; `None` before the first pass.
    pub(crate) base_seed: Option<u64>,
    /// `None` for an iterable dataset.
    pub(crate) sampler: Option<SavedSampler>,
}

/// The saved state of a sampler.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct SavedSampler {
    pub(crate) name: String,
    /// What the sampler saved of itself, if it can.
    pub(crate) saved: Option<String>,
}

/// How far the workers of an iterable dataset were, in the delivered part of the pass.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Streams {
    pub(crate) num_workers: usize,
    /// Samples delivered.
    pub(crate) samples: usize,
    /// The worker whose batch comes next.
    pub(crate) turn: usize,
    /// One for each worker; without workers, one for the calling thread.
    pub(crate) workers: Vec<Stream>,
}

/// How far one worker was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Stream {
    /// Samples asked for.
    pub(crate) samples: usize,
    pub(crate) ended: bool,
    /// What the dataset saved of its cursor, if it can.
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

    /// The seed of the loader's own generator; `None` if it drew from the process's default generator.
    pub fn seed(&self) -> Option<u64> {
        self.start.generator.map(|place| place.seed)
    }

    /// Returns the state as if a batch of an indexed dataset had not been delivered, or an error instead of it. Bad samples
    /// of it count as seen. For a caller of `next` whose own caller did not get what came.
    #[doc(hidden)]
    #[must_use]
    pub fn without(mut self, batch: usize) -> Self {
        if batch < self.next()
            && let Err(place) = self.missing.binary_search(&batch)
        {
            self.missing.insert(place, batch);
            self.batches -= 1;
            while self.missing.last().is_some_and(|last| last + 1 == self.next()) {
                self.missing.pop();
            }
        }
        self
    }

    /// The number of the first batch that was not delivered and comes after all that were.
    pub(crate) fn next(&self) -> usize {
        self.batches.saturating_add(self.missing.len())
    }

    /// Returns a warning if an iterable dataset has to be read again up to here.
    pub(crate) fn fast_forward(&self) -> Option<Warning> {
        let mut streams = self.streams.iter().flat_map(|streams| &streams.workers);
        let slow = streams.any(|stream| !stream.ended && stream.samples > 0 && stream.saved.is_none());
        slow.then_some(Warning::FastForward { what: "the iterable dataset" })
    }

    /// Checks everything that does not depend on the loader.
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

/// Checks that no more was delivered than a pass of `tasks` batches has.
pub(crate) fn check_batches(state: &State, tasks: usize) -> Result<(), StateError> {
    if state.next() > tasks {
        return Err(StateError::malformed("batches", state.next(), format!("its pass has {tasks}")));
    }
    Ok(())
}
