//! `small-images`: small images, shuffled: batches of 64 of 60,000 × 28 × 28 bytes with their labels.

use anyhow::Result;
use slotline::Loader;

use super::images::{Images, sum};
use super::{Plan, Setup, Source};
use crate::peer::ours::{self, Crew};
use crate::peer::{external, limits, rust_peers};
use crate::record::Unit;
use crate::rounds::{Contender, Entry, Heat, Recorder};

/// The batch size.
pub const BATCH: usize = 64;

/// Returns entries for slotline and the peers written in Rust.
pub fn entries(workers: usize) -> Vec<Entry> {
    image_entries(Images::small(), &Plan::new(BATCH, workers).shuffled())
}

/// Returns slotline's contender for any images.
pub fn ours(images: Images, plan: &Plan, crew: Crew) -> Result<impl Contender + use<>> {
    ours_stepping(images, plan, crew, || ())
}

/// Returns the same with a loop that takes a `step` after each batch.
pub(super) fn ours_stepping<S: Fn()>(
    images: Images,
    plan: &Plan,
    crew: Crew,
    step: S,
) -> Result<impl Contender + use<S>> {
    let builder =
        Loader::builder(images.dataset()).batch_size(plan.batch_size).shuffle(true).seed(42).num_workers(plan.workers);
    ours::contender(
        crew.build(builder)?,
        (plan.batches(images.len()), images.total()),
        move |batch| {
            step();
            sum(batch.tensors().1.as_slice())
        },
        move |batch| {
            let (pixels, labels) = batch.tensors();
            images.compare(pixels.as_slice(), labels.as_slice())
        },
    )
}

/// Returns entries for slotline and the peers written in Rust, for any images.
pub(super) fn image_entries(images: Images, plan: &Plan) -> Vec<Entry> {
    let mut entries = vec![ours::entry(ours(images, plan, Crew::Default))];
    entries.extend(rust_peers(&images, plan));
    entries
}

/// Returns a function that maps the number of batches of a program's pass to the full batches and the check sum.
pub(super) fn expected(images: Images, batch_size: usize) -> impl Fn(u64) -> (f64, Option<u64>) + Copy {
    move |batches| {
        let all = images.len() as f64 / batch_size as f64;
        // Programs may drop a last batch that is not full. The check sum is then unknown.
        let check = (batches as f64 >= all).then(|| images.total());
        (all.min(batches as f64), check)
    }
}

/// Runs the heats of this workload.
pub fn run(setup: &Setup, recorder: &mut Recorder) -> Result<()> {
    let images = Images::small();
    for &workers in &setup.workers {
        let plan = Plan::new(BATCH, workers).shuffled();
        let mut entries = image_entries(images, &plan);
        entries.extend(ours::variants(workers, |crew| ours(images, &plan, crew)));
        entries.extend(external::entries(setup, "small-images", workers, expected(images, BATCH)));
        entries.extend([
            limits::gather(images, BATCH, 1, None, "plain loop"),
            limits::gather(images, BATCH, 1, Some(8), "plain loop, prefetching"),
            limits::gather(images, BATCH, 2, None, "two plain loops"),
            limits::gather(images, BATCH, 2, Some(8), "two plain loops, prefetching"),
        ]);
        recorder.heat(Heat { case: String::new(), workers, unit: Unit::MicrosPerBatch, entries });
    }
    Ok(())
}
