//! Loaders whose batches come out on a CUDA device.
//!
//! A batch is copied by a stream of the loader's own, while kernels read the ones before it. A stream of the caller's that is
//! to read it is said by `slotline_device_batch_ready_on`, or by exporting a tensor for it; the memory is filled again when these
//! streams have come to the point where the batch, and the last such tensor, were let go. The host waits for none of that.
//!
//! These functions are in libraries built with the feature `cuda`; their declarations are there for programs that define
//! `SLOTLINE_CUDA`.

mod batch;
mod loader;

pub use self::batch::*;
pub use self::loader::*;

use slotline_cuda::Error;

use crate::failure::{Failure, chain};
use crate::status::*;

impl From<Error> for Failure {
    #[cold]
    fn from(error: Error) -> Self {
        let of = |status, task| Failure { task, ..Failure::new(status, chain(&error)) };
        match error {
            Error::Loader(error) => error.into(),
            Error::Held { .. } => of(SLOTLINE_HELD, None),
            Error::Timeout { task, .. } => of(SLOTLINE_TIMEOUT, Some(task)),
            Error::Copy { task, .. } | Error::Spilled { task, .. } | Error::Leaked { task, .. } => {
                of(SLOTLINE_DEVICE, Some(task))
            }
            _ => of(SLOTLINE_DEVICE, None),
        }
    }
}
