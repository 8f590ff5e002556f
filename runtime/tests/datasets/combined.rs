//! Tests of datasets made of other datasets, loaded with and without workers. The samples must be
//! those of the parts.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use slotline::array::Array;
use slotline::dataset::{
    ConcatDataset, Context, OutOfRange, StackDataset, StackError, Subset, SubsetError, TensorDataset, random_split,
};
use slotline::loader::{Batch, BatchOf};
use slotline::rng::rand_core::Rng;
use slotline::rng::{Generator, SampleRng};
use slotline::sample::{Dynamic, Fields, Packed, PaddedToMax, Row, Sample, Text};
use slotline::{BoxError, Dataset, Error, Loader};

use crate::support::{Item, chain, from_fn, items, pixels, sampler_fn, sleep_sometimes};

/// Passes every batch of several shuffled passes to `look`, with and without workers, and checks
/// that each index occurs once per pass.
#[track_caller]
fn each_pass<D: Dataset>(make: impl Fn() -> D, mut look: impl FnMut(&BatchOf<D>)) {
    for (workers, part_size) in [(0, 3), (1, 8), (3, 1), (4, 2)] {
        let loader = Loader::builder(make()).batch_size(8).shuffle(true).seed(5);
        let mut loader = loader.num_workers(workers).part_size(part_size).build().unwrap();
        for _ in 0..2 {
            let mut seen = Vec::new();
            for batch in loader.epoch().unwrap() {
                let batch = batch.unwrap();
                seen.extend_from_slice(batch.indices());
                look(&batch);
            }
            seen.sort_unstable();
            assert!(seen.iter().copied().eq(0..make().len() as i64) && !seen.is_empty());
        }
    }
}

/// Asserts that the sample at each index of a batch is the [`Item`] with the number `of(index)`.
#[track_caller]
fn items_are<S>(batch: &Batch<S>, of: impl Fn(usize) -> usize) {
    let columns = batch.columns();
    let (numbers, bytes) = (columns.get(0).unwrap(), columns.get(1).unwrap());
    let want: Vec<usize> = batch.indices().iter().map(|&index| of(index as usize)).collect();
    assert!(numbers.typed::<i64>().unwrap().as_slice().iter().copied().eq(want.iter().map(|&i| i as i64)));
    assert!(bytes.typed::<u8>().unwrap().as_slice().iter().copied().eq(want.iter().flat_map(|&i| pixels(i)).flatten()));
}

/// Returns a dataset whose sample `i` is item `first + i`. Some samples take longer.
fn from(first: usize, len: usize) -> impl Dataset + for<'a> crate::support::DatasetOf<'a, Item> {
    from_fn(len, move |index, cx| {
        sleep_sometimes(index, cx);
        Ok((index as i64 + first as i64, pixels(index + first), cx.rng().next_u64()))
    })
}

#[test]
fn a_subset_has_the_samples_of_its_indices() {
    let chosen: Vec<usize> = (0..90).map(|i| i * 37 % 50).collect(); // some twice
    let of = |chosen: &[usize]| Subset::new(from(0, 50), chosen.iter().copied()).unwrap();
    each_pass(|| of(&chosen), |batch| items_are(batch, |index| chosen[index]));
    each_pass(|| Subset::new(of(&chosen), 10..60).unwrap(), |batch| items_are(batch, |index| chosen[10 + index]));
}

#[test]
fn the_parts_of_a_split_have_the_samples_of_the_whole() {
    let whole = Arc::new(from(0, 60));
    let parts = random_split(Arc::clone(&whole), &[0.1, 0.2, 0.7], &mut Generator::from_seed(1)).unwrap();
    assert_eq!(parts.iter().map(Dataset::len).collect::<Vec<_>>(), [6, 12, 42]);
    let mut all = Vec::new();
    for part in parts {
        assert!(Arc::ptr_eq(&**part.dataset(), &whole));
        let chosen: Vec<usize> = part.indices().collect();
        each_pass(|| part.clone(), |batch| items_are(batch, |index| chosen[index]));
        all.extend(chosen);
    }
    all.sort_unstable();
    assert!(all.into_iter().eq(0..60));
}

