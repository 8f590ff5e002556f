//! The part of a loader that does not depend on the type in which batches are delivered.

use std::time::Duration;

use crate::BoxError;
use crate::loader::backend::AnyBackend;
use crate::loader::backend::protocol::{Backend, Begin, Begun, NotBegun, Request};
use crate::loader::bad_samples::BadSampleLog;
use crate::loader::builder::options::Options;
use crate::loader::collate::cell::Lease;
use crate::loader::collate::loader_memory::LoaderMemory;
use crate::loader::collate::storage::Storage;
use crate::loader::consumer::log::Log;
use crate::loader::error::guard::dispose_each;
use crate::loader::error::run::Error;
use crate::loader::error::warning::{Warning, Warnings};
use crate::loader::metrics::activity::Activity;
use crate::loader::metrics::reader::{ConsumerStats, Known, StatsReader};
use crate::loader::order::index_source::Batching;
use crate::loader::order::passes::Passes;
use crate::loader::order::progress::Progress;
use crate::loader::worker::watchdog::Watchdog;
use crate::loader::worker::workers::Workers;
use crate::rng::SharedGenerator;
use crate::sync::Instant;
use crate::wait::Until;

/// A loader whose batches are stored in `P`, without the type in which they are delivered.
pub(crate) struct LoaderCore<P: Storage> {
    pub(crate) backend: AnyBackend<P>,
    pub(crate) passes: Box<dyn Passes>,
    pub(crate) memory: LoaderMemory<P>,
    pub(crate) position: Position,
    pub(crate) statistics: Statistics,
    pub(crate) batching: Batching,
    pub(crate) in_order: bool,
    pub(crate) timeout: Option<Duration>,
    /// The worker threads, which end after the backend was closed.
    pub(crate) workers: Workers,
}

/// The loader's position in its sequence of passes.
pub(crate) struct Position {
    /// The loader's own generator; `None` if it draws from the process's default one.
    pub(crate) generator: Option<SharedGenerator>,
    /// The base seed of the pass, and whether the next pass uses the same one
    /// (`persistent_workers`).
    pub(crate) seed: u64,
    pub(crate) persistent: bool,
    /// The number of passes so far, and the number of successful calls of `epoch`. The latter also
    /// counts calls that resume a pass.
    pub(crate) epochs: u32,
    pub(crate) passes_begun: u64,
    pub(crate) pass: Progress,
    pub(crate) log: Log,
}

/// The statistics and warnings of a loader.
pub(crate) struct Statistics {
    pub(crate) consumer: ConsumerStats,
    pub(crate) bad_samples: BadSampleLog,
    pub(crate) warnings: Warnings,
}

impl<P: Storage> LoaderCore<P> {
    /// Makes a loader, which has not begun a pass, and reports its warnings.
    pub(crate) fn new(
        options: Options,
        batching: Batching,
        memory: LoaderMemory<P>,
        (backend, passes): (AnyBackend<P>, Box<dyn Passes>),
        workers: Workers,
        (consumer, built): (ConsumerStats, Vec<Warning>),
    ) -> Self {
        let mut warnings = Warnings { list: Vec::new(), listener: options.on_warning.clone() };
        let aborts = cfg!(panic = "abort").then_some(Warning::PanicAborts);
        built.into_iter().chain(aborts).for_each(|warning| warnings.add(warning));
        // Without indices, each worker makes its own pass.
        let own_passes = passes.index_source().is_none();
        let bad_samples = BadSampleLog::new(options.on_error, own_passes, options.on_warning);
        let in_order = options.in_order;
        let position = Position {
            generator: options.generator,
            seed: 0,
            persistent: options.persistent_workers,
            epochs: 0,
            passes_begun: 0,
            pass: Progress::default(),
            log: Log::new(if in_order { 0 } else { memory.cell_pool.depth() }),
        };
        Self {
            backend,
            passes,
            position,
            statistics: Statistics { consumer, bad_samples, warnings },
            batching,
            in_order,
            timeout: Some(options.timeout).filter(|timeout| !timeout.is_zero()),
            workers: Workers { pool: workers.pool.writes_into(memory.block.as_ref()), ..workers },
            memory,
        }
    }

