//! A CUDA driver over host memory that watches what is done with it, for tests without a GPU.

mod client;
mod control;

pub use client::{Fake, Launch, LoadError, Session};
pub use control::{Live, Options, Skip};
