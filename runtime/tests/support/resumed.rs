//! Loaders with many combinations of options that are interrupted and resumed. The sources of their
//! indices are in a module `orders`, of which each crate that has samplers has its own.
#![allow(dead_code)] // Each test binary uses only a part of it.

use proptest::collection::vec;
use proptest::prelude::*;
use slotline::dataset::{Context, Dataset};
use slotline::loader::{Batch, BatchOf, Builder, State};
use slotline::rng::rand_core::Rng;
use slotline::rng::{Generator, SharedGenerator};
use slotline::{BoxError, Error, Loader};

use crate::damage::damage;
use crate::orders::{ALL, From};
use crate::support::{HAS_PROCESSES, Workers, pixels, prefetch, sleep_sometimes};

/// A dataset with known samples, some of which fail.
#[derive(Clone)]
pub(crate) struct Items {
    pub(crate) len: usize,
    /// Whether reading some samples takes longer.
    pub(crate) sleeps: bool,
}

impl Dataset for Items {
    type Sample<'a> = (i64, [[u8; 3]; 2], u64);

    fn len(&self) -> usize {
        self.len
    }

    fn get<'a>(&'a self, index: usize, cx: &'a mut Context) -> Result<Self::Sample<'a>, BoxError> {
        if self.sleeps {
            sleep_sometimes(index, cx);
        }
        if index % 17 == 11 {
            return Err("bad".into());
        }
        Ok((index as i64, pixels(index), cx.rng().next_u64() ^ cx.position()))
    }
}

/// The result of a step of a pass: the contents of a batch, or its error.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    Batch { epoch: u32, task: usize, indices: Vec<i64>, bytes: Vec<u8>, words: Vec<u64> },
    Failed { epoch: u32, task: usize, index: usize, position: usize, bad: usize },
}

impl Outcome {
    pub(crate) fn new<S>(epoch: u32, got: Result<Batch<S>, Error>) -> Self {
        let batch = match got {
            Ok(batch) => batch,
            Err(error) => return Self::failed(epoch, 0, error),
        };
        let columns = batch.columns();
        let mut bytes = Vec::new();
        for column in (1..columns.len()).filter(|&column| column != 2) {
            bytes.extend_from_slice(columns.get(column).unwrap().bytes());
            let numbers = columns.lengths(column).into_iter().chain(columns.offsets(column)).flatten();
            bytes.extend(numbers.flat_map(|number| number.to_ne_bytes()));
        }
        Self::Batch {
            epoch: batch.epoch(),
            task: batch.batch_index(),
            indices: batch.indices().to_vec(),
            bytes,
            words: columns.get(2).unwrap().typed::<u64>().unwrap().as_slice().to_vec(),
        }
    }

    fn failed(epoch: u32, bad: usize, error: Error) -> Self {
        match error {
            Error::Sample { index, position, task, .. } | Error::Panic { index, position, task, .. } => {
                Self::Failed { epoch, task, index, position, bad }
            }
            Error::BadSamples { bad, source, .. } => Self::failed(epoch, bad, *source),
            error => panic!("{error}"),
        }
    }

    /// Returns the key by which outcomes are sorted if batches are delivered out of order.
    pub(crate) fn key(&self) -> (u32, usize) {
        match *self {
            Self::Batch { epoch, task, .. } | Self::Failed { epoch, task, .. } => (epoch, task),
        }
    }
}

/// The options that determine the batches.
#[derive(Clone, Debug)]
pub(crate) struct What {
    pub(crate) len: usize,
    pub(crate) batch_size: Option<usize>,
    pub(crate) drop_last: bool,
    pub(crate) from: From,
    pub(crate) persistent: bool,
    pub(crate) epochs: u32,
}

/// The options that must not change the batches.
#[derive(Clone, Debug)]
pub(crate) struct How {
    pub(crate) workers: usize,
    pub(crate) prefetch: usize,
    pub(crate) part_size: Option<usize>,
    pub(crate) hold: usize,
    pub(crate) in_order: bool,
    pub(crate) round_robin: bool,
    /// Whether the workers are processes. Ignored without workers, or if [`round_robin`](Self::round_robin) is
    /// set.
    pub(crate) processes: bool,
}

