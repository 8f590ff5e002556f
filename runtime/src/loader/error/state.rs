//! The errors of loading a state.

use crate::BoxError;
use crate::causes::with_causes;

/// The reason why a state was refused. The loader is unchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// The state is from a loader with another dataset, or with other options.
    #[error("the state's {field} is {state}, but the loader's is {loader}; {hint}")]
    Differs {
        /// The field that differs.
        field: &'static str,
        /// The value in the state.
        state: String,
        /// The value in the loader.
        loader: String,
        /// What the user can do about it.
        hint: &'static str,
    },
    /// A value in the state is invalid.
    #[error("the state's {field} is {state}, but {reason}; it is damaged, or from other data: load an earlier one")]
    Malformed {
        /// The invalid field.
        field: &'static str,
        /// The value in the state.
        state: String,
        /// Why the value is invalid.
        reason: String,
    },
    /// The sampler refused its part of the state.
    #[error("the state's sampler does not fit: {}", with_causes(&**source))]
    Sampler {
        /// The sampler's error.
        r#source: BoxError,
    },
}

impl StateError {
    /// The name of the field of the state that is wrong.
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
