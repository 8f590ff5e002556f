//! Tests of bad samples of iterable datasets, in which the next sample of the stream takes the
//! place of a bad one.

use slotline::dataset::{IterFn, iter_fn};
use slotline::loader::Samples;

use super::*;

/// Returns an iterable dataset of [`Sheet`]s, of which each worker reads all.
fn stream<const PACKED: bool>(
    len: usize,
    fault: Fault,
    bad: fn(usize) -> bool,
) -> impl slotline::dataset::IterableDataset + for<'a> StreamOf<'a, Sheet<PACKED>> {
    let stream: IterFn<_> = iter_fn(move |_| {
        Ok((0..len).map(move |index| {
            let fault = bad(index).then_some(fault);
            if fault == Some(Fault::Error) {
                return Err(format!("no {index}").into());
            }
            assert!(fault != Some(Fault::Panic), "no {index}");
            Ok(Sheet::<PACKED> { index, word: 7, fault })
        }))
    });
    stream
}

trait StreamOf<'a, S>: slotline::dataset::IterableDataset<Sample<'a> = S> {}
impl<'a, S, D: slotline::dataset::IterableDataset<Sample<'a> = S>> StreamOf<'a, S> for D {}

/// Checks the fields of a batch, and returns the indices of its samples.
fn numbers<S>(batch: &Batch<S>) -> Vec<i64> {
    let columns = batch.columns();
    let numbers = columns.get(0).unwrap().typed::<i64>().unwrap().as_slice().to_vec();
    for (row, &number) in numbers.iter().enumerate() {
        let text = text(number as usize);
        assert_eq!(columns.lengths(2).unwrap()[row] as usize, text.len());
        if let Some(ends) = columns.offsets(4) {
            let bytes = columns.get(4).unwrap();
            assert_eq!(&bytes.bytes()[ends[row] as usize..ends[row + 1] as usize], text.as_bytes());
        }
    }
    assert_eq!(batch.indices(), numbers);
    numbers
}

const FAULTS_EXCEPT_PANIC: [Fault; 5] = [Fault::Error, Fault::Write, Fault::WritePanic, Fault::Mismatch, Fault::Full];

#[test]
fn the_next_sample_replaces_a_bad_one() {
    full_batches::<false>();
    full_batches::<true>();
}

fn full_batches<const PACKED: bool>() {
    let cases: [fn(usize) -> bool; 5] = [|i| i % 5 == 3, |i| i < 9, |i| i > 16, |i| i != 11, |i| i == 8 || i == 41];
    for bad in cases {
        let left: Vec<i64> = (0..42).filter(|&i| !bad(i as usize)).collect();
        for fault in FAULTS_EXCEPT_PANIC {
            for (workers, drop_last) in [(0, false), (1, false), (2, false), (0, true), (2, true)] {
                let builder = Loader::iterable(stream::<PACKED>(42, fault, bad)).batch_size(8);
                let builder = builder.num_workers(workers).drop_last(drop_last).on_error(SKIP);
                let mut loader = builder.build().unwrap();
                let whole = left.chunks(8).filter(|batch| !drop_last || batch.len() == 8);
                // Each worker reads the same samples, and batches come from the workers in turn.
                let want: Vec<_> = whole.flat_map(|batch| vec![batch.to_vec(); workers.max(1)]).collect();
                for pass in 1..3 {
                    let batches: Vec<_> = loader.epoch().unwrap().map(Result::unwrap).collect_contents();
                    assert_eq!(batches.iter().map(|(_, got)| got.clone()).collect::<Vec<_>>(), want, "{fault:?}");
                    assert!(batches.iter().map(|&(task, _)| task).eq(0..want.len()), "a batch number is missing");
                    assert_eq!(loader.stats().bad_samples as usize, pass * (42 - left.len()) * workers.max(1));
                }
                let once = (0..42).filter(|&i| bad(i)).collect::<Vec<_>>();
                assert!(loader.stats().bad_indices.into_iter().eq(std::iter::repeat_n(once, workers.max(1)).flatten()));
            }
        }
    }
}

/// Collects the numbers and contents of batches, and drops each batch before the next one is taken.
trait CollectContents {
    fn collect_contents(self) -> Vec<(usize, Vec<i64>)>;
}

impl<S, I: Iterator<Item = Batch<S>>> CollectContents for I {
    fn collect_contents(self) -> Vec<(usize, Vec<i64>)> {
        self.map(|batch| (batch.batch_index(), numbers(&batch))).collect()
    }
}

