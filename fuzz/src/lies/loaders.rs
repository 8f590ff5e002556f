//! Loaders with any options over misbehaving code, and correct passes afterwards.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use slotline::arena::Pages;
use slotline::dataset::{ConcatDataset, Dataset, IterableDataset, Loadable, Subset, TensorDataset};
use slotline::loader::{Budget, Builder, OnError, OnHeld, Overflow, Samples, State, With};
use slotline::sampler::BatchSampler;
use slotline::{BoxError, Error, Loader, WaitStrategy};

use super::data::{FaultySample, Items, Shape};
use super::orders::{Backwards, Indices, Lists, MAX_IN_LIST};
use super::outcomes::{Collated, Holder, read_error};
use super::stream::Stream;
use super::{Script, Site, UNEXPECTED, caught, discard, expected, listener, unexpected_since, watch_panics};
use crate::choices::Choices;

/// A collate function.
type Collating<D> = Box<dyn Fn(&mut Samples<'_, D>) -> Result<Collated, BoxError> + Send + Sync>;

/// The source of the indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Sequential,
    Shuffle,
    Sampler,
    Batches,
    Indices,
    Lists,
}

/// The wrapper around the dataset.
#[derive(Clone, Copy, Debug)]
enum Wrap {
    None,
    Arc,
    Subset,
    Concat,
    Rows,
}

/// The options of a loader.
#[derive(Clone, Copy, Debug)]
struct How {
    len: usize,
    shape: Shape,
    declares_fields: bool,
    reads_many: bool,
    saves: bool,
    wrap: Wrap,
    from: Origin,
    collates: bool,
    round_robin: bool,
    batch_size: Option<usize>,
    drop_last: bool,
    workers: usize,
    prefetch: usize,
    part_size: Option<usize>,
    hold: usize,
    on_held: OnHeld,
    help: Option<bool>,
    in_order: bool,
    persistent: bool,
    inits: bool,
    pins: bool,
    memory: bool,
    on_error: OnError,
    overflow: Overflow,
    timeout: Duration,
    watchdog: Duration,
    wait: WaitStrategy,
    memory_limit: Option<usize>,
}

impl How {
    fn choose(choices: &mut Choices<'_>, streams: bool) -> Self {
        use Origin::{Batches, Indices, Lists, Sampler, Sequential, Shuffle};
        let from = choices.of(&[Sequential, Shuffle, Sampler, Batches, Indices, Lists]);
        let workers = choices.of(&[0, 0, 0, 1, 2, 3]);
        let feed = matches!(from, Indices | Lists);
        let collates = choices.one_in(3);
        let round_robin = !streams && !feed && choices.one_in(4);
        let single = !matches!(from, Batches | Lists) && choices.one_in(8);
        let batch_size = choices.of(&[1, 2, 3, 5, 16, usize::MAX]);
        let budget = Budget::Samples(choices.of(&[usize::MAX, 0, 1, 5]));
        let on_error = choices.of(&[OnError::Raise, OnError::Skip(budget), OnError::Replace(budget)]);
        let overflow = choices.of(&[Overflow::Spill, Overflow::Error]);
        let mut shape = Shape::choose(choices);
        if overflow == Overflow::Error {
            // So that correct samples fit.
            shape.room = 4;
        }
        Self {
            len: choices.below(20),
            shape,
            declares_fields: choices.one_in(2),
            reads_many: choices.one_in(3),
            saves: choices.one_in(2),
            wrap: choices.of(&[Wrap::None, Wrap::None, Wrap::Arc, Wrap::Subset, Wrap::Concat, Wrap::Rows]),
            from: if streams { Sequential } else { from },
            collates,
            round_robin,
            batch_size: (!single).then_some(if streams || feed || collates { batch_size.min(16) } else { batch_size }),
            drop_last: !single && choices.one_in(3),
            workers,
            prefetch: choices.within(1, 3),
            part_size: Some(choices.below(4)).filter(|&size| size > 0 && !round_robin && !streams && !collates),
            hold: choices.within(1, 3),
            on_held: choices.of(&[OnHeld::Grow, OnHeld::Fail]),
            help: choices.of(&[None, Some(false), Some(true)]).filter(|_| !round_robin && !streams && workers > 0),
            in_order: !choices.one_in(3),
            persistent: workers > 0 && choices.one_in(3),
            inits: choices.one_in(3),
            pins: choices.one_in(4),
            memory: choices.one_in(4) && !collates,
            on_error: if streams && matches!(on_error, OnError::Replace(_)) { OnError::Skip(budget) } else { on_error },
            overflow,
            timeout: Duration::from_millis(if workers > 0 { choices.of(&[0, 0, 3_600_000, 20]) } else { 0 }),
            watchdog: Duration::from_millis(if choices.one_in(16) { 1 } else { 0 }),
            wait: choices.of(&[WaitStrategy::Park, WaitStrategy::Backoff]),
            memory_limit: choices.one_in(12).then(|| choices.below(1 << 16)),
        }
    }

