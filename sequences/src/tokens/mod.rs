//! Maps for language models: targets, masks of documents, and fill-in-the-middle.
//!
//! Each of them transforms one sample, and can be used in [`Dataset::map`](slotline::Dataset::map),
//! in a dataset's `get`, or on a batch. They do not depend on a tokenizer: tokens are integers of
//! any type.

mod document_mask;
mod fim;
mod shift;

pub use self::document_mask::document_mask;
pub use self::fim::{Fim, FimError, FimTokens};
pub use self::shift::{shift, shift_documents};
