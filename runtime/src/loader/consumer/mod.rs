//! A loader without the type of its batches: everything except delivering them.

pub(crate) mod compatibility;
pub(crate) mod loader;
pub(crate) mod pass;
pub(crate) mod resume;

use std::sync::Arc;
use std::time::Duration;

use crossbeam_utils::CachePadded;

use crate::BoxError;
use crate::dataset::StopToken;
use crate::loader::backend::per_worker::worker::Request;
use crate::loader::backend::{Backend, Begin, Begun, NotBegun};
use crate::loader::bad_samples::BadSampleLog;
use crate::loader::builder::options::Options;
use crate::loader::collate::Storage;
use crate::loader::collate::block::Block;
use crate::loader::collate::cell::Lease;
use crate::loader::collate::on_held::OnHeld;
use crate::loader::collate::slab::Slab;
use crate::loader::consumer::resume::Log;
use crate::loader::error::guard::dispose_each;
use crate::loader::error::run::Error;
use crate::loader::error::warning::{Warning, Warnings};
use crate::loader::metrics::activity::Activity;
use crate::loader::metrics::reader::{ConsumerStats, Known, StatsReader};
use crate::loader::order::index_source::Batching;
use crate::loader::order::passes::Passes;
use crate::loader::order::progress::Progress;
use crate::loader::worker::deaths::Deaths;
use crate::loader::worker::pool::WorkerPool;
use crate::loader::worker::watchdog::Watchdog;
use crate::placed::Placed;
use crate::rng::SharedGenerator;
use crate::sync::Instant;
use crate::wait::Until;

/// A loader whose slots hold `P`.
pub(crate) struct Inner<P: Storage> {
    pub(crate) backend: Backend<P>,
    pub(crate) slab: Slab<P>,
    pub(crate) passes: Box<dyn Passes>,
    pub(crate) cancel: StopToken,
    /// The activity of each worker, and last of the consumer.
    pub(crate) activities: Placed<[CachePadded<Activity>]>,
    pub(crate) deaths: Arc<Deaths>,
    pub(crate) pool: WorkerPool,
    /// `None`: the process's default generator.
    pub(crate) generator: Option<SharedGenerator>,
    /// The base seed of the pass.
    pub(crate) seed: u64,
    pub(crate) batching: Batching,
    pub(crate) timeout: Option<Duration>,
    pub(crate) in_order: bool,
    pub(crate) on_held: OnHeld,
    pub(crate) persistent: bool,
    pub(crate) bad_log: BadSampleLog,
    pub(crate) block: Option<Block>,
    pub(crate) memory_ceiling: usize,
    pub(crate) memory_limit: Option<usize>,
    /// How long dropping the loader waits for its threads.
    pub(crate) close_timeout: Duration,
    pub(crate) warnings: Warnings,
    /// The number of passes so far, and the number of successful calls of `epoch`, which also start the rest of a pass.
    pub(crate) epochs: u32,
    pub(crate) passes_begun: u64,
    pub(crate) pass: Progress,
    pub(crate) log: Log,
    pub(crate) stats: ConsumerStats,
    /// Ended after the pool.
    pub(crate) watchdog: Option<Watchdog>,
}

/// The parts of a new loader that do not come from its options.
pub(crate) struct Parts<P> {
    pub(crate) backend: Backend<P>,
    pub(crate) slab: Slab<P>,
    pub(crate) passes: Box<dyn Passes>,
    pub(crate) cancel: StopToken,
    pub(crate) activities: Placed<[CachePadded<Activity>]>,
    pub(crate) deaths: Arc<Deaths>,
    pub(crate) pool: WorkerPool,
    pub(crate) batching: Batching,
    pub(crate) in_order: bool,
    pub(crate) block: Option<Block>,
    pub(crate) memory_ceiling: usize,
    pub(crate) warnings: Vec<Warning>,
    pub(crate) log: Log,
    pub(crate) stats: ConsumerStats,
    pub(crate) watchdog: Option<Watchdog>,
}

impl<P: Storage> Inner<P> {
    /// Makes a loader before its first pass, and reports its warnings.
    pub(crate) fn new(parts: Parts<P>, options: Options) -> Self {
        let mut warnings = Warnings { list: Vec::new(), listener: options.on_warning.clone() };
        let aborts = cfg!(panic = "abort").then_some(Warning::PanicAborts);
        parts.warnings.into_iter().chain(aborts).for_each(|warning| warnings.add(warning));
        // Without an index each worker makes its own pass.
        let own_passes = parts.passes.index_source().is_none();
        Self {
            backend: parts.backend,
            slab: parts.slab,
            passes: parts.passes,
            cancel: parts.cancel,
            activities: parts.activities,
            deaths: parts.deaths,
            pool: parts.pool.writes_into(parts.block.as_ref()),
            generator: options.generator,
            seed: 0,
            batching: parts.batching,
            timeout: Some(options.timeout).filter(|timeout| !timeout.is_zero()),
            in_order: parts.in_order,
            on_held: options.on_held,
            persistent: options.persistent_workers,
            bad_log: BadSampleLog::new(options.on_error, own_passes, options.on_warning),
            block: parts.block,
            memory_ceiling: parts.memory_ceiling,
            memory_limit: options.memory_limit,
            close_timeout: options.close_timeout,
            warnings,
            epochs: 0,
            passes_begun: 0,
            pass: Progress::default(),
            log: parts.log,
            stats: parts.stats,
            watchdog: parts.watchdog,
        }
    }

