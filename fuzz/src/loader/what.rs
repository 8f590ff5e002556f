//! The options of a loader: those that determine its batches, and those that must not affect them.

use slotline::dataset::{Context, Dataset};
use slotline::loader::{Budget, BuildError, Builder, OnError, OnHeld};
use slotline::rng::Generator;
use slotline::sample::Fields;
use slotline::{Batch, BoxError, Loader, WaitStrategy};

use crate::choices::Choices;
use crate::received::{Built, Fault, Item, Schema, faults, fields, item};

/// Samples whose content is derived from their index. Some are bad.
#[derive(Clone, Debug)]
pub(super) struct Items {
    pub(super) faults: Vec<Option<Fault>>,
    declares_fields: bool,
    reads_many: bool,
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

/// The source of the indices.
#[derive(Clone, Debug)]
pub(super) enum From {
    Sequential,
    Shuffle,
    /// These indices, rotated by one more in each pass.
    Indices(Vec<usize>),
    /// These batches.
    Lists(Vec<Vec<usize>>),
}

/// The options that determine the batches.
#[derive(Clone, Debug)]
pub(super) struct What {
    pub(super) items: Items,
    pub(super) batch_size: Option<usize>,
    pub(super) drop_last: bool,
    pub(super) from: From,
    pub(super) seed: u64,
    pub(super) persistent: bool,
    pub(super) on_error: OnError,
    pub(super) epochs: u32,
    /// Whether some loaders deliver batches as they are finished.
    pub(super) unordered: bool,
}

/// The options that must not affect the batches.
#[derive(Clone, Debug)]
pub(super) struct How {
    workers: usize,
    prefetch: usize,
    part_size: Option<usize>,
    pub(super) hold: usize,
    pub(super) on_held: OnHeld,
    pub(super) in_order: bool,
    round_robin: bool,
    help: Option<bool>,
    wait: WaitStrategy,
    memory_limit: Option<usize>,
}

/// The maximum length of a batch in the user's lists.
pub(super) const MAX_IN_LIST: usize = 4;

impl What {
    pub(super) fn choose(choices: &mut Choices<'_>) -> Self {
        let bad = choices.of(&[0, 0, 0, 12, 3, 1]);
        let faults = faults(choices, bad, &[Fault::Error, Fault::Panic]);
        let len = faults.len();
        // Without samples, the fields cannot be taken from a sample.
        let declares_fields = bad > 0 || len == 0 || choices.one_in(2);
        let items = Items { faults, declares_fields, reads_many: choices.one_in(4) };
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
        let batch_size = choices.of(&[Some(1), Some(2), Some(3), Some(5), Some(7), Some(16), Some(100), None]);
        let unordered = choices.one_in(4);
        let feed = matches!(from, From::Indices(_) | From::Lists(_));
        let budget = match choices.below(3) {
            // Out of order, the first batch beyond a budget depends on the order of arrival.
            _ if unordered => Budget::Samples(usize::MAX),
            0 => Budget::Samples(usize::MAX),
            1 if !feed => Budget::Share(f64::from(choices.byte()) / 255.0),
            _ => Budget::Samples(choices.below(7)),
        };
        Self {
            items,
            drop_last: batch_size.is_some() && choices.one_in(2),
            batch_size,
            from,
            seed: choices.word(),
            persistent: choices.one_in(4),
            on_error: choices.of(&[OnError::Raise, OnError::Skip(budget), OnError::Replace(budget)]),
            epochs: choices.within(1, 3) as u32,
            unordered,
        }
    }

    pub(super) fn is_feed(&self) -> bool {
        matches!(self.from, From::Indices(_) | From::Lists(_))
    }

    /// Returns the indices of pass `epoch`.
    pub(super) fn rotated(indices: &[usize], epoch: usize) -> impl Iterator<Item = usize> {
        (0..indices.len()).map(move |i| indices[(i + epoch) % indices.len()])
    }
}

impl How {
    pub(super) fn choose(what: &What, choices: &mut Choices<'_>) -> Self {
        let workers = choices.of(&[0, 0, 0, 0, 1, 1, 2, 3]);
        let round_robin = choices.one_in(4) && !what.is_feed();
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
}

/// Builds the loader. If the memory limit is too low, builds it without the limit.
pub(super) fn build(what: &What, how: &How) -> Result<Built<Schema>, BuildError> {
    let loader = match build_once(what, how) {
        Err(BuildError::MemoryLimit { limit, needed, .. }) if how.memory_limit == Some(limit) => {
            assert!(needed > limit);
            build_once(what, &How { memory_limit: None, ..how.clone() })?
        }
        outcome => {
            let loader = outcome?;
            let ceiling = loader.memory_ceiling();
            assert!(how.memory_limit.is_none_or(|limit| ceiling <= limit), "{ceiling} bytes");
            loader
        }
    };
    let How { hold, on_held, in_order, .. } = *how;
    Ok(Built { loader, hold, on_held, in_order, streams: false })
}

fn build_once(what: &What, how: &How) -> Result<Loader<Batch<Schema>>, BuildError> {
    let mut builder = sampled(Loader::builder(what.items.clone()), what);
    builder = builder
        .num_workers(how.workers)
        .hold(how.hold)
        .on_held(how.on_held)
        .in_order(how.in_order)
        .wait_strategy(how.wait);
    builder = builder.generator(Generator::from_seed(what.seed)).on_error(what.on_error);
    builder = builder.persistent_workers(what.persistent);
    if how.workers > 0 {
        builder = builder.prefetch_factor(how.prefetch);
    }
    if let Some(size) = how.part_size {
        builder = builder.part_size(size);
    }
    if let Some(help) = how.help {
        builder = builder.help(help);
    }
    if let Some(limit) = how.memory_limit {
        builder = builder.memory_limit(limit);
    }
    builder.round_robin(how.round_robin).build()
}

/// Sets the order and the batches.
fn sampled(builder: Builder<Items>, what: &What) -> Builder<Items> {
    let sized = |builder: Builder<Items>| builder.batch_size(what.batch_size).drop_last(what.drop_last);
    match what.from.clone() {
        From::Sequential => sized(builder),
        From::Shuffle => sized(builder).shuffle(true),
        From::Indices(indices) => {
            let mut epoch = 0;
            sized(builder).sampler_iter(move || {
                epoch += 1;
                What::rotated(&indices, epoch - 1).collect::<Vec<_>>()
            })
        }
        From::Lists(lists) => builder.batch_sampler_iter(MAX_IN_LIST, move || lists.clone()),
    }
}
