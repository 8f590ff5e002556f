//! Tests of `map` with a loader: the function must be called once per sample, on the thread that
//! reads the sample, with random numbers that depend on the sample only.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use slotline::array::Array;
use slotline::dataset::{Context, Dataset, IterableDataset, TensorDataset};
use slotline::loader::{Budget, OnError};
use slotline::rng::rand_core::Rng;
use slotline::sample::Text;
use slotline::{BoxError, Error, Loader};

use crate::support::{Bulk, OneByOne, ReadsMany, from_fn, sleep_sometimes};

/// Returns a dataset whose samples are the index, a random number drawn by the dataset, and two
/// drawn by mapped functions.
fn noisy(len: usize) -> impl for<'a> Dataset<Sample<'a> = (i64, [u64; 3])> {
    let dataset = from_fn(len, |index, cx| {
        sleep_sometimes(index, cx);
        Ok((index as i64, cx.rng().next_u64()))
    });
    let twice = dataset.map(|(index, drawn), cx| Ok((index, [drawn, cx.rng().next_u64()])));
    twice.map(|(index, [a, b]), cx| Ok((index, [a, b, cx.rng().next_u64()])))
}

/// Returns the indices and random numbers of two shuffled passes.
fn passes<D>(dataset: D, workers: usize, part_size: usize) -> Vec<(Vec<i64>, Vec<u64>)>
where
    D: for<'a> Dataset<Sample<'a> = (i64, [u64; 3])>,
{
    let loader = Loader::builder(dataset).batch_size(8).shuffle(true).seed(3);
    let mut loader = loader.num_workers(workers).part_size(part_size).build().unwrap();
    let mut all = Vec::new();
    for _ in 0..2 {
        for batch in loader.epoch().unwrap() {
            let batch = batch.unwrap();
            let (indices, drawn) = batch.tensors();
            assert_eq!(indices.as_slice(), batch.indices());
            all.push((indices.as_slice().to_vec(), drawn.as_slice().to_vec()));
        }
    }
    all
}

#[test]
fn random_numbers_do_not_depend_on_the_workers() {
    let want = passes(noisy(50), 0, 3);
    for (workers, part_size) in [(1, 8), (3, 1), (4, 2)] {
        assert_eq!(passes(noisy(50), workers, part_size), want, "{workers} workers");
    }
    let drawn: Vec<u64> = want.into_iter().flat_map(|(_, drawn)| drawn).collect();
    assert_eq!((drawn.len(), drawn.iter().collect::<HashSet<_>>().len()), (2 * 50 * 3, 2 * 50 * 3));
}

/// A dataset whose samples borrow from the context, in memory that belongs to the thread.
struct Words;

impl Dataset for Words {
    type Sample<'a> = Text<'a>;

    fn len(&self) -> usize {
        20
    }

    fn get<'a>(&'a self, index: usize, cx: &'a mut Context) -> Result<Text<'a>, BoxError> {
        let word = cx.local::<String>();
        word.clear();
        word.extend(["word", &index.to_string()]);
        Ok(Text::new(word, 10))
    }
}

#[test]
fn the_function_and_the_sample_have_separate_contexts() {
    let lengths = Words.map(|text, cx| {
        let seen = cx.local::<Vec<usize>>();
        seen.push(text.as_str().len());
        Ok((*seen.last().unwrap() as i64, cx.position() as i64))
    });
    let words = Loader::builder(Words.map(|text, _| Ok(text.as_str().as_bytes().to_vec()))).collate(|samples| {
        let mut words = Vec::new();
        samples.for_each(|word| {
            words.push(word);
            Ok(())
        })?;
        Ok(words)
    });
    let mut loader = words.batch_size(20).num_workers(2).build().unwrap();
    let batch = loader.epoch().unwrap().next().unwrap().unwrap();
    assert!(batch.into_iter().eq((0..20).map(|i| format!("word{i}").into_bytes())));
    let mut loader = Loader::builder(lengths).batch_size(20).num_workers(2).build().unwrap();
    let batch = loader.epoch().unwrap().next().unwrap().unwrap();
    let (lengths, positions) = batch.tensors();
    assert!(lengths.as_slice().iter().copied().eq((0..20).map(|i| if i < 10 { 5 } else { 6 })));
    assert!(positions.as_slice().iter().copied().eq(0..20));
}

