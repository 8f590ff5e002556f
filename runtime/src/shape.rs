//! Shapes of n-dimensional arrays, stored inline: creating, copying or dropping one never allocates.

use std::fmt;
use std::ops::Deref;

/// The maximum number of dimensions of a [`Shape`].
pub const MAX_DIMS: usize = 8;

/// The lengths of an array's dimensions, first to last; at most [`MAX_DIMS`] of them.
///
/// The shape of a single number has no dimensions. A length may be 0. The first dimension counts the rows; a single
/// number has one row: itself.
///
/// ```
/// use slotline::shape::Shape;
///
/// let shape = Shape::new(&[64, 28, 28])?;
/// assert_eq!(shape.elements(), Some(50_176));
/// assert_eq!(shape.to_string(), "[64, 28, 28]");
/// assert_eq!(shape, [64, 28, 28]);
/// # Ok::<(), slotline::shape::ShapeError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Shape {
    dims: heapless::Vec<usize, MAX_DIMS>,
}

impl Shape {
    /// Makes a shape with these dimensions.
    ///
    /// # Errors
    ///
    /// [`ShapeError::TooManyDims`] if there are more than [`MAX_DIMS`].
    pub fn new(dims: &[usize]) -> Result<Shape, ShapeError> {
        match heapless::Vec::from_slice(dims) {
            Ok(dims) => Ok(Shape { dims }),
            Err(_) => Err(ShapeError::TooManyDims { found: dims.len() }),
        }
    }

    /// Returns the dimensions, first to last.
    #[inline]
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// Returns the number of elements of an array of this shape, or `None` if the product of the nonzero lengths
    /// exceeds `isize::MAX`, even if another length is 0.
    pub fn elements(&self) -> Option<usize> {
        // Zeros are excluded from the check, so that strides can't overflow either, nor the signed strides of code that
        // imports the array.
        let product = self.dims.iter().filter(|&&dim| dim != 0).try_fold(1_usize, |n, &dim| n.checked_mul(dim))?;
        if product > isize::MAX as usize {
            return None;
        }
        Some(if self.dims.contains(&0) { 0 } else { product })
    }

    /// Returns the length of the first dimension, or 1 if there are no dimensions.
    #[inline]
    pub fn rows(&self) -> usize {
        self.dims.first().copied().unwrap_or(1)
    }

    /// Returns the shape of one row: all dimensions except the first.
    #[inline]
    pub fn row(&self) -> Shape {
        let dims = heapless::Vec::from_slice(self.row_dims()).unwrap_or_default();
        Shape { dims }
    }

    /// Returns the shape of `rows` arrays of this shape, stacked.
    ///
    /// # Errors
    ///
    /// [`ShapeError::TooManyDims`] if this shape already has [`MAX_DIMS`] dimensions.
    #[inline]
    pub fn stacked(&self, rows: usize) -> Result<Shape, ShapeError> {
        if self.dims.is_full() {
            return Err(ShapeError::TooManyDims { found: self.dims.len() + 1 });
        }
        Ok(self.stack(rows))
    }

    /// Works like [`stacked`](Shape::stacked), for a shape with fewer than [`MAX_DIMS`] dimensions.
    ///
    /// # Panics
    ///
    /// If the shape has more.
    #[inline]
    pub(crate) fn stack(&self, rows: usize) -> Shape {
        // Copied one by one, because a block copy takes longer for at most eight lengths.
        let mut dims = heapless::Vec::new();
        dims.extend(std::iter::once(rows).chain(self.dims.iter().copied()));
        Shape { dims }
    }

    /// Returns the distance, in elements, between consecutive indices of each dimension, for elements in C order.
    ///
    /// The strides are exact for a shape with [`elements`](Shape::elements); for any other they saturate at
    /// `usize::MAX`.
    pub fn strides(&self) -> Strides {
        let mut strides = Strides { strides: self.dims.clone() };
        let mut next = 1_usize;
        for stride in strides.strides.iter_mut().rev() {
            let dim = std::mem::replace(stride, next);
            next = next.saturating_mul(dim);
        }
        strides
    }

    /// Returns all dimensions except the first.
    #[inline]
    pub(crate) fn row_dims(&self) -> &[usize] {
        self.dims.get(1..).unwrap_or_default()
    }

