//! Arrays whose rows are the samples.

use super::{Context, Dataset, OutOfRange};
use crate::BoxError;
use crate::array::{AnyArray, Array};
use crate::dtype::{DType, Element, bytes_of};
use crate::prefetch::AHEAD;
use crate::sample::{AnyRow, ArrayRow, FieldsMut, RowsMut, Sample};
use crate::tuples::up_to_eight;

/// A collection of rows, each of which can be a sample or a part of one.
///
/// The rows of an [`Array`] are tensors with one dimension less ([`ArrayRow`]). The rows of a `Vec`
/// of numbers are the numbers. A row of a `Vec` of [`AnyArray`] has one row of each array
/// ([`AnyRow`]). A row of a tuple of collections is a tuple with one row of each.
pub trait Rows: Send + Sync + 'static {
    /// One row.
    type Row<'a>: Sample;

    /// Returns the number of rows.
    ///
    /// # Errors
    ///
    /// If the parts have different numbers of rows.
    fn rows(&self) -> Result<usize, LengthMismatch>;

    /// Returns row `index`.
    ///
    /// # Panics
    ///
    /// If `index` is out of range.
    fn row(&self, index: usize) -> Self::Row<'_>;

    /// Announces that row `index` will be read soon.
    #[inline]
    fn prefetch(&self, index: usize) {
        let _ = index;
    }

    /// Returns whether [`write_rows`](Self::write_rows) is implemented. It writes rows field by
    /// field, which is faster for several of them.
    fn writes_rows(&self) -> bool {
        false
    }

    /// Writes the rows at `indices`, field by field: each field is written for all of these rows
    /// before the next field.
    ///
    /// # Errors
    ///
    /// If the fields differ from those declared. The default implementation always fails.
    ///
    /// # Panics
    ///
    /// If an index is out of range.
    fn write_rows(&self, indices: &[usize], fields: &mut FieldsMut<'_, '_>) -> Result<(), BoxError> {
        let _ = (indices, fields);
        Err("these rows are written one by one".into())
    }
}

/// Writes one field of the rows at `indices`, and prefetches rows before they are copied. `row`
/// returns the bytes of the field in a row. Fails if the field is declared with another dtype or
/// shape.
#[inline]
fn gather<'b>(
    indices: &[usize],
    fields: &mut FieldsMut<'_, '_>,
    (dtype, shape): (DType, &[usize]),
    prefetch: impl Fn(usize),
    row: impl Fn(usize) -> &'b [u8],
) -> Result<(), BoxError> {
    fields.expect(dtype, shape)?;
    indices.iter().take(AHEAD).for_each(|&index| prefetch(index));
    let pieces = indices.iter().enumerate().map(|(at, &index)| {
        if let Some(&ahead) = indices.get(at + AHEAD) {
            prefetch(ahead);
        }
        row(index)
    });
    Ok(fields.write_fixed(dtype, pieces)?)
}

/// An error for arrays of different lengths, which cannot make samples.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("size mismatch between tensors: the first has {first} rows, number {tensor} has {other}")]
pub struct LengthMismatch {
    /// The number of rows of the first array.
    pub first: usize,
    /// The array whose length differs, counted from 1.
    pub tensor: usize,
    /// The number of rows of that array.
    pub other: usize,
}

/// Checks that all lengths are equal to the first one.
fn same(lengths: impl IntoIterator<Item = usize>) -> Result<usize, LengthMismatch> {
    let mut lengths = lengths.into_iter();
    let first = lengths.next().unwrap_or(0);
    match lengths.enumerate().find(|&(_, other)| other != first) {
        Some((i, other)) => Err(LengthMismatch { first, tensor: i + 2, other }),
        None => Ok(first),
    }
}

impl<T: Element> Rows for Vec<T> {
    type Row<'a> = T;

    fn rows(&self) -> Result<usize, LengthMismatch> {
        Ok(self.len())
    }

    #[inline]
    fn row(&self, index: usize) -> T {
        self[index]
    }

    fn writes_rows(&self) -> bool {
        true
    }

    #[inline]
    fn write_rows(&self, indices: &[usize], fields: &mut FieldsMut<'_, '_>) -> Result<(), BoxError> {
        fields.expect(T::DTYPE, &[])?;
        Ok(fields.write_fixed(T::DTYPE, indices.iter().map(|&index| bytes_of(std::slice::from_ref(&self[index]))))?)
    }
}

impl<T: Element> Rows for Array<T> {
    type Row<'a> = ArrayRow<'a, T>;

    fn rows(&self) -> Result<usize, LengthMismatch> {
        Ok(self.len())
    }

    #[inline]
    fn row(&self, index: usize) -> ArrayRow<'_, T> {
        ArrayRow::from_checked(self.row_slice(index), self.shape().get(1..).unwrap_or_default())
    }

    #[inline]
    fn prefetch(&self, index: usize) {
        self.prefetch_row(index);
    }

    fn writes_rows(&self) -> bool {
        true
    }

    #[inline]
    fn write_rows(&self, indices: &[usize], fields: &mut FieldsMut<'_, '_>) -> Result<(), BoxError> {
        let row = |index| bytes_of(self.row_slice(index));
        gather(
            indices,
            fields,
            (T::DTYPE, self.shape().get(1..).unwrap_or_default()),
            |index| self.prefetch_row(index),
            row,
        )
    }
}

