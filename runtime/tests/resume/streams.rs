//! Tests that loaders of iterable datasets resume from a state, with saved cursors or by reading
//! the samples again.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::collection::vec;
use proptest::prelude::*;
use slotline::dataset::{ChainDataset, Context, IterableDataset};
use slotline::loader::{Batch, State, Warning};
use slotline::rng::rand_core::Rng;
use slotline::{BoxError, Error, Loader, WorkerInfo};

use crate::damage::damage;
use crate::support::prefetch;

/// An iterable dataset of the numbers from `from` on, of which each worker reads its share. Some
/// numbers fail with an error or a panic. If `from` is 300, worker 1 cannot open its cursor.
#[derive(Clone, Debug)]
struct Numbers {
    from: usize,
    len: usize,
    saves: bool,
    /// The number of calls of `next`.
    reads: Arc<AtomicUsize>,
}

impl IterableDataset for Numbers {
    type Sample<'a> = (i64, u64);
    type Cursor = Range<usize>;

    fn iter(&self, worker: Option<WorkerInfo>) -> Result<Range<usize>, BoxError> {
        let all = worker.map_or(0..self.len, |worker| worker.share(self.len));
        if self.from == 300 && worker.is_some_and(|worker| worker.id() == 1) {
            return Err("not here".into());
        }
        Ok(self.from + all.start..self.from + all.end)
    }

    fn next<'a>(&'a self, left: &'a mut Range<usize>, cx: &'a mut Context) -> Result<Option<(i64, u64)>, BoxError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let Some(number) = left.next() else { return Ok(None) };
        match number % 19 {
            7 => Err("bad".into()),
            18 if number > 100 => panic!("worse"),
            _ => Ok(Some((number as i64, cx.rng().next_u64() ^ cx.position()))),
        }
    }

    fn save(&self, left: &Range<usize>, to: &mut String) -> bool {
        to.push_str(&format!("{}..{}", left.start, left.end));
        self.saves
    }

    fn resume(&self, _: Option<WorkerInfo>, saved: &str) -> Result<Range<usize>, BoxError> {
        let (start, end) = saved.split_once("..").ok_or("no range")?;
        Ok(start.parse()?..end.parse()?)
    }
}

#[derive(Clone, Debug)]
struct What {
    /// The lengths of the chained datasets.
    lens: Vec<usize>,
    batch_size: Option<usize>,
    drop_last: bool,
    workers: usize,
    in_order: bool,
    saves: bool,
    epochs: u32,
}

fn build(what: &What, prefetch_factor: usize) -> (Loader<Batch<(i64, u64)>>, Arc<AtomicUsize>) {
    let reads = Arc::new(AtomicUsize::new(0));
    let numbers = |(i, &len)| Numbers { from: 100 * i, len, saves: what.saves, reads: reads.clone() };
    let chain = ChainDataset::new(what.lens.iter().enumerate().map(numbers).collect::<Vec<_>>());
    let builder = prefetch(Loader::iterable(chain), what.workers, prefetch_factor).batch_size(what.batch_size);
    let loader = builder.drop_last(what.drop_last).in_order(what.in_order).seed(3).build().unwrap();
    (loader, reads)
}

/// A batch of a pass, or the failure delivered in its place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Batch(u32, Vec<i64>, Vec<u64>),
    Failed(u32, String),
}

