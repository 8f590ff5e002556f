//! Loaders over streams: whatever their options, wherever they are stopped, left and gone on with.

use std::fmt::Write;
use std::ops::Range;

use slotline::dataset::{Context, Iterable, IterableDataset};
use slotline::loader::{BatchOf, Budget, OnError, OnHeld, State};
use slotline::rng::rand_core::Rng;
use slotline::rng::{Generator, SampleRng};
use slotline::sample::{Fields, Ragged};
use slotline::{BoxError, Loader, WorkerInfo};

use crate::came::{Came, Failed, Fault, Given, Hands, Item, MOST_TEXT, Sample, fail, pixels, text};
use crate::choices::Choices;

/// Samples one after the other, shared out among the workers; some are bad.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub(crate) faults: Vec<Option<Fault>>,
    /// Whether it says how many there are, and saves where it is.
    says_len: bool,
    saves: bool,
}

impl Stream {
    /// A stream of so many good samples that saves where it is.
    pub(crate) fn good(len: usize, saves: bool) -> Self {
        Self { faults: vec![None; len], says_len: true, saves }
    }
}

impl IterableDataset for Stream {
    type Sample<'a> = Item<'a>;
    type Cursor = Range<usize>;

    fn iter(&self, worker: Option<WorkerInfo>) -> Result<Range<usize>, BoxError> {
        Ok(worker.map_or(0..self.faults.len(), |worker| worker.share(self.faults.len())))
    }

    fn next<'a>(&'a self, left: &'a mut Range<usize>, cx: &'a mut Context) -> Result<Option<Item<'a>>, BoxError> {
        let Some(index) = left.next() else { return Ok(None) };
        match self.faults.get(index) {
            Some(None) => {
                Ok(Some((index as i64, pixels(index), cx.rng().next_u64(), Ragged::new(text(index), MOST_TEXT))))
            }
            Some(Some(fault)) => Err(fail(*fault)),
            None => Err("beyond the end".into()),
        }
    }

    fn save(&self, left: &Range<usize>, to: &mut String) -> bool {
        self.saves && write!(to, "{}..{}", left.start, left.end).is_ok()
    }

    fn resume(&self, _: Option<WorkerInfo>, saved: &str) -> Result<Range<usize>, BoxError> {
        let (start, end) = saved.split_once("..").ok_or("it is no range")?;
        let left: Range<usize> = start.parse()?..end.parse()?;
        if left.end > self.faults.len() { Err("it goes beyond the end".into()) } else { Ok(left) }
    }

    fn len(&self) -> Option<usize> {
        self.says_len.then_some(self.faults.len())
    }

    fn fields(&self) -> Option<Fields> {
        let any: Item<'_> = (0, [0; 6], 0, Ragged::new(&[], MOST_TEXT));
        Some(Fields::of(&any))
    }
}

/// What decides the batches.
#[derive(Clone, Debug)]
struct What {
    stream: Stream,
    workers: usize,
    batch_size: Option<usize>,
    drop_last: bool,
    seed: u64,
    persistent: bool,
    on_error: OnError,
    epochs: u32,
    in_order: bool,
}

impl What {
    fn choose(choices: &mut Choices<'_>) -> Self {
        let bad = choices.of(&[0, 0, 12, 3, 1]);
        let mut faults = vec![None; choices.below(41)];
        for fault in faults.iter_mut().filter(|_| bad > 0) {
            if choices.one_in(bad) {
                *fault = Some(choices.of(&[Fault::Error, Fault::Error, Fault::Error, Fault::Panic]));
            }
        }
        let stream = Stream { faults, says_len: choices.one_in(2), saves: choices.one_in(2) };
        let batch_size = choices.of(&[Some(1), Some(2), Some(3), Some(5), Some(7), Some(16), Some(100), None]);
        let in_order = !choices.one_in(4);
        let most = choices.below(7);
        let skip = OnError::Skip(Budget::Samples(if in_order && choices.one_in(2) { most } else { usize::MAX }));
        let workers = choices.of(&[0, 0, 0, 0, 1, 1, 2, 3]);
        Self {
            stream,
            workers,
            drop_last: batch_size.is_some() && choices.one_in(2),
            batch_size,
            seed: choices.word(),
            persistent: workers > 0 && choices.one_in(4),
            on_error: choices.of(&[OnError::Raise, skip]),
            epochs: choices.within(1, 3) as u32,
            in_order,
        }
    }

    /// A loader of it; `choices` are what must not matter.
    fn build(&self, (hold, on_held): (usize, OnHeld), choices: &mut Choices<'_>) -> Loader<BatchOf<Iterable<Stream>>> {
        let mut builder = Loader::iterable(self.stream.clone()).batch_size(self.batch_size).drop_last(self.drop_last);
        builder = builder
            .num_workers(self.workers)
            .hold(hold)
            .on_held(on_held)
            .in_order(self.in_order)
            .on_error(self.on_error);
        builder = builder.generator(Generator::from_seed(self.seed)).persistent_workers(self.persistent);
        if self.workers > 0 {
            builder = builder.prefetch_factor(choices.within(1, 3));
        }
        builder.build().expect("options that go together")
    }
}