/// The point at which a loader is interrupted: after this number of batches or, if the flag is set,
/// at the end of the pass that contains the last of these batches.
pub(crate) type Cut = (usize, bool);

pub(crate) fn build(what: &What, how: &How) -> Loader<BatchOf<Items>> {
    build_from(Loader::builder(Items { len: what.len, sleeps: !how.in_order }), what, how)
}

pub(crate) fn build_from<D: Dataset>(builder: Builder<D>, what: &What, how: &How) -> Loader<BatchOf<D>> {
    let builder = prefetch(builder, how.workers, how.prefetch);
    let builder = builder.hold(how.hold).in_order(how.in_order).persistent_workers(what.persistent && how.workers > 0);
    let shared = SharedGenerator::from(Generator::from_seed(5));
    let builder = builder.generator(shared.clone());
    let builder = what.from.set(builder, what, shared);
    let builder = match how.part_size {
        Some(part_size) => builder.part_size(part_size),
        None => builder,
    };
    let round_robin = how.round_robin && !what.from.is_stream();
    let processes = how.processes && HAS_PROCESSES && how.workers > 0 && !round_robin;
    Workers { workers: how.workers, processes }.build(builder.round_robin(round_robin)).unwrap()
}

/// Runs a loader to the end of its last pass, or to the cut if there is one. At the cut, returns
/// the loader's state.
pub(crate) fn run<S>(
    loader: &mut Loader<Batch<S>>,
    what: &What,
    (mut left, at_end): Cut,
    outcomes: &mut Vec<Outcome>,
) -> Option<State> {
    let mut state = (left == 0 && !at_end && loader.next_epoch() >= what.epochs).then(|| loader.state());
    while state.is_none() && loader.next_epoch() < what.epochs {
        let epoch = loader.next_epoch();
        let mut pass = loader.epoch().unwrap();
        // Interrupt before any batch was delivered, or before any batch after a resume.
        state = (left == 0 && !at_end).then(|| pass.state());
        while state.is_none()
            && let Some(got) = pass.next()
        {
            outcomes.push(Outcome::new(epoch, got));
            left = left.saturating_sub(1);
            if left == 0 && !at_end {
                state = Some(pass.state());
                break;
            }
        }
        drop(pass);
        match &state {
            Some(state) => assert_eq!(*state, loader.state(), "dropping a pass does not change the state"),
            None if left == 0 => state = Some(loader.state()),
            None => {}
        }
    }
    state
}

pub(crate) const WHOLE: Cut = (usize::MAX, true);

/// Returns the outcomes of all passes of one loader that is not interrupted.
pub(crate) fn uninterrupted(what: &What) -> Vec<Outcome> {
    uninterrupted_by(what, build)
}

/// Works like [`uninterrupted`], with loaders that `build` makes.
pub(crate) fn uninterrupted_by<S>(what: &What, build: impl Fn(&What, &How) -> Loader<Batch<S>>) -> Vec<Outcome> {
    let workers = usize::from(what.persistent);
    let how =
        How { workers, prefetch: 1, part_size: None, hold: 1, in_order: true, round_robin: false, processes: false };
    let mut outcomes = Vec::new();
    assert_eq!(run(&mut build(what, &how), what, WHOLE, &mut outcomes), None);
    outcomes
}

/// Returns the outcomes of several loaders in sequence, each of which resumes where the previous
/// one was interrupted.
pub(crate) fn interrupted(what: &What, parts: &[(How, Cut)], last: &How) -> Vec<Outcome> {
    interrupted_by(what, parts, last, build)
}

