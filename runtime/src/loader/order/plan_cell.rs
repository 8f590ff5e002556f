//! Where the plan of the pass is, for all threads to read.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};

use crate::loader::order::plan::{Feed, Plan};

/// Where the plan of a pass is: written by the loader between two passes, read by the threads that have a claim.
#[derive(Debug, Default)]
pub(crate) struct PlanCell(UnsafeCell<Plan>);

// SAFETY: the plan is reached through `plan` and `draft` only, whose callers see to it that nobody reads it while it is written;
// the rings order the two. Readers share it, and writers send it from thread to thread, which is checked below.
unsafe impl Sync for PlanCell {}

const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<Plan>();
};

/// A plan in the making. It is taken off the plan_cell and put back when this is dropped: drawing a plan runs code of the
/// user's, which may do anything, and so no reference into the plan_cell is alive meanwhile.
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
        // SAFETY: as long as there is a draft nobody reads the plan or takes another draft (see `PlanCell::draft`). What comes
        // back is the empty plan that was left there, and dropping that runs no code of the user's.
        unsafe { std::ptr::swap(self.to.0.get(), &mut self.plan) };
    }
}

impl PlanCell {
    /// A plan_cell with a plan that has this feed.
    pub(crate) fn new(feed: Option<Feed>) -> Self {
        Self(UnsafeCell::new(Plan { feed, ..Plan::default() }))
    }

    /// The plan, to be made that of the next pass.
    ///
    /// # Safety
    ///
    /// As long as the draft is there no claim may be out and none be had, and nobody may call this or [`plan`](Self::plan).
    pub(crate) unsafe fn draft(&self) -> Draft<'_> {
        // SAFETY: nobody else has a reference to the plan (the caller's word), and this one ends here.
        let plan = unsafe { std::mem::take(&mut *self.0.get()) };
        Draft { plan, to: self }
    }

    /// The plan of this pass.
    ///
    /// # Safety
    ///
    /// While it is used, a claim must be out, or the caller be the only one who may call `draft`.
    pub(crate) unsafe fn plan(&self) -> &Plan {
        // SAFETY: nobody writes the plan now (the caller's word).
        unsafe { &*self.0.get() }
    }
}
