//! Tensors in the memory of a CUDA device.

use candle_core::cuda::CudaDType;
use candle_core::cuda::cudarc::driver::{CudaView, DeviceRepr};
use candle_core::op::BackpropOp;
use candle_core::{CudaDevice, CudaStorage, Device, Storage, Tensor};
use slotline::BoxError;
use slotline::dtype::DType;
use slotline_cuda::DeviceBatch;

use crate::dtype::with_type;
use crate::{Error, Tensors};

/// Converts a batch on a CUDA device to tensors of candle on that device: one for each field, as
/// [`tensors`](crate::tensors) does for batches in host memory.
///
/// candle's tensors own their memory, so each field is copied once, within the device's memory. The
/// copies are made on the stream of `device`, and the host does not wait for them; the batch can be
/// dropped when this function returns. Create slotline's device from candle's, so that both use the
/// same context:
///
/// ```no_run
/// use candle_core::Device;
/// use slotline::Loader;
/// use slotline::dataset::TensorDataset;
/// use slotline_candle::device_tensors;
/// use slotline_cuda::DeviceLoader;
///
/// let candle = Device::new_cuda(0)?;
/// let device = slotline_cuda::Device::from_context(candle.as_cuda_device()?.cuda_stream().context())?;
/// let digits = TensorDataset::new(slotline::source::digits())?;
/// let host = Loader::builder(digits).batch_size(64).num_workers(2).hold(3).memory(device.pinned()).build()?;
/// let mut loader = DeviceLoader::new(host, &device)?;
/// for batch in loader.epoch()? {
///     let [images, labels] = device_tensors(&batch?, &candle)?.into_array()?; // u8 [64, 8, 8] and i64 [64]
///     assert_eq!((images.dim(0)?, images.device().is_cuda()), (labels.dim(0)?, true));
/// }
/// # Ok::<(), slotline::BoxError>(())
/// ```
///
/// # Errors
///
/// [`Error::DType`] for a field whose type candle does not have; [`Error::Tensor`] if candle cannot
/// make a tensor; candle's error if `device` is not a CUDA device; [`slotline_cuda::Error`] if it
/// is not the batch's device, if the batch was made ready on too many streams, or if the driver
/// fails.
pub fn device_tensors(batch: &DeviceBatch, device: &Device) -> Result<Tensors<Tensor>, BoxError> {
    let device = device.as_cuda_device()?;
    let views = batch.views(&device.cuda_stream())?;
    let mut tensors = Vec::with_capacity(batch.fields());
    for (i, field) in (0..batch.fields()).filter_map(|i| Some((i, batch.field(i)?))) {
        let (declared, shape) = (field.field(), field.shape());
        let tensor = if field.dtype() == DType::Bool {
            let bools = views.get::<bool>(i)?;
            // SAFETY: a bool is a byte, 0 or 1.
            let bytes = unsafe { bools.transmute::<u8>(bools.len()) }.expect("as many bytes");
            copy(&bytes, shape, device).map_err(Error::of(declared))
        } else {
            with_type!(declared, T => copy(&views.get::<T>(i)?, shape, device).map_err(Error::of(declared)))
        };
        tensors.push((declared.name().to_owned(), tensor?));
        if let Some(ends) = views.ends(i)? {
            let name = format!("{}.{}", declared.name(), if declared.is_packed() { "offsets" } else { "lengths" });
            tensors.push((name, copy(&ends, &[ends.len()], device).map_err(Error::of(declared))?));
        }
    }
    Ok(tensors.into_iter().collect())
}

/// Copies elements to a new tensor, on the device's stream.
fn copy<T: CudaDType + DeviceRepr>(
    elements: &CudaView<'_, T>,
    shape: &[usize],
    device: &CudaDevice,
) -> candle_core::Result<Tensor> {
    // The driver does not allocate 0 bytes.
    // SAFETY: a tensor has the elements of its shape, and all of these are copied.
    let mut memory = unsafe { device.alloc::<T>(elements.len().max(1))? };
    device.memcpy_dtod(elements, &mut memory)?;
    let storage = Storage::Cuda(CudaStorage::wrap_cuda_slice(memory, device.clone()));
    Ok(Tensor::from_storage(storage, shape, BackpropOp::none(), false))
}
