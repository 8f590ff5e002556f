//! How the cost of one rank depends on the number of ranks, up to 4,096 machines with 8 GPUs each.
//! The samples are computed, not stored.

use std::hint::black_box;
use std::rc::Rc;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use slotline::dataset::from_fn;
use slotline::loader::State;
use slotline::sampler::{CipherSampler, DistributedSampler, Sampler};
use slotline::{Batch, Loader, Ranks};
use slotline_sequences::sampler::ShardShuffleSampler;

use crate::peer::ours;
use crate::record::{Kind, Time, Unit};
use crate::rounds::{Contender, Entry, Pass, Recorder};
use crate::workload::Setup;

/// The numbers of ranks.
const WORLDS: [usize; 4] = [1, 64, 4_096, 32_768];
/// The numbers of samples.
const SIZES: [usize; 2] = [1_000_000_000, 1_000_000_000_000];
/// The batch size of each rank.
const BATCH: usize = 64;
/// The maximum number of batches of a pass that are measured.
const BATCHES: usize = 2_000;
/// The maximum number of batches for an iterator that all ranks read. Such an iterator makes the
/// batches of all ranks, so a batch of one rank costs as much as a batch of every rank.
const BATCHES_OF_ITERATOR: usize = 10;
/// The numbers of shards with their names: one is smaller and one is larger than the largest number
/// of ranks.
const SHARDS: [(usize, &str); 2] = [(1_000, "1,000"), (100_000, "100,000")];
/// The number of shards that are shuffled together.
const WINDOW: usize = 100;
/// The maximum number of samples for which the shard is looked up.
const LOOKUPS: usize = 2_000_000;

/// The order of the samples before they are divided among ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Sequential,
    Cipher,
    ShardShuffle,
    Iterator,
    Shuffle,
}

impl Order {
    fn name(self) -> &'static str {
        match self {
            Self::Sequential => "sequential",
            Self::Cipher => "CipherSampler",
            Self::ShardShuffle => "ShardShuffleSampler",
            Self::Iterator => "iterator of indices",
            Self::Shuffle => "shuffle",
        }
    }

    /// Returns the loader, without workers, of the rank in the middle.
    fn loader(self, size: usize, world_size: usize) -> Result<Loader<Batch<i64>>> {
        self.loader_of(size, Ranks::new(world_size / 2, world_size)?)
    }

    fn loader_of(self, size: usize, ranks: Ranks) -> Result<Loader<Batch<i64>>> {
        let builder = Loader::builder(from_fn(size, |index, _| Ok(index as i64))).batch_size(BATCH);
        let builder = builder.seed(42).ranks(ranks);
        Ok(match self {
            Self::Sequential => builder,
            Self::Cipher => builder.sampler(CipherSampler::new(size)),
            Self::ShardShuffle => builder.sampler(shard_shuffle(size, SHARDS[1].0)?),
            Self::Iterator => builder.sampler_iter(move || 0..size),
            Self::Shuffle => builder.shuffle(true),
        }
        .build()?)
    }
}

fn shard_shuffle(size: usize, shards: usize) -> Result<ShardShuffleSampler> {
    Ok(ShardShuffleSampler::new(std::iter::repeat_n(size / shards, shards), WINDOW)?)
}

/// Runs the comparisons of this section.
pub fn run(_: &Setup, recorder: &mut Recorder) -> Result<()> {
    for size in SIZES {
        shuffled(recorder, size)?;
        for order in [Order::Sequential, Order::Cipher, Order::ShardShuffle] {
            let name = order.name();
            compare(recorder, &format!("first batch, {name}"), size, Unit::Millis, |world| {
                first_batch(order, size, world)
            })?;
            compare(recorder, &format!("next batches, {name}"), size, Unit::MicrosPerBatch, |world| {
                next_batches(order, size, world, BATCHES)
            })?;
            memory(recorder, order, size)?;
        }
        compare(recorder, "next batches, iterator of indices", size, Unit::MicrosPerBatch, |world| {
            next_batches(Order::Iterator, size, world, BATCHES_OF_ITERATOR)
        })?;
        states(recorder, size)?;
    }
    shards(recorder)
}

/// Measures a contender for each number of ranks.
fn compare(
    recorder: &mut Recorder,
    case: &str,
    size: usize,
    unit: Unit,
    contender: impl Fn(usize) -> Result<Contender>,
) -> Result<()> {
    let entry = |world: usize| {
        let entry = ours::entry(Ok(contender(world)?));
        anyhow::Ok(Entry { size: Some(size as u64), ranks: Some(world as u64), ..entry })
    };
    recorder.compare(case, 0, unit, WORLDS.into_iter().map(entry).collect::<Result<_>>()?);
    Ok(())
}

