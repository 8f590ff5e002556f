//! Stacking tensors of one shape into a new array.

use std::collections::TryReserveError;

use super::{AnyArray, Array};
use crate::arena::has_room;
use crate::dtype::{DType, Element, for_dtype};
use crate::shape::{Shape, ShapeError};
use crate::tensor::AnyTensorView;

/// The error of [`AnyArray::stack`]. `at` counts the tensors from 0.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StackError {
    /// There are no tensors.
    #[error("there are no tensors to stack; pass at least one")]
    Empty,
    /// A tensor's dtype differs from the first tensor's.
    #[error("tensor {at} is {found}, but tensor 0 is {expected}; convert them to one dtype")]
    DType {
        /// The number of the tensor.
        at: usize,
        /// The dtype of the first tensor.
        expected: DType,
        /// The dtype of this tensor.
        found: DType,
    },
    /// A tensor's shape differs from the first tensor's.
    #[error("tensor {at} has shape {found:?}, but tensor 0 has {expected:?}; resize or pad them")]
    Shape {
        /// The number of the tensor.
        at: usize,
        /// The shape of the first tensor.
        expected: Vec<usize>,
        /// The shape of this tensor.
        found: Vec<usize>,
    },
    /// The result has no valid shape.
    #[error(transparent)]
    Result(#[from] ShapeError),
    /// The result needs more memory than the system has.
    #[error("{tensors} tensors stacked are {bytes} bytes, more than the system has; stack fewer")]
    Memory {
        /// The number of tensors.
        tensors: usize,
        /// The size of all tensors, in bytes.
        bytes: u128,
    },
}

impl AnyArray {
    /// Copies tensors of one dtype and shape into a new array, along a new first dimension, as `torch.stack` does.
    ///
    /// The tensors are iterated twice: once to check them, and once to copy them.
    ///
    /// # Panics
    ///
    /// If a clone of the iterator yields different tensors than the iterator did.
    ///
    /// ```
    /// use slotline::array::{AnyArray, Array};
    ///
    /// let rows = [[1.0_f32, 2.0], [3.0, 4.0], [5.0, 6.0]].map(|row| AnyArray::from(Array::new(row.into(), &[2]).unwrap()));
    /// let stacked = AnyArray::stack(rows.iter().map(AnyArray::view))?;
    /// assert_eq!(stacked.shape(), [3, 2]);
    /// assert_eq!(stacked.row(2), rows[2].view());
    /// # Ok::<(), slotline::array::StackError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [`StackError`]. The size of a large result is first compared with the [available
    /// memory](crate::arena::available_memory).
    pub fn stack<'a>(
        tensors: impl IntoIterator<Item = AnyTensorView<'a>, IntoIter: Clone>,
    ) -> Result<Self, StackError> {
        let tensors = tensors.into_iter();
        let first = tensors.clone().next().ok_or(StackError::Empty)?;
        let mut len = 0;
        for (at, tensor) in tensors.clone().enumerate() {
            if tensor.dtype() != first.dtype() {
                return Err(StackError::DType { at, expected: first.dtype(), found: tensor.dtype() });
            }
            if tensor.shape() != first.shape() {
                let (expected, found) = (first.shape().to_vec(), tensor.shape().to_vec());
                return Err(StackError::Shape { at, expected, found });
            }
            len += 1;
        }
        let shape = Shape::new(first.shape())?.stacked(len)?;
        if shape.elements().is_none() {
            return Err(ShapeError::TooLarge { shape }.into());
        }
        // The same tensor may occur any number of times, so the sum has no limit.
        let bytes = first.bytes().len() as u128 * len as u128;
        let refused = || StackError::Memory { tensors: len, bytes };
        if !usize::try_from(bytes).is_ok_and(has_room) {
            return Err(refused());
        }
        joined(first.dtype(), shape, tensors.take(len)).map_err(|_| refused())
    }
}

impl From<AnyTensorView<'_>> for AnyArray {
    /// Copies the tensor.
    ///
    /// # Panics
    ///
    /// If the memory for the copy cannot be allocated.
    fn from(tensor: AnyTensorView<'_>) -> Self {
        let shape = Shape::new(tensor.shape()).expect("the shape of a tensor");
        joined(tensor.dtype(), shape, std::iter::once(tensor)).expect("the memory for a copy can be allocated")
    }
}

