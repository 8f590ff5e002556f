//! Formats of files, compared with what foreign programs wrote and read, and what several formats share.

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
