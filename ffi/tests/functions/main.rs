//! Tests of the C interface's functions, called from Rust as a C program would call them.

#[path = "../support/mod.rs"]
mod support;

mod collating;
mod dlpack;
mod map_datasets;
mod opening;
#[cfg(all(feature = "image", feature = "sources"))]
mod pictures;
#[cfg(all(target_os = "linux", not(delays)))]
mod processes;
mod resuming;
mod samplers;
mod sequences;
mod stream_datasets;
