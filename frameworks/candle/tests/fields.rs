//! Tests of converting fields of every type and kind to tensors.

use std::fmt::Debug;

use candle_core::{DType, Device, Tensor, WithDType};
use slotline::dataset::from_fn;
use slotline::dtype::Element;
use slotline::loader::{Budget, OnError};
use slotline::sample::{Lazy, Packed, PaddedToLongest, PaddedToMax};
use slotline::{BoxError, Dataset, Loader, Sample};
use slotline_candle::{Error, Tensors, collate, tensors};

/// Loads a dataset as one batch with `tensors` and with `collate`, and checks that the results
/// agree.
fn both<D: Dataset>(make: impl Fn() -> D) -> Result<Tensors<Tensor>, BoxError> {
    let len = make().len();
    let mut loader = Loader::builder(make()).batch_size(len).build()?;
    let by_loop = tensors(&loader.epoch()?.next().expect("a batch")?, &Device::Cpu)?;
    let mut loader = Loader::builder(make()).batch_size(len).num_workers(2).collate(collate).build()?;
    let by_worker = loader.epoch()?.next().expect("a batch")?;
    assert_eq!(by_loop.iter().len(), by_worker.iter().len());
    for ((name, a), (other, b)) in by_loop.iter().zip(by_worker.iter()) {
        assert_eq!((name, a.dtype(), a.dims()), (other, b.dtype(), b.dims()));
        assert_eq!(
            a.flatten_all()?.to_dtype(DType::F64)?.to_vec1::<f64>()?,
            b.flatten_all()?.to_dtype(DType::F64)?.to_vec1::<f64>()?
        );
    }
    Ok(by_loop)
}

fn elements<T: WithDType>(tensors: &Tensors<Tensor>, name: &str) -> Vec<T> {
    tensors.get(name).unwrap_or_else(|| panic!("no tensor {name}")).flatten_all().unwrap().to_vec1().unwrap()
}

fn same<T: Element + WithDType + Debug>(of: fn(u8) -> T) -> Result<(), BoxError> {
    let tensors = both(|| from_fn(3, move |index, _| Ok([[of(index as u8); 2]; 2])))?;
    assert_eq!(elements::<T>(&tensors, "0"), [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2].map(of));
    Ok(())
}

#[test]
fn types_that_both_have_stay_as_they_are() -> Result<(), BoxError> {
    same(u8::from)?;
    same(i16::from)?;
    same(i32::from)?;
    same(u32::from)?;
    same(i64::from)?;
    same(half::f16::from)?;
    same(half::bf16::from)?;
    same(f32::from)?;
    same(f64::from)?;
    let tensors = both(|| from_fn(3, |index, _| Ok(index == 1)))?;
    assert_eq!(elements::<u8>(&tensors, "0"), [0, 1, 0]);
    Ok(())
}

fn lacking<T: Element>(value: T) -> Result<(), BoxError> {
    let batches = || Loader::builder(from_fn(3, move |_, _| Ok((1_i64, value)))).batch_size(3);
    let mut loader = batches().build()?;
    let error = tensors(&loader.epoch()?.next().expect("a batch")?, &Device::Cpu).unwrap_err();
    assert!(matches!(&error, Error::DType { field, dtype, .. } if field == "1" && *dtype == T::DTYPE));
    let message =
        format!("field 1 has elements of type {}, which candle does not have; convert them in the dataset", T::DTYPE);
    assert_eq!(error.to_string(), message);
    let mut loader = batches().collate(collate).build()?;
    let error = loader.epoch()?.next().expect("a batch").unwrap_err();
    assert!(chain(&error).contains(&message), "{}", chain(&error));
    Ok(())
}

fn chain(error: &dyn std::error::Error) -> String {
    format!("{error}: {}", error.source().map(chain).unwrap_or_default())
}

#[test]
fn a_type_that_candle_lacks_is_an_error_that_names_the_field() -> Result<(), BoxError> {
    lacking(1_i8)?;
    lacking(1_u16)?;
    lacking(1_u64)?;
    lacking(num_complex::Complex::new(1_f32, 0.0))?;
    lacking(num_complex::Complex::new(1_f64, 0.0))
}

#[derive(Sample)]
struct Text<'a> {
    letters: PaddedToMax<'a, u8>,
    tokens: Packed<'a, u32>,
    label: i64,
}

