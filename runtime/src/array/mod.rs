//! Arrays that own their data: [`Array`], whose element type is known at compile time, and
//! [`AnyArray`], whose dtype is known at run time.
//!
//! Reading rows is a loader's most frequent operation, so both cache the size of a row: reading a row costs one
//! comparison and one multiplication, and never an allocation.
//!
//! - `typed`: [`Array`], over a `Vec`.
//! - `any`: [`AnyArray`], in memory, pinned or memory-mapped.
//! - `stack`: tensors stacked into an [`AnyArray`].
//! - `pinned`: copies in page-locked memory.
//! - `storage`: the owner of an [`AnyArray`]'s bytes; the `unsafe` part.

mod any;
mod pinned;
mod stack;
mod storage;
mod typed;

pub use any::AnyArray;
pub use pinned::PinMemoryError;
pub use stack::StackError;
pub use typed::Array;
