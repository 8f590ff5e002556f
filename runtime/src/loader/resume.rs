//! What a loader keeps so that it can say where it is, and what it was told to go on from.

use super::draw::{Draw, Origin};
use super::error::Warning;
use super::state::{Before, Facts, State, StateError};
use crate::rng::{Generator, SharedGenerator};

/// A loader's memory of where its passes begin.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// In the place of the process's default generator, since a state was loaded that had drawn from that.
    pub(super) default: Option<SharedGenerator>,
    /// Whether the loader's own generator was taken from a state.
    pub(super) adopted: bool,
    /// Where everything was before the current pass was drawn.
    pub(super) before: Before,
    /// What the next pass goes on from.
    pub(super) resume: Option<Resume>,
    pub(super) gaps: Gaps,
}

/// A loaded state.
#[derive(Debug)]
pub(super) struct Resume {
    pub(super) state: State,
    /// The number of batches in its pass, if that was drawn already, by an `epoch` that failed later on.
    pub(super) drawn: Option<Option<usize>>,
    /// Whether it was tried to draw it.
    pub(super) tried: bool,
}

impl Log {
    /// The log of a loader whose batches can be delivered with so many before them that are not.
    pub(super) fn new(gaps: usize) -> Self {
        let gaps = Gaps { next: 0, missing: Vec::with_capacity(gaps) };
        Self { gaps, ..Self::default() }
    }

    /// The state to go on from.
    pub(super) fn state(&self) -> Option<&State> {
        self.resume.as_ref().map(|resume| &resume.state)
    }

    /// Takes over a state that was found to fit, and gives the warnings about it.
    pub(super) fn load(
        &mut self,
        state: &State,
        generator: &mut Option<SharedGenerator>,
        draw: Option<&mut Draw>,
    ) -> Result<Option<Warning>, StateError> {
        let warning = match draw {
            Some(draw) => {
                let warning = draw.restore(state)?;
                if generator.is_none() || self.adopted {
                    self.adopt(state, generator);
                    if let Origin::Shuffled(from) = &mut draw.from {
                        from.clone_from(generator);
                    }
                }
                warning
            }
            None => {
                if generator.is_none() || self.adopted {
                    self.adopt(state, generator);
                }
                state.fast_forward()
            }
        };
        let new = |seed| SharedGenerator::from(Generator::from_seed(seed));
        self.default = state.start.default_generator.map(|point| new(point.seed));
        self.resume = Some(Resume { state: state.clone(), drawn: None, tried: false });
        Ok(warning)
    }

    fn adopt(&mut self, state: &State, generator: &mut Option<SharedGenerator>) {
        *generator = state.start.generator.map(|point| Generator::from_seed(point.seed).into());
        self.adopted = generator.is_some();
    }

    /// Prepares to draw the pass of the state to go on from, if there is one; once more if it was tried before.
    pub(super) fn prepare(&mut self, draw: Option<&mut Draw>) -> Result<(), StateError> {
        let Some(resume) = &mut self.resume else { return Ok(()) };
        if std::mem::replace(&mut resume.tried, true)
            && let Some(draw) = draw
        {
            draw.restore(&resume.state)?;
        }
        Ok(())
    }

    /// Puts the generators where the state to go on from has them.
    pub(super) fn put(&self, generator: Option<&SharedGenerator>) {
        let Some(state) = self.state() else { return };
        for (point, generator) in
            [(state.start.generator, generator), (state.start.default_generator, self.default.as_ref())]
        {
            if let (Some(point), Some(generator)) = (point, generator) {
                point.put(&mut generator.lock());
            }
        }
    }

    /// The generator that base seeds are drawn from, if it is not the process's default one.
    pub(super) fn generator<'a>(&'a self, own: Option<&'a SharedGenerator>) -> Option<&'a SharedGenerator> {
        own.or(self.default.as_ref())
    }
}

impl Facts<'_> {
    /// Where everything is before a pass, or was, if a state is to go on from.
    pub(super) fn begin(&self, log: &Log, text: String) -> Before {
        match log.state() {
            Some(state) => {
                log.put(self.generator);
                let mut before = self.before(text);
                before.base_seed = state.start.base_seed;
                before
            }
            None => self.before(text),
        }
    }
}

/// Which batches of a pass were delivered, where these are not just the first ones.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    /// One more than the highest number delivered.
    next: usize,
    /// Numbers below it that were not, ascending.
    pub(super) missing: Vec<usize>,
}

impl Gaps {
    /// Begins a pass of which this much was delivered before.
    pub(super) fn start(&mut self, state: Option<&State>) {
        self.missing.clear();
        self.missing.extend(state.iter().flat_map(|state| &state.missing));
        self.next = state.map_or(0, State::next);
    }

    /// Notes that a batch was delivered.
    pub(super) fn note(&mut self, task: usize) {
        if task >= self.next {
            self.missing.extend(self.next..task);
            self.next = task + 1;
        } else if let Ok(place) = self.missing.binary_search(&task) {
            self.missing.remove(place);
        }
    }
}

/// Which batch a ticket is for: after a resumption, first those that were passed over, and then those after the last one
/// that was delivered.
#[derive(Debug, Default)]
pub(super) struct Tickets {
    /// Batches delivered before.
    pub(super) done: usize,
    missing: Vec<usize>,
}

impl Tickets {
    /// Begins a pass of which this much was delivered before.
    pub(super) fn start(&mut self, state: Option<&State>) {
        self.done = state.map_or(0, State::batches);
        self.missing.clear();
        self.missing.extend(state.iter().flat_map(|state| &state.missing));
    }

    /// The batch of a ticket.
    #[inline(always)]
    pub(super) fn task(&self, ticket: usize) -> usize {
        if ticket >= self.missing.len() { ticket + self.done } else { self.missing[ticket] }
    }
}