#[test]
fn fields_of_different_lengths_have_a_second_tensor() -> Result<(), BoxError> {
    const NUMBERS: [u32; 3] = [5, 6, 7];
    let texts = || {
        from_fn(3, |index, _| {
            Ok(Text {
                letters: PaddedToMax::new(&b"abc"[index..], 4),
                tokens: Packed::new(&NUMBERS[..index + 1], 2),
                label: 9,
            })
        })
    };
    let tensors = both(texts)?;
    let names: Vec<&str> = tensors.iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["letters", "letters.lengths", "tokens", "tokens.offsets", "label"]);
    assert_eq!(elements::<u8>(&tensors, "letters"), *b"abc\0bc\0\0c\0\0\0");
    assert_eq!(elements::<i64>(&tensors, "letters.lengths"), [3, 2, 1]);
    assert_eq!(elements::<u32>(&tensors, "tokens"), [5, 5, 6, 5, 6, 7]);
    assert_eq!(elements::<i64>(&tensors, "tokens.offsets"), [0, 1, 3, 6]);
    let error = tensors.into_array::<2>().unwrap_err().to_string();
    assert!(error.starts_with("2 tensors were asked for, but the batch has 5: letters, letters.lengths,"), "{error}");
    Ok(())
}

#[test]
fn padding_to_the_longest_needs_the_loaders_own_batches() -> Result<(), BoxError> {
    let texts =
        || Loader::builder(from_fn(2, |index, _| Ok((PaddedToLongest::owned(vec![1_i64; index + 1], 4), 0.5)))).batch_size(2);
    let mut loader = texts().build()?;
    let tensors = tensors(&loader.epoch()?.next().expect("a batch")?, &Device::Cpu)?;
    assert_eq!(tensors.get("0").expect("a field").to_vec2::<i64>()?, [[1, 0], [1, 1]]);
    let mut loader = texts().collate(collate).build()?;
    let error = chain(&loader.epoch()?.next().expect("a batch").unwrap_err());
    assert!(
        error.contains("field 0 is padded to the longest sample") && error.contains("slotline_candle::tensors"),
        "{error}"
    );
    Ok(())
}

#[test]
fn a_single_sample_has_the_shape_of_its_fields() -> Result<(), BoxError> {
    let samples = || Loader::builder(from_fn(2, |index, _| Ok(([index as f32; 3], index as i64)))).batch_size(None);
    let mut loader = samples().collate(collate).build()?;
    let [row, label] = loader.epoch()?.nth(1).expect("two samples")?.into_array()?;
    assert_eq!((row.dims(), label.dims(), label.to_scalar::<i64>()?), (&[3][..], &[][..], 1));
    let mut loader = samples().build()?;
    let batch = loader.epoch()?.nth(1).expect("two samples")?;
    let [row, label] = tensors(&batch, &Device::Cpu)?.into_array()?;
    assert_eq!((row.dims(), label.dims(), label.to_scalar::<i64>()?), (&[3][..], &[][..], 1));
    Ok(())
}

#[test]
fn what_a_stack_leaves_out_collate_leaves_out() -> Result<(), BoxError> {
    // The bad samples include the first one of a batch.
    let pictures = || {
        from_fn(20, |index, _| {
            let picture = Lazy::new([2], move |row: &mut [f32]| {
                match index {
                    3 | 4 | 11 => return Err("a damaged picture".into()),
                    13 => panic!("a picture that no one expects"),
                    _ => row.fill(index as f32),
                }
                Ok(())
            });
            Ok((picture, index as i64))
        })
    };
    let most = Budget::Samples(usize::MAX);
    for (on_error, workers) in [(OnError::Skip(most), 0), (OnError::Skip(most), 2), (OnError::Replace(most), 2)] {
        let builder = || Loader::builder(pictures()).batch_size(4).seed(3).num_workers(workers).on_error(on_error);
        let (mut stacked, mut collated) = (builder().build()?, builder().collate(collate).build()?);
        let (mut wanted, mut got) = (Vec::new(), Vec::new());
        for batch in stacked.epoch()? {
            let tensors = tensors(&batch?, &Device::Cpu)?;
            wanted.push((elements::<f32>(&tensors, "0"), elements::<i64>(&tensors, "1")));
        }
        for batch in collated.epoch()? {
            let tensors = batch?;
            got.push((elements::<f32>(&tensors, "0"), elements::<i64>(&tensors, "1")));
        }
        assert_eq!(got, wanted);
        let labels: usize = got.iter().map(|(_, labels)| labels.len()).sum();
        assert_eq!(labels, if matches!(on_error, OnError::Replace(_)) { 20 } else { 16 });
        assert_eq!(collated.stats().bad_indices, stacked.stats().bad_indices);
    }
    let error = Loader::builder(pictures()).batch_size(4).collate(collate).build()?.epoch()?.next().expect("a batch");
    assert!(matches!(error, Err(slotline::Error::Sample { index: 3, .. })), "{error:?}");
    // An element type that candle does not have remains an error, even if bad samples are skipped.
    let builder = Loader::builder(from_fn(3, |_, _| Ok(1_i8))).on_error(OnError::Skip(most));
    assert!(builder.collate(collate).build()?.epoch()?.all(|batch| batch.is_err()));
    Ok(())
}