    /// Removes the options that may fail with correct code, for the passes at the end.
    fn mild(mut self) -> Self {
        (self.memory_limit, self.timeout) = (None, Duration::ZERO);
        self
    }

    fn items(&self, script: &Arc<Script>, len: usize) -> Items {
        let Self { shape, declares_fields, reads_many, .. } = *self;
        let (reported, before) = (Arc::default(), Arc::default());
        Items { len, shape, declares_fields, reads_many, reported, before, tracked: script.quiet() }
    }
}

/// Runs passes of a loader over misbehaving code and resumes from states, and then checks that correct passes of the same
/// loader and of a new one return the right samples.
pub fn lies(data: &[u8]) {
    watch_panics();
    let before = UNEXPECTED.load(Ordering::Relaxed);
    let mut choices = Choices::new(data);
    let streams = choices.one_in(3);
    let how = How::choose(&mut choices, streams);
    let script = {
        let turns: Vec<usize> = (0..6).map(|_| choices.below(64)).collect();
        let script = Script::new(&mut choices);
        listener::listen(&script);
        run(&script, &how, streams, &turns);
        super::custom::values(&script);
        listener::unlisten();
        script.stop();
        script.dirty().clear();
        run(&script, &how.mild(), streams, &[]);
        script
    };
    unexpected_since(before);
    script.all_dropped();
}

fn run(script: &Arc<Script>, how: &How, streams: bool, turns: &[usize]) {
    let world = World { script, how, streams, turns, faults_before: script.faults() };
    if streams {
        let tracked = script.quiet();
        let stream =
            Stream { len: how.len, shape: how.shape, declares_fields: how.declares_fields, saves: how.saves, tracked };
        return world.stream(stream);
    }
    let items = |len| how.items(script, len);
    match how.wrap {
        Wrap::None => world.items(items(how.len)),
        Wrap::Arc => world.items(Arc::new(items(how.len))),
        Wrap::Subset => {
            let indices = caught(|| Subset::new(items(how.len), 0..how.len)).and_then(Result::ok);
            let Some(subset) = indices else { return world.nothing("the dataset") };
            world.items(subset)
        }
        Wrap::Concat => {
            // The second dataset's sample ids start at 0 again; see `World::check`.
            let (first, mut second) = (items(how.len), items(how.len));
            second.before = first.reported.clone();
            let both = caught(|| ConcatDataset::new([first, second])).and_then(Result::ok);
            let Some(both) = both else { return world.nothing("the dataset") };
            world.items(both)
        }
        Wrap::Rows => {
            let rows = caught(|| TensorDataset::new(items(how.len))).and_then(Result::ok);
            let Some(rows) = rows else { return world.nothing("the dataset") };
            world.items(rows)
        }
    }
}

