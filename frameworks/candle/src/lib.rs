#![doc = include_str!("../../../docs/src/frameworks/candle.md")]

mod collate;
#[cfg(feature = "cuda")]
mod cuda;
mod dtype;

use candle_core::{Device, Tensor};
use slotline::Batch;
pub use slotline_fields::{Error, Tensors};

pub use self::collate::collate;
#[cfg(feature = "cuda")]
pub use self::cuda::device_tensors;
use self::dtype::{numbers, with_type};

/// Copies a batch to `device`: one tensor for each field.
///
/// The copies are made by the calling thread. With [`collate`], the workers make them.
///
/// # Errors
///
/// [`Error::DType`] for a field whose type candle does not have; [`Error::Tensor`] if candle fails.
pub fn tensors<S>(batch: &Batch<S>, device: &Device) -> Result<Tensors<Tensor>, Error> {
    let columns = batch.columns();
    slotline_fields::convert(&columns, |i, field, ends| {
        if let Some(ends) = ends {
            return Tensor::from_slice(ends, ends.len(), device).map_err(Error::of(field));
        }
        let view = numbers(&columns.get(i).expect("a field has a tensor"));
        with_type!(field, T => {
            let view = view.typed::<T>().expect("the type was looked up");
            Tensor::from_slice(view.as_slice(), view.shape(), device).map_err(Error::of(field))
        })
    })
}
