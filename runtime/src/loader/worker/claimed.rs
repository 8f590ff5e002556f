//! Rows of one batch that one thread fills: those that it has claimed, or all of them.

use std::ops::Range;

use crate::dataset::Dataset;
use crate::loader::collate::Collate;
use crate::loader::collate::batch_state::BatchState;
use crate::loader::error::failure::{Cause, Failure};
use crate::loader::error::guard::caught;
use crate::loader::order::plan::{DrawOutcome, IndexStream, Plan, Task};
use crate::loader::worker::engine::{Engine, rows_of};
use crate::loader::worker::reader::Reader;
use crate::loader::worker::timing::timed;

/// Rows of one batch that a thread has claimed.
pub(crate) struct ClaimedRows<'a, P> {
    pub(crate) ticket: usize,
    /// The slot of the batch, for which an index stream has the indices.
    pub(crate) slot: usize,
    /// The range of parts, and the number of rows of each part.
    pub(crate) parts: Range<usize>,
    pub(crate) part_rows: usize,
    pub(crate) work: &'a BatchState<P>,
}

/// The outcome of filling rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filled {
    /// The rows were filled, or an error was recorded instead.
    Rows,
    /// Nothing was filled: the user's iterator had no batch left.
    End,
}

impl<P> ClaimedRows<'_, P> {
    /// Fills the rows. Errors and panics are recorded in the batch's state.
    #[inline(always)]
    pub(crate) fn fill<D: Dataset, C: Collate<D, Payload = P>>(
        &self,
        engine: &Engine<D, C>,
        plan: &Plan,
        reader: &mut Reader,
    ) -> Filled {
        let Some(index_stream) = &plan.index_stream else {
            let number = plan.tickets.task(self.ticket);
            let task = plan.task(number);
            let of = (self.ticket, self.parts.len());
            engine.make(self.work, plan, &task, self.rows(&task), of, reader);
            return Filled::Rows;
        };
        self.fill_from_stream(index_stream, engine, plan, reader)
    }

    /// Returns the rows of the claimed parts.
    #[inline(always)]
    fn rows(&self, task: &Task<'_>) -> Range<usize> {
        rows_of(self.parts.clone(), self.part_rows, task.rows)
    }

    /// Fills rows whose indices come from an index stream. This is a separate function so that it
    /// costs other loaders nothing.
    #[inline(never)]
    fn fill_from_stream<D: Dataset, C: Collate<D, Payload = P>>(
        &self,
        index_stream: &IndexStream,
        engine: &Engine<D, C>,
        plan: &Plan,
        reader: &mut Reader,
    ) -> Filled {
        let (activity, of) = (&*engine.activities[reader.activity], (self.ticket, self.parts.len()));
        let outcome = if reader.sizer.skips_timing() {
            caught(|| self.draw(index_stream, engine, plan, reader, false))
        } else {
            timed(reader, activity, of, |reader, timed| self.draw(index_stream, engine, plan, reader, timed))
        };
        outcome.unwrap_or_else(|cause| self.fail_after_panic(index_stream, engine, plan, reader, cause))
    }

    /// Draws the indices, unless another thread has, and fills the rows.
    fn draw<D: Dataset, C: Collate<D, Payload = P>>(
        &self,
        index_stream: &IndexStream,
        engine: &Engine<D, C>,
        plan: &Plan,
        reader: &mut Reader,
        timed: bool,
    ) -> Filled {
        let list = index_stream.list(self.slot, self.ticket);
        if timed {
            reader.timer.laps().inspect(|laps| laps.drawn());
        }
        match &list.outcome {
            DrawOutcome::Batch => {
                let task = list.task();
                let rows = self.rows(&task);
                engine.fill(self.work, plan, &task, rows, reader, timed);
            }
            DrawOutcome::End => return Filled::End,
            failed => {
                if let Some(cause) = failed.failure(plan.rows) {
                    self.work.fail(Failure { position: list.first, index: 0, by: reader.by(), cause });
                }
            }
        }
        Filled::Rows
    }

    /// Records a panic that was caught outside of the code that is guarded sample by sample.
    #[cold]
    #[inline(never)]
    fn fail_after_panic<D: Dataset, C: Collate<D, Payload = P>>(
        &self,
        index_stream: &IndexStream,
        engine: &Engine<D, C>,
        plan: &Plan,
        reader: &mut Reader,
        cause: Cause,
    ) -> Filled {
        let list = index_stream.list(self.slot, self.ticket);
        if let DrawOutcome::Batch = list.outcome {
            let task = list.task();
            engine.fail_after_panic(self.work, &task, self.rows(&task), reader, cause);
            return Filled::Rows;
        }
        // There is no batch that could fail, or it has an error already.
        drop(list);
        self.draw(index_stream, engine, plan, reader, false)
    }
}
