//! What is wrong with a sample that is not what its fields were declared to be.

use super::layout::{Field, Kind};
use crate::dtype::DType;
use crate::shape::Shape;

/// A sample that is not what its fields were declared to be.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Mismatch(Box<Problem>);

#[derive(Debug, thiserror::Error)]
pub(super) enum Problem {
    #[error("field {declared} was declared, but the sample has {dtype} {shape}{}", advice(.declared, *.dtype, .shape))]
    Other { declared: Field, dtype: DType, shape: Shape },
    #[error("field {declared} was declared, but the sample has {found} elements; declare a greater maximum")]
    TooLong { declared: Field, found: usize },
    #[error("{declared} fields were declared, but the sample wrote {found}")]
    Count { declared: usize, found: usize },
    #[error("a part of {declared} fields was declared, but the sample's has {found}")]
    Run { declared: usize, found: usize },
    #[error(
        "field {declared}: the batch's {} samples before this one have {before} items, and with the {found} of this \
         one they are more than the {room} that a batch has room for; declare room for at least {} per sample, or build the \
         loader with on_overflow(Overflow::Spill)",
        .row, before.saturating_add(*.found).div_ceil(*.rows)
    )]
    Full { declared: Field, row: usize, rows: usize, before: usize, found: usize, room: usize },
    #[error(
        "field {declared}: the batch has no room for its {bytes} bytes so far, and the system refused that much memory"
    )]
    NoMemory { declared: Field, bytes: usize },
    #[error("field {declared} was declared, but the sample's items have shape {found:?}")]
    Items { declared: Field, found: Box<[usize]> },
    #[error("field {declared} was declared, but the sample has {found} elements, which make no whole number of items")]
    Uneven { declared: Field, found: usize },
    #[error("field {declared} was declared {}, but the sample writes it otherwise", .declared.kind)]
    Kind { declared: Field },
}

/// What to do about samples that differ in nothing but their shapes.
fn advice(declared: &Field, dtype: DType, shape: &Shape) -> &'static str {
    let (declared, ndim) = ((declared.kind, declared.dtype, declared.shape().len()), shape.dims().len());
    if declared != (Kind::Fixed, dtype, ndim) {
        return "";
    }
    "; samples of differing lengths can be Ragged (padded to one length) or Packed (one after the other, with offsets), or \
     collate them into a batch of another kind (Builder::collate)"
}

impl From<Problem> for Mismatch {
    #[cold]
    fn from(problem: Problem) -> Self {
        Self(Box::new(problem))
    }
}
