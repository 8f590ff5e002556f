//! The options of a loader: those that determine its batches, and those that must not affect them.

use std::fmt::Write;
use std::ops::Range;

use slotline::dataset::{Context, Dataset, IterableDataset, Loadable};
use slotline::loader::{Budget, BuildError, Builder, OnError, OnHeld};
use slotline::rng::Generator;
use slotline::sample::Fields;
use slotline::{Batch, BoxError, Loader, WaitStrategy, WorkerInfo};

use super::received::{Built, Fault, Item, Schema, faults, fields, item};
use crate::choices::Choices;

/// A dataset of samples whose content is derived from their index. It can be read by index, or as a
/// stream that is divided among the workers. Some samples are bad.
#[derive(Clone, Debug)]
pub(crate) struct Items {
    pub(super) faults: Vec<Option<Fault>>,
    declares_fields: bool,
    reads_many: bool,
    /// Whether the dataset, read as a stream, reports its length.
    reports_len: bool,
    /// Whether the dataset, read as a stream, saves its position.
    saves: bool,
}

impl Items {
    fn new(faults: Vec<Option<Fault>>) -> Self {
        Self { faults, declares_fields: true, reads_many: false, reports_len: true, saves: false }
    }

    /// Returns a dataset of `len` good samples, to be read as a stream.
    pub(crate) fn good(len: usize, saves: bool) -> Self {
        Self { saves, ..Self::new(vec![None; len]) }
    }
}

impl Dataset for Items {
    type Sample<'a> = Item<'a>;

    fn len(&self) -> usize {
        self.faults.len()
    }

    fn get<'a>(&'a self, index: usize, cx: &'a mut Context) -> Result<Item<'a>, BoxError> {
        item(&self.faults, index, cx)
    }

    fn fields(&self) -> Option<Fields> {
        self.declares_fields.then(fields)
    }

    fn reads_many(&self) -> bool {
        self.reads_many
    }
}

impl IterableDataset for Items {
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

/// The source of the samples.
#[derive(Clone, Debug)]
pub(super) enum From {
    Sequential,
    Shuffle,
    /// These indices, rotated by one more position in each pass.
    Indices(Vec<usize>),
    /// These batches.
    Lists(Vec<Vec<usize>>),
    /// A stream, and its number of workers.
    Stream(usize),
}

/// The options that determine the batches.
#[derive(Clone, Debug)]
pub(super) struct What {
    pub(super) items: Items,
    pub(super) from: From,
    pub(super) batch_size: Option<usize>,
    pub(super) drop_last: bool,
    pub(super) seed: u64,
    pub(super) persistent: bool,
    pub(super) on_error: OnError,
    pub(super) epochs: u32,
    /// Whether some of the loaders deliver batches out of order.
    pub(super) unordered: bool,
}

/// The options that must not affect the batches.
#[derive(Clone, Debug)]
pub(super) struct How {
    workers: usize,
    prefetch: usize,
    part_size: Option<usize>,
    hold: usize,
    on_held: OnHeld,
    in_order: bool,
    round_robin: bool,
    help: Option<bool>,
    wait: WaitStrategy,
    memory_limit: Option<usize>,
}

/// The maximum length of a batch that the user lists.
const MAX_IN_LIST: usize = 4;

fn batch_size(choices: &mut Choices<'_>) -> Option<usize> {
    choices.of(&[Some(1), Some(2), Some(3), Some(5), Some(7), Some(16), Some(100), None])
}

fn workers(choices: &mut Choices<'_>) -> usize {
    choices.of(&[0, 0, 0, 0, 1, 1, 2, 3])
}

impl What {
    pub(super) fn choose(choices: &mut Choices<'_>) -> Self {
        let bad = choices.of(&[0, 0, 0, 12, 3, 1]);
        let mut items = Items::new(faults(choices, bad, &[Fault::Error, Fault::Panic]));
        let len = items.faults.len();
        // `build` takes undeclared fields from the first sample, which must exist and be good.
        items.declares_fields = bad > 0 || len == 0 || choices.one_in(2);
        items.reads_many = choices.one_in(4);
        let index = |choices: &mut Choices<'_>| choices.below(len + 1);
        let from = match choices.below(5) {
            0 => From::Sequential,
            1 | 2 => From::Shuffle,
            3 => From::Indices((0..choices.below(30)).map(|_| index(choices)).collect()),
            _ => {
                let list =
                    |choices: &mut Choices<'_>| (0..choices.below(MAX_IN_LIST + 1)).map(|_| index(choices)).collect();
                From::Lists((0..choices.below(10)).map(|_| list(choices)).collect())
            }
        };
        let batch_size = batch_size(choices);
        let unordered = choices.one_in(4);
        let feed = matches!(from, From::Indices(_) | From::Lists(_));
        let budget = match choices.below(3) {
            // With delivery out of order, the order of arrival would determine the batch at which
            // the budget is exceeded.
            _ if unordered => Budget::Samples(usize::MAX),
            0 => Budget::Samples(usize::MAX),
            1 if !feed => Budget::Share(f64::from(choices.byte()) / 255.0),
            _ => Budget::Samples(choices.below(7)),
        };
        Self {
            items,
            from,
            drop_last: batch_size.is_some() && choices.one_in(2),
            batch_size,
            seed: choices.word(),
            persistent: choices.one_in(4),
            on_error: choices.of(&[OnError::Raise, OnError::Skip(budget), OnError::Replace(budget)]),
            epochs: choices.within(1, 3) as u32,
            unordered,
        }
    }

