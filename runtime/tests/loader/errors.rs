//! Tests of failures in samples and collate functions. Each must be one error that names the
//! sample, and the next batch must be delivered.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::misbehaving_code::Bomb;
use crate::support::{
    Delivered, HAS_PROCESSES, Run, WithFields, Workers, chain, from_fn, items, sampler_fn, worker_kinds,
};
use slotline::dataset::{Context, Dataset};
use slotline::dtype::DType;
use slotline::loader::{BuildError, By, Error};
use slotline::sample::{Fields, PaddedToMax, Row, Sample, Text};
use slotline::{BoxError, Loader};

const RUN: Run = Run { len: 40, batch_size: 8, drop_last: false, shuffle: true, seed: 3 };

/// Returns the index, position and task of a sample's error or panic, the thread that read the
/// sample, and the message.
fn parts(error: &Error) -> (usize, usize, usize, By, String) {
    match error {
        Error::Sample { index, position, task, by, source } => (*index, *position, *task, *by, source.to_string()),
        Error::Panic { index, position, task, by, message } => (*index, *position, *task, *by, message.clone()),
        other => panic!("{other} is not about a sample"),
    }
}

/// Runs two passes and checks each batch and each error. The samples for which `bad` returns true
/// fail: `fail` returns an error, or panics if `panics` is set.
fn check(bad: fn(usize) -> bool, fail: fn(usize) -> Result<(), BoxError>, panics: bool) {
    for (workers, part_size, in_order, processes, round_robin) in [
        (0, None, true, false, false),
        (0, Some(3), true, false, false),
        (1, Some(1), true, false, false),
        (2, None, true, false, false),
        (2, Some(1), true, false, false),
        (3, Some(3), false, false, false),
        (2, None, true, HAS_PROCESSES, false),
        (2, Some(1), false, HAS_PROCESSES, false),
        (0, None, true, false, true),
        (1, None, true, false, true),
        (3, None, true, false, true),
    ] {
        let dataset = items(RUN.len, move |index, _| if bad(index) { fail(index) } else { Ok(()) });
        let mut builder = RUN.over(WithFields(dataset, known())).in_order(in_order).round_robin(round_robin);
        if let Some(part_size) = part_size {
            builder = builder.part_size(part_size);
        }
        let mut loader = Workers { workers, processes }.build(builder).unwrap();
        for expected in RUN.expected(2) {
            let mut pass = loader.epoch().unwrap();
            for _ in 0..expected.len() {
                match pass.next().expect("each batch or its error") {
                    Ok(batch) => assert_eq!(Delivered::from(&batch), expected[batch.batch_index()]),
                    Err(error) => {
                        assert_eq!(matches!(error, Error::Panic { .. }), panics);
                        let (index, position, task, by, message) = parts(&error);
                        let row = expected[task].indices.iter().position(|&index| bad(index as usize)).unwrap();
                        assert_eq!((index as i64, position), (expected[task].indices[row], task * 8 + row));
                        match by {
                            By::Worker(id) => assert!(id < workers && (!round_robin || id == task % workers), "{by}"),
                            By::Consumer => assert!(!round_robin || workers == 0),
                        }
                        assert_eq!(message, format!("no {index}"));
                        let text = chain(&error);
                        assert!(text.contains(&format!("sample {index} of batch {task} ")), "{text}");
                        assert!(text.contains(&by.to_string()) && text.contains(&message), "{text}");
                    }
                }
            }
            assert!(pass.next().is_none() && pass.next().is_none(), "a pass that has ended stays ended");
        }
    }
}

/// Returns the fields of [`items`].
fn known() -> Fields {
    Fields::of(&(0_i64, [[0_u8; 3]; 2], 0_u64))
}

#[test]
fn an_error_names_the_sample_and_the_next_batch_comes() {
    let fail = |index| Err(format!("no {index}").into());
    check(|index| index == 0, fail, false);
    check(|index| index % 16 == 9, fail, false);
    check(|index| index == 39, fail, false);
    check(|_| true, fail, false);
}

