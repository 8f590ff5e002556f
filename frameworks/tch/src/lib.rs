#![doc = include_str!("../../../docs/src/frameworks/tch.md")]

mod blob;

use std::sync::Arc;

use slotline::Batch;
use slotline::dtype::DType;
pub use slotline_fields::{Error, Tensors};
use tch::Tensor;

/// Converts a batch to tensors without copying: one for each field, in the memory of the batch.
///
/// The lengths and offsets of fields whose samples differ in length are copied.
///
/// # Errors
///
/// [`Error::DType`] for a field whose type tch does not have; [`Error::Tensor`] if libtorch fails.
pub fn tensors<S>(batch: Batch<S>) -> Result<Tensors<Tensor>, Error> {
    let batch = Arc::new(batch.untyped());
    let columns = batch.columns();
    slotline_fields::convert(&columns, |i, field, ends| {
        if let Some(ends) = ends {
            return Tensor::f_from_slice(ends).map_err(Error::of(field));
        }
        let Some(scalar_type) = scalar_type(field.dtype()) else {
            return Err(Error::DType {
                field: field.name().to_owned(),
                dtype: field.dtype(),
                library: "tch".to_owned(),
            });
        };
        blob::tensor(&batch, i, scalar_type).map_err(Error::of(field))
    })
}

/// Returns libtorch's number for a type that tch has, as in `c10/core/ScalarType.h`. (tch's own
/// table is private.)
fn scalar_type(dtype: DType) -> Option<i8> {
    Some(match dtype {
        DType::U8 => 0,
        DType::I8 => 1,
        DType::I16 => 2,
        DType::I32 => 3,
        DType::I64 => 4,
        DType::F16 => 5,
        DType::F32 => 6,
        DType::F64 => 7,
        DType::Complex64 => 9,
        DType::Complex128 => 10,
        DType::Bool => 11,
        DType::BF16 => 15,
        _ => return None,
    })
}
