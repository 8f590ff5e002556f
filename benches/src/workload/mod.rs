//! The workloads.
//!
//! To add one, write a function that measures [`Entry`](crate::rounds::Entry)s with a [`Recorder`],
//! add it to [`SECTIONS`], and add its text to `report/template.md`. The data that loaders written
//! in Rust load is a [`Source`], which is listed in [`visit`].

#[cfg(feature = "jpeg")]
pub mod by_hand;
pub mod deaths;
pub mod images;
pub mod latency;
pub mod loaders;
pub mod numbers;
#[cfg(feature = "jpeg")]
pub mod pictures;
pub mod programs;
#[cfg(feature = "jpeg")]
pub mod scenes;
pub mod sequences;
pub mod server;
pub mod tokens;
pub mod waiting;

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use slotline::dataset::Dataset;
use slotline::loader::BatchOf;

use self::images::Images;
use self::numbers::Numbers;
use self::tokens::Crops;
use crate::peer::external::Program;
use crate::record::Unit;
use crate::rings;
use crate::rounds::Recorder;
use crate::scale::{cores, ranks, size};

/// A part of the report that can be measured separately.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    /// The name in records and on the command line.
    pub name: &'static str,
    /// Whether the report has a plot of the section in addition to its table.
    pub plot: bool,
    /// The function that measures the section.
    pub run: fn(&Setup, &mut Recorder) -> Result<()>,
}

/// Creates a section with a plot.
const fn plot(name: &'static str, run: fn(&Setup, &mut Recorder) -> Result<()>) -> Section {
    Section { name, plot: true, run }
}

/// Creates a section without a plot.
const fn table(name: &'static str, run: fn(&Setup, &mut Recorder) -> Result<()>) -> Section {
    Section { name, plot: false, run }
}

/// All sections, in the order of the report.
pub const SECTIONS: [Section; 38] = [
    plot("empty-items", loaders::empty_items),
    plot("small-images", loaders::small_images),
    plot("large-images", loaders::large_images),
    plot("token-crops", loaders::token_crops),
    plot("jpegs", loaders::jpegs),
    plot("jpeg-crops", |setup, to| loaders::augmented(setup, to, &["jpeg-crops-small", "jpeg-crops-large"])),
    plot("pngs", |setup, to| loaders::augmented(setup, to, &["pngs"])),
    plot("rand-augment", |setup, to| loaders::augmented(setup, to, &["rand-augment"])),
    plot("first-batch", loaders::first_batch),
    plot("slow-samples", loaders::slow_samples),
    plot("packing", sequences::packing),
    plot("padding", sequences::padding),
    plot("latency", latency::run),
    table("deaths", deaths::run),
    table("cpu", |_, to| waiting::run(to, Unit::MicrosPerBatch)),
    table("wakes", |_, to| waiting::run(to, Unit::WakesPerBatch)),
    plot("rings", rings::run),
    table("size", size::run),
    table("workers", loaders::workers),
    table("cores", cores::run),
    table("ranks", ranks::run),
    plot("python-empty-items", |setup, to| programs::python(setup, to, Unit::MicrosPerBatch)),
    plot("python-small-images", |setup, to| programs::python(setup, to, Unit::MicrosPerBatch)),
    plot("python-indexed-images", |setup, to| programs::python(setup, to, Unit::MicrosPerBatch)),
    plot("python-large-images", |setup, to| programs::python(setup, to, Unit::MicrosPerBatch)),
    plot("python-jpegs", |setup, to| programs::python(setup, to, Unit::MillisPerBatch)),
    plot("python-torchvision", |setup, to| {
        to.enough = Duration::from_secs(12);
        programs::python(setup, to, Unit::MillisPerBatch)
    }),
    plot("python-datasets", |setup, to| programs::python(setup, to, Unit::MicrosPerBatch)),
    plot("python-mixture", |setup, to| programs::python(setup, to, Unit::MicrosPerBatch)),
    plot("python-records", |setup, to| programs::python(setup, to, Unit::MicrosPerBatch)),
    plot("python-first-batch", |setup, to| programs::python(setup, to, Unit::MillisPerPass)),
    plot("python-slow-samples", |setup, to| programs::python(setup, to, Unit::MillisPerPass)),
    plot("folders", |setup, to| programs::files(setup, to, Unit::MillisPerBatch)),
    plot("tars", |setup, to| programs::files(setup, to, Unit::MillisPerBatch)),
    plot("bucket", |setup, to| programs::files(setup, to, Unit::MillisPerBatch)),
    plot("token-files", |setup, to| programs::files(setup, to, Unit::MicrosPerBatch)),
    plot("tables", |setup, to| programs::files(setup, to, Unit::MicrosPerBatch)),
    plot("tar-index", |setup, to| programs::files(setup, to, Unit::MillisPerPass)),
];

/// The settings that all measurements share.
#[derive(Debug)]
pub struct Setup {
    /// The folder of the generated files.
    pub data: PathBuf,
    /// The numbers of workers with which the loaders in Rust are measured.
    pub workers: Vec<usize>,
    /// The peers that are separate programs.
    pub programs: Vec<Program>,
    /// The folder of the photographs from which the sections `jpeg-crops`, `pngs` and
    /// `rand-augment` cut their pictures.
    pub photographs: Option<PathBuf>,
    /// The folder of the files that the sections about files read.
    pub files: PathBuf,
}

