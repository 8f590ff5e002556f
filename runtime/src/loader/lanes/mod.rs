//! A loader whose workers each have a ring of their own.
//!
//! An iterable dataset cannot be shared: each worker reads its own replica, and only that worker can say what comes next. So
//! each has a lane, two SPSC rings of `prefetch_factor` slots: one for requests, from the consumer to the worker, and one for
//! the replies. The consumer asks the workers in turn, and takes the replies in the order in which it asked; a worker that is
//! at its end says so and is asked no more. That is torch's protocol, without the dict that puts results in order: each
//! ring is in order already, and the order of asking is a queue of at most `prefetch_factor × num_workers` lane numbers.
//! With `in_order(false)` the consumer takes whatever reply is there, and asks whoever has room.
//!
//! Batches must be able to outlive their place in a ring, to be held and dropped in any order. So a reply does not carry the
//! batch but the number of the cell of memory that it is in ([`Slab`](self::slab::Slab)), and the consumer leaves the number
//! of a free cell in its place, which the worker fills one lap later. Nothing is copied, and nothing allocated.
//!
//! Datasets by index can be loaded in this way too, for those who want just what torch does: batch `i` is made by worker
//! `i mod num_workers`, in order, and a slow worker keeps the requests that it was given.
//!
//! The memory of a cell, and the plan of a pass, are used by one thread at a time, since each hand-over is a hand-over of a
//! slot of an SPSC ring (whose module proves that one) or of the cell's `free` flag: the consumer writes the plan and gives
//! cells away before it publishes a request or releases a reply, the worker fills a cell before it publishes the reply, and a
//! batch that is dropped sets the flag with release, which the consumer reads with acquire.

mod build;
mod dealt;
mod iterable;
mod pass;
mod resume;
mod side;
mod slab;
mod worker;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_utils::CachePadded;

pub use self::pass::LanePass;
use self::side::Lanes;
pub(super) use self::slab::Taken;
use self::worker::{Hand, Mark, Request};
use super::Progress;
use super::block::Block;
use super::collate::{Collate, Stack};
use super::crew::{Crew, grace};
use super::draw::{Batching, Draw};
use super::error::{Error, Warning};
use super::fate::Fate;
use super::job::{Abandoned, Activity};
use super::on_error::Ledger;
use super::resume::{Log, Tickets};
use super::state::State;
use super::stats::{Known, Stats, StatsReader, Tally};
use super::stop::Stopper;
use super::watch::Watchdog;
use crate::arena::Memory;
use crate::dataset::Loadable;
use crate::rng::SharedGenerator;
use crate::sample::Field;
use crate::sync::Instant;
use crate::wait::Until;

/// A loader whose workers each have a ring of their own: for an [iterable dataset](super::Loader::iterable), or for a
/// dataset by index [dealt out](super::Builder::build_dealt) as torch does.
///
/// What is said of a [`Loader`](super::Loader) holds for it, but for these: each batch is made by one worker; the calling
/// thread loads only if there are no workers; it does not matter which batches are held, but only how many. Of an iterable
/// dataset the batches depend on the number of workers too, as each reads and batches what it is given
/// ([`IterableDataset`](crate::dataset::IterableDataset) says how to share), and random numbers from
/// [`Context::rng`](crate::dataset::Context::rng) are a function of the worker's seed, the epoch and the sample's number in
/// what the worker reads.
pub struct LaneLoader<D: Loadable, C: Collate<D> = Stack> {
    home: Arc<dyn Home<D>>,
    lanes: Lanes<C::Payload>,
    crew: Crew,
    fate: Arc<Fate>,
    /// Without workers: the calling thread's own hand.
    own: Option<Own<C::Payload>>,
    passes: Box<dyn Passes>,
    has_init: bool,
    generator: Option<SharedGenerator>,
    persistent: bool,
    ledger: Ledger,
    seed: u64,
    batching: Batching,
    pub(in crate::loader) hold: usize,
    timeout: Option<Duration>,
    waits_for_release: bool,
    pub(in crate::loader) block: Option<Block>,
    memory_ceiling: usize,
    warnings: Vec<Warning>,
    /// Whether more samples than `samples` were noticed already.
    overlong: bool,
    epochs: u32,
    /// Calls of `epoch`.
    passes_begun: u64,
    pass: Progress,
    /// Samples in what was delivered of the pass.
    samples: usize,
    log: Log,
    tally: Tally,
    /// Ends after the crew has.
    watchdog: Option<Watchdog>,
}

/// A pass that begins: its number and its base seed.
#[derive(Clone, Copy, Debug)]
struct Pass {
    epoch: u32,
    seed: u64,
}