impl Outcome {
    /// Converts the result that was delivered as number `task` of its pass.
    fn new(epoch: u32, task: usize, got: Result<Batch<(i64, u64)>, Error>) -> Self {
        match got {
            Ok(batch) => {
                assert_eq!((batch.epoch(), batch.batch_index()), (epoch, task));
                let (numbers, words) = batch.tensors();
                Self::Batch(epoch, numbers.as_slice().to_vec(), words.as_slice().to_vec())
            }
            Err(Error::Sample { index, position, task: at, by, .. }) => {
                assert_eq!(at, task);
                Self::Failed(epoch, format!("{index} {position} {by:?}"))
            }
            Err(Error::Panic { index, task: at, by, .. }) => {
                assert_eq!(at, task);
                Self::Failed(epoch, format!("{index} {by:?}"))
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Runs loaders in sequence, each of which resumes where the previous one stopped. Each element of
/// `parts` is the prefetch factor of a loader, and the number of batches after which it stops.
fn run(what: &What, parts: &[(usize, usize)]) -> Vec<Outcome> {
    let (mut delivered, mut state) = (Vec::new(), None::<State>);
    let mut task = 0;
    for &(factor, cut) in parts.iter().chain([&(2, usize::MAX)]) {
        let (mut loader, _) = build(what, factor);
        if let Some(state) = &state {
            let read: State = serde_json::from_str(&serde_json::to_string(state).unwrap()).unwrap();
            loader.load_state(&read).unwrap();
            assert_eq!(loader.state(), *state);
        }
        let mut left = cut;
        'loader: while loader.next_epoch() < what.epochs {
            let epoch = loader.next_epoch();
            let mut pass = loader.epoch().unwrap();
            loop {
                if left == 0 {
                    state = Some(pass.state());
                    drop(pass);
                    assert_eq!(state, Some(loader.state()));
                    break 'loader;
                }
                let Some(got) = pass.next() else { break };
                delivered.push(Outcome::new(epoch, task, got));
                (left, task) = (left - 1, task + 1);
            }
            drop(pass);
            task = 0;
            state = Some(loader.state());
        }
    }
    delivered
}

fn what() -> impl Strategy<Value = What> {
    let batch_size = prop_oneof![1 => Just(None), 6 => (1_usize..7).prop_map(Some)];
    let flags = (any::<bool>(), proptest::bool::weighted(0.8), any::<bool>());
    (vec(0_usize..40, 1..5), batch_size, flags, 0_usize..4, 1_u32..4).prop_map(
        |(lens, batch_size, (drop_last, in_order, saves), workers, epochs)| {
            let drop_last = drop_last && batch_size.is_some();
            What { lens, batch_size, drop_last, workers, in_order, saves, epochs }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn an_interrupted_run_equals_an_uninterrupted_one(what in what(), parts in vec((1_usize..4, 0_usize..15), 1..5)) {
        let (mut parts, mut whole) = (run(&what, &parts), run(&what, &[]));
        if !what.in_order {
            parts.sort();
            whole.sort();
        }
        prop_assert_eq!(parts, whole);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_damaged_state_is_either_refused_or_loaded(
        saves: bool,
        damages in vec((any::<usize>(), any::<usize>()), 1..4),
        workers in 0_usize..3,
    ) {
        let what = What {
            lens: vec![6, 30],
            batch_size: Some(3),
            drop_last: false,
            workers,
            in_order: true,
            saves,
            epochs: 1,
        };
        let (mut loader, _) = build(&what, 1);
        let mut pass = loader.epoch().unwrap();
        prop_assert_eq!(pass.by_ref().take(3).count(), 3);
        let mut value = serde_json::to_value(pass.state()).unwrap();
        for (at, with) in damages {
            damage(&mut value, at, with);
        }
        let Ok(state) = serde_json::from_value::<State>(value) else { return Ok(()) };
        let (mut other, _) = build(&what, 2);
        if other.load_state(&state).is_ok() {
            let batches = other.epoch().unwrap().count();
            prop_assert!(batches < 40, "{}", batches);
        }
    }
}

/// Returns the number of samples requested for the first five batches, the number that the resumed
/// loader reads until the end, and the warnings of that loader.
fn reads(saves: bool, workers: usize) -> (u64, u64, Vec<Warning>) {
    let what =
        What { lens: vec![40], batch_size: Some(2), drop_last: false, workers, in_order: true, saves, epochs: 1 };
    let (mut before, _) = build(&what, 2);
    let mut pass = before.epoch().unwrap();
    assert_eq!(pass.by_ref().take(5).count(), 5);
    let (mut after, reads) = build(&what, 2);
    let state = serde_json::to_value(pass.state()).unwrap();
    let asked =
        state["streams"]["workers"].as_array().unwrap().iter().map(|worker| worker["samples"].as_u64().unwrap());
    after.load_state(&pass.state()).unwrap();
    let warnings = after.warnings().to_vec();
    let probe = reads.swap(0, Ordering::Relaxed);
    assert_eq!(probe, 1, "build reads one sample for the fields");
    assert!(after.epoch().unwrap().count() > 5);
    (asked.sum(), reads.load(Ordering::Relaxed) as u64, warnings)
}

#[test]
fn only_cursors_that_cannot_be_saved_are_reread() {
    for workers in [0, 1, 2] {
        let ((asked, saved, quiet), (_, again, warnings)) = (reads(true, workers), reads(false, workers));
        assert!(asked >= 9, "five batches of two samples, one of which is bad");
        assert_eq!(again, saved + asked, "{workers} workers");
        assert!(quiet.is_empty(), "{quiet:?}");
        assert_eq!(warnings, [Warning::FastForward { what: "the iterable dataset" }]);
    }
}

/// Returns options for thirty samples in batches of two.
fn thirty(workers: usize) -> What {
    let (lens, batch_size) = (vec![30], Some(2));
    What { lens, batch_size, drop_last: false, workers, in_order: true, saves: true, epochs: 1 }
}

#[test]
fn another_number_of_workers_is_refused() {
    let what = thirty(2);
    let (loader, _) = build(&what, 2);
    for workers in [0, 1, 3] {
        let error = build(&What { workers, ..what.clone() }, 1).0.load_state(&loader.state()).unwrap_err();
        assert_eq!(error.field(), "num_workers");
        let expected = format!("num_workers is 2, but the loader's is {workers}");
        assert!(error.to_string().contains(&expected), "{error}");
    }
}

#[test]
fn a_state_of_the_other_kind_of_dataset_is_refused() {
    let what = thirty(0);
    let (mut streams, _) = build(&what, 1);
    let mut indexed = Loader::builder(crate::support::from_fn(30, |i, _| Ok(i as i64))).seed(3).build().unwrap();
    assert_eq!(streams.load_state(&indexed.state()).unwrap_err().field(), "kind");
    assert_eq!(indexed.load_state(&streams.state()).unwrap_err().field(), "kind");
}

#[test]
fn a_cursor_that_fails_to_resume_is_an_error_at_its_turn() {
    let what = thirty(2);
    let (mut loader, _) = build(&what, 2);
    let mut pass = loader.epoch().unwrap();
    assert!(pass.next().is_some());
    let json = serde_json::to_string(&pass.state()).unwrap().replace("1:2..15", "1:2");
    drop(pass);
    loader.load_state(&serde_json::from_str(&json).unwrap()).unwrap();
    let got: Vec<_> = loader.epoch().unwrap().map(|got| got.map(|batch| batch.tensors().0[[0]])).collect();
    let errors: Vec<_> = got.iter().enumerate().filter(|(_, got)| got.is_err()).collect();
    // The first error is that of worker 0, whose turn is second. The other error is a bad sample.
    assert!(matches!(errors[0], (1, Err(Error::Start { task: 2, .. }))), "{errors:?}");
    assert!(matches!(got[0], Ok(15)), "{got:?}");
}
