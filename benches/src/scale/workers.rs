//! The cost depending on the number of workers, up to far more than there are cores.

use anyhow::Result;

use crate::record::Unit;
use crate::rounds::{Heat, Recorder};
use crate::workload::{w1, w2};

/// The maximum number of workers.
const MAX: usize = 8;

/// Runs the heats of this section: W1 and W2 with slotline and the peers written in Rust.
///
/// # Errors
///
/// Never returns an error.
pub fn run(recorder: &mut Recorder) -> Result<()> {
    for (case, entries) in [("w1", w1::entries as fn(usize) -> _), ("w2", w2::entries)] {
        for workers in 0..=MAX {
            let heat = Heat { case: case.into(), workers, unit: Unit::MicrosPerBatch, entries: entries(workers) };
            recorder.heat(heat);
        }
    }
    Ok(())
}
