//! Runs passes of loaders, compares their results with a plain loop, and holds batches for a while.

use std::collections::VecDeque;
use std::fmt::Debug;

use slotline::dataset::Context;
use slotline::loader::{Batch, OnHeld, State};
use slotline::rng::rand_core::Rng;
use slotline::sample::{Columns, Fields, PaddedToMax};
use slotline::{BoxError, Error, Loader};

use crate::choices::Choices;

/// A sample of the datasets: its index, bytes derived from the index, one of its random numbers,
/// and a string of variable length.
pub(super) type Item<'a> = (i64, [u8; 6], u64, PaddedToMax<'a, u8>);
/// The schema of batches of [`Item`]s.
pub(super) type Schema = (i64, u8, u64, PaddedToMax<'static, u8>);

/// The maximum length of a string.
pub(crate) const MAX_TEXT: usize = 5;

/// Returns the bytes of a sample.
pub(crate) fn pixels(index: i64) -> [u8; 6] {
    std::array::from_fn(|i| (index.wrapping_mul(31).wrapping_add(i as i64 * 7) >> (i % 3)) as u8)
}

/// Returns the string of a sample.
pub(crate) fn text(index: i64) -> &'static [u8] {
    &b"abcde"[..index.rem_euclid(MAX_TEXT as i64 + 1) as usize]
}

/// Checks the bytes and the string of a row, which are in fields 1 and 3.
pub(crate) fn check_row(columns: &Columns<'_>, row: usize, index: i64) {
    let bytes = |field: usize| columns.get(field).expect("a field").bytes();
    assert_eq!(bytes(1)[6 * row..6 * (row + 1)], pixels(index));
    let (written, padding) = bytes(3)[MAX_TEXT * row..MAX_TEXT * (row + 1)].split_at(text(index).len());
    assert_eq!((written, columns.lengths(3).expect("lengths")[row]), (text(index), text(index).len() as i64));
    assert!(padding.iter().all(|&byte| byte == 0));
}

/// The way in which a bad sample fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Error,
    Panic,
}

/// Returns an error or panics, as `fault` says. The panic bypasses the panic hook, which would end
/// a fuzzer.
fn fail(fault: Fault) -> BoxError {
    match fault {
        Fault::Error => "bad".into(),
        Fault::Panic => std::panic::resume_unwind(Box::new("worse")),
    }
}

/// Returns the fields of the samples.
pub(super) fn fields() -> Fields {
    let any: Item<'_> = (0, [0; 6], 0, PaddedToMax::new(&[], MAX_TEXT));
    Fields::of(&any)
}

/// Returns the sample at `index`. Fails if `faults` has a fault at `index`, or is not that long.
pub(super) fn item(faults: &[Option<Fault>], index: usize, cx: &mut Context) -> Result<Item<'static>, BoxError> {
    match faults.get(index).copied().unwrap_or(Some(Fault::Error)) {
        Some(fault) => Err(fail(fault)),
        None => {
            let number = index as i64;
            Ok((number, pixels(number), cx.rng().next_u64(), PaddedToMax::new(text(number), MAX_TEXT)))
        }
    }
}

/// Returns up to 40 samples. On average one in `bad` fails, in one of the `ways`; none if `bad` is
/// 0.
pub(super) fn faults(choices: &mut Choices<'_>, bad: usize, ways: &[Fault]) -> Vec<Option<Fault>> {
    let one = |choices: &mut Choices<'_>| (bad > 0 && choices.one_in(bad)).then(|| choices.of(ways));
    (0..choices.below(41)).map(|_| one(choices)).collect()
}

/// A sample in a received batch: its index and its random number. The other fields were already
/// checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    pub(super) index: usize,
    pub(super) word: u64,
}

/// A sample that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failed {
    pub(super) index: usize,
    pub(super) position: usize,
    pub(super) fault: Fault,
}

/// A result of a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Received {
    Batch {
        epoch: u32,
        task: usize,
        samples: Vec<Sample>,
    },
    Failed {
        task: usize,
        failed: Failed,
    },
    /// A bad sample beyond the budget; `bad` is the number of bad samples so far.
    Beyond {
        task: usize,
        failed: Failed,
        bad: usize,
    },
}