struct World<'w> {
    script: &'w Arc<Script>,
    how: &'w How,
    streams: bool,
    /// How far each pass runs, and what is done between passes. Empty if everything is correct.
    turns: &'w [usize],
    /// The number of faults before the loader was built.
    faults_before: usize,
}

/// Builds and runs a loader. It is a macro since both kinds of loaders have the same functions but no common trait.
macro_rules! drive {
    ($world:expr, $built:expr) => {{
        let (world, script, how): (&World<'_>, _, _) = ($world, $world.script, $world.how);
        let mut loader = match caught(|| $built) {
            Some(Ok(loader)) => loader,
            Some(Err(error)) => {
                let message = caught(|| error.to_string()).unwrap_or_default();
                discard(error);
                return world.nothing(&message);
            }
            None => return world.nothing("a panic"),
        };
        let built_correctly = script.faults() == world.faults_before;
        let mut holder = Holder::new(how.hold, how.shape);
        let mut states: Vec<State> = Vec::new();
        for &turn in world.turns {
            caught(|| {
                let mut pass = match loader.epoch() {
                    Ok(pass) => pass,
                    Err(error) => return read_error(error),
                };
                let mut left = if turn % 3 == 0 { turn / 3 } else { 100 };
                while left > 0 {
                    left -= 1;
                    match caught(|| pass.next()) {
                        // `next` panicked. Continue the pass.
                        None => {}
                        Some(None) => break,
                        Some(Some(Ok(batch))) => drop(holder.take(script, batch)),
                        Some(Some(Err(error))) => {
                            if matches!(error, Error::Held { .. }) {
                                holder.drop_oldest(script);
                            }
                            read_error(error);
                        }
                    }
                }
                states.extend(caught(|| pass.state()));
                caught(|| format!("{pass:?} {:?}", pass.stats()));
                discard(pass);
            });
            if turn % 5 == 0 {
                holder.empty(script);
            }
            if let (4.., Some(state)) = (turn % 8, states.get(turn % 3)) {
                caught(|| loader.load_state(state)).map(discard);
            }
            states.extend(caught(|| loader.state()));
            caught(|| format!("{loader:?} {:?} {:?}", loader.warnings(), loader.len()));
        }
        script.stop();
        holder.empty(script);
        script.dirty().clear();
        // The first pass that starts may be the rest of an earlier one.
        let mut begun = 0;
        for _ in 0..4 {
            let mut all = built_correctly && begun == 1 && !script.worker_hit.load(Ordering::Relaxed);
            let mut pass = match loader.epoch() {
                Ok(pass) => pass,
                // A loaded state stays in effect, and may be rejected, until another one is loaded.
                Err(error) => {
                    let rejected = matches!(error, Error::State(_)) && !states.is_empty();
                    assert!(!all || rejected, "a correct pass cannot start: {error}: {how:?}");
                    continue;
                }
            };
            begun += 1;
            let mut ids = Vec::new();
            for number in 0.. {
                // Some datasets query a length only once, so a wrong one stays forever.
                if number == 1000 && !built_correctly {
                    break;
                }
                assert!(number < 1000, "the pass does not end: {how:?}");
                match pass.next() {
                    None => break,
                    Some(Ok(batch)) => ids.extend(holder.take(script, batch)),
                    Some(Err(Error::Held { .. })) => holder.empty(script),
                    Some(Err(Error::Timeout { .. })) => all = false,
                    Some(Err(error)) => assert!(!all, "a correct pass failed: {error}: {how:?}"),
                }
            }
            if all {
                world.check(ids);
            }
            if begun == 2 {
                break;
            }
        }
        holder.empty(script);
        drop(loader);
    }};
}

impl World<'_> {
    /// Handles a loader or dataset that could not be built, which is allowed only if something misbehaved.
    fn nothing(&self, why: &str) {
        assert!(!self.turns.is_empty() || self.empty(), "a correct loader cannot be built: {why}: {:?}", self.how);
    }

    /// Whether a loader may report that there is nothing to load.
    fn empty(&self) -> bool {
        self.how.len == 0
    }

    /// Checks the ids of a correct pass.
    fn check(&self, mut ids: Vec<i64>) {
        let How { len, drop_last, batch_size, from, workers, wrap, collates, .. } = *self.how;
        ids.sort_unstable();
        let mut expected: Vec<i64> = (0..len as i64).collect();
        if let (Wrap::Concat, false) = (wrap, self.streams) {
            // Iterators and samplers only cover the first dataset.
            if !matches!(from, Origin::Indices | Origin::Lists | Origin::Sampler | Origin::Batches) {
                expected = (0..2 * len as i64).map(|id| id / 2).collect();
            }
        }
        let size = match from {
            Origin::Lists => 1,
            Origin::Batches => 3,
            _ => batch_size.unwrap_or(1),
        };
        if drop_last && from != Origin::Lists && !(from == Origin::Batches) {
            let most = if self.streams { expected.len() } else { expected.len() / size * size };
            let least = if self.streams { expected.len().saturating_sub(workers.max(1) * size) } else { most };
            assert!((least..=most).contains(&ids.len()), "{ids:?} of {:?}", self.how);
        } else {
            assert_eq!(ids, expected, "{:?} {collates}", self.how);
        }
    }

    fn stream<D>(&self, dataset: D)
    where
        D: for<'a> IterableDataset<Sample<'a> = FaultySample>,
    {
        let builder = self.options(Loader::iterable(dataset));
        if self.how.collates {
            drive!(self, self.collate(builder).build());
        } else {
            drive!(self, self.memory(builder).build());
        }
    }

    fn items<D>(&self, dataset: D)
    where
        D: for<'a> Dataset<Sample<'a> = FaultySample>,
    {
        let builder = self.sampled(self.options(Loader::builder(dataset))).round_robin(self.how.round_robin);
        if self.how.collates {
            drive!(self, self.collate(builder).build());
        } else {
            drive!(self, self.memory(builder).build());
        }
    }

    fn options<D: Loadable>(&self, mut builder: Builder<D>) -> Builder<D> {
        let how = self.how;
        builder = builder
            .num_workers(how.workers)
            .hold(how.hold)
            .on_held(how.on_held)
            .in_order(how.in_order)
            .wait_strategy(how.wait);
        builder = builder.on_error(how.on_error).on_overflow(how.overflow).timeout(how.timeout).seed(7);
        builder = builder.watchdog(how.watchdog).persistent_workers(how.persistent);
        if !matches!(how.from, Origin::Batches | Origin::Lists) {
            builder = builder.batch_size(how.batch_size).drop_last(how.drop_last);
        }
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
        if how.inits {
            let (script, tracked) = (self.script.clone(), self.script.quiet());
            builder = builder.worker_init(move |_| {
                tracked.check();
                listener::listen(&script);
                match script.ask(Site::Init, 2) {
                    1 => script.panic(),
                    2 => Err(script.error()),
                    _ => Ok(()),
                }
            });
        }
        builder
    }

    fn memory<D: Loadable>(&self, builder: Builder<D>) -> Builder<D> {
        if !self.how.memory {
            return builder;
        }
        let (script, tracked) = (self.script.clone(), self.script.quiet());
        builder.memory(move |bytes| {
            tracked.check();
            Ok(match script.ask(Site::Memory, 4) {
                1 => script.panic(),
                2 => return Err(script.error()),
                3 => Pages::new(bytes / 2)?,
                4 => Pages::new(bytes + 9999)?,
                _ => Pages::new(bytes)?,
            })
        })
    }

    fn sampled<D: Dataset>(&self, builder: Builder<D>) -> Builder<D> {
        let (len, script) = (self.how.len, self.script.clone());
        let backwards = || Backwards { len, tracked: script.quiet() };
        match self.how.from {
            Origin::Sequential => builder,
            Origin::Shuffle => builder.shuffle(true),
            Origin::Sampler => builder.sampler(backwards()),
            Origin::Batches => {
                let mut batches = BatchSampler::new(backwards(), 3, false).expect("a batch size");
                expected(|| caught(|| batches.batches().map(|batches| batches.take(20).count())).map(discard));
                builder.batch_sampler(batches)
            }
            Origin::Indices => builder.sampler_iter(move || Indices::new(&script, len)),
            Origin::Lists => builder.batch_sampler_iter(MAX_IN_LIST, move || Lists(Indices::new(&script, len))),
        }
    }

    fn collate<D>(&self, builder: Builder<D>) -> Builder<D, With<Collating<D>, Collated>>
    where
        D: for<'a> Loadable<Item<'a> = FaultySample>,
    {
        let (script, tracked) = (self.script.clone(), self.script.quiet());
        let collating: Collating<D> = Box::new(move |samples| {
            tracked.check();
            collated(&script, samples)
        });
        let builder = builder.collate(collating);
        let (script, pins) = (self.script.clone(), self.how.pins);
        builder.pin_memory(pins).pin_memory_with(move |batch: &mut Collated| {
            batch.tracked.check();
            match script.ask(Site::Pin, 3) {
                1 => script.panic(),
                2 => {
                    // The batch is dropped while the error is returned.
                    batch.tracked.quiet = true;
                    Err(script.error())
                }
                3 => {
                    // The assignment drops the old batch.
                    *batch = Collated { ids: Vec::new(), tracked: script.tracked() };
                    Ok(())
                }
                _ => Ok(()),
            }
        })
    }
}

