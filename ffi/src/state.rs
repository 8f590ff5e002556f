//! Where a loader is, as bytes to be stored.

use std::ptr::null_mut;

use slotline::loader::{State, StateError};

use crate::boundary::boundary;
use crate::bytes::slotline_bytes;
use crate::check;
use crate::error::slotline_error;
use crate::failure::Failure;
use crate::handle::{self, Handled};
use crate::loader::slotline_loader;
use crate::running::Loads;
use crate::status::{SLOTLINE_OK, SLOTLINE_STATE, slotline_status};

impl From<StateError> for Failure {
    #[cold]
    fn from(error: StateError) -> Self {
        Self::of(SLOTLINE_STATE, &error)
    }
}

/// A state as bytes: JSON, which says its version.
fn to_bytes(state: &State) -> Result<*mut slotline_bytes, Failure> {
    let bytes = serde_json::to_vec(state).map_err(|error| Failure::of(SLOTLINE_STATE, &error))?;
    Ok(slotline_bytes::boxed(bytes))
}

/// The state that bytes are.
fn from_bytes(bytes: &[u8]) -> Result<State, Failure> {
    serde_json::from_slice(bytes)
        .map_err(|error| Failure::new(SLOTLINE_STATE, format!("the bytes are not the state of a loader: {error}")))
}

/// The state of any loader.
///
/// # Safety
///
/// As of `slotline_loader_state`.
pub(crate) unsafe fn save<H: Handled>(
    loader: *mut H,
    out: *mut *mut slotline_bytes,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller's word.
    unsafe {
        boundary(error, || {
            let out = check::place(out, null_mut(), "out")?;
            *out = to_bytes(&handle::enter(loader)?.loader().state()?)?;
            Ok(SLOTLINE_OK)
        })
    }
}

/// Loads a state into any loader.
///
/// # Safety
///
/// As of `slotline_loader_load_state`.
pub(crate) unsafe fn load<H: Handled>(
    loader: *mut H,
    data: *const u8,
    len: usize,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller's word.
    unsafe {
        boundary(error, || {
            let state = from_bytes(check::slice(data, len, "data")?)?;
            handle::enter(loader)?.running().load_state(&state)?;
            Ok(SLOTLINE_OK)
        })
    }
}

/// Says where the loader is: behind what it has given, at any time in a pass or between two. The bytes are the caller's; they
/// can be loaded by another process, on any machine. `*out` is NULL if it fails.
///
/// # Errors
///
/// `SLOTLINE_INVALID`: a null pointer, or the loader is in use.
///
/// # Safety
///
/// `loader` must be NULL or a loader that was not freed; `out` and `error` NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_loader_state(
    loader: *mut slotline_loader,
    out: *mut *mut slotline_bytes,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller's word.
    unsafe { save(loader, out, error) }
}

/// Puts the loader where `slotline_loader_state` was called, of this loader or of another one over the same data with the
/// same options (but for the number of workers and the like): the next `slotline_loader_epoch` gives the rest of that pass. A
/// pass that is not over is given up, unless the bytes are no state at all.
///
/// # Errors
///
/// `SLOTLINE_INVALID`: a null pointer, or the loader is in use. `SLOTLINE_STATE`: the bytes are damaged, or of a loader that
/// does not fit; but for its pass the loader is as it was.
///
/// # Safety
///
/// As of `slotline_loader_state`; `data` must be NULL or have `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_loader_load_state(
    loader: *mut slotline_loader,
    data: *const u8,
    len: usize,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller's word.
    unsafe { load(loader, data, len, error) }
}
