//! How far a pass is.

use crate::BoxError;

/// How far the current pass is.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Its number.
    pub(crate) epoch: u32,
    /// How many batches it has; `None` as long as that is not known.
    pub(crate) tasks: Option<usize>,
    /// How many samples it has, if `tasks` is known.
    pub(crate) positions: usize,
    pub(crate) delivered: usize,
    /// Samples in what was delivered, of an iterable dataset.
    pub(crate) samples: usize,
    /// How many samples an iterable dataset says that there are, until there were more.
    pub(crate) said: Option<usize>,
    /// Batches that were thrown away, since nobody wanted the rest of the pass.
    pub(crate) thrown_away: usize,
    /// Whether batches have the numbers that they were asked for by; else they are counted as they come.
    pub(crate) numbered: bool,
    /// Whether batches are not delivered just one after the other, so that there is more to note than their number.
    pub(crate) gaps: bool,
    /// Whether it has begun, and its end was not seen yet.
    pub(crate) running: bool,
    /// Whether there is more for the user to take.
    pub(crate) open: bool,
    /// Workers that could not begin, the first one last.
    pub(crate) failures: Vec<(usize, BoxError)>,
    /// Whether these are all that could load.
    pub(crate) nobody_left: bool,
}

impl Progress {
    /// Whether there may be batches to come.
    #[inline]
    pub(crate) fn has_more(&self) -> bool {
        self.running && self.tasks != Some(self.delivered + self.thrown_away)
    }
}
