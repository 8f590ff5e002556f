//! A loader without the type of its batches: all that it does but to deliver them.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_utils::CachePadded;

use super::backend::{Backend, Begin, Begun, Stuck};
use super::block::Block;
use super::collate::Storage;
use super::crew::{Crew, grace};
use super::draw::Batching;
use super::error::{Error, Warning};
use super::fate::Fate;
use super::job::{Abandoned, Activity};
use super::lanes::Request;
use super::on_error::Ledger;
use super::on_held::OnHeld;
use super::options::Options;
use super::passes::Passes;
use super::resume::Log;
use super::slab::{Lease, Slab};
use super::spans;
use super::stats::{Known, StatsReader, Tally};
use super::watch::Watchdog;
use super::work::dispose_each;
use crate::BoxError;
use crate::rng::SharedGenerator;
use crate::sync::Instant;
use crate::wait::Until;

/// A loader whose slots hold `P`.
pub(super) struct Inner<P: Storage> {
    pub(super) backend: Backend<P>,
    pub(super) slab: Slab<P>,
    pub(super) passes: Box<dyn Passes>,
    pub(super) abandoned: Arc<Abandoned>,
    /// What each worker does, and last the consumer.
    pub(super) activities: Arc<[CachePadded<Activity>]>,
    pub(super) fate: Arc<Fate>,
    pub(super) crew: Crew,
    /// `None`: the process's default generator.
    pub(super) generator: Option<SharedGenerator>,
    /// The base seed of the pass.
    pub(super) seed: u64,
    pub(super) batching: Batching,
    pub(super) timeout: Option<Duration>,
    pub(super) in_order: bool,
    pub(super) on_held: OnHeld,
    pub(super) persistent: bool,
    pub(super) ledger: Ledger,
    pub(super) block: Option<Block>,
    pub(super) memory_ceiling: usize,
    pub(super) memory_limit: Option<usize>,
    pub(super) warnings: Vec<Warning>,
    /// Passes begun so far, and calls of `epoch` that began one.
    pub(super) epochs: u32,
    pub(super) passes_begun: u64,
    pub(super) pass: Progress,
    pub(super) log: Log,
    pub(super) tally: Tally,
    /// Ends after the crew has.
    pub(super) watchdog: Option<Watchdog>,
}

/// What differs between loaders that are new, beside the options.
pub(super) struct Parts<P> {
    pub(super) backend: Backend<P>,
    pub(super) slab: Slab<P>,
    pub(super) passes: Box<dyn Passes>,
    pub(super) abandoned: Arc<Abandoned>,
    pub(super) activities: Arc<[CachePadded<Activity>]>,
    pub(super) fate: Arc<Fate>,
    pub(super) crew: Crew,
    pub(super) batching: Batching,
    pub(super) in_order: bool,
    pub(super) block: Option<Block>,
    pub(super) memory_ceiling: usize,
    pub(super) warnings: Vec<Warning>,
    pub(super) log: Log,
    pub(super) tally: Tally,
    pub(super) watchdog: Option<Watchdog>,
}

/// How far the current pass is.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Its number.
    pub(super) epoch: u32,
    /// How many batches it has; `None` as long as that is not known.
    pub(super) tasks: Option<usize>,
    /// How many samples it has, if `tasks` is known.
    pub(super) positions: usize,
    pub(super) delivered: usize,
    /// Samples in what was delivered, of an iterable dataset.
    pub(super) samples: usize,
    /// How many samples an iterable dataset says that there are, until there were more.
    pub(super) said: Option<usize>,
    /// Batches that were thrown away, since nobody wanted the rest of the pass.
    pub(super) thrown_away: usize,
    /// Whether batches have the numbers that they were asked for by; else they are counted as they come.
    pub(super) numbered: bool,
    /// Whether batches are not delivered just one after the other, so that there is more to note than their number.
    pub(super) gaps: bool,
    /// Whether it has begun, and its end was not seen yet.
    pub(super) running: bool,
    /// Whether there is more for the user to take.
    pub(super) open: bool,
    /// Workers that could not begin, the first one last.
    pub(super) failures: Vec<(usize, BoxError)>,
    /// Whether these are all that could load.
    pub(super) nobody_left: bool,
}

impl Progress {
    /// Whether there may be batches to come.
    #[inline]
    pub(super) fn has_more(&self) -> bool {
        self.running && self.tasks != Some(self.delivered + self.thrown_away)
    }
}