/// Runs some passes as `data` says, given up here, and gone on with by another loader there, and checks that what comes is
/// what a plain loop over the workers' parts gives, and that it does not change while it is held.
pub fn iterable(data: &[u8]) {
    let mut choices = Choices::new(data);
    let what = What::choose(&mut choices);
    let held = |choices: &mut Choices<'_>| (choices.within(1, 3), choices.of(&[OnHeld::Grow, OnHeld::Fail]));
    let (hold, on_held) = held(&mut choices);
    let mut loader = what.build((hold, on_held), &mut choices);
    let mut hands = Hands::new(hold, on_held, &mut choices);
    let mut generator = Generator::from_seed(what.seed);
    let mut base = 0;
    for epoch in 0..what.epochs {
        if epoch == 0 || !what.persistent {
            base = generator.random_i64() as u64;
        }
        let mut left = Pass::new(&what, base, epoch).all();
        loop {
            assert_eq!(loader.next_epoch(), epoch);
            let most = if choices.one_in(3) { choices.below(left.len() + 2) } else { usize::MAX };
            let mut pass = loader.epoch().expect("a pass");
            let Given { came, ended } = hands.take(&mut pass, most, false, &mut choices);
            let state = pass.state();
            drop(pass);
            assert_eq!(loader.state(), state, "a pass that is dropped stays where it was");
            for it in came {
                let place = if what.in_order {
                    (!left.is_empty()).then_some(0)
                } else {
                    left.iter().position(|other| alike(other, &it))
                };
                let expected = place.map(|place| left.remove(place));
                assert!(
                    expected.as_ref().is_some_and(|other| alike(other, &it)),
                    "{it:?}, not {expected:?} of {what:?}"
                );
                assert!(!what.in_order || expected == Some(it));
            }
            assert!(!ended || left.is_empty(), "these never came: {left:?} of {what:?}");
            if !choices.one_in(if ended { 8 } else { 2 }) {
                break;
            }
            hands.empty(&mut choices);
            let json = serde_json::to_string(&state).expect("a state");
            drop(loader);
            let (hold, on_held) = held(&mut choices);
            loader = what.build((hold, on_held), &mut choices);
            hands = Hands::new(hold, on_held, &mut choices);
            let read: State = serde_json::from_str(&json).expect("a state");
            assert_eq!(read, state);
            loader.load_state(&read).expect("of such a loader");
            if ended {
                break;
            }
        }
    }
    drop(loader);
    hands.empty(&mut choices);
}

/// Whether they are the same but for their numbers, which are those in which they come.
fn alike(one: &Came, other: &Came) -> bool {
    match (one, other) {
        (Came::Batch { epoch, samples, .. }, Came::Batch { epoch: other, samples: others, .. }) => {
            (epoch, samples) == (other, others)
        }
        (Came::Failed { failed, .. }, Came::Failed { failed: other, .. }) => failed == other,
        (Came::Beyond { failed, bad, .. }, Came::Beyond { failed: other, bad: others, .. }) => {
            (failed, bad) == (other, others)
        }
        _ => false,
    }
}

/// A pass by a plain loop.
struct Pass<'w> {
    what: &'w What,
    base: u64,
    epoch: u32,
    /// What each worker has still to read, and how many it has read; `None` after its end.
    workers: Vec<(Option<Range<usize>>, usize)>,
}

/// What a worker gives when it is asked.
struct Reply {
    samples: Vec<Sample>,
    bads: Vec<Failed>,
    failed: Option<Failed>,
    ended: bool,
}

impl<'w> Pass<'w> {
    fn new(what: &'w What, base: u64, epoch: u32) -> Self {
        let len = what.stream.faults.len();
        let count = what.workers.max(1);
        let start = |worker: usize| len.min(worker * len.div_ceil(count));
        let workers = (0..count).map(|worker| (Some(start(worker)..start(worker + 1)), 0)).collect();
        Self { what, base, epoch, workers }
    }

    fn all(&mut self) -> Vec<Came> {
        let (mut came, mut bad) = (Vec::new(), 0);
        let budget = if let OnError::Skip(Budget::Samples(most)) = self.what.on_error { most } else { 0 };
        while self.workers.iter().any(|(left, _)| left.is_some()) {
            for worker in 0..self.workers.len() {
                let Some(Reply { samples, bads, failed, ended }) = self.ask(worker, budget) else { continue };
                let mut beyond = None;
                for bad_one in bads {
                    bad += 1;
                    if bad > budget && beyond.is_none() {
                        beyond = Some(bad_one);
                    }
                }
                let (task, size) = (came.len(), self.what.batch_size.unwrap_or(1));
                let dropped = samples.is_empty() || (ended && self.what.drop_last && samples.len() < size);
                match (beyond, failed) {
                    (Some(failed), _) => came.push(Came::Beyond { task, failed, bad }),
                    (None, Some(failed)) => came.push(Came::Failed { task, failed }),
                    (None, None) if dropped => {}
                    (None, None) => came.push(Came::Batch { epoch: self.epoch, task, samples }),
                }
            }
        }
        came
    }

    /// The next batch of a worker, if it is not at its end.
    fn ask(&mut self, worker: usize, budget: usize) -> Option<Reply> {
        let (left, number) = &mut self.workers[worker];
        let cursor = left.as_mut()?;
        let seed = self.base.wrapping_add(worker as u64);
        let mut reply = Reply { samples: Vec::new(), bads: Vec::new(), failed: None, ended: false };
        while reply.samples.len() < self.what.batch_size.unwrap_or(1) {
            let Some(index) = cursor.next() else {
                reply.ended = true;
                break;
            };
            let position = *number;
            *number += 1;
            let Some(fault) = self.what.stream.faults[index] else {
                let word = SampleRng::new(seed, self.epoch, position as u64).next_u64();
                reply.samples.push(Sample { index, word });
                continue;
            };
            let failed = Failed { index: position, position, fault };
            if fault == Fault::Error && self.what.on_error != OnError::Raise {
                reply.bads.push(failed);
                // A dataset that has nothing but errors must not keep a worker for ever.
                if reply.bads.len() > budget {
                    break;
                }
                continue;
            }
            reply.failed = Some(failed);
            break;
        }
        if reply.ended || reply.failed.is_some_and(|failed| failed.fault == Fault::Panic) {
            *left = None;
        }
        Some(reply)
    }
}
