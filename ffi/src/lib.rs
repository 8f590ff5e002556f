//! slotline's C interface. C and C++ programs include `include/slotline.h`, which cbindgen
//! generates from these sources, or `include/slotline.hpp`, a C++ layer on top of it. This page is
//! for contributors.
//!
//! The crate is a thin layer over the crate `slotline`: a loader handle wraps a
//! [`slotline::Loader`], and a batch handle wraps one of its batches. Its modules are:
//!
//! - `abi`: the rules of every call. No panic crosses into C, each failure becomes a status and an
//!   error object, and pointers, strings and structs from C are checked before they are used;
//! - `fields`: element types, fields and tensors as C structs;
//! - `data`: datasets made of arrays, callbacks, files or other datasets;
//! - `sampling`: samplers, batch samplers and random number generators;
//! - `batch`: batches, batches that a callback collates, batch memory provided by the user, and
//!   export to other libraries (DLPack);
//! - `loader`: options, loaders and their passes, worker processes, states, statistics and
//!   warnings;
//! - `device`, with the feature `cuda`: loaders that deliver batches on a device.
//!
//! The functions and types of all modules are exported at the root of the crate; in the header they
//! are one flat list.
//!
//! The documentation of each function says which threads may call it and who owns each pointer. Null pointers and structs that
//! are too short are errors that name the parameter.

// The names in this crate are the names that C sees.
#![allow(non_camel_case_types)]

mod abi;
mod batch;
mod data;
#[cfg(feature = "cuda")]
mod device;
mod fields;
mod loader;
mod sampling;

pub use self::abi::*;
pub use self::batch::*;
pub use self::data::*;
#[cfg(feature = "cuda")]
pub use self::device::*;
pub use self::fields::*;
pub use self::loader::*;
pub use self::sampling::*;
