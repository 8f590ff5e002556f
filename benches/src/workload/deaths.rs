//! The section `deaths`: the time from the death of a worker process to the batch that it was
//! reading, with the images of `large-images`.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use slotline::dataset::{Context, Dataset};
use slotline::{BoxError, Loader};

use super::images::{ImageSet, Images};
use super::{Setup, Source};
use crate::peer::limits;
use crate::peer::ours::{self, WorkerKind};
use crate::record::Unit;
use crate::rounds::{Contender, Pass, Recorder};

/// The number of workers.
const WORKERS: usize = 2;
/// The index of the image that kills its worker.
const FATAL: usize = 1000;

/// A dataset of images, one of which kills the process that reads it, once in each pass.
struct KillsWorker {
    images: Arc<ImageSet>,
    start: Instant,
    /// A file with the time of the death, in nanoseconds since the start. It is empty before the
    /// death.
    death: Arc<File>,
}

impl Dataset for KillsWorker {
    type Sample<'a> = <ImageSet as Dataset>::Sample<'a>;

    fn len(&self) -> usize {
        Dataset::len(&self.images)
    }

    fn get<'a>(&'a self, index: usize, cx: &'a mut Context) -> Result<Self::Sample<'a>, BoxError> {
        if index == FATAL && self.death.metadata()?.len() == 0 {
            let nanos = self.start.elapsed().as_nanos() as u64;
            self.death.write_all_at(&nanos.to_le_bytes(), 0)?;
            // SAFETY: the call ends this process, which is a worker.
            unsafe { libc::raise(libc::SIGKILL) };
        }
        Dataset::get(&self.images, index, cx)
    }

    fn prefetch(&self, index: usize) {
        self.images.prefetch(index);
    }
}

/// Runs the comparison of this section.
pub fn run(_: &Setup, to: &mut Recorder) -> Result<()> {
    let idle = limits::death("until an idle process has ended");
    to.compare("", WORKERS, Unit::MillisPerPass, vec![ours::variant("processes", contender(Images::large())), idle]);
    Ok(())
}

fn contender(images: Images) -> Result<Contender> {
    let (start, death) = (Instant::now(), Arc::new(tempfile::tempfile()?));
    let dataset = KillsWorker { images: images.dataset(), start, death: death.clone() };
    let mut loader = WorkerKind::Processes.build(Loader::builder(dataset).batch_size(32).num_workers(WORKERS))?;
    let mut pass = move |verify: bool| {
        death.set_len(0)?;
        let (mut total, mut came) = (0, Duration::ZERO);
        for batch in loader.epoch()? {
            let batch = batch?;
            if batch.tensors().1.as_slice().contains(&(FATAL as i64)) {
                came = start.elapsed();
            }
            total += images.check_ours(&batch);
            if verify {
                images.verify_ours(&batch)?;
            }
        }
        ensure!(total == images.total(), "the check sum is {total}, not {}", images.total());
        let mut died = [0; 8];
        death.read_exact_at(&mut died, 0).context("no worker died")?;
        let died = Duration::from_nanos(u64::from_le_bytes(died));
        Ok(Pass { batches: 1.0, seconds: came.saturating_sub(died).as_secs_f64() })
    };
    pass(true)?;
    Ok(Box::new(move || pass(false)))
}
