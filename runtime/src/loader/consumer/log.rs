//! What a loader records in order to save its state, and the state that it resumes from.

use crate::loader::bad_samples::BadSampleLog;
use crate::loader::checkpoint::state::{State, Streams};
use crate::loader::checkpoint::tickets::Gaps;
use crate::loader::consumer::compatibility::{Before, Compatibility};
use crate::loader::error::run::Error;
use crate::loader::error::state::StateError;
use crate::loader::error::warning::Warnings;
use crate::loader::order::index_source::{IndexSource, Origin, draw_base_seed};
use crate::loader::order::progress::Progress;
use crate::rng::{Generator, GeneratorState, SharedGenerator};

/// Records the state before each pass of a loader, and the state to resume from.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// The generator that the loader uses instead of the process's default one, after it loaded a
    /// state of a loader that drew from the default one.
    pub(crate) default: Option<SharedGenerator>,
    /// Whether the loader's own generator was created from a loaded state.
    pub(crate) adopted: bool,
    /// The state of everything that the current pass was drawn from.
    pub(crate) before: Before,
    /// The state from which the next pass resumes.
    pub(crate) resume: Option<Resume>,
    pub(crate) gaps: Gaps,
}

/// A state to resume from: one that was loaded, or that of a pass that was drawn but could not
/// begin.
#[derive(Debug)]
pub(crate) struct Resume {
    pub(crate) state: State,
    /// The number of batches in its pass (`None` if unknown), if an `epoch` that failed later has
    /// already drawn the pass.
    pub(crate) drawn: Option<Option<usize>>,
    /// Whether an attempt to draw the pass was already made.
    pub(crate) tried: bool,
}

impl Log {
    /// Makes the log of a loader, with memory for this many undelivered batches among delivered
    /// ones.
    pub(crate) fn new(gaps: usize) -> Self {
        Self { gaps: Gaps::with_capacity(gaps), ..Self::default() }
    }

    /// The state to resume from.
    pub(crate) fn state(&self) -> Option<&State> {
        self.resume.as_ref().map(|resume| &resume.state)
    }

    /// Sets the loader's generators and sampler to a state that was checked. Warns if the sampler
    /// cannot skip to the state's position.
    pub(crate) fn load(
        &mut self,
        state: &State,
        generator: &mut Option<SharedGenerator>,
        mut draw: Option<&mut IndexSource>,
        warnings: &mut Warnings,
    ) -> Result<(), StateError> {
        let warning = match &mut draw {
            Some(draw) => draw.restore(state)?,
            None => state.fast_forward(),
        };
        let new = |point: GeneratorState| SharedGenerator::from(Generator::from_seed(point.seed));
        if generator.is_none() || self.adopted {
            *generator = state.start.generator.map(new);
            self.adopted = generator.is_some();
            if let Some(IndexSource { from: Origin::Shuffled(from), .. }) = draw {
                from.clone_from(generator);
            }
        }
        self.default = state.start.default_generator.map(new);
        self.resume = Some(Resume { state: state.clone(), drawn: None, tried: false });
        warning.into_iter().for_each(|warning| warnings.add(warning));
        Ok(())
    }

    /// Keeps a pass that was drawn but could not begin, so that the next `epoch` begins this pass
    /// and draws no other.
    #[cold]
    pub(crate) fn put_off(&mut self, state: State, tasks: Option<usize>) {
        // A pass that is being resumed is kept already.
        self.resume.get_or_insert(Resume { state, drawn: Some(tasks), tried: true });
    }

    /// Prepares the sampler for drawing the pass of the state to resume from, if there is such a
    /// state. If an earlier attempt to draw the pass failed, restores the sampler first.
    pub(crate) fn prepare(&mut self, draw: Option<&mut IndexSource>) -> Result<(), Error> {
        let (Some(resume), Some(draw)) = (&mut self.resume, draw) else { return Ok(()) };
        if std::mem::replace(&mut resume.tried, true) {
            draw.restore(&resume.state)?;
        }
        draw.fast_forward(self.default.as_ref(), &resume.state)
    }

    /// Sets the generators to the positions in the state to resume from, if there is such a state.
    pub(crate) fn put(&self, generator: Option<&SharedGenerator>) {
        let Some(state) = self.state() else { return };
        for (point, generator) in
            [(state.start.generator, generator), (state.start.default_generator, self.default.as_ref())]
        {
            if let (Some(point), Some(generator)) = (point, generator) {
                point.put(&mut generator.lock());
            }
        }
    }

    /// Returns the base seed of the next pass. Without `kept`, it is newly drawn; otherwise it is
    /// the base seed in the state to resume from, or `kept` if there is none.
    pub(crate) fn base_seed(&self, own: Option<&SharedGenerator>, kept: Option<u64>) -> u64 {
        match kept {
            None => draw_base_seed(own.or(self.default.as_ref())),
            Some(kept) => self.state().and_then(|state| state.start.base_seed).unwrap_or(kept),
        }
    }
}

impl Compatibility<'_> {
    /// Returns the current state of a loader whose next pass has the number `next`. `streams` gets
    /// whether a pass is running, and returns the positions of the workers in an iterable dataset.
    pub(crate) fn now(
        &self,
        log: &Log,
        next: u32,
        pass: &Progress,
        bad_log: &BadSampleLog,
        streams: impl FnOnce(bool) -> Option<Streams>,
    ) -> State {
        if let Some(state) = log.state() {
            return state.clone();
        }
        let streams = streams(pass.running);
        if !pass.running {
            return State { streams, ..self.state(next, &self.before(String::new())) };
        }
        let missing = if pass.gaps { log.gaps.missing.clone() } else { Vec::new() };
        let (batches, bad_samples) = (pass.delivered, bad_log.in_pass());
        State { batches, missing, bad_samples, streams, ..self.state(pass.epoch, &log.before) }
    }

    /// Records the state before a pass. If there is a state to resume from, first sets the
    /// generators to their positions in it.
    pub(crate) fn begin(&self, log: &Log, text: String) -> Before {
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
