//! Runs loaders with any options over misbehaving code, followed by correct passes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use slotline::arena::Pages;
use slotline::dataset::{ConcatDataset, Dataset, IterableDataset, Loadable, Subset, TensorDataset};
use slotline::loader::{Budget, BuildError, Builder, OnError, OnHeld, Output, Overflow, Samples, State, With};
use slotline::sampler::BatchSampler;
use slotline::{BoxError, Error, Loader, WaitStrategy};

use super::data::{Faulty, FaultySample};
use super::orders::{Backwards, Indices, Lists, MAX_IN_LIST};
use super::outcomes::{Collated, Holder, Outcome, read_error};
use super::{Script, Site, UNEXPECTED, caught, discard, expected, unexpected_since, watch_panics};
use crate::choices::Choices;

/// A boxed collate function.
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

/// The dataset that the loader loads: a stream, or a map-style dataset in one of the wrappers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Stream,
    Items,
    Subset,
    Concat,
    Rows,
}

/// The parameters that determine the samples of a correct pass.
#[derive(Clone, Copy, Debug)]
struct How<'a> {
    source: Source,
    len: usize,
    room: Option<usize>,
    declares_fields: bool,
    more: bool,
    origin: Origin,
    collates: bool,
    batch_size: Option<usize>,
    drop_last: bool,
    workers: usize,
    hold: usize,
    /// Bytes that choose the other options.
    others: &'a [u8],
}

impl<'a> How<'a> {
    fn choose(choices: &mut Choices<'a>) -> Self {
        use Origin::{Batches, Indices, Lists, Sampler, Sequential, Shuffle};
        use Source::{Concat, Items, Rows, Stream, Subset};
        let source = choices.of(&[Items, Items, Items, Stream, Stream, Stream, Subset, Concat, Rows]);
        let origin = choices.of(&[Sequential, Shuffle, Sampler, Batches, Indices, Lists]);
        let origin = if source == Stream { Sequential } else { origin };
        let collates = choices.one_in(3);
        let single = !matches!(origin, Batches | Lists) && choices.one_in(8);
        let size = choices.of(&[1, 2, 3, 5, 16]);
        Self {
            source,
            len: choices.below(20),
            room: choices.of(&[None, Some(4), Some(4), Some(0), Some(1)]),
            declares_fields: choices.one_in(2),
            more: choices.one_in(2),
            origin,
            collates,
            batch_size: (!single).then_some(size),
            drop_last: !single && choices.one_in(3),
            workers: choices.of(&[0, 0, 0, 1, 2, 3]),
            hold: choices.within(1, 3),
            others: choices.bytes(32),
        }
    }

    /// Returns whether batches have a fixed size, so that the last one can be dropped for being
    /// smaller.
    fn has_sizes(&self) -> bool {
        !matches!(self.origin, Origin::Batches | Origin::Lists)
    }
}

/// Runs passes of a loader over misbehaving code, also resuming from states. Then checks that
/// correct passes of the same loader and of a new one return the right samples.
pub fn misbehaving_code(data: &[u8]) {
    watch_panics();
    let before = UNEXPECTED.load(Ordering::Relaxed);
    let mut choices = Choices::new(data);
    let how = How::choose(&mut choices);
    let script = {
        let turns: Vec<usize> = (0..6).map(|_| choices.below(64)).collect();
        let script = Script::new(&mut choices);
        run(&script, &how, &turns);
        super::custom::values(&script);
        script.stop();
        script.dirty().clear();
        run(&script, &how, &[]);
        script
    };
    unexpected_since(before);
    script.all_dropped();
}

fn run(script: &Arc<Script>, how: &How<'_>, turns: &[usize]) {
    let run = Run { script, how, turns, faults_before: script.faults() };
    let How { len, room, declares_fields, more, .. } = *how;
    let faulty = || {
        let (reported, before) = (Arc::default(), Arc::default());
        Faulty { len, room, declares_fields, more, reported, before, tracked: script.quiet() }
    };
    macro_rules! wrapped {
        ($dataset:expr) => {
            match caught(|| $dataset).and_then(Result::ok) {
                Some(dataset) => run.items(dataset),
                None => run.nothing("the dataset"),
            }
        };
    }
    match how.source {
        Source::Stream => run.stream(faulty()),
        Source::Items => run.items(faulty()),
        Source::Subset => wrapped!(Subset::new(faulty(), 0..len)),
        Source::Concat => {
            // The sample ids of each of the two datasets start at 0; see `Run::check`.
            let (first, mut second) = (faulty(), faulty());
            second.before = first.reported.clone();
            wrapped!(ConcatDataset::new([first, second]))
        }
        Source::Rows => wrapped!(TensorDataset::new(faulty())),
    }
}

struct Run<'w> {
    script: &'w Arc<Script>,
    how: &'w How<'w>,
    /// Numbers that encode how many batches each pass delivers before it is left, and what is done
    /// between passes. Empty for a run in which everything is correct.
    turns: &'w [usize],
    /// The number of faults before the loader was built.
    faults_before: usize,
}

