//! Calls of the driver, and the context that is current during a call.
//!
//! The effect of a call on events and on streams other than the default ones depends only on the
//! handles of these events and streams, regardless of the current context: copies, queries, waits
//! and records succeed in any context (Programming Guide, "Stream and event behavior"). So such
//! calls are made directly, at no additional cost. If the driver reports that the thread has no
//! context, the device's context is made current and the call is repeated.
//!
//! Calls that create and destroy objects depend on the current context. So do calls with the
//! handles of the default streams, which refer to the current context's streams. Such calls are
//! made inside [`Device::enter`], which restores the previous context afterwards.

use std::fmt;

use cudarc::driver::sys::CUcontext;

use crate::device::Device;
use crate::driver::{self, CUresult};
use crate::error::DriverError;

impl Device {
    /// Makes a call that either succeeds or fails.
    pub(crate) fn call(&self, name: &'static str, call: impl FnMut() -> CUresult) -> Result<(), DriverError> {
        match self.answer(name, call)? {
            driver::SUCCESS => Ok(()),
            code => Err(self.error(name, code)),
        }
    }

    /// Makes a call that asks whether an operation is done.
    pub(crate) fn query(&self, name: &'static str, call: impl FnMut() -> CUresult) -> Result<bool, DriverError> {
        match self.answer(name, call)? {
            driver::SUCCESS => Ok(true),
            driver::NOT_READY => Ok(false),
            code => Err(self.error(name, code)),
        }
    }

    fn answer(&self, name: &'static str, mut call: impl FnMut() -> CUresult) -> Result<CUresult, DriverError> {
        self.check_not_forked(name)?;
        let code = call();
        // The thread has no context, or a primary context that was released. Neither is the context
        // of this device.
        if !matches!(code, driver::INVALID_CONTEXT | driver::CONTEXT_IS_DESTROYED) {
            return Ok(code);
        }
        let mut entered = self.enter()?;
        if entered.former.is_some_and(|former| former.is_null()) {
            // If the thread had no context, the device's context stays current, so that the next
            // call does not have to be repeated.
            entered.former = None;
        }
        Ok(call())
    }

    /// Makes this device's context current until the guard is dropped.
    pub(crate) fn enter(&self) -> Result<Entered<'_>, DriverError> {
        self.check_not_forked("cuCtxGetCurrent")?;
        let mut former = std::ptr::null_mut();
        // SAFETY: the driver writes the context.
        self.checked("cuCtxGetCurrent", unsafe { driver::cuCtxGetCurrent(&mut former) })?;
        if former == self.context() {
            return Ok(Entered { device: self, former: None });
        }
        // SAFETY: the context is retained for the lifetime of the device.
        self.checked("cuCtxSetCurrent", unsafe { driver::cuCtxSetCurrent(self.context()) })?;
        Ok(Entered { device: self, former: Some(former) })
    }

    pub(crate) fn check_not_forked(&self, name: &'static str) -> Result<(), DriverError> {
        if self.is_lost() { Err(DriverError::forked(name, Some(self.ordinal()))) } else { Ok(()) }
    }

    /// Creates the error for the code that a call returned.
    pub(crate) fn error(&self, name: &'static str, code: CUresult) -> DriverError {
        DriverError::new(name, code, Some(self.ordinal()))
    }

    fn checked(&self, name: &'static str, code: CUresult) -> Result<(), DriverError> {
        if code == driver::SUCCESS { Ok(()) } else { Err(self.error(name, code)) }
    }
}

/// A guard that restores the context that was current on this thread.
#[must_use]
pub(crate) struct Entered<'a> {
    device: &'a Device,
    /// The context to restore; `None` to leave the current context in place.
    former: Option<CUcontext>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let Some(former) = self.former else { return };
        // SAFETY: the handle is the one that `cuCtxGetCurrent` returned for this thread, or null
        // for none. A destroyed context stays current on other threads, and the driver answers
        // calls that name it with an error.
        if let Err(error) = self.device.checked("cuCtxSetCurrent", unsafe { driver::cuCtxSetCurrent(former) }) {
            tracing::warn!(%error, "the context that was current on this thread could not be restored");
        }
    }
}

impl fmt::Debug for Entered<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Entered").field(self.device).finish()
    }
}
