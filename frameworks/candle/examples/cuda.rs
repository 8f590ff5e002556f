//! Converts batches on a GPU to tensors of candle, and compares them with those of a loader in host
//! memory.
//!
//! ```sh
//! cargo run --release -p slotline-candle --features cuda --example cuda
//! ```
//!
//! candle needs `nvcc` and the CUDA toolkit's libraries to build, and a driver to start.

use candle_core::{DType, Device, Tensor};
use slotline::dataset::TensorDataset;
use slotline::{BoxError, Loader};
use slotline_candle::{device_tensors, tensors};
use slotline_cuda::DeviceLoader;

fn main() -> Result<(), BoxError> {
    slotline_cuda::probe()?;
    let candle = Device::new_cuda(0)?;
    let device = slotline_cuda::Device::from_context(candle.as_cuda_device()?.cuda_stream().context())?;
    println!("{device:?}");

    let digits = || TensorDataset::new(slotline::source::digits());
    let mut expected = Loader::builder(digits()?).batch_size(64).shuffle(true).seed(42).build()?;
    let host = Loader::builder(digits()?).batch_size(64).shuffle(true).seed(42).num_workers(2);
    let mut loader = DeviceLoader::new(host.hold(3).memory(device.pinned()).build()?, &device)?;
    for epoch in 0..3 {
        // Keeps the tensors of all batches of an epoch, so that most slots are filled again before
        // the tensors are read.
        let made = loader.epoch()?.map(|batch| device_tensors(&batch?, &candle)).collect::<Result<Vec<_>, _>>()?;
        let mut total = 0.0;
        for (made, batch) in made.into_iter().zip(expected.epoch()?) {
            let batch = batch?;
            for ((name, made), (_, expected)) in made.into_iter().zip(tensors(&batch, &Device::Cpu)?) {
                let numbers = numbers(&made)?;
                if made.dims() != expected.dims() || numbers != self::numbers(&expected)? {
                    return Err(format!("field {name} of batch {} differs", batch.batch_index()).into());
                }
                total += numbers.iter().sum::<f64>();
            }
        }
        println!("epoch {epoch}: the sum of all elements is {total}");
    }
    println!("ok");
    Ok(())
}

/// Copies the elements of a tensor to the host.
fn numbers(tensor: &Tensor) -> candle_core::Result<Vec<f64>> {
    tensor.to_device(&Device::Cpu)?.to_dtype(DType::F64)?.flatten_all()?.to_vec1()
}
