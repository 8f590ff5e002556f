//! slotline as a contender.

use std::time::Instant;

use anyhow::{Result, ensure};
use clap::Parser;
use slotline::Loader;
use slotline::dataset::Dataset;
use slotline::loader::{BatchOf, Builder, Output};

use crate::protocol::{self, Request};
use crate::record::Kind;
use crate::rounds::{Contender, Entry, Pass};
use crate::workload::{Plan, Source, Visit, visit};

/// Returns slotline's entry.
pub fn entry(contender: Result<Contender>) -> Entry {
    Entry::new("slotline", Kind::Ours, contender)
}

/// Returns an entry for slotline with an option set. `what` describes the option.
pub fn variant(what: &str, contender: Result<Contender>) -> Entry {
    Entry::new(format!("slotline, {what}"), Kind::Variant, contender)
}

/// The threads or processes that load the samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerKind {
    /// Worker threads and, if batches are delivered in order, the thread that takes the batches.
    Default,
    /// Only worker threads.
    Alone,
    /// Worker threads and the thread that takes the batches.
    Helped,
    /// Worker processes, which are replaced if they die.
    Processes,
}

impl WorkerKind {
    /// Returns the description in the report.
    pub fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Alone => "workers alone",
            Self::Helped => "the loop helps",
            Self::Processes => "processes",
        }
    }

    /// Builds a loader.
    pub fn build<D: Dataset>(self, builder: Builder<D>) -> Result<Loader<BatchOf<D>>> {
        Ok(match self {
            Self::Default => builder.build()?,
            Self::Alone => builder.help(false).build()?,
            Self::Helped => builder.help(true).build()?,
            #[cfg(target_os = "linux")]
            Self::Processes => builder.processes().restart_workers(usize::MAX).build()?,
            #[cfg(not(target_os = "linux"))]
            Self::Processes => anyhow::bail!("worker processes need Linux"),
        })
    }
}

/// Builds a loader of a source.
pub fn loader<S: Source>(source: &S, plan: &Plan, kind: WorkerKind) -> Result<Loader<BatchOf<S::Data>>> {
    let mut builder = Loader::builder(source.dataset())
        .batch_size(plan.batch_size)
        .shuffle(plan.shuffle)
        .seed(42)
        .num_workers(plan.workers)
        .in_order(plan.in_order);
    if let Some(prefetch) = plan.prefetch {
        builder = builder.prefetch_factor(prefetch);
    }
    kind.build(builder)
}

/// Returns a contender with a loader of a source. It has run one pass, in which every batch was
/// checked.
pub fn contender<S: Source>(source: &S, plan: &Plan, kind: WorkerKind) -> Result<Contender> {
    let (verified, checked) = (source.clone(), source.clone());
    contender_of(
        loader(source, plan, kind)?,
        (plan.batches(source.len()), source.total()),
        move |batch| checked.check_ours(batch),
        move |batch| verified.verify_ours(batch),
    )
}

/// Returns a contender with a loader. It has run one pass, in which `verify` checked every byte. A
/// pass has `batches` batches, and the results of `check` for them add up to `total`.
pub fn contender_of<B: Output + 'static>(
    mut loader: Loader<B>,
    (batches, total): (f64, u64),
    check: impl Fn(&B::Item) -> u64 + 'static,
    verify: impl Fn(&B::Item) -> Result<()>,
) -> Result<Contender> {
    for batch in loader.epoch()? {
        verify(&batch?)?;
    }
    Ok(Box::new(move || {
        let mut sum = 0;
        let start = Instant::now();
        for batch in loader.epoch()? {
            sum += check(&batch?);
        }
        let pass = Pass::since(start, batches);
        ensure!(sum == total, "the check sum is {sum}, not {total}");
        Ok(pass)
    }))
}

/// The name, in the report, of slotline in a separate program that is built in cargo's default
/// profile.
pub const USER_BUILD: &str = "slotline, default profile";

/// Runs slotline as a separate program, which may be built in another profile.
pub fn serve() -> Result<()> {
    /// A visitor that creates a contender, which compares the checksum itself, and returns it with
    /// the checksum.
    struct Served;

    impl Visit for Served {
        type Output = Result<(Contender, u64)>;

        fn visit<S: Source>(self, source: &S, plan: &Plan) -> Self::Output {
            Ok((contender(source, plan, WorkerKind::Default)?, source.total()))
        }
    }

    let Request { workload, workers, data } = Request::parse();
    protocol::serve_contender(USER_BUILD, || visit(&workload, workers, &data, Served)?)
}
