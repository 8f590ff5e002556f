//! Batches, batches that a callback collates, batch memory provided by the user, and export to
//! other libraries (DLPack).

pub(crate) mod collate;
mod dlpack;
pub(crate) mod handle;
pub(crate) mod memory;

pub use self::collate::*;
pub use self::dlpack::*;
pub use self::handle::*;
pub use self::memory::*;
