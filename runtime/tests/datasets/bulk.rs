//! Tests of datasets that read many samples at once, on their own and as parts of other datasets.

use std::sync::Arc;

use slotline::dataset::{ConcatDataset, Context, StackDataset, Subset};
use slotline::dtype::DType;
use slotline::loader::{Batch, Budget, OnError, Overflow};
use slotline::rng::rand_core::Rng;
use slotline::sample::{PackedText, RowsMut, Text};
use slotline::{BoxError, Dataset, Error, Loader};

use crate::support::{Bulk, DatasetOf, ReadsMany, chain, from_fn};

/// Returns a dataset of ten samples with bulk reads, in which sample 7 is bad.
fn bulk() -> Bulk {
    Bulk { len: 10, bad: Some(7), ..Bulk::default() }
}

#[test]
fn bulk_reads_of_whole_batches_equal_single_reads() {
    for workers in [0, 2] {
        let bulk = bulk();
        let asked = bulk.asked.clone();
        let subset = Subset::new(bulk, (0..10).rev()).unwrap();
        let mut loader = Loader::builder(subset).batch_size(4).seed(3).num_workers(workers).build().unwrap();
        let outcomes: Vec<_> = loader.epoch().unwrap().collect();
        let mut asked = asked.all();
        asked.sort();
        assert_eq!(
            asked,
            ["[1, 0]", "[5, 4, 3, 2]", "[9, 8, 7, 6]"],
            "the indices are those of the dataset in the subset"
        );
        // The third sample of the first batch is bad: it is index 2 of the subset, and index 7 of
        // the dataset.
        assert!(matches!(outcomes[0], Err(Error::Sample { index: 2, position: 2, task: 0, .. })), "{:?}", outcomes[0]);
        let one_by_one = from_fn(10, |index, cx| Ok((9 - index as i64, cx.rng().next_u64())));
        let mut loader = Loader::builder(one_by_one).batch_size(4).seed(3).build().unwrap();
        for (got, want) in outcomes.iter().zip(loader.epoch().unwrap()).skip(1) {
            let (got, want) = (got.as_ref().unwrap(), want.unwrap());
            assert_eq!(got.tensors().0.as_slice(), want.tensors().0.as_slice());
            assert_eq!(
                got.tensors().1.as_slice(),
                want.tensors().1.as_slice(),
                "each sample has its own random numbers"
            );
        }
    }
}

#[test]
fn a_bulk_read_of_too_few_or_too_many_samples_is_an_error() {
    for (off_by, message) in
        [(-1, "was asked for 4 samples but put only 3"), (1, "was asked for 4 samples but put more")]
    {
        let bulk = Bulk { len: 10, off_by, ..Bulk::default() };
        let mut loader = Loader::builder(bulk).batch_size(4).build().unwrap();
        let error = loader.epoch().unwrap().next().unwrap().unwrap_err();
        let text = chain(&error);
        assert!(text.contains(message), "{text}");
    }
}

#[test]
fn collate_for_each_reads_in_bulk_only_with_batches() {
    let bulk = bulk();
    let collate = |samples: &mut slotline::loader::Samples<'_, Bulk>| {
        let mut sum = 0;
        samples.for_each(|(number, _)| {
            sum += number;
            Ok(())
        })?;
        Ok(sum)
    };
    let mut loader = Loader::builder(bulk.clone()).batch_size(5).collate(collate).build().unwrap();
    assert_eq!(loader.epoch().unwrap().next().unwrap().unwrap(), 10);
    assert_eq!(bulk.asked.all().len(), 1);
    let mut loader = Loader::builder(bulk.clone()).batch_size(None).build().unwrap();
    assert_eq!(loader.epoch().unwrap().filter(Result::is_ok).count(), 9);
    assert_eq!(bulk.asked.all().len(), 1);
}

/// A dataset that writes texts into the thread's context, and draws a random number for each. Text
/// 4 cannot be read.
struct Texts;

