//! `jpegs`: JPEGs: batches of 32 of 512 photographs of about 500 × 375, decoded, resized to 224 × 224 and normalised to f32.
//! `jpeg-crops`, `pngs` and `rand-augment`: the same with the transforms of training, with PNGs, and with RandAugment.

use anyhow::Result;

use super::Setup;
#[cfg(feature = "jpeg")]
use super::WORKERS;
#[cfg(feature = "jpeg")]
use crate::peer::ours::Crew;
use crate::record::{Section, Unit};
use crate::rounds::{Entry, Heat, Recorder};

/// The batch size.
pub const BATCH: usize = 32;

/// Runs the heats of this workload.
pub fn run(setup: &Setup, recorder: &mut Recorder) -> Result<()> {
    for &workers in &setup.workers {
        let entries = entries(setup, workers)?;
        recorder.heat(Heat { case: String::new(), workers, unit: Unit::MillisPerBatch, entries });
    }
    Ok(())
}

/// Runs the heats of `jpeg-crops`, `pngs` or `rand-augment`.
#[cfg(feature = "jpeg")]
pub fn run_augmented(section: Section, setup: &Setup, recorder: &mut Recorder) -> Result<()> {
    use super::pictures::{AUGMENTED, CROPS, PNGS, Pictures};
    use super::{Plan, Source};
    use crate::peer::{external, ours, rust_peers};

    let workloads = match section {
        Section::JpegCrops => &CROPS[..],
        Section::Pngs => &PNGS[..],
        _ => &AUGMENTED[..],
    };
    for workload in workloads {
        let pictures = Pictures::new(*workload, setup.photographs.as_deref())?;
        pictures.write(&setup.data.join(workload.name))?;
        for workers in WORKERS {
            let (plan, total) = (Plan::new(BATCH, workers), pictures.total());
            let mut entries = vec![ours::entry(pictures.ours(&plan, Crew::Default))];
            entries.extend(ours::variants(workers, |crew| pictures.ours(&plan, crew)));
            if section != Section::Pngs {
                entries.push(ours::variant("reduced decoding", pictures.reduced(&plan)));
            }
            if section == Section::JpegCrops {
                entries.push(ours::variant("whole pictures", pictures.whole(&plan)));
            }
            // No resizing library in Rust has RandAugment.
            if section != Section::RandAugment {
                entries.extend(rust_peers(&pictures, &plan));
            }
            let expected = move |batches| (batches as f64, Some(total));
            entries.extend(external::entries(setup, workload.name, workers, expected));
            recorder.heat(Heat { case: workload.case.into(), workers, unit: Unit::MillisPerBatch, entries });
        }
    }
    Ok(())
}

/// Says why the sections are absent.
#[cfg(not(feature = "jpeg"))]
pub fn run_augmented(_: Section, setup: &Setup, recorder: &mut Recorder) -> Result<()> {
    run(setup, recorder)
}

#[cfg(feature = "jpeg")]
fn entries(setup: &Setup, workers: usize) -> Result<Vec<Entry>> {
    use super::by_hand::Decoder;
    use super::photos::Photos;
    use super::{Plan, Source};
    use crate::peer::{external, limits, ours, rust_peers};

    let photos = Photos::new(Decoder::Turbo)?;
    photos.write(&setup.data.join("jpeg"))?;
    let plan = Plan::new(BATCH, workers);
    let mut entries =
        vec![ours::entry(photos.ours(&plan, false)), ours::variant("reduced decoding", photos.ours(&plan, true))];
    entries.extend(rust_peers(&photos, &plan));
    let zune = rust_peers(&Photos::new(Decoder::Zune)?, &plan);
    entries.extend(zune.into_iter().map(|entry| Entry { peer: format!("{}, zune-jpeg", entry.peer), ..entry }));
    entries.extend(external::entries(setup, "jpegs", workers, move |batches| (batches as f64, Some(photos.total()))));
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
