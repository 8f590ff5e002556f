//! Why values could not be collated, converted or pinned.

use slotline::BoxError;
use slotline::array::PinMemoryError;
use slotline::dtype::DType;
use slotline::shape::ShapeError;

use crate::{MAX_DEPTH, Path};

/// Why samples could not be made a batch, or a sample could not be converted.
///
/// `sample` counts from 0 within the batch; `path` leads to the place in the sample.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CollateError {
    /// No samples.
    #[error("default_collate: the batch is empty; give it at least one sample")]
    Empty,
    /// Nothing is known of how to collate such values.
    #[error(
        "default_collate: batch must contain tensors, arrays, numbers, maps or lists; found {found}{}; implement CustomValue::collate for it, or give a Collator a function for it",
        at(path)
    )]
    Unsupported {
        /// The place.
        path: Path,
        /// The type.
        found: String,
    },
    /// A sample has something else than the first one.
    #[error("{}: expected {expected}, as in element 0, found {found}; the samples of a batch must be alike", place(*sample, path))]
    Mixed {
        /// The place.
        path: Path,
        /// The sample.
        sample: usize,
        /// What the first sample has there.
        expected: String,
        /// What this one has.
        found: String,
    },
    /// A tensor of another shape than the first sample's.
    #[error(
        "{}: each tensor of a batch must be of equal size, but this one is {found:?} and element 0 has {expected:?}; resize or pad them",
        place(*sample, path)
    )]
    Shape {
        /// The place.
        path: Path,
        /// The sample.
        sample: usize,
        /// The shape of the first sample's tensor.
        expected: Vec<usize>,
        /// The shape of this one's.
        found: Vec<usize>,
    },
    /// A tensor of another dtype than the first sample's.
    #[error(
        "{}: each tensor of a batch must be of one dtype, but this one is {found} and element 0 has {expected}; convert them",
        place(*sample, path)
    )]
    DType {
        /// The place.
        path: Path,
        /// The sample.
        sample: usize,
        /// The dtype of the first sample's tensor.
        expected: DType,
        /// The dtype of this one's.
        found: DType,
    },
    /// A map lacks a key that the first sample has.
    #[error("{}: there is no key {key:?}, which element 0 has", place(*sample, path))]
    MissingKey {
        /// The place of the map.
        path: Path,
        /// The sample.
        sample: usize,
        /// The key.
        key: String,
    },
    /// A list or tuple of another length than the first sample's.
    #[error(
        "{}: each element in list of batch should be of equal size, but this one has {found} and element 0 has {expected}",
        place(*sample, path)
    )]
    Length {
        /// The place.
        path: Path,
        /// The sample.
        sample: usize,
        /// How many values the first sample's list has.
        expected: usize,
        /// How many this one's has.
        found: usize,
    },
    /// The batch has no possible shape.
    #[error("the tensors{} can't be stacked: {source}", at(path))]
    Stack {
        /// The place.
        path: Path,
        /// Why not.
        source: ShapeError,
    },
    /// The batch needs more memory than there is.
    #[error("{samples} tensors{} stacked are {bytes} bytes, more than can be had; make batch_size smaller", at(path))]
    Memory {
        /// The place.
        path: Path,
        /// How many tensors.
        samples: usize,
        /// Bytes of all.
        bytes: u128,
    },
    /// Containers in containers, or collate functions that call each other, without an end in sight.
    #[error("the sample is nested more than {MAX_DEPTH} deep; flatten it")]
    TooDeep {
        /// How far it was followed.
        path: Path,
    },
    /// A function of the user's, or a custom value's own, failed.
    #[error("{what}{} could not be collated or converted: {source}", at(path))]
    Custom {
        /// The place.
        path: Path,
        /// What was to be collated.
        what: String,
        /// Why it failed.
        source: BoxError,
    },
}

/// Why a value could not be pinned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PinError {
    /// The memory of a tensor could not be had or locked.
    #[error("the tensor{} could not be pinned: {source}", at(path))]
    Tensor {
        /// The place.
        path: Path,
        /// Why not.
        source: PinMemoryError,
    },
    /// A custom value's own method failed.
    #[error("{what}{} could not be pinned: {source}", at(path))]
    Custom {
        /// The place.
        path: Path,
        /// The type.
        what: String,
        /// Why it failed.
        source: BoxError,
    },
    /// Containers in containers without an end in sight.
    #[error("the value is nested more than {MAX_DEPTH} deep; flatten it")]
    TooDeep {
        /// How far it was followed.
        path: Path,
    },
}

fn at(path: &Path) -> String {
    if path.steps().is_empty() { String::new() } else { format!(" at {path}") }
}

fn place(sample: usize, path: &Path) -> String {
    if path.steps().is_empty() { format!("element {sample}") } else { format!("element {sample}, at {path}") }
}
