//! The rings beside their peers: what it costs to get a `u64` from one thread to another one.
//!
//! Every peer is used in the best way that its documentation knows (chunks, batches, polling), and all are pinned to
//! the same two cores and spin while they wait: slotline's ring by itself, those that have no way to wait in a loop
//! round their `try_` forms (channels' own ways of blocking were measured and are no better). Peers are visited in turn,
//! round after round, since machines drift; every item's value is checked.

mod bursts;
mod one_by_one;
mod ordered;
mod round_trip;
mod threads;

use std::time::Duration;

/// How many items a ring holds, in all benches.
const CAPACITY: usize = 1024;

/// Sends so many items and says how long that took.
type Peer = fn(u64) -> Duration;

/// One thing to be measured, and who does it.
#[derive(Debug)]
pub struct Bench {
    /// What is measured, as in the report.
    pub name: &'static str,
    /// How many items make a run of a few milliseconds.
    items: u64,
    peers: &'static [(&'static str, Peer)],
}

/// All benches.
pub const BENCHES: [&Bench; 5] =
    [&one_by_one::BENCH, &bursts::BENCH, &round_trip::BENCH, &ordered::BENCH, &ordered::RUNS];

/// One run of one peer.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// The bench's name.
    pub bench: &'static str,
    /// The peer's name.
    pub peer: &'static str,
    /// Nanoseconds per item.
    pub ns: f64,
}

/// Runs those benches and peers that `wanted` says yes to, `rounds` times in turn after one that doesn't count.
///
/// Nothing is measured on a machine with fewer than two cores.
pub fn visit(rounds: usize, wanted: impl Fn(&str, &str) -> bool, mut record: impl FnMut(Run)) {
    if threads::cores() < 2 {
        return;
    }
    for bench in BENCHES {
        for round in 0..=rounds {
            for &(peer, run) in bench.peers.iter().filter(|(peer, _)| wanted(bench.name, peer)) {
                let time = run(bench.items);
                if round > 0 {
                    let ns = time.as_nanos() as f64 / bench.items as f64;
                    record(Run { bench: bench.name, peer, ns });
                }
            }
        }
    }
}
