//! What is loaded.
//!
//! A workload is a [`Source`], which all peers written in Rust load by the same code, and a file with its heats. To add
//! one: a file here whose `run(&Setup, &mut Recorder)` makes [`Heat`](crate::rounds::Heat)s of
//! [`Entry`](crate::rounds::Entry)s, a [`Section`] of its name with its line in [`run`], and its
//! targets in `report/targets.rs`.

pub mod images;
#[cfg(feature = "jpeg")]
pub mod photos;
pub mod tokens;
pub mod w1;
pub mod w2;
pub mod w3;
pub mod w4;
pub mod w5;
pub mod w6;
pub mod w7;

use std::fmt::Debug;
use std::path::PathBuf;

use anyhow::Result;

use crate::machine::version_of;
use crate::peer::external::Program;
use crate::record::{Absent, Kind, Line, Section, Time, Unit};
use crate::rings;
use crate::rounds::Recorder;

/// Numbers of workers that each workload is measured with.
pub const WORKERS: [usize; 3] = [0, 1, 2];

/// What all measurements share.
#[derive(Debug)]
pub struct Setup {
    /// Where generated files are.
    pub data: PathBuf,
    /// Peers that are programs of their own.
    pub programs: Vec<Program>,
}

/// Samples, and how a batch is made of them; for peers written in Rust.
pub trait Source: Clone + Send + Sync + 'static {
    /// One sample; what it has much of it borrows.
    type Item: Clone + Debug + Send + Sync + 'static;
    /// Some samples, copied into memory of their own.
    type Batch: Clone + Debug + Send + 'static;

    /// How many samples there are.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The sample at `index`.
    fn get(&self, index: usize) -> Self::Item;

    /// A batch in fresh memory.
    fn collate(&self, items: impl ExactSizeIterator<Item = Self::Item>) -> Self::Batch;

    /// A sum that all samples of the batch have a part in; cheap.
    fn check(batch: &Self::Batch) -> u64;

    /// Looks at every byte of a batch.
    ///
    /// # Errors
    ///
    /// If it is not what the source has.
    fn verify(&self, batch: &Self::Batch) -> Result<()>;

    /// What the checks of all batches add up to.
    fn total(&self) -> u64;
}

/// In which order batches come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The sampler's.
    In,
    /// As they are finished.
    Arrival,
}

/// How a source is to be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Samples in a batch.
    pub batch_size: usize,
    /// Whether each pass has a random order.
    pub shuffle: bool,
    /// How many workers load.
    pub workers: usize,
    /// In which order batches come.
    pub order: Order,
    /// Batches loaded ahead for each worker; by default the loader's own choice.
    pub prefetch: Option<usize>,
}

impl Plan {
    /// Batches of so many samples, in order, by so many workers.
    pub fn new(batch_size: usize, workers: usize) -> Self {
        Self { batch_size, shuffle: false, workers, order: Order::In, prefetch: None }
    }

    /// The same in random order.
    #[must_use]
    pub fn shuffled(self) -> Self {
        Self { shuffle: true, ..self }
    }

    /// How many batches so many samples make; a last one that is not full is a part of one.
    pub fn batches(&self, samples: usize) -> f64 {
        samples as f64 / self.batch_size as f64
    }
}

/// Measures a section.
///
/// # Errors
///
/// If its data can't be made, or slotline itself fails.
pub fn run(section: Section, setup: &Setup, recorder: &mut Recorder) -> Result<()> {
    match section {
        Section::W1 => w1::run(setup, recorder),
        Section::W2 => w2::run(setup, recorder),
        Section::W3 => w3::run(setup, recorder),
        Section::W4 => w4::run(setup, recorder),
        Section::W5 => w5::run(setup, recorder),
        Section::W6 => w6::run(setup, recorder),
        Section::W7 => w7::run(setup, recorder),
        Section::Rings => {
            rings(recorder);
            Ok(())
        }
        Section::Size => crate::scale::size::run(recorder),
        Section::Workers => crate::scale::workers::run(recorder),
    }
}

/// The rings, which are visited in rounds of their own.
fn rings(recorder: &mut Recorder) {
    let mut times: Vec<Time> = Vec::new();
    rings::visit(
        recorder.rounds(),
        |_, _| true,
        |run| {
            let value = Unit::NanosPerItem.value(1.0, run.ns * 1e-9);
            match times.iter_mut().find(|time| time.case == run.bench && time.peer == run.peer) {
                Some(time) => time.values.push(value),
                None => times.push(Time {
                    section: Section::Rings,
                    case: run.bench.into(),
                    workers: None,
                    size: None,
                    peer: run.peer.into(),
                    version: version_of(match run.peer {
                        "crossbeam ArrayQueue" => "crossbeam-queue",
                        "crossbeam channel" => "crossbeam-channel",
                        peer => peer,
                    }),
                    kind: match run.peer {
                        "slotline" => Kind::Ours,
                        "raw atomics" => Kind::Limit,
                        _ => Kind::Peer,
                    },
                    unit: Unit::NanosPerItem,
                    values: vec![value],
                }),
            }
        },
    );
    if times.is_empty() {
        recorder.push(Line::Absent(Absent {
            section: Section::Rings,
            case: String::new(),
            workers: None,
            peer: "slotline".into(),
            why: "rings are measured on two cores, which this process does not have".into(),
        }));
    }
    times.into_iter().for_each(|time| recorder.push(Line::Time(time)));
}
