//! The rings compared with other rings: the cost of passing a `u64` from one thread to another.
//!
//! Every peer is used in the fastest way that its documentation describes (chunks, batches,
//! polling). The threads of all peers are pinned to the same two cores and spin while they wait.
//! slotline's ring has its own waiting methods; for the others, the benchmark spins in a loop
//! around their `try_` methods. (The blocking methods of the channels are not faster.) Peers are
//! measured in turn, round after round, since the speed of a machine changes over time. The value
//! of every item is checked.

mod bursts;
mod ordered;
mod single;
pub(crate) mod threads;

use std::time::Duration;

use anyhow::{Result, anyhow};

use crate::machine::version_of;
use crate::record::{Kind, Time, Unit};
use crate::rounds::Recorder;
use crate::workload::Setup;

/// The capacity of the rings in all benchmarks.
const CAPACITY: usize = 1024;

/// A function that sends a number of items, and returns how long it took.
type Peer = fn(u64) -> Duration;

/// A benchmark: its name in the report, the number of items for a run of a few milliseconds, and
/// its contenders.
struct Bench {
    name: &'static str,
    items: u64,
    peers: &'static [(&'static str, Peer)],
}

const BENCHES: [Bench; 5] =
    [single::ONE_BY_ONE, bursts::BENCH, single::ROUND_TRIP, ordered::ONE_BY_ONE, ordered::IN_RUNS];

/// Measures the rings, in rounds after a warm-up round.
pub fn run(_: &Setup, to: &mut Recorder) -> Result<()> {
    if threads::cores() < 2 {
        let why = anyhow!("rings are measured on two cores, and this process has fewer");
        to.absent("", None, "slotline", &why);
        return Ok(());
    }
    for Bench { name, items, peers } in BENCHES {
        let mut values = vec![Vec::new(); peers.len()];
        for round in 0..=to.rounds() {
            for ((_, run), values) in peers.iter().zip(&mut values) {
                let time = run(items);
                if round > 0 {
                    values.push(Unit::NanosPerItem.value(items as f64, time.as_secs_f64()));
                }
            }
        }
        for (&(peer, _), values) in peers.iter().zip(values) {
            let (kind, package) = match peer {
                "slotline" => (Kind::Ours, peer),
                "raw atomics" => (Kind::Limit, peer),
                "crossbeam ArrayQueue" => (Kind::Peer, "crossbeam-queue"),
                "crossbeam channel" => (Kind::Peer, "crossbeam-channel"),
                _ => (Kind::Peer, peer),
            };
            let time = Time::new(name, peer, kind, Unit::NanosPerItem, values);
            to.time(Time { version: version_of(package), ..time });
        }
    }
    Ok(())
}
