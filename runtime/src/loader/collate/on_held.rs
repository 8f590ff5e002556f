//! What a loader does when more batches are kept than there is memory for.

/// What a loader does when it is asked for a batch while the user keeps more than
/// [`hold`](crate::loader::Builder::hold) batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnHeld {
    /// Takes memory for one more batch, as long as the
    /// [`memory_limit`](crate::loader::Builder::memory_limit) and the system allow it, and
    /// otherwise fails like [`Fail`](Self::Fail). Later batches use that memory again, and it is
    /// freed with the loader.
    ///
    /// The first such batch causes a [warning](crate::loader::Warning::Kept);
    /// [`Stats::extra_batches`](crate::loader::Stats::extra_batches) counts all of them.
    #[default]
    Grow,
    /// Waits until another thread drops a batch, at most for the
    /// [`timeout`](crate::loader::Builder::timeout), and then fails.
    ///
    /// Only for loops that pass batches to other threads: a thread that keeps all batches itself
    /// would wait forever.
    Wait,
    /// Returns [`Error::Held`](crate::loader::Error::Held) from each call until a batch is dropped.
    /// Then the next batch comes; nothing is lost.
    ///
    /// The call fails only when all memory is in use. So one batch more than
    /// [`hold`](crate::loader::Builder::hold) can be kept if the number of slots was rounded up to
    /// an even one.
    Fail,
}
