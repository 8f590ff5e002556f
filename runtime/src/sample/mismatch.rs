//! The error for samples that do not match their declared fields.

use super::layout::{Field, Kind};
use crate::dtype::DType;
use crate::shape::Shape;

/// The error for a sample that does not match its declared fields.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Mismatch(Box<Problem>);

#[derive(Debug, thiserror::Error)]
pub(super) enum Problem {
    #[error("field {declared} was declared, but the sample has {dtype} {shape}{}", advice(.declared, *.dtype, .shape))]
    Other { declared: Field, dtype: DType, shape: Shape },
    #[error("field {declared} was declared, but the sample has {found} elements; declare a larger maximum")]
    TooLong { declared: Field, found: usize },
    #[error("field {declared}: {rows} rows of it have {len} bytes, and the pieces have {found}")]
    Rows { declared: Field, rows: usize, len: usize, found: usize },
    #[error("{declared} fields were declared, but the sample wrote {found}")]
    Count { declared: usize, found: usize },
    #[error("a part of {declared} fields was declared, but the sample's has {found}")]
    Run { declared: usize, found: usize },
    #[error(
        "field {declared}: the {} samples before this one in the batch have {before} items, this one has {found}, and \
         the batch has room for {capacity}; declare room for at least {} per sample (of files: the option `room`), or let \
         batches spill (on_overflow), which needs threads as workers",
        .row, before.saturating_add(*.found).div_ceil(*.rows)
    )]
    Full { declared: Field, row: usize, rows: usize, before: usize, found: usize, capacity: usize },
    #[error(
        "field {declared}: {rows} samples padded to {width} have {} elements, and the batch has room for {capacity}; declare room \
         for at least {} per sample of a full batch, or build the loader with on_overflow(Overflow::Spill)",
        .width.saturating_mul(*.rows), width.saturating_mul(*.rows).div_ceil(*.all)
    )]
    Wide { declared: Field, width: usize, rows: usize, all: usize, capacity: usize },
    #[error(
        "field {declared}: the batch has no room for its {bytes} bytes so far, and that much memory cannot be allocated"
    )]
    NoMemory { declared: Field, bytes: usize },
    #[error("field {declared} was declared, but the sample's items have shape {found:?}")]
    Items { declared: Field, found: Box<[usize]> },
    #[error("field {declared} was declared, but the sample has {found} elements, which is not a whole number of items")]
    Uneven { declared: Field, found: usize },
    #[error("field {declared} was declared, but the sample has a byte that is neither 0 nor 1")]
    Bool { declared: Field },
    #[error("field {declared} was declared {}, but the sample wrote another kind of field", .declared.kind)]
    Kind { declared: Field },
}

/// Returns advice for samples whose shape alone differs from the declaration; an empty string for
/// others.
fn advice(declared: &Field, dtype: DType, shape: &Shape) -> &'static str {
    let (declared, ndim) = ((declared.kind, declared.dtype, declared.shape().len()), shape.dims().len());
    if declared != (Kind::Fixed, dtype, ndim) {
        return "";
    }
    "; for samples of different lengths use PaddedToMax (padded to one length), PaddedToLongest (padded to the longest of the batch) or Packed (concatenated, with offsets), or \
     collate them into another kind of batch (Builder::collate)"
}

impl From<Problem> for Mismatch {
    #[cold]
    fn from(problem: Problem) -> Self {
        Self(Box::new(problem))
    }
}