impl Received {
    /// Reads and checks every byte of a batch.
    fn of(batch: &Batch<Schema>) -> Self {
        let columns = batch.columns();
        let of = |i: usize| columns.get(i).expect("a field");
        let numbers = of(0).typed::<i64>().expect("numbers").as_slice();
        let words = of(2).typed::<u64>().expect("words").as_slice();
        assert_eq!((batch.len(), batch.indices().len()), (numbers.len(), numbers.len()));
        let lengths = columns.lengths(3).expect("a padded field");
        assert_eq!((words.len(), lengths.len()), (numbers.len(), numbers.len()));
        let samples = numbers.iter().enumerate().map(|(row, &number)| {
            check_row(&columns, row, number);
            Sample { index: number as usize, word: words[row] }
        });
        Self::Batch { epoch: batch.epoch(), task: batch.batch_index(), samples: samples.collect() }
    }

    fn task(&mut self) -> &mut usize {
        match self {
            Self::Batch { task, .. } | Self::Failed { task, .. } | Self::Beyond { task, .. } => task,
        }
    }
}

/// The expected content of a batch, as a plain loop computes it.
pub(super) struct Expected {
    pub(super) samples: Vec<Sample>,
    /// The bad samples that are left out of the batch.
    pub(super) bads: Vec<Failed>,
    /// The sample whose failure fails the whole batch.
    pub(super) failure: Option<Failed>,
    /// Whether the batch is not delivered, because it is empty or because of `drop_last`.
    pub(super) dropped: bool,
}

impl Expected {
    /// Returns the expected result, if there is one. `bad` counts the bad samples of the pass, of
    /// which `budget` are allowed.
    pub(super) fn received(self, epoch: u32, task: usize, bad: &mut usize, budget: usize) -> Option<Received> {
        let beyond = self.bads.get(budget.saturating_sub(*bad)).copied();
        *bad += self.bads.len();
        match (beyond, self.failure) {
            (Some(failed), _) => Some(Received::Beyond { task, failed, bad: *bad }),
            (None, Some(failed)) => Some(Received::Failed { task, failed }),
            (None, None) if self.dropped => None,
            (None, None) => Some(Received::Batch { epoch, task, samples: self.samples }),
        }
    }
}

/// A loader, and the options that matter for receiving its batches.
pub(super) struct Built {
    pub(super) loader: Loader<Batch<Schema>>,
    pub(super) hold: usize,
    pub(super) on_held: OnHeld,
    pub(super) in_order: bool,
    /// Whether the loader loads a stream. The indices of its batches are then not the dataset's,
    /// and batches are numbered by arrival.
    pub(super) streams: bool,
}

