//! The consumer's side of a loader: the public types of the loader and its passes, and how states
//! are saved and loaded.

pub(crate) mod compatibility;
pub(crate) mod core;
pub(crate) mod loader;
pub(crate) mod log;
pub(crate) mod next;
pub(crate) mod pass;
pub(crate) mod resume;
