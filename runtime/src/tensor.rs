//! Read-only views of n-dimensional data: [`TensorView`], whose element type is known at compile
//! time, and [`AnyTensorView`], whose dtype is known at run time.
//!
//! Both are contiguous in C order (the last index varies fastest) and borrow their data. The shape is stored inline, so
//! making a view never allocates.

use std::fmt;
use std::ops::{Index, Range};

use crate::dtype::{DType, Element, bytes_of, for_dtype};
use crate::shape::{Shape, ShapeError, Strides};

/// A read-only view of elements of type `T` in C order.
///
/// The first dimension counts the rows. A tensor without dimensions is a single number and has one row: itself.
///
/// ```
/// use slotline::tensor::TensorView;
///
/// let tensor = TensorView::new(&[1, 2, 3, 4, 5, 6], &[2, 3])?;
/// assert_eq!(tensor.row(1).as_slice(), [4, 5, 6]);
/// assert_eq!(tensor[[1, 0]], 4);
/// # Ok::<(), slotline::shape::ShapeError>(())
/// ```
#[derive(Clone, PartialEq)]
pub struct TensorView<'a, T: Element> {
    /// Has as many elements as the shape.
    data: &'a [T],
    shape: Shape,
}

impl<'a, T: Element> TensorView<'a, T> {
    /// Makes a view of `data` with this shape.
    ///
    /// # Errors
    ///
    /// If `shape` has too many dimensions, or needs a different number of elements than `data` has.
    pub fn new(data: &'a [T], shape: &[usize]) -> Result<Self, ShapeError> {
        Self::with_shape(data, Shape::new(shape)?)
    }

    /// Makes a view, like [`new`](TensorView::new), from an existing [`Shape`].
    ///
    /// # Errors
    ///
    /// If `shape` needs a different number of elements than `data` has.
    pub fn with_shape(data: &'a [T], shape: Shape) -> Result<Self, ShapeError> {
        shape.check_len(data.len())?;
        Ok(TensorView { data, shape })
    }

    /// Makes a view without the check, for data and shapes that were already checked against each other.
    #[inline]
    pub(crate) fn from_checked(data: &'a [T], shape: Shape) -> Self {
        debug_assert_eq!(shape.elements(), Some(data.len()));
        TensorView { data, shape }
    }

    /// Returns the lengths of the dimensions, first to last.
    #[inline]
    pub fn shape(&self) -> &[usize] {
        self.shape.dims()
    }

    /// Returns the distance, in elements, between consecutive indices of each dimension.
    pub fn strides(&self) -> Strides {
        self.shape.strides()
    }

    /// Returns all elements, in C order.
    #[inline]
    pub fn as_slice(&self) -> &'a [T] {
        self.data
    }

    /// Returns the number of rows: the length of the first dimension, or 1 if there are no dimensions.
    #[inline]
    pub fn len(&self) -> usize {
        self.shape.rows()
    }

    /// Returns whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns row `i`, with one dimension less; `None` if it is out of range.
    #[inline]
    pub fn get(&self, i: usize) -> Option<TensorView<'a, T>> {
        let size = self.shape.row_elements();
        // For i below len, the product is at most the tensor's number of elements.
        (i < self.len()).then(|| TensorView::from_checked(&self.data[i * size..][..size], self.shape.row()))
    }

    /// Returns row `i`, with one dimension less.
    ///
    /// # Panics
    ///
    /// If `i` is not below [`len`](TensorView::len).
    #[inline]
    #[track_caller]
    pub fn row(&self, i: usize) -> TensorView<'a, T> {
        self.get(i).unwrap_or_else(|| no_such_row(i, self.len()))
    }

    /// Returns a range of rows as a tensor with as many dimensions as this one, which must have at least one.
    ///
    /// # Panics
    ///
    /// If the range is not within the rows.
    #[track_caller]
    pub(crate) fn slice(&self, rows: Range<usize>) -> TensorView<'a, T> {
        let size = self.shape.row_elements();
        let shape = self.shape.row().stack(rows.len());
        TensorView::from_checked(&self.data[rows.start * size..rows.end * size], shape)
    }

    /// Returns the rows, first to last.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = TensorView<'a, T>> + DoubleEndedIterator + use<'a, T> {
        let tensor = self.clone();
        (0..self.len()).map(move |i| tensor.row(i))
    }
}

