//! The program's commands, run as a user runs them.

#[path = "../program/mod.rs"]
mod program;

mod bad_input;
mod interrupted;
mod paths;
#[cfg(feature = "image")]
mod pictures;
#[cfg(target_os = "linux")]
mod processes;
mod ranks;
mod reports;
mod sameness;
#[cfg(target_os = "linux")]
mod verdicts;