    /// Begins a pass. If the previous one has not ended, it is abandoned.
    pub(crate) fn begin(&mut self) -> Result<(), Error> {
        // The previous pass may have been leaked, or not iterated to its end. End it first, so that it ends even if no
        // other pass begins.
        self.give_up();
        if self.pool.is_lost() {
            return Err(Error::Forked);
        }
        if let Some(error) = self.worker_error() {
            return Err(error);
        }
        let begun = Instant::now();
        // Before any worker is asked for anything.
        self.activities.last().inspect(|own| {
            own.counters.begin_pass(begun);
            own.enter_thread();
        });
        self.drain()?;
        let tasks = match self.log.resume.as_ref().and_then(|resume| resume.drawn) {
            Some(tasks) => tasks,
            None => self.draw()?,
        };
        self.passes_begun += 1;
        let positions = self.passes.positions();
        let (bad, delivered) = self.log.state().map_or((0, 0), |state| (state.bad_samples, state.batches()));
        let budget = self.bad_log.begin(positions, bad, self.passes.is_shared());
        let request = Request { task: None, epoch: self.epochs, seed: self.seed, pass: self.passes_begun, budget };
        let deadline = Until::after(self.timeout);
        let from = self.log.resume.as_ref().map(|resume| &resume.state);
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
        self.log.gaps.start(from);
        let state = self.log.resume.take().map(|resume| resume.state);
        let streams = state.as_ref().and_then(|state| state.streams.as_ref());
        let numbered = self.backend.is_numbered(tasks);
        failures.reverse();
        self.pass = Progress {
            epoch: self.epochs,
            tasks,
            delivered,
            samples: streams.map_or(0, |streams| streams.samples),
            declared_len: positions.filter(|_| !numbered),
            discarded: 0,
            numbered,
            gaps: numbered && !self.in_order || !self.log.gaps.missing.is_empty(),
            running: true,
            open: true,
            no_worker_left: no_worker_left && !failures.is_empty(),
            failures,
        };
        self.epochs = self.epochs.wrapping_add(1);
        self.stats.begin(begun);
        Ok(())
    }

    /// Abandons the rest of the pass, if there is any.
    pub(crate) fn give_up(&mut self) {
        if self.pass.has_more() {
            // The next pass waits for the workers, so stop them now.
            self.abandon();
        }
        self.end();
    }

    /// Ends the pass: nothing more of it is returned.
    #[cold]
    pub(crate) fn end(&mut self) {
        self.pass.open = false;
        self.stats.end();
        dispose_each(std::mem::take(&mut self.pass.failures));
    }

    /// Makes workers stop after their current sample and begin nothing more.
    pub(crate) fn abandon(&self) {
        // In a forked process the workers are those of the parent, and may see the flag.
        if self.pool.is_lost() {
            return;
        }
        self.cancel.set(true);
        self.backend.seal();
    }

    /// Takes the rest of the previous pass and discards it.
    fn drain(&mut self) -> Result<(), Error> {
        let deadline = Until::after(self.timeout);
        self.backend.drain(&mut self.pass, &deadline).map_err(|stuck| self.stuck(stuck))?;
        // The thread that called `stop` may not have closed the ring yet.
        if self.cancel.is_stopped() {
            return Err(Error::Stopped);
        }
        self.cancel.set(false);
        self.pass = Progress::default();
        Ok(())
    }

    /// Counts a batch or a failure that was asked for as number `task`, and returns its number for the user.
    #[inline(always)]
    pub(crate) fn number(&mut self, task: usize) -> usize {
        let pass = &mut self.pass;
        pass.delivered += 1;
        if pass.gaps {
            self.log.gaps.note(task);
        }
        if pass.numbered { task } else { pass.delivered - 1 }
    }

    /// Counts samples that are delivered, and warns if an iterable dataset has more than its length.
    #[inline(always)]
    pub(crate) fn count(&mut self, lease: &Lease<P>, rows: usize) {
        self.stats.count(lease, rows);
        if !self.pass.numbered {
            self.count_stream(rows);
        }
    }

    #[inline(never)]
    pub(crate) fn count_stream(&mut self, rows: usize) {
        let pass = &mut self.pass;
        pass.samples = pass.samples.saturating_add(rows);
        if let Some(len) = pass.declared_len.filter(|&len| len < pass.samples) {
            pass.declared_len = None;
            if self.warnings.list.iter().any(|warning| matches!(warning, Warning::Overlong { .. })) {
                return;
            }
            self.warnings.add(Warning::Overlong { samples: pass.samples, len });
        }
    }

