//! Loaders over streams, with any options, that are stopped, dropped and resumed at any point.

use std::fmt::Write;
use std::ops::Range;

use slotline::dataset::{Context, Iterable, IterableDataset};
use slotline::loader::{BatchOf, Budget, OnError, OnHeld, State};
use slotline::rng::Generator;
use slotline::rng::rand_core::Rng;
use slotline::sample::{Fields, Ragged};
use slotline::{BoxError, Loader, WorkerInfo};

use crate::came::{Failed, Fault, Holder, Item, MAX_TEXT, Outcome, Received, Sample, fail, pixels, text};
use crate::choices::Choices;
use crate::plain::{Plain, Seeds, in_turn, share};

/// A stream of samples that are split among the workers. Some are bad.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub(crate) faults: Vec<Option<Fault>>,
    /// Whether the stream reports its length.
    reports_len: bool,
    /// Whether the stream saves its position.
    saves: bool,
}

impl Stream {
    /// Returns a stream of `len` good samples.
    pub(crate) fn good(len: usize, saves: bool) -> Self {
        Self { faults: vec![None; len], reports_len: true, saves }
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
                Ok(Some((index as i64, pixels(index), cx.rng().next_u64(), Ragged::new(text(index), MAX_TEXT))))
            }
            Some(Some(fault)) => Err(fail(*fault)),
            None => Err("beyond the end".into()),
        }
    }

    fn save(&self, left: &Range<usize>, to: &mut String) -> bool {
        self.saves && write!(to, "{}..{}", left.start, left.end).is_ok()
    }

    fn resume(&self, _: Option<WorkerInfo>, saved: &str) -> Result<Range<usize>, BoxError> {
        let (start, end) = saved.split_once("..").ok_or("not a range")?;
        let left: Range<usize> = start.parse()?..end.parse()?;
        if left.end > self.faults.len() { Err("beyond the end".into()) } else { Ok(left) }
    }

    fn len(&self) -> Option<usize> {
        self.reports_len.then_some(self.faults.len())
    }

    fn fields(&self) -> Option<Fields> {
        let any: Item<'_> = (0, [0; 6], 0, Ragged::new(&[], MAX_TEXT));
        Some(Fields::of(&any))
    }
}

/// The options that determine the batches.
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
        let stream = Stream { faults, reports_len: choices.one_in(2), saves: choices.one_in(2) };
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

    /// Builds a loader. `choices` sets the options that must not affect the batches.
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
        builder.build().expect("valid options")
    }
}

/// Runs some passes as `data` says, abandons some of them, and resumes some with another loader. Checks that the batches are
/// those of a plain loop over the workers' shares, and that they do not change while they are held.
pub fn iterable(data: &[u8]) {
    let mut choices = Choices::new(data);
    let what = What::choose(&mut choices);
    let held = |choices: &mut Choices<'_>| (choices.within(1, 3), choices.of(&[OnHeld::Grow, OnHeld::Fail]));
    let (hold, on_held) = held(&mut choices);
    let mut loader = what.build((hold, on_held), &mut choices);
    let mut holder = Holder::new(hold, on_held, &mut choices);
    let mut plain = Plain::new(what.seed, what.persistent);
    for epoch in 0..what.epochs {
        let mut left = expected(&what, plain.pass());
        loop {
            assert_eq!(loader.next_epoch(), epoch);
            let most = if choices.one_in(3) { choices.below(left.len() + 2) } else { usize::MAX };
            let mut pass = loader.epoch().expect("a pass");
            let Outcome { received, ended } = holder.take(&mut pass, most, false, &mut choices);
            let state = pass.state();
            drop(pass);
            assert_eq!(loader.state(), state, "dropping a pass changed the state");
            for it in received {
                let place = if what.in_order {
                    (!left.is_empty()).then_some(0)
                } else {
                    left.iter().position(|other| alike(other, &it))
                };
                let expected = place.map(|place| left.remove(place));
                assert!(
                    expected.as_ref().is_some_and(|other| alike(other, &it)),
                    "received {it:?}, expected {expected:?}: {what:?}"
                );
                assert!(!what.in_order || expected == Some(it));
            }
            assert!(!ended || left.is_empty(), "never received: {left:?}: {what:?}");
            if !choices.one_in(if ended { 8 } else { 2 }) {
                break;
            }
            holder.empty(&mut choices);
            let json = serde_json::to_string(&state).expect("a state");
            drop(loader);
            let (hold, on_held) = held(&mut choices);
            loader = what.build((hold, on_held), &mut choices);
            holder = Holder::new(hold, on_held, &mut choices);
            let read: State = serde_json::from_str(&json).expect("a state");
            assert_eq!(read, state);
            loader.load_state(&read).expect("a state of an equal loader");
            if ended {
                break;
            }
        }
    }
    drop(loader);
    holder.empty(&mut choices);
}

