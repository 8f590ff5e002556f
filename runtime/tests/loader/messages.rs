//! Tests of the errors, warnings and statistics for frequent mistakes. They must say what is wrong
//! and what to do.

use slotline::dataset::{Context, Dataset, OutOfRange, TensorDataset, iter_fn};
use slotline::loader::{BadSample, Budget, By, OnError, Stats, Warning};
use slotline::sampler::{Order, Sampler};
use slotline::{BoxError, Error, Loader};

use crate::support::{HAS_PROCESSES, InProcesses, chain, from_fn, sampler_fn};

/// Returns the only error of a pass.
#[track_caller]
fn only_error<B>(pass: impl Iterator<Item = Result<B, Error>>) -> Error {
    let mut errors: Vec<_> = pass.filter_map(Result::err).collect();
    assert_eq!(errors.len(), 1, "{errors:?}");
    errors.remove(0)
}

#[test]
fn vecs_of_unequal_length_are_an_error_with_alternatives() {
    let lists = from_fn(4, |index, _| Ok(vec![0_i64; if index == 3 { 5 } else { 2 }]));
    let mut loader = Loader::builder(lists).batch_size(2).build().unwrap();
    let message = chain(&only_error(loader.epoch().unwrap()));
    for word in ["PaddedToMax", "Packed", "collate", "[2]", "[5]", "sample 3"] {
        assert!(message.contains(word), "{message}");
    }
}

/// Returns a sampler that draws these indices in this order, as a table.
fn fixed(indices: Vec<u64>) -> impl Sampler {
    sampler_fn(indices.len(), move |order| {
        *order = Order::U64(indices.clone());
        Ok(())
    })
}

#[test]
fn an_index_out_of_range_is_an_error_with_the_length() {
    fn check<D: Dataset>(dataset: impl Fn() -> D) {
        for workers in [0, 1] {
            let build = || Loader::builder(dataset()).batch_size(2).num_workers(workers);
            let sampler = || fixed(vec![0, 1, 4, 5, 2, 3]);
            let in_table = only_error(build().sampler(sampler()).build().unwrap().epoch().unwrap());
            let iterated = only_error(build().sampler_iter(|| [0, 1, 4, 5, 2, 3]).build().unwrap().epoch().unwrap());
            let round_robin =
                only_error(build().sampler(sampler()).round_robin(true).build().unwrap().epoch().unwrap());
            let lists = || [[0, 1], [4, 5], [2, 3]];
            let builder = Loader::builder(dataset()).num_workers(workers).batch_sampler_iter(2, lists);
            let listed = only_error(builder.build().unwrap().epoch().unwrap());
            for error in [in_table, iterated, round_robin, listed] {
                let Error::Sample { index: 5, source, .. } = &error else { panic!("{error:?}") };
                let missing = source.downcast_ref::<OutOfRange>().unwrap();
                assert_eq!((missing.index, missing.len), (5, 5));
                assert!(chain(&error).contains("check the sampler"), "{error}");
            }
            if HAS_PROCESSES && workers > 0 {
                let error = only_error(build().sampler(sampler()).in_processes().unwrap().epoch().unwrap());
                assert!(matches!(error, Error::Sample { index: 5, .. }), "{error:?}");
                assert!(chain(&error).contains("index 5 is not below its length, 5"), "{error}");
            }
            for huge in [build().sampler(fixed(vec![0, u64::MAX])), build().sampler_iter(|| [0, usize::MAX])] {
                let error = only_error(huge.build().unwrap().epoch().unwrap());
                assert!(matches!(error, Error::Sample { index: usize::MAX, .. }), "{error:?}");
            }
            let skip = build().sampler(sampler()).on_error(OnError::Skip(Budget::Samples(1)));
            let mut loader = skip.build().unwrap();
            assert_eq!(loader.epoch().unwrap().map(|batch| batch.unwrap().len()).sum::<usize>(), 5);
            let causes = loader.stats().bad_causes;
            assert!(causes[0].message.contains("index 5 is not below its length, 5"), "{causes:?}");
        }
    }
    /// A dataset that panics at an index that is out of range.
    struct Unchecked([i64; 5]);
    impl Dataset for Unchecked {
        type Sample<'a> = i64;

        fn len(&self) -> usize {
            5
        }

        fn get(&self, index: usize, _: &mut Context) -> Result<i64, BoxError> {
            Ok(self.0[index])
        }
    }
    // The first two datasets check the index themselves, also before the second calls its function,
    // which accepts any index. The third dataset does not check the index.
    check(|| TensorDataset::new((vec![1_i64, 2, 3, 4, 5], vec![0_u8; 5])).unwrap());
    check(|| from_fn(5, |index, _| Ok(index as i64)));
    check(|| Unchecked([1, 2, 3, 4, 5]));
}