    /// Returns the number of elements in one row. It can't overflow for a shape whose
    /// [`elements`](Shape::elements) can be counted; other shapes must not be passed.
    #[inline]
    pub(crate) fn row_elements(&self) -> usize {
        self.row_dims().iter().product()
    }

    /// Checks that `found` is the number of elements of this shape.
    pub(crate) fn check_len(&self, found: usize) -> Result<(), ShapeError> {
        match self.elements() {
            Some(needed) if needed == found => Ok(()),
            Some(needed) => Err(ShapeError::WrongLength { shape: self.clone(), needed, found }),
            None => Err(ShapeError::TooLarge { shape: self.clone() }),
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A derived list would span several lines under `{:#}`.
        f.write_str("[")?;
        for (i, dim) in self.dims.iter().enumerate() {
            write!(f, "{}{dim}", if i == 0 { "" } else { ", " })?;
        }
        f.write_str("]")
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl PartialEq<[usize]> for Shape {
    fn eq(&self, other: &[usize]) -> bool {
        self.dims() == other
    }
}

impl PartialEq<&[usize]> for Shape {
    fn eq(&self, other: &&[usize]) -> bool {
        self.dims() == *other
    }
}

impl<const N: usize> PartialEq<[usize; N]> for Shape {
    fn eq(&self, other: &[usize; N]) -> bool {
        self.dims() == other
    }
}

/// The strides of a [`Shape`] in elements, one for each dimension. Derefs to a slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Strides {
    strides: heapless::Vec<usize, MAX_DIMS>,
}

impl Deref for Strides {
    type Target = [usize];

    fn deref(&self) -> &[usize] {
        &self.strides
    }
}

/// The error for a shape that is invalid, or doesn't fit its data.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ShapeError {
    /// The shape has more dimensions than [`MAX_DIMS`].
    #[error("expected at most {MAX_DIMS} dimensions, found {found}; join some of them")]
    TooManyDims {
        /// The number of dimensions.
        found: usize,
    },
    /// The shape has more elements than can be counted.
    #[error("shape {shape} has more elements than this machine can address")]
    TooLarge {
        /// The shape.
        shape: Shape,
    },
    /// The number of elements differs from the shape's.
    #[error("shape {shape} needs {needed} elements, but the data has {found}")]
    WrongLength {
        /// The shape.
        shape: Shape,
        /// The number of elements of the shape.
        needed: usize,
        /// The number of elements of the data.
        found: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(dims: &[usize]) -> Shape {
        Shape::new(dims).unwrap()
    }

    #[test]
    fn elements_are_counted_without_overflow() {
        assert_eq!(shape(&[]).elements(), Some(1));
        assert_eq!(shape(&[3, 0, 2]).elements(), Some(0));
        let most = isize::MAX as usize;
        assert_eq!(shape(&[most]).elements(), Some(most));
        assert_eq!(shape(&[most, 0, 1]).elements(), Some(0));
        for dims in [&[most + 1][..], &[0, most + 1], &[most, 2], &[0, most, 2], &[usize::MAX, usize::MAX]] {
            assert_eq!(shape(dims).elements(), None, "{dims:?}");
        }
    }

    #[test]
    fn strides_are_those_of_c_order() {
        assert_eq!(*shape(&[2, 3, 4]).strides(), [12, 4, 1]);
        assert!(shape(&[]).strides().is_empty());
        assert_eq!(*shape(&[2, 0, 4]).strides(), [0, 4, 1]);
        assert_eq!(*shape(&[2, usize::MAX, 2]).strides(), [usize::MAX, 2, 1]);
    }

    #[test]
    fn rows_and_stacking_are_inverse() {
        let image = shape(&[28, 28]);
        let batch = image.stacked(64).unwrap();
        assert_eq!((batch.rows(), batch.row()), (64, image));
        assert_eq!((shape(&[]).rows(), shape(&[]).row()), (1, shape(&[])));
        let full = shape(&[1; MAX_DIMS]);
        assert_eq!(full.stacked(1), Err(ShapeError::TooManyDims { found: 9 }));
    }

    #[test]
    fn errors_report_both_numbers() {
        let error = shape(&[2, 3]).check_len(5).unwrap_err().to_string();
        assert_eq!(error, "shape [2, 3] needs 6 elements, but the data has 5");
        let error = Shape::new(&[1; 11]).unwrap_err().to_string();
        assert!(error.contains("at most 8") && error.contains("found 11"), "{error}");
    }
}
