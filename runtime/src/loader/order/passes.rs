//! The source of passes, which does not depend on the backend.

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

/// The number of a pass that begins, and its base seed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PassSeed {
    pub(crate) epoch: u32,
    pub(crate) seed: u64,
}

impl PassSeed {
    /// Returns the seed for a user's iterator in this pass. It differs from pass to pass, even if
    /// the base seed is kept: it is the first random number of a position that no sample has.
    fn of_batches(self) -> u64 {
        SampleRng::new(self.seed, self.epoch, u64::MAX).next_u64()
    }
}

/// Draws the passes of a loader.
pub(crate) trait Passes: Send {
    /// The number of samples of the dataset, if it is known.
    fn dataset_len(&self) -> Option<usize>;

    /// The number of samples in a pass, if it is known.
    fn samples(&self) -> Option<usize>;

    /// The source of the indices; `None` for an iterable dataset.
    fn index_source(&self) -> Option<&IndexSource>;
    fn index_source_mut(&mut self) -> Option<&mut IndexSource>;

    /// The number of samples in the current pass, if it is known.
    fn positions(&self) -> Option<usize>;

    /// Whether the current pass is one rank's share of a pass.
    fn is_shared(&self) -> bool {
        false
    }

    /// Draws a pass, and returns its number of batches, if it is known. `default` replaces the
    /// process's default generator if given, and `from` says which part of the pass was already
    /// delivered.
    fn begin(
        &mut self,
        pass: PassSeed,
        default: Option<&SharedGenerator>,
        from: Option<&State>,
    ) -> Result<Option<usize>, Error>;
}

/// Draws passes over a dataset with indices.
pub(crate) struct IndexedPasses {
    pub(crate) dataset: Arc<dyn PassDataset>,
    /// The maximum number of rows of a batch.
    pub(crate) rows: usize,
    pub(crate) draw: IndexSource,
    pub(crate) plan_cell: Arc<PlanCell>,
}

/// What a pass needs from a dataset. Passes are drawn through this trait, so that the code for them
/// is compiled once, instead of for each type of dataset.
pub(crate) trait PassDataset: Send + Sync {
    fn len(&self) -> usize;

    fn reads_ahead(&self) -> bool;

    fn begin_pass(&self, upcoming: Upcoming);
}

/// A type that owns the dataset of a loader.
pub(crate) trait HasDataset: Send + Sync {
    type Dataset: Dataset;

    fn dataset(&self) -> &Self::Dataset;
}

impl<E: HasDataset> PassDataset for E {
    fn len(&self) -> usize {
        self.dataset().len()
    }

    fn reads_ahead(&self) -> bool {
        self.dataset().reads_ahead()
    }

    fn begin_pass(&self, upcoming: Upcoming) {
        self.dataset().begin_pass(upcoming);
    }
}

impl Passes for IndexedPasses {
    fn dataset_len(&self) -> Option<usize> {
        Some(self.dataset.len())
    }

    fn samples(&self) -> Option<usize> {
        self.draw.len(self.dataset.len())
    }

    fn index_source(&self) -> Option<&IndexSource> {
        Some(&self.draw)
    }

    fn index_source_mut(&mut self) -> Option<&mut IndexSource> {
        Some(&mut self.draw)
    }

    fn positions(&self) -> Option<usize> {
        // SAFETY: only `begin` calls `draft`, and it needs an exclusive borrow of `self`, which is
        // borrowed here.
        let plan = unsafe { self.plan_cell.plan() };
        plan.index_stream.is_none().then_some(plan.positions)
    }

    fn is_shared(&self) -> bool {
        // SAFETY: only `begin` calls `draft`, as explained in `positions`.
        unsafe { self.plan_cell.plan() }.global_positions.step > 1
    }

    fn begin(
        &mut self,
        pass: PassSeed,
        default: Option<&SharedGenerator>,
        from: Option<&State>,
    ) -> Result<Option<usize>, Error> {
        let len = self.dataset.len();
        // SAFETY: the loader draws a pass only after it has taken the previous one completely, when
        // no claim or request is outstanding, and before it begins the next one. Everything else
        // that reads the plan belongs to the loader, which is exclusively borrowed, so a sampler
        // cannot cause a read.
        let mut plan = unsafe { self.plan_cell.draft() };
        (plan.seed, plan.epoch) = (pass.seed, pass.epoch);
        plan.tickets.start(from);
        let tasks = self.draw.begin(len, self.rows, &mut plan, pass.of_batches(), default, from)?;
        // With an index stream, the order is not known in advance.
        if tasks.is_some() && self.dataset.reads_ahead() {
            let first = from.map_or(0, |state| state.missing.first().copied().unwrap_or(state.next()));
            let upcoming = match &plan.spans {
                None => {
                    let first = first.saturating_mul(self.draw.batching.batch_size).min(plan.positions);
                    Upcoming::of(plan.order.clone(), first..plan.positions)
                }
                Some(spans) => planned(plan.order.clone(), spans, first),
            };
            self.dataset.begin_pass(upcoming);
        }
        Ok(tasks)
    }
}

/// Returns the indices of the batches that a sampler has planned, from batch `first` on.
fn planned(order: Order, spans: &Spans, first: usize) -> Upcoming {
    let mut samples = 0;
    // For each batch, the number of samples in the batches before it and its first position in the
    // order.
    let batch = |positions: Range<usize>| {
        let before = samples;
        samples += positions.len();
        (before, positions.start)
    };
    let batches: Vec<(usize, usize)> = (first..spans.len()).map(|task| spans.of(task)).map(batch).collect();
    Upcoming::new(samples, move |at| {
        let (before, start) = batches[batches.partition_point(|&(before, _)| before <= at).checked_sub(1)?];
        order.get(start + (at - before))
    })
}
