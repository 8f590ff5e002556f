//! Loaders that deliver batches on a CUDA device.
//!
//! The loader copies a batch on a separate stream, while kernels read the previous batches. Before
//! a stream of the caller reads a batch, the caller passes it to `slotline_batch_ready_on`, or
//! exports a tensor for it. The loader reuses the memory once these streams have reached the point
//! where the batch and the last such tensor were released. The host does not wait for any of this.
//!
//! These functions exist in libraries built with the feature `cuda`; the header declares them if
//! `slotline/config.h` says so.

mod batch;
mod loader;

pub use self::batch::*;
pub use self::loader::*;

use slotline_cuda::Error;

use crate::abi::{Failure, SLOTLINE_ERROR_DEVICE, SLOTLINE_ERROR_HELD, SLOTLINE_ERROR_TIMEOUT, chain};

impl From<Error> for Failure {
    #[cold]
    fn from(error: Error) -> Self {
        let of = |status, task| Failure { task, ..Failure::new(status, chain(&error)) };
        match error {
            Error::Loader(error) => error.into(),
            Error::Held { .. } => of(SLOTLINE_ERROR_HELD, None),
            Error::Timeout { task, .. } => of(SLOTLINE_ERROR_TIMEOUT, Some(task)),
            Error::Copy { task, .. } | Error::Spilled { task, .. } | Error::Leaked { task, .. } => {
                of(SLOTLINE_ERROR_DEVICE, Some(task))
            }
            _ => of(SLOTLINE_ERROR_DEVICE, None),
        }
    }
}