#[test]
fn a_pass_without_batches_gives_a_warning() {
    let numbers = |len| TensorDataset::new(vec![0_i64; len]).unwrap();
    let warning = Warning::NoBatch { batch_size: 8, samples: 7 };
    let loader = Loader::builder(numbers(7)).batch_size(8).drop_last(true).build().unwrap();
    assert_eq!(loader.warnings(), std::slice::from_ref(&warning));
    assert!(["batch_size is 8", "7 samples", "drop_last"].iter().all(|words| warning.to_string().contains(words)));
    let round_robin = Loader::builder(numbers(7)).batch_size(8).drop_last(true).round_robin(true).build().unwrap();
    assert_eq!(round_robin.warnings(), std::slice::from_ref(&warning));
    let sampled = Loader::builder(numbers(100)).batch_size(8).drop_last(true).sampler(fixed((0..7).collect()));
    assert_eq!(sampled.build().unwrap().warnings(), [warning]);
    for (len, batch_size, drop_last) in [(7, 8, false), (8, 8, true), (0, 8, true)] {
        let loader = Loader::builder(from_fn(len, |index, _| Ok(index as i64))).batch_size(batch_size);
        let loader = loader.drop_last(drop_last).collate(|samples| Ok(samples.len())).build().unwrap();
        assert_eq!(loader.warnings(), []);
    }
}

/// An error that has a source.
#[derive(Debug)]
struct Scratched(std::io::Error);

impl std::fmt::Display for Scratched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the disk is scratched")
    }
}

impl std::error::Error for Scratched {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

/// Reads a sample. Of four indices, three fail: with an error that has a source, with a panic, and
/// with a long message.
fn fault(index: usize) -> Result<i64, BoxError> {
    match index % 4 {
        0 => Ok(index as i64),
        1 => Err(Scratched(std::io::Error::other("sector 9")).into()),
        2 => panic!("no sample {index}"),
        _ => Err("ä".repeat(10_000).into()),
    }
}

/// Returns the index, batch and message of each bad sample in the statistics.
fn causes(stats: &Stats) -> Vec<(usize, usize, &str)> {
    stats.bad_causes.iter().map(|BadSample { index, batch, message, .. }| (*index, *batch, &message[..])).collect()
}

#[test]
fn the_statistics_keep_the_causes_of_the_last_bad_samples() {
    for (workers, on_error) in [
        (0, OnError::Skip(Budget::Samples(99))),
        (2, OnError::Skip(Budget::Samples(99))),
        (0, OnError::Skip(Budget::Samples(4))),
    ] {
        let builder = Loader::builder(from_fn(16, |index, _| fault(index))).batch_size(4).num_workers(workers);
        let mut loader = builder.on_error(on_error).help(false).build().unwrap();
        assert_eq!(loader.stats().bad_causes, []);
        loader.epoch().unwrap().for_each(drop);
        let stats = loader.stats();
        assert_eq!((stats.bad_samples, stats.bad_causes.len()), (12, 8));
        let long = "ä".repeat(256);
        let scratched = "the disk is scratched: sector 9";
        let want = [
            (6, 1, "panicked: no sample 6"),
            (7, 1, &long),
            (9, 2, scratched),
            (10, 2, "panicked: no sample 10"),
            (11, 2, &long),
            (13, 3, scratched),
            (14, 3, "panicked: no sample 14"),
            (15, 3, &long),
        ];
        assert_eq!(causes(&stats), want);
        let by_expected = |by| matches!(by, By::Worker(_)) == (workers > 0);
        assert!(stats.bad_causes.iter().all(|bad| by_expected(bad.by)));
        assert_eq!(serde_json::to_value(&stats).unwrap()["bad_causes"][2]["message"], scratched);
    }
    let stream = iter_fn(|_| Ok((0..6_i64).map(|n| if n == 2 { Err(BoxError::from("two")) } else { Ok(n) })));
    let builder = Loader::iterable(stream).batch_size(2).on_error(OnError::Skip(Budget::Samples(1)));
    let mut loader = builder.build().unwrap();
    loader.epoch().unwrap().for_each(drop);
    assert_eq!(causes(&loader.stats()), [(2, 1, "two")]);
}
