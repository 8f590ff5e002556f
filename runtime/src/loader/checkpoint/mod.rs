//! A loader's position as plain data.

pub(crate) mod merge;
pub(crate) mod state;
pub(crate) mod tickets;
