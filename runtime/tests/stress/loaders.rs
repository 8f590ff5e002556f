//! Stress tests of whole loaders: every batch must be delivered once, in its place, with the right
//! contents for as long as it is held, and everything must end.

use std::panic::{PanicHookInfo, panic_any};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use slotline::dataset::Dataset;
use slotline::loader::{Affinity, Builder, OnHeld, Pass};
use slotline::{Batch, Error, Loader, WaitStrategy};

use crate::dice::Dice;
use crate::support::{DatasetOf, Item, LONG, OneByOne, Run, items, pixels, plain, prefetch};

pub(crate) static PASSES: AtomicU64 = AtomicU64::new(0);
pub(crate) static BATCHES: AtomicU64 = AtomicU64::new(0);
pub(crate) static ERRORS: AtomicU64 = AtomicU64::new(0);

/// The payload of the panics that a dataset makes on purpose.
struct Planned;

/// Installs a panic hook that does not report planned panics.
pub(crate) fn silence_planned_panics() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic: &PanicHookInfo<'_>| {
        if !panic.payload().is::<Planned>() {
            report(panic);
        }
    }));
}

/// The expected contents of a batch.
#[derive(Clone, Debug)]
struct Want {
    indices: Vec<i64>,
    /// The random numbers of the samples, if they are known.
    words: Option<Vec<u64>>,
}

impl Want {
    fn check<S>(&self, batch: &Batch<S>) {
        let columns = batch.columns();
        let typed = |i: usize| columns.get(i).unwrap();
        let (numbers, bytes, words) = (typed(0), typed(1), typed(2));
        assert_eq!(numbers.typed::<i64>().unwrap().as_slice(), self.indices);
        let pixels: Vec<u8> = self.indices.iter().flat_map(|&index| pixels(index as usize)).flatten().collect();
        assert_eq!(bytes.typed::<u8>().unwrap().as_slice(), pixels);
        assert!(self.words.as_ref().is_none_or(|want| words.typed::<u64>().unwrap().as_slice() == want));
    }
}

/// The kind of the loader.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Shared,
    RoundRobin,
    Stream,
}

/// Returns a dataset whose samples take a random time. Of each `bad` consecutive samples, one fails
/// and one panics. If `bad` is 0, all succeed.
fn samples(len: usize, bad: usize, seed: u64) -> impl Dataset + for<'a> DatasetOf<'a, Item> {
    let calls = AtomicU64::new(seed);
    items(len, move |index, _| {
        Dice::new(calls.fetch_add(1, Relaxed).wrapping_mul(0x9e37_79b9)).pause();
        match index.checked_rem(bad) {
            Some(1) => Err("planned".into()),
            Some(2) => panic_any(Planned),
            _ => Ok(()),
        }
    })
}

/// Returns the batches that each of `passes` passes must deliver.
fn wanted(run: &Run, kind: Kind, workers: usize, passes: u32) -> Vec<Vec<Want>> {
    if kind != Kind::Stream {
        let want = |got: crate::support::Delivered| Want { indices: got.indices, words: Some(got.words) };
        return run.expected(passes).into_iter().map(|pass| pass.into_iter().map(want).collect()).collect();
    }
    let batches = |worker| {
        let share: Vec<_> = plain::share(worker, workers, run.len).map(|index| index as i64).collect();
        plain::batches(&share, run.batch_size, run.drop_last)
    };
    let pass = plain::in_turn((0..workers.max(1)).map(batches));
    let pass: Vec<_> = pass.into_iter().map(|indices| Want { indices, words: None }).collect();
    vec![pass; passes as usize]
}

/// A batch with its expected contents, which it must have for as long as it is held.
type Held<S> = (Batch<S>, Want);

fn check_and_drop<S>((batch, want): Held<S>) {
    want.check(&batch);
}

/// Drops batches on another thread, after a delay and in another order.
fn drop_late<S>(held: &Receiver<Held<S>>, dice: &mut Dice) {
    let mut own = Vec::new();
    loop {
        match held.recv_timeout(Duration::from_micros(200)) {
            Ok(held) => own.push(held),
            // No batch has come for a while: the loader may be waiting for the slots of these
            // batches.
            Err(RecvTimeoutError::Timeout) => own.drain(..).for_each(check_and_drop),
            Err(RecvTimeoutError::Disconnected) => return own.drain(..).for_each(check_and_drop),
        }
        dice.pause();
        while own.len() > dice.below(4) {
            check_and_drop(own.swap_remove(dice.below(own.len())));
        }
    }
}