impl Dataset for Texts {
    type Sample<'a> = (Text<'a>, u64);

    fn len(&self) -> usize {
        10
    }

    fn get<'a>(&'a self, index: usize, cx: &'a mut Context) -> Result<(Text<'a>, u64), BoxError> {
        if index == 4 {
            return Err("four".into());
        }
        let drawn = cx.rng().next_u64();
        let text = cx.local::<String>();
        *text = format!("text {index}");
        Ok((Text::new(text, 10), drawn))
    }
}

/// The indices of a batch and the bytes of its fields, or the batch's error.
type Outcome = Result<(Vec<i64>, Vec<Vec<u8>>), String>;

/// Returns the outcomes of a pass over a stack of `first`, texts, `second` and texts.
fn pass<A, B>(first: A, second: B, workers: usize, on_error: OnError) -> Vec<Outcome>
where
    A: for<'a> DatasetOf<'a, (i64, u64)>,
    B: for<'a> DatasetOf<'a, (i64, u64)>,
{
    let stack = StackDataset::new((first, Texts, second, Texts)).unwrap();
    let loader = Loader::builder(stack).batch_size(3).num_workers(workers).seed(3).on_error(on_error);
    let mut loader = loader.build().unwrap();
    let mut outcomes = Vec::new();
    for batch in loader.epoch().unwrap() {
        outcomes.push(match batch {
            Ok(batch) => {
                let columns = batch.columns();
                let bytes = (0..columns.len()).map(|i| columns.get(i).unwrap().bytes().to_vec());
                Ok((batch.indices().to_vec(), bytes.collect()))
            }
            Err(error) => {
                // The thread that read the sample may differ.
                let text = chain(&error);
                let (sample, rest) = text.split_once(" failed in ").unwrap();
                Err(format!("{sample}: {}", rest.split_once(": ").unwrap().1))
            }
        });
    }
    outcomes
}

#[test]
fn a_stack_reads_its_first_dataset_that_can_in_bulk() {
    let skip = OnError::Skip(Budget::Samples(3));
    for (workers, on_error) in [(0, OnError::Raise), (2, OnError::Raise), (0, skip), (2, skip)] {
        let (first, second, single) = (bulk(), bulk(), || ReadsMany(bulk(), false));
        let want = pass(single(), single(), workers, on_error);
        assert_eq!(pass(first.clone(), second.clone(), workers, on_error), want, "{workers} {on_error:?}");
        let [mut first, second] = [first, second].map(|bulk| bulk.asked.all());
        assert!(second.is_empty());
        first.sort();
        if on_error == OnError::Raise {
            assert_eq!(first, ["[0, 1, 2]", "[3, 4, 5]", "[6, 7, 8]", "[9]"]);
            // Two samples are bad: text 4, since texts are read one at a time, and sample 7 of the
            // dataset with bulk reads.
            let ok: Vec<_> = want.iter().map(Result::is_ok).collect();
            assert_eq!(ok, [true, false, false, true]);
            assert_eq!(want[1], Err("sample 4 of batch 1: four".into()));
            assert_eq!(want[2], Err("sample 7 of batch 2: bad".into()));
        } else {
            let indices: Vec<_> = want.iter().map(|outcome| outcome.as_ref().unwrap().0.clone()).collect();
            assert_eq!(indices, [vec![0, 1, 2], vec![3, 5], vec![6, 8], vec![9]]);
            assert!(["[3, 4, 5]", "[6, 7, 8]"].iter().all(|read| first.iter().any(|found| found == read)), "{first:?}");
        }
    }
}

#[test]
fn a_stack_of_a_later_dataset_with_bulk_reads_reads_in_bulk() {
    let (second, single) = (bulk(), || ReadsMany(bulk(), false));
    let got = pass(single(), second.clone(), 2, OnError::Raise);
    assert_eq!(got, pass(single(), single(), 2, OnError::Raise));
    assert_eq!(second.asked.all().len(), 4);
}

#[test]
fn a_stack_reports_a_bulk_read_of_too_few_or_too_many_samples() {
    for (off_by, message) in
        [(-1, "was asked for 3 samples but put only 2"), (1, "was asked for 3 samples but put more")]
    {
        let bulk = || Bulk { len: 10, off_by, ..Bulk::default() };
        let outcomes = pass(bulk(), ReadsMany(bulk(), false), 0, OnError::Raise);
        assert!(outcomes[0].as_ref().unwrap_err().contains(message), "{outcomes:?}");
    }
}

