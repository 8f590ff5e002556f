//! Tests of every kind of sample, loaded and read back: values, names, shapes, strides, and the
//! alignment of tensors.

use std::fmt::Debug;

use slotline::array::{AnyArray, Array};
use slotline::dataset::{ConcatDataset, Context, Dataset, StackDataset, TensorDataset};
use slotline::dtype::{DType, Element};
use slotline::loader::{BatchOf, BuildError};
use slotline::sample::{Columns, Dynamic, Fields, LayoutError, Lazy, PaddedToMax, Row, Sample, Schema, Text};
use slotline::tensor::{AnyTensorView, TensorView};
use slotline::{Batch, BoxError, Loader};

use crate::support::{chain, from_fn};

pub(crate) const LEN: usize = 11;
const BATCH: usize = 4;

/// Loads a dataset in batches of 4, 4 and 3, with and without workers, and passes each batch to `look`.
#[track_caller]
pub(crate) fn load<D: Dataset>(
    make: impl Fn() -> D,
    names: &[&str],
    look: impl Fn(&BatchOf<D>, std::ops::Range<usize>),
) {
    for workers in [0, 2] {
        let mut loader =
            Loader::builder(make()).batch_size(BATCH).num_workers(workers).part_size(1 + workers).build().unwrap();
        for _ in 0..2 {
            let mut seen = 0;
            for batch in loader.epoch().unwrap() {
                let batch = batch.unwrap();
                let columns = batch.columns();
                let found: Vec<&str> = (0..columns.len()).map(|i| columns.field(i).unwrap().name()).collect();
                assert_eq!(found, names);
                assert!(columns.get(names.len()).is_none() && columns.field(names.len()).is_none());
                for i in 0..columns.len() {
                    let (field, column) = (columns.field(i).unwrap(), columns.get(i).unwrap());
                    assert!(field.is_packed() || column.shape()[0] == batch.len());
                    check_place(&column);
                }
                look(&batch, seen..seen + batch.len());
                seen += batch.len();
            }
            assert_eq!(seen, LEN);
        }
    }
}

/// Asserts that a tensor is aligned to 256 bytes and in C order.
fn check_place(tensor: &AnyTensorView<'_>) {
    assert_eq!(tensor.bytes().as_ptr().align_offset(256), 0);
    let mut step = 1;
    for (dim, stride) in tensor.shape().iter().zip(tensor.strides().iter()).rev() {
        assert_eq!(*stride, step);
        step *= dim;
    }
    assert_eq!(tensor.bytes().len(), step * tensor.dtype().size());
}

/// Checks every kind of sample with elements of one type.
fn every_kind<T: Element + PartialEq + Debug>(make: fn(usize) -> T) {
    load(
        || from_fn(LEN, move |i, _| Ok(make(i))),
        &["0"],
        |batch, range| {
            let tensor: TensorView<'_, T> = batch.tensors();
            assert!(tensor.as_slice().iter().copied().eq(range.map(make)));
            assert_eq!(batch.columns().field(0).unwrap().dtype(), T::DTYPE);
        },
    );
    load(
        || from_fn(LEN, move |i, _| Ok(([make(i), make(i + 1)], [[make(i)], [make(i + 2)], [make(i + 3)]]))),
        &["0", "1"],
        |batch, range| {
            let (pairs, columns) = batch.tensors();
            assert_eq!((pairs.shape(), columns.shape()), (&[range.len(), 2][..], &[range.len(), 3, 1][..]));
            for (row, i) in range.enumerate() {
                assert_eq!(pairs.row(row).as_slice(), [make(i), make(i + 1)]);
                assert_eq!(columns.row(row).as_slice(), [make(i), make(i + 2), make(i + 3)]);
            }
        },
    );
    load(
        || from_fn(LEN, move |i, _| Ok((i..i + 5).map(make).collect::<Vec<T>>())),
        &["0"],
        |batch, range| {
            let tensor = batch.tensors();
            assert_eq!(tensor.shape(), [range.len(), 5]);
            range.enumerate().for_each(|(row, i)| assert_eq!(tensor[[row, 4]], make(i + 4)));
        },
    );
    load(
        || from_fn(LEN, move |i, _| Ok(filled(i, make))),
        &["0"],
        |batch, range| {
            let tensor = batch.tensors();
            assert_eq!(tensor.shape(), [range.len(), 2, 3]);
            range.enumerate().for_each(|(row, i)| assert!(tensor.row(row).as_slice().iter().all(|&x| x == make(i))));
        },
    );
}