impl Run<'_> {
    /// Runs passes that may fail, and then correct ones.
    fn drive<B: Output<Item: Outcome>>(&self, build: impl FnOnce() -> Result<Loader<B>, BuildError>) {
        let (script, how) = (self.script, self.how);
        let mut loader = match caught(build) {
            Some(Ok(loader)) => loader,
            Some(Err(error)) => {
                let message = caught(|| error.to_string()).unwrap_or_default();
                discard(error);
                return self.nothing(&message);
            }
            None => return self.nothing("a panic"),
        };
        let built_correctly = script.faults() == self.faults_before;
        let mut holder = Holder::new(how.hold, how.room);
        let mut states: Vec<State> = Vec::new();
        for &turn in self.turns {
            caught(|| {
                let mut pass = match loader.epoch() {
                    Ok(pass) => pass,
                    Err(error) => return read_error(error),
                };
                let most = if turn % 3 == 0 { turn / 3 } else { 100 };
                for _ in 0..most {
                    match caught(|| pass.next()) {
                        // `next` panicked: continue the pass.
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
                discard(caught(|| loader.load_state(state)));
            }
            states.extend(caught(|| loader.state()));
            caught(|| format!("{loader:?} {:?} {:?}", loader.warnings(), loader.len()));
        }
        script.stop();
        holder.empty(script);
        script.dirty().clear();
        // The first pass may be the rest of an earlier one.
        let mut begun = 0;
        for _ in 0..4 {
            let mut all = built_correctly && begun == 1;
            let mut pass = match loader.epoch() {
                Ok(pass) => pass,
                // A loaded state stays in effect until another one is loaded, and may be rejected
                // on each attempt.
                Err(error) => {
                    let rejected = matches!(error, Error::State(_)) && !states.is_empty();
                    assert!(!all || rejected, "a correct pass cannot start: {error}: {how:?}");
                    continue;
                }
            };
            begun += 1;
            let mut ids = Vec::new();
            for number in 0.. {
                // A wrong length that was reported during `build` stays in effect, since some
                // datasets query it only once.
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
                self.check(ids);
            }
            if begun == 2 {
                break;
            }
        }
        holder.empty(script);
    }

    /// Handles a loader or dataset that could not be built, which is allowed only if something misbehaved, or if there is
    /// nothing to load.
    fn nothing(&self, why: &str) {
        let allowed = !self.turns.is_empty() || self.how.len == 0;
        assert!(allowed, "a correct loader cannot be built: {why}: {:?}", self.how);
    }

    /// Checks the ids of a correct pass.
    fn check(&self, mut ids: Vec<i64>) {
        let How { source, len, drop_last, batch_size, origin, workers, .. } = *self.how;
        ids.sort_unstable();
        // Iterators and samplers cover only the first of two datasets.
        let covers_both = source == Source::Concat && matches!(origin, Origin::Sequential | Origin::Shuffle);
        let expected: Vec<i64> =
            if covers_both { (0..2 * len as i64).map(|id| id / 2).collect() } else { (0..len as i64).collect() };
        if !drop_last || !self.how.has_sizes() {
            return assert_eq!(ids, expected, "{:?}", self.how);
        }
        let (all, size) = (expected.len(), batch_size.unwrap_or(1));
        let (least, most) = match source {
            Source::Stream => (all.saturating_sub(workers.max(1) * size), all),
            _ => (all / size * size, all / size * size),
        };
        assert!((least..=most).contains(&ids.len()), "{ids:?} of {:?}", self.how);
    }

    fn stream<D: for<'a> IterableDataset<Sample<'a> = FaultySample>>(&self, dataset: D) {
        self.built(self.options(Loader::iterable(dataset), true), |builder| builder.build(), |builder| builder.build());
    }

    fn items<D: for<'a> Dataset<Sample<'a> = FaultySample>>(&self, dataset: D) {
        let builder = self.sampled(self.options(Loader::builder(dataset), false));
        self.built(builder, |builder| builder.build(), |builder| builder.build());
    }

    /// Builds a loader with a collate function or without one, and runs it.
    fn built<D, B, C>(
        &self,
        builder: Builder<D>,
        plain: impl FnOnce(Builder<D>) -> Result<Loader<B>, BuildError>,
        collating: impl FnOnce(Builder<D, With<Collating<D>, Collated>>) -> Result<Loader<C>, BuildError>,
    ) where
        D: for<'a> Loadable<Item<'a> = FaultySample>,
        B: Output<Item: Outcome>,
        C: Output<Item: Outcome>,
    {
        if self.how.collates {
            self.drive(|| collating(self.collate(builder)));
        } else {
            self.drive(|| plain(builder));
        }
    }

    fn options<D: Loadable>(&self, builder: Builder<D>, stream: bool) -> Builder<D> {
        let (how, mut others) = (self.how, Choices::new(self.how.others));
        let (workers, parallel) = (how.workers, how.workers > 0);
        let budget = Budget::Samples(others.of(&[usize::MAX, 0, 1, 5]));
        let on_error = [OnError::Raise, OnError::Skip(budget), OnError::Replace(budget)];
        let mut builder = builder
            .num_workers(workers)
            .hold(how.hold)
            .on_held(others.of(&[OnHeld::Grow, OnHeld::Fail]))
            .in_order(!others.one_in(3))
            .wait_strategy(others.of(&[WaitStrategy::Park, WaitStrategy::Backoff]))
            .on_error(others.of(&on_error[..if stream { 2 } else { 3 }]))
            .persistent_workers(parallel && others.one_in(3))
            .watchdog(Duration::from_millis(u64::from(others.one_in(16))))
            .seed(7);
        if how.has_sizes() {
            builder = builder.batch_size(how.batch_size).drop_last(how.drop_last);
        }
        // A packed field with room for 4 elements per sample always has enough memory; with less
        // room, a batch may need additional memory from the heap (it spills), and must not fail.
        let fails = how.room == Some(4) && others.one_in(2);
        builder = builder.on_overflow(if fails { Overflow::Error } else { Overflow::Spill });
        if parallel {
            builder = builder.prefetch_factor(others.within(1, 3));
        }
        let round_robin = !stream && !matches!(how.origin, Origin::Indices | Origin::Lists) && others.one_in(4);
        if !round_robin && !stream {
            if let (false, size @ 1..) = (how.collates, others.below(4)) {
                builder = builder.part_size(size);
            }
            if let (true, Some(help)) = (parallel, others.of(&[None, Some(false), Some(true)])) {
                builder = builder.help(help);
            }
        }
        builder = builder.round_robin(round_robin);
        // Options with which building may fail even with correct code.
        if !self.turns.is_empty() {
            if parallel {
                builder = builder.timeout(Duration::from_millis(others.of(&[0, 0, 3_600_000, 20])));
            }
            if others.one_in(12) {
                builder = builder.memory_limit(others.below(1 << 16));
            }
        }
        let (script, tracked) = (self.script.clone(), self.script.quiet());
        if others.one_in(3) {
            builder = builder.worker_init(move |_| {
                tracked.check();
                script.fault(Site::Init, 2).map(drop)
            });
        } else if !how.collates && others.one_in(4) {
            builder = builder.memory(move |bytes| {
                tracked.check();
                Ok(match script.fault(Site::Memory, 4)? {
                    3 => Pages::new(bytes / 2)?,
                    4 => Pages::new(bytes + 9999)?,
                    _ => Pages::new(bytes)?,
                })
            });
        }
        builder
    }

    fn sampled<D: Dataset>(&self, builder: Builder<D>) -> Builder<D> {
        let (len, script) = (self.how.len, self.script.clone());
        let backwards = || Backwards { len, tracked: script.quiet() };
        match self.how.origin {
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
            let mut batch = Collated { ids: Vec::new(), tracked: script.tracked() };
            match collate_into(&script, samples, &mut batch) {
                Ok(()) => Ok(batch),
                Err(error) => {
                    // Dropped here for the same reason as in `FaultySample::write`.
                    drop(batch);
                    Err(error)
                }
            }
        });
        let script = self.script.clone();
        let pins = self.how.len.is_multiple_of(4);
        builder.collate(collating).pin_memory(pins).pin_memory_with(move |batch: &mut Collated| {
            batch.tracked.check();
            match script.panics(Site::Pin, 3) {
                2 => {
                    // The batch is dropped while the error is returned.
                    batch.tracked.quiet = true;
                    return Err(script.error());
                }
                // The assignment drops the old batch.
                3 => *batch = Collated { ids: Vec::new(), tracked: script.tracked() },
                _ => {}
            }
            Ok(())
        })
    }
}

fn collate_into<D>(script: &Arc<Script>, samples: &mut Samples<'_, D>, batch: &mut Collated) -> Result<(), BoxError>
where
    D: for<'a> Loadable<Item<'a> = FaultySample>,
{
    let way = script.fault(Site::Collate, 9)?;
    match way {
        3 => return Ok(()),
        4 => {
            batch.ids.extend(samples.next().transpose()?.map(|sample| sample.id));
            return Ok(());
        }
        // Ignores errors and panics.
        5 | 6 => {
            for _ in 0..100 {
                match caught(|| samples.next()) {
                    Some(Some(Ok(sample))) if way == 5 => batch.ids.push(sample.id),
                    Some(None) => break,
                    other => drop(caught(|| drop(other))),
                }
            }
            return Ok(());
        }
        7 => {
            let _ = samples.for_each(|sample| {
                drop(sample);
                Err(script.error())
            });
            return samples.for_each(|_| script.panic());
        }
        0 if samples.len().is_multiple_of(2) => {
            return samples.for_each(|sample| {
                batch.ids.push(sample.id);
                Ok(())
            });
        }
        _ => {}
    }
    while let Some(sample) = samples.next() {
        batch.ids.push(sample?.id);
    }
    match way {
        8 => script.panic(),
        9 => {
            // Calls the methods after the end.
            let _ = (samples.next().is_some(), samples.len(), samples.index(), samples.is_single());
            let _ = samples.for_each(|_| Ok(()));
        }
        _ => {}
    }
    Ok(())
}