/// A dataset of numbers, flags and texts, which writes several rows field by field.
#[derive(Clone)]
struct Fielded {
    /// The number of a row that can't be written together with others.
    bad: Option<usize>,
    texts: Arc<Vec<String>>,
    numbers: Arc<Vec<[u8; 8]>>,
}

impl Fielded {
    fn new(bad: Option<usize>) -> Self {
        let texts = Arc::new((0..20).map(|i| "x".repeat(i % 4)).collect());
        Self { bad, texts, numbers: Arc::new((0_i64..20).map(|i| (i * i).to_ne_bytes()).collect()) }
    }
}

impl Dataset for Fielded {
    type Sample<'a> = (i64, bool, PackedText<'a>);

    fn len(&self) -> usize {
        20
    }

    fn get<'a>(&'a self, index: usize, _: &'a mut Context) -> Result<Self::Sample<'a>, BoxError> {
        if self.bad == Some(index) {
            return Err("a bad row".into());
        }
        Ok((i64::from_ne_bytes(self.numbers[index]), index.is_multiple_of(3), PackedText::new(&self.texts[index], 2)))
    }

    fn reads_many(&self) -> bool {
        true
    }

    fn write_many(&self, indices: &[usize], cx: &mut Context, rows: &mut RowsMut<'_>) -> Result<(), BoxError> {
        let good = indices.iter().take_while(|&&index| self.bad != Some(index)).count();
        // The first half is written field by field, and the second half row by row.
        let (together, apart) = indices[..good].split_at(good / 2);
        let mut fields = rows.fields(together.len())?;
        fields.write_fixed(DType::I64, together.iter().map(|&index| &self.numbers[index][..]))?;
        let flags: Vec<u8> = together.iter().map(|index| u8::from(index.is_multiple_of(3))).collect();
        fields.write_fixed(DType::Bool, [&flags[..]])?;
        fields.write_each(DType::U8, together.iter().map(|&index| self.texts[index].as_bytes()))?;
        fields.finish()?;
        for &index in apart.iter().chain(&indices[good..]) {
            rows.push(self.get(index, cx)?)?;
        }
        Ok(())
    }
}

/// The values of a row.
type Fields = (i64, bool, String);

