//! What checks and measurements run on, and how large they are.

use std::fmt;
use std::io::{self, Write};

use anyhow::Result;
use slotline::Loader;
use slotline::dataset::Dataset;
use slotline_cuda::DeviceLoader;
use slotline_cuda_fake::Fake;

use crate::gpu::Gpu;

/// Samples in a batch, wherever that does not matter otherwise.
pub(crate) const ROWS: usize = 64;

/// The device and the sizes.
#[derive(Clone, Debug)]
pub(crate) struct Bench {
    pub(crate) gpu: Gpu,
    pub(crate) scale: Scale,
    /// The driver, if it is the fake one.
    pub(crate) fake: Option<&'static Fake>,
    /// Whether lines for people go to stderr, as stdout ends in JSON.
    pub(crate) json: bool,
}

impl Bench {
    /// A loader of this data whose batches go to the device, as measurements want it: shuffled.
    pub(crate) fn device_loader<D: Dataset>(&self, data: D, slots: usize) -> Result<DeviceLoader> {
        let device = &self.gpu.device;
        let builder = Loader::builder(data).batch_size(ROWS).shuffle(true).seed(0).num_workers(self.scale.workers);
        Ok(DeviceLoader::with_slots(builder.hold(slots).memory(device.pinned()).build()?, device, slots)?)
    }

    /// Says something to whoever looks on.
    pub(crate) fn say(&self, text: impl fmt::Display) {
        // Who looked on may be gone; the run goes on for its last line.
        let _ = if self.json { writeln!(io::stderr(), "{text}") } else { writeln!(io::stdout(), "{text}") };
    }
}

/// How much is done.
#[derive(Clone, Debug)]
pub(crate) struct Scale {
    /// Threads that load.
    pub(crate) workers: usize,
    /// How often each contender is visited.
    pub(crate) rounds: usize,
    /// Sizes of single copies.
    pub(crate) copies: Vec<usize>,
    /// Bytes of which a bandwidth is taken, in one visit.
    pub(crate) copied: usize,
    /// Bytes that are locked and freed again.
    pub(crate) locked: usize,
    /// Bytes of batches that are fed to the device; multiples of 8 × [`ROWS`].
    pub(crate) batches: Vec<usize>,
    /// Bytes of rows in memory, of which larger datasets are made.
    pub(crate) source: usize,
    /// Batches of a pass that feeds, at least.
    pub(crate) least: usize,
    /// Training steps of a pass.
    pub(crate) steps: usize,
    /// Batches that a check goes through, for each of its cases.
    pub(crate) checked: usize,
    /// Nanoseconds that a slow kernel waits before it reads a batch again.
    pub(crate) pause: u64,
}

impl Scale {
    /// For a machine with a GPU: some minutes.
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
            checked: 200,
            pause: 200_000,
        }
    }

    /// To see whether everything runs: no time says anything then.
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
            checked: 12,
            pause: 1_000,
        }
    }
}