#[test]
fn a_panic_names_the_sample_and_the_next_batch_comes() {
    let fail = |index| panic!("no {index}");
    check(|index| index == 0, fail, true);
    check(|index| index % 16 == 9, fail, true);
    check(|_| true, fail, true);
}

#[test]
fn workers_survive_panics_with_any_payload() {
    for kind in worker_kinds([0, 1, 2]) {
        let dataset = items(8, |index, _| match index {
            1 => panic!("a literal"),
            2 => panic!("a String of {index}"),
            3 => std::panic::panic_any(7_u32),
            5 => std::panic::panic_any(Bomb(true)),
            _ => Ok(()),
        });
        let mut loader = kind.build(Loader::builder(dataset).help(false)).unwrap();
        for _ in 0..3 {
            let messages: Vec<_> =
                loader.epoch().unwrap().map(|batch| batch.err().map(|error| parts(&error).4)).collect();
            let messages: Vec<_> = messages.iter().map(Option::as_deref).collect();
            let no_message = Some("a panic without a message");
            assert_eq!(
                messages,
                [None, Some("a literal"), Some("a String of 2"), no_message, None, no_message, None, None]
            );
        }
    }
}

type Write = fn(&mut Row<'_>) -> Result<(), BoxError>;

/// A sample that the given function writes.
struct Odd(Write);

impl Sample for Odd {
    type Schema = (i32, u8);

    fn declare(&self, fields: &mut Fields) {
        fields.named("numbers", &[0_i32; 3]);
        fields.named("text", &Text::new("", 4));
    }

    fn write(self, row: &mut Row<'_>) -> Result<(), BoxError> {
        self.0(row)
    }
}

#[test]
fn a_sample_that_differs_from_its_declaration_is_an_error() {
    let cases: [(Write, &str); 13] = [
        (|row| [1_i32, 2].write(row), "numbers: i32 [3] was declared, but the sample has i32 [2]"),
        (|row| [1_i64, 2, 3].write(row), "numbers: i32 [3] was declared, but the sample has i64 [3]"),
        (|row| [[1_i32, 2, 3]].write(row), "the sample has i32 [1, 3]"),
        (|row| Ok(row.write(&[1_i32, 2], &[3])?), "numbers: i32 [3] was declared, but the sample has i32 [2]"),
        (|row| Ok(row.write::<i32>(&[], &[1; 9])?), "numbers: i32 [3]"),
        (
            |row| PaddedToMax::new(&[1_i32, 2, 3], 3).write(row),
            "declared of fixed shape, but the sample wrote another kind of field",
        ),
        (|row| [1_i32, 2, 3].write(row), "2 fields were declared, but the sample wrote 1"),
        (|row| ([1_i32, 2, 3], [1_u8; 4]).write(row), "text: u8 up to [4] was declared padded"),
        (
            |row| ([1_i32, 2, 3], Text::new("five!", 9)).write(row),
            "the sample has 5 elements; declare a larger maximum",
        ),
        (
            |row| ([1_i32, 2, 3], Text::new("four", 4), 1_u8).write(row),
            "2 fields were declared, but the sample wrote 3",
        ),
        (|_| Ok(()), "2 fields were declared, but the sample wrote 0"),
        (|_| Err("it would not decode".into()), "it would not decode"),
        // The sample ignores the errors of its row, which must still fail the batch.
        (
            |row| {
                assert!(row.write(&[1_i32, 2], &[3]).is_err());
                assert!(PaddedToMax::new(&[1_i32], 1).write(row).is_err());
                Text::new("four", 4).write(row).err();
                Ok(())
            },
            "2 fields were declared, but the sample wrote 0",
        ),
    ];
    for (i, (write, expected)) in cases.into_iter().enumerate() {
        let good: Write = |row| ([1_i32, 2, 3], Text::new("ok", 2)).write(row);
        for kind in worker_kinds([i % 2]) {
            let dataset = from_fn(6, move |index, _| Ok(Odd(if index == 3 { write } else { good })));
            let mut loader = kind.build(Loader::builder(dataset).batch_size(2)).unwrap();
            let outcomes: Vec<_> = loader.epoch().unwrap().map(|batch| batch.map(|_| ())).collect();
            assert!(outcomes[0].is_ok() && outcomes[2].is_ok());
            let error = outcomes[1].as_ref().unwrap_err();
            assert!(matches!(error, Error::Sample { index: 3, position: 3, task: 1, .. }), "{error}");
            assert!(chain(error).contains(expected), "{error}");
        }
    }
}

#[test]
fn reading_a_batch_with_the_wrong_schema_panics() {
    struct WrongSchema;
    impl Sample for WrongSchema {
        type Schema = bool;
        fn declare(&self, fields: &mut Fields) {
            fields.fixed(DType::U8, &[]);
        }
        fn write(self, row: &mut Row<'_>) -> Result<(), BoxError> {
            7_u8.write(row)
        }
    }
    let mut loader = Loader::builder(from_fn(2, |_, _| Ok(WrongSchema))).build().unwrap();
    for batch in loader.epoch().unwrap() {
        let batch = batch.unwrap();
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(batch.tensors()))).is_err());
        assert_eq!(batch.columns().get(0).unwrap().bytes(), [7]);
    }
}

