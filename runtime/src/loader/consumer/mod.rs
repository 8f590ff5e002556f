//! The consumer's side: the loader that users have, its passes, and its states.

pub(crate) mod compatibility;
pub(crate) mod core;
pub(crate) mod loader;
pub(crate) mod log;
pub(crate) mod next;
pub(crate) mod pass;
pub(crate) mod resume;
