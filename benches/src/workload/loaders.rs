//! The workloads of loaders of data in memory. Contenders are slotline, the peers in Rust, other
//! programs, and the limits of the machine.

use std::time::Instant;

use anyhow::{Context, Result};

use super::images::Images;
use super::tokens::Crops;
use super::{Plan, Setup, Source, Visit, visit};
use crate::peer::ours::{self, WorkerKind};
use crate::peer::{channel, dataloader_rs, external, limits, rust_peers};
use crate::record::{Kind, Unit};
use crate::rounds::{Contender, Entry, Pass, Recorder};

/// A comparison of all contenders on a workload, with one number of workers.
struct Comparison<'a> {
    setup: &'a Setup,
    /// The variant of the section.
    case: &'a str,
    /// The name of the workload in the protocol of separate programs.
    workload: &'a str,
    unit: Unit,
    /// The kinds of workers with which slotline is measured in addition; they need workers.
    kinds: &'a [WorkerKind],
    /// Whether the peers in Rust take part.
    rust_peers: bool,
    /// Additional contenders.
    more: Vec<Entry>,
}

impl<'a> Comparison<'a> {
    fn new(setup: &'a Setup, case: &'a str, workload: &'a str, unit: Unit, kinds: &'a [WorkerKind]) -> Self {
        Self { setup, case, workload, unit, kinds, rust_peers: true, more: Vec::new() }
    }

    fn with(self, more: impl Into<Vec<Entry>>) -> Self {
        Self { more: more.into(), ..self }
    }

    /// Measures the comparison, with the source of the workload.
    fn run(self, workers: usize, to: &mut Recorder) -> Result<()> {
        visit(self.workload, workers, &self.setup.data, (self, to))
    }
}

impl Visit for (Comparison<'_>, &mut Recorder) {
    type Output = ();

    fn visit<S: Source>(self, source: &S, plan: &Plan) {
        let (Comparison { setup, case, workload, unit, kinds, rust_peers, more }, to) = self;
        let mut entries = if rust_peers { entries(source, plan) } else { vec![ours_of(source, plan)] };
        if plan.workers > 0 {
            entries.extend(kinds.iter().map(|&kind| ours::variant(kind.name(), ours::contender(source, plan, kind))));
        }
        entries.extend(more);
        let (all, total, source) = (plan.batches(source.len()), source.total(), source.clone());
        let expected = move |batches: u64| {
            // Programs may have fewer samples, or leave out a last batch that is not full.
            let has_all = batches as f64 >= all;
            (all.min(batches as f64), if has_all { Some(total) } else { source.total_of(batches) })
        };
        entries.extend(external::entries(&setup.programs, &setup.data, workload, plan.workers, expected));
        to.compare(case, plan.workers, unit, entries);
    }
}

fn ours_of<S: Source>(source: &S, plan: &Plan) -> Entry {
    ours::entry(ours::contender(source, plan, WorkerKind::Default))
}

/// Returns the entries of slotline and of the peers written in Rust.
fn entries<S: Source>(source: &S, plan: &Plan) -> Vec<Entry> {
    let mut entries = vec![ours_of(source, plan)];
    entries.extend(rust_peers(source, plan));
    entries
}

const WORKER_KINDS: &[WorkerKind] = &[WorkerKind::Alone, WorkerKind::Processes];

/// Measures items that cost nothing, in batches of 1, so that only the loader's cost is measured.
pub fn empty_items(setup: &Setup, to: &mut Recorder) -> Result<()> {
    let comparison = || Comparison::new(setup, "", "empty-items", Unit::MicrosPerBatch, WORKER_KINDS);
    setup.workers.iter().try_for_each(|&workers| comparison().run(workers, to))
}

/// Measures small images, shuffled.
pub fn small_images(setup: &Setup, to: &mut Recorder) -> Result<()> {
    let gather = |threads, ahead, name| limits::gather(Images::small(), 64, threads, ahead, name);
    let comparison = || {
        Comparison::new(setup, "", "small-images", Unit::MicrosPerBatch, WORKER_KINDS).with([
            gather(1, None, "plain loop"),
            gather(1, Some(8), "plain loop, prefetching"),
            gather(2, None, "two plain loops"),
            gather(2, Some(8), "two plain loops, prefetching"),
        ])
    };
    setup.workers.iter().try_for_each(|&workers| comparison().run(workers, to))
}