/// The parameters of a round of the test.
struct Plan {
    kind: Kind,
    run: Run,
    workers: usize,
    bad: usize,
    hold: usize,
    in_order: bool,
    want: Vec<Vec<Want>>,
}

impl Plan {
    fn new(dice: &mut Dice) -> Self {
        let kind = [Kind::Shared, Kind::Shared, Kind::Shared, Kind::RoundRobin, Kind::Stream][dice.below(5)];
        let run = Run {
            len: dice.from(1, 60),
            batch_size: dice.from(1, 7),
            drop_last: dice.once_in(4),
            shuffle: kind != Kind::Stream && dice.once_in(2),
            seed: dice.word(),
        };
        let (workers, hold, in_order) = (dice.below(7), dice.from(1, 3), dice.below(3) > 0);
        let bad = if kind == Kind::Stream || dice.once_in(2) { 0 } else { dice.from(3, 40) };
        let want = wanted(&run, kind, workers, dice.from(1, 6) as u32);
        Self { kind, run, workers, bad, hold, in_order, want }
    }

    fn options<D>(&self, builder: Builder<D>, dice: &mut Dice) -> Builder<D> {
        let Run { batch_size, drop_last, shuffle, seed, .. } = self.run;
        let builder = builder.batch_size(batch_size).drop_last(drop_last).shuffle(shuffle).seed(seed);
        let mut builder = builder.hold(self.hold).in_order(self.in_order).on_held(OnHeld::Wait);
        let affinity = [Affinity::Off, Affinity::Spread, Affinity::Cores(vec![0])][dice.below(3)].clone();
        builder = prefetch(builder, self.workers, dice.from(1, 4)).affinity(affinity);
        builder = builder.wait_strategy([WaitStrategy::Park, WaitStrategy::Park, WaitStrategy::Backoff][dice.below(3)]);
        if self.workers > 0 && dice.once_in(3) {
            builder = builder.timeout(LONG);
        }
        if self.kind == Kind::Shared && dice.once_in(2) {
            builder = builder.part_size(dice.from(1, 4));
        }
        if self.kind == Kind::Shared && dice.once_in(2) {
            builder = builder.help(dice.once_in(2));
        }
        if dice.once_in(4) {
            let seeds = AtomicU64::new(dice.word());
            // Workers that are started again change what later passes draw.
            let persistent = self.workers > 0 && self.want.len() == 1;
            builder = builder.persistent_workers(persistent).worker_init(move |_| {
                Dice::new(seeds.fetch_add(1, Relaxed)).pause();
                Ok(())
            });
        }
        if dice.once_in(6) { builder.watchdog(Duration::from_millis(1)) } else { builder }
    }

    /// Returns the expected number of a batch in its pass.
    fn number<S>(&self, batch: &Batch<S>, want: &[Want]) -> usize {
        if self.kind == Kind::Stream && !self.in_order {
            // Such batches are numbered as they are delivered, so the number is determined from
            // their contents.
            let numbers = batch.columns().get(0).unwrap();
            let numbers = numbers.typed::<i64>().unwrap();
            return want.iter().position(|want| want.indices == numbers.as_slice()).expect("a batch of this pass");
        }
        batch.batch_index()
    }

    fn is_bad(&self, index: i64) -> bool {
        matches!((index as usize).checked_rem(self.bad), Some(1 | 2))
    }
}

pub(crate) fn round(mut dice: Dice) {
    let plan = Plan::new(&mut dice);
    let dataset = samples(plan.run.len, plan.bad, dice.word());
    match plan.kind {
        Kind::Shared => {
            let builder = plan.options(Loader::builder(dataset), &mut dice);
            passes(builder.build().unwrap(), &plan, dice);
        }
        Kind::RoundRobin => {
            let builder = plan.options(Loader::builder(dataset), &mut dice);
            passes(builder.round_robin(true).build().unwrap(), &plan, dice);
        }
        Kind::Stream => {
            let builder = plan.options(Loader::iterable(OneByOne(dataset)), &mut dice);
            passes(builder.build().unwrap(), &plan, dice);
        }
    }
}

