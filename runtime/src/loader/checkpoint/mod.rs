//! Where a loader is, as plain data.

pub(crate) mod state;
pub(crate) mod tickets;
