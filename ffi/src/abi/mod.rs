//! Calls between C and Rust: how they fail, and how arguments from C are checked.

mod boundary;
mod bytes;
mod callback;
mod cause;
pub(crate) mod check;
mod error;
mod failure;
mod guard;
mod owner;
mod status;
mod text;
pub(crate) mod versioned;

pub use self::bytes::*;
pub use self::callback::*;
pub use self::error::*;
pub use self::owner::*;
pub use self::status::*;

pub(crate) use self::boundary::{boundary, done, made};
pub(crate) use self::cause::{Cause, find};
pub(crate) use self::failure::{Failure, chain};
pub(crate) use self::guard::{free, freed_twice, guarded};
pub(crate) use self::versioned::Versioned;