/// The calling thread's own hand.
struct Own<P> {
    hand: Box<dyn Hand<P>>,
    request: Request,
    /// Batches made, which they are, and how many there are, if known.
    made: usize,
    tickets: Tickets,
    tasks: Option<usize>,
    /// Whether the pass is over.
    over: bool,
    mark: Mark,
    /// Where the mark of the batch in the making goes, until it is one to be delivered.
    next_mark: Mark,
}

/// What passes are made of.
trait Passes: Send {
    /// How many samples a pass has, if that is known.
    fn samples(&self) -> Option<usize>;

    /// Where its indices come from, if it has any.
    fn draw(&self) -> Option<&Draw>;
    fn draw_mut(&mut self) -> Option<&mut Draw>;

    /// How many samples the pass that was begun has, if that is known.
    fn positions(&self) -> Option<usize>;

    /// Draws what a pass needs, and gives the number of its batches, if that is known. `default` stands in for the process's
    /// default generator, and `from` says what of the pass is not wanted any more.
    fn begin(
        &mut self,
        pass: Pass,
        default: Option<&SharedGenerator>,
        from: Option<&State>,
    ) -> Result<Option<usize>, Error>;
}

/// What the threads of a lane loader share, as far as the loader must know it.
trait Home<D>: Send + Sync {
    fn dataset(&self) -> &D;
    fn dataset_len(&self) -> Option<usize>;
    fn abandoned(&self) -> &Arc<Abandoned>;
    fn activities(&self) -> &Arc<[CachePadded<Activity>]>;
}

