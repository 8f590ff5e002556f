//! Samples: what a dataset returns for an index, and how it becomes a row of a batch.
//!
//! A [`Sample`] declares its fields (dtype and shape) and writes itself into a row, field by field,
//! directly into the memory of the batch. No separate collation step is needed, since the rows of a
//! batch are stored one after another, which stacks them along a new first dimension.
//!
//! | sample | field | batch of B |
//! |---|---|---|
//! | a number, a `bool` | dtype, shape `[]` | [`TensorView`] `[B]` |
//! | `[T; N]`, `&[T; N]`, `[[T; M]; N]`, `&[T]`, `Vec<T>` | `[N]`, `[N, M]`, `[len]` | [`TensorView`] `[B, …]` |
//! | [`TensorView`], [`AnyTensorView`] | its shape | [`TensorView`], [`AnyTensorView`] `[B, …]` |
//! | [`Array`], [`AnyArray`], or a reference to one | its shape | [`TensorView`], [`AnyTensorView`] `[B, …]` |
//! | [`ArrayRow`], from a [`TensorDataset`](crate::dataset::TensorDataset) | its shape | [`TensorView`] `[B, …]` |
//! | [`Lazy`] | the shape it was given, decoded in place | [`TensorView`] `[B, …]` |
//! | `Image` of the crate `slotline-image` | `f32` or `u8`, `[3, height, width]` | [`TensorView`] `[B, 3, height, width]` |
//! | `Value` of the crate `slotline-value` | its numbers and tensors, in sequence | [`Columns`] |
//! | [`PaddedToMax`] | up to a given maximum length | [`PaddedTensor`] `[B, max]` |
//! | [`PaddedToLongest`] | any length, padded to the longest of the batch | [`PaddedTensor`] `[B, longest]` |
//! | [`Mask`] | as long as a [`PaddedToMax`] or [`PaddedToLongest`], and padded like it | [`PaddedTensor`] |
//! | [`Text`] | up to a given number of bytes | [`Texts`] |
//! | [`Packed`] | any length, samples concatenated | [`PackedTensor`] |
//! | [`PackedText`] | a string of any length, samples concatenated | [`PackedTexts`] |
//! | tuples of these | those of its elements, in sequence | a tuple |
//! | your own struct, [derived](derive@Sample) | those of its fields, in sequence | a struct |
//! | your own type that implements [`Sample`](trait@Sample) | as declared | as its schema defines |
//!
//! A struct becomes a sample with [`#[derive(Sample)]`](derive@Sample), which also makes a struct for its batches:
//!
//! ```
//! use slotline::dataset::from_fn;
//! use slotline::{BoxError, Loader, Sample};
//!
//! #[derive(Sample)]
//! struct Digit {
//!     pixels: [[u8; 8]; 8],
//!     label: i64,
//! }
//!
//! let digits = from_fn(50, |index, _| Ok(Digit { pixels: [[index as u8; 8]; 8], label: index as i64 }));
//! let mut loader = Loader::builder(digits).batch_size(50).build()?;
//! for batch in loader.epoch()? {
//!     let batch = batch?;
//!     let digits: DigitBatch<'_> = batch.tensors();
//!     assert_eq!(digits.pixels.shape(), [50, 8, 8]);
//!     assert_eq!(digits.label.as_slice()[..3], [0, 1, 2]);
//! }
//! # Ok::<(), BoxError>(())
//! ```
//!
//! If batches should be read differently, implement [`Sample`](trait@Sample) manually. Its two
//! functions call [`Fields::named`] and [`write`](Sample::write) for each field, and the function
//! of its [`Schema`] calls [`tensors`](Schema::tensors) for each field.

mod columns;
mod compact_rows;
mod declare;
mod derive;
mod kinds;
mod layout;
mod longest;
mod mismatch;
mod owned_sample;
mod packed;
mod padded_to_longest;
mod padded_to_max;
mod row;
mod rows;
mod rows_mut;
mod spill;
#[cfg(test)]
mod tests;
#[cfg(processes)]
mod validate;
mod width;

pub use self::columns::{Columns, FieldBytes};
pub(crate) use self::compact_rows::compact_rows;
#[doc(inline)]
pub use self::derive::Sample;
pub use self::kinds::Lazy;
pub(crate) use self::layout::{FIELD_ALIGN, Layout};
pub use self::layout::{Field, Fields, LayoutError};
pub use self::mismatch::Mismatch;
pub use self::owned_sample::{OwnedSample, OwnedSampleError};
pub use self::packed::{Packed, PackedTensor, PackedText, PackedTexts};
pub use self::padded_to_longest::{Mask, PaddedToLongest};
pub use self::padded_to_max::{PaddedTensor, PaddedToMax, Text, Texts};
pub use self::row::Row;
pub use self::rows::{AnyRow, ArrayRow};
pub use self::rows_mut::{FieldsMut, RowsMut};
use crate::BoxError;
#[cfg(doc)]
use crate::array::{AnyArray, Array};
#[cfg(doc)]
use crate::tensor::{AnyTensorView, TensorView};

