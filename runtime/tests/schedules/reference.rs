//! What one thread does alone, and how that compares.

use std::collections::VecDeque;
use std::sync::Arc;

use slotline::rng::rand_core::Rng;
use slotline::rng::{Generator, SampleRng};

use crate::caller::{Came, Made};
use crate::dataset::{Fault, Rows, Words};
use crate::explore::asked_for;
use crate::scenario::{Kind, Scenario};

/// What a function makes.
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
    /// Makes one, or fails as it was told to.
    pub(crate) fn new(
        samples: Vec<Words>,
        fault: Option<(usize, Fault)>,
        life: &Arc<()>,
    ) -> Result<Self, slotline::BoxError> {
        match fault {
            Some((index, fault)) if samples.first().is_some_and(|sample| sample[0] == index as u64) => {
                if fault == Fault::Panic { asked_for() } else { Err("bad batch".into()) }
            }
            _ => Ok(Self { samples, _life: life.clone() }),
        }
    }
}

/// Runs `$body` with what builds a loader of the scenario's kind.
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
                let $build = |scenario: &Scenario| scenario.set($builder).build().expect("the options go together");
                $body
            }};
        }
        match ($scenario.kind, $scenario.collates) {
            (Kind::Shared, None) => run!(Loader::builder(items.clone())),
            (Kind::Shared, Some(fault)) => run!(collate!(Loader::builder(items.clone()), fault)),
            (Kind::Dealt, None) => run!(Loader::builder(items.clone()).round_robin(true)),
            (Kind::Dealt, Some(fault)) => {
                run!(collate!(Loader::builder(items.clone()).round_robin(true), fault))
            }
            (Kind::Iterable, None) => run!(Loader::iterable(stream())),
            (Kind::Iterable, Some(fault)) => run!(collate!(Loader::iterable(stream()), fault)),
        }
    }};
}
pub(crate) use with_builder;

/// The batches of all passes.
pub(crate) struct Reference(Vec<Vec<Came>>);

impl Reference {
    /// What a loader without workers makes of it, or for each worker of an iterable dataset one that reads its share.
    pub(crate) fn of(scenario: &Scenario, life: &Arc<()>) -> Self {
        let mut alone = scenario.sequential();
        let mut generator = Generator::from_seed(scenario.seed);
        let seeds: Vec<u64> = (0..scenario.caller.passes).map(|_| generator.random_i64() as u64).collect();
        if scenario.kind != Kind::Iterable {
            alone.kind = Kind::Shared;
            let mut passes = passes(&alone, None, life);
            if scenario.persistent {
                passes.iter_mut().for_each(|pass| redraw(pass, seeds[0]));
            }
            return Self(passes);
        }
        let failing = scenario.failing();
        let mut lanes: Vec<_> = (0..scenario.workers.max(1))
            .map(|worker| {
                if failing.contains(&worker) {
                    return vec![VecDeque::new(); seeds.len()];
                }
                let part = (scenario.workers > 0).then(|| share(worker, scenario.workers, scenario.faults.len()));
                let mut lane = passes(&alone, part, life);
                for (pass, seed) in lane.iter_mut().zip(&seeds) {
                    redraw(pass, seed.wrapping_add(worker as u64));
                }
                lane.into_iter().map(VecDeque::from).collect()
            })
            .collect();
        // One of each in turn, as long as it has any.
        let in_turn = |epoch: usize| {
            let mut pass = Vec::new();
            while lanes.iter().any(|lane: &Vec<VecDeque<Came>>| !lane[epoch].is_empty()) {
                pass.extend(lanes.iter_mut().filter_map(|lane| lane[epoch].pop_front()));
            }
            pass.iter_mut().enumerate().for_each(|(number, came)| renumber(came, number));
            pass
        };
        Self((0..seeds.len()).map(in_turn).collect())
    }

    /// Compares what came with it: all of it, or what came so far.
    pub(crate) fn check(&self, epoch: u32, came: &[Came], all: bool, scenario: &Scenario) {
        let mut expected = self.0[epoch as usize].clone();
        let mut came = came.to_vec();
        let failing = scenario.failing().len();
        let helps = scenario.help == Some(true) && !scenario.timeout;
        if failing > 0 && failing == scenario.workers && !helps {
            expected.clear();
        }
        if !scenario.in_order {
            if scenario.kind == Kind::Iterable {
                // They are counted as they come.
                came.iter_mut().chain(&mut expected).for_each(|came| renumber(came, 0));
            }
            came.sort();
            expected.sort();
            let mut left = expected.iter();
            assert!(came.iter().all(|came| left.any(|left| left == came)), "each once: {came:?} of {expected:?}");
        } else {
            assert!(expected.starts_with(&came), "in order: {came:?} of {expected:?}");
        }
        assert!(!all || came.len() == expected.len(), "all of them: {came:?} of {expected:?}");
    }
}

/// The range that a worker reads.
fn share(worker: usize, workers: usize, len: usize) -> std::ops::Range<usize> {
    let each = len.div_ceil(workers);
    (each * worker).min(len)..(each * (worker + 1)).min(len)
}

/// The passes of a loader that is never left.
fn passes(alone: &Scenario, part: Option<std::ops::Range<usize>>, life: &Arc<()>) -> Vec<Vec<Came>> {
    let items = alone.items(&Rows::default(), life);
    with_builder!(alone, items, part, *life, |build| {
        let mut loader = build(alone);
        let mut pass = |_| loader.epoch().expect("a pass").map(Came::new).collect();
        (0..alone.caller.passes).map(&mut pass).collect()
    })
}

/// Draws the random numbers anew, from this base seed.
fn redraw(pass: &mut [Came], seed: u64) {
    for came in pass {
        let Came::Batch(_, samples) = came else { continue };
        for [_, epoch, position, word] in samples {
            *word = SampleRng::new(seed, *epoch as u32, *position).next_u64();
        }
    }
}

fn renumber(came: &mut Came, to: usize) {
    match came {
        Came::Batch(number, _) => *number = number.map(|_| to),
        Came::Failed(_, [number, ..]) => *number = to,
    }
}
