//! slotline's C interface. C and C++ programs include `include/slotline.h`, which cbindgen makes of these sources, or
//! `include/slotline.hpp`; this page is for those who change it.
//!
//! It is a thin layer: a loader behind a handle is a [`slotline::Loader`], and its batches are that one's. What it adds is the
//! boundary:
//!
//! - `boundary`, `failure`, [`error`], [`status`]: no panic crosses, and what fails is a status and an error object;
//! - `check`, `versioned`: pointers, texts and structs from outside, looked at before they are used;
//! - [`dtype`], [`field`], [`tensor`]: elements, fields and tensors, as C has them;
//! - [`dataset`], of [`arrays`] or of callbacks, by index ([`map`]) or one sample after the other ([`stream`], [`saved`]), that
//!   write a [`sample`]; [`callback`], [`owner`]: what all callbacks have;
//! - [`options`], [`sampler`], [`order`], [`batch_sampler`], [`collate`]: how it is loaded;
//! - `running`, `handle`, [`loader`], [`batch`]: a loader with its pass, and what comes out; [`dlpack`]: for other libraries;
//! - [`state`], [`stats`], [`bytes`]: where a loader is, and what it did;
//! - `sync`: the atomics of handles, which tests can slow down;
//! - `device`, with the feature `cuda`: loaders whose batches come out on a device.
//!
//! Rules for every function: it says which threads may call it and whose each pointer is; null pointers and structs that are
//! too short are errors that name the parameter.

// The names here are those that C sees.
#![allow(non_camel_case_types)]

pub mod arrays;
pub mod batch;
pub mod batch_sampler;
mod boundary;
pub mod bytes;
pub mod callback;
mod check;
pub mod collate;
pub mod dataset;
#[cfg(feature = "cuda")]
pub mod device;
pub mod dlpack;
pub mod dtype;
pub mod error;
mod failure;
pub mod field;
mod handle;
pub mod loader;
pub mod map;
pub mod options;
pub mod order;
pub mod owner;
mod running;
pub mod sample;
pub mod sampler;
pub mod saved;
pub mod state;
pub mod stats;
pub mod status;
pub mod stream;
#[cfg(not(delays))]
mod sync;
#[cfg(delays)]
#[doc(hidden)]
pub mod sync;
pub mod tensor;
mod versioned;