fn filled<T: Element>(i: usize, make: fn(usize) -> T) -> Lazy<T, impl FnOnce(&mut [T]) -> Result<(), BoxError>, 2> {
    Lazy::new([2, 3], move |out| {
        out.fill(make(i));
        Ok(())
    })
}

#[test]
fn every_dtype_round_trips_in_every_kind_of_sample() {
    every_kind(|i| i % 3 == 0);
    every_kind(|i| i as u8 ^ 0xa5);
    every_kind(|i| i as i8 - 100);
    every_kind(|i| i as u16 ^ 0xa5a5);
    every_kind(|i| i as i16 - 30_000);
    every_kind(|i| i as u32 ^ 0xa5a5_a5a5);
    every_kind(|i| i as i32 - 2_000_000_000);
    every_kind(|i| i as u64 ^ 0xa5a5_a5a5_a5a5_a5a5);
    every_kind(|i| i as i64 + i64::MIN);
    every_kind(|i| i as f32 + 0.5);
    every_kind(|i| i as f64 * 1e300);
    #[cfg(feature = "half")]
    {
        every_kind(|i| half::f16::from_f32(i as f32 + 0.5));
        every_kind(|i| half::bf16::from_f32(i as f32 * 1e30));
    }
    #[cfg(feature = "num-complex")]
    {
        every_kind(|i| num_complex::Complex::new(i as f32, -0.5));
        every_kind(|i| num_complex::Complex::new(0.5, i as f64 * 1e300));
    }
    assert_eq!(DType::ALL.len(), 15, "all dtypes are tested");
}

/// A dataset whose samples borrow from the dataset and from the context.
struct Borrowing(Vec<f32>, Array<u16>, AnyArray);

impl Dataset for Borrowing {
    type Sample<'a> = (&'a [f32], TensorView<'a, u16>, AnyTensorView<'a>, &'a [i32]);

    fn len(&self) -> usize {
        LEN
    }

    fn get<'a>(&'a self, index: usize, cx: &'a mut Context) -> Result<Self::Sample<'a>, BoxError> {
        let scratch = cx.buffer::<i32>(3);
        scratch.fill(index as i32);
        Ok((&self.0[index..][..2], self.1.row(index), self.2.row(index), scratch))
    }
}

#[test]
fn samples_can_borrow_from_the_dataset_and_the_context() {
    let make = || {
        let floats = (0..LEN + 1).map(|i| i as f32).collect();
        let typed = Array::new((0..LEN as u16 * 6).collect(), &[LEN, 2, 3]).unwrap();
        let any = AnyArray::from(Array::new((0..LEN).map(|i| i % 2 == 1).collect(), &[LEN]).unwrap());
        Borrowing(floats, typed, any)
    };
    load(make, &["0", "1", "2", "3"], |batch, range| {
        let (floats, typed, any, scratch) = batch.tensors();
        assert_eq!(
            (typed.shape(), any.shape(), any.dtype()),
            (&[range.len(), 2, 3][..], &[range.len()][..], DType::Bool)
        );
        for (row, i) in range.enumerate() {
            assert_eq!(floats.row(row).as_slice(), [i as f32, i as f32 + 1.0]);
            assert_eq!(typed[[row, 1, 2]], i as u16 * 6 + 5);
            assert_eq!(any.typed::<bool>().unwrap().as_slice()[row], i % 2 == 1);
            assert_eq!(scratch.row(row).as_slice(), [i as i32; 3]);
        }
    });
}

