//! What a thread has claimed: the samples of some rows of a batch, read one after the other.

use std::fmt;
use std::ops::Range;

use super::clock::{Laps, Watch};
use super::error::By;
use super::figures::Figures;
use super::pacer::Pacer;
use super::plan::{Indices, Plan};
use crate::BoxError;
use crate::dataset::{Context, Dataset, Loadable};
use crate::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

/// The samples of some rows of one batch.
///
/// A sample is written where `Read::row` says. So rows must be the claim's own and below those that the layout has, and each is
/// given for one sample at a time. There are two implementations, beside this trait, which is not public.
#[doc(hidden)]
pub trait Job<D: Loadable> {
    /// Reads the next row's sample; `None` after the last row, or once nobody wants the batch any more.
    fn next(&mut self) -> Result<Option<Read<'_, D>>, BoxError>;

    /// As [`next`](Self::next), and times the sample if the job is one whose samples are timed.
    fn next_timed(&mut self) -> Result<Option<Read<'_, D>>, BoxError>;

    /// Whether it is a sample by itself and no batch.
    fn is_single(&self) -> bool;

    /// Whether nobody wants the batch any more.
    fn is_abandoned(&self) -> bool;

    /// How many samples there still are, at most.
    fn left(&self) -> usize;

    /// The index of the next sample, if there surely is one.
    fn index(&self) -> Option<usize>;

    /// Whether [`for_each`](Self::for_each) is the better way.
    fn reads_many(&self) -> bool;

    /// Reads all samples that are left, with one call of the dataset if it likes that.
    fn for_each(&mut self, put: Put<'_, D>) -> Result<(), BoxError>;
}

/// What is done with each sample of a bulk read.
pub(super) type Put<'p, D> = &'p mut dyn for<'s> FnMut(Read<'s, D>) -> Result<(), BoxError>;

/// A sample, and where it belongs.
#[doc(hidden)]
pub struct Read<'a, D: Loadable> {
    pub(super) row: usize,
    pub(super) index: usize,
    pub(super) sample: D::Item<'a>,
}

impl<D: Loadable> fmt::Debug for Read<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Read").field("row", &self.row).field("index", &self.index).finish_non_exhaustive()
    }
}

/// How many rows ahead a gather asks for its memory: a row from main memory takes as long as a few rows to copy.
const AHEAD: usize = 8;

/// Rows of a batch whose samples are had by index. `TIMED`: of a claim whose samples are timed. It is a type of its own, so that the
/// other one is inlined where it is used; as calls a row of one number took a tenth more instructions.
#[derive(Debug)]
pub(super) struct MapJob<'a, D, const TIMED: bool> {
    pub(super) dataset: &'a D,
    pub(super) plan: &'a Plan,
    pub(super) indices: Indices<'a>,
    /// Rows still to be read, within the batch.
    pub(super) rows: Range<usize>,
    /// Rows whose indices are known and which this thread will read: those of the job, or with nobody else to read them the
    /// ones of later batches, too.
    pub(super) known: usize,
    /// The position of the batch's row 0 in the pass.
    pub(super) first: usize,
    pub(super) cx: &'a mut Context,
    pub(super) scratch: &'a mut Vec<usize>,
    pub(super) activity: &'a Activity,
    /// Where samples are timed, if they are.
    pub(super) laps: Option<&'a Laps>,
    pub(super) abandoned: &'a Abandoned,
    /// The row that is being read; after a bulk read of all rows, the end.
    pub(super) at: usize,
    /// Whether the dataset reads many at once.
    pub(super) bulk: bool,
    /// Whether it is a sample by itself.
    pub(super) single: bool,
}

