//! The errors of a loader, and how a panic of user code becomes an error.

pub(crate) mod build;
pub(crate) mod failure;
pub(crate) mod guard;
pub(crate) mod run;
pub(crate) mod state;
pub(crate) mod warning;
