//! The device that checks and measurements run on, and their sizes.

use std::fmt;
use std::io::{self, Write};

use anyhow::Result;
use slotline::Loader;
use slotline::dataset::Dataset;
use slotline_cuda::DeviceLoader;
use slotline_cuda_fake::Fake;

use crate::gpu::Gpu;

/// The number of samples in a batch, in all checks and measurements whose results do not depend on
/// it.
pub(crate) const ROWS: usize = 64;

/// The device and the sizes of the checks and measurements.
#[derive(Clone, Debug)]
pub(crate) struct Bench {
    pub(crate) gpu: Gpu,
    pub(crate) scale: Scale,
    /// The names of the measurements to make. If it is empty, all are made.
    pub(crate) only: Vec<String>,
    /// The fake driver, if it is in use.
    pub(crate) fake: Option<&'static Fake>,
    /// Whether human-readable lines go to stderr, because stdout ends in JSON.
    pub(crate) json: bool,
}

impl Bench {
    /// Creates a shuffled loader that delivers the batches of this data on the device.
    pub(crate) fn device_loader<D: Dataset>(&self, data: D, slots: usize) -> Result<DeviceLoader> {
        let device = &self.gpu.device;
        let builder = Loader::builder(data).batch_size(ROWS).shuffle(true).seed(0).num_workers(self.scale.workers);
        Ok(DeviceLoader::with_slots(builder.hold(slots).memory(device.pinned()).build()?, device, slots)?)
    }

    /// Prints a human-readable line.
    pub(crate) fn say(&self, text: impl fmt::Display) {
        // Errors are ignored: if the reader has closed the pipe, the run continues, as its exit
        // code still matters.
        let _ = if self.json { writeln!(io::stderr(), "{text}") } else { writeln!(io::stdout(), "{text}") };
    }
}

/// The amounts of work of the checks and measurements.
#[derive(Clone, Debug)]
pub(crate) struct Scale {
    /// The number of worker threads.
    pub(crate) workers: usize,
    /// The number of rounds in which each contender is measured.
    pub(crate) rounds: usize,
    /// The sizes of single copies, in bytes.
    pub(crate) copies: Vec<usize>,
    /// The number of bytes over which a bandwidth is measured in one round.
    pub(crate) copied: usize,
    /// The number of bytes that are locked and freed again.
    pub(crate) locked: usize,
    /// The sizes of the batches that are fed to the device, in bytes; multiples of 8 × [`ROWS`].
    pub(crate) batches: Vec<usize>,
    /// The size of the rows in memory, in bytes, from which larger datasets are made.
    pub(crate) source: usize,
    /// The minimum number of batches in a pass of `feed`.
    pub(crate) least: usize,
    /// The number of training steps of a pass.
    pub(crate) steps: usize,
    /// The number of batches for which the loop's wait is measured.
    pub(crate) waits: usize,
    /// The number of batches that a check reads in each of its cases.
    pub(crate) checked: usize,
    /// The time that a slow kernel waits before it reads a batch again, in nanoseconds.
    pub(crate) pause: u64,
}

impl Scale {
    /// Returns the sizes for a machine with a GPU, with which a run takes some minutes.
    pub(crate) fn full(workers: usize) -> Self {
        Self {
            workers,
            rounds: 11,
            // 9.6 MB and 38.5 MB: 64 images of 3 × 224 × 224, as bytes and as f32.
            copies: vec![4 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 9_633_792, 38_535_168, 256 << 20, 1 << 30],
            copied: 512 << 20,
            locked: 1 << 30,
            batches: vec![64 << 10, 1 << 20, 9_633_792, 38_535_168],
            source: 512 << 20,
            least: 64,
            steps: 200,
            waits: 2_000,
            checked: 200,
            pause: 200_000,
        }
    }

    /// Returns the sizes of a short run that only shows whether everything works. Its times are
    /// meaningless.
    pub(crate) fn quick(workers: usize) -> Self {
        Self {
            workers,
            rounds: 2,
            copies: vec![4 << 10, 64 << 10],
            copied: 128 << 10,
            locked: 1 << 20,
            batches: vec![16 << 10, 64 << 10],
            source: 256 << 10,
            least: 8,
            steps: 10,
            waits: 20,
            checked: 12,
            pause: 1_000,
        }
    }
}
