//! The outcomes that a single thread has, with which the outcomes of a loader are compared.

use std::sync::Arc;

use crate::caller::{Made, Outcome};
use crate::dataset::{Fault, Rows, Words};
use crate::explore::planned_panic;
use crate::plain::{Plain, Seeds, in_turn, share};
use crate::scenario::{Kind, Scenario};

/// A batch made by a collate function.
pub(crate) struct Collated {
    pub(crate) samples: Vec<Words>,
    pub(crate) _life: Arc<()>,
}

impl Made for Collated {
    fn number(&self) -> Option<usize> {
        None
    }

    fn samples(&self) -> Vec<Words> {
        self.samples.clone()
    }

    fn places(&self) -> Vec<usize> {
        Vec::new()
    }
}

impl Collated {
    /// Makes a batch. Fails if `fault` is for the batch that begins with its first sample.
    pub(crate) fn new(
        samples: Vec<Words>,
        fault: Option<(usize, Fault)>,
        life: &Arc<()>,
    ) -> Result<Self, slotline::BoxError> {
        match fault {
            Some((index, fault)) if samples.first().is_some_and(|sample| sample[0] == index as u64) => {
                if fault == Fault::Panic { planned_panic() } else { Err("bad batch".into()) }
            }
            _ => Ok(Self { samples, _life: life.clone() }),
        }
    }
}

/// Runs `$body` with `$build`, a function that builds a loader of the scenario's kind.
macro_rules! with_builder {
    ($scenario:expr, $items:expr, $part:expr, $life:expr, |$build:ident| $body:expr) => {{
        use slotline::Loader;

        use crate::dataset::Stream;
        use crate::reference::Collated;

        let (items, part, life) = ($items, $part, &$life);
        let stream = || Stream { items: items.clone(), part: part.clone() };
        macro_rules! collate {
            ($builder:expr, $fault:expr) => {{
                let (life, fault) = (life.clone(), $fault);
                $builder.collate(move |samples| {
                    let mut all = Vec::new();
                    while let Some(sample) = samples.next() {
                        all.push(sample?.words);
                    }
                    Collated::new(all, fault, &life)
                })
            }};
        }
        macro_rules! run {
            ($builder:expr) => {{
                let $build = |scenario: &Scenario| scenario.set($builder).build().expect("the options are compatible");
                $body
            }};
        }
        match ($scenario.kind, $scenario.collates) {
            (Kind::Shared, None) => run!(Loader::builder(items.clone())),
            (Kind::Shared, Some(fault)) => run!(collate!(Loader::builder(items.clone()), fault)),
            (Kind::RoundRobin, None) => run!(Loader::builder(items.clone()).round_robin(true)),
            (Kind::RoundRobin, Some(fault)) => {
                run!(collate!(Loader::builder(items.clone()).round_robin(true), fault))
            }
            (Kind::Iterable, None) => run!(Loader::iterable(stream())),
            (Kind::Iterable, Some(fault)) => run!(collate!(Loader::iterable(stream()), fault)),
        }
    }};
}
pub(crate) use with_builder;

/// The expected outcomes of all passes.
pub(crate) struct Reference(Vec<Vec<Outcome>>);

impl Reference {
    /// Computes the outcomes with a loader without workers. For an iterable dataset, there is one
    /// such loader for each worker's share.
    pub(crate) fn of(scenario: &Scenario, life: &Arc<()>) -> Self {
        let mut alone = scenario.sequential();
        let mut plain = Plain::new(scenario.seed, scenario.persistent);
        let seeds: Vec<Seeds> = (0..scenario.caller.passes).map(|_| plain.pass()).collect();
        if scenario.kind != Kind::Iterable {
            alone.kind = Kind::Shared;
            let mut passes = passes(&alone, None, life);
            if scenario.persistent {
                passes.iter_mut().zip(seeds).for_each(|(pass, seeds)| redraw(pass, seeds));
            }
            return Self(passes);
        }
        let failing = scenario.failing();
        let lanes: Vec<Vec<_>> = (0..scenario.workers.max(1))
            .map(|worker| {
                if failing.contains(&worker) {
                    return vec![Vec::new(); seeds.len()];
                }
                let part = (scenario.workers > 0).then(|| share(worker, scenario.workers, scenario.faults.len()));
                let mut lane = passes(&alone, part, life);
                for (pass, seeds) in lane.iter_mut().zip(&seeds) {
                    redraw(pass, seeds.of_worker(worker));
                }
                lane
            })
            .collect();
        let pass = |epoch: usize| {
            let mut pass = in_turn(lanes.iter().map(|lane| lane[epoch].iter().cloned()));
            pass.iter_mut().enumerate().for_each(|(number, outcome)| renumber(outcome, number));
            pass
        };
        Self((0..seeds.len()).map(pass).collect())
    }

    /// Compares the outcomes of a pass with the expected ones. If `all` is false, the pass may have
    /// ended early.
    pub(crate) fn check(&self, epoch: u32, outcomes: &[Outcome], all: bool, scenario: &Scenario) {
        let mut expected = self.0[epoch as usize].clone();
        let mut outcomes = outcomes.to_vec();
        let failing = scenario.failing().len();
        let helps = scenario.help == Some(true) && !scenario.timeout;
        if failing > 0 && failing == scenario.workers && !helps {
            expected.clear();
        }
        if !scenario.in_order {
            if scenario.kind == Kind::Iterable {
                // Batches of an iterable dataset are numbered as they are delivered.
                outcomes.iter_mut().chain(&mut expected).for_each(|outcome| renumber(outcome, 0));
            }
            outcomes.sort();
            expected.sort();
            let mut left = expected.iter();
            assert!(
                outcomes.iter().all(|outcome| left.any(|left| left == outcome)),
                "each once: {outcomes:?} of {expected:?}"
            );
        } else {
            assert!(expected.starts_with(&outcomes), "in order: {outcomes:?} of {expected:?}");
        }
        assert!(!all || outcomes.len() == expected.len(), "all of them: {outcomes:?} of {expected:?}");
    }
}

/// Returns the outcomes of all passes of a loader without workers, which runs each to its end.
fn passes(alone: &Scenario, part: Option<std::ops::Range<usize>>, life: &Arc<()>) -> Vec<Vec<Outcome>> {
    let items = alone.items(&Rows::default(), life);
    with_builder!(alone, items, part, *life, |build| {
        let mut loader = build(alone);
        let mut pass = |_| loader.epoch().expect("a pass").map(Outcome::new).collect();
        (0..alone.caller.passes).map(&mut pass).collect()
    })
}

/// Replaces the random numbers in a pass by those of the given seeds.
fn redraw(pass: &mut [Outcome], seeds: Seeds) {
    for outcome in pass {
        let Outcome::Batch(_, samples) = outcome else { continue };
        for [_, _, position, word] in samples {
            *word = seeds.word(*position as usize);
        }
    }
}

fn renumber(outcome: &mut Outcome, to: usize) {
    match outcome {
        Outcome::Batch(number, _) => *number = number.map(|_| to),
        Outcome::Failed(_, [number, ..]) => *number = to,
    }
}
