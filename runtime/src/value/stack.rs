//! Tensors of a batch, one after the other in a new one.

use std::collections::TryReserveError;

use super::{CollateError, Collation, Value};
use crate::arena::has_room;
use crate::array::{AnyArray, Array};
use crate::dtype::{DType, Element, for_dtype};
use crate::shape::{Shape, ShapeError};
use crate::tensor::AnyTensorView;

/// Stacks tensors along a new first dimension. There is at least one.
pub(super) fn tensors(batch: &[&AnyArray], collation: &Collation<'_>) -> Result<Value, CollateError> {
    let first = batch[0];
    for (sample, array) in batch.iter().enumerate() {
        if array.dtype() != first.dtype() {
            let (expected, found) = (first.dtype(), array.dtype());
            return Err(CollateError::DType { path: collation.path(), sample, expected, found });
        }
        if array.shape() != first.shape() {
            let (expected, found) = (first.shape().to_vec(), array.shape().to_vec());
            return Err(CollateError::Shape { path: collation.path(), sample, expected, found });
        }
    }
    let shape = stacked(first, batch.len()).map_err(|source| CollateError::Stack { path: collation.path(), source })?;
    // The same tensor may come any number of times, so the sum may be anything.
    let bytes = first.bytes().len() as u128 * batch.len() as u128;
    let refused = || CollateError::Memory { path: collation.path(), samples: batch.len(), bytes };
    if !usize::try_from(bytes).is_ok_and(has_room) {
        return Err(refused());
    }
    let views = batch.iter().map(|array| array.view());
    Ok(joined(first.dtype(), shape, views).map_err(|_| refused())?.into())
}

/// The shape of so many tensors stacked, whose elements can be counted.
fn stacked(tensor: &AnyArray, rows: usize) -> Result<Shape, ShapeError> {
    let shape = Shape::new(tensor.shape())?.stacked(rows)?;
    if shape.elements().is_none() { Err(ShapeError::TooLarge { shape }) } else { Ok(shape) }
}

/// A tensor of this shape, made of all elements of these, which are of type `dtype` and as many as the shape has.
pub(super) fn joined<'v>(
    dtype: DType,
    shape: Shape,
    parts: impl Iterator<Item = AnyTensorView<'v>>,
) -> Result<AnyArray, TryReserveError> {
    for_dtype!(dtype, T => typed::<T>(shape, parts))
}

fn typed<'v, T: Element>(
    shape: Shape,
    parts: impl Iterator<Item = AnyTensorView<'v>>,
) -> Result<AnyArray, TryReserveError> {
    let mut data = Vec::new();
    data.try_reserve_exact(shape.elements().unwrap_or(usize::MAX))?;
    parts.for_each(|part| data.extend_from_slice(part.typed::<T>().expect("parts of one dtype").as_slice()));
    Ok(Array::with_shape(data, shape).expect("as many elements as the shape has").into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::{bf16, f16};
    use crate::value::default_collate;

    #[test]
    fn a_batch_larger_than_memory_is_an_error() {
        let sample = Value::from(vec![0_u8; 1 << 24]);
        let error = default_collate(vec![sample; 1 << 20]).unwrap_err();
        assert!(matches!(&error, CollateError::Memory { bytes, .. } if *bytes == 1 << 44), "{error}");
    }

    #[test]
    fn shapes_that_cant_be_counted_or_have_no_room_for_a_dimension_are_errors() {
        let hollow = Value::from(Array::<u8>::new(vec![], &[0, isize::MAX as usize]).unwrap());
        assert!(default_collate([&hollow]).is_ok());
        let error = default_collate([&hollow, &hollow]).unwrap_err();
        assert!(matches!(error, CollateError::Stack { source: ShapeError::TooLarge { .. }, .. }), "{error}");
        let full = Value::from(Array::new(vec![1_u8], &[1; 8]).unwrap());
        let error = default_collate([full]).unwrap_err();
        assert!(matches!(error, CollateError::Stack { source: ShapeError::TooManyDims { .. }, .. }), "{error}");
    }

    #[test]
    fn every_dtype_is_stacked() {
        let f16 = |bits: u16| f16::from_le_bytes(bits.to_le_bytes());
        let bf16 = |bits: u16| bf16::from_le_bytes(bits.to_le_bytes());
        macro_rules! check {
            ($($type:ident $a:expr, $b:expr, $c:expr;)*) => {$(
                let batch = default_collate([[$a, $b], [$c, $a]] as [[$type; 2]; 2]).unwrap();
                let tensor = batch.typed::<$type>().unwrap();
                assert_eq!((tensor.as_slice(), tensor.shape()), (&[$a, $b, $c, $a][..], &[2, 2][..]));
            )*};
        }
        check! {
            bool true, false, false;
            u8 1, 2, 255; i8 1, 2, -128; u16 1, 2, u16::MAX; i16 1, 2, i16::MIN; u32 1, 2, u32::MAX; i32 1, 2, i32::MIN;
            u64 1, 2, u64::MAX; i64 1, 2, i64::MIN; f32 1.0, 0.5, f32::MAX; f64 1.0, 0.5, f64::MAX;
            f16 f16(1), f16(2), f16(0x7bff); bf16 bf16(1), bf16(2), bf16(0x7f7f);
        }
    }
}
