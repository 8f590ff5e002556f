//! Sequences of different lengths, and orders for large data, for [slotline].
//!
//! - [`packing`]: rows of one length, filled with documents of different lengths.
//! - [`tokens`]: targets, document masks, fill-in-the-middle.
//! - [`sampler`]: batches by length, mixtures of datasets, shards that are shuffled a few at a
//!   time.
//!
//! ```
//! use slotline::Loader;
//! use slotline::dataset::{Context, from_fn};
//! use slotline_sequences::packing::{PackedDataset, PackingOptions};
//!
//! let lengths = [5, 3, 4, 2, 6];
//! let documents = from_fn(lengths.len(), move |index, _: &mut Context| Ok(vec![index as u32; lengths[index]]));
//! let bins = PackedDataset::new(documents, PackingOptions::new(8).best_fit(lengths)?)?;
//! let mut loader = Loader::builder(bins).batch_size(3).build()?;
//! let batch = loader.epoch()?.next().expect("a batch")?;
//! assert_eq!(batch.tensors().tokens.shape(), [3, 8]);
//! # Ok::<(), slotline::BoxError>(())
//! ```
//!
//! Your own samplers and samples can do the same, as all of them use slotline's public interface.

pub mod packing;
pub mod sampler;
pub mod tokens;
