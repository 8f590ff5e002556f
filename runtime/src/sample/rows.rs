//! Rows of arrays as samples. A [`TensorDataset`](crate::dataset::TensorDataset) returns them.

use super::{Dynamic, Fields, Row, Sample};
use crate::BoxError;
use crate::array::AnyArray;
use crate::dtype::{DType, Element, bytes_of};
use crate::tensor::{AnyTensorView, TensorView};

/// A row of an [`Array`](crate::array::Array): its elements and its shape. Both are borrowed, so
/// making a row copies nothing.
///
/// ```
/// use slotline::array::Array;
/// use slotline::dataset::TensorDataset;
/// use slotline::{BoxError, Loader};
///
/// let images = Array::new((0..12_u8).collect(), &[3, 2, 2])?;
/// let dataset = TensorDataset::new((images, vec![5_i64, 0, 4]))?;
/// let mut loader = Loader::builder(dataset)
///     .batch_size(3)
///     .collate(|samples| {
///         let mut brightest = Vec::new();
///         while let Some(sample) = samples.next() {
///             let (image, label) = sample?;
///             assert_eq!(image.shape(), [2, 2]);
///             brightest.push((label, image.as_slice().iter().copied().max()));
///         }
///         Ok::<_, BoxError>(brightest)
///     })
///     .build()?;
/// let batch = loader.epoch()?.next().expect("a batch")?;
/// assert_eq!(batch, [(5, Some(3)), (0, Some(7)), (4, Some(11))]);
/// # Ok::<(), BoxError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ArrayRow<'a, T> {
    /// Has as many elements as the shape.
    data: &'a [T],
    shape: &'a [usize],
}

impl<'a, T: Element> ArrayRow<'a, T> {
    /// Makes a row whose elements were already checked against its shape.
    #[inline]
    pub(crate) fn from_checked(data: &'a [T], shape: &'a [usize]) -> Self {
        debug_assert_eq!(shape.iter().product::<usize>(), data.len());
        Self { data, shape }
    }

    /// Returns the row as a tensor.
    pub fn tensor(&self) -> TensorView<'a, T> {
        TensorView::new(self.data, self.shape).expect("a row matches its shape")
    }

    /// Returns the type of the elements.
    #[inline]
    pub fn dtype(&self) -> DType {
        T::DTYPE
    }

    /// Returns the lengths of the row's dimensions, first to last: those of the array without the first one.
    #[inline]
    pub fn shape(&self) -> &'a [usize] {
        self.shape
    }

    /// Returns all elements, in C order.
    #[inline]
    pub fn as_slice(&self) -> &'a [T] {
        self.data
    }

    /// Returns all elements as bytes in the machine's byte order.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        bytes_of(self.data)
    }
}

impl<T: Element> Sample for ArrayRow<'_, T> {
    type Schema = T;

    fn declare(&self, fields: &mut Fields) {
        fields.fixed(T::DTYPE, self.shape);
    }

    #[inline(always)]
    fn write(self, row: &mut Row<'_>) -> Result<(), BoxError> {
        Ok(row.write(self.data, self.shape)?)
    }
}

/// One row of each of several arrays whose types are known at run time.
///
/// ```
/// use slotline::array::{AnyArray, Array};
/// use slotline::dataset::{Context, Dataset, TensorDataset};
///
/// let images = AnyArray::from(Array::new((0..12_u8).collect(), &[3, 2, 2])?);
/// let labels = AnyArray::from(Array::new(vec![5_i64, 0, 4], &[3])?);
/// let dataset = TensorDataset::new(vec![images, labels])?;
/// let mut cx = Context::default();
/// let row = dataset.get(1, &mut cx)?;
/// assert_eq!(row.len(), 2);
/// let image = row.get(0).expect("two tensors");
/// assert_eq!((image.shape(), image.bytes()), (&[2, 2][..], &[4, 5, 6, 7][..]));
/// assert_eq!(row.get(1).and_then(|label| label.typed::<i64>()).unwrap().as_slice(), [0]);
/// # Ok::<(), slotline::BoxError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct AnyRow<'a> {
    arrays: &'a [AnyArray],
    /// The number of the row, below the length of each array.
    index: usize,
}

impl<'a> AnyRow<'a> {
    /// Makes row `index` of arrays that have at least that many rows.
    #[inline]
    pub(crate) fn new(arrays: &'a [AnyArray], index: usize) -> Self {
        Self { arrays, index }
    }

    /// Returns the number of tensors: one for each array.
    pub fn len(&self) -> usize {
        self.arrays.len()
    }

    /// Returns whether there are no tensors.
    pub fn is_empty(&self) -> bool {
        self.arrays.is_empty()
    }

    /// Returns the row of array `i`; `None` if there is no array `i`.
    pub fn get(&self, i: usize) -> Option<AnyTensorView<'a>> {
        self.arrays.get(i).map(|array| array.row(self.index))
    }

    /// Returns the rows of all arrays, first to last.
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = AnyTensorView<'a>> + DoubleEndedIterator + use<'a> {
        let index = self.index;
        self.arrays.iter().map(move |array| array.row(index))
    }
}

impl Sample for AnyRow<'_> {
    type Schema = Dynamic;

    fn declare(&self, fields: &mut Fields) {
        fields.run(self.tensors());
    }

    #[inline]
    fn write(self, row: &mut Row<'_>) -> Result<(), BoxError> {
        row.write_run(|row| self.arrays.iter().try_for_each(|array| Ok(row.write_row_of(array, self.index)?)))
    }
}