#[test]
fn concatenated_datasets_keep_their_order() {
    let all = || ConcatDataset::new([(0, 7), (7, 0), (7, 20), (27, 1)].map(|(first, len)| Arc::new(from(first, len))));
    each_pass(|| all().unwrap(), |batch| items_are(batch, |index| index));
    let two = || from(0, 13).concat(items(30, |_, _| Ok(()))).unwrap();
    each_pass(two, |batch| items_are(batch, |index| if index < 13 { index } else { index - 13 }));
    // Datasets of different types with the same sample type: a whole dataset, a subset, and a
    // concatenation.
    let rows = |n: usize| TensorDataset::new((Array::new(vec![n as u8; n * 2], &[n, 2]).unwrap(), vec![n as i64; n]));
    let mixed = || {
        let some = Subset::new(rows(9).unwrap(), [8, 0]).unwrap();
        rows(3).unwrap().concat(some).unwrap().concat(ConcatDataset::new(vec![rows(4).unwrap()]).unwrap()).unwrap()
    };
    each_pass(mixed, |batch| {
        let (bytes, numbers) = batch.tensors();
        for (row, &index) in batch.indices().iter().enumerate() {
            let want = [3, 3, 3, 9, 9, 4, 4, 4, 4][index as usize];
            assert_eq!((bytes.row(row).as_slice(), numbers.as_slice()[row]), (&[want as u8; 2][..], want));
        }
    });
}

/// A dataset of words of up to `len` bytes, whose fields are known without reading a sample.
struct Words {
    name: &'static str,
    len: usize,
    item: [usize; 1],
}

impl Dataset for Words {
    type Sample<'a> = Lines<'a>;

    fn len(&self) -> usize {
        5
    }

    fn get<'a>(&'a self, _: usize, cx: &'a mut Context) -> Result<Lines<'a>, BoxError> {
        Ok(Lines(self, cx.buffer::<u8>(self.len * self.item[0])))
    }

    fn fields(&self) -> Option<Fields> {
        Some(Fields::of(&Lines(self, &[])))
    }
}

struct Lines<'a>(&'a Words, &'a [u8]);

impl Sample for Lines<'_> {
    type Schema = Dynamic;

    fn declare(&self, fields: &mut Fields) {
        let word = Packed::with_shape(self.1, &self.0.item, self.0.len);
        match self.0.name {
            "" => fields.named_run([("word".to_owned(), word), ("more".to_owned(), word)]),
            name => fields.named_run([(name.to_owned(), word)]),
        }
    }

    fn write(self, row: &mut Row<'_>) -> Result<(), BoxError> {
        let word = Packed::with_shape(self.1, &self.0.item, self.0.len);
        row.write_run(|row| word.write(row))
    }
}

#[test]
fn concatenated_datasets_share_the_largest_room_and_must_have_the_same_fields() {
    let words = |name, len, item| Words { name, len, item: [item] };
    let batch = |all: ConcatDataset<Words>| {
        let mut loader = Loader::builder(all).batch_size(10).build()?;
        let batch = loader.epoch().unwrap().next().unwrap().unwrap();
        let len = batch.columns().get(0).unwrap().bytes().len();
        Ok::<_, slotline::loader::BuildError>((loader.fields().unwrap().next().unwrap().shape().to_vec(), len))
    };
    let concat = |second| ConcatDataset::new([words("word", 3, 2), second]).unwrap();
    for (second, room) in [(7, 7), (2, 3)] {
        assert_eq!(batch(concat(words("word", second, 2))).unwrap(), (vec![room, 2], 5 * (3 + second) * 2));
    }
    let two = words("word", 1, 1).concat(words("word", 9, 1)).unwrap();
    assert_eq!(two.fields().unwrap().as_slice()[0].shape(), [9, 1]);
    for (second, want) in [
        (
            words("line", 3, 2),
            "dataset 1 has field line: u8 packed [3, 2], but dataset 0 has field word: u8 packed [3, 2]",
        ),
        (
            words("word", 3, 4),
            "dataset 1 has field word: u8 packed [3, 4], but dataset 0 has field word: u8 packed [3, 2]",
        ),
        (words("", 3, 2), "dataset 1 has"),
    ] {
        let error = chain(&batch(concat(second)).unwrap_err());
        assert!(error.contains(want) && error.contains("the same fields"), "{error}");
    }
}

/// A dataset whose samples borrow from the context: a text and a row of numbers, both in memory
/// that belongs to the thread.
struct Borrowed {
    word: &'static str,
}

impl Dataset for Borrowed {
    type Sample<'a> = (Text<'a>, PaddedToMax<'a, u16>);

    fn len(&self) -> usize {
        40
    }