#[test]
fn fields_that_a_dataset_declares_are_used_and_enforced() {
    let unread = |index, _: &mut Context| if index == 0 { Err("never read".into()) } else { Ok(()) };
    for kind in worker_kinds([0, 1]) {
        let mut loader = kind.build(Loader::builder(WithFields(items(3, unread), known()))).unwrap();
        assert_eq!(loader.epoch().unwrap().filter(|batch| batch.is_ok()).count(), 2);
    }
    let wrong = || from_fn(2, |index, _| Ok((index as i64, 0.5_f32)));
    for kind in worker_kinds([0, 1]) {
        let mut loader = kind.build(Loader::builder(WithFields(wrong(), Fields::of(&(0_i64, 0_f64))))).unwrap();
        for batch in loader.epoch().unwrap() {
            let error = chain(&batch.err().unwrap());
            assert!(error.contains("1: f64 [] was declared, but the sample has f32 []"), "{error}");
        }
    }
}

#[test]
fn build_needs_a_readable_sample_among_the_first_16() {
    for kind in worker_kinds([0, 1]) {
        let dataset = items(20, |index, _| Err(format!("no {index}").into()));
        let error = kind.build(Loader::builder(dataset)).unwrap_err();
        assert!(matches!(&error, BuildError::Probe { index: 15, source } if source.to_string() == "no 15"), "{error}");
        let error = kind.build(Loader::builder(items(2, |_, _| panic!("no")))).unwrap_err();
        assert!(
            matches!(&error, BuildError::Probe { index: 1, source } if source.to_string() == "panicked: no"),
            "{error}"
        );
        let bad = |index, _: &mut Context| if index < 9 { Err("no".into()) } else { Ok(()) };
        let mut loader = kind.build(Loader::builder(items(20, bad))).unwrap();
        assert_eq!(loader.epoch().unwrap().filter(Result::is_ok).count(), 11);
    }
}

