//! Checks that tensors use the memory of batches, and keep it alive.

use num_complex::Complex;
use slotline::dataset::from_fn;
use slotline::dtype::Element;
use slotline::loader::{Budget, OnError};
use slotline::sample::{Packed, PaddedToMax};
use slotline::{BoxError, Dataset, Loader, Sample};
use slotline_tch::{Error, Tensors, tensors};
use tch::{Kind, Tensor};

fn numbers(len: usize) -> impl Dataset<Sample<'static> = ([f32; 3], i64)> {
    from_fn(len, |index, _| Ok(([index as f32; 3], index as i64)))
}

/// Loads a dataset as one batch, and converts it.
fn one<D: Dataset>(dataset: D) -> Result<Result<Tensors<Tensor>, Error>, BoxError> {
    let len = dataset.len();
    let mut loader = Loader::builder(dataset).batch_size(len).num_workers(1).build()?;
    let batch = loader.epoch()?.next().expect("a batch")?;
    Ok(tensors(batch))
}

#[test]
fn a_tensor_is_the_batchs_memory() -> Result<(), BoxError> {
    let mut loader = Loader::builder(numbers(8)).batch_size(4).num_workers(1).build()?;
    for batch in loader.epoch()? {
        let batch = batch?;
        let (rows, labels) = batch.tensors();
        let expected = [rows.as_slice().as_ptr().addr(), labels.as_slice().as_ptr().addr()];
        let made: [Tensor; 2] = tensors(batch)?.into_array()?;
        assert_eq!(made.each_ref().map(|tensor| tensor.data_ptr().addr()), expected);
        assert_eq!((made[0].size(), made[1].size()), (vec![4, 3], vec![4]));
    }
    Ok(())
}

#[test]
fn bad_samples_are_left_out() -> Result<(), BoxError> {
    let numbers = from_fn(4, |index, _| if index == 1 { Err("sample 1 is bad".into()) } else { Ok(index as i64) });
    let skip = OnError::Skip(Budget::Samples(1));
    let mut loader = Loader::builder(numbers).batch_size(4).on_error(skip).build()?;
    let [labels] = tensors(loader.epoch()?.next().expect("a batch")?)?.into_array()?;
    assert_eq!(Vec::<i64>::try_from(&labels)?, [0, 2, 3]);
    Ok(())
}

#[test]
fn a_batch_is_kept_until_the_last_view_is_dropped() -> Result<(), BoxError> {
    let mut loader = Loader::builder(numbers(40)).batch_size(2).num_workers(1).hold(2).build()?;
    // While a tensor uses the memory of a batch, the loader reuses its other memory many times, but
    // not this batch's.
    let [rows, labels] = tensors(loader.epoch()?.next().expect("a batch")?)?.into_array()?;
    let view = rows.get(1);
    drop((rows, labels));
    for _ in 0..3 {
        loader.epoch()?.try_for_each(|batch| batch.map(drop))?;
    }
    assert_eq!(Vec::<f32>::try_from(&view)?, [1.0; 3]);
    drop(view);
    // After such tensors are dropped, the loader needs no memory for more batches than at first.
    for _ in 0..3 {
        for batch in loader.epoch()? {
            let [rows, _] = tensors(batch?)?.into_array()?;
            // Autograd keeps the rows for its backward pass.
            let weights = Tensor::ones([3], (Kind::Float, tch::Device::Cpu)).set_requires_grad(true);
            let sum = (&rows * &weights).sum(Kind::Float);
            drop(rows);
            sum.backward();
        }
    }
    assert_eq!(loader.stats().extra_batches, 0);
    Ok(())
}

#[test]
fn tensors_outlive_the_loader_and_can_be_changed() -> Result<(), BoxError> {
    let [mut rows, labels] = one(numbers(4))??.into_array()?;
    let _ = rows.g_mul_scalar_(2);
    let rows = std::thread::spawn(move || Vec::<f32>::try_from(&rows.flatten(0, -1))).join().expect("no panic")?;
    assert_eq!(rows, [0.0, 0.0, 0.0, 2.0, 2.0, 2.0, 4.0, 4.0, 4.0, 6.0, 6.0, 6.0]);
    assert_eq!(Vec::<i64>::try_from(&labels)?, [0, 1, 2, 3]);
    Ok(())
}

