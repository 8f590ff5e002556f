//! The native part of `slotline.Loader`: datasets of arrays and files, loaded by the threads of the
//! `slotline` crate. The crate's loader is called the engine here.
//!
//! - Datasets: `field` describes the fields of a sample, `column` is an array in memory whose rows
//!   are read in place, `files` reads samples in files, `stream` reads compressed tars, `watched`
//!   opens files interruptibly, and `source` combines these to datasets.
//! - `options`: the options of a loader, and the engine's builder with these options.
//! - Running: `engine` is the loader, which keeps one engine for its latest pass. `pass` is an
//!   iterator over one pass. `helper` is a thread that loads in place of the loop's thread.
//! - `ranks`: finding this process's rank, and merging the states of all ranks.
//! - `output`: batches as arrays and tensors. `tensor`: the objects that share a batch's memory
//!   with other libraries.
//! - `failure`: the engine's errors as Python exceptions.
//!
//! The engine's threads never call Python. Python objects own the memory that these threads read,
//! and are released only by threads that are attached to the interpreter. The arrays and tensors of
//! a batch keep it alive, and it is returned without Python.

mod column;
mod engine;
pub(crate) mod failure;
mod field;
#[cfg(feature = "files")]
mod files;
#[cfg(not(feature = "files"))]
#[path = "no_files.rs"]
mod files;
mod helper;
mod options;
mod output;
mod pass;
pub(crate) mod ranks;
mod source;
#[cfg(feature = "files")]
mod stream;
mod tensor;
mod watched;

pub(crate) use self::engine::Engine;
#[cfg(not(feature = "files"))]
use self::files as stream;
pub(crate) use self::pass::Pass;
pub(crate) use self::source::Source;
pub(crate) use self::tensor::{Memory, Tensor};
