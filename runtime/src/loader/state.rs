//! Where a loader is, as plain data: what `state` gives and `load_state` takes.
//!
//! A state holds no samples and no order. It says how far a pass was delivered, and where the generators were before
//! anything of that pass was drawn; a loader that goes on from there draws the pass again, which gives the same one, and
//! loads what is left of it.

use serde::{Deserialize, Serialize};

use super::draw::{Batching, Draw, Origin};
use super::error::Warning;
#[cfg(doc)]
use super::{LaneLoader, Loader};
use crate::BoxError;
use crate::rng::{Generator, SharedGenerator, default_generator};

/// The version of states that this crate writes and reads.
const VERSION: u32 = 1;
/// The most words that a generator is asked to pass over: that takes some ten minutes.
const MOST_DRAWN: u64 = 1 << 40;

/// The most that is counted; on from there numbers could overflow.
const MOST_COUNTED: usize = usize::MAX / 2;

/// Where a loader is: which batches of which pass were delivered, and what it takes to go on with exactly the next one.
///
/// [`Loader::state`] makes it, at any time, and [`Loader::load_state`] goes on from it; so do those of a [`LaneLoader`]. It
/// is small (a few hundred bytes as JSON; of an iterable dataset some for each worker, and what its cursors save), and made
/// to be stored: serde serialises it, with its version in it. It can be read back on any machine.
///
/// What it holds is how far the pass was **delivered**, that is, returned by `next`; errors in the places of batches count
/// as delivered. Before the first pass, and after one that has come to its end (`next` said `None`), it is the start of the
/// next pass.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    pub(super) version: u32,
    pub(super) kind: Kind,
    /// `None` of an iterable dataset that does not know it.
    pub(super) dataset_len: Option<usize>,
    /// `None`: samples by themselves.
    pub(super) batch_size: Option<usize>,
    pub(super) drop_last: bool,
    pub(super) epoch: u32,
    /// Delivered in this pass.
    pub(super) batches: usize,
    /// Batches that are not delivered, of those below the highest number that is; ascending.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) missing: Vec<usize>,
    /// Bad samples in what was delivered of this pass.
    #[serde(default)]
    pub(super) bad_samples: usize,
    pub(super) start: Start,
    /// Of an iterable dataset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) streams: Option<Streams>,
}

/// What is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    Indexed,
    Iterable,
}

/// Where everything was that a pass is drawn from, before anything was drawn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Start {
    /// The loader's own generator.
    pub(super) generator: Option<Point>,
    /// The process's default one, if it was drawn from.
    pub(super) default_generator: Option<Point>,
    /// Whether the first pass draws the only base seed.
    pub(super) persistent: bool,
    /// That seed, after the first pass.
    pub(super) base_seed: Option<u64>,
    /// `None` of an iterable dataset.
    pub(super) sampler: Option<Saved>,
}

/// Where a generator is in its sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Point {
    pub(super) seed: u64,
    /// Words drawn.
    pub(super) drawn: u64,
}

/// A sampler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Saved {
    pub(super) name: String,
    /// What it saved of itself, if it can.
    pub(super) saved: Option<String>,
}

/// How far the workers of an iterable dataset were, in what was delivered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Streams {
    pub(super) num_workers: usize,
    /// Samples delivered.
    pub(super) samples: usize,
    /// The worker whose batch comes next.
    pub(super) turn: usize,
    /// Of each worker; without any, of the calling thread.
    pub(super) workers: Vec<Stream>,
}

/// How far one worker was.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stream {
    /// Samples asked for.
    pub(super) samples: usize,
    pub(super) ended: bool,
    /// What the dataset saved of its cursor, if it can.
    pub(super) saved: Option<String>,
}

/// Why a state was refused. The loader is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// The state is of a loader that loads something else, or in another way.
    #[error("the state's {field} is {state}, and the loader's is {loader}; {hint}")]
    Differs {
        /// What differs.
        field: &'static str,
        /// What the state says.
        state: String,
        /// What the loader has.
        loader: String,
        /// What to do.
        hint: &'static str,
    },
    /// The state says what cannot be.
    #[error("the state's {field} is {state}, and {reason}; it is damaged, or of other data: load an earlier one")]
    Malformed {
        /// What cannot be.
        field: &'static str,
        /// What the state says.
        state: String,
        /// Why it cannot be.
        reason: String,
    },
    /// The sampler refused what the state has of it.
    #[error("the state's sampler does not fit: {source}")]
    Sampler {
        /// What it said.
        source: BoxError,
    },
}