impl Rows for Vec<AnyArray> {
    type Row<'a> = AnyRow<'a>;

    fn rows(&self) -> Result<usize, LengthMismatch> {
        same(self.iter().map(AnyArray::len))
    }

    #[inline]
    fn row(&self, index: usize) -> AnyRow<'_> {
        AnyRow::new(self, index)
    }

    #[inline]
    fn prefetch(&self, index: usize) {
        self.iter().for_each(|array| array.prefetch_row(index));
    }

    fn writes_rows(&self) -> bool {
        true
    }

    fn write_rows(&self, indices: &[usize], fields: &mut FieldsMut<'_, '_>) -> Result<(), BoxError> {
        self.iter().try_for_each(|array| {
            gather(
                indices,
                fields,
                (array.dtype(), array.row_shape()),
                |index| array.prefetch_row(index),
                |index| array.row_bytes(index),
            )
        })
    }
}

macro_rules! tuples {
    ($($($name:ident $field:tt),*;)*) => {$(
        impl<$($name: Rows),*> Rows for ($($name,)*) {
            type Row<'a> = ($($name::Row<'a>,)*);

            fn rows(&self) -> Result<usize, LengthMismatch> {
                same([$(self.$field.rows()?),*])
            }

            #[inline]
            fn row(&self, index: usize) -> Self::Row<'_> {
                ($(self.$field.row(index),)*)
            }

            #[inline]
            fn prefetch(&self, index: usize) {
                $(self.$field.prefetch(index);)*
            }

            fn writes_rows(&self) -> bool {
                $(self.$field.writes_rows())&&*
            }

            #[inline]
            fn write_rows(&self, indices: &[usize], fields: &mut FieldsMut<'_, '_>) -> Result<(), BoxError> {
                $(self.$field.write_rows(indices, fields)?;)*
                Ok(())
            }
        }
    )*};
}

up_to_eight!(tuples);

/// Arrays of equal length, whose rows are the samples (torch's `TensorDataset`).
///
/// ```
/// use slotline::array::Array;
/// use slotline::dataset::{Dataset, TensorDataset};
///
/// let images = Array::new(vec![0_u8; 3 * 28 * 28], &[3, 28, 28])?;
/// let dataset = TensorDataset::new((images, vec![5_i64, 0, 4]))?;
/// assert_eq!(dataset.len(), 3);
/// # Ok::<(), slotline::BoxError>(())
/// ```
#[derive(Clone, Debug)]
pub struct TensorDataset<R> {
    rows: R,
    len: usize,
}

impl<R: Rows> TensorDataset<R> {
    /// Makes a dataset whose samples are the rows of `rows`.
    ///
    /// # Errors
    ///
    /// If its parts have different numbers of rows.
    pub fn new(rows: R) -> Result<Self, LengthMismatch> {
        let len = rows.rows()?;
        Ok(Self { rows, len })
    }

    /// Returns the arrays.
    pub fn rows(&self) -> &R {
        &self.rows
    }
}

impl<R: Rows> Dataset for TensorDataset<R> {
    type Sample<'a> = R::Row<'a>;

    fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn get<'a>(&'a self, index: usize, _: &'a mut Context) -> Result<R::Row<'a>, BoxError> {
        if index >= self.len {
            return Err(OutOfRange::error("TensorDataset", index, self.len));
        }
        Ok(self.rows.row(index))
    }

    #[inline]
    fn prefetch(&self, index: usize) {
        self.rows.prefetch(index);
    }

    fn writes_many(&self) -> bool {
        self.rows.writes_rows()
    }

    fn write_many(&self, indices: &[usize], _: &mut Context, rows: &mut RowsMut<'_>) -> Result<(), BoxError> {
        // An index that is out of range is an error only of its own sample, so the samples before it are written first.
        let good = indices.iter().position(|&index| index >= self.len).unwrap_or(indices.len());
        if self.rows.writes_rows() {
            let mut fields = rows.fields(good)?;
            self.rows.write_rows(&indices[..good], &mut fields)?;
            fields.finish()?;
        } else {
            indices[..good].iter().try_for_each(|&index| rows.push(self.rows.row(index)))?;
        }
        match indices.get(good) {
            Some(&index) => Err(OutOfRange::error("TensorDataset", index, self.len)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unequal_lengths_name_the_array_that_differs() {
        let error = TensorDataset::new((vec![1, 2, 3], vec![1, 2, 3], vec![1.0, 2.0])).unwrap_err();
        assert_eq!(error, LengthMismatch { first: 3, tensor: 3, other: 2 });
        assert!(error.to_string().contains("the first has 3 rows, number 3 has 2"));
        let arrays = vec![AnyArray::from(Array::new(vec![0_u8; 4], &[4]).unwrap())];
        assert_eq!(TensorDataset::new(arrays).unwrap().len(), 4);
    }
}
