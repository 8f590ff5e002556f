//! Samples of different lengths, concatenated without padding.

use super::{Columns, Fields, Row, Sample, Schema};
use crate::BoxError;
use crate::dtype::{DType, Element};
use crate::tensor::{TensorView, no_such_row};

/// Items of one sample, which in the batch begin where those of the previous sample end (torch's
/// jagged layout of values and offsets).
///
/// An item is an element, or an array of elements; all items have the same shape. The memory of a
/// batch has room for `capacity` items per sample of a full batch, and its samples share that room: a
/// long sample can use what short ones leave. Set `capacity` to the average number of items per sample
/// in a batch, plus a margin. A batch that needs more is an error that says how much, or takes
/// memory from the heap ([`Builder::on_overflow`](crate::loader::Builder::on_overflow)).
///
/// ```
/// use slotline::dataset::{Context, Dataset};
/// use slotline::sample::Packed;
/// use slotline::{BoxError, Loader};
///
/// /// Texts as lists of word numbers.
/// struct Tokens(Vec<Vec<u32>>);
///
/// impl Dataset for Tokens {
///     type Sample<'a> = Packed<'a, u32>;
///
///     fn len(&self) -> usize {
///         self.0.len()
///     }
///
///     fn get<'a>(&'a self, index: usize, _: &'a mut Context) -> Result<Self::Sample<'a>, BoxError> {
///         Ok(Packed::new(&self.0[index], 2)) // two per sample, six for a batch of three
///     }
/// }
///
/// let tokens = Tokens(vec![vec![7, 8, 9, 10], vec![], vec![11]]);
/// let mut loader = Loader::builder(tokens).batch_size(3).build()?;
/// for batch in loader.epoch()? {
///     let batch = batch?;
///     let tokens = batch.tensors();
///     assert_eq!(tokens.values().as_slice(), [7, 8, 9, 10, 11]);
///     assert_eq!(tokens.offsets(), [0, 4, 4, 5]);
///     assert_eq!(tokens.row(2).as_slice(), [11]);
/// }
/// # Ok::<(), BoxError>(())
/// ```
///
/// The start of a sample is known only when the previous one has been written. So a batch with a
/// packed field is filled by one thread, whatever the loader's part size. Several threads can fill
/// different batches.
#[derive(Clone, Copy, Debug)]
pub struct Packed<'a, T> {
    data: &'a [T],
    /// The shape of an item.
    item: &'a [usize],
    capacity: usize,
}

impl<'a, T: Element> Packed<'a, T> {
    /// Makes a sample of these elements. A batch has room for `capacity` elements per sample of a full
    /// batch.
    pub fn new(data: &'a [T], capacity: usize) -> Self {
        Self { data, item: &[], capacity }
    }

    /// Makes a sample of these elements, as items of shape `trailing`. A batch has room for `capacity`
    /// items per sample of a full batch. For example, items that are boxes of four numbers have the
    /// shape `[4]`.
    ///
    /// Writing the sample fails if the last item is incomplete. Building the loader fails if
    /// `trailing` contains a 0.
    pub fn with_shape(data: &'a [T], trailing: &'a [usize], capacity: usize) -> Self {
        Self { data, item: trailing, capacity }
    }

    /// Returns all elements, item by item.
    #[inline]
    pub fn as_slice(&self) -> &'a [T] {
        self.data
    }

    /// Returns the shape of an item.
    #[inline]
    pub fn item_shape(&self) -> &'a [usize] {
        self.item
    }
}

impl<T: Element> Sample for Packed<'_, T> {
    type Schema = Packed<'static, T>;

    fn declare(&self, fields: &mut Fields) {
        fields.packed(T::DTYPE, self.item, self.capacity);
    }

    #[inline]
    fn write(self, row: &mut Row<'_>) -> Result<(), BoxError> {
        Ok(row.write_packed(self.data, self.item)?)
    }
}

impl<T: Element> Schema for Packed<'static, T> {
    type Tensors<'b> = PackedTensor<'b, T>;

    fn tensors<'b>(columns: &mut Columns<'b>) -> PackedTensor<'b, T> {
        let (values, offsets) = columns.take_packed();
        PackedTensor { values, offsets }
    }
}

/// A batch of [`Packed`] samples.
#[derive(Clone, Debug)]
pub struct PackedTensor<'b, T: Element> {
    values: TensorView<'b, T>,
    /// The start of each row and the end of the last one, in items, from 0 to the length of
    /// `values`.
    offsets: &'b [i64],
}

impl<'b, T: Element> PackedTensor<'b, T> {
    /// Returns the items of all rows: shape `[total]`, or `[total, …]` if items have a shape.
    pub fn values(&self) -> TensorView<'b, T> {
        self.values.clone()
    }

    /// Returns the start of each row, in items, and the end of the last row: shape `[B + 1]`, or `[2]` for an unbatched
    /// sample.
    pub fn offsets(&self) -> &'b [i64] {
        self.offsets
    }

    /// Returns the number of items in each row.
    pub fn lengths(&self) -> impl ExactSizeIterator<Item = i64> + DoubleEndedIterator + use<'b, T> {
        self.offsets.windows(2).map(|ends| ends[1] - ends[0])
    }

    /// Returns row `i`: shape `[length]`, or `[length, …]` if items have a shape.
    ///
    /// # Panics
    ///
    /// If `i` is out of range.
    #[track_caller]
    pub fn row(&self, i: usize) -> TensorView<'b, T> {
        let rows = self.offsets.len() - 1;
        if i >= rows {
            no_such_row(i, rows);
        }
        self.values.slice(self.offsets[i] as usize..self.offsets[i + 1] as usize)
    }
}

/// A string of any length. In the batch it begins where the previous string ends.
#[derive(Clone, Copy, Debug)]
pub struct PackedText<'a> {
    text: &'a str,
    capacity: usize,
}

impl<'a> PackedText<'a> {
    /// Makes a sample of this string. A batch has room for `capacity` bytes of UTF-8 per sample of a
    /// full batch, which its samples share; see [`Packed`].
    pub fn new(text: &'a str, capacity: usize) -> Self {
        Self { text, capacity }
    }

    /// Returns the string.
    #[inline]
    pub fn as_str(&self) -> &'a str {
        self.text
    }
}

impl Sample for PackedText<'_> {
    type Schema = PackedText<'static>;

    fn declare(&self, fields: &mut Fields) {
        fields.packed(DType::U8, &[], self.capacity);
    }

    #[inline]
    fn write(self, row: &mut Row<'_>) -> Result<(), BoxError> {
        Ok(row.write_packed(self.text.as_bytes(), &[])?)
    }
}

impl Schema for PackedText<'static> {
    type Tensors<'b> = PackedTexts<'b>;

    fn tensors<'b>(columns: &mut Columns<'b>) -> PackedTexts<'b> {
        PackedTexts(<Packed<'static, u8>>::tensors(columns))
    }
}

/// A batch of [`PackedText`] samples.
#[derive(Clone, Debug)]
pub struct PackedTexts<'b>(PackedTensor<'b, u8>);

impl<'b> PackedTexts<'b> {
    /// Returns the strings as bytes of UTF-8.
    pub fn bytes(&self) -> &PackedTensor<'b, u8> {
        &self.0
    }

    /// Returns string `i`.
    ///
    /// # Panics
    ///
    /// If `i` is out of range, or the string is not UTF-8 (which [`PackedText`] never writes).
    #[track_caller]
    pub fn get(&self, i: usize) -> &'b str {
        std::str::from_utf8(self.0.row(i).as_slice()).expect("a PackedText sample wrote this row")
    }
}