#[test]
fn map_converts_rows_of_arrays() {
    let images = Array::new((0..60_u8).collect(), &[10, 2, 3]).unwrap();
    let digits = TensorDataset::new((images, (0..10).collect::<Vec<i64>>())).unwrap();
    let scaled = digits.map(|(image, label), _| {
        assert_eq!(image.shape(), [2, 3]);
        Ok((Array::new(image.as_slice().iter().map(|&x| f32::from(x) / 4.0).collect(), image.shape())?, label))
    });
    assert_eq!((scaled.len(), scaled.dataset().rows().1.len()), (10, 10));
    let mut loader = Loader::builder(scaled).batch_size(10).num_workers(2).build().unwrap();
    let batch = loader.epoch().unwrap().next().unwrap().unwrap();
    let (images, labels) = batch.tensors();
    assert_eq!((images.shape(), labels.as_slice()[9]), (&[10, 2, 3][..], 9));
    assert!(images.as_slice().iter().copied().eq((0..60).map(|x| x as f32 / 4.0)));
}

#[test]
fn errors_and_panics_of_the_function_fail_the_sample() {
    let risky = || {
        from_fn(12, |index, _| Ok(index as i64)).map(|number, _| match number {
            5 => Err("five".into()),
            9 => panic!("nine"),
            _ => Ok(number),
        })
    };
    for workers in [0, 2] {
        let mut loader = Loader::builder(risky()).batch_size(4).num_workers(workers).build().unwrap();
        let batches: Vec<_> = loader.epoch().unwrap().map(|batch| batch.map(|_| ())).collect();
        assert!(batches[0].is_ok() && batches.len() == 3);
        let Err(Error::Sample { index, .. }) = &batches[1] else { panic!("{:?}", batches[1]) };
        assert_eq!(*index, 5);
        let Err(Error::Panic { .. }) = &batches[2] else { panic!("{:?}", batches[2]) };
        let loader =
            Loader::builder(risky()).batch_size(12).num_workers(workers).on_error(OnError::Skip(Budget::Samples(2)));
        let mut loader = loader.build().unwrap();
        let batch = loader.epoch().unwrap().next().unwrap().unwrap();
        assert_eq!(batch.tensors().as_slice(), [0, 1, 2, 3, 4, 6, 7, 8, 10, 11]);
    }
}

#[test]
fn mapped_bulk_reads_equal_single_reads() {
    fn mapped(
        dataset: impl for<'a> Dataset<Sample<'a> = (i64, u64)>,
    ) -> impl for<'a> Dataset<Sample<'a> = (i64, [u64; 3])> {
        dataset.map(|(index, drawn), cx| Ok((index, [drawn, cx.rng().next_u64(), cx.position()])))
    }
    let bulk = Bulk { len: 10, ..Bulk::default() };
    let want = passes(mapped(ReadsMany(bulk.clone(), false)), 0, 6);
    assert!(bulk.asked.all().is_empty() && bulk.prefetched.load(Relaxed) == 0);
    for (workers, part_size) in [(0, 6), (2, 6), (2, 1)] {
        assert_eq!(passes(mapped(Arc::new(bulk.clone())), workers, part_size), want, "{workers} workers");
        assert!(!bulk.asked.all().is_empty());
        bulk.asked.clear();
        assert!(bulk.prefetched.swap(0, Relaxed) > 0);
    }
}

