//! Packing: rows of one length, filled with documents of different lengths.
//!
//! A model that reads rows of 8,192 tokens wastes what padding fills. So documents share rows ("bins"). Which documents
//! are in which bin is a plan ([`Packing`]) that depends on their lengths only, and is made before anything is read:
//!
//! | plan | |
//! |---|---|
//! | [`PackingOptions::best_fit`] | documents stay whole, and few tokens of a bin are left empty |
//! | [`PackingOptions::chunks`] | documents are concatenated and cut, and no token is left empty |
//!
//! A [`PackedDataset`] reads the documents of a dataset by such a plan: its samples are the bins. As these are samples
//! like any other, every order, any number of workers and ranks, and resuming work as always.

mod best_fit;
mod dataset;
mod document;
mod options;
mod plan;

pub use self::dataset::{Bin, BinTensors, Bins, PackedDataset};
pub use self::document::{BinRow, Document};
pub use self::options::{Long, PackingError, PackingOptions};
pub use self::plan::{Packing, Piece};
