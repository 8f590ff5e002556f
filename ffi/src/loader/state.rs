//! The state of a loader, as bytes that can be stored.

use slotline::loader::{State, StateError};

use crate::abi::{Failure, SLOTLINE_ERROR_STATE, check, done, made, slotline_bytes, slotline_error, slotline_status};
use crate::loader::handle;
use crate::loader::slotline_loader;

impl From<StateError> for Failure {
    #[cold]
    fn from(error: StateError) -> Self {
        Self::of(SLOTLINE_ERROR_STATE, &error)
    }
}

/// Serialises a state as JSON, which includes a version number.
pub(crate) fn to_bytes(state: &State) -> Result<slotline_bytes, Failure> {
    let bytes = serde_json::to_vec(state).map_err(|error| Failure::of(SLOTLINE_ERROR_STATE, &error))?;
    Ok(slotline_bytes::new(bytes))
}

/// Parses a state from its bytes.
pub(crate) fn from_bytes(bytes: &[u8]) -> Result<State, Failure> {
    serde_json::from_slice(bytes).map_err(|error| {
        Failure::new(SLOTLINE_ERROR_STATE, format!("the bytes are not the state of a loader: {error}"))
    })
}

/// Returns the position of the loader: after the last batch that it delivered. Can be called during
/// a pass or between passes. The caller owns the bytes. Another process, on any machine, can load
/// them, also into a loader of the other kind (host or device). On failure `*out` is NULL.
///
/// # Errors
///
/// `SLOTLINE_ERROR_INVALID`: a null pointer, or the loader is in use. `SLOTLINE_ERROR_STATE`: called during a pass of a loader for
/// a device that is not `resumable`.
///
/// # Safety
///
/// `loader` must be NULL or a loader that was not freed; `out` and `error` must be NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_loader_state(
    loader: *mut slotline_loader,
    out: *mut *mut slotline_bytes,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller upholds this function's safety contract.
    unsafe { made(out, error, || to_bytes(&handle::enter(loader)?.loader().state()?)) }
}

/// Moves the loader to the position that `slotline_loader_state` returned, for this loader or for
/// another one with the same data and options (options such as the number of workers may differ).
/// The next `slotline_loader_epoch` delivers the rest of that pass. A pass that has not ended is
/// abandoned, unless the bytes are not a state at all.
///
/// # Errors
///
/// `SLOTLINE_ERROR_INVALID`: a null pointer, or the loader is in use. `SLOTLINE_ERROR_STATE`: the
/// bytes are damaged, or are the state of a loader that does not match; apart from the abandoned
/// pass, the loader is unchanged.
///
/// # Safety
///
/// The same as for `slotline_loader_state`; `data` must be NULL or point to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_loader_load_state(
    loader: *mut slotline_loader,
    data: *const u8,
    len: usize,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller upholds this function's safety contract.
    unsafe {
        done(error, || {
            let state = from_bytes(check::slice(data, len, "data")?)?;
            handle::enter(loader)?.running().load_state(&state)
        })
    }
}
