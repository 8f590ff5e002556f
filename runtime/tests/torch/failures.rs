//! Tests of errors and panics in user code: the batch that they are attributed to, when they are
//! delivered, and what follows them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use slotline::dataset::{IterableDataset, iter_fn};
use slotline::loader::By;
use slotline::{BoxError, Error, Loader, WorkerInfo};

use crate::support::chain;
use crate::{Kind, Options, Passes};

/// The way in which user code fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failing {
    Error,
    Panic,
}

const FAILING: [Failing; 2] = [Failing::Error, Failing::Panic];

impl Failing {
    fn fail(self, what: &str) -> BoxError {
        match self {
            Self::Error => what.into(),
            Self::Panic => panic!("{what}"),
        }
    }
}

/// Returns a dataset of five numbers for each worker w, starting at 100 w, and a flag. While the
/// flag is set, the workers in `bad` cannot start.
fn unstartable(failing: Failing, bad: Vec<usize>) -> (impl for<'a> IterableDataset<Sample<'a> = i64>, Arc<AtomicBool>) {
    let armed = Arc::new(AtomicBool::new(false));
    let arm = armed.clone();
    let dataset = iter_fn(move |worker: Option<WorkerInfo>| {
        let id = worker.map_or(0, |worker| worker.id());
        if arm.load(Ordering::SeqCst) && bad.contains(&id) {
            return Err(failing.fail("no start"));
        }
        Ok((0..5).map(move |number| Ok(100 * id as i64 + number)))
    });
    (dataset, armed)
}

#[test]
fn a_failed_start_is_the_only_result_of_its_worker() {
    for failing in FAILING {
        for persistent in [false, true] {
            for bad in [vec![0], vec![1], vec![0, 2], vec![0, 1, 2]] {
                let (dataset, armed) = unstartable(failing, bad.clone());
                let builder = Loader::iterable(dataset).num_workers(3).batch_size(2).persistent_workers(persistent);
                let mut loader = builder.build().unwrap();
                for armed_now in [true, true, false, true] {
                    armed.store(armed_now, Ordering::SeqCst);
                    let bad = if armed_now { &bad[..] } else { &[] };
                    let mut pass = loader.pass().unwrap();
                    // The first batch of each worker in turn, or its error.
                    for worker in 0..3 {
                        let outcome = pass.next().unwrap();
                        if !bad.contains(&worker) {
                            assert_eq!(outcome.unwrap(), [100 * worker as i64, 100 * worker as i64 + 1]);
                            continue;
                        }
                        let error = outcome.unwrap_err();
                        let Error::Start { task, by, source } = &error else { panic!("{error}") };
                        assert_eq!((*task, *by), (worker, By::Worker(worker)));
                        let text = if failing == Failing::Panic { "panicked: no start" } else { "no start" };
                        assert_eq!(source.to_string(), text);
                        assert!(error.to_string().contains(&format!("worker {worker}")), "{error}");
                    }
                    let rest: Vec<i64> = pass.map(|batch| batch.unwrap()[0] / 100).collect();
                    let good = || (0..3).filter(|worker| !bad.contains(&(*worker as usize)));
                    assert!(rest.into_iter().eq(good().chain(good())));
                }
            }
        }
    }
}

#[test]
fn without_workers_a_failed_start_is_the_only_result() {
    for failing in FAILING {
        let (dataset, armed) = unstartable(failing, vec![0]);
        let mut loader = Loader::iterable(dataset).batch_size(2).build().unwrap();
        for _ in 0..2 {
            armed.store(true, Ordering::SeqCst);
            let outcomes: Vec<_> = loader.pass().unwrap().collect();
            assert!(matches!(&outcomes[..], [Err(Error::Start { task: 0, by: By::Consumer, .. })]), "{outcomes:?}");
            armed.store(false, Ordering::SeqCst);
            assert_eq!(loader.whole().len(), 3);
        }
    }
}

/// Returns a dataset of the numbers 0 to 9 for each worker, which fails at the numbers in `bad`.
fn with_bad(bad: Vec<i64>, failing: Failing) -> impl for<'a> IterableDataset<Sample<'a> = i64> {
    iter_fn(move |_| {
        let bad = bad.clone();
        Ok((0..10).map(
            move |number| {
                if bad.contains(&number) { Err(failing.fail(&format!("no {number}"))) } else { Ok(number) }
            },
        ))
    })
}

