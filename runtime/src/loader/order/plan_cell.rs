//! Shares the plan of the pass between threads.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};

use crate::loader::order::plan::{IndexStream, Plan};

/// Contains the plan of a pass. The loader writes it between two passes, and the threads that have
/// a claim read it.
#[derive(Debug, Default)]
pub(crate) struct PlanCell(UnsafeCell<Plan>);

// SAFETY: the plan is accessed only through `plan` and `draft`, whose callers ensure that no thread
// reads it while it is written; the rings order the reads and the writes. Readers share the plan,
// and writers send it between threads; the check below requires that its type allows both.
unsafe impl Sync for PlanCell {}

const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<Plan>();
};

/// A plan that is being drawn. It was taken out of the `PlanCell` and is put back when this value
/// is dropped. Drawing a plan runs user code, which may do anything, so there must be no reference
/// into the `PlanCell` during that time.
pub(crate) struct Draft<'b> {
    plan: Plan,
    to: &'b PlanCell,
}

impl Deref for Draft<'_> {
    type Target = Plan;

    fn deref(&self) -> &Plan {
        &self.plan
    }
}

impl DerefMut for Draft<'_> {
    fn deref_mut(&mut self) -> &mut Plan {
        &mut self.plan
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        // SAFETY: while a draft exists, no thread reads the plan or takes another draft (see
        // `PlanCell::draft`). The value that is swapped out is the empty plan that `draft` left
        // there; dropping it runs no user code.
        unsafe { std::ptr::swap(self.to.0.get(), &mut self.plan) };
    }
}

impl PlanCell {
    /// Makes a `PlanCell` whose batches have at most `rows` rows, with `stride` positions from one
    /// to the next.
    pub(crate) fn new(rows: usize, stride: usize, index_stream: Option<IndexStream>) -> Self {
        Self(UnsafeCell::new(Plan { rows, stride, index_stream, ..Plan::default() }))
    }

    /// Takes the plan out, to draw the next pass into it.
    ///
    /// # Safety
    ///
    /// While the draft exists, no claim may be outstanding or be made, and no one may call this
    /// function or [`plan`](Self::plan).
    pub(crate) unsafe fn draft(&self) -> Draft<'_> {
        // SAFETY: the caller upholds that no other reference to the plan exists, and the one made
        // here ends with this statement.
        let plan = unsafe { std::mem::take(&mut *self.0.get()) };
        Draft { plan, to: self }
    }

    /// Returns the plan of this pass.
    ///
    /// # Safety
    ///
    /// While the reference is used, either a claim must be outstanding, or the caller must be the
    /// only one who may call `draft`, and must not do so.
    pub(crate) unsafe fn plan(&self) -> &Plan {
        // SAFETY: the caller upholds that no thread writes the plan now.
        unsafe { &*self.0.get() }
    }
}
