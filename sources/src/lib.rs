//! Datasets of samples in files. The samples are read by index, so the samplers of torch, shuffling
//! over all samples, resuming and ranks work as for arrays in memory.
//!
//! | data | opened by |
//! |---|---|
//! | a folder of files for each class | [`folder::Folder`] |
//! | a CSV or JSONL file, whose rows may name files | [`manifest::Manifest`] |
//! | tars of WebDataset | [`tar::Tar`] |
//! | TFRecord files of `tf.Example`s | [`tfrecord::TfRecord`] |
//! | tokens of nanoGPT, llm.c and Megatron | [`tokens`] |
//! | shards of MosaicML Streaming | [`mds::Mds`] |
//! | chunks of LitData | [`litdata::LitData`] |
//! | Parquet and Arrow files, and folders that `save_to_disk` of Hugging Face's `datasets` wrote | [`table::Table`] |
//! | .safetensors files, by rows | [`safetensors::SafetensorsOptions`] |
//! | NumPy's .npz files, by rows | [`npz::NpzOptions`] |
//!
//! [`open`] detects the format of a path. Each format implements [`Format`]: it knows where a
//! sample is in the files, and how its bytes become the fields of a [`Record`]. [`Records`] makes a
//! [`Dataset`](slotline::Dataset) of a format. All formats read bytes in the same way ([`files`]).
//!
//! A file that violates its format causes an [`Error`] that names the file and the position in it,
//! and says what to do. It never causes a panic, wrong data, or an allocation that is larger than
//! the file.

// Items that only some formats use are unused in a build without these formats. A build with all
// features reports items that nothing uses.
#![cfg_attr(
    not(all(
        feature = "arrow",
        feature = "folder",
        feature = "litdata",
        feature = "manifest",
        feature = "mds",
        feature = "npz",
        feature = "parquet",
        feature = "remote",
        feature = "safetensors",
        feature = "tar",
        feature = "tfrecord",
        feature = "tokens",
    )),
    allow(dead_code, unused_imports, unused_variables)
)]

mod ahead;
#[cfg(feature = "remote")]
mod cache;
mod columns;
mod decimal;
mod default_number;
mod detect;
pub mod error;
pub mod files;
#[cfg(feature = "folder")]
pub mod folder;
mod format;
mod hive;
mod kind;
mod listing;
#[cfg(feature = "litdata")]
pub mod litdata;
#[cfg(feature = "manifest")]
pub mod manifest;
#[cfg(feature = "mds")]
pub mod mds;
#[cfg(feature = "npz")]
pub mod npz;
mod open;
mod parallel;
mod part_cache;
pub mod paths;
#[cfg(feature = "image")]
pub mod pictures;
mod record;
#[cfg(feature = "remote")]
mod remote;
#[cfg(any(feature = "npz", feature = "safetensors"))]
pub mod rows;
#[cfg(feature = "safetensors")]
pub mod safetensors;
mod saved;
#[cfg(any(feature = "litdata", feature = "mds"))]
mod shards;
mod stop;
#[cfg(any(feature = "arrow", feature = "parquet"))]
pub mod table;
#[cfg(feature = "tar")]
pub mod tar;
#[cfg(feature = "tfrecord")]
pub mod tfrecord;
#[cfg(feature = "tokens")]
pub mod tokens;
mod window;

#[cfg(feature = "remote")]
pub use cache::Cache;
pub use default_number::DefaultNumber;
pub use detect::open;
pub use error::Error;
pub use format::{Format, Input, Records};
pub use open::{OpenOptions, Options};
pub use record::{CapacityHint, FieldKind, Number, Record, RecordField, RecordFields, Value};
#[cfg(feature = "remote")]
pub use remote::RequestOptions;
pub use saved::IndexFiles;
pub use stop::stoppable;