#[test]
fn tuples_have_up_to_eight_parts_and_nest() {
    load(
        || from_fn(LEN, |i, _| Ok((i as u8, i as i8, i as u16, i as i16, i as u32, i as i32, i as u64, i as f64))),
        &["0", "1", "2", "3", "4", "5", "6", "7"],
        |batch, range| {
            let (a, .., g, h) = batch.tensors();
            for (row, i) in range.enumerate() {
                assert_eq!((a[[row]], g[[row]], h[[row]]), (i as u8, i as u64, i as f64));
            }
        },
    );
    load(
        || from_fn(LEN, |i, _| Ok(((i as u8,), (), ([i as i16; 2], (i as f32, i % 2 == 0))))),
        &["0.0", "2.0", "2.1.0", "2.1.1"],
        |batch, range| {
            let ((a,), (), (b, (c, d))) = batch.tensors();
            for (row, i) in range.enumerate() {
                assert_eq!((a[[row]], b[[row, 1]], c[[row]], d[[row]]), (i as u8, i as i16, i as f32, i % 2 == 0));
            }
        },
    );
    load(
        || from_fn(LEN, |_, _| Ok(())),
        &[],
        |batch, range| {
            let () = batch.tensors();
            assert!(batch.indices().iter().copied().eq(range.map(|i| i as i64)));
        },
    );
}

struct Owned(Vec<String>, Vec<Vec<u32>>);

impl Dataset for Owned {
    type Sample<'a> = (Text<'a>, PaddedToMax<'a, u32>, i64);

    fn len(&self) -> usize {
        LEN
    }

    fn get<'a>(&'a self, index: usize, _: &'a mut Context) -> Result<Self::Sample<'a>, BoxError> {
        Ok((Text::new(&self.0[index], 24), PaddedToMax::new(&self.1[index], 10), index as i64))
    }
}

#[test]
fn texts_and_padded_samples_are_padded_with_zeros() {
    let make = || {
        let texts = (0..LEN).map(|i| "å∂".repeat(i % 4) + &"x".repeat(i)[..i.min(4)]).collect();
        // The samples have from 10 down to 0 elements, so that shorter samples overwrite longer
        // ones.
        Owned(texts, (0..LEN).map(|i| vec![i as u32 + 1; LEN - 1 - i]).collect())
    };
    let data = make();
    load(make, &["0", "1", "2"], |batch, range| {
        let (texts, padded, numbers) = batch.tensors();
        let columns = batch.columns();
        assert_eq!(columns.field(1).unwrap().shape(), [10]);
        assert!(columns.field(1).unwrap().is_padded() && !columns.field(2).unwrap().is_padded());
        assert_eq!(columns.lengths(1).unwrap(), padded.lengths());
        assert!(columns.lengths(2).is_none());
        for (row, i) in range.enumerate() {
            assert_eq!(texts.get(row), data.0[i]);
            assert_eq!(texts.bytes().row(row), data.0[i].as_bytes());
            assert_eq!(padded.row(row), data.1[i]);
            assert_eq!(padded.lengths()[row] as usize, LEN - 1 - i);
            assert!(padded.padded().row(row).as_slice()[LEN - 1 - i..].iter().all(|&x| x == 0));
            assert_eq!(numbers[[row]], i as i64);
        }
    });
}

struct Face<'a> {
    pixels: &'a [u8],
    label: (i64, f32),
}

struct Faces<'b> {
    pixels: TensorView<'b, u8>,
    labels: (TensorView<'b, i64>, TensorView<'b, f32>),
}

impl Sample for Face<'_> {
    type Schema = Face<'static>;

    fn declare(&self, fields: &mut Fields) {
        fields.named("pixels", &self.pixels);
        fields.named("label", &self.label);
    }

    fn write(self, row: &mut Row<'_>) -> Result<(), BoxError> {
        self.pixels.write(row)?;
        self.label.write(row)
    }
}

impl Schema for Face<'static> {
    type Tensors<'b> = Faces<'b>;

    fn tensors<'b>(columns: &mut Columns<'b>) -> Faces<'b> {
        Faces { pixels: columns.take(), labels: <(i64, f32)>::tensors(columns) }
    }
}

