//! Loaders over streams, with any options, that are stopped, dropped and resumed at any point.

use std::fmt::Write;
use std::ops::Range;

use slotline::dataset::{Context, IterableDataset};
use slotline::loader::{Budget, OnError, OnHeld};
use slotline::rng::Generator;
use slotline::sample::Fields;
use slotline::{BoxError, Loader, WorkerInfo};

use crate::choices::Choices;
use crate::plain::{Plain, Seeds, in_turn, share};
use crate::received::{
    Built, Expected, Failed, Fault, Item, Received, Sample, Schema, faults, fields, item, run_passes,
};

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
        left.next().map(|index| item(&self.faults, index, cx)).transpose()
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
        Some(fields())
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
        let faults = faults(choices, bad, &[Fault::Error, Fault::Error, Fault::Error, Fault::Panic]);
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
    fn build(&self, choices: &mut Choices<'_>) -> Built<Schema> {
        let (hold, on_held, in_order) =
            (choices.within(1, 3), choices.of(&[OnHeld::Grow, OnHeld::Fail]), self.in_order);
        let mut builder = Loader::iterable(self.stream.clone()).batch_size(self.batch_size).drop_last(self.drop_last);
        builder =
            builder.num_workers(self.workers).hold(hold).on_held(on_held).in_order(in_order).on_error(self.on_error);
        builder = builder.generator(Generator::from_seed(self.seed)).persistent_workers(self.persistent);
        if self.workers > 0 {
            builder = builder.prefetch_factor(choices.within(1, 3));
        }
        let loader = builder.build().expect("valid options");
        Built { loader, hold, on_held, in_order, streams: true }
    }
}

/// Runs passes of a loader over a stream, as `run_passes` does. Their results must be those of a plain loop over the workers'
/// shares.
pub fn iterable(data: &[u8]) {
    let mut choices = Choices::new(data);
    let what = What::choose(&mut choices);
    let mut plain = Plain::new(what.seed, what.persistent);
    let build = |choices: &mut Choices<'_>| Some(what.build(choices));
    run_passes(&mut choices, &what, what.epochs, || expected(&what, plain.pass()), build);
}

/// Returns the results of a pass, of which the workers make one after the other in turn.
fn expected(what: &What, seeds: Seeds) -> Vec<Received> {
    let (mut received, mut bad) = (Vec::new(), 0);
    for batch in in_turn((0..what.workers.max(1)).map(|id| lane(what, seeds, id))) {
        received.extend(batch.received(seeds.epoch, received.len(), &mut bad, budget(what)));
    }
    received
}

/// Returns the number of bad samples that a pass may have.
fn budget(what: &What) -> usize {
    if let OnError::Skip(Budget::Samples(most)) = what.on_error { most } else { 0 }
}

/// Returns the batches of a worker, up to its end.
fn lane(what: &What, seeds: Seeds, worker: usize) -> Vec<Expected> {
    let mut left = share(worker, what.workers, what.stream.faults.len()).enumerate();
    let (seeds, size) = (seeds.of_worker(worker), what.batch_size.unwrap_or(1));
    let (mut lane, mut last) = (Vec::new(), false);
    while !last {
        let mut batch = Expected { samples: Vec::new(), bads: Vec::new(), failure: None, dropped: false };
        // A dataset that only returns errors would keep a worker busy forever without a budget.
        while batch.samples.len() < size && batch.bads.len() <= budget(what) {
            let Some((position, index)) = left.next() else {
                last = true;
                break;
            };
            match what.stream.faults[index].map(|fault| Failed { index: position, position, fault }) {
                None => batch.samples.push(Sample { index, word: seeds.word(position) }),
                Some(failed) if failed.fault == Fault::Error && what.on_error != OnError::Raise => {
                    batch.bads.push(failed)
                }
                failure => {
                    batch.failure = failure;
                    break;
                }
            }
        }
        batch.dropped = batch.samples.is_empty() || (last && what.drop_last && batch.samples.len() < size);
        last |= batch.failure.is_some_and(|failed| failed.fault == Fault::Panic);
        lane.push(batch);
    }
    lane
}
