//! Why a state is refused.

use crate::BoxError;

/// Why a state was refused. The loader is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// The state is of a loader that loads something else, or in another way.
    #[error("the state's {field} is {state}, and the loader's is {loader}; {hint}")]
    Differs {
        /// What differs.
        field: &'static str,
        /// What the state says.
        state: String,
        /// What the loader has.
        loader: String,
        /// What to do.
        hint: &'static str,
    },
    /// The state says what cannot be.
    #[error("the state's {field} is {state}, and {reason}; it is damaged, or of other data: load an earlier one")]
    Malformed {
        /// What cannot be.
        field: &'static str,
        /// What the state says.
        state: String,
        /// Why it cannot be.
        reason: String,
    },
    /// The sampler refused what the state has of it.
    #[error("the state's sampler does not fit: {source}")]
    Sampler {
        /// What it said.
        source: BoxError,
    },
}

impl StateError {
    /// The field of the state that is at fault.
    pub fn field(&self) -> &'static str {
        match self {
            Self::Differs { field, .. } | Self::Malformed { field, .. } => field,
            Self::Sampler { .. } => "sampler",
        }
    }

    pub(crate) fn malformed(field: &'static str, state: impl ToString, reason: impl Into<String>) -> Self {
        Self::Malformed { field, state: state.to_string(), reason: reason.into() }
    }
}

pub(crate) fn differs<T>(
    field: &'static str,
    state: impl ToString,
    loader: impl ToString,
    hint: &'static str,
) -> Result<T, StateError> {
    Err(StateError::Differs { field, state: state.to_string(), loader: loader.to_string(), hint })
}
