//! The properties of a loader that its states record, and the check whether a state fits a loader.

use crate::loader::checkpoint::state::{
    DatasetKind, FIRST_VERSION, PassOrigin, SavedSampler, State, VERSION, check_batches,
};
use crate::loader::error::state::{StateError, differs};
use crate::loader::order::index_source::{Batching, IndexSource, NAMES, Origin};
use crate::rng::{GeneratorState, SharedGenerator, default_generator};

/// The parts of a loader that its states depend on.
#[derive(Clone, Copy)]
pub(crate) struct Compatibility<'a> {
    pub(crate) dataset_len: Option<usize>,
    pub(crate) batching: Batching,
    /// The loader's own generator; `None` if it draws from the process's default one.
    pub(crate) generator: Option<&'a SharedGenerator>,
    /// Whether `generator` was created from a loaded state.
    pub(crate) adopted: bool,
    /// The generator that the loader uses instead of the process's default one since it loaded a
    /// state.
    pub(crate) default: Option<&'a SharedGenerator>,
    pub(crate) persistent: bool,
    /// The base seed; `None` before the first pass.
    pub(crate) base_seed: Option<u64>,
    /// The source of the indices; `None` for an iterable dataset.
    pub(crate) index_source: Option<&'a IndexSource>,
    pub(crate) num_workers: usize,
}

impl Compatibility<'_> {
    fn kind(&self) -> DatasetKind {
        if self.index_source.is_some() { DatasetKind::Indexed } else { DatasetKind::Iterable }
    }

    fn batch_size(&self) -> Option<usize> {
        Some(self.batching.batch_size).filter(|_| !self.batching.single)
    }

    /// Records the current state of everything that a pass is drawn from. `text` is a buffer that
    /// is reused for what the sampler saves.
    pub(crate) fn before(&self, mut text: String) -> Before {
        let sampler = match self.index_source.map(|draw| &draw.from) {
            Some(Origin::Sampler(sampler)) => Some(sampler),
            _ => None,
        };
        let default = (self.generator.is_none() || sampler.is_some()).then(|| match self.default {
            Some(default) => GeneratorState::of(&default.lock()),
            None => GeneratorState::of(&default_generator()),
        });
        text.clear();
        let saves = match sampler {
            Some(sampler) => {
                // Leave room, so that later passes do not allocate: the numbers that a sampler
                // saves get longer from pass to pass.
                text.reserve(256);
                sampler.save(&mut text)
            }
            None => !matches!(self.index_source.map(|draw| &draw.from), Some(Origin::IndexStream(_))),
        };
        Before {
            dataset_len: self.dataset_len,
            generator: self.generator.map(|generator| GeneratorState::of(&generator.lock())),
            default,
            persistent: self.persistent,
            base_seed: self.base_seed.filter(|_| self.persistent),
            saves,
            text,
        }
    }

    /// Returns the state at the start of a pass that was drawn from `before`.
    pub(crate) fn state(&self, epoch: u32, before: &Before) -> State {
        let sampler = self.index_source.map(|draw| {
            let saved = before.saves.then(|| before.text.clone());
            SavedSampler { name: draw.name().to_owned(), saved }
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
            start: PassOrigin {
                generator: before.generator,
                default_generator: before.default,
                persistent: before.persistent,
                base_seed: before.base_seed,
                sampler,
            },
            streams: None,
        }
    }

    /// Checks whether a state fits the loader, except for what its sampler saved.
    pub(crate) fn check(&self, state: &State) -> Result<(), StateError> {
        if !(FIRST_VERSION..=VERSION).contains(&state.version) {
            let hint = "it was written by another version of slotline; load it with that version";
            return differs("version", state.version, VERSION, hint);
        }
        if state.kind != self.kind() {
            let hint = "load it into a loader whose dataset is of the same kind, indexed or iterable";
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
            let hint = "build the loader with the drop_last that it was saved with";
            return differs("drop_last", state.drop_last, self.batching.drop_last, hint);
        }
        self.check_seed(state)?;
        match (self.index_source, &state.start.sampler, &state.streams) {
            (Some(draw), Some(sampler), _) => self.check_sampler(draw, sampler, state),
            (None, _, Some(streams)) if streams.num_workers != self.num_workers => {
                let hint = "build the loader with the number of workers that it was saved with";
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
                "build the loader with the state's seed, or without one to take over the state's",
            ),
            None => {
                let hint = "build the loader without a seed or a generator to take over the state's";
                differs("seed", "that of the process's default generator", seed, hint)
            }
        }
    }

    fn check_sampler(&self, draw: &IndexSource, sampler: &SavedSampler, state: &State) -> Result<(), StateError> {
        // In states of version 1, the name of a user's sampler is the name of its type. Accept any
        // name that no built-in source of indices has.
        let of_a_type = state.version == FIRST_VERSION && draw.is_unnamed() && !NAMES.contains(&&*sampler.name);
        if sampler.name != draw.name() && !of_a_type {
            let hint = "build the loader with the sampler or the shuffle option that it was saved with";
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

fn name_of(kind: DatasetKind) -> &'static str {
    match kind {
        DatasetKind::Indexed => "indexed",
        DatasetKind::Iterable => "iterable",
    }
}

fn or_unknown(len: Option<usize>) -> String {
    len.map_or_else(|| "unknown".to_owned(), |len| len.to_string())
}

/// The state of everything that a pass is drawn from, recorded before the pass is drawn.
#[derive(Debug, Default)]
pub(crate) struct Before {
    dataset_len: Option<usize>,
    generator: Option<GeneratorState>,
    default: Option<GeneratorState>,
    persistent: bool,
    pub(crate) base_seed: Option<u64>,
    /// Whether `text` is all that is needed to draw the pass again.
    saves: bool,
    pub(crate) text: String,
}