/// Measures large images, shuffled.
pub fn large_images(setup: &Setup, to: &mut Recorder) -> Result<()> {
    let gather = |threads, name| limits::gather(Images::large(), 32, threads, None, name);
    let limits = || [gather(1, "memcpy on one thread"), gather(2, "memcpy on two threads")];
    let comparison = || Comparison::new(setup, "", "large-images", Unit::MicrosPerBatch, WORKER_KINDS).with(limits());
    setup.workers.iter().try_for_each(|&workers| comparison().run(workers, to))
}

/// Measures crops of a mapped file of tokens, which are converted to i64.
pub fn token_crops(setup: &Setup, to: &mut Recorder) -> Result<()> {
    let crops = Crops::open(&setup.data)?;
    let limits = || [limits::widen(crops, 16, 1, "plain loop"), limits::widen(crops, 16, 2, "two plain loops")];
    let comparison = || Comparison::new(setup, "", "token-crops", Unit::MicrosPerBatch, &[]).with(limits());
    setup.workers.iter().try_for_each(|&workers| comparison().run(workers, to))
}

/// Measures JPEGs that are decoded, resized and normalised.
#[cfg(feature = "jpeg")]
pub fn jpegs(setup: &Setup, to: &mut Recorder) -> Result<()> {
    use super::by_hand::Decoder;
    use super::pictures::Pictures;

    let [turbo, zune] = [Decoder::Turbo, Decoder::Zune].map(Pictures::jpegs);
    let (turbo, zune) = (turbo?, zune?);
    turbo.write(&setup.data.join("jpeg"))?;
    for &workers in &setup.workers {
        let plan = Plan::new(32, workers);
        let decode = |threads, name| limits::decode(turbo.clone(), 32, threads, name);
        let mut more =
            vec![ours::variant("reduced decoding", ours::contender(&turbo.reduced(), &plan, WorkerKind::Default))];
        let with_zune = rust_peers(&zune, &plan).into_iter();
        more.extend(with_zune.map(|entry| Entry { peer: format!("{}, zune-jpeg", entry.peer), ..entry }));
        more.extend([decode(1, "full decoding on one thread"), decode(2, "full decoding on two threads")]);
        Comparison::new(setup, "", "jpegs", Unit::MillisPerBatch, &[]).with(more).run(workers, to)?;
    }
    Ok(())
}

/// Records that the section is absent from a build without the feature `jpeg`.
#[cfg(not(feature = "jpeg"))]
pub fn jpegs(_: &Setup, to: &mut Recorder) -> Result<()> {
    let why = anyhow::anyhow!("built without the feature `jpeg`, which needs CMake and NASM");
    to.absent("", None, "slotline", &why);
    Ok(())
}

/// Measures pictures with the transforms of training.
#[cfg(feature = "jpeg")]
pub fn augmented(setup: &Setup, to: &mut Recorder, workloads: &[&str]) -> Result<()> {
    for &workload in workloads {
        let case = match workload {
            "jpeg-crops-small" => "500 × 375",
            "jpeg-crops-large" => "2,000 × 1,500",
            _ => "",
        };
        let pictures = super::pictures::Pictures::new(workload, setup.photographs.as_deref())?;
        pictures.write(&setup.data.join(workload))?;
        for workers in [0, 1, 2] {
            let plan = Plan::new(32, workers);
            let mut more = Vec::new();
            let mut variant = |name, pictures| -> Result<()> {
                more.push(ours::variant(name, ours::contender(&pictures, &plan, WorkerKind::Default)));
                Ok(())
            };
            if workload != "pngs" {
                variant("reduced decoding", pictures.reduced())?;
            }
            if !case.is_empty() {
                variant("whole pictures", pictures.whole()?)?;
            }
            // No resizing library in Rust has RandAugment.
            let rust_peers = workload != "rand-augment";
            let comparison = Comparison::new(setup, case, workload, Unit::MillisPerBatch, WORKER_KINDS).with(more);
            (Comparison { rust_peers, ..comparison }, &mut *to).visit(&pictures, &plan);
        }
    }
    Ok(())
}

/// Records that the sections are absent from a build without the feature `jpeg`.
#[cfg(not(feature = "jpeg"))]
pub fn augmented(setup: &Setup, to: &mut Recorder, _: &[&str]) -> Result<()> {
    jpegs(setup, to)
}

