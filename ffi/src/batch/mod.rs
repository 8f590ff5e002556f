//! Batches, batches that a callback collates, batch memory provided by the user, export to other
//! libraries (DLPack), and, with the feature `image`, mixing of pictures.

pub(crate) mod collate;
mod dlpack;
pub(crate) mod handle;
pub(crate) mod memory;
#[cfg(feature = "image")]
mod mix;

pub use self::collate::*;
pub use self::dlpack::*;
pub use self::handle::*;
pub use self::memory::*;
#[cfg(feature = "image")]
pub use self::mix::*;
