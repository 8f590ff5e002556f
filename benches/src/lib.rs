//! Benchmarks of slotline's rings and loader.
//!
//! The comparison with other loaders, which `cargo run --release -- report` runs:
//!
//! - [`workload`]: the sections of the report, and the workloads that they measure. (A workload is
//!   a dataset and what is done with it.)
//! - [`peer`]: the contenders: slotline, other loaders in Rust, programs in other languages, and
//!   the limits of the machine.
//! - [`rounds`]: measures the contenders of a workload in turn, round after round, since the speed
//!   of a machine changes over time.
//! - [`rings`]: compares slotline's rings with other rings.
//! - [`scale`]: how the cost depends on the dataset's size and on the numbers of cores and ranks.
//! - [`record`]: the recorded lines; [`machine`]: the machine that they were measured on.
//! - [`memory`]: the memory of programs and their processes.
//! - [`report`]: medians and spreads, the report and its plots.
//! - [`counts`]: instruction counts, for `cargo run --release -- counts`.
//! - [`protocol`]: the protocol by which peers that are separate programs are run.

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
