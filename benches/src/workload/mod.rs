//! The workloads.
//!
//! A workload consists of a [`Source`], which all peers written in Rust load with the same code, and a file with its heats.
//! To add one, add a file here whose `run(&Setup, &mut Recorder)` makes [`Heat`](crate::rounds::Heat)s of
//! [`Entry`](crate::rounds::Entry)s, a [`Section`] with its name and its line in [`run`], and its targets in
//! `report/targets.rs`.

#[cfg(feature = "jpeg")]
pub mod by_hand;
pub mod deaths;
pub mod empty_items;
pub mod files;
pub mod first_batch;
pub mod images;
pub mod jpegs;
pub mod large_images;
pub mod latency;
pub mod packing;
pub mod padding;
#[cfg(feature = "jpeg")]
pub mod photos;
#[cfg(feature = "jpeg")]
pub mod pictures;
pub mod python;
#[cfg(feature = "jpeg")]
pub mod scenes;
pub mod sequences;
pub mod slow_samples;
pub mod small_images;
pub mod token_crops;
pub mod tokens;
pub mod waiting;

use std::fmt::Debug;
use std::path::PathBuf;

use anyhow::Result;

use crate::machine::version_of;
use crate::peer::external::Program;
use crate::peer::find::Latency;
use crate::record::{Absent, Kind, Line, Section, Time, Unit};
use crate::rings;
use crate::rounds::Recorder;

/// The numbers of workers that each workload is measured with, unless others are asked for.
pub const WORKERS: [usize; 3] = [0, 1, 2];

/// The setup that all measurements share.
#[derive(Debug)]
pub struct Setup {
    /// The folder of the generated files.
    pub data: PathBuf,
    /// The numbers of workers of the loaders in Rust.
    pub workers: Vec<usize>,
    /// The peers that are separate programs.
    pub programs: Vec<Program>,
    /// The folder of the photographs that the sections `jpeg-crops`, `pngs` and `rand-augment` cut their pictures from.
    pub photographs: Option<PathBuf>,
    /// The folder of the files that the sections about files read.
    pub files: PathBuf,
    /// The program that measures the latency of the loop in C++, and why libtorch is not in it.
    pub latency: Option<Latency>,
}

/// The samples of a workload and how they are collated, for peers written in Rust.
pub trait Source: Clone + Send + Sync + 'static {
    /// A sample. It borrows its large data.
    type Item: Clone + Debug + Send + Sync + 'static;
    /// A batch: samples copied into new memory.
    type Batch: Clone + Debug + Send + 'static;

    /// Returns the number of samples.
    fn len(&self) -> usize;

    /// Whether there are no samples.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the sample at `index`.
    fn get(&self, index: usize) -> Self::Item;

    /// Collates a batch in fresh memory.
    fn collate(&self, items: impl ExactSizeIterator<Item = Self::Item>) -> Self::Batch;

    /// Returns a cheap check sum over all samples of the batch.
    fn check(batch: &Self::Batch) -> u64;

    /// Checks every byte of a batch.
    fn verify(&self, batch: &Self::Batch) -> Result<()>;

    /// Returns the sum of the check sums of all batches.
    fn total(&self) -> u64;
}

/// The order in which batches are delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// In the sampler's order.
    In,
    /// As they are finished.
    Arrival,
}

/// How a source is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The number of samples in a batch.
    pub batch_size: usize,
    /// Whether each pass has a random order.
    pub shuffle: bool,
    /// The number of workers.
    pub workers: usize,
    /// The order in which batches are delivered.
    pub order: Order,
    /// The number of batches loaded ahead for each worker. `None` is the loader's default.
    pub prefetch: Option<usize>,
}

impl Plan {
    /// Creates a plan for batches of `batch_size` samples, in order, with `workers` workers.
    pub fn new(batch_size: usize, workers: usize) -> Self {
        Self { batch_size, shuffle: false, workers, order: Order::In, prefetch: None }
    }

    /// Returns the same plan in random order.
    #[must_use]
    pub fn shuffled(self) -> Self {
        Self { shuffle: true, ..self }
    }

    /// Returns the number of batches of `samples` samples. A last batch that is not full counts as a fraction.
    pub fn batches(&self, samples: usize) -> f64 {
        samples as f64 / self.batch_size as f64
    }
}

/// Measures a section.
pub fn run(section: Section, setup: &Setup, recorder: &mut Recorder) -> Result<()> {
    match section {
        Section::EmptyItems => empty_items::run(setup, recorder),
        Section::SmallImages => small_images::run(setup, recorder),
        Section::LargeImages => large_images::run(setup, recorder),
        Section::TokenCrops => token_crops::run(setup, recorder),
        Section::Jpegs => jpegs::run(setup, recorder),
        Section::JpegCrops | Section::Pngs | Section::RandAugment => jpegs::run_augmented(section, setup, recorder),
        Section::FirstBatch => first_batch::run(setup, recorder),
        Section::SlowSamples => slow_samples::run(setup, recorder),
        Section::Packing => packing::run(setup, recorder),
        Section::Padding => padding::run(setup, recorder),
        Section::Latency => latency::run(setup, recorder),
        Section::Deaths => {
            deaths::run(recorder);
            Ok(())
        }
        Section::Cpu | Section::Wakes => {
            waiting::run(section, recorder);
            Ok(())
        }
        Section::Rings => {
            rings(recorder);
            Ok(())
        }
        Section::Size => crate::scale::size::run(recorder),
        Section::Workers => crate::scale::workers::run(recorder),
        Section::Cores => {
            crate::scale::cores::run(recorder);
            Ok(())
        }
        Section::Ranks => crate::scale::ranks::run(recorder),
        _ if section.is_python() => {
            python::run(section, setup, recorder);
            Ok(())
        }
        _ => files::run(section, setup, recorder),
    }
}

/// Measures the rings, which have separate rounds.
fn rings(recorder: &mut Recorder) {
    let mut times: Vec<Time> = Vec::new();
    rings::visit(
        recorder.rounds(),
        |_, _| true,
        |run| {
            let value = Unit::NanosPerItem.value(1.0, run.ns * 1e-9);
            match times.iter_mut().find(|time| time.case == run.bench && time.peer == run.peer) {
                Some(time) => time.values.push(value),
                None => {
                    let package = match run.peer {
                        "crossbeam ArrayQueue" => "crossbeam-queue",
                        "crossbeam channel" => "crossbeam-channel",
                        peer => peer,
                    };
                    let kind = match run.peer {
                        "slotline" => Kind::Ours,
                        "raw atomics" => Kind::Limit,
                        _ => Kind::Peer,
                    };
                    let time = Time::new(Section::Rings, run.bench, run.peer, kind, Unit::NanosPerItem, vec![value]);
                    times.push(Time { version: version_of(package), ..time });
                }
            }
        },
    );
    if times.is_empty() {
        recorder.push(Line::Absent(Absent {
            section: Section::Rings,
            case: String::new(),
            workers: None,
            peer: "slotline".into(),
            why: "rings are measured on two cores, and this process has fewer".into(),
        }));
    }
    times.into_iter().for_each(|time| recorder.push(Line::Time(time)));
}
