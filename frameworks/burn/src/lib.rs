#![doc = include_str!("../../../docs/src/frameworks/burn.md")]

mod loader;

use std::sync::Arc;

use burn::tensor::{AllocationProperty, BoolStore, Bytes, DType, Device, TensorData};
use slotline::Batch;
use slotline::sample::Dynamic;
pub use slotline_fields::{Error, Tensors};

pub use self::loader::DataLoader;

/// Converts a batch to tensor data without copying its elements: one [`TensorData`] for each field,
/// to be passed to `Tensor::from_data` on `device`.
///
/// # Errors
///
/// [`Error::DType`] for a field whose type the device does not support.
pub fn tensors<S>(batch: Batch<S>, device: &Device) -> Result<Tensors<TensorData>, Error> {
    let batch = Arc::new(batch.untyped());
    slotline_fields::convert(&batch.columns(), |i, field, ends| {
        if let Some(ends) = ends {
            return Ok(TensorData::new(ends.to_vec(), [ends.len()]));
        }
        let view = batch.columns().get(i).expect("a field has a tensor");
        let known = dtype(field.dtype()).filter(|&dtype| device.supports_dtype(dtype));
        let Some(dtype) = known else {
            let library = format!("burn's device {device:?}");
            return Err(Error::DType { field: field.name().to_owned(), dtype: field.dtype(), library });
        };
        let memory = bytes::Bytes::from_owner(FieldMemory { batch: Arc::clone(&batch), field: i });
        let bytes = Bytes::from_shared(memory, AllocationProperty::Other);
        TensorData::try_from_bytes(bytes, view.shape(), dtype).map_err(Error::of(field))
    })
}

/// The memory of one field, which keeps the batch alive.
struct FieldMemory {
    batch: Arc<Batch<Dynamic>>,
    field: usize,
}

impl AsRef<[u8]> for FieldMemory {
    fn as_ref(&self) -> &[u8] {
        self.batch.columns().get(self.field).expect("the field exists").bytes()
    }
}

fn dtype(dtype: slotline::dtype::DType) -> Option<DType> {
    use slotline::dtype::DType as Own;
    Some(match dtype {
        Own::Bool => DType::Bool(BoolStore::Native),
        Own::U8 => DType::U8,
        Own::I8 => DType::I8,
        Own::U16 => DType::U16,
        Own::I16 => DType::I16,
        Own::U32 => DType::U32,
        Own::I32 => DType::I32,
        Own::U64 => DType::U64,
        Own::I64 => DType::I64,
        Own::F16 => DType::F16,
        Own::BF16 => DType::BF16,
        Own::F32 => DType::F32,
        Own::F64 => DType::F64,
        _ => return None,
    })
}
