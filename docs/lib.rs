//! The README, and the chapters of slotline's user book that have Rust code: `cargo test --doc -p slotline-book` compiles and runs it.
//!
//! The text is in `docs/src`, and `mdbook build docs` makes the book.

#![doc(test(attr(deny(unused))))]

#[doc = include_str!("../README.md")]
pub mod readme {}

#[doc = include_str!("src/introduction.md")]
pub mod introduction {}

#[doc = include_str!("src/first-loop.md")]
pub mod first_loop {}

#[doc = include_str!("src/datasets.md")]
pub mod datasets {}

#[doc = include_str!("src/files.md")]
pub mod files {}

#[doc = include_str!("src/samplers.md")]
pub mod samplers {}

#[doc = include_str!("src/collation.md")]
pub mod collation {}

#[doc = include_str!("src/workers-and-memory.md")]
pub mod workers_and_memory {}

#[doc = include_str!("src/resuming.md")]
pub mod resuming {}

#[doc = include_str!("src/errors.md")]
pub mod errors {}

#[doc = include_str!("src/performance.md")]
pub mod performance {}

#[doc = include_str!("src/gpus.md")]
pub mod gpus {}

#[doc = include_str!("src/how-it-works.md")]
pub mod how_it_works {}

#[doc = include_str!("src/coming-from-pytorch.md")]
pub mod coming_from_pytorch {}
