//! Measures how long it takes to page-lock memory and to free it.

use std::time::Instant;

use anyhow::Result;
use serde::Serialize;

use super::copy::KINDS;
use crate::bench::Bench;
use crate::spread::Spread;

/// The times for one kind of memory, in seconds per 2³⁰ bytes.
#[derive(Debug, Serialize)]
pub(crate) struct Lock {
    pub(crate) memory: &'static str,
    /// The number of bytes that were locked at once.
    pub(crate) bytes: usize,
    pub(crate) lock_s_per_gib: Spread,
    pub(crate) free_s_per_gib: Spread,
}

pub(crate) fn run(bench: &Bench) -> Result<Vec<Lock>> {
    let bytes = bench.scale.locked;
    let mut times = KINDS.map(|(name, lock)| (name, lock, Vec::new(), Vec::new()));
    for _ in 0..bench.scale.rounds.min(5) {
        for (_, lock, locking, freeing) in &mut times {
            let begin = Instant::now();
            let memory = lock(&bench.gpu.device, bytes)?;
            let locked = Instant::now();
            drop(memory);
            locking.push((locked - begin).as_secs_f64());
            freeing.push(locked.elapsed().as_secs_f64());
        }
    }
    let gib = bytes as f64 / (1_u64 << 30) as f64;
    let spread =
        |times: Vec<f64>| Spread::of(times.into_iter().map(|time| time / gib)).expect("there is at least one round");
    let figure = |(memory, _, locking, freeing)| Lock {
        memory,
        bytes,
        lock_s_per_gib: spread(locking),
        free_s_per_gib: spread(freeing),
    };
    Ok(times.map(figure).into())
}
