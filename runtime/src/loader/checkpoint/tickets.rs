//! Records which batches of a pass were delivered, and maps tickets to batches.

use crate::loader::checkpoint::state::State;

/// Records which batches of a pass were delivered, if they come out of order.
#[derive(Debug, Default)]
pub(crate) struct Gaps {
    /// One more than the highest number that was delivered.
    next: usize,
    /// Lower numbers that were not delivered; ascending.
    pub(crate) missing: Vec<usize>,
}

impl Gaps {
    /// Makes an empty record with memory for `missing` missing numbers.
    pub(crate) fn with_capacity(missing: usize) -> Self {
        Self { next: 0, missing: Vec::with_capacity(missing) }
    }

    /// Begins a pass. If it is resumed, `state` says what was already delivered.
    pub(crate) fn start(&mut self, state: Option<&State>) {
        self.missing.clear();
        self.missing.extend(state.iter().flat_map(|state| &state.missing));
        self.next = state.map_or(0, State::next);
    }

    /// Records that a batch was delivered.
    pub(crate) fn note(&mut self, task: usize) {
        if task >= self.next {
            self.missing.extend(self.next..task);
            self.next = task + 1;
        } else if let Ok(at) = self.missing.binary_search(&task) {
            self.missing.remove(at);
        }
    }
}

/// Maps tickets to batches. After a resume, the first tickets are the batches that are missing
/// among the delivered ones, and the others are those after the last delivered one.
#[derive(Debug, Default)]
pub(crate) struct Tickets {
    /// The number of batches that were already delivered.
    pub(crate) done: usize,
    missing: Vec<usize>,
}

impl Tickets {
    /// Begins a pass. If it is resumed, `state` says what was already delivered.
    pub(crate) fn start(&mut self, state: Option<&State>) {
        self.done = state.map_or(0, State::batches);
        self.missing.clear();
        self.missing.extend(state.iter().flat_map(|state| &state.missing));
    }

    /// Returns the number of the batch that comes next if `past` batches of the pass were
    /// delivered, in order.
    pub(crate) fn awaited(&self, past: usize) -> usize {
        self.task(past.saturating_sub(self.done))
    }

    /// Returns the batch of a ticket.
    #[inline(always)]
    pub(crate) fn task(&self, ticket: usize) -> usize {
        if ticket >= self.missing.len() { ticket + self.done } else { self.missing[ticket] }
    }
}