/// Measures slow samples among fast ones.
pub fn slow_samples(setup: &Setup, to: &mut Recorder) -> Result<()> {
    for (case, workload, workers, kind) in [
        ("batches of 8", "slow-samples-8", 2, WorkerKind::Alone),
        ("batches of 8", "slow-samples-8", 0, WorkerKind::Alone),
        ("batches of 8", "slow-samples-8", 1, WorkerKind::Alone),
        ("batches of 1", "slow-samples-1", 2, WorkerKind::Alone),
        ("batches of 1, prefetch 16", "slow-samples-1-prefetch-16", 2, WorkerKind::Alone),
        // By default, the loop's thread helps only if batches are delivered in order.
        ("batches of 8, as they arrive", "slow-samples-8-arrival", 2, WorkerKind::Helped),
        ("batches of 1, as they arrive", "slow-samples-1-arrival", 2, WorkerKind::Helped),
    ] {
        Comparison::new(setup, case, workload, Unit::MillisPerPass, &[kind]).run(workers, to)?;
    }
    Ok(())
}

/// Measures `empty-items` and `small-images` with slotline and the peers written in Rust, with up
/// to far more workers than there are cores.
pub fn workers(setup: &Setup, to: &mut Recorder) -> Result<()> {
    /// A visitor that measures slotline and the peers written in Rust.
    struct Peers<'a>(&'static str, &'a mut Recorder);

    impl Visit for Peers<'_> {
        type Output = ();

        fn visit<S: Source>(self, source: &S, plan: &Plan) {
            self.1.compare(self.0, plan.workers, Unit::MicrosPerBatch, entries(source, plan));
        }
    }

    for workload in ["empty-items", "small-images"] {
        (0..=8).try_for_each(|workers| visit(workload, workers, &setup.data, Peers(workload, to)))?;
    }
    Ok(())
}

/// Measures the time from building a loader to its first batch, with the images of `large-images`
/// and two workers.
pub fn first_batch(setup: &Setup, to: &mut Recorder) -> Result<()> {
    let (images, workers) = (Images::large(), 2);
    let plan = Plan::new(32, workers).shuffled();
    let ours = |kind: WorkerKind| {
        let make = move || {
            let mut loader = ours::loader(&images, &plan, kind)?;
            let batch = loader.epoch()?.next().context("no batch")??;
            Ok((loader, batch))
        };
        first(make, move |(_, batch)| images.verify_ours(batch))
    };
    let dataloader_rs = first(move || dataloader_rs::first(&images, &plan), move |(_, batch)| images.verify(batch));
    let mut entries =
        vec![ours::entry(ours(WorkerKind::Default)), Entry::new("dataloader-rs", Kind::Peer, dataloader_rs)];
    for queue in channel::QUEUES {
        let contender = first(move || channel::first(&images, &plan, queue), move |(_, batch)| images.verify(batch));
        entries.push(Entry::new(queue.name(), Kind::Peer, contender));
    }
    entries.extend(WORKER_KINDS.iter().map(|&kind| ours::variant(kind.name(), ours(kind))));
    entries.extend(external::entries(&setup.programs, &setup.data, "first-batch", workers, |_| (1.0, None)));
    fresh_pages(true);
    to.compare("", workers, Unit::MillisPerPass, entries);
    fresh_pages(false);
    Ok(())
}

/// Sets whether glibc returns large allocations to the system when they are freed. In a real
/// program, the first batch is in new pages. Without this setting, glibc would reuse the pages of
/// the previous round.
pub fn fresh_pages(fresh: bool) {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // glibc's values at the start of a program, and the values to which it adapts later.
        let (map, trim) = if fresh { (128 << 10, 128 << 10) } else { (32 << 20, 64 << 20) };
        // SAFETY: any thread may change these settings at any time.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, map);
            libc::mallopt(libc::M_TRIM_THRESHOLD, trim);
        }
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    let _ = fresh;
}

/// Returns a contender that measures the time of `make`. Checking and dropping the result are not
/// included.
fn first<T>(make: impl Fn() -> Result<T> + 'static, check: impl Fn(&T) -> Result<()> + 'static) -> Result<Contender> {
    Ok(Box::new(move || {
        let start = Instant::now();
        let made = make()?;
        let pass = Pass::since(start, 1.0);
        check(&made)?;
        Ok(pass)
    }))
}