/// The samples of a workload and how they are collated, for slotline and the peers written in Rust.
pub trait Source: Clone + Send + Sync + 'static {
    /// A sample. It borrows its large data.
    type Item: Clone + Debug + Send + Sync + 'static;
    /// A batch of a peer: samples copied into new memory.
    type Batch: Clone + Debug + Send + 'static;
    /// slotline's dataset.
    type Data: Dataset;

    /// Returns the number of samples.
    fn len(&self) -> usize;

    /// Whether there are no samples.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the sample at `index`.
    fn get(&self, index: usize) -> Self::Item;

    /// Collates a batch in newly allocated memory.
    fn collate(&self, items: impl ExactSizeIterator<Item = Self::Item>) -> Self::Batch;

    /// Returns a cheap checksum over all samples of the batch.
    fn check(&self, batch: &Self::Batch) -> u64;

    /// Checks every byte of a batch.
    fn verify(&self, batch: &Self::Batch) -> Result<()>;

    /// Returns slotline's dataset.
    fn dataset(&self) -> Self::Data;

    /// Returns the checksum of a batch of slotline, like [`check`](Self::check).
    fn check_ours(&self, batch: &BatchOf<Self::Data>) -> u64;

    /// Checks every byte of a batch of slotline, like [`verify`](Self::verify).
    fn verify_ours(&self, batch: &BatchOf<Self::Data>) -> Result<()>;

    /// Returns the sum of the checksums of all batches. By default these are the sums of the
    /// labels, which are the numbers of the samples.
    fn total(&self) -> u64 {
        sum_below(self.len() as u64)
    }

    /// Returns the checksum of a pass with fewer batches, as some programs have, if it is known.
    fn total_of(&self, _batches: u64) -> Option<u64> {
        None
    }
}

/// Returns the sum of the numbers below `end`.
pub fn sum_below(end: u64) -> u64 {
    end * end.saturating_sub(1) / 2
}

/// Returns the sum of labels.
#[inline]
pub fn sum(labels: &[i64]) -> u64 {
    labels.iter().sum::<i64>() as u64
}

/// Options for loading a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The number of samples in a batch.
    pub batch_size: usize,
    /// Whether each pass has a random order.
    pub shuffle: bool,
    /// The number of workers.
    pub workers: usize,
    /// Whether batches are delivered in the sampler's order. Otherwise they are delivered as they
    /// are finished.
    pub in_order: bool,
    /// The number of batches loaded ahead for each worker. `None` stands for the loader's default.
    pub prefetch: Option<usize>,
}

impl Plan {
    /// Creates a plan for batches of `batch_size` samples, in order, with `workers` workers.
    pub fn new(batch_size: usize, workers: usize) -> Self {
        Self { batch_size, shuffle: false, workers, in_order: true, prefetch: None }
    }

    /// Returns the same plan in random order.
    #[must_use]
    pub fn shuffled(self) -> Self {
        Self { shuffle: true, ..self }
    }

    /// Returns the number of batches of `samples` samples. A last batch that is not full counts as
    /// a fraction.
    pub fn batches(&self, samples: usize) -> f64 {
        samples as f64 / self.batch_size as f64
    }
}

/// A function that is generic over the source of a workload.
pub trait Visit {
    /// The type of the result.
    type Output;

    /// Calls the function.
    fn visit<S: Source>(self, source: &S, plan: &Plan) -> Self::Output;
}

/// Calls `visitor` with the source of a workload and the plan for loading it. `data` is the folder
/// of the generated files.
pub fn visit<V: Visit>(workload: &str, workers: usize, data: &Path, visitor: V) -> Result<V::Output> {
    let plan = |batch_size| Plan::new(batch_size, workers);
    let slow = |plan: &Plan, visitor: V| visitor.visit(&Numbers::<true> { count: 200 }, plan);
    Ok(match workload {
        "empty-items" => visitor.visit(&Numbers::<false> { count: 200_000 }, &plan(1)),
        "small-images" => visitor.visit(&Images::small(), &plan(64).shuffled()),
        "large-images" | "first-batch" => visitor.visit(&Images::large(), &plan(32).shuffled()),
        "token-crops" => visitor.visit(&Crops::open(data)?, &plan(16)),
        #[cfg(feature = "jpeg")]
        "jpegs" => visitor.visit(&pictures::Pictures::jpegs(by_hand::Decoder::Turbo)?, &plan(32)),
        "slow-samples-8" => slow(&plan(8), visitor),
        "slow-samples-1" => slow(&plan(1), visitor),
        "slow-samples-1-prefetch-16" => slow(&Plan { prefetch: Some(16), ..plan(1) }, visitor),
        "slow-samples-8-arrival" => slow(&Plan { in_order: false, ..plan(8) }, visitor),
        "slow-samples-1-arrival" => slow(&Plan { in_order: false, ..plan(1) }, visitor),
        other => bail!("{other} is not a workload of this program"),
    })
}
