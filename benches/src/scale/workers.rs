//! The cost depending on the number of workers, up to far more than there are cores.

use anyhow::Result;

use crate::record::Unit;
use crate::rounds::{Heat, Recorder};
use crate::workload::{empty_items, small_images};

/// The maximum number of workers.
const MAX: usize = 8;

/// Runs the heats of this section: `empty-items` and `small-images` with slotline and the peers written in Rust.
pub fn run(recorder: &mut Recorder) -> Result<()> {
    for (case, entries) in
        [("empty-items", empty_items::entries as fn(usize) -> _), ("small-images", small_images::entries)]
    {
        for workers in 0..=MAX {
            let heat = Heat { case: case.into(), workers, unit: Unit::MicrosPerBatch, entries: entries(workers) };
            recorder.heat(heat);
        }
    }
    Ok(())
}
