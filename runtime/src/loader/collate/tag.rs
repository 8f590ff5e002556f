//! What describes a batch.

/// What is known about a batch other than its contents.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Tag {
    /// The batch's number in the pass.
    pub(crate) task: usize,
    pub(crate) rows: usize,
    /// Whether it is a single sample instead of a batch: its tensors lack the first dimension.
    pub(crate) single: bool,
    pub(crate) epoch: u32,
}