impl<P: Storage> Inner<P> {
    /// A loader before its first pass. Says what there is to warn about.
    pub(super) fn new(parts: Parts<P>, options: Options) -> Self {
        for warning in &parts.warnings {
            spans::tell(|| tracing::warn!("{warning}"));
        }
        // Without an index each worker reads a replica of its own.
        let replicas = parts.passes.draw().is_none();
        Self {
            backend: parts.backend,
            slab: parts.slab,
            passes: parts.passes,
            abandoned: parts.abandoned,
            activities: parts.activities,
            fate: parts.fate,
            crew: parts.crew.writes_into(parts.block.as_ref()),
            generator: options.generator,
            seed: 0,
            batching: parts.batching,
            timeout: Some(options.timeout).filter(|timeout| !timeout.is_zero()),
            in_order: parts.in_order,
            on_held: options.on_held,
            persistent: options.persistent_workers,
            ledger: Ledger::new(options.on_error, replicas),
            block: parts.block,
            memory_ceiling: parts.memory_ceiling,
            memory_limit: options.memory_limit,
            warnings: parts.warnings,
            epochs: 0,
            passes_begun: 0,
            pass: Progress::default(),
            log: parts.log,
            tally: parts.tally,
            watchdog: parts.watchdog,
        }
    }

    /// Begins a pass; one before it that is not over is given up.
    pub(super) fn begin(&mut self) -> Result<(), Error> {
        if self.crew.is_lost() {
            return Err(Error::Forked);
        }
        if let Some(error) = self.gone() {
            return Err(error);
        }
        // One that was leaked, or not taken to its end.
        self.give_up();
        let begun = Instant::now();
        // Before anybody is asked for anything.
        self.activities.last().inspect(|own| own.figures.begin_pass(begun));
        self.drain()?;
        let tasks = match self.log.resume.as_ref().and_then(|resume| resume.drawn) {
            Some(tasks) => tasks,
            None => self.draw()?,
        };
        self.passes_begun += 1;
        let positions = self.passes.positions();
        let (bad, delivered) = self.log.state().map_or((0, 0), |state| (state.bad_samples, state.batches()));
        let budget = self.ledger.begin(positions, bad);
        let request = Request { task: None, epoch: self.epochs, seed: self.seed, pass: self.passes_begun, budget };
        let deadline = Until::after(self.timeout);
        let from = self.log.resume.as_ref().map(|resume| &resume.state);
        let left = tasks.map(|tasks| tasks - delivered);
        let Begun { mut failures, nobody_left } =
            match self.backend.begin(Begin { request, left, from, deadline: &deadline }) {
                Ok(begun) => begun,
                Err(Stuck::TooMany) => return Err(Error::TooManyBatches { tasks: tasks.unwrap_or_default() }),
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
            positions: positions.unwrap_or_default(),
            delivered,
            samples: streams.map_or(0, |streams| streams.samples),
            said: positions.filter(|_| !numbered),
            thrown_away: 0,
            numbered,
            gaps: numbered && !self.in_order || !self.log.gaps.missing.is_empty(),
            running: true,
            open: true,
            nobody_left: nobody_left && !failures.is_empty(),
            failures,
        };
        self.epochs = self.epochs.wrapping_add(1);
        self.tally.begin(begun);
        Ok(())
    }

    /// Gives up what is left of the pass, if anything is.
    pub(super) fn give_up(&mut self) {
        if self.pass.has_more() {
            // The next pass waits for the workers; they should not go on until then.
            self.abandon();
        }
        self.pass.open = false;
        self.tally.end();
        dispose_each(std::mem::take(&mut self.pass.failures));
    }

    /// Lets workers stop at their current sample, and begin nothing more.
    pub(super) fn abandon(&self) {
        self.abandoned.set(true);
        self.backend.seal();
    }

    /// Sees the pass before to its end.
    fn drain(&mut self) -> Result<(), Error> {
        let deadline = Until::after(self.timeout);
        self.backend.drain(&mut self.pass, &deadline).map_err(|stuck| self.stuck(stuck))?;
        // Who stopped it may not have come to close the ring.
        if self.abandoned.is_stopped() {
            return Err(Error::Stopped);
        }
        self.abandoned.set(false);
        self.pass = Progress::default();
        Ok(())
    }

    /// Counts a batch or a failure that was asked for as number `task`, and gives the number that it has for the user.
    #[inline(always)]
    pub(super) fn number(&mut self, task: usize) -> usize {
        let pass = &mut self.pass;
        pass.delivered += 1;
        if pass.gaps {
            self.log.gaps.note(task);
        }
        if pass.numbered { task } else { pass.delivered - 1 }
    }

    /// Counts samples that are delivered, and warns if an iterable dataset has more than it said.
    #[inline(always)]
    pub(super) fn count(&mut self, lease: &Lease<P>, rows: usize) {
        self.tally.count(lease, rows);
        if !self.pass.numbered {
            self.count_stream(rows);
        }
    }

