//! A loader's position as plain data.

pub(crate) mod state;
pub(crate) mod tickets;
