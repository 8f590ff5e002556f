//! Checks that batches stay intact: kernels read them slowly and more than once, while the next
//! batches are copied. The results of the kernels must match the host's data.

use anyhow::{Context, Result, ensure};
use slotline::Loader;
use slotline::dataset::{Dataset, from_fn};
use slotline_cuda::{DeviceLoader, probe};

use crate::bench::{Bench, ROWS};
use crate::fold::fold;
use crate::gpu::{Gpu, Slow, Training};

const TURNS: u64 = 3;

pub(crate) fn slow_kernels(bench: &Bench) -> Result<String> {
    let mut batches = 0;
    for slots in [2, 3] {
        for workers in 0..=2 {
            batches += feed(bench, &[&bench.gpu.stream()?], slots, workers, 1)?;
        }
    }
    Ok(format!("{batches} batches, each read {TURNS} times, with 2 and 3 slots"))
}

pub(crate) fn default_stream(bench: &Bench) -> Result<String> {
    let batches = feed(bench, &[&bench.gpu.default_stream()], 2, 1, 2)?;
    Ok(format!("{batches} batches"))
}

pub(crate) fn two_streams(bench: &Bench) -> Result<String> {
    let batches = feed(bench, &[&bench.gpu.stream()?, &bench.gpu.stream()?], 2, 1, 3)?;
    Ok(format!("{batches} batches, each read on both"))
}

pub(crate) fn several_loaders(bench: &Bench) -> Result<String> {
    let batches = side_by_side(bench, &[&bench.gpu, &bench.gpu, &bench.gpu])?;
    Ok(format!("{batches} batches, by 3 loaders on 3 threads"))
}

pub(crate) fn several_devices(bench: &Bench) -> Result<String> {
    let devices = probe()?.devices.len();
    let gpus: Vec<_> = (0..devices).map(Gpu::new).collect::<Result<_>>()?;
    let batches = side_by_side(bench, &gpus.iter().collect::<Vec<_>>())?;
    Ok(format!("{batches} batches, {devices} devices"))
}

/// Runs a loader for each of these devices, each on a separate thread.
fn side_by_side(bench: &Bench, gpus: &[&Gpu]) -> Result<usize> {
    std::thread::scope(|scope| {
        let feeds = gpus.iter().enumerate().map(|(seed, &gpu)| {
            scope.spawn(move || {
                let bench = Bench { gpu: gpu.clone(), ..bench.clone() };
                feed(&bench, &[&bench.gpu.stream()?], 2, 1, 10 + seed as u64)
            })
        });
        // All threads are started before the first one is waited for.
        let feeds: Vec<_> = feeds.collect();
        feeds.into_iter().map(|feed| feed.join().expect("a feed panicked")).sum()
    })
}

/// Runs two passes, whose batches are read on all of these streams.
fn feed(bench: &Bench, streams: &[&Training<'_>], slots: usize, workers: usize, seed: u64) -> Result<usize> {
    let device = &bench.gpu.device;
    let builder = || Loader::builder(images(bench)).batch_size(ROWS).shuffle(true).seed(seed).num_workers(workers);
    let mut host = builder().build()?;
    let fed = builder().hold(slots).memory(device.pinned()).build()?;
    let mut fed = DeviceLoader::with_slots(fed, device, slots)?;
    let slow = Slow { turns: TURNS, pause: bench.scale.pause };
    let mut batches = 0;
    for epoch in 0..2 {
        let mut sums: Vec<_> = streams.iter().map(|stream| stream.sums(bench.scale.checked)).collect::<Result<_>>()?;
        for batch in fed.epoch()? {
            let batch = batch?;
            for (stream, sums) in streams.iter().zip(&mut sums) {
                batch.ready_on(&stream.seen)?;
                for i in 0..batch.fields() {
                    let field = batch.field(i).context("a field is missing")?;
                    // SAFETY: the stream waits for these bytes, and the batch is dropped after
                    // this.
                    unsafe { stream.fold((field.ptr(), field.bytes()), salt(i), slow, sums, batch.batch_index()) }?;
                }
            }
        }
        let wanted = host.epoch()?.map(|batch| Ok(expected(&batch?))).collect::<Result<Vec<_>>>()?;
        for (stream, sums) in streams.iter().zip(&sums) {
            let found = stream.read(sums)?;
            let wrong: Vec<_> = (0..wanted.len()).filter(|&task| found[task] != wanted[task]).collect();
            ensure!(
                wrong.is_empty(),
                "epoch {epoch}, {slots} slots: the kernels found other bytes in batches {wrong:?}"
            );
        }
        batches += wanted.len();
    }
    Ok(batches)
}

/// Returns images with labels, whose batches have the second of the sizes in `Scale::batches`. The
/// last batch is not full.
fn images(bench: &Bench) -> impl Dataset + use<> {
    let bytes = bench.scale.batches.get(1).map_or(1024, |bytes| bytes / ROWS);
    from_fn(bench.scale.checked * ROWS - ROWS / 2, move |i, _| Ok((vec![i as u8 ^ (i >> 8) as u8; bytes], i as i64)))
}

fn expected<S>(batch: &slotline::Batch<S>) -> u64 {
    let columns = batch.columns();
    let fields = (0..columns.len()).filter_map(|i| Some(fold(columns.get(i)?.bytes(), salt(i))));
    fields.fold(0, u64::wrapping_add).wrapping_mul(TURNS)
}

/// Returns the number that is mixed into the sum of a field, so that fields are distinguished.
fn salt(field: usize) -> u64 {
    (field as u64) << 40
}