#[test]
fn an_error_in_a_mapped_bulk_read_fails_its_sample() {
    let bulk = || Bulk { len: 10, ..Bulk::default() };
    let risky = || Arc::new(bulk()).map(|(index, _), _| if index == 7 { Err("7".into()) } else { Ok(index) });
    let mut loader = Loader::builder(risky()).batch_size(10).build().unwrap();
    let Some(Err(Error::Sample { index, .. })) = loader.epoch().unwrap().next() else { panic!("no error") };
    assert_eq!(index, 7);
    let skip = OnError::Skip(Budget::Samples(1));
    let mut loader = Loader::builder(risky()).batch_size(10).num_workers(2).on_error(skip).build().unwrap();
    let batch = loader.epoch().unwrap().next().unwrap().unwrap();
    assert_eq!(batch.tensors().as_slice(), [0, 1, 2, 3, 4, 5, 6, 8, 9]);
}

#[test]
fn a_panic_in_a_mapped_stream_is_its_samples_alone() {
    let risky = || {
        let numbers = OneByOne(from_fn(10, |index, _| Ok(index as i64)));
        numbers.map(|index, _| if index == 4 { panic!("four") } else { Ok(index) })
    };
    for workers in [0, 1] {
        let builder = || Loader::iterable(risky()).batch_size(3).num_workers(workers);
        let mut loader = builder().build().unwrap();
        let batches = loader.epoch().unwrap().map(|batch| match batch {
            Ok(batch) => batch.tensors().as_slice().to_vec(),
            Err(Error::Panic { index: 4, task: 1, message, .. }) if message == "four" => Vec::new(),
            Err(error) => panic!("{error}"),
        });
        assert_eq!(batches.collect::<Vec<_>>(), [vec![0, 1, 2], vec![], vec![5, 6, 7], vec![8, 9]]);
        let mut loader = builder().on_error(OnError::Skip(Budget::Samples(1))).build().unwrap();
        let batches = loader.epoch().unwrap().map(|batch| batch.unwrap().tensors().as_slice().to_vec());
        assert_eq!(batches.collect::<Vec<_>>(), [vec![0, 1, 2], vec![3, 5, 6], vec![7, 8, 9]]);
    }
}

#[test]
fn mapped_iterable_datasets_save_and_resume() {
    let mapped = || {
        let numbers = OneByOne(from_fn(30, |index, cx| {
            sleep_sometimes(index, cx);
            Ok((index as i64, cx.rng().next_u64()))
        }));
        numbers.map(|(index, drawn), cx| Ok((2 * index, [drawn, cx.rng().next_u64()])))
    };
    let loader = || Loader::iterable(mapped()).batch_size(4).num_workers(2).seed(5).build().unwrap();
    let mut whole = Vec::new();
    for batch in loader().epoch().unwrap() {
        let batch = batch.unwrap();
        let (indices, drawn) = batch.tensors();
        whole.push((indices.as_slice().to_vec(), drawn.as_slice().to_vec()));
    }
    let mut seen: Vec<i64> = whole.iter().flat_map(|(indices, _)| indices).copied().collect();
    seen.sort_unstable();
    assert!(seen.into_iter().eq((0..30).map(|i| 2 * i)));
    let drawn: HashSet<u64> = whole.iter().flat_map(|(_, drawn)| drawn).copied().collect();
    assert_eq!(drawn.len(), 60);
    let (mut before, mut after) = (loader(), loader());
    let mut pass = before.epoch().unwrap();
    assert!(pass.by_ref().take(3).all(|batch| batch.is_ok()));
    after.load_state(&pass.state()).unwrap();
    assert!(after.warnings().is_empty(), "{:?}", after.warnings());
    let rest = after.epoch().unwrap().map(|batch| {
        let batch = batch.unwrap();
        let (indices, drawn) = batch.tensors();
        (indices.as_slice().to_vec(), drawn.as_slice().to_vec())
    });
    assert_eq!(rest.collect::<Vec<_>>(), whole[3..]);
}
