//! What is said of an index that a dataset does not have.

/// An index that is not one of the dataset's: a sampler of one's own gave it, or the dataset became shorter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{dataset}: index {index} is not below its length, {len}; check the sampler that gave this index")]
pub struct OutOfRange {
    /// The dataset's name.
    pub dataset: &'static str,
    /// The index.
    pub index: usize,
    /// How many samples the dataset has.
    pub len: usize,
}
