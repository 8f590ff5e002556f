//! The contenders.

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
use crate::workload::{Order, Plan, Source};

/// Returns entries for the peers that are linked into this program.
pub fn rust_peers<S: Source>(source: &S, plan: &Plan) -> Vec<Entry> {
    let mut entries = Vec::new();
    // dataloader-rs only delivers batches in order.
    if plan.order == Order::In {
        entries.push(Entry::new("dataloader-rs", Kind::Peer, dataloader_rs::contender(source, plan)).package());
    }
    if plan.workers == 0 {
        entries.push(Entry::new("channel loop", Kind::Peer, channel::loop_contender(source, plan)));
    } else {
        for queue in channel::QUEUES {
            entries.push(Entry::new(queue.name(), Kind::Peer, channel::contender(source, plan, queue)));
        }
    }
    entries
}

/// Makes a contender from a function that runs a pass and calls its argument with each batch. The first pass is checked byte
/// by byte, and the others by sums.
fn checked<S, P>(source: &S, plan: &Plan, mut pass: P) -> Result<impl Contender + use<S, P>>
where
    S: Source,
    P: FnMut(&mut dyn FnMut(S::Batch) -> Result<()>) -> Result<()>,
{
    let (total, batches) = (source.total(), plan.batches(source.len()));
    let mut sum = 0_u64;
    pass(&mut |batch| {
        sum += S::check(&batch);
        source.verify(&batch)
    })?;
    ensure!(sum == total, "the check sum is {sum}, not {total}");
    Ok(move || {
        let mut sum = 0_u64;
        let start = Instant::now();
        pass(&mut |batch| {
            sum += S::check(&batch);
            Ok(())
        })?;
        let seconds = start.elapsed().as_secs_f64();
        ensure!(sum == total, "the check sum is {sum}, not {total}");
        Ok(Pass { batches, seconds })
    })
}

/// Returns the order of a pass.
fn order(samples: usize, shuffle: bool, rng: &mut fastrand::Rng) -> Vec<usize> {
    let mut order: Vec<usize> = (0..samples).collect();
    if shuffle {
        rng.shuffle(&mut order);
    }
    order
}
