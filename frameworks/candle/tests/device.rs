//! Tests of converting batches on a CUDA device. They need a GPU: a program with candle's feature
//! `cuda` does not start without a driver.
#![cfg(feature = "cuda")]

use candle_core::{DType, Device, Tensor};
use half::{bf16, f16};
use slotline::dataset::from_fn;
use slotline::sample::{Packed, PaddedToLongest, PaddedToMax};
use slotline::{BoxError, Dataset, Loader, Sample};
use slotline_candle::{Error, device_tensors, tensors};
use slotline_cuda::DeviceLoader;

#[derive(Sample)]
struct Everything {
    bool: bool,
    u8: u8,
    i16: i16,
    i32: i32,
    u32: u32,
    i64: i64,
    f16: [f16; 3],
    bf16: bf16,
    f32: f32,
    f64: [[f64; 2]; 2],
    padded: PaddedToMax<'static, u8>,
    packed: Packed<'static, u32>,
    padded: PaddedToLongest<'static, i64>,
}

fn everything(index: usize) -> Everything {
    Everything {
        bool: index.is_multiple_of(3),
        u8: index as u8,
        i16: -(index as i16),
        i32: -(index as i32),
        u32: index as u32,
        i64: -(index as i64),
        f16: [f16::from_f32(index as f32); 3],
        bf16: bf16::from_f32(index as f32),
        f32: index as f32,
        f64: [[index as f64; 2]; 2],
        padded: PaddedToMax::new(&b"abcdefg"[..index % 8], 7),
        // The samples of the first batch have no elements.
        packed: Packed::new(&[1, 2, 3][..if index < 8 { 0 } else { index % 4 }], 3),
        padded: PaddedToLongest::new(&[1, 2, 3, 4, 5][..index % 6], 5),
    }
}

/// Creates candle's device, and a loader that delivers to it.
fn to_device(dataset: impl Dataset) -> Result<(Device, DeviceLoader), BoxError> {
    let candle = Device::new_cuda(0)?;
    let device = slotline_cuda::Device::from_context(candle.as_cuda_device()?.cuda_stream().context())?;
    let host = Loader::builder(dataset).batch_size(8).hold(2).memory(device.pinned()).build()?;
    Ok((candle, DeviceLoader::with_slots(host, &device, 2)?))
}

fn elements(tensor: &Tensor) -> candle_core::Result<Vec<f64>> {
    tensor.to_device(&Device::Cpu)?.to_dtype(DType::F64)?.flatten_all()?.to_vec1()
}

#[test]
fn fields_of_every_kind_are_the_host_s() -> Result<(), BoxError> {
    let dataset = || from_fn(60, |index, _| Ok(everything(index)));
    let (candle, mut loader) = to_device(dataset())?;
    let mut host = Loader::builder(dataset()).batch_size(8).build()?;
    let made = loader.epoch()?.map(|batch| device_tensors(&batch?, &candle)).collect::<Result<Vec<_>, _>>()?;
    drop(loader);
    assert_eq!(made.len(), 8);
    for (made, batch) in made.iter().zip(host.epoch()?) {
        let expected = tensors(&batch?, &Device::Cpu)?;
        assert_eq!(made.iter().len(), expected.iter().len());
        for ((name, made), (expected_name, expected)) in made.iter().zip(expected.iter()) {
            assert!(made.device().is_cuda());
            assert_eq!((name, made.dtype(), made.dims()), (expected_name, expected.dtype(), expected.dims()));
            assert_eq!(elements(made)?, elements(expected)?, "{name}");
        }
    }
    Ok(())
}

#[test]
fn types_and_devices_that_do_not_fit_are_errors() -> Result<(), BoxError> {
    let (candle, mut loader) = to_device(from_fn(8, |_, _| Ok((1_i64, 1_u16))))?;
    let batch = loader.epoch()?.next().expect("a batch")?;
    let error = device_tensors(&batch, &candle).unwrap_err();
    let error = error.downcast_ref::<Error>().expect("slotline's error");
    assert!(matches!(error, Error::DType { field, .. } if field == "1"), "{error}");
    assert!(device_tensors(&batch, &Device::Cpu).is_err());
    Ok(())
}