/// Returns the rows of a pass with their indices, or the error of a batch.
fn rows_of<D>(dataset: D, on_error: OnError, workers: usize) -> Vec<Result<Vec<(i64, Fields)>, String>>
where
    D: for<'a> Dataset<Sample<'a> = (i64, bool, PackedText<'a>)>,
{
    let builder = Loader::builder(dataset).batch_size(6).shuffle(true).seed(2).num_workers(workers).on_error(on_error);
    let mut loader = builder.on_overflow(Overflow::Spill).build().unwrap();
    let rows = |batch: Result<Batch<(i64, bool, PackedText<'static>)>, Error>| {
        // The error names the thread, which depends on timing.
        let batch =
            batch.map_err(|error| chain(&error).replace("the consumer's thread", "worker 0").replace('1', "0"))?;
        let (numbers, flags, texts) = batch.tensors();
        let row =
            |(i, &index): (usize, &i64)| (index, (numbers.as_slice()[i], flags.as_slice()[i], texts.get(i).to_owned()));
        Ok(batch.indices().iter().enumerate().map(row).collect())
    };
    loader.epoch().unwrap().map(rows).collect()
}

#[test]
fn samples_that_are_written_by_field_are_those_that_are_read() {
    for workers in [0, 2] {
        for (bad, skip) in [(None, false), (Some(7), false), (Some(7), true)] {
            let on_error = || if skip { OnError::Skip(Budget::Samples(9)) } else { OnError::Raise };
            let want = rows_of(ReadsMany(Fielded::new(bad), false), on_error(), workers);
            let fielded = Fielded::new(bad);
            assert_eq!(rows_of(fielded.clone(), on_error(), workers), want);
            assert_eq!(rows_of(Subset::new(Arc::new(fielded.clone()), 0..20).unwrap(), on_error(), workers), want);
            let parts = [0..13, 13..20].map(|part| Subset::new(fielded.clone(), part).unwrap());
            assert_eq!(rows_of(ConcatDataset::new(parts.clone()).unwrap(), on_error(), workers), want);
            let [first, second] = parts;
            assert_eq!(rows_of(first.concat(second).unwrap(), on_error(), workers), want);
        }
    }
}

type Lie = fn(&[usize], &mut RowsMut<'_>) -> Result<(), BoxError>;

/// A dataset whose `write_many` is the given function, which breaks its contract.
struct Lying(Lie);

impl Dataset for Lying {
    type Sample<'a> = (bool, u8);

    fn len(&self) -> usize {
        4
    }

    fn get<'a>(&'a self, _: usize, _: &'a mut Context) -> Result<(bool, u8), BoxError> {
        Ok((true, 1))
    }

    fn reads_many(&self) -> bool {
        true
    }

    fn write_many(&self, indices: &[usize], _: &mut Context, rows: &mut RowsMut<'_>) -> Result<(), BoxError> {
        (self.0)(indices, rows)
    }
}

#[test]
fn fields_that_are_not_as_declared_are_errors() {
    let cases: [(Lie, &str); 9] = [
        (|_, _| Ok(()), "asked for 4 samples but put only 0"),
        (|_, rows| rows.fields(5).map(drop), "asked for 4 samples but put more"),
        (|_, rows| (0..5).try_for_each(|_| rows.push((true, 1_u8))), "asked for 4 samples but put more"),
        (|_, rows| Ok(rows.fields(4)?.write_fixed(DType::U8, [&[1; 4][..]])?), "0: bool []"),
        (|_, rows| Ok(rows.fields(4)?.write_fixed(DType::Bool, [&[2; 4][..]])?), "0: bool []"),
        (|_, rows| Ok(rows.fields(4)?.write_fixed(DType::Bool, [&[1; 3][..]])?), "0: bool []"),
        (|_, rows| Ok(rows.fields(4)?.write_fixed(DType::Bool, [&[1; 3][..], &[1; 2]])?), "0: bool []"),
        (|_, rows| rows.fields(4)?.write_each(DType::Bool, [&[1][..]]), "asked for 4 samples but put only 1"),
        (
            |_, rows| {
                let mut fields = rows.fields(4)?;
                fields.write_fixed(DType::Bool, [&[1; 4][..]])?;
                Ok(fields.finish()?)
            },
            "2 fields were declared, but the sample wrote 1",
        ),
    ];
    for (lie, words) in cases {
        let mut loader = Loader::builder(Lying(lie)).batch_size(4).build().unwrap();
        let error = chain(&loader.epoch().unwrap().next().unwrap().unwrap_err());
        assert!(error.contains(words), "{error}");
    }
}

/// A dataset that asks another dataset for more rows than there are.
struct Greedy(ConcatDataset<Fielded>);

impl Dataset for Greedy {
    type Sample<'a> = (i64, bool, PackedText<'a>);

    fn len(&self) -> usize {
        4
    }

    fn get<'a>(&'a self, index: usize, cx: &'a mut Context) -> Result<Self::Sample<'a>, BoxError> {
        self.0.get(index, cx)
    }

    fn reads_many(&self) -> bool {
        true
    }

    fn write_many(&self, _: &[usize], cx: &mut Context, rows: &mut RowsMut<'_>) -> Result<(), BoxError> {
        self.0.write_many(&[0; 20], cx, rows)
    }
}

#[test]
fn a_dataset_can_not_write_more_rows_than_there_are() {
    let greedy = Greedy(ConcatDataset::new([Fielded::new(None)]).unwrap());
    let mut loader = Loader::builder(greedy).batch_size(4).build().unwrap();
    let error = chain(&loader.epoch().unwrap().next().unwrap().unwrap_err());
    assert!(error.contains("asked for 4 samples but put more"), "{error}");
}
