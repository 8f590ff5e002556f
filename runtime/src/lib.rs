//! slotline loads training data: datasets, samplers, batching, collation, worker threads,
//! prefetching and ordering, as in `torch.utils.data`. Workers write samples directly into the
//! slots of a lock-free ring, in which each batch has a fixed place, so that batches arrive in
//! order without being sorted or copied.
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
//!         let batch = batch?; // keeps its slot of the ring until it is dropped
//!         let (images, labels) = batch.tensors(); // u8 [64, 8, 8] and i64 [64], in place, where the workers wrote them
//!         assert_eq!(images.shape()[1..], [8, 8]);
//!         assert_eq!(labels.len(), images.len());
//!     } // dropped: the slot is free again
//! }
//! # Ok::<(), slotline::BoxError>(())
//! ```
//!
//! - [`dataset`]: datasets; [`array`](mod@array) and [`source`]: arrays in memory and in files.
//! - [`sampler`]: the order of samples; [`rng`]: torch's random numbers, and per-sample random numbers.
//! - [`sample`]: what a sample is and how it becomes a row of a batch.
//! - [`tensor`], [`shape`], [`dtype`]: views of arrays and batches.
//! - [`loader`]: the loader, its passes, its batches and its errors.
//! - [`arena`]: the memory of the batches.
//! - [`torch`](mod@torch): a map from `torch.utils.data` to slotline, and the differences.
//!
//! The crate `slotline-sequences` provides packing, batches by length, mixtures of datasets, and maps for language models.
//! The crate `slotline-value` provides samples whose types are known only at run time, and torch's `default_collate`
//! for them.
//!
//! # Examples
//!
//! The directory `examples/` contains programs to start from: `custom_dataset`, `streaming` (an
//! iterable dataset), `resume`, `ranks` (distributed training) and `keep_loaders` (loaders in
//! structs and vectors, batches sent through channels).
//! `slotline-image` has the example `image_folder`.
//!
//! # Features
//!
//! No feature is enabled by default.
//!
//! - `half`: makes the types `f16` and `bf16` of the crate `half` [elements](dtype::Element).
//!   Without it, such data can be loaded and passed on as bytes.
//! - `num-complex`: makes `Complex<f32>` and `Complex<f64>` of the crate `num-complex`
//!   [elements](dtype::Element). Without it, complex numbers can be loaded and passed on as bytes.
//! - `serde`: implements serde's traits for [`State`](loader::State), so that it can be saved and restored, and for
//!   [`Stats`](loader::Stats).

pub mod arena;
pub mod array;
mod causes;
pub mod dataset;
pub mod dtype;
#[doc(hidden)]
pub mod fork;
pub mod loader;
mod placed;
mod prefetch;
pub mod ranks;
pub mod rng;
pub mod sample;
pub mod sampler;
mod sanitized;
pub mod shape;
pub mod source;
mod streaming;
#[cfg(shuttle)]
#[doc(hidden)]
pub mod sync;
#[cfg(not(shuttle))]
mod sync;
pub mod tensor;
mod tuples;
mod wait;

#[doc(hidden)]
pub use self::causes::with_causes;
pub use self::dataset::{Dataset, WorkerInfo, worker_info};
pub use self::loader::{Batch, Error, Loader};
pub use self::ranks::Ranks;
pub use self::sample::Sample;
#[doc(hidden)]
pub use self::sanitized::is_terminal_control;
pub use self::sanitized::sanitized;
pub use self::wait::WaitStrategy;
#[cfg(all(target_os = "linux", not(shuttle)))]
pub use slotline_core::wait::SharedFutex;

#[doc = include_str!("torch.md")]
pub mod torch {}

/// Any error that user code can return.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