struct Album(Vec<[u8; 300]>);

impl Dataset for Album {
    type Sample<'a> = (Face<'a>, [u16; 3]);

    fn len(&self) -> usize {
        self.0.len()
    }

    fn get<'a>(&'a self, index: usize, _: &'a mut Context) -> Result<Self::Sample<'a>, BoxError> {
        Ok((Face { pixels: &self.0[index], label: (index as i64, index as f32 / 2.0) }, [index as u16; 3]))
    }
}

#[test]
fn custom_structs_have_named_fields_in_tuples_too() {
    load(
        || Album((0..LEN).map(|i| [i as u8; 300]).collect()),
        &["0.pixels", "0.label.0", "0.label.1", "1"],
        |batch, range| {
            let (faces, last) = batch.tensors();
            assert_eq!(faces.pixels.shape(), [range.len(), 300]);
            for (row, i) in range.enumerate() {
                assert!(faces.pixels.row(row).as_slice().iter().all(|&x| x == i as u8));
                assert_eq!((faces.labels.0[[row]], faces.labels.1[[row]]), (i as i64, i as f32 / 2.0));
                assert_eq!(last.row(row).as_slice(), [i as u16; 3]);
            }
        },
    );
}

#[test]
fn dynamic_arrays_are_one_part_of_a_tuple() {
    let numbers = |offset: i64| AnyArray::from(Array::new((offset..offset + LEN as i64).collect(), &[LEN]).unwrap());
    let images = || AnyArray::from(Array::new(vec![7_u8; LEN * 4], &[LEN, 2, 2]).unwrap());
    load(
        || TensorDataset::new(vec![numbers(0), images()]).unwrap(),
        &["0", "1"],
        |batch, range| {
            let columns = batch.tensors();
            assert_eq!((columns.len(), columns.get(1).unwrap().shape()), (2, &[range.len(), 2, 2][..]));
        },
    );
    // All columns are `i64`, so that a wrong column is not detected by its type.
    let make = || {
        let last: Vec<i64> = (300..300 + LEN as i64).collect();
        TensorDataset::new((vec![numbers(0), numbers(100)], vec![numbers(200)], last)).unwrap()
    };
    load(make, &["0.0", "0.1", "1.0", "2"], |batch, range| {
        let (first, second, last) = batch.tensors();
        let number = |columns: &Columns<'_>, i| columns.get(i).unwrap().typed::<i64>().unwrap().as_slice()[0];
        let i = range.start as i64;
        assert_eq!((first.len(), number(&first, 0), number(&first, 1)), (2, i, 100 + i));
        assert_eq!((second.len(), number(&second, 0)), (1, 200 + i));
        assert_eq!(last[[0]], 300 + i);
    });
}

#[test]
fn an_array_is_never_written_to_another_datasets_field() {
    let number = |_| AnyArray::from(Array::new(vec![1_i64], &[1]).unwrap());
    let dataset = |arrays: usize| TensorDataset::new((0..arrays).map(number).collect::<Vec<_>>()).unwrap();
    let both = |arrays: [usize; 2]| ConcatDataset::new(arrays.map(dataset)).unwrap();
    let stack = StackDataset::new((both([2, 1]), both([1, 2]))).unwrap();
    let mut loader = Loader::builder(stack).batch_size(2).build().unwrap();
    let error = chain(&loader.epoch().unwrap().next().unwrap().unwrap_err());
    assert!(error.contains("a part of 2 fields was declared, but the sample's has 1"), "{error}");
}