impl<'a, D: Dataset, const TIMED: bool> MapJob<'a, D, TIMED> {
    /// Where samples are timed, if they are.
    #[inline]
    pub(super) fn laps(&self) -> Option<&'a Laps> {
        if TIMED { self.laps } else { None }
    }

    /// Asks for the memory of the first rows, unless the job before did.
    #[inline(always)] // As `next`: a job whose address is not given away lives in registers.
    pub(super) fn prefetch_first(&self) {
        if self.known > self.rows.end && self.first > 0 {
            return;
        }
        for row in self.rows.clone().take(AHEAD) {
            self.dataset.prefetch(self.indices.at(row));
        }
    }

    /// Begins to read what is at an index into a row.
    #[inline(always)]
    pub(super) fn begin(&mut self, row: usize, index: usize) {
        self.activity.index.store(index, Ordering::Relaxed);
        self.activity.row.store(row, Ordering::Relaxed);
        self.cx.start(self.plan.seed, self.plan.epoch, self.plan.places.of(self.first + row));
    }
}

impl<D: Dataset, const TIMED: bool> Job<D> for MapJob<'_, D, TIMED> {
    // The loop over a batch's rows: through a call, a row of one number took a third more instructions.
    #[inline(always)]
    fn next(&mut self) -> Result<Option<Read<'_, D>>, BoxError> {
        if self.is_abandoned() {
            return Ok(None);
        }
        let row = self.rows.start;
        if row >= self.rows.end {
            return Ok(None);
        }
        // First of all: whoever finds that it failed can tell a hint from a sample.
        self.at = row;
        if row + AHEAD < self.known {
            self.dataset.prefetch(self.indices.at(row + AHEAD));
        }
        self.rows.start = row + 1;
        let index = self.indices.at(row);
        self.begin(row, index);
        let sample = self.dataset.get(index, self.cx)?;
        Ok(Some(Read { row, index, sample }))
    }

    #[inline(always)] // As `next`.
    fn next_timed(&mut self) -> Result<Option<Read<'_, D>>, BoxError> {
        let (laps, activity) = (self.laps(), self.activity);
        laps.inspect(|laps| laps.ask(activity));
        let read = self.next();
        laps.inspect(|laps| laps.got(activity, !matches!(read, Ok(None))));
        read
    }

    fn is_single(&self) -> bool {
        self.single
    }

    #[inline]
    fn is_abandoned(&self) -> bool {
        self.abandoned.get()
    }

    #[inline]
    fn left(&self) -> usize {
        self.rows.len()
    }

    fn index(&self) -> Option<usize> {
        (!self.rows.is_empty()).then(|| self.indices.at(self.rows.start))
    }

    fn reads_many(&self) -> bool {
        self.bulk
    }

    fn for_each(&mut self, put: Put<'_, D>) -> Result<(), BoxError> {
        if !self.bulk || self.is_abandoned() {
            while let Some(read) = self.next_timed()? {
                put(read)?;
            }
            return Ok(());
        }
        let (rows, laps) = (std::mem::take(&mut self.rows), self.laps());
        let (first, wanted) = (rows.start, rows.len());
        self.scratch.clear();
        self.scratch.extend(rows.map(|row| self.indices.at(row)));
        self.activity.index.store(self.scratch.first().copied().unwrap_or_default(), Ordering::Relaxed);
        let Plan { seed, epoch, places, .. } = *self.plan;
        self.cx.start_many(seed, epoch, places.from(self.first + first));
        let (mut given, at) = (0, &mut self.at);
        *at = first;
        let (indices, laps, activity) = (&self.scratch[..], laps, self.activity);
        laps.inspect(|laps| laps.start_bulk());
        self.dataset.get_many(indices, self.cx, &mut |sample| {
            let Some(&index) = indices.get(given) else { return Err(ManyError::More { wanted }.into()) };
            laps.inspect(|laps| laps.got(activity, true));
            put(Read { row: first + given, index, sample })?;
            laps.inspect(|laps| laps.ask(activity));
            given += 1;
            *at = first + given;
            Ok(())
        })?;
        if given < wanted { Err(ManyError::Fewer { wanted, given }.into()) } else { Ok(()) }
    }
}

