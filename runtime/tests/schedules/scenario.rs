//! The options of a loader and the actions of its caller, drawn from shuttle's random numbers, so
//! that a schedule determines them, too.

use std::sync::Arc;
use std::time::Duration;

use shuttle::rand::{Rng, thread_rng};
use slotline::dataset::Loadable;
use slotline::loader::{Budget, Builder, OnError, OnHeld};
use slotline::{BoxError, WaitStrategy};

use crate::dataset::{Fault, Items, Rows, step};
use crate::explore::planned_panic;

/// Returns true once in `n` calls on average.
pub(crate) fn one_in(n: u32) -> bool {
    thread_rng().gen_ratio(1, n)
}

pub(crate) fn below(n: usize) -> usize {
    thread_rng().gen_range(0..n)
}

/// The kind of the loader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Shared,
    RoundRobin,
    Iterable,
}

/// The source of the indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Sequential,
    Shuffled,
    /// A user's iterator, which counts backwards.
    Iterator,
    /// A user's iterator that counts backwards and panics at this index.
    Panics(usize),
}

/// The outcome of `worker_init` in one worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Init {
    Works,
    Fails,
    Panics,
}

/// The actions of the caller on batches and passes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    /// The number of passes.
    pub(crate) passes: u32,
    /// Whether some passes are left before their end.
    pub(crate) leaves: bool,
    /// Whether batches are kept or dropped by other threads.
    pub(crate) keeps: bool,
    /// Whether one batch, and some passes, may be leaked.
    pub(crate) leaks: bool,
    /// The number of steps of another thread after which the loader is stopped; `None` if it is not
    /// stopped.
    pub(crate) stop: Option<usize>,
    /// Whether another loader may resume a pass that was left or stopped.
    pub(crate) resumes: bool,
}

/// A loader, and the actions of its caller.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) kind: Kind,
    pub(crate) faults: Arc<[Fault]>,
    pub(crate) batch_size: usize,
    pub(crate) drop_last: bool,
    pub(crate) order: Order,
    pub(crate) seed: u64,
    pub(crate) on_error: OnError,
    /// `None` if the loader stacks its batches. Otherwise a collate function makes them, which
    /// fails at one batch if the inner value is `Some`: the first index of that batch, and how it
    /// fails.
    pub(crate) collates: Option<Option<(usize, Fault)>>,
    pub(crate) workers: usize,
    pub(crate) prefetch: usize,
    pub(crate) hold: usize,
    pub(crate) part_size: Option<usize>,
    pub(crate) in_order: bool,
    pub(crate) help: Option<bool>,
    pub(crate) wait: WaitStrategy,
    pub(crate) on_held: OnHeld,
    pub(crate) timeout: bool,
    pub(crate) watchdog: bool,
    pub(crate) init: Option<[Init; 3]>,
    pub(crate) persistent: bool,
    pub(crate) worker_panics: bool,
    pub(crate) caller: Caller,
}

/// The events that a test explores: those whose fields are true can occur. The other options of a
/// scenario are drawn at random.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About {
    pub(crate) kind: Kind,
    pub(crate) faults: bool,
    pub(crate) init: bool,
    pub(crate) timeouts: bool,
    pub(crate) leaves: bool,
    pub(crate) keeps: bool,
    pub(crate) stops: bool,
    /// Workers panic in the loader's own code.
    pub(crate) worker_panics: bool,
    /// Batches have several parts and are delivered out of order.
    pub(crate) parts: bool,
}

