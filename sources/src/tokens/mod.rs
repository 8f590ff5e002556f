//! Files of tokens: pretokenized text for language models, read in blocks or by document.
//!
//! | Data | Opened by |
//! |---|---|
//! | nanoGPT's `train.bin`: tokens without a header | [`BlockOptions::open_raw`] |
//! | llm.c's shards: tokens behind a header | [`BlockOptions::open_llmc`] |
//! | Megatron's `.bin` and `.idx`, with one sequence per sample | [`Sequences::open`] |
//! | Megatron's `.bin` and `.idx`, to be packed into rows by `slotline-sequences` | [`Documents`] |
//! | Megatron's `GPTDataset`, and blends of them | [`GptOptions`] |
//!
//! Tokens keep the type that they have in the file, or are converted to `i64`. Files are
//! little-endian.

mod blend;
mod blocks;
mod documents;
mod gpt;
mod indexed;
mod layout;
mod plan;
mod random;
mod sequences;

pub use blend::Blend;
pub use blocks::{BlockOptions, Blocks};
pub use documents::Documents;
pub use gpt::{Gpt, GptOptions};
pub use indexed::Index;
pub use sequences::{SequenceOptions, Sequences};

#[cfg(target_endian = "big")]
compile_error!("the feature `tokens` needs a little-endian machine");
