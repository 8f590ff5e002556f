//! The native part of `slotline.Loader`: datasets of arrays and files, loaded by the threads of the
//! `slotline` crate. The crate's loader is called the engine here.
//!
//! - `field`: the types and shapes of a sample's fields. `column`: arrays in memory, whose rows are
//!   read in place. `files`: samples in files. `stream`: compressed tars. `watched`: opening files
//!   while signals are checked. `source`: datasets made of all of these.
//! - `image`: the text of transforms of pictures, and the numbers of MixUp and CutMix.
//! - `pack`: documents of varying length, packed into rows of equal length.
//! - `map`: samples that functions of the program make; `calls`: calling them from the engine's threads.
//! - `plan`: mixtures, batches by length, and samplers of the program.
//! - `options`: the options of a loader, and the engine's builder with these options.
//! - `engine`: the loader, which has an engine for the latest pass. `pass`: an iterator over one
//!   pass. `helper`: a thread that loads batches in place of the loop's thread.
//! - `ranks`: the rank of this process, and merging the states of all ranks.
//! - `output`: batches as arrays and tensors; `tensor`: the objects that share a batch's memory with other libraries.
//! - `failure`: the engine's errors as exceptions.
//!
//! The engine's threads call Python only for functions of the program (`calls`). Python objects own the memory that these
//! threads read, and are released only by threads that are attached to the interpreter. The arrays and tensors of
//! a batch keep it alive, and it is returned without Python.

mod calls;
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
#[cfg(feature = "files")]
pub(crate) mod image;
mod map;
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
