//! Drops everything in different orders, also while copies and kernels are in progress.

use anyhow::{Context, Result, ensure};
use slotline_cuda::{DeviceBatch, DeviceLoader, leaked};

use crate::bench::{Bench, ROWS};
use crate::gpu::{Gpu, Training};
use crate::rows::Stamps;

const BATCHES: usize = 20;
const ROW_BYTES: usize = 1 << 10;
/// The device memory that a driver may allocate for itself during a check, in bytes.
const SLACK: usize = 4 << 20;
/// The number of times that everything is dropped on a real device, so that a leak would exceed
/// [`SLACK`].
const REPEATS: usize = 50;
/// The time that the device is busy while things are dropped, in nanoseconds.
const BUSY: u64 = 2_000_000;

pub(crate) fn run(bench: &Bench) -> Result<String> {
    let free = bench.gpu.free_bytes()?;
    let before = (leaked(), bench.fake.map(|fake| fake.live()));
    for _ in 0..if bench.fake.is_some() { 1 } else { REPEATS } {
        for order in [batch_last, half_a_pass, in_flight, loader_alone] {
            order(bench)?;
        }
    }
    let after = (leaked(), bench.fake.map(|fake| fake.live()));
    ensure!(before == after, "not everything was released: {before:?} before, {after:?} after");
    let missing = free.saturating_sub(bench.gpu.free_bytes()?);
    ensure!(missing < SLACK, "{missing} bytes of the device's memory did not come back");
    Ok("4 orders, and nothing was leaked".into())
}

fn loader(bench: &Bench) -> Result<DeviceLoader> {
    bench.device_loader(Stamps { len: BATCHES * ROWS, row_bytes: ROW_BYTES }, 2)
}

/// A batch stays valid after its pass and its loader were dropped.
fn batch_last(bench: &Bench) -> Result<()> {
    let training = bench.gpu.stream()?;
    let mut loader = loader(bench)?;
    let batch = loader.epoch()?.next().context("the pass ended early")??;
    drop(loader);
    batch.ready_on(&training.seen)?;
    read(&training, &batch)
}

/// A pass that is abandoned half-way does not affect the next one.
fn half_a_pass(bench: &Bench) -> Result<()> {
    let training = bench.gpu.stream()?;
    let mut loader = loader(bench)?;
    let mut kept = None;
    for batch in loader.epoch()?.take(BATCHES / 2) {
        let batch = batch?;
        batch.ready_on(&training.seen)?;
        kept = Some(batch);
    }
    let mut batches = 0;
    for batch in loader.epoch()? {
        let batch = batch?;
        batch.ready_on(&training.seen)?;
        read(&training, &batch)?;
        kept.take().map_or(Ok(()), |kept| read(&training, &kept))?;
        batches += 1;
    }
    ensure!(batches == BATCHES, "{batches} batches instead of {BATCHES}");
    Ok(())
}

/// Everything is dropped while the stream that reads the batches is still busy with the first one.
fn in_flight(bench: &Bench) -> Result<()> {
    let training = bench.gpu.stream()?;
    let mut loader = loader(bench)?;
    let mut pass = loader.epoch()?;
    for _ in 0..2 {
        let batch = pass.next().context("the pass ended early")??;
        batch.ready_on(&training.seen)?;
        training.spin(BUSY)?;
        batch.release_on(&training.seen)?;
    }
    drop(pass);
    drop(loader);
    training.synchronize()
}

/// The loader keeps its device alive after all other handles were dropped.
fn loader_alone(bench: &Bench) -> Result<()> {
    let gpu = Gpu::new(bench.gpu.device.ordinal())?;
    let mut loader = loader(&Bench { gpu, ..bench.clone() })?;
    let batches = loader.epoch()?.map(|batch| batch?.wait()).collect::<Result<Vec<_>, _>>()?.len();
    ensure!(batches == BATCHES, "{batches} batches instead of {BATCHES}");
    Ok(())
}

/// Checks that each row has its number. The batch must be ready on the stream.
fn read(training: &Training<'_>, batch: &DeviceBatch) -> Result<()> {
    let rows = batch.field(0).context("a field is missing")?;
    // SAFETY: the field has this many bytes at this address, and the batch is held until the copy
    // is done.
    let bytes = unsafe { training.fetch(rows.ptr(), rows.bytes()) }?;
    let numbers = bytes.as_chunks::<ROW_BYTES>().0.iter().filter_map(|row| row.first_chunk());
    let found: Vec<_> = numbers.map(|&number| i64::from_le_bytes(number)).collect();
    let wrong = found.iter().zip(batch.indices()).filter(|(found, wanted)| found != wanted).count();
    ensure!(
        found.len() == batch.len() && wrong == 0,
        "batch {}: {wrong} of {} rows are wrong",
        batch.batch_index(),
        batch.len()
    );
    Ok(())
}