#[test]
fn endless_errors_end_each_batch_beyond_the_budget() {
    for workers in [0, 2] {
        let endless = iter_fn(|_| Ok((0..).map(|i| if i == 0 { Ok(0_i64) } else { Err("no".into()) })));
        let builder = Loader::iterable(endless).batch_size(4).num_workers(workers);
        let mut loader = builder.on_error(OnError::Skip(Budget::Samples(3))).build().unwrap();
        let messages: Vec<_> = loader.epoch().unwrap().take(3).map(|batch| describe(&batch.unwrap_err())).collect();
        assert_eq!(messages[0], "4 bad of 3: sample 4 at 4 of 0: no");
        assert!(messages[1].starts_with("8 bad of 3: ") && messages[2].starts_with("12 bad of 3: "), "{messages:?}");
    }
}

#[test]
fn a_cursor_that_panics_ends_its_stream_and_raises() {
    for workers in [0, 1] {
        let builder = Loader::iterable(stream::<true>(20, Fault::Panic, |i| i == 11)).batch_size(4);
        let mut loader = builder.num_workers(workers).on_error(SKIP).build().unwrap();
        let mut pass = loader.epoch().unwrap();
        assert_eq!(numbers(&pass.next().unwrap().unwrap()), [0, 1, 2, 3]);
        assert_eq!(numbers(&pass.next().unwrap().unwrap()), [4, 5, 6, 7]);
        assert_eq!(describe(&pass.next().unwrap().unwrap_err()), "panic 11 at 11 of 2: no 11");
        assert!(pass.next().is_none());
    }
}

#[test]
fn a_collate_function_gets_no_bad_samples_of_a_stream() {
    for workers in [0, 1] {
        for (take, want) in [(9, vec![vec![0, 1, 2, 4], vec![5, 6, 7, 9]]), (2, vec![vec![0, 1], vec![5, 6]])] {
            let builder = Loader::iterable(stream::<false>(60, Fault::Error, |i| i % 5 == 3 || i > 9)).batch_size(4);
            let builder = builder.num_workers(workers).on_error(SKIP).collate(move |samples| {
                let mut batch = Vec::new();
                while batch.len() < take
                    && let Some(sample) = samples.next()
                {
                    batch.push(sample?.index);
                }
                if batch.is_empty() { Err("no batch without samples".into()) } else { Ok(batch) }
            });
            let mut loader = builder.build().unwrap();
            let got: Result<Vec<_>, _> = loader.epoch().unwrap().collect();
            assert_eq!(got.unwrap(), want);
            assert_eq!(loader.stats().bad_samples, 52, "the last samples of the stream count, too");
        }
    }
}

#[test]
fn a_collate_function_leaves_out_what_a_stack_of_a_stream_does() {
    let cases: [fn(usize) -> bool; 3] = [|i| i % 5 == 3, |i| i < 9, |i| i != 11];
    for (bad, fault) in cases.into_iter().flat_map(|bad| FAULTS_EXCEPT_PANIC.map(|fault| (bad, fault))) {
        for (workers, each) in [(0, false), (0, true), (2, false), (2, true)] {
            let builder = || Loader::iterable(stream::<false>(42, fault, bad)).batch_size(8).num_workers(workers);
            let mut stacked = builder().on_error(SKIP).build().unwrap();
            let wanted: Vec<_> = stacked.epoch().unwrap().map(Result::unwrap).collect_contents();
            let collate = move |samples: &mut Samples<'_, _>| collate::written(samples, each);
            let mut collated = builder().on_error(SKIP).collate(collate).build().unwrap();
            let number = |seen: Seen| seen.index as i64;
            let got = collated.epoch().unwrap().map(|batch| batch.unwrap().into_iter().map(number).collect());
            assert_eq!(got.collect::<Vec<Vec<_>>>(), wanted.into_iter().map(|(_, got)| got).collect::<Vec<_>>());
            assert_eq!(collated.stats().bad_indices, stacked.stats().bad_indices, "{fault:?}, {each}");
        }
    }
}

#[test]
fn build_skips_bad_samples_at_the_start() {
    let numbers = |bad: i64| iter_fn(move |_| Ok((0..40).map(move |i| if i < bad { Err("no".into()) } else { Ok(i) })));
    let mut loader = Loader::iterable(numbers(9)).batch_size(40).on_error(SKIP).build().unwrap();
    assert_eq!(loader.epoch().unwrap().next().unwrap().unwrap().len(), 31);
    assert!(Loader::iterable(numbers(16)).on_error(SKIP).build().is_err());
    assert!(Loader::iterable(numbers(1)).build().is_err());
}
