//! slotline feeds training loops: datasets, samplers, batching, collation, worker threads, prefetch and order, as
//! `torch.utils.data` has them, on a lock-free ring whose slot index is the task index.
//!
//! ```
//! use slotline::Loader;
//! use slotline::dataset::TensorDataset;
//!
//! let (images, labels) = slotline::source::digits();
//! let digits = TensorDataset::new((images, labels))?;
//! let mut loader = Loader::builder(digits).batch_size(64).shuffle(true).seed(42).num_workers(2).build()?;
//! for _epoch in 0..2 {
//!     for batch in loader.epoch()? {
//!         let batch = batch?; // a lease on its memory
//!         let (images, labels) = batch.tensors(); // u8 [64, 8, 8] and i64 [64], where workers wrote them
//!         assert_eq!(images.shape()[1..], [8, 8]);
//!         assert_eq!(labels.len(), images.len());
//!     } // dropped: the slot is free again
//! }
//! # Ok::<(), slotline::BoxError>(())
//! ```
//!
//! - [`dataset`]: what is loaded; [`array`](mod@array) and [`source`]: data in memory and in files.
//! - [`sampler`]: in which order; [`rng`]: torch's random numbers, and each sample's own.
//! - [`sample`]: what a sample is and how it becomes a row of a batch; [`tensor`], [`shape`], [`dtype`]: views of it.
//! - [`loader`]: the loader, its passes, its batches and its errors.
//! - [`arena`]: the memory behind the batches.
//! - [`torch`](mod@torch): where everything of `torch.utils.data` is, and what differs.
//!
//! The crate `slotline-value` has samples whose types are known at run time only, and torch's `default_collate` for them.
//!
//! # Examples
//!
//! In `examples/` there are programs to copy: `custom_dataset`, `streaming` (no index), `resume`, `ranks` (distributed
//! training) and `keep_loaders` (loaders in structs and vectors, batches through channels); and `image_folder` in those of
//! `slotline-image`.
//!
//! # Features
//!
//! None is on by default.
//!
//! - `npy`: NumPy's `.npy` files, read or memory-mapped ([`source`]).
//! - `half`: the types `f16` and `bf16` of the crate `half` as [elements](dtype::Element). Without it, data of these types
//!   can be loaded and handed on as bytes.
//! - `serde`: [`State`](loader::State), so that it can be saved and read back, and [`Stats`](loader::Stats) implement
//!   serde's traits.

#![cfg_attr(not(feature = "npy"), allow(rustdoc::broken_intra_doc_links))] // To what reads NumPy's files.

pub mod arena;
pub mod array;
pub mod dataset;
pub mod dtype;
#[doc(hidden)]
pub mod fork;
pub mod loader;
mod prefetch;
pub mod rng;
pub mod sample;
pub mod sampler;
pub mod shape;
pub mod source;
#[cfg(shuttle)]
#[doc(hidden)]
pub mod sync;
#[cfg(not(shuttle))]
mod sync;
pub mod tensor;
mod tuples;
mod wait;

pub use self::dataset::{Dataset, WorkerInfo, worker_info};
pub use self::loader::{Batch, Error, Loader};
pub use self::sample::Sample;
pub use self::wait::WaitStrategy;

#[doc = include_str!("torch.md")]
pub mod torch {}

/// What user code may fail with: any error at all.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The README's program, so that the tests run it.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
