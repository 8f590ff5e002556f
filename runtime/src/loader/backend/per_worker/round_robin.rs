//! Batches of a dataset by index that are dealt out to the workers, as torch does.

use std::sync::Arc;

use crate::dataset::Dataset;
use crate::loader::backend::per_worker::worker::{MakeBatch, Mark, Outcome, Request};
use crate::loader::collate::slot_state::SlotState;
use crate::loader::collate::{Collate, Storage};
use crate::loader::error::guard::quietly;
use crate::loader::order::plan::{Indices, Plan};
use crate::loader::worker::engine::{Engine, Task};
use crate::loader::worker::reader::Reader;

/// Makes the batches that are dealt to one worker.
pub(crate) struct RoundRobin<D: Dataset, C: Collate<D>> {
    pub(crate) engine: Arc<Engine<D, C>>,
    pub(crate) reader: Reader,
}

impl<D: Dataset, C: Collate<D>> MakeBatch<C::Payload> for RoundRobin<D, C> {
    fn fill(&mut self, _: Request, task: usize, work: &SlotState<C::Payload>, _: &mut Mark) -> Outcome {
        let engine = &*self.engine;
        // SAFETY: this request is not answered yet, and the plan is written only when all are.
        let plan = unsafe { engine.plan_cell.plan() };
        let (first, rows) = plan.batch(task, engine.stride, engine.rows);
        let task = Task { number: task, first, indices: Indices::from(&plan.order, first) };
        make(engine, plan, task, rows, work, &mut self.reader);
        Outcome::Batch(rows)
    }
}

/// Makes a batch of `rows` rows.
#[inline(always)]
pub(crate) fn make<D: Dataset, C: Collate<D>>(
    engine: &Engine<D, C>,
    plan: &Plan,
    task: Task<'_>,
    rows: usize,
    work: &SlotState<C::Payload>,
    reader: &mut Reader,
) {
    let of = (task.number, 1);
    if !engine.make(work, plan, &task, 0..rows, of, reader) {
        // The batch may have been made nevertheless.
        quietly(|| work.payload.discard());
    }
}
