//! Tests of datasets, samples and files, with and without a loader.

#[path = "../support/mod.rs"]
mod support;

#[cfg(feature = "npy")]
mod files;

#[cfg(feature = "npy")]
mod any_bytes;
#[cfg(feature = "npy")]
mod bad_files;
mod bulk;
mod combined;
mod derive;
mod foreign_arrays;
#[cfg(feature = "npy")]
mod good_files;
mod iterable_datasets;
mod map;
mod own_memory;
mod padded;
mod ragged;
mod samples;
mod sizes;
mod splits;
mod upcoming;
