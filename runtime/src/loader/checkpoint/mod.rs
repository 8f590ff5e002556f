//! A loader's state: how far it is, as plain data.

pub(crate) mod merge;
pub(crate) mod state;
pub(crate) mod tickets;