/// Works like [`interrupted`], with loaders that `build` makes.
pub(crate) fn interrupted_by<S>(
    what: &What,
    parts: &[(How, Cut)],
    last: &How,
    build: impl Fn(&What, &How) -> Loader<Batch<S>>,
) -> Vec<Outcome> {
    let (mut outcomes, mut state) = (Vec::new(), None::<State>);
    for (i, (how, cut)) in parts.iter().map(|(how, cut)| (how, *cut)).chain([(last, WHOLE)]).enumerate() {
        let mut how = how.clone();
        if i == 0 && what.persistent {
            how.workers = how.workers.max(1);
        }
        let mut loader = build(what, &how);
        if let Some(state) = &state {
            let json = serde_json::to_string(state).unwrap();
            assert!(json.len() < 1000, "{json}");
            let read: State = serde_json::from_str(&json).unwrap();
            assert_eq!(read, *state);
            loader.load_state(&read).unwrap();
            assert_eq!(loader.state(), *state, "a resumed loader has the state that it was given");
        }
        state = run(&mut loader, what, cut, &mut outcomes);
        if state.is_none() {
            break;
        }
    }
    outcomes
}

/// Returns the options of a loader whose indices come from `from`, and its state in the middle of
/// its second pass.
pub(crate) fn state_of(from: From) -> (What, State) {
    let what = What { len: 40, batch_size: Some(4), drop_last: false, from, persistent: false, epochs: 3 };
    let how =
        How { workers: 0, prefetch: 1, part_size: None, hold: 1, in_order: true, round_robin: false, processes: false };
    let mut outcomes = Vec::new();
    let mut loader = build(&what, &how);
    let first = run(&mut loader, &What { epochs: 1, ..what.clone() }, WHOLE, &mut outcomes);
    assert_eq!(first, None);
    let state = run(&mut loader, &what, (2, false), &mut outcomes).unwrap();
    assert_eq!((state.epoch(), state.batches()), (1, 2));
    (what, state)
}

pub(crate) fn what() -> impl Strategy<Value = What> {
    let from = proptest::sample::select(&ALL[..]);
    let batch_size = prop_oneof![1 => Just(None), 6 => (1_usize..12).prop_map(Some), 1 => Just(Some(1000))];
    (1_usize..60, batch_size, any::<bool>(), from, any::<bool>(), 1_u32..4).prop_map(
        |(len, batch_size, drop_last, from, persistent, epochs)| {
            let drop_last = drop_last && batch_size.is_some();
            What { len, batch_size, drop_last, from, persistent, epochs }
        },
    )
}

pub(crate) fn how(in_order: bool) -> impl Strategy<Value = How> {
    let processes = proptest::bool::weighted(0.25);
    (0_usize..4, 1_usize..4, proptest::option::of(1_usize..6), 1_usize..3, any::<bool>(), processes).prop_map(
        move |(workers, prefetch, part_size, hold, round_robin, processes)| {
            let part_size = part_size.filter(|_| !round_robin);
            How { workers, prefetch, part_size, hold, in_order, round_robin, processes }
        },
    )
}

pub(crate) fn parts(in_order: bool) -> impl Strategy<Value = Vec<(How, Cut)>> {
    vec((how(in_order), (0_usize..20, proptest::bool::weighted(0.2))), 1..5)
}

/// Damages a state and loads it. Checks that the loader refuses the state, or then delivers at most
/// one pass.
pub(crate) fn refused_or_loaded(
    from: From,
    damages: &[(usize, usize)],
    missing: Option<Vec<u64>>,
    workers: usize,
) -> Result<(), TestCaseError> {
    let (what, state) = state_of(from);
    let mut value = serde_json::to_value(&state).unwrap();
    if let Some(missing) = missing {
        value["missing"] = missing.into();
    }
    damages.iter().for_each(|&(at, with)| damage(&mut value, at, with));
    let Ok(state) = serde_json::from_value::<State>(value) else { return Ok(()) };
    let how = How {
        workers,
        prefetch: 2,
        part_size: None,
        hold: 1,
        in_order: true,
        round_robin: workers == 1,
        processes: false,
    };
    let mut loader = build(&what, &how);
    if loader.load_state(&state).is_err() {
        return Ok(());
    }
    match loader.epoch().map(|pass| pass.count()) {
        Ok(batches) => prop_assert!(batches <= 43, "{}", batches),
        Err(error) => prop_assert!(matches!(error, Error::State(_) | Error::Order(_)), "{}", error),
    }
    Ok(())
}