impl<T: Element, const N: usize> Index<[usize; N]> for TensorView<'_, T> {
    type Output = T;

    /// Returns the element with this index in each dimension.
    ///
    /// # Panics
    ///
    /// If the number of indices differs from the number of dimensions, or one is not below its dimension's length.
    fn index(&self, index: [usize; N]) -> &T {
        let dims = self.shape();
        let inside = N == dims.len() && index.iter().zip(dims).all(|(i, dim)| i < dim);
        assert!(inside, "index {index:?} is outside of a tensor of shape {}", self.shape);
        &self.data[index.iter().zip(dims).fold(0, |at, (i, dim)| at * dim + i)]
    }
}

impl<T: Element> fmt::Debug for TensorView<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        describe(f, "TensorView", T::DTYPE, &self.shape)
    }
}

/// A read-only view of elements in C order whose type is known at run time.
///
/// Made from a [`TensorView`] by `From`, or borrowed from an [`AnyArray`](crate::array::AnyArray).
///
/// ```
/// use slotline::dtype::DType;
/// use slotline::tensor::{AnyTensorView, TensorView};
///
/// let any = AnyTensorView::from(TensorView::new(&[1.0_f32, 2.0], &[2])?);
/// assert_eq!(any.dtype(), DType::F32);
/// assert_eq!(any.typed::<f32>().unwrap().as_slice(), [1.0, 2.0]);
/// assert!(any.typed::<i64>().is_none());
/// # Ok::<(), slotline::shape::ShapeError>(())
/// ```
#[derive(Clone)]
pub struct AnyTensorView<'a> {
    dtype: DType,
    shape: Shape,
    /// Exactly the elements of the shape, aligned to the dtype and valid for it.
    bytes: &'a [u8],
}

impl<'a> AnyTensorView<'a> {
    /// Makes a view of bytes that hold elements of `dtype`.
    ///
    /// # Safety
    ///
    /// The length of `bytes` must be the number of elements of `shape` times the size of `dtype`. `bytes` must be
    /// aligned to `dtype`'s alignment, even if empty, and hold valid elements in the machine's byte order: for `Bool`,
    /// only 0 and 1.
    #[inline]
    pub unsafe fn from_raw_parts(dtype: DType, shape: Shape, bytes: &'a [u8]) -> Self {
        debug_assert_eq!(shape.elements().and_then(|n| n.checked_mul(dtype.size())), Some(bytes.len()));
        debug_assert_eq!(bytes.as_ptr().align_offset(dtype.align()), 0);
        AnyTensorView { dtype, shape, bytes }
    }

    /// Returns the type of the elements.
    #[inline]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the lengths of the dimensions, first to last.
    #[inline]
    pub fn shape(&self) -> &[usize] {
        self.shape.dims()
    }

    /// Returns the distance, in elements, between consecutive indices of each dimension.
    pub fn strides(&self) -> Strides {
        self.shape.strides()
    }

    /// Returns all elements as bytes in the machine's byte order, aligned to the dtype.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the number of rows: the length of the first dimension, or 1 if there are no dimensions.
    #[inline]
    pub fn len(&self) -> usize {
        self.shape.rows()
    }