fn collated<D>(script: &Arc<Script>, samples: &mut Samples<'_, D>) -> Result<Collated, BoxError>
where
    D: for<'a> Loadable<Item<'a> = FaultySample>,
{
    let mut batch = Collated { ids: Vec::new(), tracked: script.tracked() };
    match collate_into(script, samples, &mut batch) {
        Ok(()) => Ok(batch),
        Err(error) => {
            // Dropped here for the same reason as in `FaultySample::write`.
            drop(batch);
            Err(error)
        }
    }
}

fn collate_into<D>(script: &Arc<Script>, samples: &mut Samples<'_, D>, batch: &mut Collated) -> Result<(), BoxError>
where
    D: for<'a> Loadable<Item<'a> = FaultySample>,
{
    match script.ask(Site::Collate, 9) {
        1 => script.panic(),
        2 => return Err(script.error()),
        3 => {}
        4 => batch.ids.extend(samples.next().transpose()?.map(|sample| sample.id)),
        5 => {
            // Ignores errors.
            for _ in 0..100 {
                match samples.next() {
                    Some(Ok(sample)) => batch.ids.push(sample.id),
                    Some(Err(error)) => drop(error),
                    None => break,
                }
            }
        }
        6 => {
            // Ignores panics.
            for _ in 0..100 {
                if let Some(None) = caught(|| samples.next().map(|sample| sample.map(drop).is_ok())) {
                    break;
                }
            }
        }
        7 => {
            let _ = samples.for_each(|sample| {
                drop(sample);
                Err(script.error())
            });
            let _ = samples.for_each(|_| script.panic());
        }
        8 => {
            while let Some(sample) = samples.next() {
                batch.ids.push(sample?.id);
            }
            script.panic()
        }
        9 => {
            // Calls the methods after the end.
            while let Some(sample) = samples.next() {
                batch.ids.push(sample?.id);
            }
            let _ = (samples.next().is_some(), samples.len(), samples.index(), samples.is_single());
            let _ = samples.for_each(|_| Ok(()));
        }
        _ if batch.ids.capacity() == usize::from(samples.is_single()) => {
            samples.for_each(|sample| {
                batch.ids.push(sample.id);
                Ok(())
            })?;
        }
        _ => {
            while let Some(sample) = samples.next() {
                batch.ids.push(sample?.id);
            }
        }
    }
    Ok(())
}