    /// Begins a pass. Abandons the previous one if it has not ended.
    pub(crate) fn begin(&mut self) -> Result<(), Error> {
        // The previous pass may have been leaked, or not iterated to its end. End it first, so that
        // it ends even if this call fails before the next pass begins.
        self.give_up();
        if self.workers.pool.is_lost() {
            return Err(Error::Forked);
        }
        if let Some(error) = self.worker_error() {
            return Err(error);
        }
        let begun = Instant::now();
        // Do this before the pass gives work to any worker.
        self.workers.activities.last().inspect(|own| {
            own.counters.begin_pass(begun);
            own.enter_thread();
        });
        self.drain()?;
        let tasks = match self.position.log.resume.as_ref().and_then(|resume| resume.drawn) {
            Some(tasks) => tasks,
            None => self.draw()?,
        };
        self.position.passes_begun += 1;
        let positions = self.passes.positions();
        let (bad, delivered) = self.position.log.state().map_or((0, 0), |state| (state.bad_samples, state.batches()));
        let budget = self.statistics.bad_samples.begin(positions, bad, self.passes.is_shared());
        let request = Request {
            task: None,
            epoch: self.position.epochs,
            seed: self.position.seed,
            pass: self.position.passes_begun,
            budget,
        };
        let deadline = Until::after(self.timeout);
        let from = self.position.log.resume.as_ref().map(|resume| &resume.state);
        let left = tasks.map(|tasks| tasks - delivered);
        let Begun { mut failures, no_worker_left } =
            match self.backend.begin(Begin { request, left, from, deadline: &deadline }) {
                Ok(begun) => begun,
                Err(NotBegun::TooMany) => return Err(Error::TooManyBatches { tasks: tasks.unwrap_or_default() }),
                Err(stuck) => {
                    self.put_off(tasks);
                    return Err(self.stuck(stuck));
                }
            };
        self.position.log.gaps.start(from);
        let state = self.position.log.resume.take().map(|resume| resume.state);
        let streams = state.as_ref().and_then(|state| state.streams.as_ref());
        let numbered = self.is_numbered();
        failures.reverse();
        self.position.pass = Progress {
            epoch: self.position.epochs,
            tasks,
            delivered,
            samples: streams.map_or(0, |streams| streams.samples),
            declared_len: positions.filter(|_| !numbered),
            discarded: 0,
            numbered,
            gaps: numbered && !self.in_order || !self.position.log.gaps.missing.is_empty(),
            running: true,
            open: true,
            no_worker_left: no_worker_left && !failures.is_empty(),
            failures,
        };
        self.position.epochs = self.position.epochs.wrapping_add(1);
        self.statistics.consumer.begin(begun);
        Ok(())
    }

    /// Abandons the rest of the pass, if any is left.
    pub(crate) fn give_up(&mut self) {
        if self.position.pass.has_more() {
            // The next pass waits until the workers have left this one, so stop them early.
            self.abandon();
        }
        self.end();
    }

    /// Ends the pass, which returns nothing more.
    #[cold]
    pub(crate) fn end(&mut self) {
        self.position.pass.open = false;
        self.statistics.consumer.end();
        dispose_each(std::mem::take(&mut self.position.pass.failures));
    }

    /// Makes workers stop after their current sample and begin nothing more in this pass.
    pub(crate) fn abandon(&self) {
        // In a forked process these are the parent's workers, and the flag may be shared with them.
        if self.workers.pool.is_lost() {
            return;
        }
        self.workers.cancel.set(true);
        self.backend.seal();
    }

    /// Takes the remaining batches of the previous pass and discards them.
    fn drain(&mut self) -> Result<(), Error> {
        let deadline = Until::after(self.timeout);
        self.backend.drain(&mut self.position.pass, &deadline).map_err(|stuck| self.stuck(stuck))?;
        // The thread that called `stop` may not have closed the ring yet.
        if self.workers.cancel.is_stopped() {
            return Err(Error::Stopped);
        }
        self.workers.cancel.set(false);
        self.position.pass = Progress::default();
        Ok(())
    }

    /// Counts a batch or a failure that was requested as batch `task`, and returns the batch number
    /// that the user sees.
    #[inline(always)]
    pub(crate) fn number(&mut self, task: usize) -> usize {
        let pass = &mut self.position.pass;
        pass.delivered += 1;
        if pass.gaps {
            self.position.log.gaps.note(task);
        }
        if pass.numbered { task } else { pass.delivered - 1 }
    }

    /// Counts the samples of a batch to be delivered. Warns if an iterable dataset has returned
    /// more than its length.
    #[inline(always)]
    pub(crate) fn count(&mut self, lease: &Lease<P>, rows: usize) {
        self.statistics.consumer.count(lease, rows);
        if !self.position.pass.numbered {
            self.count_stream(rows);
        }
    }

    #[inline(never)]
    pub(crate) fn count_stream(&mut self, rows: usize) {
        let pass = &mut self.position.pass;
        pass.samples = pass.samples.saturating_add(rows);
        if let Some(len) = pass.declared_len.filter(|&len| len < pass.samples) {
            pass.declared_len = None;
            if self.statistics.warnings.list.iter().any(|warning| matches!(warning, Warning::Overlong { .. })) {
                return;
            }
            self.statistics.warnings.add(Warning::Overlong { samples: pass.samples, len });
        }
    }

    /// Whether [`next`](Self::next) returns without waiting.
    pub(crate) fn is_ready(&self) -> bool {
        !self.position.pass.open || !self.position.pass.failures.is_empty() || self.backend.is_ready()
    }