    /// Whether [`next`](Self::next) returns without waiting.
    pub(crate) fn is_ready(&self) -> bool {
        self.pass.open && (!self.pass.failures.is_empty() || self.backend.is_ready())
    }

    /// Records how many finished batches there are.
    #[cold]
    pub(crate) fn look(&mut self) {
        self.stats.found(self.backend.ready(), self.pass.delivered);
    }

    pub(crate) fn stats_reader(&self) -> StatsReader {
        self.stats.reader(Known {
            activities: &self.activities,
            stuck: self.watchdog.as_ref().map(Watchdog::stuck),
            depth: self.slab.depth(),
            bad: self.bad_log.report(),
            own_passes: self.bad_log.own_passes(),
            in_order: self.in_order,
            round_robin: matches!(self.backend, Backend::PerWorker(_)),
        })
    }

    /// The number of batches in a pass, if that is known.
    pub(crate) fn len(&self) -> Option<usize> {
        self.passes.samples().map(|samples| self.batching.batches(samples))
    }

    /// The reason why there will be no more batches, if workers have ended with a panic.
    pub(crate) fn worker_error(&self) -> Option<Error> {
        if self.cancel.is_stopped() || !self.backend.cannot_continue() { None } else { self.deaths.error() }
    }

    /// The reason why the loader is closed.
    #[cold]
    pub(crate) fn closed(&self) -> Error {
        self.worker_error().unwrap_or(Error::Stopped)
    }

    /// The error for a pass that did not begin, or for a previous one that did not end.
    #[cold]
    fn stuck(&self, stuck: NotBegun) -> Error {
        match stuck {
            NotBegun::Late if !self.cancel.is_stopped() => self.worker_error().unwrap_or_else(|| self.timed_out()),
            _ => self.closed(),
        }
    }

    #[cold]
    pub(crate) fn timed_out(&self) -> Error {
        let workers = &self.activities[..self.pool.len()];
        // In order, the next batch is awaited; otherwise the first one of those that were started. Batches of an
        // iterable dataset are counted as they come.
        let arrive = !self.in_order && self.backend.is_numbered(self.pass.tasks);
        let begun = workers.iter().filter_map(|worker| worker.task()).min().filter(|_| arrive);
        let task = begun.unwrap_or_else(|| self.backend.awaited(&self.pass));
        let of = |worker: &Activity| match &self.backend {
            Backend::PerWorker(_) => worker.task(),
            _ => Some(task),
        };
        let busy = workers.iter().enumerate().filter_map(|(id, worker)| Some((id, worker.reading(of(worker)?)?)));
        Error::Timeout { after: self.timeout.unwrap_or_default(), task, busy: busy.collect() }
    }

    /// Takes memory for one more batch, because more batches are kept than there is memory for.
    #[cold]
    #[inline(never)]
    pub(crate) fn grow(&mut self) -> Result<(), BoxError> {
        let taken = self.memory_ceiling.saturating_add(self.stats.extra_bytes() as usize);
        let limit = self.memory_limit.unwrap_or(usize::MAX);
        let most = limit.saturating_sub(taken);
        let grown = if self.slab.growth() <= most { self.slab.grow(most)? } else { None };
        let Some((bytes, warning)) = grown else {
            let total = taken.saturating_add(self.slab.growth());
            return Err(format!("the loader would take {total} bytes, and memory_limit is {limit}").into());
        };
        let kept = self.stats.grew(bytes).then(|| Warning::Kept { hold: self.slab.hold(), bytes });
        kept.into_iter().chain(warning).for_each(|warning| self.warnings.add(warning));
        Ok(())
    }

    /// Returns an error that names the batch that was kept longest.
    #[cold]
    pub(crate) fn held(&self, source: Option<BoxError>) -> Error {
        let kept = self.slab.kept().chain(self.backend.shared());
        let oldest = kept.min_by_key(|kept| (kept.epoch, kept.task));
        let (task, epoch) = oldest.map_or((0, 0), |kept| (kept.task, kept.epoch));
        Error::Held { task, epoch, hold: self.slab.hold(), source }
    }
}

impl<P: Storage> Drop for Inner<P> {
    fn drop(&mut self) {
        self.end();
        if self.pool.is_lost() {
            return self.pool.forget();
        }
        self.cancel.set(true);
        self.backend.close();
        let deadline = Until::after(Some(self.close_timeout));
        let workers = self.pool.len();
        let mut threads = self.pool.end(&deadline);
        if let Some(watchdog) = &mut self.watchdog {
            threads += watchdog.end(&deadline);
        }
        if threads > 0 {
            let reading = |worker: &Activity| worker.reading(worker.task()?);
            let workers = self.activities[..workers].iter().enumerate();
            let busy = workers.filter_map(|(id, worker)| Some((id, reading(worker)?))).collect();
            self.warnings.add(Warning::LeftBehind { threads, busy });
        }
    }
}
