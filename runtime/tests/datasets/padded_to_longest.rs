//! Tests of samples that are padded to the longest sample of their batch, with a loader.

use slotline::Loader;
use slotline::dataset::{Context, Dataset};
use slotline::loader::{BatchOf, Budget, BuildError, Error, OnError, Overflow};
use slotline::sample::{Mask, PaddedToLongest, PaddedToMax};
use slotline::{BoxError, Sample};

use crate::support::{Workers, worker_kinds};

#[derive(Sample)]
struct Text<'a> {
    input_ids: PaddedToLongest<'a, u32>,
    mask: Mask<bool>,
    whole: PaddedToMax<'a, i16>,
    number: i64,
    whole_mask: Mask<f32>,
}

/// A dataset of texts of 0 to 40 tokens. Some fail before they are written, and some while they are
/// being written.
#[derive(Clone)]
struct Texts {
    room: usize,
    fails: bool,
}

fn length(index: usize) -> usize {
    index * 17 % 41
}

fn tokens(index: usize) -> Vec<u32> {
    (0..length(index)).map(|place| (index * 100 + place) as u32).collect()
}

impl Dataset for Texts {
    type Sample<'a> = Text<'a>;

    fn len(&self) -> usize {
        200
    }

    fn get<'a>(&'a self, index: usize, _: &'a mut Context) -> Result<Text<'a>, BoxError> {
        if self.fails && index % 13 == 5 {
            return Err("bad".into());
        }
        let input_ids = PaddedToLongest::owned(tokens(index), self.room).padding(7).multiple_of(4);
        let longer = if self.fails && index % 13 == 6 { 41 } else { length(index) };
        let whole = PaddedToMax::owned(vec![index as i16; longer], 40).padding(-1);
        let number = index as i64;
        Ok(Text { mask: input_ids.mask(true), input_ids, whole_mask: whole.mask(0.5), whole, number })
    }
}

/// Checks that a batch has the texts of its indices.
#[track_caller]
fn check(batch: &BatchOf<Texts>) {
    let indices: Vec<usize> = batch.indices().iter().map(|&index| index as usize).collect();
    let longest = indices.iter().map(|&index| length(index)).max().unwrap_or(0).next_multiple_of(4);
    let texts = batch.tensors();
    assert_eq!(texts.input_ids.padded().shape(), [indices.len(), longest]);
    assert_eq!(texts.mask.padded().shape(), [indices.len(), longest]);
    assert_eq!(texts.whole.padded().shape(), [indices.len(), 40]);
    for (row, &index) in indices.iter().enumerate() {
        let (own, length) = (tokens(index), length(index));
        let padded = |to: usize| own.iter().copied().chain(std::iter::repeat_n(7, to - length)).collect::<Vec<_>>();
        assert_eq!(texts.input_ids.padded().row(row).as_slice(), padded(longest));
        assert_eq!(texts.input_ids.row(row), own);
        assert_eq!((texts.input_ids.lengths()[row], texts.number[[row]]), (length as i64, index as i64));
        let here = |place: usize| place < length;
        assert!(texts.mask.padded().row(row).as_slice().iter().enumerate().all(|(place, &one)| one == here(place)));
        let whole = texts.whole.padded().row(row);
        let want = |place: usize| if here(place) { index as i16 } else { -1 };
        assert!(whole.as_slice().iter().enumerate().all(|(place, &number)| number == want(place)));
        let half = |place: usize| if here(place) { 0.5 } else { 0.0 };
        let mask = texts.whole_mask.padded().row(row);
        assert!(mask.as_slice().iter().enumerate().all(|(place, &number)| number == half(place)));
    }
}

#[test]
fn rows_are_as_wide_as_the_longest_for_any_workers() {
    for kind in worker_kinds([0, 1, 3]) {
        for round_robin in [false, true] {
            let builder = Loader::builder(Texts { room: 40, fails: false }).batch_size(7).shuffle(true).seed(3);
            let mut loader = kind.build(builder.round_robin(round_robin)).unwrap();
            for _ in 0..2 {
                let mut widths = Vec::new();
                for batch in loader.epoch().unwrap() {
                    let batch = batch.unwrap();
                    check(&batch);
                    widths.push(batch.tensors().input_ids.padded().shape()[1]);
                }
                assert_eq!(widths.len(), 29);
                assert!(widths.iter().any(|&width| width < 40) && widths.contains(&40));
            }
        }
    }
}

#[test]
fn bad_samples_leave_no_trace_in_the_width() {
    for kind in worker_kinds([0, 2]) {
        for on_error in [OnError::Skip(Budget::Samples(1000)), OnError::Replace(Budget::Samples(1000))] {
            let builder = Loader::builder(Texts { room: 41, fails: true }).batch_size(5).seed(3).shuffle(true);
            let mut loader = kind.build(builder.on_error(on_error)).unwrap();
            let mut samples = 0;
            for batch in loader.epoch().unwrap() {
                let batch = batch.unwrap();
                check(&batch);
                samples += batch.len();
            }
            let bad = (0..200).filter(|index| [5, 6].contains(&(index % 13))).count();
            assert_eq!(samples, if matches!(on_error, OnError::Replace(_)) { 200 } else { 200 - bad });
        }
    }
}

#[test]
fn a_batch_without_room_is_an_error_or_spills() {
    let texts = || Loader::builder(Texts { room: 10, fails: false }).batch_size(8);
    let mut loader = texts().build().unwrap();
    let error = loader.epoch().unwrap().find_map(Result::err).expect("an error");
    let Error::Sample { source, .. } = &error else { panic!("{error}") };
    let message = source.to_string();
    // The lengths are 0, 17 and 34. The three rows are padded to 36.
    assert!(message.contains("3 samples padded to 36 have 108 elements, and the batch has room for 80"), "{message}");
    assert!(message.contains("declare room for at least 14 per sample"), "{message}");
    for workers in [0, 2] {
        let mut loader = texts().on_overflow(Overflow::Spill).num_workers(workers).build().unwrap();
        for _ in 0..2 {
            let mut kept = Vec::new();
            for batch in loader.epoch().unwrap() {
                let batch = batch.unwrap();
                check(&batch);
                kept.push(batch);
            }
            kept.iter().for_each(check);
        }
        assert!(loader.stats().spilled_batches > 0);
    }
    let error = Workers { workers: 1, processes: true };
    if crate::support::HAS_PROCESSES {
        let refused = error.build(texts().on_overflow(Overflow::Spill));
        assert!(matches!(refused, Err(BuildError::Clash { .. })));
    }
}

#[test]
fn a_single_sample_has_its_own_length() {
    let mut loader = Loader::builder(Texts { room: 40, fails: false }).batch_size(None).build().unwrap();
    let sample = loader.epoch().unwrap().nth(1).unwrap().unwrap();
    let text = sample.tensors();
    assert_eq!((text.input_ids.padded().shape(), text.input_ids.lengths()), (&[20][..], &[17][..]));
    assert_eq!(text.input_ids.row(0), tokens(1));
}
