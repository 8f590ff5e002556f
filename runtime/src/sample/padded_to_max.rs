//! Samples of different lengths, up to a given maximum.

use std::borrow::Cow;

use super::{Columns, Fields, Mask, Row, Sample, Schema};
use crate::BoxError;
use crate::dtype::{DType, Element};
use crate::tensor::{TensorView, no_such_row};

/// Elements of one sample, at most `max`, which are padded to `max` in the batch. The sample's own
/// length is stored, too.
///
/// [`PaddedToLongest`](super::PaddedToLongest) pads to the longest sample of the batch instead.
#[derive(Clone, Debug)]
pub struct PaddedToMax<'a, T: Element> {
    data: Cow<'a, [T]>,
    max: usize,
    padding: Option<T>,
}

impl<'a, T: Element> PaddedToMax<'a, T> {
    /// Makes a sample of these elements, padded with zeros to `max`. Writing it fails if there are
    /// more elements.
    pub fn new(data: &'a [T], max: usize) -> Self {
        Self { data: Cow::Borrowed(data), max, padding: None }
    }

    /// Sets the element that rows are padded with.
    #[must_use]
    pub fn padding(mut self, padding: T) -> Self {
        self.padding = Some(padding);
        self
    }

    /// Returns the elements, without padding.
    #[inline]
    pub fn as_slice(&self) -> &[T] {
        &self.data
    }

    /// Makes a mask for this sample, with `present` for each of its elements and zeros for the
    /// padding.
    pub fn mask<M: Element>(&self, present: M) -> Mask<M> {
        Mask::to_maximum(present, self.data.len(), self.max)
    }
}

impl<T: Element> PaddedToMax<'static, T> {
    /// Makes a sample that owns its elements, such as one that was computed; see [`new`](Self::new).
    pub fn owned(data: Vec<T>, max: usize) -> Self {
        Self { data: Cow::Owned(data), max, padding: None }
    }
}

impl<T: Element> Sample for PaddedToMax<'_, T> {
    type Schema = PaddedToMax<'static, T>;

    fn declare(&self, fields: &mut Fields) {
        fields.padded_to_max(T::DTYPE, self.max);
    }

    #[inline]
    fn write(self, row: &mut Row<'_>) -> Result<(), BoxError> {
        let Some(padding) = self.padding else { return Ok(row.write_padded_to_max(&self.data)?) };
        let (own, rest) = row.fill_padded_to_max(self.data.len())?.split_at_mut(self.data.len());
        own.copy_from_slice(&self.data);
        rest.fill(padding);
        Ok(())
    }
}

impl<T: Element> Schema for PaddedToMax<'static, T> {
    type Tensors<'b> = PaddedTensor<'b, T>;

    fn tensors<'b>(columns: &mut Columns<'b>) -> PaddedTensor<'b, T> {
        let (padded, lengths) = columns.take_padded();
        PaddedTensor { padded, lengths }
    }
}

/// A batch of [`PaddedToMax`] or [`PaddedToLongest`](super::PaddedToLongest) samples.
#[derive(Clone, Debug)]
pub struct PaddedTensor<'b, T: Element> {
    padded: TensorView<'b, T>,
    lengths: &'b [i64],
}

impl<'b, T: Element> PaddedTensor<'b, T> {
    /// Returns all rows with their padding. The shape is `[B, max]`, or `[B, longest]` if they are
    /// padded to the longest row; for an unbatched sample, `[max]` or `[longest]`.
    pub fn padded(&self) -> TensorView<'b, T> {
        self.padded.clone()
    }

    /// Returns the number of elements in each row: shape `[B]`, or `[1]` for an unbatched sample.
    pub fn lengths(&self) -> &'b [i64] {
        self.lengths
    }

    /// Returns row `i` without its padding.
    ///
    /// # Panics
    ///
    /// If `i` is out of range.
    #[track_caller]
    pub fn row(&self, i: usize) -> &'b [T] {
        let Some(&length) = self.lengths.get(i) else { no_such_row(i, self.lengths.len()) };
        let max = self.padded.shape().last().copied().unwrap_or_default();
        &self.padded.as_slice()[i * max..][..length as usize]
    }
}

/// A string of at most `max` bytes.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a> {
    text: &'a str,
    max: usize,
}

impl<'a> Text<'a> {
    /// Makes a sample of this string, whose field has `max` bytes of UTF-8. Writing it fails if the
    /// string is longer.
    pub fn new(text: &'a str, max: usize) -> Self {
        Self { text, max }
    }

    /// Returns the string.
    #[inline]
    pub fn as_str(&self) -> &'a str {
        self.text
    }
}

impl Sample for Text<'_> {
    type Schema = Text<'static>;

    fn declare(&self, fields: &mut Fields) {
        fields.padded_to_max(DType::U8, self.max);
    }

    #[inline]
    fn write(self, row: &mut Row<'_>) -> Result<(), BoxError> {
        Ok(row.write_padded_to_max(self.text.as_bytes())?)
    }
}

impl Schema for Text<'static> {
    type Tensors<'b> = Texts<'b>;

    fn tensors<'b>(columns: &mut Columns<'b>) -> Texts<'b> {
        Texts(<PaddedToMax<'static, u8>>::tensors(columns))
    }
}

/// A batch of [`Text`] samples.
#[derive(Clone, Debug)]
pub struct Texts<'b>(PaddedTensor<'b, u8>);

impl<'b> Texts<'b> {
    /// Returns the strings as bytes of UTF-8.
    pub fn bytes(&self) -> &PaddedTensor<'b, u8> {
        &self.0
    }

    /// Returns string `i`.
    ///
    /// # Panics
    ///
    /// If `i` is out of range, or the string is not UTF-8 (which [`Text`] never writes).
    #[track_caller]
    pub fn get(&self, i: usize) -> &'b str {
        std::str::from_utf8(self.0.row(i)).expect("a Text sample wrote this row")
    }
}
