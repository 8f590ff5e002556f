//! Packing: rows of one length, filled with documents of different lengths.
//!
//! A model that reads rows of 8,192 tokens wastes its time on padding. With packing, several
//! documents share a row (a *bin*). A plan ([`Packing`]) says which documents are in which bin. It
//! depends only on the lengths of the documents, and is made before any document is read:
//!
//! | plan | |
//! |---|---|
//! | [`PackingOptions::best_fit`] | documents stay whole, and a small part of each bin is padding |
//! | [`PackingOptions::chunks`] | documents are concatenated and cut, and only the last bin has padding |
//!
//! A [`PackedDataset`] wraps a dataset of documents, and its samples are the bins of such a plan.
//! Bins work with every sampler, any number of workers and ranks, and resuming, as other samples
//! do.

mod best_fit;
mod dataset;
mod document;
mod options;
mod plan;
mod untyped;

pub use self::dataset::{Bin, BinTensors, Bins, PackedDataset};
pub use self::document::{BinRow, Document};
pub use self::options::{Long, PackingError, PackingOptions};
pub use self::plan::{Packing, Piece};
