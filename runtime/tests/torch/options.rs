//! Tests of single options: workers, prefetching, pinning.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use slotline::dataset::iter_fn;
use slotline::loader::{BatchOf, Builder, Warning};
use slotline::{BoxError, Dataset, Error, worker_info};

use crate::support::{LONG, shared};
use crate::{KINDS, Kind, Loader, Options, nothing, numbers, stream};

#[test]
fn the_calling_thread_reads_samples_only_without_workers() {
    let here = thread::current().id();
    for workers in [0, 2] {
        for kind in KINDS {
            let elsewhere = shared::<AtomicUsize>();
            let options = Options { workers, ..Options::default() };
            let mut loader = options.build(kind, move |_| {
                elsewhere.fetch_add(usize::from(thread::current().id() != here), Ordering::SeqCst);
                Ok(())
            });
            assert_eq!(loader.whole(), options.expected(kind));
            assert_eq!(elsewhere.load(Ordering::SeqCst), if workers > 0 { options.len } else { 0 }, "{kind:?}");
        }
    }
}

/// Waits until `done` returns true, and returns whether it did so in time.
fn becomes_true(done: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    while !done() {
        if begun.elapsed() > LONG {
            return false;
        }
        thread::yield_now();
    }
    true
}

#[test]
fn prefetch_factor_batches_per_worker_are_loaded_ahead() {
    for (workers, prefetch) in [(1, 1), (1, 4), (2, 1), (2, 3), (3, 2)] {
        for kind in KINDS {
            // The number of numbers that were read, and the number of batches that were requested.
            let (read, asked) = (shared::<AtomicUsize>(), shared::<AtomicUsize>());
            let options = Options { len: 60, batch_size: 2, workers, prefetch, ..Options::default() };
            // A shared ring has two slots in addition to those for prefetching: one for the batch
            // that is held, and one to make the number even.
            let spare = if matches!(kind, Kind::Shared | Kind::Processes) { 2 } else { 0 };
            let mut loader = options.build(kind, move |_| {
                if worker_info().is_some() {
                    let begun = read.fetch_add(1, Ordering::SeqCst) / 2;
                    let most = asked.load(Ordering::SeqCst) + prefetch * workers + spare;
                    assert!(begun < most, "{begun} batches were begun before this one; the maximum is {most}");
                }
                Ok(())
            });
            read.store(0, Ordering::SeqCst);
            for _ in 0..2 {
                let mut pass = loader.pass().unwrap();
                assert!(becomes_true(|| read.load(Ordering::SeqCst) >= 2 * prefetch * workers), "{kind:?} {options:?}");
                let mut left = 30;
                while left > 0 {
                    asked.fetch_add(1, Ordering::SeqCst);
                    assert_eq!(pass.next().unwrap().unwrap().len(), 2);
                    left -= 1;
                }
                assert!(pass.next().is_none());
                drop(pass);
                read.store(0, Ordering::SeqCst);
                asked.store(0, Ordering::SeqCst);
            }
        }
    }
}

/// The sum of a batch and, if it was pinned, the worker that pinned it.
type Sum = (i64, Option<usize>);

/// Sums batches with a collate function and a pin function, in a loader of the given kind.
fn sums(kind: Kind, workers: usize, pin_memory: bool, fault: Option<i64>) -> (Vec<Result<Sum, Error>>, Vec<Warning>) {
    let pin = move |sum: &mut Sum| -> Result<(), BoxError> {
        if fault == Some(sum.0) {
            return Err(format!("cannot pin {}", sum.0).into());
        }
        assert_eq!(sum.1, None, "pinned twice");
        sum.1 = Some(worker_info().map_or(usize::MAX, |worker| worker.id()));
        Ok(())
    };
    macro_rules! sums {
        ($builder:expr) => {{
            let builder = $builder.batch_size(2).num_workers(workers).pin_memory(pin_memory).help(false);
            let builder = builder.collate(|samples| {
                let mut sum = 0;
                while let Some(sample) = samples.next() {
                    sum += sample?;
                }
                Ok((sum, None))
            });
            let mut loader = builder.pin_memory_with(pin).build().unwrap();
            (loader.epoch().unwrap().collect(), loader.warnings().to_vec())
        }};
    }
    match kind {
        // With worker processes, the result of a collate function must be a sample.
        Kind::Shared | Kind::Processes => sums!(Loader::builder(numbers(7, nothing))),
        Kind::RoundRobin => sums!(Loader::builder(numbers(7, nothing)).round_robin(true)),
        Kind::Iterable => sums!(Loader::iterable(stream(7, nothing))),
    }
}

