//! `slow-samples`: slow samples among fast ones: of 200 samples, every sixteenth sleeps for 50 ms and the others for 1 ms.

use std::time::Duration;

use anyhow::Result;
use slotline::Loader;
use slotline::dataset::from_fn;

use super::empty_items::{Numbers, sum_below};
use super::{Order, Plan, Setup, Source};
use crate::peer::{external, ours, rust_peers};
use crate::record::Unit;
use crate::rounds::{Contender, Heat, Recorder};

const COUNT: usize = 200;

/// Numbers that are returned after a sleep.
#[derive(Clone, Copy, Debug)]
pub struct Sleepy;

const NUMBERS: Numbers = Numbers { count: COUNT };

impl Source for Sleepy {
    type Item = i64;
    type Batch = Vec<i64>;

    fn len(&self) -> usize {
        COUNT
    }

    fn get(&self, index: usize) -> i64 {
        std::thread::sleep(Duration::from_millis(if index.is_multiple_of(16) { 50 } else { 1 }));
        index as i64
    }

    fn collate(&self, items: impl ExactSizeIterator<Item = i64>) -> Vec<i64> {
        items.collect()
    }

    fn check(batch: &Vec<i64>) -> u64 {
        Numbers::check(batch)
    }

    fn verify(&self, batch: &Vec<i64>) -> Result<()> {
        NUMBERS.verify(batch)
    }

    fn total(&self) -> u64 {
        sum_below(COUNT as u64)
    }
}

/// Runs the heats of this workload.
pub fn run(setup: &Setup, recorder: &mut Recorder) -> Result<()> {
    let two = Plan::new(8, 2);
    let cases = [
        ("batches of 8", "slow-samples-8", two),
        ("batches of 8", "slow-samples-8", Plan::new(8, 0)),
        ("batches of 8", "slow-samples-8", Plan::new(8, 1)),
        ("batches of 1", "slow-samples-1", Plan { batch_size: 1, ..two }),
        ("batches of 1, prefetch 16", "slow-samples-1-prefetch-16", Plan { batch_size: 1, prefetch: Some(16), ..two }),
        ("batches of 8, as they arrive", "slow-samples-8-arrival", Plan { order: Order::Arrival, ..two }),
        (
            "batches of 1, as they arrive",
            "slow-samples-1-arrival",
            Plan { batch_size: 1, order: Order::Arrival, ..two },
        ),
    ];
    for (case, name, plan) in cases {
        let workers = plan.workers;
        let mut entries = vec![ours::entry(loader(&plan, None))];
        // By default, the loop's thread helps only if batches are delivered in order.
        match plan.order {
            _ if workers == 0 => {}
            Order::In => entries.push(ours::variant("workers alone", loader(&plan, Some(false)))),
            Order::Arrival => entries.push(ours::variant("the loop helps", loader(&plan, Some(true)))),
        }
        entries.extend(rust_peers(&Sleepy, &plan));
        entries
            .extend(external::entries(setup, name, workers, |batches| (batches as f64, Some(sum_below(COUNT as u64)))));
        recorder.heat(Heat { case: case.into(), workers, unit: Unit::MillisPerPass, entries });
    }
    Ok(())
}

fn loader(plan: &Plan, help: Option<bool>) -> Result<impl Contender + 'static> {
    let mut builder = Loader::builder(from_fn(COUNT, |index, _| Ok(Sleepy.get(index))))
        .batch_size(plan.batch_size)
        .num_workers(plan.workers)
        .in_order(plan.order == Order::In);
    if let Some(prefetch) = plan.prefetch {
        builder = builder.prefetch_factor(prefetch);
    }
    if let Some(help) = help {
        builder = builder.help(help);
    }
    ours::contender(
        builder.build()?,
        (plan.batches(COUNT), Sleepy.total()),
        |batch| batch.tensors().as_slice().iter().sum::<i64>() as u64,
        |batch| NUMBERS.verify(&batch.tensors().as_slice().to_vec()),
    )
}
