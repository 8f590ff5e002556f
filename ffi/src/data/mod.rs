//! Datasets.
//!
//! - `dataset`: the handle of a dataset, which is one of the following;
//! - `arrays`: arrays in memory; `files`, with the feature `sources`: files and folders;
//! - `map`, `bulk_read`: callbacks that write a `sample` by index; `stream`, `saved`: callbacks that write samples in sequence;
//! - `indexed`, `streamed`, `compose`, `transform`: datasets made of other datasets;
//! - `alone`: a sample that is read by itself;
//! - `pipeline`, with the feature `image`: pictures that are decoded.

pub(crate) mod alone;
mod arrays;
mod bulk_read;
mod compose;
pub(crate) mod dataset;
#[cfg(feature = "sources")]
mod files;
pub(crate) mod indexed;
mod map;
#[cfg(feature = "image")]
mod pipeline;
mod sample;
mod saved;
mod stream;
mod streamed;
mod transform;

pub use self::arrays::*;
pub use self::bulk_read::*;
pub use self::compose::*;
pub use self::dataset::*;
pub use self::map::*;
#[cfg(feature = "image")]
pub use self::pipeline::*;
pub use self::sample::*;
pub use self::saved::*;
pub use self::stream::*;
pub use self::transform::*;
