//! A loader's state as plain data, and how states of several ranks are merged.

pub(crate) mod merge;
pub(crate) mod state;
pub(crate) mod tickets;
