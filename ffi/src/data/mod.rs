//! Datasets.
//!
//! - `dataset`: the handle of a dataset, which is of one of the following kinds;
//! - `arrays`: arrays in memory; `files`, with the feature `sources`: files and folders;
//! - `map`, `bulk_read`: callbacks that write samples by index; `stream`, `saved`: callbacks that
//!   write samples one after another; `sample`: the sample that they write;
//! - `indexed`, `streamed`, `compose`, `transform`, `packed`: datasets made of other datasets;
//! - `alone`: a single sample that is read without a loader;
//! - `pipeline`, `picture_fields`, with the feature `image`: pipelines that decode pictures, and the
//!   fields of files that have them.

pub(crate) mod alone;
mod arrays;
mod bulk_read;
mod compose;
pub(crate) mod dataset;
#[cfg(feature = "sources")]
mod files;
pub(crate) mod indexed;
mod map;
mod packed;
#[cfg(feature = "image")]
pub(crate) mod picture_fields;
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
pub use self::packed::*;
#[cfg(feature = "image")]
pub use self::picture_fields::*;
#[cfg(feature = "image")]
pub use self::pipeline::*;
pub use self::sample::*;
pub use self::saved::*;
pub use self::stream::*;
pub use self::transform::*;
