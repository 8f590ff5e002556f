//! The state of a loader, and how it resumes from one.

use crate::loader::backend::protocol::Backend;
use crate::loader::checkpoint::state::{State, Streams};
use crate::loader::collate::Output;
use crate::loader::collate::storage::Storage;
use crate::loader::consumer::compatibility::Compatibility;
use crate::loader::consumer::core::LoaderCore;
use crate::loader::consumer::loader::Loader;
use crate::loader::error::run::Error;
use crate::loader::error::state::StateError;
use crate::loader::order::index_source::IndexSource;
use crate::loader::order::passes::PassSeed;

impl<B: Output> Loader<B> {
    /// Returns the loader's state, to resume from it later with [`load_state`](Self::load_state).
    ///
    /// Within a pass use [`Pass::state`](crate::loader::Pass::state).
    pub fn state(&self) -> State {
        self.core.state()
    }

    /// Resumes from a state. The next [`epoch`](Self::epoch) returns the rest of the state's pass,
    /// bit for bit as the saved loader would have returned it, with the same batch and epoch
    /// numbers and the same random numbers. Later passes are the same, too.
    ///
    /// The loader may have another number of workers, `prefetch_factor` or `part_size`, or differ
    /// in any other option that does not decide the batches. No sample is read again: the order of
    /// the pass is drawn again, and loading continues at the saved position in it.
    ///
    /// The dataset length, batch size, `drop_last`, seed, and kind and parameters of the sampler
    /// must be the same. A loader without a seed or a generator takes over those of the state, and
    /// draws from a generator of its own from then on. If the saved loader drew from the process's
    /// default generator, this one draws from a copy of that generator, which nothing else uses. A
    /// loader's own generator is set back to the saved point when the next `epoch` begins.
    ///
    /// Skipping what was already delivered costs as much as drawing the order: nothing for a
    /// sequential order or a [`CipherSampler`](crate::sampler::CipherSampler), and one permutation
    /// with `shuffle`. Skipping the random numbers of all previous passes takes a few milliseconds
    /// at most. A custom sampler that does not [save itself](crate::sampler::Sampler::save), or an
    /// iterator, instead has to draw everything before the state again in the next `epoch`, however
    /// long that takes. It is not rewound if this loader has used it before. The loader then has a
    /// [warning](Self::warnings).
    ///
    /// With an iterable dataset the number of workers must be the same, since each worker reads its
    /// own part. Each worker's cursor (its iterator over that part) resumes from what the dataset
    /// [saved](crate::dataset::IterableDataset::save) for it. If the dataset saves nothing, each
    /// worker reads again and discards what it had already read.
    ///
    /// ```
    /// # #[cfg(feature = "serde")] {
    /// use slotline::Loader;
    /// use slotline::dataset::from_fn;
    /// use slotline::loader::State;
    ///
    /// let numbers = || from_fn(10, |index, _| Ok(index as i64));
    /// let mut loader = Loader::builder(numbers()).batch_size(3).shuffle(true).seed(42).build()?;
    /// let mut pass = loader.epoch()?;
    /// assert_eq!(pass.next().expect("four batches")?.indices(), [6, 5, 4]);
    /// let saved: String = serde_json::to_string(&pass.state())?; // to a file, next to the model's weights
    ///
    /// // Later, with two workers.
    /// let state: State = serde_json::from_str(&saved)?;
    /// let mut loader = Loader::builder(numbers()).batch_size(3).shuffle(true).seed(42).num_workers(2).build()?;
    /// loader.load_state(&state)?;
    /// for _epoch in loader.next_epoch()..2 {
    ///     for batch in loader.epoch()? {
    ///         println!("{:?}", batch?.indices()); // [0, 8, 9] first
    ///     }
    /// }
    /// # loader.load_state(&state)?;
    /// # assert_eq!(loader.epoch()?.next().expect("three batches")?.indices(), [0, 8, 9]);
    /// # }
    /// # Ok::<(), slotline::BoxError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`StateError`] if the state does not fit the loader, or is damaged; the loader is unchanged.
    pub fn load_state(&mut self, state: &State) -> Result<(), StateError> {
        self.core.load_state(state)
    }
}

impl<P: Storage> LoaderCore<P> {
    fn state(&self) -> State {
        self.compatibility().now(
            &self.position.log,
            self.position.epochs,
            &self.position.pass,
            &self.statistics.bad_samples,
            |running| self.streams(running),
        )
    }

    fn load_state(&mut self, state: &State) -> Result<(), StateError> {
        self.compatibility().check(state)?;
        self.give_up();
        self.position.log.load(
            state,
            &mut self.position.generator,
            self.passes.index_source_mut(),
            &mut self.statistics.warnings,
        )?;
        (self.position.epochs, self.position.persistent) = (state.epoch, state.start.persistent);
        Ok(())
    }

    /// Makes the next pass the one with this number.
    pub(crate) fn set_next_epoch(&mut self, epoch: u32) {
        self.give_up();
        // From here on, `state` returns the state at the start of the next pass.
        self.position.pass.running = false;
        if self.position.log.resume.take().is_some() {
            self.passes.index_source_mut().into_iter().for_each(IndexSource::restart);
        }
        self.position.epochs = epoch;
    }

    /// Keeps a pass that was drawn but could not begin, for the next `epoch` to begin.
    #[cold]
    pub(crate) fn put_off(&mut self, tasks: Option<usize>) {
        let state = State {
            streams: self.streams(false),
            ..self.compatibility().state(self.position.epochs, &self.position.log.before)
        };
        self.position.log.put_off(state, tasks);
    }

    /// The parts of the loader that its states depend on.
    fn compatibility(&self) -> Compatibility<'_> {
        Compatibility {
            dataset_len: self.passes.dataset_len(),
            batching: self.batching,
            generator: self.position.generator.as_ref(),
            adopted: self.position.log.adopted,
            default: self.position.log.default.as_ref(),
            persistent: self.position.persistent,
            base_seed: (self.position.epochs > 0).then_some(self.position.seed),
            index_source: self.passes.index_source(),
            num_workers: self.workers.pool.len(),
        }
    }

    /// Returns the positions of the workers in an iterable dataset, or their start if no pass is
    /// running.
    fn streams(&self, running: bool) -> Option<Streams> {
        if !self.is_numbered() { self.backend.streams(running.then_some(self.position.pass.samples)) } else { None }
    }

    /// Draws the next pass, or draws the pass of the loaded state again.
    pub(crate) fn draw(&mut self) -> Result<Option<usize>, Error> {
        self.position.log.prepare(self.passes.index_source_mut())?;
        let text = std::mem::take(&mut self.position.log.before.text);
        self.position.log.before = self.compatibility().begin(&self.position.log, text);
        let keeps = self.position.persistent && self.position.epochs > 0;
        self.position.seed =
            self.position.log.base_seed(self.position.generator.as_ref(), keeps.then_some(self.position.seed));
        let pass = PassSeed { epoch: self.position.epochs, seed: self.position.seed };
        let tasks = self.passes.begin(pass, self.position.log.default.as_ref(), self.position.log.state())?;
        if let Some(resume) = &mut self.position.log.resume {
            resume.drawn = Some(tasks);
        }
        Ok(tasks)
    }
}