/// Records a single value.
fn push(recorder: &mut Recorder, case: &str, size: usize, world: usize, unit: Unit, value: f64) {
    let time = Time::new(case, "slotline", Kind::Ours, unit, vec![value]);
    recorder.time(Time { workers: Some(0), size: Some(size as u64), ranks: Some(world as u64), ..time });
}

/// Records the memory that loaders take.
fn memory(recorder: &mut Recorder, order: Order, size: usize) -> Result<()> {
    for world in WORLDS {
        let bytes = order.loader(size, world)?.memory_ceiling() as f64;
        push(recorder, &format!("memory, {}", order.name()), size, world, Unit::Bytes, bytes);
    }
    Ok(())
}

/// Begins a pass. Returns the indices of its first batch, and the seconds until it was delivered.
fn begin(loader: &mut Loader<Batch<i64>>) -> Result<(Vec<i64>, f64)> {
    let start = Instant::now();
    let first = loader.epoch()?.next().context("a pass has no batch")??;
    let seconds = start.elapsed().as_secs_f64();
    Ok((first.tensors().as_slice().to_vec(), seconds))
}

/// Measures the first batch of a new loader.
fn first_batch(order: Order, size: usize, world: usize) -> Result<Contender> {
    Ok(Box::new(move || {
        let (_, seconds) = begin(&mut order.loader(size, world)?)?;
        Ok(Pass { batches: 1.0, seconds })
    }))
}

/// Measures the batches after the first one.
fn next_batches(order: Order, size: usize, world: usize, batches: usize) -> Result<Contender> {
    let mut loader = order.loader(size, world)?;
    Ok(Box::new(move || {
        let mut pass = loader.epoch()?;
        drop(pass.next().context("a pass has no batch")??);
        rest(pass.take(batches))
    }))
}

/// Measures the batches of a pass after its first one.
fn rest(batches: impl Iterator<Item = Result<Batch<i64>, slotline::Error>>) -> Result<Pass> {
    let (start, mut count) = (Instant::now(), 0.0);
    for batch in batches {
        black_box(batch?.tensors().as_slice());
        count += 1.0;
    }
    Ok(Pass::since(start, count))
}

/// Measures a permutation of all samples. It is measured once, for the largest number of ranks,
/// since each rank makes the whole permutation.
fn shuffled(recorder: &mut Recorder, size: usize) -> Result<()> {
    let world = WORLDS[WORLDS.len() - 1];
    eprintln!("ranks: a permutation of {size} samples");
    let mut loader = match Order::Shuffle.loader(size, world) {
        Ok(loader) => loader,
        Err(error) => {
            recorder.absent(&format!("10^{} samples, shuffle", size.ilog10()), Some(0), "slotline", &error);
            return Ok(());
        }
    };
    let start = Instant::now();
    let mut pass = loader.epoch()?;
    drop(pass.next().context("a pass has no batch")??);
    let seconds = start.elapsed().as_secs_f64();
    push(recorder, "first batch, shuffle", size, world, Unit::Millis, Unit::Millis.value(1.0, seconds));
    let next = rest(pass.take(BATCHES))?;
    let value = Unit::MicrosPerBatch.value(next.batches, next.seconds);
    push(recorder, "next batches, shuffle", size, world, Unit::MicrosPerBatch, value);
    memory(recorder, Order::Shuffle, size)
}

/// Measures the states of all ranks after a batch: saving and merging them, and resuming in the
/// middle of the pass with another number of ranks.
fn states(recorder: &mut Recorder, size: usize) -> Result<()> {
    let all = |world: usize| -> Result<Vec<State>> {
        let state = |rank| {
            let mut loader = Order::Cipher.loader_of(size, Ranks::new(rank, world)?)?;
            let mut pass = loader.epoch()?;
            drop(pass.next().context("a pass has no batch")??);
            Ok(pass.state())
        };
        (0..world).map(state).collect()
    };
    let states: Vec<Rc<Vec<State>>> = WORLDS.into_iter().map(|world| all(world).map(Rc::new)).collect::<Result<_>>()?;
    let of = |world: usize| &states[WORLDS.iter().position(|&other| other == world).expect("one of them")];
    for world in WORLDS {
        let lens = of(world).iter().map(|state| Ok(serde_json::to_string(state)?.len() as f64));
        let lens: Vec<f64> = lens.collect::<Result<_>>()?;
        push(recorder, "state of one rank", size, world, Unit::Bytes, lens[0]);
        push(recorder, "states of all ranks", size, world, Unit::Bytes, lens.iter().sum());
    }
    compare(recorder, "merging all states", size, Unit::Millis, |world| {
        let states = of(world).clone();
        Ok(Box::new(move || {
            let start = Instant::now();
            black_box(State::merge(states.iter())?);
            Ok(Pass::since(start, 1.0))
        }))
    })?;
    for order in [Order::Sequential, Order::Cipher, Order::ShardShuffle] {
        compare(recorder, &format!("resuming, {}", order.name()), size, Unit::Millis, |world| {
            resume(order, size, world)
        })?;
    }
    Ok(())
}