    fn get<'a>(&'a self, index: usize, cx: &'a mut Context) -> Result<Self::Sample<'a>, BoxError> {
        let [text, row] = cx.parts();
        let (text, row) = (text.local::<String>(), row.buffer::<u16>(index % 6));
        text.clear();
        text.extend([self.word, &index.to_string()]);
        row.fill(index as u16);
        Ok((Text::new(text, 20), PaddedToMax::new(row, 5)))
    }
}

#[test]
fn stacked_samples_can_borrow_from_their_contexts() {
    let stack = || StackDataset::new((Borrowed { word: "left" }, from(100, 40), Borrowed { word: "right" })).unwrap();
    each_pass(stack, |batch| {
        let ((left, ones), (numbers, _, _), (right, others)) = batch.tensors();
        for (row, &index) in batch.indices().iter().enumerate() {
            assert_eq!((left.get(row), right.get(row)), (&*format!("left{index}"), &*format!("right{index}")));
            assert_eq!(numbers.as_slice()[row], index + 100);
            for padded in [&ones, &others] {
                assert_eq!(padded.row(row), vec![index as u16; index as usize % 6]);
            }
        }
    });
}

/// Also checks that a stack within a stack draws numbers that differ from all others.
#[test]
fn stacked_datasets_draw_independent_random_numbers() {
    let noise = || {
        from_fn(50, |index, cx| {
            sleep_sometimes(index, cx);
            Ok(cx.rng().next_u64())
        })
    };
    let stack =
        || StackDataset::new((StackDataset::new((noise(), noise())).unwrap(), noise(), Arc::new(noise()))).unwrap();
    let mut runs = Vec::new();
    each_pass(stack, |batch| {
        let ((a, b), c, d) = batch.tensors();
        let words: Vec<u64> = [a, b, c, d].iter().flat_map(|tensor| tensor.as_slice()).copied().collect();
        runs.push((batch.epoch(), batch.batch_index(), batch.indices().to_vec(), words));
    });
    let (first, others) = runs.split_at(2 * 7);
    assert!(others.chunks(first.len()).all(|run| run == first) && others.len() == 3 * first.len());
    let mut words: Vec<u64> = first.iter().flat_map(|(.., words)| words).copied().collect();
    words.sort_unstable();
    words.dedup();
    assert_eq!(words.len(), 2 * 50 * 4);
    // In subsets and concatenated datasets, too, a sample's random numbers depend only on its
    // position in the pass.
    let seed = Generator::from_seed(9).random_i64() as u64;
    let of = Subset::new(noise(), 10..12).unwrap().concat(noise()).unwrap();
    let mut loader = Loader::builder(of).batch_size(4).seed(9).build().unwrap();
    let batch = loader.epoch().unwrap().next().unwrap().unwrap();
    assert!(batch.tensors().as_slice().iter().copied().eq((0..4).map(|i| SampleRng::new(seed, 0, i).next_u64())));
}

/// A dataset that counts prefetches and declares its fields.
struct Counted(Arc<AtomicUsize>);

impl Dataset for Counted {
    type Sample<'a> = [u8; 3];

    fn len(&self) -> usize {
        10
    }

    fn get<'a>(&'a self, index: usize, _: &'a mut Context) -> Result<[u8; 3], BoxError> {
        Ok([index as u8; 3])
    }

    fn prefetch(&self, index: usize) {
        assert!(index < 10);
        self.0.fetch_add(100 + index, Relaxed);
    }

    fn fields(&self) -> Option<Fields> {
        Some(Fields::of(&[0_u8; 3]))
    }
}

#[test]
fn prefetching_and_fields_reach_the_parts() {
    let count = Arc::new(AtomicUsize::new(0));
    let one = || Counted(Arc::clone(&count));
    let check = |asked: usize, fields: Option<Fields>, want: Fields| {
        assert_eq!(count.swap(0, Relaxed), asked);
        assert_eq!(fields, Some(want));
    };
    let fields = || Fields::of(&[0_u8; 3]);
    let subset = Subset::new(one(), [7, 8]).unwrap();
    [0, 1, 2].iter().for_each(|&index| subset.prefetch(index));
    check(107 + 108, subset.fields(), fields());
    let concat = ConcatDataset::new(vec![one(), one()]).unwrap();
    [3, 13, 20].iter().for_each(|&index| concat.prefetch(index));
    check(103 + 103, concat.fields(), fields());
    let pair = one().concat(subset).unwrap();
    [4, 11].iter().for_each(|&index| pair.prefetch(index));
    check(104 + 108, pair.fields(), fields());
    let stack = StackDataset::new((one(), one())).unwrap();
    stack.prefetch(5);
    check(2 * 105, stack.fields(), Fields::of(&([0_u8; 3], [0_u8; 3])));
    let unknown = StackDataset::new((one(), from_fn(10, |index, _| Ok(index as i64)))).unwrap();
    assert!(unknown.fields().is_none());
}