/// Runs some passes, abandons some of them, and resumes some with another loader. Checks that their
/// results are as expected, and that batches do not change while they are held.
pub(super) fn run_passes(
    choices: &mut Choices<'_>,
    about: &impl Debug,
    epochs: u32,
    mut expected: impl FnMut() -> Vec<Received>,
    mut build: impl FnMut(&mut Choices<'_>) -> Option<Built>,
) {
    let Some(mut built) = build(choices) else { return };
    let mut holder = Holder::new(built.hold, built.on_held, choices);
    for epoch in 0..epochs {
        let mut left = expected();
        loop {
            let numbered = built.in_order || !built.streams;
            if !numbered {
                left.iter_mut().for_each(|it| *it.task() = 0);
            }
            assert_eq!(built.loader.next_epoch(), epoch);
            let most = if choices.one_in(3) { choices.below(left.len() + 2) } else { usize::MAX };
            let mut pass = built.loader.epoch().expect("a pass");
            let Outcome { received, ended } = holder.take(&mut pass, most, !built.streams, choices);
            let state = pass.state();
            drop(pass);
            assert_eq!(built.loader.state(), state, "dropping a pass changed the state");
            for mut it in received {
                if !numbered {
                    *it.task() = 0;
                }
                let is_it = |other: &mut Received| if numbered { other.task() == it.task() } else { *other == it };
                let place = left.iter_mut().position(is_it);
                assert!(!built.in_order || place.is_none_or(|place| place == 0), "{it:?} before {:?}", left[0]);
                assert_eq!(place.map(|place| left.remove(place)), Some(it), "{about:?}");
            }
            assert!(!ended || left.is_empty(), "never received: {left:?}: {about:?}");
            if !choices.one_in(if ended { 8 } else { 2 }) {
                break;
            }
            holder.empty(choices);
            drop(built);
            built = build(choices).expect("the options were accepted before");
            holder = Holder::new(built.hold, built.on_held, choices);
            let json = serde_json::to_string(&state).expect("a state");
            let stored: State = serde_json::from_str(&json).expect("a state");
            assert_eq!(stored, state);
            built.loader.load_state(&stored).expect("a state of an equal loader");
            if ended {
                break;
            }
        }
    }
    drop(built);
    holder.empty(choices);
}

/// Returns the sample that an error names, and its task.
fn failed(error: &Error) -> Option<(usize, Failed)> {
    let named = |task: usize, index: usize, position: usize, fault| Some((task, Failed { index, position, fault }));
    match error {
        Error::Sample { index, position, task, .. } => named(*task, *index, *position, Fault::Error),
        Error::Panic { index, position, task, message, .. } => {
            assert_eq!(message, "worse", "a panic that is not the dataset's");
            named(*task, *index, *position, Fault::Panic)
        }
        _ => None,
    }
}

/// Holds batches for a while, together with their content at the time when they were received.
struct Holder {
    held: VecDeque<Held>,
    /// The maximum number of batches that are held.
    keep: usize,
    /// The loader's option `hold`.
    hold: usize,
    /// The loader's option `on_held`.
    on_held: OnHeld,
}

struct Held {
    batch: Batch<Schema>,
    it: Received,
}

/// The results of a pass.
struct Outcome {
    received: Vec<Received>,
    /// Whether the pass ended.
    ended: bool,
}

impl Holder {
    /// Creates an empty holder that keeps up to `hold` batches, or sometimes more.
    fn new(hold: usize, on_held: OnHeld, choices: &mut Choices<'_>) -> Self {
        let more = if choices.one_in(8) { choices.below(9) } else { 0 };
        Self { held: VecDeque::new(), keep: choices.below(hold + 1) + more, hold, on_held }
    }

    /// Takes up to `most` results of a pass: batches, or errors in place of batches. If `indices`
    /// is set, checks that [`Batch::indices`] returns the dataset's indices, which streams do not
    /// have.
    fn take(
        &mut self,
        pass: &mut impl Iterator<Item = Result<Batch<Schema>, Error>>,
        most: usize,
        indices: bool,
        choices: &mut Choices<'_>,
    ) -> Outcome {
        let mut received = Vec::new();
        while received.len() < most {
            let Some(next) = pass.next() else { return Outcome { received, ended: true } };
            received.push(match next {
                Ok(batch) => {
                    let it = Received::of(&batch);
                    if let (true, Received::Batch { samples, .. }) = (indices, &it) {
                        assert!(samples.iter().map(|sample| sample.index as i64).eq(batch.indices().iter().copied()));
                    }
                    self.held.push_back(Held { batch, it: it.clone() });
                    it
                }
                Err(Error::Held { task, epoch, source, .. }) => {
                    // With a memory limit, this can also happen with `OnHeld::Grow`.
                    assert_eq!(source.is_none(), self.on_held == OnHeld::Fail);
                    assert!(self.held.len() > self.hold, "an error, although no more batches are held than announced");
                    let oldest = self.held.iter().map(|held| (held.batch.epoch(), held.batch.batch_index())).min();
                    assert_eq!(oldest, Some((epoch, task)), "the error names a batch that is not the oldest");
                    self.release(choices.below(self.held.len()), choices);
                    continue;
                }
                Err(Error::BadSamples { bad, source, .. }) => {
                    let (task, failed) = failed(&source).expect("a sample's error");
                    Received::Beyond { task, failed, bad }
                }
                Err(error) => match failed(&error) {
                    Some((task, failed)) => Received::Failed { task, failed },
                    None => panic!("{error}"),
                },
            });
            while self.held.len() > self.keep {
                self.release(choices.below(self.held.len()), choices);
            }
        }
        Outcome { received, ended: false }
    }

    /// Drops a batch, and checks that it has not changed.
    fn release(&mut self, which: usize, choices: &mut Choices<'_>) {
        let Held { batch, it, .. } = self.held.remove(which).expect("a held batch");
        assert_eq!(Received::of(&batch), it, "a batch changed while it was held");
        if choices.one_in(32) {
            std::thread::spawn(move || drop(batch)).join().expect("no panic");
        }
    }

    /// Drops all held batches.
    fn empty(&mut self, choices: &mut Choices<'_>) {
        while !self.held.is_empty() {
            self.release(0, choices);
        }
    }
}
