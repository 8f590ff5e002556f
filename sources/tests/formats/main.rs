//! Tests of formats: files that other programs wrote, compared with their results, and properties
//! of all formats.

#[path = "../support/mod.rs"]
mod support;

mod arrays;
mod arrow;
mod detect;
mod folder;
mod litdata;
mod manifest;
mod mds;
mod mixture;
mod parquet;
mod pictures;
mod tar;
mod tar_stream;
mod tfrecord;
mod tokens;
