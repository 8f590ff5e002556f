//! Compares each batch on the device with the same batch of a loader without a device.

use anyhow::{Context, Result, bail, ensure};
use slotline::dataset::{Dataset, Loadable, from_fn, iter_fn};
use slotline::loader::Builder;
use slotline::sample::{Packed, PackedText, PaddedToMax, Text};
use slotline::{Batch, Loader};
use slotline_cuda::{Device, DeviceLoader};

use crate::bench::Bench;

const LETTERS: &str = "the quick brown fox jumps over the lazy dog";
static NUMBERS: [f32; 64] = {
    let (mut numbers, mut i) = ([0.0; 64], 0);
    while i < 64 {
        numbers[i] = i as f32 / 3.0;
        i += 1;
    }
    numbers
};

/// The batch size: small, so that there are many batches, and chosen such that the last batch is
/// not full.
const BATCH: usize = 7;

pub(crate) fn run(bench: &Bench) -> Result<String> {
    let mut batches = 0;
    let len = BATCH * bench.scale.checked / 4 + 3;
    for workers in 0..=2 {
        let fixed = || from_fn(len, |i, _| Ok(([i as f32; 5], i as i64, i as u8, [[i as u16; 3]; 4], i % 2 == 0)));
        batches += by_index(bench, workers, fixed)?;
        let padded =
            || from_fn(len, |i, _| Ok((PaddedToMax::new(&NUMBERS[..i % 64], 63), Text::new(&LETTERS[..i % 43], 43))));
        batches += by_index(bench, workers, padded)?;
        let packed = || {
            from_fn(len, |i, _| {
                Ok((i as f64, Packed::new(&NUMBERS[..i % 64], 64), PackedText::new(&LETTERS[..i % 43], 43)))
            })
        };
        batches += by_index(bench, workers, packed)?;
        let large = || from_fn(len / 4, |i, _| Ok((vec![i as u8; 150_528], i as i64)));
        batches += by_index(bench, workers, large)?;
        let numbers = move || iter_fn(move |_| Ok((0..len).map(|i| Ok((i as i32, [i as u8; 300])))));
        batches += compare(bench, |device| Ok(set(Loader::iterable(numbers()), workers, device).build()?))?;
    }
    Ok(format!(
        "{batches} batches of 5 kinds, loaded by 0, 1 and 2 workers from one ring, from one each and from iterators"
    ))
}

/// Compares loaders of a dataset that is read by index, with a shared ring and with one ring per
/// worker.
fn by_index<D: Dataset + 'static>(bench: &Bench, workers: usize, data: impl Fn() -> D) -> Result<usize> {
    let builder = |device: Option<&Device>| set(Loader::builder(data()), workers, device).shuffle(true).seed(7);
    let batches = compare(bench, |device| Ok(builder(device).build()?))?;
    Ok(batches + compare(bench, |device| Ok(builder(device).round_robin(true).build()?))?)
}

fn set<D: Loadable>(builder: Builder<D>, workers: usize, device: Option<&Device>) -> Builder<D> {
    let builder = builder.batch_size(BATCH).num_workers(workers).hold(2);
    match device {
        Some(device) => builder.memory(device.pinned()),
        None => builder,
    }
}

/// Compares two passes of a loader on the device with those of an equal loader without a device,
/// batch by batch.
fn compare<S>(bench: &Bench, make: impl Fn(Option<&Device>) -> Result<Loader<Batch<S>>>) -> Result<usize> {
    let training = bench.gpu.stream()?;
    let mut host = make(None)?;
    let mut fed = DeviceLoader::new(make(Some(&bench.gpu.device))?, &bench.gpu.device)?;
    let mut batches = 0;
    for _ in 0..2 {
        let mut host = host.epoch()?;
        for batch in fed.epoch()? {
            let (batch, Some(wanted)) = (batch?, host.next().transpose()?) else { bail!("one batch too many") };
            batch.ready_on(&training.seen)?;
            let (task, columns) = (wanted.batch_index(), wanted.columns());
            let found = (batch.batch_index(), batch.epoch(), batch.indices(), batch.fields());
            ensure!(found == (task, wanted.epoch(), wanted.indices(), columns.len()), "batch {task}: {found:?}");
            for i in 0..columns.len() {
                let (Some(field), Some(wanted)) = (batch.field(i), columns.get(i)) else {
                    bail!("field {i} is missing")
                };
                let found = (field.dtype(), field.shape(), field.bytes());
                let like = (wanted.dtype(), wanted.shape(), wanted.bytes().len());
                ensure!(found == like, "batch {task}, field {i}: {found:?} instead of {like:?}");
                // SAFETY: the field has this many bytes at this address, and the batch is held
                // until the copy is done.
                let bytes = unsafe { training.fetch(field.ptr(), field.bytes()) }?;
                ensure!(bytes == wanted.bytes(), "batch {task}, field {i}: the bytes differ");
                if let Some(wanted) = columns.lengths(i).or(columns.offsets(i)) {
                    let (ends, count) = field.ends().context("no lengths or offsets")?;
                    // SAFETY: the values have this many bytes at this address, and the batch is
                    // held until the copy is done.
                    let bytes = unsafe { training.fetch(ends, count * 8) }?;
                    let found: Vec<_> = bytes.as_chunks().0.iter().map(|&end| i64::from_le_bytes(end)).collect();
                    ensure!(found == wanted, "batch {task}, field {i}: ends {found:?} instead of {wanted:?}");
                }
            }
            batches += 1;
        }
        ensure!(host.next().is_none(), "one batch too few");
    }
    Ok(batches)
}
