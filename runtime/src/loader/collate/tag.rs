//! The description of a batch.

/// The description of a batch: its number, size and pass.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Tag {
    /// The batch's number in the pass.
    pub(crate) task: usize,
    pub(crate) rows: usize,
    /// Whether this is a single sample instead of a batch. Its tensors then lack the first
    /// dimension.
    pub(crate) single: bool,
    pub(crate) epoch: u32,
}
