//! What happens when more batches are kept than there is memory for.

/// What a loader does when it is asked for a batch while more are kept than [`hold`](crate::loader::Builder::hold) says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnHeld {
    /// It takes memory for one batch more, as long as the [`memory_limit`](crate::loader::Builder::memory_limit) and the system allow it;
    /// then it fails as [`Fail`](Self::Fail) does. Batches to come use that memory again, and it is given back with the loader.
    ///
    /// The first time is a [warning](crate::loader::Warning::Kept); [`Stats::extra_batches`](crate::loader::Stats::extra_batches) counts.
    #[default]
    Grow,
    /// It waits until another thread drops a batch, up to the [`timeout`](crate::loader::Builder::timeout); then it fails.
    ///
    /// Only for loops that hand batches to other threads: a thread that keeps them all itself would wait for ever.
    Wait,
    /// [`Error::Held`](crate::loader::Error::Held), from each call until a batch is dropped. Then the next batch comes: nothing is lost.
    ///
    /// It comes when all memory is taken, so one batch more than [`hold`](crate::loader::Builder::hold) may be kept where that was
    /// made even.
    Fail,
}