#[test]
fn invalid_parts_are_errors_that_name_them() {
    let some = |len| from_fn(len, |index, _| Ok(index as i64));
    let error = Subset::new(some(10), [3, 9, 10, 11]).unwrap_err();
    assert_eq!(error, SubsetError::Index { position: 2, index: 10, len: 10 });
    assert!(Subset::new(some(0), []).unwrap().is_empty());
    assert_eq!(StackDataset::new(()).unwrap_err(), StackError::Empty);
    let error = StackDataset::new((some(3), some(3), some(2))).unwrap_err();
    assert_eq!(error, StackError::Length { first: 3, dataset: 3, other: 2 });
    assert!(error.to_string().contains("size mismatch between datasets: the first has 3 samples, number 3 has 2"));
}

/// Loads the indices 0, 2 and 1 from a dataset of two samples, and asserts that only the batch of
/// index 2 is an error.
#[track_caller]
fn index_2_is_out_of_range<D: Dataset>(dataset: D, name: &'static str) {
    assert_eq!(dataset.len(), 2);
    let error = dataset.get(2, &mut Context::default()).err().unwrap();
    assert_eq!(error.downcast_ref(), Some(&OutOfRange { dataset: name, index: 2, len: 2 }));
    let sampler = sampler_fn(3, |order| {
        order.u32_table().extend([0, 2, 1]);
        Ok(())
    });
    let mut loader = Loader::builder(dataset).sampler(sampler).num_workers(2).build().unwrap();
    let batches: Vec<_> =
        loader.epoch().unwrap().map(|batch| batch.map(|_| ()).map_err(|error| chain(&error))).collect();
    assert!(batches[0].is_ok() && batches[2].is_ok() && batches.len() == 3);
    let error = batches[1].as_ref().unwrap_err();
    assert!(error.contains(&format!("{name}: index 2 is not below its length, 2; check the sampler")), "{error}");
}

#[test]
fn an_index_out_of_range_fails_its_batch() {
    let some = |len| from_fn(len, |index, _| Ok(index as i64));
    index_2_is_out_of_range(Subset::new(some(10), [5, 6]).unwrap(), "Subset");
    index_2_is_out_of_range(ConcatDataset::new([some(1), some(1)]).unwrap(), "ConcatDataset");
}

#[test]
fn a_sample_that_fails_in_a_part_fails_its_batch_only() {
    let failing = from_fn(8, |index, _| if index == 5 { Err("broken".into()) } else { Ok(index as i64) });
    let stack = StackDataset::new((failing, from_fn(8, |index, _| Ok(index as f32)))).unwrap();
    let subset = Subset::new(stack, (0..8).rev()).unwrap();
    let mut loader = Loader::builder(subset).batch_size(2).num_workers(2).build().unwrap();
    let batches: Vec<_> =
        loader.epoch().unwrap().map(|batch| batch.map(|_| ()).map_err(|error| chain(&error))).collect();
    assert_eq!(batches.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true, true]);
    let error = batches[1].as_ref().unwrap_err();
    assert!(error.contains("broken") && error.contains('2'), "{error}");
}

#[test]
fn arrays_of_another_shape_in_a_concatenation_are_errors() {
    let arrays =
        |dims: &[usize]| TensorDataset::new(Array::new(vec![1.0_f32; dims.iter().product()], dims).unwrap()).unwrap();
    for other in [&[3, 3, 2][..], &[3, 6]] {
        let both = ConcatDataset::new(vec![arrays(&[3, 2, 3]), arrays(other)]).unwrap();
        let mut loader = Loader::builder(both).batch_size(2).build().unwrap();
        let batches: Vec<_> = loader.epoch().unwrap().collect();
        assert!(batches[0].is_ok());
        for (batch, index) in batches[1..].iter().zip([3, 4]) {
            let Err(Error::Sample { index: at, source, .. }) = batch else { panic!("it has another shape") };
            assert_eq!(*at, index);
            assert!(source.to_string().contains("2, 3"), "{source}");
        }
    }
}