impl Scenario {
    /// Draws a scenario at random.
    pub(crate) fn draw(about: About) -> Self {
        let kind = about.kind;
        let shared = kind == Kind::Shared;
        let len = below(8);
        let bad = |_| match below(if about.faults { 16 } else { 1 }) {
            12 => Fault::Error,
            13 => Fault::Panic,
            14 => Fault::WriteError,
            15 => Fault::WritePanic,
            _ => Fault::None,
        };
        let workers = if about.init || about.timeouts || about.worker_panics { 1 + below(3) } else { below(4) };
        let in_order = !about.parts && (workers == 0 || !one_in(3));
        let timeout = about.timeouts && workers > 0;
        let order = match below(5) {
            _ if kind == Kind::Iterable || len == 0 => Order::Sequential,
            0 | 1 => Order::Shuffled,
            2 if shared => Order::Iterator,
            3 if shared && about.faults => Order::Panics(below(len)),
            _ => Order::Sequential,
        };
        let budget = Budget::Samples(if in_order && kind != Kind::Iterable && one_in(2) { below(3) } else { 99 });
        let on_error = match below(if about.faults { 4 } else { 1 }) {
            2 => OnError::Skip(budget),
            3 if kind != Kind::Iterable && matches!(order, Order::Sequential | Order::Shuffled) => {
                OnError::Replace(budget)
            }
            _ => OnError::Raise,
        };
        let collates = one_in(4).then(|| {
            let fault = if one_in(2) { Fault::Error } else { Fault::Panic };
            (about.faults && one_in(2)).then(|| (below(len.max(1)), fault))
        });
        let init = (about.init || about.worker_panics && one_in(3)).then(|| {
            [(); 3].map(|()| match below(6) {
                _ if about.worker_panics => Init::Works,
                0 => Init::Fails,
                1 => Init::Panics,
                _ => Init::Works,
            })
        });
        let plain = order == Order::Sequential && on_error == OnError::Raise && kind != Kind::Iterable;
        let persistent = about.init && plain && one_in(2);
        let on_held = [OnHeld::Grow, OnHeld::Grow, OnHeld::Wait, OnHeld::Fail][below(if about.keeps { 4 } else { 1 })];
        let stop = (about.stops && one_in(2)).then(|| below(1 << below(11)));
        Self {
            kind,
            faults: (0..len).map(bad).collect(),
            batch_size: if about.parts { 2 + below(2) } else { 1 + below(3) },
            drop_last: one_in(4),
            order,
            seed: below(1000) as u64,
            on_error,
            collates,
            workers,
            prefetch: 1 + below(2),
            hold: 1 + below(2),
            part_size: (shared && (about.parts || one_in(2))).then(|| if about.parts { 1 } else { 1 + below(2) }),
            in_order,
            help: (shared && one_in(2)).then(|| workers == 0 || one_in(2)),
            wait: [WaitStrategy::Park, WaitStrategy::Park, WaitStrategy::Backoff, WaitStrategy::Spin][below(4)],
            on_held,
            timeout,
            watchdog: one_in(8),
            init,
            persistent,
            worker_panics: about.worker_panics,
            caller: Caller {
                passes: 1 + below(3) as u32,
                leaves: about.leaves,
                keeps: about.keeps,
                leaks: about.keeps && on_held != OnHeld::Wait && one_in(3),
                stop,
                resumes: stop.is_some() || one_in(2),
            },
        }
    }

    /// Returns the dataset.
    pub(crate) fn items(&self, rows: &Rows, life: &Arc<()>) -> Items {
        Items { faults: self.faults.clone(), rows: rows.clone(), _life: life.clone() }
    }

    /// Returns the scenario in which one thread, without workers, makes the same batches.
    pub(crate) fn sequential(&self) -> Self {
        Self {
            workers: 0,
            in_order: true,
            hold: 1,
            part_size: None,
            help: None,
            wait: WaitStrategy::Spin,
            on_held: OnHeld::Grow,
            timeout: false,
            watchdog: false,
            init: None,
            persistent: false,
            worker_panics: false,
            ..self.clone()
        }
    }

    /// Sets the options that all kinds of loaders have.
    pub(crate) fn set<D: Loadable, C>(&self, builder: Builder<D, C>) -> Builder<D, C> {
        let mut builder = builder
            .batch_size(self.batch_size)
            .drop_last(self.drop_last)
            .seed(self.seed)
            .on_error(self.on_error)
            .num_workers(self.workers)
            .hold(self.hold)
            .in_order(self.in_order)
            .wait_strategy(self.wait)
            .on_held(self.on_held)
            .persistent_workers(self.persistent);
        builder = match self.order {
            Order::Sequential => builder,
            Order::Shuffled => builder.shuffle(true),
            Order::Iterator | Order::Panics(_) => {
                let (len, order) = (self.faults.len(), self.order);
                builder.sampler_iter(move || {
                    (0..len).rev().inspect(move |&index| {
                        step();
                        if order == Order::Panics(index) {
                            planned_panic();
                        }
                    })
                })
            }
        };
        if self.workers > 0 {
            builder = builder.prefetch_factor(self.prefetch);
        }
        if let Some(part_size) = self.part_size {
            builder = builder.part_size(part_size);
        }
        if let Some(help) = self.help {
            builder = builder.help(help);
        }
        if self.timeout {
            builder = builder.timeout(Duration::from_micros(2));
        }
        if self.watchdog {
            builder = builder.watchdog(Duration::from_nanos(100));
        }
        if let Some(init) = self.init {
            builder = builder.worker_init(move |worker| run(init[worker.id()]));
        }
        builder
    }

    /// Returns the workers whose `worker_init` fails.
    pub(crate) fn failing(&self) -> Vec<usize> {
        let works = |worker: usize| self.init.is_none_or(|init| init[worker] == Init::Works);
        (0..self.workers).filter(|&worker| !works(worker)).collect()
    }
}

fn run(init: Init) -> Result<(), BoxError> {
    step();
    match init {
        Init::Works => Ok(()),
        Init::Fails => Err("no".into()),
        Init::Panics => planned_panic(),
    }
}