#[test]
fn a_pin_function_runs_once_per_batch_in_its_worker() {
    for kind in KINDS {
        for workers in [0, 1] {
            let (outcomes, warnings) = sums(kind, workers, true, None);
            let by = Some(if workers == 0 { usize::MAX } else { 0 });
            let pinned: Vec<Sum> = outcomes.into_iter().map(Result::unwrap).collect();
            assert_eq!(pinned, [(1, by), (5, by), (9, by), (6, by)]);
            assert!(!warnings.contains(&Warning::NothingToPin), "{warnings:?}");
        }
    }
}

#[test]
fn a_pin_function_runs_only_with_pin_memory() {
    for kind in KINDS {
        let pinned: Vec<Sum> = sums(kind, 0, false, Some(1)).0.into_iter().map(Result::unwrap).collect();
        assert_eq!(pinned, [(1, None), (5, None), (9, None), (6, None)]);
    }
}

#[test]
fn an_error_of_a_pin_function_fails_only_its_batch() {
    for kind in KINDS {
        let outcomes = sums(kind, 1, true, Some(5)).0;
        let [Ok(_), Err(error), Ok(_), Ok(_)] = &outcomes[..] else { panic!("{outcomes:?}") };
        assert!(matches!(error, Error::Sample { task: 1, source, .. } if source.to_string() == "cannot pin 5"));
    }
}

#[test]
fn pin_memory_without_anything_to_pin_is_a_warning() {
    fn warned<D: Dataset>(builder: Builder<D>) -> Vec<Warning> {
        builder.pin_memory(true).collate(|samples| Ok(samples.len())).build().unwrap().warnings().to_vec()
    }
    let warnings = warned(Loader::builder(numbers(7, nothing)));
    assert_eq!(warnings, [Warning::NothingToPin]);
    assert!(warnings[0].to_string().contains("pin_memory_with"));
}

#[test]
fn more_workers_than_cores_is_a_warning() {
    let cores = thread::available_parallelism().unwrap().get();
    let warning = Warning::ManyWorkers { workers: cores + 1, cores };
    assert!(warning.to_string().contains(&format!("num_workers is {}", cores + 1)));
    for kind in KINDS {
        let warnings = |workers| Options { workers, ..Options::default() }.build(kind, nothing).warnings().to_vec();
        assert!(warnings(cores + 1).contains(&warning));
        assert!(warnings(cores).is_empty());
    }
}

#[test]
fn memory_ceiling_is_known_before_the_first_batch() {
    fn check<D: slotline::dataset::Loadable>(
        loader: slotline::loader::Builder<D>,
        build: impl Fn(Builder<D>) -> Loader<BatchOf<D>>,
    ) {
        let mut loader = build(loader.batch_size(4).num_workers(2).prefetch_factor(3));
        // There are 6 slots for prefetching, 1 for the batch that is held, and 1 to replace it.
        let (before, depth) = (loader.memory_ceiling(), loader.depth());
        assert_eq!(depth, 8);
        assert!(before >= depth * 4 * 8 && before < 1 << 20, "{before}");
        assert_eq!(loader.epoch().unwrap().filter(Result::is_ok).count(), 4);
        assert_eq!((loader.memory_ceiling(), loader.depth()), (before, depth));
    }
    check(Loader::builder(numbers(16, nothing)), |builder| builder.round_robin(true).build().unwrap());
    check(
        Loader::iterable(iter_fn(|worker| Ok(worker.map_or(0..16, |w| w.share(16)).map(|i| Ok(i as i64))))),
        |builder| builder.build().unwrap(),
    );
}
