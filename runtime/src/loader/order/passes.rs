//! The source of passes, independent of the backend.

use std::ops::Range;
use std::sync::Arc;

use crate::dataset::{Dataset, Upcoming};
use crate::loader::checkpoint::state::State;
use crate::loader::error::run::Error;
use crate::loader::order::index_source::IndexSource;
use crate::loader::order::plan_cell::PlanCell;
use crate::rng::rand_core::Rng;
use crate::rng::{SampleRng, SharedGenerator};
use crate::sampler::{Order, Spans};

/// The number and base seed of a pass that begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PassSeed {
    pub(crate) epoch: u32,
    pub(crate) seed: u64,
}

impl PassSeed {
    /// Returns the seed for what a user draws for this pass: another one in each pass, even if the base seed is kept. It is
    /// the first number of the generator of a position that no sample has.
    fn of_batches(self) -> u64 {
        SampleRng::new(self.seed, self.epoch, u64::MAX).next_u64()
    }
}

/// The source of passes.
pub(crate) trait Passes: Send {
    /// The number of samples of the dataset, if it is known.
    fn dataset_len(&self) -> Option<usize>;

    /// The number of samples of a pass, if it is known.
    fn samples(&self) -> Option<usize>;

    /// The source of the indices, if there is one.
    fn index_source(&self) -> Option<&IndexSource>;
    fn index_source_mut(&mut self) -> Option<&mut IndexSource>;

    /// The number of samples of the current pass, if it is known.
    fn positions(&self) -> Option<usize>;

    /// Whether the current pass is the share of one of several replicas.
    fn is_shared(&self) -> bool {
        false
    }

    /// Draws a pass, and returns the number of its batches, if it is known. `default` replaces the process's default
    /// generator, and `from` says which part of the pass was already delivered.
    fn begin(
        &mut self,
        pass: PassSeed,
        default: Option<&SharedGenerator>,
        from: Option<&State>,
    ) -> Result<Option<usize>, Error>;
}

/// Passes over a dataset by index, in a drawn order.
pub(crate) struct IndexedPasses<E> {
    pub(crate) engine: E,
    /// The maximum rows of a batch.
    pub(crate) rows: usize,
    pub(crate) draw: IndexSource,
    pub(crate) plan_cell: Arc<PlanCell>,
}

/// What reads the samples of the orders, and has the dataset.
pub(crate) trait HasDataset: Send {
    type Dataset: Dataset;

    fn dataset(&self) -> &Self::Dataset;
}

impl<E: HasDataset> Passes for IndexedPasses<E> {
    fn dataset_len(&self) -> Option<usize> {
        Some(self.engine.dataset().len())
    }

    fn samples(&self) -> Option<usize> {
        self.draw.len(self.engine.dataset().len())
    }

    fn index_source(&self) -> Option<&IndexSource> {
        Some(&self.draw)
    }

    fn index_source_mut(&mut self) -> Option<&mut IndexSource> {
        Some(&mut self.draw)
    }

    fn positions(&self) -> Option<usize> {
        // SAFETY: only `begin` calls `draft`, and that needs an exclusive borrow of `self`, which is borrowed here.
        let plan = unsafe { self.plan_cell.plan() };
        plan.index_stream.is_none().then_some(plan.positions)
    }

    fn is_shared(&self) -> bool {
        // SAFETY: as in `positions`.
        unsafe { self.plan_cell.plan() }.places.step > 1
    }

    fn begin(
        &mut self,
        pass: PassSeed,
        default: Option<&SharedGenerator>,
        from: Option<&State>,
    ) -> Result<Option<usize>, Error> {
        let dataset = self.engine.dataset();
        let len = dataset.len();
        // SAFETY: the loader draws a pass only when the previous one has been taken completely and no claim or request
        // is out, and the next pass begins later. Everything else that reads the plan belongs to the loader, which is
        // exclusively borrowed, so a sampler cannot cause a read.
        let mut plan = unsafe { self.plan_cell.draft() };
        (plan.seed, plan.epoch) = (pass.seed, pass.epoch);
        plan.tickets.start(from);
        let tasks = self.draw.begin(len, self.rows, &mut plan, pass.of_batches(), default, from)?;
        // With an index stream, the order is not known.
        if tasks.is_some() && dataset.reads_ahead() {
            let first = from.map_or(0, |state| state.missing.first().copied().unwrap_or(state.next()));
            let upcoming = match &plan.spans {
                None => {
                    let first = first.saturating_mul(self.draw.batching.batch_size).min(plan.positions);
                    Upcoming::of(plan.order.clone(), first..plan.positions)
                }
                Some(spans) => planned(plan.order.clone(), spans, first),
            };
            dataset.begin_pass(upcoming);
        }
        Ok(tasks)
    }
}

/// Returns the indices of the batches that a sampler planned, from batch `first` on.
fn planned(order: Order, spans: &Spans, first: usize) -> Upcoming {
    let mut samples = 0;
    // For each batch: the number of samples in the batches before it, and its first position in the order.
    let batch = |positions: Range<usize>| {
        let before = samples;
        samples += positions.len();
        (before, positions.start)
    };
    let batches: Vec<(usize, usize)> = (first..spans.len()).map(|task| spans.of(task)).map(batch).collect();
    Upcoming::new(samples, move |place| {
        let (before, start) = batches[batches.partition_point(|&(before, _)| before <= place).checked_sub(1)?];
        order.get(start + (place - before))
    })
}
