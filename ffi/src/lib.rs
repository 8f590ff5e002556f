//! slotline's C interface. C and C++ programs include `include/slotline.h`, which cbindgen generates from these sources, or
//! `include/slotline.hpp`. This page is for contributors.
//!
//! This is a thin layer: a loader handle wraps a [`slotline::Loader`], and a batch handle wraps one of its batches. The
//! modules of this layer are the boundary between C and Rust:
//!
//! - `boundary`, `failure`, [`error`], [`status`]: no panic crosses into C, and each failure becomes a status and an error
//!   object;
//! - `check`, `versioned`: checks of pointers, strings and structs from C before they are used;
//! - [`dtype`], [`field`], [`tensor`]: element types, fields and tensors, as C sees them;
//! - [`dataset`]: datasets made of [`arrays`], or of callbacks that write a [`sample`], by index ([`map`], [`bulk_read`]) or in
//!   sequence ([`stream`], [`saved`]); [`callback`], `cause`, [`owner`]: what all callbacks share;
//! - `indexed`, [`compose`], [`transform`]: datasets made of other datasets; `alone`: a sample that is read by itself;
//!   [`generator`]: what splits are drawn from;
//! - [`options`], [`sampler`], [`order`], [`batch_sampler`], [`collate`]: how data is loaded; `processes`, [`spawned`]: workers
//!   that are processes, and those that a command starts;
//! - [`memory`]: memory of the user for batches;
//! - `running`, `handle`, [`loader`], [`batch`]: a loader with its pass, and its batches; [`dlpack`]: export to other
//!   libraries;
//! - [`state`], [`stats`], [`warning`], [`bytes`]: a loader's position, statistics and warnings;
//! - `sync`: the atomics of handles, which tests can slow down;
//! - `device`, with the feature `cuda`: loaders that deliver batches on a device;
//! - `files`, with the feature `sources`: datasets in files and folders;
//! - `pipeline`, with the feature `image`: pictures that are decoded.
//!
//! The documentation of each function says which threads may call it and who owns each pointer. Null pointers and structs that
//! are too short are errors that name the parameter.

// The names in this crate are the names that C sees.
#![allow(non_camel_case_types)]

mod alone;
pub mod arrays;
pub mod batch;
pub mod batch_sampler;
mod boundary;
pub mod bulk_read;
pub mod bytes;
pub mod callback;
mod cause;
mod check;
pub mod collate;
pub mod compose;
pub mod dataset;
#[cfg(feature = "cuda")]
pub mod device;
pub mod dlpack;
pub mod dtype;
pub mod error;
mod failure;
pub mod field;
#[cfg(feature = "sources")]
mod files;
pub mod generator;
mod handle;
mod indexed;
pub mod loader;
pub mod map;
pub mod memory;
pub mod options;
pub mod order;
pub mod owner;
#[cfg(feature = "image")]
pub mod pipeline;
#[cfg(all(target_os = "linux", not(any(shuttle, delays))))]
mod processes;
pub mod ranks;
mod running;
pub mod sample;
pub mod sampler;
pub mod saved;
pub mod spawned;
pub mod state;
pub mod stats;
pub mod status;
pub mod stream;
mod streamed;
#[cfg(not(delays))]
mod sync;
#[cfg(delays)]
#[doc(hidden)]
pub mod sync;
pub mod tensor;
pub mod transform;
mod versioned;
pub mod warning;
