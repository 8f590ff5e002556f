//! Samples of different lengths, padded to the longest of their batch, and masks.

use std::borrow::Cow;

use super::{Columns, Fields, PaddedTensor, PaddedToMax, Row, Sample, Schema};
use crate::BoxError;
use crate::dtype::{Element, element};

/// Elements of one sample, which are padded to the longest sample of the batch. The sample's own
/// length is stored, too. (Hugging Face's `DataCollatorWithPadding` pads like this.)
///
/// A batch is a contiguous [`PaddedTensor`] of shape `[B, longest]`. Its memory has room for `capacity`
/// elements per sample of a full batch, including the padding. The length of the dataset's longest
/// sample is enough for every batch. If the samples of a batch have similar lengths, less is
/// enough, such as the budget of a `LengthBatchSampler` (in `slotline-sequences`) divided by its
/// maximum batch size. A batch that needs more is an error that says how much, or takes memory from
/// the heap ([`Builder::on_overflow`](crate::loader::Builder::on_overflow)).
///
/// ```
/// use slotline::dataset::{Context, Dataset};
/// use slotline::sample::{Mask, PaddedToLongest};
/// use slotline::{BoxError, Loader, Sample};
///
/// #[derive(Sample)]
/// struct Text<'a> {
///     input_ids: PaddedToLongest<'a, i64>,
///     attention_mask: Mask<i64>,
/// }
///
/// struct Texts(Vec<Vec<i64>>);
///
/// impl Dataset for Texts {
///     type Sample<'a> = Text<'a>;
///
///     fn len(&self) -> usize {
///         self.0.len()
///     }
///
///     fn get<'a>(&'a self, index: usize, _: &'a mut Context) -> Result<Text<'a>, BoxError> {
///         let input_ids = PaddedToLongest::new(&self.0[index], 512).padding(9).multiple_of(4);
///         Ok(Text { attention_mask: input_ids.mask(1), input_ids })
///     }
/// }
///
/// let texts = Texts(vec![vec![1, 2], vec![3, 4, 5, 6, 7], vec![]]);
/// let mut loader = Loader::builder(texts).batch_size(2).build()?;
/// let mut pass = loader.epoch()?;
/// let batch = pass.next().expect("two batches")?;
/// let texts = batch.tensors();
/// assert_eq!(texts.input_ids.padded().shape(), [2, 8]);
/// assert_eq!(texts.input_ids.padded().as_slice(), [1, 2, 9, 9, 9, 9, 9, 9, 3, 4, 5, 6, 7, 9, 9, 9]);
/// assert_eq!(texts.attention_mask.padded().row(0).as_slice(), [1, 1, 0, 0, 0, 0, 0, 0]);
/// assert_eq!(texts.input_ids.lengths(), [2, 5]);
/// # Ok::<(), BoxError>(())
/// ```
///
/// The length of the rows is known only when the last one has been written. So a batch with such a
/// field is filled by one thread, whatever the loader's part size. Several threads can fill
/// different batches. Writing a row that is longer than those before it moves them apart.
#[derive(Clone, Debug)]
pub struct PaddedToLongest<'a, T: Element> {
    data: Cow<'a, [T]>,
    capacity: usize,
    padding: Option<T>,
    multiple: usize,
}

impl<'a, T: Element> PaddedToLongest<'a, T> {
    /// Makes a sample of these elements, padded with zeros. A batch has room for `capacity` elements
    /// per sample of a full batch.
    pub fn new(data: &'a [T], capacity: usize) -> Self {
        Self { data: Cow::Borrowed(data), capacity, padding: None, multiple: 1 }
    }

    /// Sets the element that rows are padded with.
    #[must_use]
    pub fn padding(mut self, padding: T) -> Self {
        self.padding = Some(padding);
        self
    }

    /// Rounds the length of padded rows up to a multiple of this number (`pad_to_multiple_of`); 0
    /// works like 1. All samples must have the same multiple.
    #[must_use]
    pub fn multiple_of(mut self, multiple: usize) -> Self {
        self.multiple = multiple;
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
        Mask { present, len: self.data.len(), capacity: self.capacity, multiple: Some(self.multiple) }
    }
}

impl<T: Element> PaddedToLongest<'static, T> {
    /// Makes a sample that owns its elements, such as one that was computed; see [`new`](Self::new).
    pub fn owned(data: Vec<T>, capacity: usize) -> Self {
        Self { data: Cow::Owned(data), capacity, padding: None, multiple: 1 }
    }
}

impl<T: Element> Sample for PaddedToLongest<'_, T> {
    type Schema = PaddedToLongest<'static, T>;

    fn declare(&self, fields: &mut Fields) {
        fields.padded_to_longest(T::DTYPE, self.capacity);
    }

    #[inline]
    fn write(self, row: &mut Row<'_>) -> Result<(), BoxError> {
        row.fill_padded(self.data.len(), self.padding.unwrap_or_else(zero), self.multiple)?.copy_from_slice(&self.data);
        Ok(())
    }
}

impl<T: Element> Schema for PaddedToLongest<'static, T> {
    type Tensors<'b> = PaddedTensor<'b, T>;

    fn tensors<'b>(columns: &mut Columns<'b>) -> PaddedTensor<'b, T> {
        <PaddedToMax<'static, T>>::tensors(columns)
    }
}

/// A mask that shows which elements of another sample are not padding: as many equal elements as
/// that sample has, padded with zeros to the same length. Made by [`PaddedToLongest::mask`] and
/// [`PaddedToMax::mask`]. The element is usually `true`, `1_i64` or `1_f32`.
#[derive(Clone, Copy, Debug)]
pub struct Mask<T> {
    present: T,
    len: usize,
    /// The capacity or, for a sample that is padded to a maximum, the maximum length of the sample
    /// that the mask is for, in elements.
    capacity: usize,
    /// The number that padded lengths are a multiple of; `None` if they are padded to the maximum.
    multiple: Option<usize>,
}

impl<T: Element> Mask<T> {
    pub(super) fn to_maximum(present: T, len: usize, max: usize) -> Self {
        Self { present, len, capacity: max, multiple: None }
    }
}

impl<T: Element> Sample for Mask<T> {
    type Schema = PaddedToMax<'static, T>;

    fn declare(&self, fields: &mut Fields) {
        match self.multiple {
            Some(_) => fields.padded_to_longest(T::DTYPE, self.capacity),
            None => fields.padded_to_max(T::DTYPE, self.capacity),
        }
    }

    #[inline]
    fn write(self, row: &mut Row<'_>) -> Result<(), BoxError> {
        if let Some(multiple) = self.multiple {
            row.fill_padded(self.len, zero(), multiple)?.fill(self.present);
            return Ok(());
        }
        let (own, padding) = row.fill_padded_to_max(self.len)?.split_at_mut(self.len);
        own.fill(self.present);
        padding.fill(zero());
        Ok(())
    }
}

fn zero<T: Element>() -> T {
    element(0).expect("all types have a zero")
}
