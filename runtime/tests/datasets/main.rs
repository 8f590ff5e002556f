//! Tests of datasets, samples and files, with and without a loader.

#[path = "../support/mod.rs"]
mod support;

mod bad_files;
mod bulk;
mod combined;
mod derive;
mod files;
mod foreign_arrays;
mod good_files;
mod iterable_datasets;
mod map;
mod npy_headers;
mod own_memory;
mod padded_to_longest;
mod padded_to_max;
mod samples;
mod sizes;
mod upcoming;
