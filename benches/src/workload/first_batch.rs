//! `first-batch`: the time from building a loader to its first batch, with the images of `large-images` and two workers.

use std::time::Instant;

use anyhow::{Context, Result};
use slotline::Loader;

use super::images::Images;
use super::large_images::BATCH;
use super::{Plan, Setup, Source};
use crate::peer::ours::{self, Crew};
use crate::peer::{channel, dataloader_rs, external};
use crate::record::{Kind, Unit};
use crate::rounds::{Entry, Heat, Pass, Recorder};

/// Runs the heat of this workload.
pub fn run(setup: &Setup, recorder: &mut Recorder) -> Result<()> {
    let (images, workers) = (Images::large(), 2);
    let plan = Plan::new(BATCH, workers).shuffled();
    let builder =
        move || Loader::builder(images.dataset()).batch_size(BATCH).shuffle(true).seed(42).num_workers(workers);
    let ours = |crew: Crew| {
        Ok(move || {
            let make = || {
                let mut loader = crew.build(builder())?;
                let batch = loader.epoch()?.next().context("no batch")??;
                Ok((loader, batch))
            };
            first(make, |(_, batch)| images.compare(batch.tensors().0.as_slice(), batch.tensors().1.as_slice()))
        })
    };
    let mut entries = vec![
        ours::entry(ours(Crew::Default)),
        Entry::new(
            "dataloader-rs",
            Kind::Peer,
            Ok(move || first(|| dataloader_rs::first(&images, &plan), |(_, batch)| images.verify(batch))),
        )
        .package(),
    ];
    for queue in channel::QUEUES {
        let contender = move || first(|| channel::first(&images, &plan, queue), |(_, batch)| images.verify(batch));
        entries.push(Entry::new(queue.name(), Kind::Peer, Ok(contender)));
    }
    entries.extend(ours::variants(workers, ours));
    entries.extend(external::entries(setup, "first-batch", workers, |_| (1.0, None)));
    fresh_pages(true);
    recorder.heat(Heat { case: String::new(), workers, unit: Unit::MillisPerPass, entries });
    fresh_pages(false);
    Ok(())
}

/// Sets whether glibc returns large allocations to the system when they are freed. The first batch of a program gets fresh
/// pages, but glibc would otherwise reuse the pages of the previous round.
pub fn fresh_pages(fresh: bool) {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // glibc's values at the start of a program, and the values that it adapts to.
        let (map, trim) = if fresh { (128 << 10, 128 << 10) } else { (32 << 20, 64 << 20) };
        // SAFETY: these settings may be changed at any time, by any thread.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, map);
            libc::mallopt(libc::M_TRIM_THRESHOLD, trim);
        }
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    let _ = fresh;
}

/// Times `make`. The result is checked and dropped outside the measured time.
fn first<T>(make: impl FnOnce() -> Result<T>, check: impl FnOnce(&T) -> Result<()>) -> Result<Pass> {
    let start = Instant::now();
    let made = make()?;
    let seconds = start.elapsed().as_secs_f64();
    check(&made)?;
    Ok(Pass { batches: 1.0, seconds })
}