/// A sample of numbers with names that are known only at run time. A number that is not finite
/// makes declaring the sample fail.
#[derive(Clone)]
struct Record(Vec<(&'static str, f64)>);

impl Sample for Record {
    type Schema = Dynamic;

    fn declare(&self, fields: &mut Fields) {
        fields.named_run(self.0.iter().map(|&(name, number)| (name.to_owned(), number)));
        for (name, _) in self.0.iter().filter(|(_, number)| !number.is_finite()) {
            fields.fail(LayoutError::NoPlace { found: format!("an infinite {name}") });
        }
    }

    fn write(self, row: &mut Row<'_>) -> Result<(), BoxError> {
        row.write_run(|row| {
            for (name, number) in self.0 {
                match row.next_part() {
                    Some(next) if next == name => row.write_one(number)?,
                    next => return Err(format!("{name} instead of {next:?}").into()),
                }
            }
            Ok(())
        })
    }
}

#[test]
fn dynamic_records_are_one_part_of_a_tuple() {
    let make =
        || from_fn(LEN, |i, _| Ok((Record(vec![("a", i as f64), ("b", 0.5)]), Record(vec![("", 2.0)]), i as i64)));
    load(make, &["0.a", "0.b", "1", "2"], |batch, range| {
        let (first, second, last) = batch.tensors();
        let number = |columns: &Columns<'_>, i| columns.get(i).unwrap().typed::<f64>().unwrap().as_slice()[0];
        assert_eq!((first.len(), number(&first, 0), number(&first, 1)), (2, range.start as f64, 0.5));
        assert_eq!((second.len(), number(&second, 0), last[[0]]), (1, 2.0, range.start as i64));
    });
}

#[test]
fn records_with_other_names_or_none_are_errors() {
    let load = |first: &[_], second: &[_]| {
        let records = [Record(first.to_vec()), Record(second.to_vec())];
        let dataset = from_fn(2, move |i, _| Ok((records[i].clone(), 1.0)));
        let mut loader = Loader::builder(dataset).batch_size(2).build()?;
        loader.epoch().unwrap().next().unwrap().map(|_| ()).map_err(BoxError::from)
    };
    let (a, b) = (("a", 1.0), ("b", 2.0));
    assert!(load(&[a, b], &[a, b]).is_ok());
    let error = |first: &[_], second: &[_]| chain(&*load(first, second).unwrap_err());
    assert!(error(&[a, b], &[b, a]).contains("b instead of Some(\"a\")"));
    assert!(error(&[a], &[a, b]).contains("b instead of None"));
    assert!(error(&[a, b], &[a]).contains("a part of 2 fields was declared, but the sample's has 1"));
    for first in [&[][..], &[("a", f64::INFINITY)]] {
        let error = load(first, first).unwrap_err();
        assert!(matches!(error.downcast_ref(), Some(BuildError::Layout(LayoutError::NoPlace { .. }))), "{error}");
    }
    let error = load(&[a, b, a], &[]).unwrap_err();
    assert!(matches!(error.downcast_ref(), Some(BuildError::Layout(LayoutError::SameName { .. }))), "{error}");
}

/// A sample whose fields are known only at run time. It declares and writes them with the given
/// functions, which may contradict each other.
pub(crate) struct Dishonest(pub(crate) fn(&mut Fields), pub(crate) fn(&mut Row<'_>) -> Result<(), BoxError>);

impl Sample for Dishonest {
    type Schema = Dynamic;

    fn declare(&self, fields: &mut Fields) {
        self.0(fields);
    }

    fn write(self, row: &mut Row<'_>) -> Result<(), BoxError> {
        self.1(row)
    }
}

/// Returns the first batch, or its error, of samples that consist of a [`Dishonest`] sample and a
/// number.
fn dishonest(
    declare: fn(&mut Fields),
    write: fn(&mut Row<'_>) -> Result<(), BoxError>,
) -> Result<Batch<(Dynamic, i64)>, BoxError> {
    let dataset = from_fn(2, move |i, _| Ok((Dishonest(declare, write), i as i64)));
    let mut loader = Loader::builder(dataset).build()?;
    loader.epoch()?.next().unwrap().map_err(BoxError::from)
}

#[test]
fn a_part_that_is_not_one_field_is_an_error() {
    let error = dishonest(|fields| fields.named_run([("pair".to_owned(), (1_i64, 2_i64))]), |_| Ok(())).unwrap_err();
    assert!(error.to_string().contains(r#"part "pair" of a sample must be one field, but has 2"#), "{error}");
    let inner = |fields: &mut Fields| fields.named_run([("inner".to_owned(), Record(vec![("a", 1.0)]))]);
    let error = dishonest(inner, |_| Ok(())).unwrap_err();
    assert!(error.to_string().contains(r#"part "inner""#), "{error}");
}

#[test]
#[should_panic(expected = "the batch has 2 fields, but its schema takes more")]
fn a_dynamic_sample_without_a_run_takes_every_field() {
    let write = |row: &mut Row<'_>| Ok(row.write_one(1_i64)?);
    let _ = dishonest(|fields| fields.fixed(DType::I64, &[]), write).unwrap().tensors();
}

#[test]
fn arrays_are_samples_of_their_own_shape() {
    let of = |index: usize| Array::new((0..6).map(|i| (index * 6 + i) as f32).collect(), &[2, 3]);
    let dataset = from_fn(7, move |index, _| Ok((of(index)?, AnyArray::from(of(index)?))));
    for workers in [0, 2] {
        let mut loader = Loader::builder(dataset.clone()).batch_size(7).num_workers(workers).build().unwrap();
        let batch = loader.epoch().unwrap().next().unwrap().unwrap();
        let (arrays, any) = batch.tensors();
        assert_eq!(arrays.shape(), [7, 2, 3]);
        assert!(arrays.as_slice().iter().copied().eq((0..42).map(|i| i as f32)));
        assert_eq!(any.typed::<f32>().unwrap(), arrays);
    }
}

#[test]
fn an_array_of_another_shape_is_an_error_that_names_both() {
    let dataset = from_fn(2, |index, _| Ok(Array::new(vec![0_u8; 6], if index == 0 { &[2, 3] } else { &[3, 2] })?));
    let mut loader = Loader::builder(dataset).batch_size(2).build().unwrap();
    let error = loader.epoch().unwrap().next().unwrap().unwrap_err();
    let source = error.cause().unwrap().to_string();
    assert!(source.contains("[2, 3]") && source.contains("[3, 2]"), "{source}");
}

#[test]
fn rows_of_arrays_can_be_read_by_a_collate_function() {
    let images = Array::new((0..60_u16).collect(), &[10, 2, 3]).unwrap();
    let typed = TensorDataset::new((images.clone(), (0..10).collect::<Vec<i64>>())).unwrap();
    let any = TensorDataset::new(vec![AnyArray::from(images.clone())]).unwrap();
    let typed = Loader::builder(typed).batch_size(4).num_workers(2).collate(|samples| {
        let mut rows = Vec::new();
        while let Some(sample) = samples.next() {
            let (image, label) = sample?;
            let tensor = image.tensor();
            assert_eq!((image.dtype(), image.shape(), tensor.shape()), (DType::U16, &[2, 3][..], &[2, 3][..]));
            assert_eq!((image.as_slice(), image.bytes().len()), (tensor.as_slice(), 12));
            rows.push((label, image.as_slice().to_vec()));
        }
        Ok(rows)
    });
    let any = Loader::builder(any).batch_size(4).num_workers(2).collate(|samples| {
        let mut rows = Vec::new();
        while let Some(sample) = samples.next() {
            let sample = sample?;
            assert!((sample.len(), sample.is_empty()) == (1, false) && sample.get(1).is_none());
            let image = sample.get(0).unwrap();
            assert_eq!((image.dtype(), image.shape(), sample.tensors().len()), (DType::U16, &[2, 3][..], 1));
            rows.push(image.typed::<u16>().unwrap().as_slice().to_vec());
        }
        Ok(rows)
    });
    let (mut typed, mut any) = (typed.build().unwrap(), any.build().unwrap());
    let typed: Vec<_> = typed.epoch().unwrap().flat_map(|batch| batch.unwrap()).collect();
    let any: Vec<_> = any.epoch().unwrap().flat_map(|batch| batch.unwrap()).collect();
    let want: Vec<_> = (0..10).map(|i| images.row_slice(i).to_vec()).collect();
    assert_eq!((any, typed), (want.clone(), (0..).zip(want).collect()));
}
