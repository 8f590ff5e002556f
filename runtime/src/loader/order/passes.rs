//! What passes are made of, whatever brings their batches.

use std::sync::Arc;

use crate::loader::checkpoint::state::State;
use crate::loader::error::run::Error;
use crate::loader::order::index_source::IndexSource;
use crate::loader::order::plan_cell::PlanCell;
use crate::rng::SharedGenerator;

/// A pass that begins: its number and its base seed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PassSeed {
    pub(crate) epoch: u32,
    pub(crate) seed: u64,
}

/// What passes are made of.
pub(crate) trait Passes: Send {
    /// How many samples the dataset has, if it says so.
    fn dataset_len(&self) -> Option<usize>;

    /// How many samples a pass has, if that is known.
    fn samples(&self) -> Option<usize>;

    /// Where its indices come from, if it has any.
    fn index_source(&self) -> Option<&IndexSource>;
    fn index_source_mut(&mut self) -> Option<&mut IndexSource>;

    /// How many samples the pass that was begun has, if that is known.
    fn positions(&self) -> Option<usize>;

    /// Draws what a pass needs, and gives the number of its batches, if that is known. `default` stands in for the process's
    /// default generator, and `from` says what of the pass is not wanted any more.
    fn begin(
        &mut self,
        pass: PassSeed,
        default: Option<&SharedGenerator>,
        from: Option<&State>,
    ) -> Result<Option<usize>, Error>;
}

/// Passes over a dataset by index, in an order that is drawn.
pub(crate) struct Orders<L> {
    /// The dataset's length.
    pub(crate) len: L,
    /// Rows of a batch, at most.
    pub(crate) rows: usize,
    pub(crate) draw: IndexSource,
    pub(crate) plan_cell: Arc<PlanCell>,
}

impl<L: Fn() -> usize + Send> Passes for Orders<L> {
    fn dataset_len(&self) -> Option<usize> {
        Some((self.len)())
    }

    fn samples(&self) -> Option<usize> {
        self.draw.len((self.len)())
    }

    fn index_source(&self) -> Option<&IndexSource> {
        Some(&self.draw)
    }

    fn index_source_mut(&mut self) -> Option<&mut IndexSource> {
        Some(&mut self.draw)
    }

    fn positions(&self) -> Option<usize> {
        // SAFETY: only `begin` calls `draft`, and it has this borrowed.
        let plan = unsafe { self.plan_cell.plan() };
        plan.feed.is_none().then_some(plan.positions)
    }

    fn begin(
        &mut self,
        pass: PassSeed,
        default: Option<&SharedGenerator>,
        from: Option<&State>,
    ) -> Result<Option<usize>, Error> {
        let len = (self.len)();
        // SAFETY: the loader draws a pass when the one before has been taken whole and no claim or request is out, and the next
        // one begins later. What else looks at the plan is the loader's, which is borrowed: so no sampler can have it do so.
        let mut plan = unsafe { self.plan_cell.draft() };
        (plan.seed, plan.epoch) = (pass.seed, pass.epoch);
        plan.tickets.start(from);
        self.draw.begin(len, self.rows, &mut plan, default, from)
    }
}
