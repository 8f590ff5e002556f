//! The README, and the chapters of slotline's user book that have Rust code: `cargo test --doc -p slotline-book` compiles and runs it.
//!
//! The text is in `docs/src`, and `mdbook build docs` makes the book.

#![doc(test(attr(deny(unused))))]

#[doc = include_str!("../README.md")]
pub mod readme {}

#[doc = include_str!("src/introduction.md")]
pub mod introduction {}

#[doc = include_str!("src/first-loop.md")]
pub mod first_loop {}

#[doc = include_str!("src/recipes.md")]
pub mod recipes {}

#[doc = include_str!("src/datasets.md")]
pub mod datasets {}

#[doc = include_str!("src/files.md")]
pub mod files {}

/// A page for each format of files.
pub mod formats {
    #[doc = include_str!("src/formats/folders.md")]
    pub mod folders {}

    #[doc = include_str!("src/formats/manifests.md")]
    pub mod manifests {}

    #[doc = include_str!("src/formats/webdataset.md")]
    pub mod webdataset {}

    #[doc = include_str!("src/formats/tfrecord.md")]
    pub mod tfrecord {}

    #[doc = include_str!("src/formats/tokens.md")]
    pub mod tokens {}

    #[doc = include_str!("src/formats/mds.md")]
    pub mod mds {}

    #[doc = include_str!("src/formats/litdata.md")]
    pub mod litdata {}

    #[doc = include_str!("src/formats/arrow.md")]
    pub mod arrow {}

    #[doc = include_str!("src/formats/parquet.md")]
    pub mod parquet {}

    #[doc = include_str!("src/formats/arrays.md")]
    pub mod arrays {}
}

#[doc = include_str!("src/images.md")]
pub mod images {}

#[doc = include_str!("src/samplers.md")]
pub mod samplers {}

#[doc = include_str!("src/collation.md")]
pub mod collation {}

#[doc = include_str!("src/workers-and-memory.md")]
pub mod workers_and_memory {}

#[doc = include_str!("src/resuming.md")]
pub mod resuming {}

#[doc = include_str!("src/many-ranks.md")]
pub mod many_ranks {}

#[doc = include_str!("src/errors.md")]
pub mod errors {}

#[doc = include_str!("src/waiting.md")]
pub mod waiting {}

#[doc = include_str!("src/performance.md")]
pub mod performance {}

#[doc = include_str!("src/gpus.md")]
pub mod gpus {}

#[doc = include_str!("src/how-it-works.md")]
pub mod how_it_works {}

#[doc = include_str!("src/checking.md")]
pub mod checking {}

#[doc = include_str!("src/coming-from-pytorch.md")]
pub mod coming_from_pytorch {}
