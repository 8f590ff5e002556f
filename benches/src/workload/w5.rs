//! W5: JPEGs: batches of 32 of 512 photographs of about 500 × 375, decoded, resized to 224 × 224 and normalised to f32.

use anyhow::Result;

use super::{Setup, WORKERS};
use crate::record::Unit;
use crate::rounds::{Entry, Heat, Recorder};

/// The batch size.
pub const BATCH: usize = 32;

/// Runs the heats of this workload.
///
/// # Errors
///
/// Returns an error if the photographs cannot be made.
pub fn run(setup: &Setup, recorder: &mut Recorder) -> Result<()> {
    for workers in WORKERS {
        let entries = entries(setup, workers)?;
        recorder.heat(Heat { case: String::new(), workers, unit: Unit::MillisPerBatch, entries });
    }
    Ok(())
}

#[cfg(feature = "jpeg")]
fn entries(setup: &Setup, workers: usize) -> Result<Vec<Entry>> {
    use super::photos::{Decoder, Photos};
    use super::{Plan, Source};
    use crate::peer::{external, limits, ours, rust_peers};

    let photos = Photos::new(Decoder::Turbo)?;
    photos.write(&setup.data.join("jpeg"))?;
    let plan = Plan::new(BATCH, workers);
    let mut entries = vec![ours::entry(photos.ours(&plan))];
    entries.extend(rust_peers(&photos, &plan));
    let zune = rust_peers(&Photos::new(Decoder::Zune)?, &plan);
    entries.extend(zune.into_iter().map(|entry| Entry { peer: format!("{}, zune-jpeg", entry.peer), ..entry }));
    entries.extend(external::entries(setup, "w5", workers, move |batches| (batches as f64, Some(photos.total()))));
    entries.extend([
        limits::decode(photos, BATCH, 1, "full decoding on one thread"),
        limits::decode(photos, BATCH, 2, "full decoding on two threads"),
    ]);
    Ok(entries)
}

#[cfg(not(feature = "jpeg"))]
fn entries(_: &Setup, _: usize) -> Result<Vec<Entry>> {
    let why = anyhow::anyhow!("built without the feature `jpeg`, which needs CMake and NASM");
    Ok(vec![crate::peer::ours::entry(Err::<fn() -> Result<crate::rounds::Pass>, _>(why))])
}
