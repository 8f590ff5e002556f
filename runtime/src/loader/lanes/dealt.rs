//! Batches of a dataset by index that are dealt out to the workers, as torch does.

use std::sync::Arc;

use crossbeam_utils::CachePadded;

use super::super::clock::timed;
use super::super::collate::Collate;
use super::super::draw::Draw;
use super::super::engine::{Engine, Task};
use super::super::error::Error;
use super::super::job::{Abandoned, Activity, Reader};
use super::super::plan::Indices;
use super::super::state::State;
use super::super::work::{Work, caught, quietly};
use super::worker::{Hand, Mark, Outcome, Request};
use super::{Home, Pass, Passes};
use crate::dataset::Dataset;
use crate::rng::SharedGenerator;

impl<D: Dataset, C: Collate<D>> Home<D> for Engine<D, C> {
    fn dataset(&self) -> &D {
        &self.dataset
    }

    fn abandoned(&self) -> &Arc<Abandoned> {
        &self.abandoned
    }

    fn dataset_len(&self) -> Option<usize> {
        Some(self.dataset.len())
    }

    fn activities(&self) -> &Arc<[CachePadded<Activity>]> {
        &self.activities
    }
}

/// Draws the orders of passes.
pub(super) struct DealtPasses<D: Dataset, C: Collate<D>> {
    pub(super) engine: Arc<Engine<D, C>>,
    pub(super) draw: Draw,
}

impl<D: Dataset, C: Collate<D>> Passes for DealtPasses<D, C> {
    fn samples(&self) -> Option<usize> {
        self.draw.len(self.engine.dataset.len())
    }

    fn draw(&self) -> Option<&Draw> {
        Some(&self.draw)
    }

    fn draw_mut(&mut self) -> Option<&mut Draw> {
        Some(&mut self.draw)
    }

    fn positions(&self) -> Option<usize> {
        // SAFETY: the loader alone has this, and it is who may call `draft`.
        Some(unsafe { self.engine.plan() }.positions)
    }

    fn begin(
        &mut self,
        pass: Pass,
        default: Option<&SharedGenerator>,
        from: Option<&State>,
    ) -> Result<Option<usize>, Error> {
        let engine = &*self.engine;
        // SAFETY: the loader begins a pass only when no request is out. It alone has this, and is borrowed: so no sampler can
        // have it look at the plan.
        let mut plan = unsafe { engine.draft() };
        (plan.seed, plan.epoch) = (pass.seed, pass.epoch);
        self.draw.begin(engine.dataset.len(), engine.rows, &mut plan, default, from)
    }
}

/// Makes the batches that one worker is dealt.
pub(super) struct DealtHand<D: Dataset, C: Collate<D>> {
    pub(super) engine: Arc<Engine<D, C>>,
    pub(super) reader: Reader,
}

impl<D: Dataset, C: Collate<D>> Hand<C::Payload> for DealtHand<D, C> {
    fn fill(&mut self, _: Request, task: usize, work: &Work<C::Payload>, _: &mut Mark) -> Outcome {
        let engine = &*self.engine;
        // SAFETY: a request is not answered yet, and the plan is written only when all are.
        let plan = unsafe { engine.plan() };
        let first = task * engine.stride;
        let rows = engine.rows.min(plan.positions - first);
        let task = Task { number: task, first, indices: Indices::from(&plan.order, first) };
        let activity = &*engine.activities[self.reader.place];
        let reader = &mut self.reader;
        let outcome = if reader.pacer.lets_go() {
            caught(|| engine.fill::<false>(work, plan, task, 0..rows, reader))
        } else {
            let of = (task.number, 1);
            caught(|| {
                timed(reader, activity, of, |reader| match reader.watch.laps() {
                    Some(_) => engine.fill::<true>(work, plan, task, 0..rows, reader),
                    None => engine.fill::<false>(work, plan, task, 0..rows, reader),
                })
            })
            .flatten()
        };
        if let Err(cause) = outcome {
            engine.spoil(work, task, 0..rows, reader, cause);
            // It may have been made all the same.
            quietly(|| C::discard(&work.payload));
        }
        Outcome::Batch(rows)
    }
}
