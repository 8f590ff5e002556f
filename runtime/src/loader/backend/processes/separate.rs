//! What worker processes with rings of their own do: read a part of an iterable dataset, or make
//! batches in turn.

use std::sync::Arc;

use crate::dataset::{Dataset, Iterable, IterableDataset};
use crate::loader::backend::index_worker::make;
use crate::loader::backend::processes::control::{Control, SlotFacts};
use crate::loader::backend::processes::process_link::{Service, Wanted};
use crate::loader::backend::protocol::{BatchWorker, Outcome, Request, StreamPosition};
use crate::loader::backend::stream_worker::{StreamReader, Streaming};
use crate::loader::checkpoint::state::Stream;
use crate::loader::collate::Collate;
use crate::loader::collate::batch_state::BatchState;
use crate::loader::error::guard::caught;
use crate::loader::order::plan::{Indices, Task};
use crate::loader::worker::claim_size::ClaimSizer;
use crate::loader::worker::engine::Engine;
use crate::loader::worker::reader::Reader;

/// Worker processes that each read a part of an iterable dataset.
pub(crate) struct Streams<D, C>(pub(crate) Arc<Streaming<D, C>>);

impl<D, C> Service<C::Payload> for Streams<D, C>
where
    D: IterableDataset,
    C: Collate<Iterable<D>>,
{
    fn maker(&self, worker: usize) -> impl BatchWorker<C::Payload> {
        StreamReader::new(&self.0, Some(worker))
    }

    fn stream(&self, worker: usize) -> Stream {
        self.0.stream(worker)
    }

    fn wanted(&self, _: usize, task: usize) -> Wanted<'_> {
        Wanted { task, first: 0, rows: self.0.batching.batch_size, indices: None }
    }
}

/// Worker processes that make the batches of a dataset by index in turn.
pub(crate) struct RoundRobinService<D: Dataset, C: Collate<D>> {
    pub(crate) engine: Arc<Engine<D, C>>,
    pub(crate) control: Arc<Control>,
}

impl<D: Dataset, C: Collate<D>> Service<C::Payload> for RoundRobinService<D, C> {
    fn maker(&self, worker: usize) -> impl BatchWorker<C::Payload> {
        let (engine, control) = (self.engine.clone(), self.control.clone());
        let reader = engine.reader(Some(worker), ClaimSizer::fixed(1));
        RoundRobinWorker { engine, reader, control }
    }

    fn wanted(&self, worker: usize, task: usize) -> Wanted<'_> {
        // SAFETY: a request is not answered yet, and the plan is written only when all requests
        // are.
        let plan = unsafe { self.engine.plan_cell.plan() };
        let Task { first, rows, indices, .. } = plan.task(task);
        let facts = SlotFacts { task, first, rows, ..SlotFacts::of_pass(plan) };
        // SAFETY: only the worker's thread writes this slot, and the worker's process, if there is
        // one, waits for a request.
        unsafe { self.control.set_slot(worker, facts, |row| indices.at(row)) };
        Wanted { task, first, rows, indices: Some(indices) }
    }
}

/// Makes the batches of one worker in its process, if workers make batches in turn.
struct RoundRobinWorker<D: Dataset, C: Collate<D>> {
    engine: Arc<Engine<D, C>>,
    reader: Reader,
    control: Arc<Control>,
}

impl<D: Dataset, C: Collate<D>> BatchWorker<C::Payload> for RoundRobinWorker<D, C> {
    fn fill(&mut self, _: &Request, task: usize, work: &BatchState<C::Payload>, _: &mut StreamPosition) -> Outcome {
        // SAFETY: the loader wrote the slot before it sent the request, and does not write it again
        // before the answer.
        let (facts, indices) = unsafe { self.control.slot(self.reader.activity) };
        let (SlotFacts { first, rows, .. }, plan) = (facts, &facts.plan());
        let task = Task { number: task, first, rows, indices: Indices::U64(indices) };
        let Self { engine, reader, .. } = self;
        if !C::STACKS || !self.control.has_fatal_samples() {
            make(engine, plan, &task, work, reader);
        } else if let Err(cause) = caught(|| engine.fill_skipping(work, plan, &task, 0..rows, reader)) {
            engine.fail_after_panic(work, &task, 0..rows, reader, cause);
        }
        Outcome::Batch(rows)
    }
}