/// A bulk read that did not keep to its request.
#[derive(Debug, thiserror::Error)]
pub(super) enum ManyError {
    #[error("get_many was asked for {wanted} samples and put only {given}")]
    Fewer { wanted: usize, given: usize },
    #[error("get_many was asked for {wanted} samples and put more")]
    More { wanted: usize },
}

/// Whether a pass is given up: whatever is still being filled will be thrown away.
///
/// One word for both reasons: a thread that sees it and leaves rows out publishes them after that, so that whoever takes
/// these rows sees it, too.
#[derive(Debug, Default)]
pub(super) struct Abandoned(AtomicU8);

/// The consumer wants no more of this pass.
const GIVEN_UP: u8 = 1;
/// The loader was stopped, for ever.
const STOPPED: u8 = 1 << 1;

impl Abandoned {
    #[inline]
    pub(super) fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Gives the pass up, or begins one.
    pub(super) fn set(&self, abandoned: bool) {
        if abandoned {
            self.0.fetch_or(GIVEN_UP, Ordering::Relaxed);
        } else {
            self.0.fetch_and(!GIVEN_UP, Ordering::Relaxed);
        }
    }

    /// Gives up this pass and all that could come after it. Whoever is told of it sees what was before it.
    pub(super) fn stop(&self) {
        self.0.fetch_or(STOPPED, Ordering::Release);
    }

    #[inline]
    pub(super) fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Acquire) & STOPPED != 0
    }
}

/// One thread that fills batches.
#[derive(Debug)]
pub(super) struct Reader {
    /// Its place among the activities: the worker's number, or the last one for the consumer.
    pub(super) place: usize,
    pub(super) worker: Option<usize>,
    pub(super) cx: Context,
    pub(super) pacer: Pacer,
    /// The indices of a bulk read.
    pub(super) scratch: Vec<usize>,
    /// The base seed that the thread's worker information was made from.
    pub(super) seed: Option<u64>,
    pub(super) watch: Watch,
}

impl Reader {
    /// With memory for the indices of a bulk read.
    pub(super) fn new(place: usize, worker: Option<usize>, pacer: Pacer, bulk: usize) -> Self {
        Self {
            place,
            worker,
            cx: Context::new(worker),
            pacer,
            scratch: Vec::with_capacity(bulk),
            seed: None,
            watch: Watch::default(),
        }
    }

    pub(super) fn by(&self) -> By {
        By::of(self.worker)
    }
}

/// What a thread is doing now, for the timeout's message and the watchdog, and what it has done so far.
#[derive(Debug, Default)]
pub(super) struct Activity {
    /// The batch it fills, plus 1; 0 if none.
    task: AtomicUsize,
    /// The index it reads, or is about to.
    pub(super) index: AtomicUsize,
    /// The row of the batch that it is for.
    pub(super) row: AtomicUsize,
    pub(super) figures: Figures,
}

impl Activity {
    #[inline]
    pub(super) fn begin(&self, task: usize, index: usize) {
        self.index.store(index, Ordering::Relaxed);
        self.task.store(task.wrapping_add(1), Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn end(&self) {
        self.task.store(0, Ordering::Relaxed);
    }

    /// The batch it fills.
    pub(super) fn task(&self) -> Option<usize> {
        self.task.load(Ordering::Relaxed).checked_sub(1)
    }

    /// The sample that it reads or writes.
    pub(super) fn at(&self) -> Option<At> {
        let (index, row) = (self.index.load(Ordering::Relaxed), self.row.load(Ordering::Relaxed));
        Some(At { task: self.task()?, row, index, taken_on: self.figures.samples() })
    }

    /// The index it reads for batch `task`, if that is what it does.
    pub(super) fn reading(&self, task: usize) -> Option<usize> {
        let at_it = self.task.load(Ordering::Relaxed) == task.wrapping_add(1);
        at_it.then(|| self.index.load(Ordering::Relaxed))
    }
}

/// What tells one occasion of reading a sample from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct At {
    pub(super) task: usize,
    pub(super) row: usize,
    pub(super) index: usize,
    /// How many samples the thread had taken on before it or with it.
    pub(super) taken_on: u64,
}
