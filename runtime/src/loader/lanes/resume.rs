//! Where a lane loader is, and how it goes on from there.

use super::super::collate::Collate;
use super::super::error::Error;
use super::super::facts::Facts;
use super::super::state::{State, StateError, Stream, Streams};
#[cfg(doc)]
use super::LanePass;
use super::worker::{Mark, Request};
use super::{LaneLoader, Own, Pass};
use crate::dataset::Loadable;

impl<D: Loadable, C: Collate<D>> LaneLoader<D, C> {
    /// Where the loader is, to go on from there later on with [`load_state`](Self::load_state).
    ///
    /// In a pass it is [`LanePass::state`].
    pub fn state(&self) -> State {
        self.facts().now(&self.log, self.epochs, &self.pass, &self.ledger, |running| self.streams(running))
    }

    /// Goes on from a state; see [`Loader::load_state`](crate::Loader::load_state).
    ///
    /// Of an iterable dataset the number of workers must be the same, as each reads a part of its own. A cursor goes on from
    /// what the dataset [saved](crate::dataset::IterableDataset::save) of it; if it saves nothing, each worker reads again,
    /// for nobody, what it had read.
    ///
    /// # Errors
    ///
    /// [`StateError`] if the state does not fit the loader, or is damaged; the loader is as it was.
    pub fn load_state(&mut self, state: &State) -> Result<(), StateError> {
        self.facts().check(state)?;
        self.log.load(state, &mut self.generator, self.passes.draw_mut(), &mut self.warnings)?;
        (self.epochs, self.persistent) = (state.epoch, state.start.persistent);
        Ok(())
    }

    /// Leaves the pass that was drawn for the next `epoch` to begin.
    #[cold]
    pub(super) fn put_off(&mut self, tasks: Option<usize>) {
        let state = State { streams: self.streams(false), ..self.facts().state(self.epochs, &self.log.before) };
        self.log.put_off(state, tasks);
    }

    /// What its states depend on.
    fn facts(&self) -> Facts<'_> {
        Facts {
            dataset_len: self.home.dataset_len(),
            batching: self.batching,
            generator: self.generator.as_ref(),
            adopted: self.log.adopted,
            default: self.log.default.as_ref(),
            persistent: self.persistent,
            base_seed: (self.epochs > 0).then_some(self.seed),
            draw: self.passes.draw(),
            num_workers: self.crew.len(),
        }
    }

    /// How far the workers of an iterable dataset are; or at the start of a pass.
    fn streams(&self, running: bool) -> Option<Streams> {
        if self.passes.draw().is_some() {
            return None;
        }
        let marks = self.lanes.lanes.iter().map(|lane| &lane.mark).chain(self.own.iter().map(|own| &own.mark));
        let stream = |mark: &Mark| if running { mark.stream() } else { Stream::default() };
        let (samples, turn) = if running { (self.samples, self.lanes.after) } else { (0, 0) };
        Some(Streams { num_workers: self.crew.len(), samples, turn, workers: marks.map(stream).collect() })
    }

    /// Draws the next pass, or again the one that a state is in.
    pub(super) fn draw(&mut self) -> Result<Option<usize>, Error> {
        self.log.prepare(self.passes.draw_mut())?;
        let text = std::mem::take(&mut self.log.before.text);
        self.log.before = self.facts().begin(&self.log, text);
        let keeps = self.persistent && self.epochs > 0;
        self.seed = self.log.base_seed(self.generator.as_ref(), keeps.then_some(self.seed));
        let pass = Pass { epoch: self.epochs, seed: self.seed };
        let tasks = self.passes.begin(pass, self.log.default.as_ref(), self.log.state())?;
        if let Some(resume) = &mut self.log.resume {
            resume.drawn = Some(tasks);
        }
        Ok(tasks)
    }
}

impl<P> Own<P> {
    /// Begins a pass with so many batches to come; `from` says what was delivered before.
    pub(super) fn begin(&mut self, request: Request, tasks: Option<usize>, from: Option<&State>) {
        (self.request, self.made, self.tasks) = (request, 0, tasks);
        self.tickets.start(from);
        let streams = from.and_then(|state| state.streams.as_ref());
        self.mark.start(streams.and_then(|streams| streams.workers.first()));
        self.over = self.mark.ended;
    }
}