/// A type that can declare its fields and write them into a row.
///
/// The functions of this trait and [`Schema::tensors`] must handle the same fields in the same order.
/// If `write` does not match the fields that the dataset's first sample declared, the batch becomes
/// an error that names the sample.
#[diagnostic::on_unimplemented(
    note = "numbers are `i64` or `u64` instead of `usize`; text is `Text`, which borrows from the dataset or its `Context`, instead of `String`",
    note = "the documentation of `slotline::sample` lists the types that are samples"
)]
pub trait Sample {
    /// The type of a batch of these samples: that of another sample, or a custom type.
    type Schema: Schema;

    /// Lists the fields of this sample.
    fn declare(&self, fields: &mut Fields);

    /// Writes every field, in declaration order, directly into the memory of the batch. A sample
    /// that stores encoded data should decode it here, into the row.
    ///
    /// # Errors
    ///
    /// A [`Mismatch`] with the declared fields, or any error in decoding.
    fn write(self, row: &mut Row<'_>) -> Result<(), BoxError>;
}

/// The type of a batch, without the lifetimes of its samples. It is the `S` of a
/// [`Batch<S>`](crate::Batch).
///
/// | sample | its schema |
/// |---|---|
/// | a number, and everything that is stacked into one tensor of `T` | `T` |
/// | [`PaddedToMax`], [`PaddedToLongest`], [`Text`], [`Packed`], [`PackedText`] | the same type with `'static` |
/// | [`Mask`] | a [`PaddedToMax`] with `'static` |
/// | a tuple | the tuple of its parts' schemas |
/// | a [derived](derive@Sample) struct | the struct itself, with `'static` for its lifetimes |
/// | a type whose fields are known only at run time | [`Dynamic`] |
///
/// So a batch of images with labels is a `Batch<(u8, i64)>`, whether the samples are arrays, slices
/// or decode themselves:
///
/// ```
/// use slotline::dataset::TensorDataset;
/// use slotline::{Batch, Loader};
///
/// fn brightness(batch: &Batch<(u8, i64)>) -> u64 {
///     let (images, _labels) = batch.tensors();
///     images.as_slice().iter().map(|&pixel| u64::from(pixel)).sum()
/// }
///
/// let digits = TensorDataset::new(slotline::source::digits())?;
/// let mut loader = Loader::builder(digits).batch_size(64).build()?;
/// for batch in loader.epoch()? {
///     assert!(brightness(&batch?) > 0);
/// }
/// # Ok::<(), slotline::BoxError>(())
/// ```
#[diagnostic::on_unimplemented(
    note = "the schema of samples stacked into one tensor is the element type: `f32` for `[f32; 784]` or `Vec<f32>`",
    note = "a struct with `derive(Sample)` is its own schema, with `'static` for its lifetimes: `Batch<Window<'static>>`",
    note = "the documentation of `slotline::sample::Schema` lists the schemas"
)]
pub trait Schema {
    /// The type by which a batch is read.
    type Tensors<'b>;

    /// Takes the fields of a batch, in the order in which they were declared.
    ///
    /// # Panics
    ///
    /// If the columns are not those that the samples' [`declare`](Sample::declare) listed.
    fn tensors<'b>(columns: &mut Columns<'b>) -> Self::Tensors<'b>;
}

/// The type by which a batch of samples `S` is read.
pub type TensorsOf<'b, S> = <<S as Sample>::Schema as Schema>::Tensors<'b>;

/// The schema of batches whose fields are known only at run time. Such batches are read as
/// [`Columns`].
///
/// A sample with this schema declares its fields with [`Fields::named_run`], and writes them with [`Row::write_run`]:
///
/// ```
/// use slotline::dataset::from_fn;
/// use slotline::sample::{Dynamic, Fields, Row};
/// use slotline::{BoxError, Loader, Sample};
///
/// /// A line of a table whose columns are known only at run time.
/// struct Record(Vec<(String, f64)>);
///
/// impl Sample for Record {
///     type Schema = Dynamic;
///
///     fn declare(&self, fields: &mut Fields) {
///         fields.named_run(self.0.iter().cloned());
///     }
///
///     fn write(self, row: &mut Row<'_>) -> Result<(), BoxError> {
///         row.write_run(|row| {
///             for (name, number) in self.0 {
///                 if row.next_part() != Some(&name) {
///                     return Err(format!("column {name} is not where the first record has it").into());
///                 }
///                 row.write_one(number)?;
///             }
///             Ok(())
///         })
///     }
/// }
///
/// let record = |i: usize| Record(vec![("height".into(), i as f64), ("weight".into(), 0.5)]);
/// let mut loader = Loader::builder(from_fn(4, move |index, _| Ok((record(index), index as i64)))).batch_size(4).build()?;
/// let batch = loader.epoch()?.next().expect("a batch")?;
/// let (record, labels) = batch.tensors();
/// assert_eq!(record.field(1).expect("two columns").name(), "0.weight");
/// assert_eq!(record.get(0).expect("two columns").typed::<f64>().expect("f64").as_slice(), [0.0, 1.0, 2.0, 3.0]);
/// assert_eq!(labels.as_slice(), [0, 1, 2, 3]);
/// # Ok::<(), BoxError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Dynamic(());

impl Schema for Dynamic {
    type Tensors<'b> = Columns<'b>;

    fn tensors<'b>(columns: &mut Columns<'b>) -> Columns<'b> {
        columns.take_run()
    }
}