/// Measures a new loader with 3/4 of the number of ranks (2 instead of 1), from loading the state
/// of the middle of a pass to the first batch.
fn resume(order: Order, size: usize, world: usize) -> Result<Contender> {
    let share = size.div_ceil(world);
    let half = share.div_ceil(BATCH) / 2;
    let mut state = serde_json::to_value(order.loader(size, world)?.state())?;
    state["batches"] = half.into();
    let state: State = serde_json::from_value(state)?;
    let world_after = if world == 1 { 2 } else { world / 4 * 3 };
    let rank = world_after / 2;
    Ok(Box::new(move || {
        let mut loader = order.loader(size, world_after)?;
        let start = Instant::now();
        loader.load_state(&state)?;
        let (first, _) = begin(&mut loader)?;
        let seconds = start.elapsed().as_secs_f64();
        if order == Order::Sequential {
            let expected = (half * BATCH * world + rank) as i64;
            ensure!(first[0] == expected, "the pass continues with sample {}, not {expected}", first[0]);
        }
        Ok(Pass { batches: 1.0, seconds })
    }))
}

/// Counts the shards that one rank opens in a pass.
fn shards(recorder: &mut Recorder) -> Result<()> {
    let size = SIZES[0];
    for (shards, name) in SHARDS {
        for world in WORLDS {
            let case = format!("shards that a rank opens of {name}");
            let opened = opened(size, shards, world)?;
            push(recorder, &format!("{case}, by index"), size, world, Unit::Count, opened as f64);
            let shares = (0..world).map(|rank| Ok(Ranks::new(rank, world)?.share(shards, None).len()));
            let shares: Vec<usize> = shares.collect::<Result<_>>()?;
            let most = shares.iter().max().copied().unwrap_or(0);
            push(recorder, &format!("{case}, as a stream"), size, world, Unit::Count, most as f64);
            let idle = shares.iter().filter(|&&share| share == 0).count();
            if idle > 0 {
                let case = format!("ranks without any of {name}, as a stream");
                push(recorder, &case, size, world, Unit::Count, idle as f64);
            }
        }
    }
    Ok(())
}

/// Counts the shards that contain samples of one rank. If looking up all samples would take too
/// long, only some are looked up; their shards must then be all shards.
fn opened(size: usize, shards: usize, world: usize) -> Result<usize> {
    let sampler = shard_shuffle(size, shards)?;
    let mut share = slotline::sampler::Order::default();
    let mut generator = slotline::rng::Generator::from_seed(42);
    DistributedSampler::over(sampler, world, world / 2)?.order(&mut generator, &mut share)?;
    let (step, mut seen, mut count) = (share.len().div_ceil(LOOKUPS), vec![false; shards], 0);
    for position in (0..share.len()).step_by(step) {
        count += usize::from(!std::mem::replace(&mut seen[share.index(position) / (size / shards)], true));
    }
    if step > 1 && count < shards {
        bail!("{count} of {shards} shards were found by looking up some samples; look up more");
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_opens_as_many_shards_as_its_samples_are_in() {
        // All samples are looked up: there are 1,000 shards of 1,000 samples, and each rank has 100
        // samples.
        let opened = opened(1_000_000, 1_000, 10_000).unwrap();
        assert!((80..=100).contains(&opened), "{opened}");
        assert_eq!(super::opened(100_000_000, 1_000, 8).unwrap(), 1_000, "only some samples are looked up");
    }

    #[test]
    fn a_rank_begins_and_resumes_passes_of_any_size() {
        for size in SIZES {
            for order in [Order::Sequential, Order::Cipher, Order::ShardShuffle] {
                for world in WORLDS {
                    assert!(first_batch(order, size, world).unwrap()().unwrap().seconds > 0.0);
                    assert!(resume(order, size, world).unwrap()().unwrap().seconds > 0.0);
                    let pass = next_batches(order, size, world, 3).unwrap()().unwrap();
                    assert_eq!(pass.batches, 3.0);
                }
            }
        }
    }
}