/// Makes an array of this shape from all elements of `parts`, which are of type `dtype` and as many as the shape needs.
fn joined<'v>(
    dtype: DType,
    shape: Shape,
    parts: impl Iterator<Item = AnyTensorView<'v>>,
) -> Result<AnyArray, TryReserveError> {
    for_dtype!(dtype, T => typed::<T>(shape, parts))
}

/// The panic message if the second iteration differs from the first one.
const CLONES: &str = "a clone of the iterator yields the same tensors";

fn typed<'v, T: Element>(
    shape: Shape,
    parts: impl Iterator<Item = AnyTensorView<'v>>,
) -> Result<AnyArray, TryReserveError> {
    let mut data = Vec::new();
    data.try_reserve_exact(shape.elements().unwrap_or(usize::MAX))?;
    parts.for_each(|part| data.extend_from_slice(part.typed::<T>().expect(CLONES).as_slice()));
    Ok(Array::with_shape(data, shape).expect(CLONES).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::{bf16, complex64, complex128, f16};

    fn array<T: Element>(data: impl Into<Vec<T>>, shape: &[usize]) -> AnyArray {
        Array::new(data.into(), shape).unwrap().into()
    }

    #[test]
    fn a_result_larger_than_memory_is_an_error() {
        let part = array(vec![0_u8; 1 << 24], &[1 << 24]);
        let error = AnyArray::stack(std::iter::repeat_n(part.view(), 1 << 20)).unwrap_err();
        assert_eq!(error, StackError::Memory { tensors: 1 << 20, bytes: 1 << 44 });
    }

    #[test]
    fn too_many_elements_or_dimensions_are_errors() {
        let hollow = array::<u8>([], &[0, isize::MAX as usize]);
        assert!(AnyArray::stack([hollow.view()]).is_ok());
        let error = AnyArray::stack([hollow.view(), hollow.view()]).unwrap_err();
        assert!(matches!(error, StackError::Result(ShapeError::TooLarge { .. })), "{error}");
        let error = AnyArray::stack([array([1_u8], &[1; 8]).view()]).unwrap_err();
        assert!(matches!(error, StackError::Result(ShapeError::TooManyDims { .. })), "{error}");
    }

    #[test]
    fn mismatched_or_missing_tensors_are_errors() {
        let (first, long, other) = (array([1_u8], &[1]), array([1_u8, 2], &[2]), array([1_i8], &[1]));
        assert_eq!(AnyArray::stack([]), Err(StackError::Empty));
        let error = AnyArray::stack([first.view(), first.view(), long.view()]).unwrap_err();
        assert_eq!(error, StackError::Shape { at: 2, expected: vec![1], found: vec![2] });
        let error = AnyArray::stack([&first, &other].map(AnyArray::view)).unwrap_err();
        assert_eq!(error, StackError::DType { at: 1, expected: DType::U8, found: DType::I8 });
    }

    #[test]
    fn every_dtype_can_be_stacked_and_copied() {
        let f16 = |bits: u16| f16::from_le_bytes(bits.to_le_bytes());
        let bf16 = |bits: u16| bf16::from_le_bytes(bits.to_le_bytes());
        macro_rules! check {
            ($($type:ident $a:expr, $b:expr, $c:expr;)*) => {$(
                let parts = [[$a, $b], [$c, $a]].map(|part| array::<$type>(part, &[2]));
                let stacked = AnyArray::stack(parts.iter().map(AnyArray::view)).unwrap();
                assert_eq!(stacked, array::<$type>([$a, $b, $c, $a], &[2, 2]));
                assert_eq!(AnyArray::from(stacked.row(1)), parts[1]);
            )*};
        }
        check! {
            bool true, false, false;
            u8 1, 2, 255; i8 1, 2, -128; u16 1, 2, u16::MAX; i16 1, 2, i16::MIN; u32 1, 2, u32::MAX; i32 1, 2, i32::MIN;
            u64 1, 2, u64::MAX; i64 1, 2, i64::MIN; f32 1.0, 0.5, f32::MAX; f64 1.0, 0.5, f64::MAX;
            f16 f16(1), f16(2), f16(0x7bff); bf16 bf16(1), bf16(2), bf16(0x7f7f);
            complex64 complex64 { re: 1.0, im: 0.5 }, complex64 { re: 0.5, im: 1.0 }, complex64 { re: f32::MAX, im: 0.0 };
            complex128 complex128 { re: 1.0, im: 0.5 }, complex128 { re: 0.5, im: 1.0 }, complex128 { re: 0.0, im: f64::MIN };
        }
    }
}
