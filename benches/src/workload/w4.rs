//! W4: crops of 1,024 + 1 tokens at random places of a mapped file of 400 MB, widened to i64 x and y, 16 in a batch.

use anyhow::Result;
use slotline::Loader;

use super::tokens::{Crops, sum};
use super::{Plan, Setup, Source, WORKERS};
use crate::peer::{external, limits, ours, rust_peers};
use crate::record::Unit;
use crate::rounds::{Heat, Recorder};

/// Crops in a batch.
const BATCH: usize = 16;

/// Its heats.
///
/// # Errors
///
/// If the tokens' file can't be made.
pub fn run(setup: &Setup, recorder: &mut Recorder) -> Result<()> {
    let crops = Crops::open(&setup.data)?;
    let samples = Source::len(&crops);
    for workers in WORKERS {
        let plan = Plan::new(BATCH, workers);
        let loader = ours::contender(
            Loader::builder(crops).batch_size(BATCH).num_workers(workers),
            (plan.batches(samples), crops.total()),
            |batch| sum(batch.tensors().0.as_slice()),
            |batch| {
                let (x, y) = batch.tensors();
                Crops::compare(x.as_slice(), y.as_slice())
            },
        );
        let mut entries = vec![ours::entry(loader)];
        entries.extend(rust_peers(&crops, &plan));
        let total = crops.total();
        entries.extend(external::entries(setup, "w4", workers, move |batches| (batches as f64, Some(total))));
        entries.extend([
            limits::widen(crops, BATCH, 1, "plain loop"),
            limits::widen(crops, BATCH, 2, "two plain loops on two threads"),
        ]);
        recorder.heat(Heat { case: String::new(), workers, unit: Unit::MicrosPerBatch, entries });
    }
    Ok(())
}