    /// Records how many finished batches are waiting.
    #[cold]
    pub(crate) fn look(&mut self) {
        self.statistics.consumer.found(self.backend.ready(), self.position.pass.delivered);
    }

    pub(crate) fn stats_reader(&self) -> StatsReader {
        self.statistics.consumer.reader(Known {
            activities: &self.workers.activities,
            stuck: self.workers.watchdog.as_ref().map(Watchdog::stuck),
            depth: self.memory.cell_pool.depth(),
            bad: self.statistics.bad_samples.report(),
            own_passes: self.statistics.bad_samples.own_passes(),
            in_order: self.in_order,
            round_robin: self.backend.assigns_batches(),
        })
    }

    /// Whether a batch has the number under which it was requested. The batches of an iterable
    /// dataset are numbered as they are delivered instead, since a request to a worker that has
    /// reached the end of its part of the dataset returns no batch.
    pub(crate) fn is_numbered(&self) -> bool {
        self.passes.index_source().is_some()
    }

    /// The number of batches in a pass, if that is known.
    pub(crate) fn len(&self) -> Option<usize> {
        self.passes.samples().map(|samples| self.batching.batches(samples))
    }

    /// Returns the error to report if the loader cannot continue because workers have ended.
    pub(crate) fn worker_error(&self) -> Option<Error> {
        if self.workers.cancel.is_stopped() || !self.backend.cannot_continue() {
            None
        } else {
            self.workers.liveness.error()
        }
    }

    /// Returns the reason why the loader is closed.
    #[cold]
    pub(crate) fn closed(&self) -> Error {
        self.worker_error().unwrap_or(Error::Stopped)
    }

    /// Returns the error for a pass that could not begin, or for a previous pass that did not end.
    #[cold]
    fn stuck(&self, stuck: NotBegun) -> Error {
        match stuck {
            NotBegun::Late if !self.workers.cancel.is_stopped() => {
                self.worker_error().unwrap_or_else(|| self.timed_out())
            }
            _ => self.closed(),
        }
    }

    #[cold]
    pub(crate) fn timed_out(&self) -> Error {
        let workers = &self.workers.activities[..self.workers.pool.len()];
        // With `in_order` the loader waits for the next batch, and otherwise for the first one that
        // a worker has begun. The batches of an iterable dataset are numbered as they are
        // delivered, so for these the next number is used, too.
        let arrive = !self.in_order && self.is_numbered();
        let begun = workers.iter().filter_map(|worker| worker.task()).min().filter(|_| arrive);
        let task = begun.unwrap_or_else(|| self.backend.awaited(&self.position.pass));
        let of = |worker: &Activity| if self.backend.assigns_batches() { worker.task() } else { Some(task) };
        let busy = workers.iter().enumerate().filter_map(|(id, worker)| Some((id, worker.reading(of(worker)?)?)));
        Error::Timeout { after: self.timeout.unwrap_or_default(), task, busy: busy.collect() }
    }

    /// Allocates memory for one more batch, because more batches are kept than there is memory for.
    #[cold]
    #[inline(never)]
    pub(crate) fn grow(&mut self) -> Result<(), BoxError> {
        let taken = self.memory.ceiling.saturating_add(self.statistics.consumer.extra_bytes() as usize);
        let limit = self.memory.limit.unwrap_or(usize::MAX);
        let most = limit.saturating_sub(taken);
        let grown = if self.memory.cell_pool.growth() <= most { self.memory.cell_pool.grow(most)? } else { None };
        let Some((bytes, warning)) = grown else {
            let total = taken.saturating_add(self.memory.cell_pool.growth());
            return Err(format!("the loader would take {total} bytes, and memory_limit is {limit}").into());
        };
        let kept =
            self.statistics.consumer.grew(bytes).then(|| Warning::Kept { hold: self.memory.cell_pool.hold(), bytes });
        kept.into_iter().chain(warning).for_each(|warning| self.statistics.warnings.add(warning));
        Ok(())
    }

    /// Returns an error that names the batch that was kept longest.
    #[cold]
    pub(crate) fn held(&self, source: Option<BoxError>) -> Error {
        let kept = self.memory.cell_pool.kept().chain(self.backend.kept());
        let oldest = kept.min_by_key(|kept| (kept.epoch, kept.task));
        let (task, epoch) = oldest.map_or((0, 0), |kept| (kept.task, kept.epoch));
        Error::Held { task, epoch, hold: self.memory.cell_pool.hold(), source }
    }
}

impl<P: Storage> Drop for LoaderCore<P> {
    fn drop(&mut self) {
        self.end();
        if self.workers.pool.is_lost() {
            return self.workers.pool.forget();
        }
        self.workers.cancel.set(true);
        self.backend.close();
        let deadline = Until::after(Some(self.workers.close_timeout));
        self.workers.end(&deadline).into_iter().for_each(|warning| self.statistics.warnings.add(warning));
    }
}
