//! The one way to call the driver, and which context is current meanwhile.
//!
//! What a call does to events and to streams other than the default ones is up to those handles, whatever context is
//! current: copies, queries, waits and records succeed all the same (Programming Guide, "Stream and event behavior"). So
//! they are made as they are, and cost nothing but themselves. Only if the driver answers that the thread has no context is
//! ours made current, and the call made once more. What makes and frees things acts on the current context, and so do the
//! default streams' handles, which stand for the current context's: such calls are made inside [`Device::enter`], which puts
//! back what was current before.

use std::fmt;

use cudarc::driver::sys::CUcontext;

use crate::device::Device;
use crate::driver::{self, CUresult};
use crate::error::DriverError;

impl Device {
    /// Makes a call whose outcome is done or an error.
    pub(crate) fn call(&self, name: &'static str, call: impl FnMut() -> CUresult) -> Result<(), DriverError> {
        match self.answer(name, call)? {
            driver::SUCCESS => Ok(()),
            code => Err(self.error(name, code)),
        }
    }

    /// Makes a call that asks whether something is done.
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
        // No context, or a primary one that was released: ours is neither.
        if !matches!(code, driver::INVALID_CONTEXT | driver::CONTEXT_IS_DESTROYED) {
            return Ok(code);
        }
        let mut entered = self.enter()?;
        if entered.former.is_some_and(|former| former.is_null()) {
            // Where there was none, ours stays: the next call then needs no second try.
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
        // SAFETY: the context is there as long as the device.
        self.checked("cuCtxSetCurrent", unsafe { driver::cuCtxSetCurrent(self.context()) })?;
        Ok(Entered { device: self, former: Some(former) })
    }

    pub(crate) fn check_not_forked(&self, name: &'static str) -> Result<(), DriverError> {
        if self.is_lost() { Err(DriverError::forked(name, Some(self.ordinal()))) } else { Ok(()) }
    }

    /// The error for what a call has returned.
    pub(crate) fn error(&self, name: &'static str, code: CUresult) -> DriverError {
        DriverError::new(name, code, Some(self.ordinal()))
    }

    fn checked(&self, name: &'static str, code: CUresult) -> Result<(), DriverError> {
        if code == driver::SUCCESS { Ok(()) } else { Err(self.error(name, code)) }
    }
}

/// Puts the context back that was current on this thread.
#[must_use]
pub(crate) struct Entered<'a> {
    device: &'a Device,
    /// The one that was current, unless it may stay as it is now.
    former: Option<CUcontext>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let Some(former) = self.former else { return };
        // SAFETY: the handle is the one that `cuCtxGetCurrent` gave for this thread, or null for none. A context that is destroyed
        // stays current on other threads, and the driver answers calls that name it with an error.
        if let Err(error) = self.device.checked("cuCtxSetCurrent", unsafe { driver::cuCtxSetCurrent(former) }) {
            tracing::warn!(%error, "the context that was current on this thread could not be put back");
        }
    }
}

impl fmt::Debug for Entered<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Entered").field(self.device).finish()
    }
}
