//! slotline's C interface. C and C++ programs include `include/slotline.h`, which cbindgen makes of these sources, or
//! `include/slotline.hpp`; this page is for those who change it.
//!
//! It is a thin layer: a loader behind a handle is a [`slotline::Loader`] or a [`slotline::loader::LaneLoader`], and its
//! batches are theirs. What it adds is the boundary:
//!
//! - [`boundary`], [`failure`], [`error`], [`status`]: no panic crosses, and what fails is a status and an error object;
//! - [`check`], [`versioned`]: pointers, texts and structs from outside, looked at before they are used;
//! - [`dtype`], [`field`], [`tensor`]: elements, fields and tensors, as C has them;
//! - [`dataset`], [`arrays`]: what is loaded;
//! - [`options`]: how;
//! - [`running`], [`handle`], [`loader`], [`batch`]: a loader with its pass, and what comes out; [`dlpack`]: for other libraries;
//! - [`state`], [`stats`], [`bytes`]: where a loader is, and what it did.
//!
//! Rules for every function: it says which threads may call it and whose each pointer is; null pointers and structs that are
//! too short are errors that name the parameter.

// The names here are those that C sees.
#![allow(non_camel_case_types)]

pub mod arrays;
pub mod batch;
mod boundary;
pub mod bytes;
mod check;
pub mod dataset;
pub mod dlpack;
pub mod dtype;
pub mod error;
mod failure;
pub mod field;
mod handle;
pub mod loader;
pub mod options;
pub mod owner;
mod running;
pub mod state;
pub mod stats;
pub mod status;
pub mod tensor;
mod versioned;
