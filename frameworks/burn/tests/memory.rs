//! Checks that tensor data uses the memory of batches, and keeps it alive.

use burn::tensor::{Bool, DType, Device, Int, Tensor, TensorData};
use slotline::dataset::from_fn;
use slotline::dtype::Element;
use slotline::sample::{Packed, PaddedToMax};
use slotline::{BoxError, Dataset, Loader, Sample};
use slotline_burn::{Error, Tensors, tensors};

fn numbers(len: usize) -> impl Dataset<Sample<'static> = ([f32; 3], i64)> {
    from_fn(len, |index, _| Ok(([index as f32; 3], index as i64)))
}

/// Loads a dataset as one batch, and converts it.
fn one<D: Dataset>(dataset: D, device: &Device) -> Result<Result<Tensors<TensorData>, Error>, BoxError> {
    let len = dataset.len();
    let mut loader = Loader::builder(dataset).batch_size(len).num_workers(1).build()?;
    let batch = loader.epoch()?.next().expect("a batch")?;
    Ok(tensors(batch, device))
}

#[test]
fn data_is_the_batchs_memory() -> Result<(), BoxError> {
    let mut loader = Loader::builder(numbers(8)).batch_size(4).num_workers(1).build()?;
    for batch in loader.epoch()? {
        let batch = batch?;
        let (rows, labels) = batch.tensors();
        let expected = [rows.as_slice().as_ptr().addr(), labels.as_slice().as_ptr().addr()];
        let made: [TensorData; 2] = tensors(batch, &Device::flex())?.into_array()?;
        assert_eq!(made.each_ref().map(|data| data.bytes().as_ptr().addr()), expected);
        // Tensors of the backend Flex use the same memory, too.
        let [rows, labels] = made;
        let rows = Tensor::<2>::from_data(rows, &Device::flex());
        let labels = Tensor::<1, Int>::from_data(labels, (&Device::flex(), DType::I64));
        assert_eq!((rows.dims(), labels.dims()), ([4, 3], [4]));
        assert_eq!([rows.into_data(), labels.into_data()].map(|data| data.bytes().as_ptr().addr()), expected);
    }
    Ok(())
}

#[test]
fn a_batch_is_kept_until_the_last_view_is_dropped() -> Result<(), BoxError> {
    let device = Device::flex();
    let mut loader = Loader::builder(numbers(40)).batch_size(2).num_workers(1).hold(2).build()?;
    // While a tensor uses the memory of a batch, the loader reuses its other memory many times, but
    // not this batch's.
    let [rows, labels] = tensors(loader.epoch()?.next().expect("a batch")?, &device)?.into_array()?;
    let view = Tensor::<2>::from_data(rows, &device).narrow(0, 1, 1);
    drop(labels);
    for _ in 0..3 {
        loader.epoch()?.try_for_each(|batch| batch.map(drop))?;
    }
    assert_eq!(view.into_data().try_to_vec::<f32>()?, [1.0; 3]);
    // After such tensors are dropped, the loader needs no memory for more batches than at first.
    for _ in 0..3 {
        for batch in loader.epoch()? {
            let [rows, _] = tensors(batch?, &device)?.into_array()?;
            // Autograd keeps the rows for its backward pass.
            let rows = Tensor::<2>::from_data(rows, &device.clone().autodiff());
            let weights = Tensor::<2>::ones([2, 3], &device.clone().autodiff()).require_grad();
            drop((rows * weights).sum().backward());
        }
    }
    assert_eq!(loader.stats().extra_batches, 0);
    Ok(())
}

#[test]
fn an_operation_in_place_leaves_the_batch_as_it_is() -> Result<(), BoxError> {
    for device in [Device::flex(), Device::ndarray()] {
        let mut loader = Loader::builder(numbers(2)).batch_size(2).num_workers(1).build()?;
        let [rows, _] = tensors(loader.epoch()?.next().expect("a batch")?, &device)?.into_array()?;
        let rows = Tensor::<2>::from_data(rows, &device);
        let doubled = rows.clone() * 2;
        assert_eq!((doubled + 1).into_data().try_to_vec::<f32>()?, [1.0, 1.0, 1.0, 3.0, 3.0, 3.0]);
        assert_eq!(rows.into_data().try_to_vec::<f32>()?, [0.0, 0.0, 0.0, 1.0, 1.0, 1.0]);
    }
    Ok(())
}

