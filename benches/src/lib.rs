//! Benchmarks of slotline's rings and loader.
//!
//! The comparison with other loaders, which `cargo run --release -- report` runs:
//!
//! - [`workload`]: the sections of the report, and the workloads that they measure.
//! - [`peer`]: the contenders: slotline, other loaders in Rust, programs in other languages, and the limits of the machine.
//! - [`rounds`]: measures the contenders of a workload in turn, round after round, since machines drift.
//! - [`rings`]: compares slotline's rings with other rings.
//! - [`scale`]: the cost depending on the dataset's size and on the numbers of cores and ranks.
//! - [`record`], [`machine`]: the recorded lines, and the machine that they were measured on.
//! - [`memory`]: the memory of programs and their processes.
//! - [`report`]: medians and spreads, the report and its plots.
//! - [`counts`]: instruction counts, for `cargo run --release -- counts`.
//! - [`protocol`]: the protocol of peers that are separate programs.

pub mod counts;
pub mod machine;
pub mod memory;
pub mod peer;
pub mod protocol;
pub mod record;
pub mod report;
pub mod rings;
pub mod rounds;
pub mod scale;
pub mod workload;
