//! The command `demo`, and the code that it shares with the other commands of the `slotline`
//! program.
//!
//! - [`Demo`]: trains a network, in `net`, on the digits, in `digits`.
//! - [`options`]: the loader's options as command-line flags, the same for every command.
//! - [`meter`]: counts and times while a loop runs, with the digests of `digest`.
//! - [`output`]: human-readable lines, and JSON.
//! - [`program`]: runs a command as a program: arguments, errors, exit codes.

mod digest;
mod digits;
pub mod meter;
mod net;
pub mod options;
pub mod output;
pub mod program;
mod train;

pub use self::train::Demo;
