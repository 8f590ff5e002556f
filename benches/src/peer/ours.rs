//! slotline as a contender.

use std::time::Instant;

use anyhow::{Result, bail, ensure};
use clap::Parser;
use slotline::Loader;
use slotline::dataset::Dataset;
use slotline::loader::{BatchOf, Builder, Output};

use crate::protocol::{self, Answer, Request};
use crate::record::Kind;
use crate::rounds::{Contender, Entry, Pass};
use crate::workload::empty_items::NUMBERS;
use crate::workload::images::Images;
use crate::workload::tokens::Crops;
use crate::workload::{Plan, Source, empty_items, large_images, small_images, token_crops};

/// Returns slotline's entry.
pub fn entry(contender: Result<impl Contender + 'static>) -> Entry {
    Entry::new("slotline", Kind::Ours, contender).package()
}

/// Returns slotline's entry with an option set. `what` describes the option.
pub fn variant(what: &str, contender: Result<impl Contender + 'static>) -> Entry {
    Entry::new(format!("slotline, {what}"), Kind::Variant, contender)
}

/// What loads the samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crew {
    /// Threads, and the thread that takes the batches.
    Default,
    /// Threads alone.
    Alone,
    /// Processes, which are replaced if they die.
    Processes,
}

impl Crew {
    /// Builds a loader.
    pub fn build<D: Dataset>(self, builder: Builder<D>) -> Result<Loader<BatchOf<D>>> {
        match self {
            Self::Default => Ok(builder.build()?),
            Self::Alone => Ok(builder.help(false).build()?),
            #[cfg(target_os = "linux")]
            Self::Processes => Ok(builder.processes().restart_workers(usize::MAX).build()?),
            #[cfg(not(target_os = "linux"))]
            Self::Processes => bail!("worker processes need Linux"),
        }
    }
}

/// Returns slotline's entries without the help of the loop's thread and with processes. There are none without workers.
pub fn variants<C: Contender + 'static>(workers: usize, make: impl Fn(Crew) -> Result<C>) -> Vec<Entry> {
    if workers == 0 {
        return Vec::new();
    }
    vec![variant("workers alone", make(Crew::Alone)), variant("processes", make(Crew::Processes))]
}

/// Returns a contender whose loader has run one pass, in which `verify` checked every byte. A pass has `batches` batches, and
/// the results of `check` for them add up to `total`.
pub fn contender<B: Output>(
    mut loader: Loader<B>,
    (batches, total): (f64, u64),
    check: impl Fn(&B::Item) -> u64,
    verify: impl Fn(&B::Item) -> Result<()>,
) -> Result<impl Contender> {
    for batch in loader.epoch()? {
        verify(&batch?)?;
    }
    Ok(move || {
        let mut sum = 0;
        let start = Instant::now();
        for batch in loader.epoch()? {
            sum += check(&batch?);
        }
        let seconds = start.elapsed().as_secs_f64();
        ensure!(sum == total, "the check sum is {sum}, not {total}");
        Ok(Pass { batches, seconds })
    })
}

/// The name of slotline in a separate program that is built in cargo's default profile.
pub const USER_BUILD: &str = "slotline, default profile";
/// The workloads that [`serve`] supports.
pub const SERVED: &[&str] = if cfg!(feature = "jpeg") {
    &["empty-items", "small-images", "large-images", "token-crops", "jpegs"]
} else {
    &["empty-items", "small-images", "large-images", "token-crops"]
};

/// Runs slotline as a separate program, in the profile of that program.
pub fn serve() -> Result<()> {
    protocol::serve(USER_BUILD, env!("CARGO_PKG_VERSION"), &Request::parse(), |request| {
        let (mut contender, check) = requested(request)?;
        Ok(move || {
            let Pass { batches, seconds } = contender.pass()?;
            Ok(Answer { batches: batches.ceil() as u64, seconds, check })
        })
    })
}

/// Returns the contender of the requested workload, which compares the check sum itself, and that sum.
fn requested(request: &Request) -> Result<(Box<dyn Contender>, u64)> {
    let plan = |batch_size| Plan::new(batch_size, request.workers);
    Ok(match request.workload.as_str() {
        "empty-items" => (Box::new(empty_items::ours(&plan(1), Crew::Default)?), NUMBERS.total()),
        "small-images" => (
            Box::new(small_images::ours(Images::small(), &plan(small_images::BATCH).shuffled(), Crew::Default)?),
            Images::small().total(),
        ),
        "large-images" => (
            Box::new(small_images::ours(Images::large(), &plan(large_images::BATCH).shuffled(), Crew::Default)?),
            Images::large().total(),
        ),
        "token-crops" => {
            let crops = Crops::open(&request.data)?;
            (Box::new(token_crops::ours(crops, &plan(token_crops::BATCH))?), crops.total())
        }
        #[cfg(feature = "jpeg")]
        "jpegs" => {
            let photos = crate::workload::photos::Photos::new(crate::workload::by_hand::Decoder::Turbo)?;
            (Box::new(photos.ours(&plan(crate::workload::jpegs::BATCH), false)?), photos.total())
        }
        other => bail!("{other} is not measured in another profile"),
    })
}