/// Runs passes in sequence. Some are whole, some are left early, and some are stopped.
fn passes<S>(mut loader: Loader<Batch<S>>, plan: &Plan, mut dice: Dice) {
    let (late, held) = channel();
    let stopped = AtomicBool::new(false);
    thread::scope(|scope| {
        let mut own = dice.fork();
        scope.spawn(move || drop_late(&held, &mut own));
        let (stopper, stops) = (loader.stopper(), dice.once_in(6));
        for (epoch, want) in plan.want.iter().enumerate() {
            if stops && epoch + 1 == plan.want.len() {
                let (stopper, stopped, mut own) = (stopper.clone(), &stopped, dice.fork());
                scope.spawn(move || {
                    (0..own.below(30)).for_each(|_| own.pause());
                    stopped.store(true, SeqCst);
                    stopper.stop();
                });
            }
            PASSES.fetch_add(1, Relaxed);
            let pass = match loader.epoch() {
                Err(Error::Stopped) if stopped.load(SeqCst) => return,
                pass => pass.unwrap(),
            };
            let leave = dice.once_in(3).then(|| dice.below(want.len() + 1));
            let rest = take(pass, plan, (epoch as u32, want), leave, &late, &stopped, &mut dice);
            // Drop or leak the rest of the pass.
            if dice.once_in(2) {
                drop(rest)
            } else {
                std::mem::forget(rest)
            }
            if stopped.load(SeqCst) {
                break;
            }
        }
        // Batches can outlive the loader.
        drop(loader);
        drop(late);
    });
}

/// Takes the batches of a pass, up to `leave` of them, and returns the pass.
fn take<'l, S>(
    mut pass: Pass<'l, Batch<S>>,
    plan: &Plan,
    (epoch, want): (u32, &[Want]),
    leave: Option<usize>,
    late: &Sender<Held<S>>,
    stopped: &AtomicBool,
    dice: &mut Dice,
) -> Pass<'l, Batch<S>> {
    let (mut held, mut seen, mut count) = (std::collections::VecDeque::new(), vec![false; want.len()], 0);
    while leave != Some(count) {
        let task = match pass.next() {
            Some(Ok(batch)) => {
                let task = plan.number(&batch, want);
                want[task].check(&batch);
                assert_eq!(batch.epoch(), epoch);
                assert!(!want[task].indices.iter().any(|&index| plan.is_bad(index)), "batch {task} should have failed");
                held.push_back((count, (batch, want[task].clone())));
                BATCHES.fetch_add(1, Relaxed);
                task
            }
            Some(Err(Error::Sample { index, task, .. } | Error::Panic { index, task, .. })) => {
                assert!(
                    want[task].indices.contains(&(index as i64)) && plan.is_bad(index as i64),
                    "sample {index} of batch {task} should not have failed"
                );
                ERRORS.fetch_add(1, Relaxed);
                task
            }
            Some(Err(Error::Stopped)) if stopped.load(SeqCst) => return pass,
            Some(Err(error)) => panic!("{error}"),
            None => {
                assert!(count == want.len() || stopped.load(SeqCst), "{count} of {} batches came", want.len());
                break;
            }
        };
        assert!(!plan.in_order || task == count, "batch {task} came after {count}");
        assert!(!std::mem::replace(&mut seen[task], true), "batch {task} came twice");
        count += 1;
        // The loader needs the slot of the oldest batch first, so a batch that is older than `hold`
        // batches must be dropped.
        while held.front().is_some_and(|(at, _)| at + plan.hold < count || dice.once_in(3)) {
            let (_, oldest) = held.pop_front().expect("there is one");
            if dice.once_in(2) {
                check_and_drop(oldest);
            } else {
                late.send(oldest).unwrap();
            }
        }
        if dice.once_in(4) {
            dice.pause();
        }
    }
    held.into_iter().for_each(|(_, oldest)| late.send(oldest).unwrap());
    pass
}