/// Whether the two are equal except for their task numbers, which follow the order of arrival.
fn alike(one: &Received, other: &Received) -> bool {
    match (one, other) {
        (Received::Batch { epoch, samples, .. }, Received::Batch { epoch: other, samples: others, .. }) => {
            (epoch, samples) == (other, others)
        }
        (Received::Failed { failed, .. }, Received::Failed { failed: other, .. }) => failed == other,
        (Received::Beyond { failed, bad, .. }, Received::Beyond { failed: other, bad: others, .. }) => {
            (failed, bad) == (other, others)
        }
        _ => false,
    }
}

/// The next result of a worker.
struct Reply {
    samples: Vec<Sample>,
    bads: Vec<Failed>,
    failed: Option<Failed>,
    ended: bool,
}

/// Returns the results of a pass, of which the workers make one after the other in turn.
fn expected(what: &What, seeds: Seeds) -> Vec<Received> {
    let (mut received, mut bad) = (Vec::new(), 0);
    let (budget, size) = (budget(what), what.batch_size.unwrap_or(1));
    for Reply { samples, bads, failed, ended } in in_turn((0..what.workers.max(1)).map(|id| lane(what, seeds, id))) {
        let mut beyond = None;
        for bad_one in bads {
            bad += 1;
            if bad > budget && beyond.is_none() {
                beyond = Some(bad_one);
            }
        }
        let task = received.len();
        let dropped = samples.is_empty() || (ended && what.drop_last && samples.len() < size);
        match (beyond, failed) {
            (Some(failed), _) => received.push(Received::Beyond { task, failed, bad }),
            (None, Some(failed)) => received.push(Received::Failed { task, failed }),
            (None, None) if dropped => {}
            (None, None) => received.push(Received::Batch { epoch: seeds.epoch, task, samples }),
        }
    }
    received
}

/// Returns the number of bad samples that a pass may have.
fn budget(what: &What) -> usize {
    if let OnError::Skip(Budget::Samples(most)) = what.on_error { most } else { 0 }
}

/// Returns the results of a worker, up to its end.
fn lane(what: &What, seeds: Seeds, worker: usize) -> Vec<Reply> {
    let mut left = share(worker, what.workers, what.stream.faults.len()).enumerate();
    let seeds = seeds.of_worker(worker);
    let mut lane = Vec::new();
    loop {
        let mut reply = Reply { samples: Vec::new(), bads: Vec::new(), failed: None, ended: false };
        while reply.samples.len() < what.batch_size.unwrap_or(1) {
            let Some((position, index)) = left.next() else {
                reply.ended = true;
                break;
            };
            let Some(fault) = what.stream.faults[index] else {
                reply.samples.push(Sample { index, word: seeds.word(position) });
                continue;
            };
            let failed = Failed { index: position, position, fault };
            if fault == Fault::Error && what.on_error != OnError::Raise {
                reply.bads.push(failed);
                // Otherwise a dataset that only returns errors would keep a worker busy forever.
                if reply.bads.len() > budget(what) {
                    break;
                }
                continue;
            }
            reply.failed = Some(failed);
            break;
        }
        let last = reply.ended || reply.failed.is_some_and(|failed| failed.fault == Fault::Panic);
        lane.push(reply);
        if last {
            return lane;
        }
    }
}
