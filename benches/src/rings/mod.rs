//! The rings compared with other rings: the cost of passing a `u64` from one thread to another.
//!
//! Every peer is used in the fastest way that its documentation describes (chunks, batches, polling). All are pinned to the
//! same two cores and spin while they wait: slotline's ring waits itself, and the others spin in a loop around their `try_`
//! methods (blocking in the channels was measured and is not faster). Peers are visited in turn, round after round, since
//! machines drift. The value of every item is checked.

mod bursts;
mod one_by_one;
mod ordered;
mod round_trip;
pub(crate) mod threads;

use std::time::Duration;

/// The capacity of the rings in all benchmarks.
const CAPACITY: usize = 1024;

/// Sends a number of items and returns how long it took.
type Peer = fn(u64) -> Duration;

/// A benchmark and its contenders.
#[derive(Debug)]
pub struct Bench {
    /// The name in the report.
    pub name: &'static str,
    /// The number of items for a run of a few milliseconds.
    items: u64,
    peers: &'static [(&'static str, Peer)],
}

/// All benchmarks.
pub const BENCHES: [&Bench; 5] =
    [&one_by_one::BENCH, &bursts::BENCH, &round_trip::BENCH, &ordered::BENCH, &ordered::RUNS];

/// One run of one peer.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// The name of the benchmark.
    pub bench: &'static str,
    /// The name of the peer.
    pub peer: &'static str,
    /// Nanoseconds per item.
    pub ns: f64,
}

/// Runs the benchmarks and peers for which `wanted` returns true, in `rounds` rounds after a warm-up round.
///
/// Measures nothing on a machine with fewer than two cores.
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
