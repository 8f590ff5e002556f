//! Tests of the process's default generator. They run one at a time, as each counts what is drawn
//! from the generator.

#[path = "../support/alone.rs"]
mod alone;
mod draws;
#[cfg(feature = "serde")]
mod resume;

use alone::alone;
