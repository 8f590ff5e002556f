//! The job that reads samples by index, one by one or many at once.

use std::ops::Range;

use crate::BoxError;
use crate::dataset::{Context, Dataset, ManyError};
use crate::loader::collate::batch_buffer::BatchBuffer;
use crate::loader::collate::job::{Job, Put, Read};
use crate::loader::error::failure::Cause;
use crate::loader::metrics::activity::Activity;
use crate::loader::metrics::clock::{Laps, next_timed};
use crate::loader::order::plan::{Indices, Plan};
use crate::loader::worker::cancel::CancelFlag;
use crate::prefetch::AHEAD;
use crate::sync::atomic::Ordering;

/// The job for rows of a batch whose samples are read by index. Without timing, the job is inlined
/// where it is used, so that its fields stay in registers; with function calls, a row of one number
/// took a tenth more instructions.
#[derive(Debug)]
pub(crate) struct MapJob<'a, D> {
    pub(crate) dataset: &'a D,
    pub(crate) plan: &'a Plan,
    pub(crate) indices: &'a Indices<'a>,
    /// The rows that are still to be read, within the batch.
    pub(crate) rows: Range<usize>,
    /// The end of the rows whose indices are known and which this thread will read. These are the
    /// rows of the job; if no other thread reads any, they include the rows of later batches.
    pub(crate) known: usize,
    /// The position of the batch's row 0 in the pass.
    pub(crate) first: usize,
    pub(crate) cx: &'a mut Context,
    pub(crate) scratch: &'a mut Vec<usize>,
    pub(crate) activity: &'a Activity,
    /// The record in which samples are timed, if they are timed one by one.
    pub(crate) laps: Option<&'a Laps>,
    pub(crate) cancel: &'a CancelFlag,
    /// The row that is being read; after a bulk read of all rows, the end of the rows.
    pub(crate) at: usize,
    /// Whether the dataset reads many samples at once.
    pub(crate) bulk: bool,
    /// Whether this is a single sample instead of a batch.
    pub(crate) single: bool,
}

impl<D: Dataset> MapJob<'_, D> {
    /// Prefetches the first rows, unless the previous job has already done so.
    #[inline(always)] // See `next`: a job whose address does not escape lives in registers.
    pub(crate) fn prefetch_first(&self) {
        if self.known > self.rows.end && self.first > 0 {
            return;
        }
        for row in self.rows.clone().take(AHEAD) {
            self.dataset.prefetch(self.indices.at(row));
        }
    }

    /// Prepares to read the sample `index` into row `row`.
    #[inline(always)]
    pub(crate) fn begin(&mut self, row: usize, index: usize) {
        self.activity.index.store(index, Ordering::Relaxed);
        self.activity.row.store(row, Ordering::Relaxed);
        self.cx.start(self.plan.seed, self.plan.epoch, self.plan.global_positions.of(self.first + row));
    }

    /// Prepares to read all remaining rows with one call. Returns the first row and the number of
    /// rows.
    fn begin_many(&mut self) -> Result<(usize, usize), ManyError> {
        let rows = std::mem::take(&mut self.rows);
        let (first, wanted) = (rows.start, rows.len());
        self.at = first;
        self.scratch.clear();
        ManyError::reserve(self.scratch, wanted)?;
        self.indices.append_to(self.scratch, rows);
        self.activity.index.store(self.scratch.first().copied().unwrap_or_default(), Ordering::Relaxed);
        let Plan { seed, epoch, global_positions, .. } = *self.plan;
        self.cx.start_many(seed, epoch, global_positions.from(self.first + first));
        self.laps.inspect(|laps| laps.start_bulk());
        Ok((first, wanted))
    }
}

impl<D: Dataset> Job<D> for MapJob<'_, D> {
    // Inlined, since this is called for each row of a batch: with a function call, a row of one
    // number took a third more instructions. Not in debug builds, where each inlined call would
    // take stack space of its own for the sample.
    #[cfg_attr(not(debug_assertions), inline(always))]
    fn next(&mut self) -> Result<Option<Read<'_, D>>, BoxError> {
        if self.is_cancelled() {
            return Ok(None);
        }
        let row = self.rows.start;
        if row >= self.rows.end {
            return Ok(None);
        }
        // Set this first, so that the caller can tell whether `prefetch` or the read of the sample
        // has failed.
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

    #[inline(always)] // See `next`.
    fn next_timed(&mut self) -> Result<Option<Read<'_, D>>, BoxError> {
        next_timed!(self.laps, self.activity, self.next())
    }

    fn is_single(&self) -> bool {
        self.single
    }

    #[inline]
    fn is_cancelled(&self) -> bool {
        self.cancel.get()
    }

    #[inline]
    fn left(&self) -> usize {
        self.rows.len()
    }

    fn index(&self) -> Option<usize> {
        (!self.rows.is_empty()).then(|| self.indices.at(self.rows.start))
    }

    fn index_or_number(&self) -> usize {
        self.index().unwrap_or_default()
    }

    fn reads_many(&self) -> bool {
        self.bulk
    }

    fn pass_over(&mut self, cause: Cause) -> Result<(), Cause> {
        Err(cause)
    }

    fn for_each(&mut self, put: Put<'_, D>) -> Result<(), BoxError> {
        if !self.bulk || self.is_cancelled() {
            while let Some(read) = self.next_timed()? {
                put(read)?;
            }
            return Ok(());
        }
        let (first, wanted) = self.begin_many()?;
        let laps = self.laps;
        let (mut given, at) = (0, &mut self.at);
        let (indices, activity) = (&self.scratch[..], self.activity);
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

    fn write_many(&mut self, region: &BatchBuffer) -> Result<(), BoxError> {
        // A batch that is not full may have no rows for this claim.
        if self.is_cancelled() || self.rows.is_empty() {
            return Ok(());
        }
        self.begin_many()?;
        let activity = self.activity;
        let watch =
            self.laps.map(|laps| move |begins| if begins { laps.got(activity, true) } else { laps.ask(activity) });
        let watch = watch.as_ref().map(|watch| watch as &dyn Fn(bool));
        // SAFETY: the rows belong to the job's claim (see `Job`).
        let mut rows = unsafe { region.rows(&mut self.at, self.scratch, watch) };
        self.dataset.write_many(self.scratch, self.cx, &mut rows)?;
        Ok(rows.finish()?)
    }
}
