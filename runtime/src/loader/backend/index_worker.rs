//! Makes whole batches of a dataset by index: in a worker, if the workers make batches in turn as
//! torch's do, or in the calling thread, if there are no workers.

use std::sync::Arc;

use crate::dataset::Dataset;
use crate::loader::backend::protocol::{BatchWorker, Outcome, Request, StreamPosition};
use crate::loader::collate::Collate;
use crate::loader::collate::batch_state::BatchState;
use crate::loader::collate::storage::Storage;
use crate::loader::error::guard::catch_panic;
use crate::loader::order::plan::{IndexStream, Plan, Task};
use crate::loader::worker::claimed::{ClaimedRows, Filled};
use crate::loader::worker::engine::Engine;
use crate::loader::worker::reader::Reader;

/// Makes whole batches according to the plan of the pass.
pub(crate) struct IndexWorker<D: Dataset, C: Collate<D>> {
    pub(crate) engine: Arc<Engine<D, C>>,
    pub(crate) reader: Reader,
}

impl<D: Dataset, C: Collate<D>> BatchWorker<C::Payload> for IndexWorker<D, C> {
    fn fill(&mut self, _: &Request, task: usize, work: &BatchState<C::Payload>, _: &mut StreamPosition) -> Outcome {
        let Self { engine, reader } = self;
        // SAFETY: this batch is not finished yet, and the plan is written only when all batches
        // are.
        let plan = unsafe { engine.plan_cell.plan() };
        if let Some(index_stream) = &plan.index_stream {
            return make_next(engine, plan, index_stream, work, reader);
        }
        let task = plan.task(task);
        make(engine, plan, &task, work, reader);
        Outcome::Batch(task.rows)
    }
}

/// Makes the next batch of a user's iterator. No other thread draws from it.
#[inline(never)]
fn make_next<D: Dataset, C: Collate<D>>(
    engine: &Engine<D, C>,
    plan: &Plan,
    index_stream: &IndexStream,
    work: &BatchState<C::Payload>,
    reader: &mut Reader,
) -> Outcome {
    let (ticket, slot) = (index_stream.drawn(), 0);
    let claimed = ClaimedRows { ticket, slot, parts: 0..1, part_rows: plan.rows, work };
    match claimed.fill(engine, plan, reader) {
        Filled::Rows => Outcome::Batch(index_stream.peek(slot).indices.len()),
        Filled::End => Outcome::End,
    }
}

/// Makes a whole batch.
#[inline(always)]
pub(crate) fn make<D: Dataset, C: Collate<D>>(
    engine: &Engine<D, C>,
    plan: &Plan,
    task: &Task<'_>,
    work: &BatchState<C::Payload>,
    reader: &mut Reader,
) {
    if !engine.make(work, plan, task, 0..task.rows, (task.number, 1), reader) {
        // The batch may have been made before the panic.
        catch_panic(|| work.payload.discard());
    }
}