    /// Returns whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns row `i`, with one dimension less; `None` if it is out of range.
    #[inline]
    pub fn get(&self, i: usize) -> Option<AnyTensorView<'a>> {
        if i >= self.len() {
            return None;
        }
        let size = self.shape.row_elements() * self.dtype.size();
        Some(AnyTensorView { dtype: self.dtype, shape: self.shape.row(), bytes: &self.bytes[i * size..][..size] })
    }

    /// Returns row `i`, with one dimension less.
    ///
    /// # Panics
    ///
    /// If `i` is not below [`len`](AnyTensorView::len).
    #[inline]
    #[track_caller]
    pub fn row(&self, i: usize) -> AnyTensorView<'a> {
        self.get(i).unwrap_or_else(|| no_such_row(i, self.len()))
    }

    /// Returns the first `len` elements, in one dimension. There must be at least that many.
    pub(crate) fn first_elements(&self, len: usize) -> AnyTensorView<'a> {
        let shape = Shape::default().stack(len);
        AnyTensorView { dtype: self.dtype, shape, bytes: &self.bytes[..len * self.dtype.size()] }
    }

    /// Returns this view with its type known to the compiler; `None` if `T` isn't the dtype.
    #[inline]
    pub fn typed<T: Element>(&self) -> Option<TensorView<'a, T>> {
        if self.dtype != T::DTYPE {
            return None;
        }
        // SAFETY: `T` is the dtype, and by the invariant of `bytes` they are aligned to it and hold valid elements of
        // it.
        let data = unsafe { std::slice::from_raw_parts(self.bytes.as_ptr().cast(), self.bytes.len() / size_of::<T>()) };
        Some(TensorView::from_checked(data, self.shape.clone()))
    }
}

impl<'a, T: Element> From<TensorView<'a, T>> for AnyTensorView<'a> {
    fn from(tensor: TensorView<'a, T>) -> Self {
        AnyTensorView { dtype: T::DTYPE, shape: tensor.shape, bytes: bytes_of(tensor.data) }
    }
}

impl PartialEq for AnyTensorView<'_> {
    /// Compares dtype, shape and elements. Elements are compared as numbers: 0.0 equals -0.0, and a NaN equals nothing.
    fn eq(&self, other: &Self) -> bool {
        self.dtype == other.dtype && for_dtype!(self.dtype, T => self.typed::<T>() == other.typed::<T>())
    }
}

impl fmt::Debug for AnyTensorView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        describe(f, "AnyTensorView", self.dtype, &self.shape)
    }
}

/// Writes the `Debug` output of arrays and views, without their elements, of which there may be billions.
pub(crate) fn describe(f: &mut fmt::Formatter<'_>, name: &str, dtype: DType, shape: &Shape) -> fmt::Result {
    write!(f, "{name}({dtype} {shape})")
}

