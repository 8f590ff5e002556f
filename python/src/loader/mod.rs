//! The native part of `slotline.Loader`: datasets of arrays and files, loaded by the threads of the
//! `slotline` crate. The crate's loader is called the engine here.
//!
//! - `field`: what the fields of a sample hold. `column`: an array in memory, whose rows are read where they are; `files`:
//!   samples in files; `stream`: packed tars; `watched`: opening them; `source`: datasets of these.
//! - `pack`: rows of one length, filled with documents.
//! - `plan`: mixtures, batches by length, and what a sampler of the program has chosen.
//! - `options`: the options of a loader, and the engine's builder made of them.
//! - `engine`: the loader, which has an engine for the latest pass; `pass`: an iterator over one pass; `helper`: a thread that
//!   loads in place of the loop's.
//! - `ranks`: which of several processes this is, and one state for all of them.
//! - `output`: batches as arrays and tensors; `tensor`: the objects that share a batch's memory with other libraries.
//! - `failure`: the engine's errors as exceptions.
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
mod pack;
mod pass;
mod plan;
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
pub(crate) use self::plan::Plan;
pub(crate) use self::source::Source;
pub(crate) use self::tensor::{Memory, Tensor};