impl StateError {
    /// The field of the state that is at fault.
    pub fn field(&self) -> &'static str {
        match self {
            Self::Differs { field, .. } | Self::Malformed { field, .. } => field,
            Self::Sampler { .. } => "sampler",
        }
    }

    pub(super) fn malformed(field: &'static str, state: impl ToString, reason: impl Into<String>) -> Self {
        Self::Malformed { field, state: state.to_string(), reason: reason.into() }
    }
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
    pub(super) fn next(&self) -> usize {
        self.batches.saturating_add(self.missing.len())
    }

    /// A warning if an iterable dataset has to be read again up to here.
    pub(super) fn fast_forward(&self) -> Option<Warning> {
        let mut streams = self.streams.iter().flat_map(|streams| &streams.workers);
        let slow = streams.any(|stream| !stream.ended && stream.samples > 0 && stream.saved.is_none());
        slow.then_some(Warning::FastForward { what: "the iterable dataset" })
    }

    /// Checks what does not depend on the loader.
    fn check(&self) -> Result<(), StateError> {
        let Start { generator, default_generator, persistent, base_seed, sampler } = &self.start;
        for (field, point) in [("generator", generator), ("default_generator", default_generator)] {
            if let Some(drawn) = point.map(|point| point.drawn).filter(|&drawn| drawn > MOST_DRAWN) {
                let reason = format!("going on from there would take too long (at most {MOST_DRAWN})");
                return Err(StateError::malformed(field, drawn, reason));
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
        let iterable = self.kind == Kind::Iterable;
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

impl Point {
    /// Where a generator is.
    pub(super) fn of(generator: &Generator) -> Self {
        Self { seed: generator.initial_seed(), drawn: generator.drawn() }
    }

    /// Puts a generator there.
    pub(super) fn put(&self, generator: &mut Generator) {
        if generator.initial_seed() != self.seed || generator.drawn() > self.drawn {
            generator.manual_seed(self.seed);
        }
        generator.discard(self.drawn - generator.drawn());
    }
}

/// What a loader has that its states depend on.
#[derive(Clone, Copy)]
pub(super) struct Facts<'a> {
    pub(super) dataset_len: Option<usize>,
    pub(super) batching: Batching,
    /// The loader's own generator.
    pub(super) generator: Option<&'a SharedGenerator>,
    /// Whether that was taken from a state.
    pub(super) adopted: bool,
    /// In the place of the process's default one.
    pub(super) default: Option<&'a SharedGenerator>,
    pub(super) persistent: bool,
    /// After the first pass.
    pub(super) base_seed: Option<u64>,
    /// `None` of an iterable dataset.
    pub(super) draw: Option<&'a Draw>,
    pub(super) num_workers: usize,
}

impl Facts<'_> {
    fn kind(&self) -> Kind {
        if self.draw.is_some() { Kind::Indexed } else { Kind::Iterable }
    }

    fn batch_size(&self) -> Option<usize> {
        Some(self.batching.batch_size).filter(|_| !self.batching.single)
    }

    /// Where everything is now that a pass is drawn from; what the sampler saves is written to `text`.
    pub(super) fn before(&self, mut text: String) -> Before {
        let sampler = match self.draw.map(|draw| &draw.from) {
            Some(Origin::Sampler(sampler)) => Some(sampler),
            _ => None,
        };
        let default = (self.generator.is_none() || sampler.is_some()).then(|| match self.default {
            Some(default) => Point::of(&default.lock()),
            None => Point::of(&default_generator()),
        });
        text.clear();
        let saves = match sampler {
            Some(sampler) => {
                // Numbers grow from pass to pass.
                text.reserve(256);
                sampler.save(&mut text)
            }
            None => !matches!(self.draw.map(|draw| &draw.from), Some(Origin::Feed(_))),
        };
        Before {
            dataset_len: self.dataset_len,
            generator: self.generator.map(|generator| Point::of(&generator.lock())),
            default,
            persistent: self.persistent,
            base_seed: self.base_seed.filter(|_| self.persistent),
            saves,
            text,
        }
    }

    /// The state at the start of a pass that is drawn from there.
    pub(super) fn state(&self, epoch: u32, before: &Before) -> State {
        let sampler = self.draw.map(|draw| {
            let saved = before.saves.then(|| before.text.clone());
            Saved { name: draw.name().to_owned(), saved }
        });
        State {
            version: VERSION,
            kind: self.kind(),
            dataset_len: before.dataset_len,
            batch_size: self.batch_size(),
            drop_last: self.batching.drop_last,
            epoch,
            batches: 0,
            missing: Vec::new(),
            bad_samples: 0,
            start: Start {
                generator: before.generator,
                default_generator: before.default,
                persistent: before.persistent,
                base_seed: before.base_seed,
                sampler,
            },
            streams: None,
        }
    }

    /// Checks whether a state fits, all but what its sampler saved.
    pub(super) fn check(&self, state: &State) -> Result<(), StateError> {
        if state.version != VERSION {
            let hint = "it was written by another version of this crate, which can read it";
            return differs("version", state.version, VERSION, hint);
        }
        if state.kind != self.kind() {
            let hint = "a state goes with a dataset by index, or with an iterable one";
            return differs("kind", name_of(state.kind), name_of(self.kind()), hint);
        }
        state.check()?;
        if state.dataset_len != self.dataset_len {
            let hint = "load it with the dataset that it was saved with";
            return differs("dataset_len", or_unknown(state.dataset_len), or_unknown(self.dataset_len), hint);
        }
        if state.batch_size != self.batch_size() {
            let say = |size: Option<usize>| size.map_or_else(|| "None".to_owned(), |size| size.to_string());
            let hint = "build the loader with the batch size that it was saved with";
            return differs("batch_size", say(state.batch_size), say(self.batch_size()), hint);
        }
        if state.drop_last != self.batching.drop_last {
            let hint = "build the loader as the one that it was saved with";
            return differs("drop_last", state.drop_last, self.batching.drop_last, hint);
        }
        self.check_seed(state)?;
        match (self.draw, &state.start.sampler, &state.streams) {
            (Some(draw), Some(sampler), _) => self.check_sampler(draw, sampler, state),
            (None, _, Some(streams)) if streams.num_workers != self.num_workers => {
                let hint = "each worker of an iterable dataset reads its own part, so their number must be the same";
                differs("num_workers", streams.num_workers, self.num_workers, hint)
            }
            _ => Ok(()),
        }
    }

    fn check_seed(&self, state: &State) -> Result<(), StateError> {
        let Some(generator) = self.generator.filter(|_| !self.adopted) else { return Ok(()) };
        let seed = generator.lock().initial_seed();
        match state.start.generator {
            Some(point) if point.seed == seed => Ok(()),
            Some(point) => differs(
                "seed",
                point.seed,
                seed,
                "build the loader with the state's seed, or with none to take it over",
            ),
            None => {
                let hint = "build the loader without a seed or a generator; it takes over the state's";
                differs("seed", "that of the process's default generator", seed, hint)
            }
        }
    }

    fn check_sampler(&self, draw: &Draw, sampler: &Saved, state: &State) -> Result<(), StateError> {
        if sampler.name != draw.name() {
            let hint = "build the loader with the sampler that it was saved with (or shuffle, or neither)";
            return differs("sampler", &sampler.name, draw.name(), hint);
        }
        match (&draw.from, self.dataset_len) {
            (Origin::Sequential | Origin::Shuffled(_), Some(len)) => {
                let tasks = self.batching.batches(len);
                check_batches(state, tasks)
            }
            _ => Ok(()),
        }
    }
}

/// Checks that what was delivered is of a pass of so many batches.
pub(super) fn check_batches(state: &State, tasks: usize) -> Result<(), StateError> {
    if state.next() > tasks {
        return Err(StateError::malformed("batches", state.next(), format!("its pass has {tasks}")));
    }
    Ok(())
}

pub(super) fn differs<T>(
    field: &'static str,
    state: impl ToString,
    loader: impl ToString,
    hint: &'static str,
) -> Result<T, StateError> {
    Err(StateError::Differs { field, state: state.to_string(), loader: loader.to_string(), hint })
}

fn name_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Indexed => "indexed",
        Kind::Iterable => "iterable",
    }
}

fn or_unknown(len: Option<usize>) -> String {
    len.map_or_else(|| "unknown".to_owned(), |len| len.to_string())
}

/// Where everything was before a pass was drawn, in memory that is used again.
#[derive(Debug, Default)]
pub(super) struct Before {
    dataset_len: Option<usize>,
    generator: Option<Point>,
    default: Option<Point>,
    persistent: bool,
    pub(super) base_seed: Option<u64>,
    /// Whether the sampler has said all that it takes to draw the pass again, in `text`.
    saves: bool,
    pub(super) text: String,
}
