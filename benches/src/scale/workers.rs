//! Cost against the number of workers, far more than there are cores.

use anyhow::Result;

use crate::record::Unit;
use crate::rounds::{Heat, Recorder};
use crate::workload::{w1, w2};

/// The most workers.
const MOST: usize = 8;

/// Its heats: W1 and W2 with slotline and the peers written in Rust.
///
/// # Errors
///
/// None.
pub fn run(recorder: &mut Recorder) -> Result<()> {
    for (case, entries) in [("w1", w1::entries as fn(usize) -> _), ("w2", w2::entries)] {
        for workers in 0..=MOST {
            let heat = Heat { case: case.into(), workers, unit: Unit::MicrosPerBatch, entries: entries(workers) };
            recorder.heat(heat);
        }
    }
    Ok(())
}