impl<D: Loadable, C: Collate<D>> LaneLoader<D, C> {
    /// Starts a pass over the dataset. A pass before it that is not over is given up.
    ///
    /// Draws from the generator as torch does; see [`Loader::epoch`](super::Loader::epoch).
    ///
    /// # Errors
    ///
    /// [`Error::Order`], [`Error::LongOrder`]; [`Error::Timeout`] if a worker is still stuck in the pass before, or in its
    /// `worker_init`; [`Error::State`] if a loaded state does not fit the pass; [`Error::Stopped`]; [`Error::Forked`].
    pub fn epoch(&mut self) -> Result<LanePass<'_, D, C>, Error> {
        if self.crew.is_lost() {
            return Err(Error::Forked);
        }
        if let Some(error) = self.gone() {
            return Err(error);
        }
        // One that was leaked.
        self.tally.end();
        let begun = Instant::now();
        // Before anybody is asked for anything.
        self.home.activities().last().inspect(|own| own.figures.begin_pass(begun));
        let deadline = Until::after(self.timeout);
        self.drain(&deadline)?;
        let tasks = match self.log.resume.as_ref().and_then(|resume| resume.drawn) {
            Some(tasks) => tasks,
            None => self.draw()?,
        };
        let (epoch, seed) = (self.epochs, self.seed);
        self.passes_begun += 1;
        let bad = self.log.state().map_or(0, |state| state.bad_samples);
        let budget = self.ledger.begin(self.passes.positions(), bad);
        let request = Request { task: None, epoch, seed, pass: self.passes_begun, budget };
        let delivered = self.log.state().map_or(0, State::batches);
        let left = tasks.map(|tasks| tasks - delivered);
        let mut failures = Vec::new();
        match &mut self.own {
            Some(own) => own.begin(request, left, self.log.state()),
            None => {
                if self.has_init {
                    let outcome = self.lanes.init(request, &deadline);
                    let outcome = outcome.ok_or_else(|| self.gone().unwrap_or_else(|| self.timed_out(0)));
                    failures = match self.check_not_stopped().and(outcome) {
                        Ok(failures) => failures,
                        Err(error) => {
                            self.put_off(tasks);
                            return Err(error);
                        }
                    };
                }
                self.lanes.begin(request, left, self.has_init, self.log.state());
            }
        }
        self.log.gaps.start(self.log.resume.as_ref().map(|resume| &resume.state));
        let state = self.log.resume.take().map(|resume| resume.state);
        let streams = state.as_ref().and_then(|state| state.streams.as_ref());
        self.samples = streams.map_or(0, |streams| streams.samples);
        let as_they_come = tasks.is_some() && self.lanes.any.is_some();
        self.pass = Progress {
            epoch,
            tasks,
            delivered,
            gaps: as_they_come || !self.log.gaps.missing.is_empty(),
            running: true,
            ..Progress::default()
        };
        self.epochs = self.epochs.wrapping_add(1);
        self.tally.begin(begun);
        Ok(LanePass::new(self, failures))
    }

    /// The number of the pass that the next [`epoch`](Self::epoch) gives.
    pub fn next_epoch(&self) -> u32 {
        self.epochs
    }

    /// How many batches a pass has, if that is known: of an iterable dataset by its own
    /// [`len`](crate::dataset::IterableDataset::len), and with several workers there may be more that are not full.
    pub fn len(&self) -> Option<usize> {
        self.passes.samples().map(|samples| self.batching.batches(samples))
    }

    /// Whether a pass surely has no batches.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// The dataset.
    pub fn dataset(&self) -> &D {
        self.home.dataset()
    }

    /// The most samples a batch has.
    pub fn batch_size(&self) -> usize {
        self.batching.batch_size
    }

    /// How many batches there can be at once: those being filled, those ready, and those held.
    pub fn depth(&self) -> usize {
        self.lanes.slab.len()
    }

    /// The bytes that the loader takes for batches and for the order of a pass, known before the first batch; see
    /// [`Loader::memory_ceiling`](super::Loader::memory_ceiling).
    pub fn memory_ceiling(&self) -> usize {
        self.memory_ceiling
    }

    /// The fields of a batch; see [`Loader::fields`](super::Loader::fields).
    pub fn fields(&self) -> Option<impl ExactSizeIterator<Item = &Field>> {
        self.block.as_ref().map(Block::fields)
    }

    /// The memory that all batches are in; see [`Loader::memory`](super::Loader::memory).
    pub fn memory(&self) -> Option<&dyn Memory> {
        self.block.as_ref().map(Block::memory)
    }

    /// What the loader has done since it was built; see [`Loader::stats`](super::Loader::stats).
    pub fn stats(&self) -> Stats {
        self.stats_reader().stats()
    }

    /// What reads the statistics from any thread; see [`Loader::stats_reader`](super::Loader::stats_reader).
    pub fn stats_reader(&self) -> StatsReader {
        self.tally.reader(Known {
            activities: self.home.activities(),
            watchdog: self.watchdog.as_ref(),
            depth: self.depth(),
            ledger: &self.ledger,
            in_order: self.lanes.any.is_none(),
            dealt: true,
        })
    }

    /// What was noticed when the loader was built, and since.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// What stops this loader, from whatever thread; see [`Loader::stopper`](super::Loader::stopper).
    pub fn stopper(&self) -> Stopper {
        Stopper::new(self.lanes.stop())
    }

    /// Sees the pass before to its end.
    fn drain(&mut self, deadline: &Until) -> Result<(), Error> {
        self.home.abandoned().set(true);
        let drained = self.lanes.drain(deadline, C::discard);
        self.check_not_stopped()?;
        if !drained {
            return Err(self.timed_out(0));
        }
        self.home.abandoned().set(false);
        self.pass = Progress::default();
        Ok(())
    }

    /// The number of the batch that is waited for.
    #[cold]
    fn awaited(&self) -> usize {
        let workers = &self.home.activities()[..self.crew.len()];
        // In order it is the next one; as they arrive, the first of those that are begun. Those of an iterable dataset are
        // counted as they come.
        let arrive = self.pass.tasks.is_some() && self.lanes.any.is_some();
        let begun = workers.iter().filter_map(|worker| worker.task()).min().filter(|_| arrive);
        begun.unwrap_or_else(|| self.lanes.task(self.pass.delivered))
    }

    fn check_not_stopped(&self) -> Result<(), Error> {
        if self.home.abandoned().is_stopped() { Err(Error::Stopped) } else { Ok(()) }
    }

    /// Why there will be no more batches, if a worker has ended: each has something to read that nobody else does.
    fn gone(&self) -> Option<Error> {
        self.fate.error().filter(|_| !self.home.abandoned().is_stopped())
    }

    #[cold]
    fn timed_out(&self, task: usize) -> Error {
        let workers = self.home.activities()[..self.crew.len()].iter().enumerate();
        let busy = workers.filter_map(|(id, worker)| Some((id, worker.reading(worker.task()?)?))).collect();
        Error::Timeout { after: self.timeout.unwrap_or_default(), task, busy }
    }
}

impl<D: Loadable, C: Collate<D>> Drop for LaneLoader<D, C> {
    fn drop(&mut self) {
        self.home.abandoned().set(true);
        if self.crew.is_lost() {
            return self.crew.forget();
        }
        self.lanes.close();
        let deadline = grace();
        self.crew.end(&deadline);
        if let Some(watchdog) = &mut self.watchdog {
            watchdog.end(&deadline);
        }
    }
}

impl<D: Loadable, C: Collate<D>> fmt::Debug for LaneLoader<D, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaneLoader")
            .field("batch_size", &self.batching.batch_size)
            .field("num_workers", &self.crew.len())
            .field("depth", &self.depth())
            .field("epochs", &self.epochs)
            .finish_non_exhaustive()
    }
}
