//! Samples: what a dataset gives for an index, and how it becomes a row of a batch.
//!
//! A [`Sample`] declares its fields (dtype and shape) and writes itself into a row, field after field, right where the
//! batch will be read. That is all of collation: stacking along a new first dimension happens by where a row lies.
//!
//! | sample | field | batch of B |
//! |---|---|---|
//! | a number, a `bool` | dtype, shape `[]` | [`Tensor`] `[B]` |
//! | `[T; N]`, `&[T; N]`, `[[T; M]; N]`, `&[T]`, `Vec<T>` | `[N]`, `[N, M]`, `[len]` | [`Tensor`] `[B, …]` |
//! | [`Tensor`], [`AnyTensor`] | its shape | [`Tensor`], [`AnyTensor`] `[B, …]` |
//! | [`Lazy`] | the shape it was given, decoded in place | [`Tensor`] `[B, …]` |
//! | [`Ragged`] | up to a stated maximum | [`RaggedTensor`] |
//! | [`Text`] | up to a stated number of bytes | [`Texts`] |
//! | [`Packed`] | any length, one sample right after the other | [`PackedTensor`] |
//! | [`PackedText`] | the same for strings | [`PackedTexts`] |
//! | tuples of these | one after the other | a tuple |
//! | a struct of yours | as it says | as it says |
//!
//! A struct takes a dozen lines:
//!
//! ```
//! use slotline::BoxError;
//! use slotline::sample::{Columns, Fields, Row, Sample};
//! use slotline::tensor::Tensor;
//!
//! struct Digit<'a> {
//!     pixels: &'a [u8],
//!     label: i64,
//! }
//!
//! struct Digits<'b> {
//!     pixels: Tensor<'b, u8>,
//!     labels: Tensor<'b, i64>,
//! }
//!
//! impl Sample for Digit<'_> {
//!     type Tensors<'b> = Digits<'b>;
//!
//!     fn declare(&self, fields: &mut Fields) {
//!         fields.named("pixels", &self.pixels);
//!         fields.named("label", &self.label);
//!     }
//!
//!     fn write(self, row: &mut Row<'_>) -> Result<(), BoxError> {
//!         self.pixels.write(row)?;
//!         self.label.write(row)
//!     }
//!
//!     fn tensors<'b>(columns: &mut Columns<'b>) -> Digits<'b> {
//!         Digits { pixels: columns.take(), labels: columns.take() }
//!     }
//! }
//! ```

mod columns;
mod kinds;
mod layout;
mod misfit;
mod packed;
mod ragged;
mod row;
#[cfg(test)]
mod tests;

pub use self::columns::Columns;
pub use self::kinds::{AnyRow, Lazy};
pub(crate) use self::layout::Layout;
pub use self::layout::{Field, Fields, LayoutError};
pub use self::misfit::Misfit;
pub use self::packed::{Packed, PackedTensor, PackedText, PackedTexts};
pub use self::ragged::{Ragged, RaggedTensor, Text, Texts};
pub use self::row::Row;
use crate::BoxError;
#[cfg(doc)]
use crate::tensor::{AnyTensor, Tensor};

/// Anything that can say which fields it has and write them into a row.
///
/// The three functions must agree: the same fields in the same order. If `write` does not keep to what `declare` said
/// of another sample of the dataset, the batch is an error that names the sample.
pub trait Sample {
    /// What a batch of these looks like.
    type Tensors<'b>;

    /// Lists the fields.
    fn declare(&self, fields: &mut Fields);

    /// Writes every field, in the order declared. Decoding belongs here: the memory is the batch's own.
    ///
    /// # Errors
    ///
    /// A [`Misfit`] with what was declared, or whatever went wrong in decoding.
    fn write(self, row: &mut Row<'_>) -> Result<(), BoxError>;

    /// Takes the fields of a batch, in the order declared.
    ///
    /// # Panics
    ///
    /// If the columns are not those that `declare` listed.
    fn tensors<'b>(columns: &mut Columns<'b>) -> Self::Tensors<'b>;
}