#[test]
fn a_sampler_may_draw_another_number_of_indices_than_len() {
    let dataset = || items(10, |_, _| Ok(()));
    for kind in worker_kinds([0, 2]) {
        let tasks = |drawn: u64, len, batch_size| {
            let sampler = sampler_fn(len, move |order| {
                order.u64_table().extend(0..drawn);
                Ok(())
            });
            let builder = Loader::builder(dataset()).sampler(sampler).batch_size(batch_size);
            let mut loader = kind.build(builder).unwrap();
            let pass = loader.epoch().map(|pass| pass.map(|batch| batch.unwrap().len()).collect::<Vec<_>>());
            pass.map_err(|error| error.to_string())
        };
        assert_eq!(tasks(3, 8, 4), Ok(vec![3]));
        assert_eq!(tasks(10, 8, 4), Ok(vec![4, 4, 2]));
        assert_eq!(tasks(2, 8, 100), Ok(vec![2]));
        let error = tasks(10, 8, 100).unwrap_err();
        assert!(error.contains("the pass has 10 samples, but had 8 when the loader was built"), "{error}");
    }
}

#[test]
fn a_collate_error_or_panic_names_the_current_sample() {
    for workers in [0, 2] {
        let before = AtomicUsize::new(usize::MAX);
        let dataset = items(15, |index, _| if index == 7 { Err("no 7".into()) } else { Ok(()) });
        let builder = Loader::builder(dataset).batch_size(3).num_workers(workers).collate(move |samples| {
            let task = samples.index().unwrap() / 3;
            before.store(task, Ordering::Relaxed);
            if task == 1 {
                // Fail before a sample was read.
                return Err("no batch 1".into());
            }
            let mut sum = 0;
            while let Some(sample) = samples.next() {
                sum += sample?.0;
                assert!(task != 3 || samples.len() != 1, "no batch 3");
            }
            Ok(sum)
        });
        let mut loader = builder.build().unwrap();
        for _ in 0..3 {
            let mut pass = loader.epoch().unwrap();
            assert_eq!(pass.next().unwrap().unwrap(), 1 + 2);
            let error = pass.next().unwrap().unwrap_err();
            assert!(matches!(error, Error::Sample { index: 3, position: 3, task: 1, .. }), "{error}");
            let error = pass.next().unwrap().unwrap_err();
            assert!(matches!(error, Error::Sample { index: 7, position: 7, task: 2, .. }), "{error}");
            let error = pass.next().unwrap().unwrap_err();
            assert!(matches!(error, Error::Panic { index: 10, position: 10, task: 3, .. }), "{error}");
            assert_eq!(pass.next().unwrap().unwrap(), 12 + 13 + 14);
            assert!(pass.next().is_none());
        }
    }
}

/// A dataset whose `prefetch` panics for sample 20.
struct PanicsInPrefetch;

impl Dataset for PanicsInPrefetch {
    type Sample<'a> = i64;

    fn len(&self) -> usize {
        40
    }

    fn get<'a>(&'a self, index: usize, _: &'a mut Context) -> Result<i64, BoxError> {
        Ok(index as i64)
    }

    fn prefetch(&self, index: usize) {
        assert_ne!(index, 20, "not that one");
    }
}

#[test]
fn a_panic_in_prefetch_names_the_sample_being_read() {
    let round_robin = |workers| (Workers { workers, processes: false }, true);
    for (kind, round_robin) in worker_kinds([0, 2]).map(|kind| (kind, false)).chain([0, 1, 2].map(round_robin)) {
        let (task, index) = if kind.workers == 0 { (3, 12) } else { (5, 20) };
        let mut loader = kind.build(Loader::builder(PanicsInPrefetch).batch_size(4).round_robin(round_robin)).unwrap();
        for _ in 0..2 {
            let outcomes = loader.epoch().unwrap().enumerate();
            let failed = outcomes.filter_map(|(place, outcome)| match outcome {
                Ok(batch) => {
                    assert_eq!(batch.tensors().as_slice()[3], place as i64 * 4 + 3);
                    None
                }
                Err(error) => {
                    let (index, _, task, _, message) = parts(&error);
                    assert!(message.contains("not that one"), "{message}");
                    Some((place, task, index))
                }
            });
            assert_eq!(failed.collect::<Vec<_>>(), [(task, task, index)], "{kind:?}, round_robin: {round_robin}");
        }
    }
}