fn same<T: Element>(dtype: DType, of: fn(u8) -> T, devices: &[Device]) -> Result<(), BoxError> {
    for device in devices {
        let [data] = one(from_fn(3, move |index, _| Ok([of(index as u8 % 2); 2])), device)??.into_array()?;
        assert_eq!((data.dtype(), data.shape().to_vec()), (dtype, vec![3, 2]));
        let numbers = match dtype {
            DType::Bool(_) => Tensor::<2, Bool>::from_data(data, device).int().into_data(),
            _ if dtype.is_float() => Tensor::<2>::from_data(data, (device, dtype)).into_data(),
            _ => Tensor::<2, Int>::from_data(data, (device, dtype)).into_data(),
        };
        assert_eq!(numbers.try_cast(DType::F64)?.try_to_vec::<f64>()?, [0.0, 0.0, 1.0, 1.0, 0.0, 0.0]);
    }
    Ok(())
}

#[test]
fn all_types_stay_as_they_are() -> Result<(), BoxError> {
    let (flex, both) = ([Device::flex()], [Device::flex(), Device::ndarray()]);
    same(DType::Bool(burn::tensor::BoolStore::Native), |n| n == 1, &both)?;
    same(DType::U8, u8::from, &both)?;
    same(DType::I8, |n| n as i8, &both)?;
    same(DType::U16, u16::from, &both)?;
    same(DType::I16, i16::from, &both)?;
    same(DType::U32, u32::from, &both)?;
    same(DType::I32, i32::from, &both)?;
    same(DType::U64, u64::from, &both)?;
    same(DType::I64, i64::from, &both)?;
    same(DType::F16, half::f16::from, &flex)?;
    same(DType::BF16, half::bf16::from, &flex)?;
    same(DType::F32, f32::from, &both)?;
    same(DType::F64, f64::from, &both)
}

#[test]
fn a_type_that_the_device_lacks_is_an_error_that_names_the_field() -> Result<(), BoxError> {
    fn lacking<T: Element>(value: T) -> Result<(), BoxError> {
        let error = one(from_fn(3, move |_, _| Ok((1_i64, value))), &Device::ndarray())?.unwrap_err().to_string();
        let start = format!("field 1 has elements of type {}, which burn's device", T::DTYPE);
        assert!(error.starts_with(&start) && error.to_lowercase().contains("ndarray"), "{error}");
        Ok(())
    }
    lacking(half::f16::ONE)?;
    lacking(half::bf16::ONE)?;
    lacking(num_complex::Complex::new(1_f32, 0.0))?;
    lacking(num_complex::Complex::new(1_f64, 0.0))
}

#[derive(Sample)]
struct Text<'a> {
    letters: PaddedToMax<'a, u8>,
    tokens: Packed<'a, u16>,
}

#[test]
fn fields_of_different_lengths_have_a_second_tensor() -> Result<(), BoxError> {
    const NUMBERS: [u16; 3] = [5, 6, 7];
    let texts = from_fn(3, |index, _| {
        Ok(Text { letters: PaddedToMax::new(&b"abc"[index..], 4), tokens: Packed::new(&NUMBERS[..index + 1], 2) })
    });
    let tensors = one(texts, &Device::flex())??;
    let names: Vec<&str> = tensors.iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["letters", "letters.lengths", "tokens", "tokens.offsets"]);
    assert_eq!(tensors.get("letters").expect("a tensor").shape().to_vec(), [3, 4]);
    assert_eq!(tensors.get("letters.lengths").expect("lengths").try_to_vec::<i64>()?, [3, 2, 1]);
    assert_eq!(tensors.get("tokens").expect("a tensor").try_to_vec::<u16>()?, [5, 5, 6, 5, 6, 7]);
    assert_eq!(tensors.get("tokens.offsets").expect("offsets").try_to_vec::<i64>()?, [0, 1, 3, 6]);
    Ok(())
}