/// Panics with the row's number. Not inlined, so that the check before it costs the caller only one
/// comparison.
#[cold]
#[inline(never)]
#[track_caller]
pub(crate) fn no_such_row(i: usize, len: usize) -> ! {
    panic!("row {i} is out of range: there are {len} rows")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::{bf16, complex64, f16};

    #[test]
    fn rows_lose_the_first_dimension() {
        let data: Vec<u16> = (0..24).collect();
        let tensor = TensorView::new(&data, &[2, 3, 4]).unwrap();
        assert_eq!((tensor.len(), tensor.shape(), &*tensor.strides()), (2, &[2, 3, 4][..], &[12, 4, 1][..]));
        let row = tensor.row(1);
        assert_eq!((row.shape(), row.as_slice()), (&[3, 4][..], &data[12..]));
        assert_eq!(row.row(2).row(3).as_slice(), [23]);
        assert_eq!(tensor[[1, 2, 3]], 23);
        assert!(tensor.get(2).is_none());
        assert_eq!(tensor.rows().flat_map(|row| row.as_slice().to_vec()).collect::<Vec<_>>(), data);
    }

    #[test]
    fn one_number_is_its_own_row() {
        let tensor = TensorView::new(&[7_i64], &[]).unwrap();
        assert_eq!((tensor.len(), tensor[[]]), (1, 7));
        assert_eq!(tensor.row(0), tensor);
        assert!(tensor.get(1).is_none());
    }

    #[test]
    fn tensors_may_be_empty_in_any_dimension() {
        assert!(TensorView::<f32>::new(&[], &[0, 3]).unwrap().is_empty());
        let tensor = TensorView::<f32>::new(&[], &[5, 0]).unwrap();
        assert_eq!((tensor.rows().len(), tensor.row(4).as_slice().len()), (5, 0));
        // A huge number of rows is valid if rows have no bytes.
        assert_eq!(TensorView::<f32>::new(&[], &[isize::MAX as usize, 0]).unwrap().row(1 << 62).shape(), [0]);
    }

    #[test]
    fn a_wrong_length_is_an_error() {
        assert!(TensorView::new(&[1, 2, 3], &[2, 2]).is_err());
        assert!(TensorView::new(&[1, 2, 3], &[usize::MAX, 3]).is_err());
    }

    #[test]
    #[should_panic(expected = "row 2 is out of range: there are 2 rows")]
    fn a_row_out_of_range_panics() {
        TensorView::new(&[1, 2], &[2]).unwrap().row(2);
    }

    #[test]
    #[should_panic(expected = "index [0, 2] is outside of a tensor of shape [2, 2]")]
    fn an_index_out_of_range_panics() {
        let _ = TensorView::new(&[1, 2, 3, 4], &[2, 2]).unwrap()[[0, 2]];
    }

    #[test]
    fn views_with_any_difference_are_not_equal() {
        fn any<'a, T: Element>(data: &'a [T], shape: &[usize]) -> AnyTensorView<'a> {
            TensorView::new(data, shape).unwrap().into()
        }
        let all = [any(&[1_i64], &[1]), any(&[1_u64], &[1]), any(&[1_i64], &[1, 1]), any(&[2_i64], &[1])];
        for (i, a) in all.iter().enumerate() {
            assert!(all.iter().enumerate().all(|(j, b)| (a == b) == (i == j)));
        }
        fn numbers<T: Element>(of: impl Fn(u16) -> T, infinity: u16) {
            let equal = |a, b| any(&[of(a)], &[]) == any(&[of(b)], &[]);
            assert!(equal(0, 0x8000));
            for number in [1, infinity, infinity | 0x8000] {
                assert!(equal(number, number) && !equal(number, number ^ 0x8000));
            }
            assert!([infinity + 1, 0x7fff, infinity | 0x8001].iter().all(|&nan| !equal(nan, nan)));
        }
        numbers(|bits| f16::from_le_bytes(bits.to_le_bytes()), 0x7c00);
        numbers(|bits| bf16::from_le_bytes(bits.to_le_bytes()), 0x7f80);
        assert_ne!(any(&[f64::NAN], &[]), any(&[f64::NAN], &[]));
        let equal = |a: [f32; 2], b: [f32; 2]| {
            let [a, b] = [a, b].map(|[re, im]| [complex64 { re, im }]);
            any(&a, &[]) == any(&b, &[])
        };
        assert!(equal([1.0, 0.0], [1.0, -0.0]));
        assert!(
            !equal([1.0, 0.0], [1.0, 1.0])
                && !equal([1.0, 0.0], [0.0, 0.0])
                && !equal([1.0, f32::NAN], [1.0, f32::NAN])
        );
    }

    #[test]
    fn only_the_original_type_can_be_recovered() {
        let data = [1.5_f64, -2.0, 3.0, 4.0];
        let any = AnyTensorView::from(TensorView::new(&data, &[2, 2]).unwrap());
        assert_eq!((any.dtype(), any.bytes().len()), (DType::F64, 32));
        assert_eq!(any.row(1).typed::<f64>().unwrap().as_slice(), [3.0, 4.0]);
        assert!(any.typed::<i64>().is_none() && any.get(2).is_none());
        assert_eq!(format!("{any:?}"), "AnyTensorView(f64 [2, 2])");
    }
}
