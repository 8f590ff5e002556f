//! `large-images`: large images, shuffled: batches of 32 of 2,000 × 3 × 224 × 224 bytes with their labels.

use anyhow::Result;

use super::images::Images;
use super::{Plan, Setup, small_images};
use crate::peer::{external, limits, ours};
use crate::record::Unit;
use crate::rounds::{Heat, Recorder};

/// The batch size.
pub const BATCH: usize = 32;

/// Runs the heats of this workload.
pub fn run(setup: &Setup, recorder: &mut Recorder) -> Result<()> {
    let images = Images::large();
    for &workers in &setup.workers {
        let plan = Plan::new(BATCH, workers).shuffled();
        let mut entries = small_images::image_entries(images, &plan);
        entries.extend(ours::variants(workers, |crew| small_images::ours(images, &plan, crew)));
        entries.extend(external::entries(setup, "large-images", workers, small_images::expected(images, BATCH)));
        entries.extend([
            limits::gather(images, BATCH, 1, None, "memcpy on one thread"),
            limits::gather(images, BATCH, 2, None, "memcpy on two threads"),
        ]);
        recorder.heat(Heat { case: String::new(), workers, unit: Unit::MicrosPerBatch, entries });
    }
    Ok(())
}
