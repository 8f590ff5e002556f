//! Measurements of slotline's rings and loader.
//!
//! `benches/` holds micro benches, for `cargo bench`. Here is the comparison with other loaders, which
//! `cargo run --release -p slotline-benches -- report` runs:
//!
//! - [`workload`]: what is loaded, each in a file of its own.
//! - [`peer`]: who loads it: slotline, other loaders in Rust, programs in other languages, and the machine by itself.
//! - [`rounds`]: measures the contenders of a workload in turn, round after round, since machines drift.
//! - [`scale`]: cost against the dataset's size and against the number of workers.
//! - [`record`], [`machine`]: what was measured, line by line, and on what.
//! - [`stats`], [`report`]: medians and spreads, the page and its plots.
//! - [`protocol`]: how peers that are programs of their own are asked, and answer.

pub mod machine;
pub mod peer;
pub mod protocol;
pub mod record;
pub mod report;
pub mod rounds;
pub mod scale;
pub mod stats;
pub mod workload;