fn same<T: Element>(kind: Kind, of: fn(u8) -> T) -> Result<(), BoxError> {
    let [tensor] = one(from_fn(3, move |index, _| Ok([of(index as u8 % 2); 2])))??.into_array()?;
    assert_eq!((tensor.kind(), tensor.size()), (kind, vec![3, 2]));
    assert_eq!(Vec::<f64>::try_from(&tensor.flatten(0, -1).to_kind(Kind::Double))?, [0.0, 0.0, 1.0, 1.0, 0.0, 0.0]);
    Ok(())
}

#[test]
fn types_that_both_have_stay_as_they_are() -> Result<(), BoxError> {
    same(Kind::Bool, |n| n == 1)?;
    same(Kind::Uint8, u8::from)?;
    same(Kind::Int8, |n| n as i8)?;
    same(Kind::Int16, i16::from)?;
    same(Kind::Int, i32::from)?;
    same(Kind::Int64, i64::from)?;
    same(Kind::Half, half::f16::from)?;
    same(Kind::BFloat16, half::bf16::from)?;
    same(Kind::Float, f32::from)?;
    same(Kind::Double, f64::from)?;
    same_complex(Kind::ComplexFloat, |re, im| Complex::new(re as f32, im as f32))?;
    same_complex(Kind::ComplexDouble, Complex::new)
}

fn same_complex<T: Element>(kind: Kind, of: fn(f64, f64) -> T) -> Result<(), BoxError> {
    let [tensor] = one(from_fn(3, move |index, _| Ok([of(index as f64, -0.5); 2])))??.into_array()?;
    assert_eq!((tensor.kind(), tensor.size()), (kind, vec![3, 2]));
    let part = |part: tch::Tensor| Vec::<f64>::try_from(&part.flatten(0, -1).to_kind(Kind::Double));
    assert_eq!(part(tensor.real())?, [0.0, 0.0, 1.0, 1.0, 2.0, 2.0]);
    assert_eq!(part(tensor.imag())?, [-0.5; 6]);
    Ok(())
}

fn lacking<T: Element>(value: T) -> Result<(), BoxError> {
    let error = one(from_fn(3, move |_, _| Ok((1_i64, value))))?.unwrap_err();
    let message =
        format!("field 1 has elements of type {}, which tch does not have; convert them in the dataset", T::DTYPE);
    assert_eq!(error.to_string(), message);
    Ok(())
}

#[test]
fn a_type_that_tch_lacks_is_an_error_that_names_the_field() -> Result<(), BoxError> {
    lacking(1_u16)?;
    lacking(1_u32)?;
    lacking(1_u64)
}

#[derive(Sample)]
struct Text<'a> {
    letters: PaddedToMax<'a, u8>,
    tokens: Packed<'a, i32>,
}

#[test]
fn fields_of_different_lengths_have_a_second_tensor() -> Result<(), BoxError> {
    const NUMBERS: [i32; 3] = [5, 6, 7];
    let texts = from_fn(3, |index, _| {
        Ok(Text { letters: PaddedToMax::new(&b"abc"[index..], 4), tokens: Packed::new(&NUMBERS[..index + 1], 2) })
    });
    let tensors = one(texts)??;
    let names: Vec<&str> = tensors.iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["letters", "letters.lengths", "tokens", "tokens.offsets"]);
    assert_eq!(tensors.get("letters").expect("a tensor").size(), [3, 4]);
    assert_eq!(Vec::<i64>::try_from(tensors.get("letters.lengths").expect("lengths"))?, [3, 2, 1]);
    assert_eq!(Vec::<i32>::try_from(tensors.get("tokens").expect("a tensor"))?, [5, 5, 6, 5, 6, 7]);
    assert_eq!(Vec::<i64>::try_from(tensors.get("tokens.offsets").expect("offsets"))?, [0, 1, 3, 6]);
    Ok(())
}