    #[inline(never)]
    pub(super) fn count_stream(&mut self, rows: usize) {
        let pass = &mut self.pass;
        pass.samples = pass.samples.saturating_add(rows);
        if let Some(len) = pass.said.filter(|&len| len < pass.samples) {
            pass.said = None;
            if self.warnings.iter().any(|warning| matches!(warning, Warning::Overlong { .. })) {
                return;
            }
            let warning = Warning::Overlong { samples: pass.samples, len };
            spans::tell(|| tracing::warn!("{warning}"));
            self.warnings.push(warning);
        }
    }

    /// Whether [`next`](Self::next) need not wait.
    pub(super) fn is_ready(&self) -> bool {
        self.pass.open && (!self.pass.failures.is_empty() || self.backend.is_ready())
    }

    /// Looks how many finished batches there are.
    #[cold]
    pub(super) fn look(&mut self) {
        self.tally.found(self.backend.ready(), self.pass.delivered);
    }

    pub(super) fn stats_reader(&self) -> StatsReader {
        self.tally.reader(Known {
            activities: &self.activities,
            watchdog: self.watchdog.as_ref(),
            depth: self.slab.depth(),
            ledger: &self.ledger,
            in_order: self.in_order,
            dealt: matches!(self.backend, Backend::PerWorker(_)),
        })
    }

    /// How many batches a pass has, if that is known.
    pub(super) fn len(&self) -> Option<usize> {
        self.passes.samples().map(|samples| self.batching.batches(samples))
    }

    /// Why there will be no more batches, if workers have ended before their time.
    pub(super) fn gone(&self) -> Option<Error> {
        if self.abandoned.is_stopped() || !self.backend.cannot_go_on() { None } else { self.fate.error() }
    }

    /// Why nothing more comes.
    #[cold]
    pub(super) fn closed(&self) -> Error {
        self.gone().unwrap_or(Error::Stopped)
    }

    /// Why a wait for the workers came to nothing.
    #[cold]
    fn stuck(&self, stuck: Stuck) -> Error {
        match stuck {
            Stuck::Late if !self.abandoned.is_stopped() => self.gone().unwrap_or_else(|| self.timed_out()),
            _ => self.closed(),
        }
    }

    #[cold]
    pub(super) fn timed_out(&self) -> Error {
        let workers = &self.activities[..self.crew.len()];
        // In order it is the next one; as they arrive, the first of those that are begun. Those of an iterable dataset are
        // counted as they come.
        let arrive = !self.in_order && self.backend.is_numbered(self.pass.tasks);
        let begun = workers.iter().filter_map(|worker| worker.task()).min().filter(|_| arrive);
        let task = begun.unwrap_or_else(|| self.backend.awaited(&self.pass));
        let of = |worker: &Activity| match &self.backend {
            Backend::Shared(_) => Some(task),
            Backend::PerWorker(_) => worker.task(),
        };
        let busy = workers.iter().enumerate().filter_map(|(id, worker)| Some((id, worker.reading(of(worker)?)?)));
        Error::Timeout { after: self.timeout.unwrap_or_default(), task, busy: busy.collect() }
    }

    /// Takes memory for one more batch than there was, as more are kept than that is for.
    #[cold]
    #[inline(never)]
    pub(super) fn grow(&mut self) -> Result<(), BoxError> {
        let bytes = self.slab.growth();
        let total = self.memory_ceiling.saturating_add(self.tally.extra_bytes() as usize).saturating_add(bytes);
        if let Some(limit) = self.memory_limit.filter(|&limit| total > limit) {
            return Err(format!("the loader would take {total} bytes, and memory_limit is {limit}").into());
        }
        let warning = self.slab.grow()?;
        let kept = self.tally.grew(bytes).then(|| Warning::Kept { hold: self.slab.hold(), bytes });
        for warning in kept.into_iter().chain(warning) {
            spans::tell(|| tracing::warn!("{warning}"));
            self.warnings.push(warning);
        }
        Ok(())
    }

    /// Names the batch that was kept longest, of those that leave no memory for the next one.
    #[cold]
    pub(super) fn held(&self, source: Option<BoxError>) -> Error {
        let kept = self.slab.kept().chain(self.backend.shared());
        let oldest = kept.min_by_key(|kept| (kept.epoch, kept.task));
        let (task, epoch) = oldest.map_or((0, 0), |kept| (kept.task, kept.epoch));
        Error::Held { task, epoch, hold: self.slab.hold(), source }
    }
}

impl<P: Storage> Drop for Inner<P> {
    fn drop(&mut self) {
        self.abandoned.set(true);
        dispose_each(std::mem::take(&mut self.pass.failures));
        if self.crew.is_lost() {
            return self.crew.forget();
        }
        self.backend.close();
        let deadline = grace();
        self.crew.end(&deadline);
        if let Some(watchdog) = &mut self.watchdog {
            watchdog.end(&deadline);
        }
    }
}
