//! [`Array`]: an n-dimensional array over a `Vec`.

use std::fmt;

use crate::dtype::Element;
use crate::prefetch::prefetch;
use crate::shape::{Shape, ShapeError};
use crate::tensor::{TensorView, describe, no_such_row};

/// An array that owns its elements, in C order.
///
/// The first dimension counts the rows. An array without dimensions is a single number and has one row: itself.
///
/// ```
/// use slotline::array::Array;
///
/// let images = Array::new(vec![0_u8; 100 * 28 * 28], &[100, 28, 28])?;
/// assert_eq!(images.len(), 100);
/// assert_eq!(images.row(99).shape(), [28, 28]);
/// # Ok::<(), slotline::shape::ShapeError>(())
/// ```
#[derive(Clone, PartialEq)]
pub struct Array<T: Element> {
    /// Has as many elements as the shape.
    data: Vec<T>,
    shape: Shape,
    /// Cached `shape.rows()`.
    len: usize,
    /// Cached `shape.row_elements()`.
    row_len: usize,
}

impl<T: Element> Array<T> {
    /// Makes an array of this shape over `data`, without a copy.
    ///
    /// # Errors
    ///
    /// If `shape` has too many dimensions, or needs a different number of elements than `data` has; the message gives
    /// both numbers.
    pub fn new(data: Vec<T>, shape: &[usize]) -> Result<Self, ShapeError> {
        Self::with_shape(data, Shape::new(shape)?)
    }

    /// Makes an array, like [`new`](Array::new), from an existing [`Shape`].
    ///
    /// # Errors
    ///
    /// If `shape` needs a different number of elements than `data` has; the message gives both numbers.
    pub fn with_shape(data: Vec<T>, shape: Shape) -> Result<Self, ShapeError> {
        shape.check_len(data.len())?;
        Ok(Self::from_checked(data, shape))
    }

    /// Makes an array over data that has as many elements as `shape`. [`row_slice`](Self::row_slice) relies on that.
    pub(super) fn from_checked(data: Vec<T>, shape: Shape) -> Self {
        debug_assert_eq!(shape.elements(), Some(data.len()));
        Array { len: shape.rows(), row_len: shape.row_elements(), data, shape }
    }

    /// Returns the lengths of the dimensions, first to last.
    #[inline]
    pub fn shape(&self) -> &[usize] {
        self.shape.dims()
    }

    /// Returns the number of rows: the length of the first dimension, or 1 if there are no dimensions.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns all elements, in C order.
    #[inline]
    pub fn as_slice(&self) -> &[T] {
        &self.data
    }

    /// Returns all elements, in C order, without a copy.
    pub fn into_vec(self) -> Vec<T> {
        self.data
    }

    /// Returns a view of the whole array.
    pub fn view(&self) -> TensorView<'_, T> {
        TensorView::from_checked(&self.data, self.shape.clone())
    }

    /// Returns row `i` as a view with its shape.
    ///
    /// # Panics
    ///
    /// If `i` is not below [`len`](Array::len).
    #[inline]
    #[track_caller]
    pub fn row(&self, i: usize) -> TensorView<'_, T> {
        TensorView::from_checked(self.row_slice(i), self.shape.row())
    }

    /// Returns the elements of row `i`. This is the fastest way to read a row.
    ///
    /// # Panics
    ///
    /// If `i` is not below [`len`](Array::len).
    #[inline]
    #[track_caller]
    pub fn row_slice(&self, i: usize) -> &[T] {
        if i >= self.len {
            no_such_row(i, self.len);
        }
        let start = i * self.row_len;
        // SAFETY: the data has len * row_len elements, which the constructor checked and nothing changes later, and i <
        // len. So the row's end, (i + 1) * row_len, is at most that, and nothing overflows.
        unsafe { self.data.get_unchecked(start..start + self.row_len) }
    }

    /// Hints to the CPU that row `i` will be read soon: prefetches its first 32 cache lines.
    ///
    /// Does nothing if there is no row `i`, or on machines other than x86-64.
    #[inline]
    pub fn prefetch_row(&self, i: usize) {
        if i < self.len {
            prefetch(self.row_slice(i));
        }
    }

    /// Splits the array, for [`AnyArray`](super::AnyArray).
    pub(super) fn into_parts(self) -> (Vec<T>, Shape) {
        (self.data, self.shape)
    }
}

impl<T: Element> fmt::Debug for Array<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        describe(f, "Array", T::DTYPE, &self.shape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_views_of_the_data() {
        let array = Array::new((0..12_i32).collect(), &[3, 2, 2]).unwrap();
        assert_eq!(array.row_slice(1), [4, 5, 6, 7]);
        assert_eq!(array.row(2), array.view().row(2));
        assert_eq!(array.row(2).shape(), [2, 2]);
        assert_eq!(array.into_vec().len(), 12);
    }

    #[test]
    fn arrays_may_be_scalar_or_empty() {
        let one = Array::new(vec![5_u8], &[]).unwrap();
        assert_eq!((one.len(), one.row_slice(0)), (1, &[5][..]));
        let none = Array::<f32>::new(vec![], &[0, 4]).unwrap();
        assert!(none.is_empty());
        let hollow = Array::<f32>::new(vec![], &[4, 0]).unwrap();
        assert_eq!((hollow.len(), hollow.row_slice(3)), (4, &[][..]));
    }

    #[test]
    fn a_wrong_length_reports_both_numbers() {
        let message = Array::new(vec![0_u8; 10], &[3, 4]).unwrap_err().to_string();
        assert_eq!(message, "shape [3, 4] needs 12 elements, but the data has 10");
    }

    #[test]
    #[should_panic(expected = "row 3 is out of range: there are 3 rows")]
    fn a_row_out_of_range_panics() {
        Array::new(vec![0_u8; 3], &[3]).unwrap().row_slice(3);
    }

    #[test]
    fn prefetching_any_row_is_safe() {
        let array = Array::new(vec![0_u8; 3 * 5000], &[3, 5000]).unwrap();
        for i in [0, 2, 3, usize::MAX] {
            array.prefetch_row(i);
        }
        Array::<u8>::new(vec![], &[2, 0]).unwrap().prefetch_row(1);
    }
}
