//! `token-crops`: crops of 1,024 + 1 tokens at random places of a mapped file of 400 MB, widened to i64 x and y, in batches of 16.

use anyhow::Result;
use slotline::Loader;

use super::tokens::{Crops, sum};
use super::{Plan, Setup, Source};
use crate::peer::{external, limits, ours, rust_peers};
use crate::record::Unit;
use crate::rounds::{Contender, Heat, Recorder};

/// The batch size.
pub const BATCH: usize = 16;

/// Returns slotline's contender.
pub fn ours(crops: Crops, plan: &Plan) -> Result<impl Contender + use<>> {
    ours::contender(
        Loader::builder(crops).batch_size(plan.batch_size).num_workers(plan.workers).build()?,
        (plan.batches(Source::len(&crops)), crops.total()),
        |batch| sum(batch.tensors().0.as_slice()),
        |batch| {
            let (x, y) = batch.tensors();
            Crops::compare(x.as_slice(), y.as_slice())
        },
    )
}

/// Runs the heats of this workload.
pub fn run(setup: &Setup, recorder: &mut Recorder) -> Result<()> {
    let crops = Crops::open(&setup.data)?;
    for &workers in &setup.workers {
        let plan = Plan::new(BATCH, workers);
        let mut entries = vec![ours::entry(ours(crops, &plan))];
        entries.extend(rust_peers(&crops, &plan));
        let total = crops.total();
        entries.extend(external::entries(setup, "token-crops", workers, move |batches| (batches as f64, Some(total))));
        entries
            .extend([limits::widen(crops, BATCH, 1, "plain loop"), limits::widen(crops, BATCH, 2, "two plain loops")]);
        recorder.heat(Heat { case: String::new(), workers, unit: Unit::MicrosPerBatch, entries });
    }
    Ok(())
}