    /// Chooses the options for a stream.
    pub(super) fn choose_stream(choices: &mut Choices<'_>) -> Self {
        let bad = choices.of(&[0, 0, 12, 3, 1]);
        let mut items = Items::new(faults(choices, bad, &[Fault::Error, Fault::Error, Fault::Error, Fault::Panic]));
        (items.reports_len, items.saves) = (choices.one_in(2), choices.one_in(2));
        let batch_size = batch_size(choices);
        let unordered = choices.one_in(4);
        let most = choices.below(7);
        let skip = OnError::Skip(Budget::Samples(if !unordered && choices.one_in(2) { most } else { usize::MAX }));
        let workers = workers(choices);
        Self {
            items,
            from: From::Stream(workers),
            drop_last: batch_size.is_some() && choices.one_in(2),
            batch_size,
            seed: choices.word(),
            persistent: workers > 0 && choices.one_in(4),
            on_error: choices.of(&[OnError::Raise, skip]),
            epochs: choices.within(1, 3) as u32,
            unordered,
        }
    }

    /// Returns the indices of pass `epoch`.
    pub(super) fn rotated(indices: &[usize], epoch: usize) -> impl Iterator<Item = usize> {
        (0..indices.len()).map(move |i| indices[(i + epoch) % indices.len()])
    }

    /// Builds a loader. `choices` sets the options that must not affect the batches. If the memory
    /// limit is too low, the loader is built without a limit.
    pub(super) fn build(&self, choices: &mut Choices<'_>) -> Result<Built, BuildError> {
        let how = How::choose(self, choices);
        let loader = match self.build_once(&how) {
            Err(BuildError::MemoryLimit { limit, needed, .. }) if how.memory_limit == Some(limit) => {
                assert!(needed > limit);
                self.build_once(&How { memory_limit: None, ..how.clone() })?
            }
            outcome => {
                let loader = outcome?;
                let ceiling = loader.memory_ceiling();
                assert!(how.memory_limit.is_none_or(|limit| ceiling <= limit), "{ceiling} bytes");
                loader
            }
        };
        let How { hold, on_held, in_order, .. } = how;
        Ok(Built { loader, hold, on_held, in_order, streams: matches!(self.from, From::Stream(_)) })
    }

    fn build_once(&self, how: &How) -> Result<Loader<Batch<Schema>>, BuildError> {
        let items = self.items.clone();
        if let From::Stream(_) = self.from {
            return self.sized(how.set(self, Loader::iterable(items))).build();
        }
        let builder = how.set(self, Loader::builder(items));
        let builder = match self.from.clone() {
            From::Shuffle => self.sized(builder).shuffle(true),
            From::Indices(indices) => {
                let mut epoch = 0;
                self.sized(builder).sampler_iter(move || {
                    epoch += 1;
                    Self::rotated(&indices, epoch - 1).collect::<Vec<_>>()
                })
            }
            From::Lists(lists) => builder.batch_sampler_iter(MAX_IN_LIST, move || lists.clone()),
            From::Sequential | From::Stream(_) => self.sized(builder),
        };
        builder.build()
    }

    fn sized<D: Loadable>(&self, builder: Builder<D>) -> Builder<D> {
        builder.batch_size(self.batch_size).drop_last(self.drop_last)
    }
}

impl How {
    fn choose(what: &What, choices: &mut Choices<'_>) -> Self {
        if let From::Stream(workers) = what.from {
            return Self {
                workers,
                hold: choices.within(1, 3),
                on_held: choices.of(&[OnHeld::Grow, OnHeld::Fail]),
                in_order: !what.unordered,
                prefetch: if workers > 0 { choices.within(1, 3) } else { 1 },
                part_size: None,
                round_robin: false,
                help: None,
                wait: WaitStrategy::default(),
                memory_limit: None,
            };
        }
        let workers = workers(choices);
        let round_robin = choices.one_in(4) && !matches!(what.from, From::Indices(_) | From::Lists(_));
        Self {
            workers: if what.persistent { workers.max(1) } else { workers },
            prefetch: choices.within(1, 3),
            part_size: Some(choices.below(6)).filter(|&size| size > 0 && !round_robin),
            hold: choices.within(1, 3),
            on_held: choices.of(&[OnHeld::Grow, OnHeld::Fail]),
            in_order: !what.unordered || choices.one_in(3),
            round_robin,
            help: choices.of(&[None, None, Some(false), Some(true)]).filter(|_| !round_robin),
            wait: choices.of(&[WaitStrategy::Park, WaitStrategy::Backoff]),
            memory_limit: choices.one_in(10).then(|| choices.below(1 << 16)),
        }
    }

    fn set<D: Loadable>(&self, what: &What, mut builder: Builder<D>) -> Builder<D> {
        builder = builder.num_workers(self.workers).hold(self.hold).on_held(self.on_held).in_order(self.in_order);
        builder = builder.wait_strategy(self.wait).round_robin(self.round_robin).persistent_workers(what.persistent);
        builder = builder.generator(Generator::from_seed(what.seed)).on_error(what.on_error);
        if self.workers > 0 {
            builder = builder.prefetch_factor(self.prefetch);
        }
        if let Some(size) = self.part_size {
            builder = builder.part_size(size);
        }
        if let Some(help) = self.help {
            builder = builder.help(help);
        }
        match self.memory_limit {
            Some(limit) => builder.memory_limit(limit),
            None => builder,
        }
    }
}
