//! Counts and times while a loop runs.
//!
//! The time in the loader is the time inside `Loader::epoch` and `Pass::next`: waiting for a batch,
//! or loading samples, since the consumer loads samples instead of waiting. All other time of a
//! pass belongs to the loop's step, including the digests. The time for digests is not subtracted,
//! since workers continue to load meanwhile.

use std::time::{Duration, Instant};

use serde::Serialize;
use slotline::Batch;

use crate::digest::Digests;

/// Counts of what a loop has received, and the time that took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// The number of batches received.
    pub batches: u64,
    /// The number of samples in these batches.
    pub samples: u64,
    /// The size of all fields in bytes, without the indices.
    pub bytes: u64,
    /// The total time of the passes.
    pub time: Duration,
    /// The part of `time` that was spent inside the loader.
    pub waited: Duration,
}

impl Tally {
    /// Returns the samples per second.
    pub fn samples_per_s(&self) -> f64 {
        per_second(self.samples, self.time)
    }

    /// Returns the bytes per second.
    pub fn bytes_per_s(&self) -> f64 {
        per_second(self.bytes, self.time)
    }

    /// Returns the fraction of the time that was spent inside the loader, 0 to 1.
    pub fn wait_fraction(&self) -> f64 {
        if self.time.is_zero() { 0.0 } else { self.waited.as_secs_f64() / self.time.as_secs_f64() }
    }

    fn add(&mut self, other: &Self) {
        self.batches += other.batches;
        self.samples += other.samples;
        self.bytes += other.bytes;
        self.time += other.time;
        self.waited += other.waited;
    }
}

fn per_second(count: u64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { count as f64 / time.as_secs_f64() }
}

/// Counts and times the passes of a loop. The clock is stopped between passes.
#[derive(Debug)]
pub struct Meter {
    total: Tally,
    pass: Tally,
    /// When the current pass began.
    begun: Instant,
    /// The size of one sample in bytes, known from the first batch on.
    sample_bytes: Option<u64>,
    digests: Option<Digests>,
}

impl Meter {
    /// Creates a meter, which also computes digests of the batches if `digest` is set.
    pub fn new(digest: bool) -> Self {
        let (total, pass) = (Tally::default(), Tally::default());
        Self { total, pass, begun: Instant::now(), sample_bytes: None, digests: digest.then(Digests::default) }
    }

    /// Starts a pass.
    pub fn begin(&mut self) {
        self.begun = Instant::now();
    }

    /// Times a call into the loader.
    #[inline]
    pub fn waiting<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let outcome = call();
        self.pass.waited += begun.elapsed();
        outcome
    }

    /// Counts a batch.
    #[inline]
    pub fn count<S>(&mut self, batch: &Batch<S>) {
        let bytes = self.sample_bytes.map_or_else(|| self.weigh(batch), |sample| sample * batch.len() as u64);
        self.pass.batches += 1;
        self.pass.samples += batch.len() as u64;
        self.pass.bytes += bytes;
        if let Some(digests) = &mut self.digests {
            digests.update(batch);
        }
    }

    /// Returns the size of a batch in bytes, and records the size of a sample if all samples have
    /// the same.
    fn weigh<S>(&mut self, batch: &Batch<S>) -> u64 {
        let columns = batch.columns();
        let bytes = (0..columns.len()).filter_map(|i| columns.get(i)).map(|field| field.bytes().len() as u64).sum();
        if (0..columns.len()).all(|i| columns.offsets(i).is_none()) {
            self.sample_bytes = Some(bytes / batch.len().max(1) as u64);
        }
        bytes
    }

    /// Ends a pass and returns its tally.
    pub fn end(&mut self) -> Tally {
        let mut pass = std::mem::take(&mut self.pass);
        pass.time = self.begun.elapsed();
        self.total.add(&pass);
        pass
    }

    /// Returns the total of all passes that have ended.
    pub fn total(&self) -> &Tally {
        &self.total
    }

    /// Returns the number of batches so far, including those of the current pass.
    pub fn batches(&self) -> u64 {
        self.total.batches + self.pass.batches
    }

    /// Returns the summary of the run, the last line of `--json`.
    pub fn summary(&self, memory_ceiling_bytes: usize) -> Summary {
        let total = &self.total;
        Summary {
            batches: total.batches,
            samples: total.samples,
            bytes: total.bytes,
            seconds: total.time.as_secs_f64(),
            samples_per_s: total.samples_per_s(),
            bytes_per_s: total.bytes_per_s(),
            wait_fraction: total.wait_fraction(),
            memory_ceiling_bytes,
            order_digest: self.digests.as_ref().map(Digests::order),
            data_digest: self.digests.as_ref().map(Digests::data),
        }
    }
}

/// The results of a run.
#[derive(Debug, Serialize)]
pub struct Summary {
    batches: u64,
    samples: u64,
    bytes: u64,
    seconds: f64,
    samples_per_s: f64,
    bytes_per_s: f64,
    wait_fraction: f64,
    memory_ceiling_bytes: usize,
    /// The SHA-256 of the indices, in hexadecimal; `None` without `--digest`.
    pub order_digest: Option<String>,
    /// The SHA-256 of the data, in hexadecimal; `None` without `--digest`.
    pub data_digest: Option<String>,
}
