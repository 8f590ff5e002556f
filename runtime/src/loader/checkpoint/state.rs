//! Where a loader is, as plain data: what `state` gives and `load_state` takes.
//!
//! A state holds no samples and no order. It says how far a pass was delivered, and where the generators were before
//! anything of that pass was drawn; a loader that goes on from there draws the pass again, which gives the same one, and
//! loads what is left of it.

#[cfg(doc)]
use crate::loader::consumer::loader::Loader;
use crate::loader::error::state::StateError;
use crate::loader::error::warning::Warning;
use crate::rng::Place;

/// The version of states that this crate writes, and the first one that it reads.
///
/// Version 1 has the types' names for the names of samplers, and generators' places in two numbers.
pub(crate) const VERSION: u32 = 2;
pub(crate) const FIRST_VERSION: u32 = 1;

/// The most that is counted; on from there numbers could overflow.
const MOST_COUNTED: usize = usize::MAX / 2;

/// Where a loader is: which batches of which pass were delivered, and what it takes to go on with exactly the next one.
///
/// [`Loader::state`] makes it, at any time, and [`Loader::load_state`] goes on from it. It
/// is small (a few hundred bytes as JSON; of an iterable dataset some for each worker, and what its cursors save), and made
/// to be stored: with the feature `serde` it implements `Serialize` and `Deserialize`. Its version is in it, and it can be read
/// back on any machine.
///
/// What it holds is how far the pass was **delivered**, that is, returned by `next`; errors in the places of batches count
/// as delivered. Before the first pass, and after one that has come to its end (`next` said `None`), it is the start of the
/// next pass.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct State {
    pub(crate) version: u32,
    pub(crate) kind: DatasetKind,
    /// `None` of an iterable dataset that does not know it.
    pub(crate) dataset_len: Option<usize>,
    /// `None`: samples by themselves.
    pub(crate) batch_size: Option<usize>,
    pub(crate) drop_last: bool,
    pub(crate) epoch: u32,
    /// Delivered in this pass.
    pub(crate) batches: usize,
    /// Batches that are not delivered, of those below the highest number that is; ascending.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub(crate) missing: Vec<usize>,
    /// Skipped samples in what was delivered of this pass.
    #[cfg_attr(feature = "serde", serde(default))]
    pub(crate) bad_samples: usize,
    pub(crate) start: PassOrigin,
    /// Of an iterable dataset.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub(crate) streams: Option<Streams>,
}

/// What is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub(crate) enum DatasetKind {
    Indexed,
    Iterable,
}

/// Where everything was that a pass is drawn from, before anything was drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct PassOrigin {
    /// The loader's own generator.
    pub(crate) generator: Option<Place>,
    /// The process's default one, if it was drawn from.
    pub(crate) default_generator: Option<Place>,
    /// Whether the first pass draws the only base seed.
    pub(crate) persistent: bool,
    /// That seed, after the first pass.
    pub(crate) base_seed: Option<u64>,
    /// `None` of an iterable dataset.
    pub(crate) sampler: Option<SavedSampler>,
}

/// A sampler.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct SavedSampler {
    pub(crate) name: String,
    /// What it saved of itself, if it can.
    pub(crate) saved: Option<String>,
}

/// How far the workers of an iterable dataset were, in what was delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct Streams {
    pub(crate) num_workers: usize,
    /// Samples delivered.
    pub(crate) samples: usize,
    /// The worker whose batch comes next.
    pub(crate) turn: usize,
    /// Of each worker; without any, of the calling thread.
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
    /// The number of its pass, from 0.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// How many batches of the pass were delivered, errors in their places included.
    pub fn batches(&self) -> usize {
        self.batches
    }

    /// The number of the first batch that neither was delivered nor comes before one that was.
    pub(crate) fn next(&self) -> usize {
        self.batches.saturating_add(self.missing.len())
    }

    /// A warning if an iterable dataset has to be read again up to here.
    pub(crate) fn fast_forward(&self) -> Option<Warning> {
        let mut streams = self.streams.iter().flat_map(|streams| &streams.workers);
        let slow = streams.any(|stream| !stream.ended && stream.samples > 0 && stream.saved.is_none());
        slow.then_some(Warning::FastForward { what: "the iterable dataset" })
    }

    /// Checks what does not depend on the loader.
    pub(crate) fn check(&self) -> Result<(), StateError> {
        let PassOrigin { generator, default_generator, persistent, base_seed, sampler } = &self.start;
        for (field, place) in [("generator", generator), ("default_generator", default_generator)] {
            if let Some((place, reason)) = place.and_then(|place| Some((place, place.unreachable()?))) {
                return Err(StateError::malformed(field, place, reason));
            }
        }
        if generator.or(*default_generator).is_none() {
            return Err(StateError::malformed("generator", "missing", "a pass is drawn from one"));
        }
        if *persistent && self.epoch > 0 && base_seed.is_none() {
            return Err(StateError::malformed("base_seed", "missing", "with persistent workers there is one"));
        }
        let streams = self.streams.iter().flat_map(|streams| &streams.workers);
        let counts = [("batches", self.batches), ("bad_samples", self.bad_samples)];
        let counts = counts.into_iter().chain(streams.map(|stream| ("samples", stream.samples)));
        if let Some((field, count)) = counts.into_iter().find(|&(_, count)| count > MOST_COUNTED) {
            return Err(StateError::malformed(field, count, "nobody can have counted so far"));
        }
        let ascending = self.missing.is_sorted_by(|a, b| a < b);
        let within = self.missing.last().is_none_or(|&last| last < self.next());
        if !ascending || !within {
            let reason = "it must list, in order, batches before the last one delivered";
            return Err(StateError::malformed("missing", format!("{:?}", self.missing), reason));
        }
        let iterable = self.kind == DatasetKind::Iterable;
        if iterable == sampler.is_some() {
            let is = if iterable { "there" } else { "missing" };
            return Err(StateError::malformed("sampler", is, "datasets by index have one, and others have none"));
        }
        match &self.streams {
            None if iterable => Err(StateError::malformed("streams", "missing", "iterable datasets have some")),
            Some(_) if !iterable => Err(StateError::malformed("streams", "there", "datasets by index have none")),
            Some(_) if !self.missing.is_empty() => {
                Err(StateError::malformed("missing", "there", "iterable datasets have none"))
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

/// Checks that what was delivered is of a pass of so many batches.
pub(crate) fn check_batches(state: &State, tasks: usize) -> Result<(), StateError> {
    if state.next() > tasks {
        return Err(StateError::malformed("batches", state.next(), format!("its pass has {tasks}")));
    }
    Ok(())
}
