//! Errors of collating, converting and pinning values.

use slotline::BoxError;
use slotline::array::PinMemoryError;
use slotline::dtype::DType;
use slotline::shape::ShapeError;
use slotline::with_causes;

use crate::{MAX_DEPTH, Path};

/// An error that occurs when samples are collated into a batch, or when a sample is converted.
///
/// `sample` is the index of the sample within the batch; `path` leads to the value in the sample.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CollateError {
    /// The batch has no samples.
    #[error("default_collate: the batch is empty; give it at least one sample")]
    Empty,
    /// There is no rule or function to collate values of this type.
    #[error(
        "default_collate: batch must contain tensors, arrays, numbers, maps or lists; found {found}{}; implement CustomValue::collate for it, or give a Collator a function for it",
        at(path)
    )]
    Unsupported {
        /// The path to the value in the sample.
        path: Path,
        /// The type of the value.
        found: String,
    },
    /// A sample has a different kind of value than the first sample.
    #[error("{}: expected {expected}, as in element 0, found {found}; the samples of a batch must be alike", place(*sample, path))]
    Mixed {
        /// The path to the value in the sample.
        path: Path,
        /// The index of the sample in the batch.
        sample: usize,
        /// The value that the first sample has at this place.
        expected: String,
        /// The value that this sample has at this place.
        found: String,
    },
    /// A tensor has a different shape than the first sample's tensor.
    #[error(
        "{}: each tensor of a batch must be of equal size, but this one is {found:?} and element 0 has {expected:?}; resize or pad them",
        place(*sample, path)
    )]
    Shape {
        /// The path to the value in the sample.
        path: Path,
        /// The index of the sample in the batch.
        sample: usize,
        /// The shape of the first sample's tensor.
        expected: Vec<usize>,
        /// The shape of this sample's tensor.
        found: Vec<usize>,
    },
    /// A tensor has a different dtype than the first sample's tensor.
    #[error(
        "{}: each tensor of a batch must be of one dtype, but this one is {found} and element 0 has {expected}; convert them",
        place(*sample, path)
    )]
    DType {
        /// The path to the value in the sample.
        path: Path,
        /// The index of the sample in the batch.
        sample: usize,
        /// The dtype of the first sample's tensor.
        expected: DType,
        /// The dtype of this sample's tensor.
        found: DType,
    },
    /// A map lacks a key that the first sample has.
    #[error(
        "{}: the key {key:?} is missing, which element 0 has; give every sample the same keys",
        place(*sample, path)
    )]
    MissingKey {
        /// The path to the map in the sample.
        path: Path,
        /// The index of the sample in the batch.
        sample: usize,
        /// The missing key.
        key: String,
    },
    /// A list or tuple has a different length than the first sample's list or tuple.
    #[error(
        "{}: each element in list of batch should be of equal size, but this one has {found} and element 0 has {expected}",
        place(*sample, path)
    )]
    Length {
        /// The path to the value in the sample.
        path: Path,
        /// The index of the sample in the batch.
        sample: usize,
        /// The length of the first sample's list.
        expected: usize,
        /// The length of this sample's list.
        found: usize,
    },
    /// The batch would have an invalid shape.
    #[error("the tensors{} cannot be stacked", at(path))]
    Stack {
        /// The path to the value in the sample.
        path: Path,
        /// The reason.
        source: ShapeError,
    },
    /// The batch needs more memory than is available.
    #[error(
        "stacking {samples} tensors{} needs {bytes} bytes, which cannot be allocated; make batch_size smaller",
        at(path)
    )]
    Memory {
        /// The path to the value in the sample.
        path: Path,
        /// The number of tensors.
        samples: usize,
        /// The size of the stacked tensors in bytes.
        bytes: u128,
    },
    /// Values are nested, or collate functions call each other, deeper than [`MAX_DEPTH`].
    #[error("the sample is nested more than {MAX_DEPTH} deep; flatten it")]
    TooDeep {
        /// The path at which the limit was reached.
        path: Path,
    },
    /// A user's function or a custom value's method failed.
    #[error("{what}{} could not be collated or converted: {}", at(path), with_causes(&**source))]
    Custom {
        /// The path to the value in the sample.
        path: Path,
        /// The type or kind of the value.
        what: String,
        /// The error of the function or method.
        r#source: BoxError,
    },
}

/// An error that occurs when a value is pinned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PinError {
    /// The memory for a tensor could not be allocated or locked.
    #[error("the tensor{} could not be pinned: {}", at(path), with_causes(source))]
    Tensor {
        /// The path within the value.
        path: Path,
        /// The reason.
        r#source: PinMemoryError,
    },
    /// A custom value's method failed.
    #[error("{what}{} could not be pinned: {}", at(path), with_causes(&**source))]
    Custom {
        /// The path within the value.
        path: Path,
        /// The type of the value.
        what: String,
        /// The error of the method.
        r#source: BoxError,
    },
    /// The value is nested deeper than [`MAX_DEPTH`].
    #[error("the value is nested more than {MAX_DEPTH} deep; flatten it")]
    TooDeep {
        /// The path at which the limit was reached.
        path: Path,
    },
}

fn at(path: &Path) -> String {
    if path.steps().is_empty() { String::new() } else { format!(" at {path}") }
}

fn place(sample: usize, path: &Path) -> String {
    if path.steps().is_empty() { format!("element {sample}") } else { format!("element {sample}, at {path}") }
}
