//! What is wrong with a sample that is not what its fields were declared to be.

use super::layout::Field;
use crate::dtype::DType;
use crate::shape::Shape;

/// A sample that is not what its fields were declared to be.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Misfit(Box<Problem>);

#[derive(Debug, thiserror::Error)]
pub(super) enum Problem {
    #[error("field {declared} was declared, but the sample has {dtype} {shape}")]
    Other { declared: Field, dtype: DType, shape: Shape },
    #[error("field {declared} was declared, but the sample has {found} elements; declare a greater maximum")]
    TooLong { declared: Field, found: usize },
    #[error("{declared} fields were declared, but the sample wrote {found}")]
    Count { declared: usize, found: usize },
    #[error("field {declared} was declared {}, but the sample writes it otherwise", if declared.ragged { "ragged" } else { "of fixed shape" })]
    Kind { declared: Field },
}

impl From<Problem> for Misfit {
    #[cold]
    fn from(problem: Problem) -> Self {
        Self(Box::new(problem))
    }
}