/// Abbreviates an outcome: the numbers of a batch, or the thread in which it failed, the sample's
/// index and the task.
fn short(outcome: Result<Vec<i64>, Error>) -> Result<Vec<i64>, (By, usize, usize)> {
    outcome.map_err(|error| match error {
        Error::Sample { index, position, task, by, ref source } => {
            assert_eq!((source.to_string(), position), (format!("no {index}"), index));
            (by, index, task)
        }
        Error::Panic { index, position, task, by, ref message } => {
            assert_eq!((message, position), (&format!("no {index}"), index));
            (by, index, task)
        }
        other => panic!("{other}"),
    })
}

#[test]
fn an_iterable_continues_after_an_error() {
    for workers in [0, 1] {
        let by = if workers == 0 { By::Consumer } else { By::Worker(0) };
        let dataset = with_bad(vec![2, 3, 7], Failing::Error);
        let mut loader = Loader::iterable(dataset).num_workers(workers).batch_size(3).build().unwrap();
        for _ in 0..2 {
            let outcomes: Vec<_> = loader.pass().unwrap().map(short).collect();
            // 0 and 1 were read for the first batch, which failed at 2. The second batch failed at
            // 3. The third batch is 4, 5 and 6.
            let [first, second, third] = [(2, 0), (3, 1), (7, 3)].map(|(index, task)| Err((by, index, task)));
            assert_eq!(outcomes, [first, second, Ok(vec![4, 5, 6]), third, Ok(vec![8, 9])]);
        }
    }
}

#[test]
fn a_panic_in_an_iterable_ends_its_worker() {
    for workers in [0, 1] {
        let by = if workers == 0 { By::Consumer } else { By::Worker(0) };
        let dataset = with_bad(vec![4], Failing::Panic);
        let mut loader = Loader::iterable(dataset).num_workers(workers).batch_size(3).build().unwrap();
        for _ in 0..2 {
            let outcomes: Vec<_> = loader.pass().unwrap().map(short).collect();
            assert_eq!(outcomes, [Ok(vec![0, 1, 2]), Err((by, 4, 1))]);
        }
    }
}

#[test]
fn a_failed_iterable_worker_does_not_affect_the_others() {
    for failing in FAILING {
        for persistent in [false, true] {
            let dataset = iter_fn(move |worker: Option<WorkerInfo>| {
                let id = worker.map_or(0, |worker| worker.id());
                Ok((0..6).map(move |number| {
                    if id == 1 && number == 3 { Err(failing.fail("no 3")) } else { Ok(10 * id as i64 + number) }
                }))
            });
            let builder = Loader::iterable(dataset).num_workers(2).batch_size(2).persistent_workers(persistent);
            let mut loader = builder.build().unwrap();
            for _ in 0..2 {
                let outcomes: Vec<_> = loader.pass().unwrap().map(short).collect();
                let mut expected =
                    vec![Ok(vec![0, 1]), Ok(vec![10, 11]), Ok(vec![2, 3]), Err((By::Worker(1), 3, 3)), Ok(vec![4, 5])];
                if failing == Failing::Error {
                    expected.push(Ok(vec![14, 15]));
                }
                assert_eq!(outcomes, expected);
            }
        }
    }
}

#[test]
fn the_users_error_is_kept_as_the_source() {
    #[derive(Debug, thiserror::Error)]
    #[error("sensor {0} is silent")]
    struct Silent(u32);

    for kind in crate::KINDS {
        for workers in [0, 1] {
            let options = Options { workers, ..Options::default() };
            let mut loader = options.build(kind, |number| if number == 1 { Err(Silent(7).into()) } else { Ok(()) });
            let error = loader.pass().unwrap().next().unwrap().unwrap_err();
            let Error::Sample { source, .. } = &error else { panic!("{error}") };
            // Only the text of an error comes from another process.
            let is_copied = kind == Kind::Processes && workers > 0;
            assert!(is_copied || matches!(source.downcast_ref(), Some(Silent(7))));
            let by = if workers == 0 { "the consumer's thread" } else { "worker 0" };
            assert!(chain(&error).ends_with(&format!("failed in {by}: sensor 7 is silent")));
        }
    }
}
