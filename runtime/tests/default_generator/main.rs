//! The process's default generator. The tests of this program run one at a time, as each counts what is drawn from it.

#[path = "../support/alone.rs"]
mod alone;
mod draws;
#[cfg(feature = "serde")]
mod resume;

use alone::alone;
