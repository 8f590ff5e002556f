//! The engine's errors as exceptions derived from `slotline.Error`.

use std::error::Error as StdError;

use pyo3::exceptions::{PyException, PyTypeError};
use pyo3::prelude::*;
use slotline::Error;
use slotline::loader::{BuildError, StateError};

use super::calls::Raised;

/// Returns the message of an error and its causes. If a feature is missing, it names the build
/// option for Python.
pub(super) fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    let message = slotline::with_causes(error);
    let option = "a package that is built with MATURIN_PEP517_ARGS='--features turbo'";
    message.replace("the cargo feature `turbo` of slotline-image", option)
}

/// Creates an exception of one of the types in `slotline._errors`.
#[cold]
fn raise(py: Python<'_>, kind: &str, message: String) -> PyErr {
    let made = py.import("slotline._errors").and_then(|errors| errors.getattr(kind)?.call1((message,)));
    made.map_or_else(|error| error, PyErr::from_value)
}

/// Returns the exception for a panic.
pub(crate) fn defect(py: Python<'_>, message: String) -> PyErr {
    raise(py, "Error", message)
}

/// Returns the exception for arrays that cannot be used as a dataset.
pub(crate) fn invalid(py: Python<'_>, message: impl Into<String>) -> PyErr {
    raise(py, "DataError", message.into())
}

/// Returns the exception for requesting the length of a stream.
pub(crate) fn no_len() -> PyErr {
    PyTypeError::new_err("packed tars are read as a stream, whose length is not known before its end")
}

/// The exception for files and indices that cannot be used as a dataset.
pub(crate) fn data(py: Python<'_>, error: &(dyn StdError + 'static)) -> PyErr {
    raise(py, "DataError", with_causes(error))
}

/// Returns the exception for contradictory options.
pub(crate) fn option(py: Python<'_>, message: impl Into<String>) -> PyErr {
    raise(py, "OptionError", message.into())
}

/// Returns the exception for states that cannot be loaded or merged.
pub(crate) fn state(py: Python<'_>, error: &(dyn StdError + 'static)) -> PyErr {
    raise(py, "StateError", with_causes(error))
}

/// Returns the exception for a state that does not fit the loader. It uses the names of the options
/// in Python. `by_length` is whether the loader makes batches by length.
pub(crate) fn misfit(py: Python<'_>, error: &StateError, by_length: bool) -> PyErr {
    if by_length && matches!(error, StateError::Differs { field: "batch_size", .. }) {
        let message = "the state was saved with other batches by length; pass batch_by_tokens or bucket the same budget, limit, \
                       batch sizes and lengths";
        return raise(py, "StateError", message.to_owned());
    }
    let StateError::Differs { field: "sampler", state: saved, loader, .. } = error else { return state(py, error) };
    let option = |name: &str| match name {
        "sequential" => "shuffle=False".to_owned(),
        "shuffle" => "shuffle=True".to_owned(),
        "RandomSampler" => "replacement or num_samples".to_owned(),
        name => format!("a {name}"),
    };
    let message = match (&**saved, &**loader) {
        ("DistributedSampler", _) => {
            "the state was saved with rank and world_size, but this loader has neither; set both (rank=0, world_size=1 for a \
             single process)"
                .to_owned()
        }
        (_, "DistributedSampler") => {
            "the state was saved without rank and world_size, but this loader has them; finish the pass without them"
                .to_owned()
        }
        (saved, loader) => {
            let (saved, loader) = (option(saved), option(loader));
            format!("the state was saved with {saved}, but this loader has {loader}; finish the pass with the same")
        }
    };
    raise(py, "StateError", message)
}

/// Returns the exception for a state that cannot be parsed.
pub(crate) fn no_state(py: Python<'_>, error: &serde_json::Error) -> PyErr {
    raise(py, "StateError", format!("this is not a state of a loader: {error}; pass what state_dict() returned"))
}

pub(crate) fn forked(py: Python<'_>) -> PyErr {
    raise(
        py,
        "ForkError",
        "this process was forked while the pass was running, and lacks its threads; make a new iterator here"
            .to_owned(),
    )
}

pub(crate) fn build(py: Python<'_>, error: &BuildError) -> PyErr {
    let kind = match error {
        BuildError::Memory { .. }
        | BuildError::OrderMemory { .. }
        | BuildError::MemoryLimit { .. }
        | BuildError::Map { .. }
        | BuildError::Allocate { .. } => "OutOfMemoryError",
        BuildError::Thread { .. } | BuildError::Watchdog { .. } => "WorkerError",
        _ => "OptionError",
    };
    raise(py, kind, with_causes(error))
}

/// Returns the number of the batch in whose place the loop gets an error.
pub(crate) fn batch(error: &Error) -> Option<usize> {
    match error {
        Error::Sample { task, .. } | Error::Panic { task, .. } | Error::Lost { task } => Some(*task),
        Error::BadSamples { source, .. } | Error::MostlyBad { source, .. } => batch(source),
        _ => None,
    }
}

pub(crate) fn run(py: Python<'_>, error: &Error) -> PyErr {
    let kind = match error {
        Error::Sample { .. } | Error::Panic { .. } | Error::BadSamples { .. } | Error::MostlyBad { .. } => {
            "SampleError"
        }
        Error::Timeout { .. } => "LoaderTimeoutError",
        Error::Held { .. } | Error::Order(_) => "OutOfMemoryError",
        Error::State(_) => "StateError",
        Error::Forked => return forked(py),
        _ => "WorkerError",
    };
    let made = raise(py, kind, with_causes(error));
    if let Some(Raised { error, .. }) = error.cause().and_then(|cause| cause.downcast_ref()) {
        // Such as a KeyboardInterrupt, which is no error of the sample.
        if !error.is_instance_of::<PyException>(py) {
            return error.clone_ref(py);
        }
        made.set_cause(py, Some(error.clone_ref(py)));
    }
    made
}
