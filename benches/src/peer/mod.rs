//! The contenders of the comparison.

pub mod channel;
pub mod dataloader_rs;
pub mod external;
#[cfg(feature = "sources")]
pub mod files;
pub mod find;
pub mod limits;
pub mod ours;

use std::time::Instant;

use anyhow::{Result, ensure};

use crate::record::Kind;
use crate::rounds::{Contender, Entry, Pass};
use crate::workload::{Plan, Source};

/// Returns entries for the peers that are linked into this program.
pub fn rust_peers<S: Source>(source: &S, plan: &Plan) -> Vec<Entry> {
    let mut entries = Vec::new();
    // dataloader-rs only delivers batches in order.
    if plan.in_order {
        entries.push(Entry::new("dataloader-rs", Kind::Peer, dataloader_rs::contender(source, plan)));
    }
    let queues = if plan.workers == 0 { &channel::QUEUES[..1] } else { &channel::QUEUES };
    for &queue in queues {
        let name = if plan.workers == 0 { "channel loop" } else { queue.name() };
        entries.push(Entry::new(name, Kind::Peer, channel::contender(source, plan, queue)));
    }
    entries
}

/// Creates a contender from a function that runs a pass and calls its argument with each batch. In
/// the first pass every byte is checked, and in the others only checksums.
fn checked<S, P>(source: &S, plan: &Plan, mut pass: P) -> Result<Contender>
where
    S: Source,
    P: FnMut(&mut dyn FnMut(S::Batch) -> Result<()>) -> Result<()> + 'static,
{
    let (source, total, batches) = (source.clone(), source.total(), plan.batches(source.len()));
    let mut is_first = true;
    let mut run = move || {
        let mut sum = 0_u64;
        let start = Instant::now();
        pass(&mut |batch| {
            sum += source.check(&batch);
            if is_first { source.verify(&batch) } else { Ok(()) }
        })?;
        let pass = Pass::since(start, batches);
        ensure!(sum == total, "the check sum is {sum}, not {total}");
        is_first = false;
        Ok(pass)
    };
    run()?;
    Ok(Box::new(run))
}

/// Returns the order of a pass.
fn order(samples: usize, shuffle: bool, rng: &mut fastrand::Rng) -> Vec<usize> {
    let mut order: Vec<usize> = (0..samples).collect();
    if shuffle {
        rng.shuffle(&mut order);
    }
    order
}
