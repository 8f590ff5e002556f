//! Which batches of a pass are delivered, and which one a ticket is for.

use crate::loader::checkpoint::state::State;

/// Which batches of a pass were delivered, where these are not just the first ones.
#[derive(Debug, Default)]
pub(crate) struct Gaps {
    /// One more than the highest number delivered.
    next: usize,
    /// Numbers below it that were not, ascending.
    pub(crate) missing: Vec<usize>,
}

impl Gaps {
    /// With memory for so many that were passed over.
    pub(crate) fn with_capacity(missing: usize) -> Self {
        Self { next: 0, missing: Vec::with_capacity(missing) }
    }

    /// Begins a pass of which this much was delivered before.
    pub(crate) fn start(&mut self, state: Option<&State>) {
        self.missing.clear();
        self.missing.extend(state.iter().flat_map(|state| &state.missing));
        self.next = state.map_or(0, State::next);
    }

    /// Notes that a batch was delivered.
    pub(crate) fn note(&mut self, task: usize) {
        if task >= self.next {
            self.missing.extend(self.next..task);
            self.next = task + 1;
        } else if let Ok(place) = self.missing.binary_search(&task) {
            self.missing.remove(place);
        }
    }
}

/// Which batch a ticket is for: after a resumption, first those that were passed over, and then those after the last one
/// that was delivered.
#[derive(Debug, Default)]
pub(crate) struct Tickets {
    /// Batches delivered before.
    pub(crate) done: usize,
    missing: Vec<usize>,
}

impl Tickets {
    /// Begins a pass of which this much was delivered before.
    pub(crate) fn start(&mut self, state: Option<&State>) {
        self.done = state.map_or(0, State::batches);
        self.missing.clear();
        self.missing.extend(state.iter().flat_map(|state| &state.missing));
    }

    /// The batch of a ticket.
    #[inline(always)]
    pub(crate) fn task(&self, ticket: usize) -> usize {
        if ticket >= self.missing.len() { ticket + self.done } else { self.missing[ticket] }
    }
}
