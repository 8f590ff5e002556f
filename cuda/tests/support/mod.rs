//! Shared helpers of the device loader's tests.
#![allow(dead_code)] // Each test uses only some of it.

#[cfg(target_os = "linux")]
#[path = "../../../runtime/tests/support/forked.rs"]
pub(crate) mod forked;
pub(crate) mod reads;

use std::collections::BTreeSet;
use std::time::Duration;

use cudarc::driver::sys;
use slotline::dataset::{Context, Dataset, IterableDataset, WorkerInfo};
use slotline::loader::GRACE;
use slotline::sample::{Packed, PaddedToMax};
use slotline::{BoxError, Loader};
use slotline_cuda::{Device, DeviceBatch, DeviceLoader, DeviceTensor, Error, Stream, leaked};
use slotline_cuda_fake::Fake;

/// Samples of every kind of field, large enough for copies of several pieces.
#[derive(Clone, Debug)]
pub(crate) struct Things(pub(crate) usize);

pub(crate) type Thing<'a> = (i64, [f32; 300], PaddedToMax<'a, u16>, Packed<'a, u8>);

static BYTES: [u8; 256] = {
    let mut bytes = [0; 256];
    let mut i = 0;
    while i < 256 {
        bytes[i] = i as u8;
        i += 1;
    }
    bytes
};
static WORDS: [u16; 64] = {
    let mut words = [0; 64];
    let mut i = 0;
    while i < 64 {
        words[i] = 1000 + i as u16;
        i += 1;
    }
    words
};

pub(crate) fn thing(index: usize) -> Thing<'static> {
    let (length, from) = (index % 40, index % 50);
    let padded = PaddedToMax::new(&WORDS[index % 20..][..length], 40);
    (index as i64, [index as f32; 300], padded, Packed::new(&BYTES[from..][..index % 60], 60))
}

impl Dataset for Things {
    type Sample<'a> = Thing<'a>;

    fn len(&self) -> usize {
        self.0
    }

    fn get<'a>(&'a self, index: usize, _: &'a mut Context) -> Result<Thing<'a>, BoxError> {
        Ok(thing(index))
    }
}

impl IterableDataset for Things {
    type Sample<'a> = Thing<'a>;
    type Cursor = std::ops::Range<usize>;

    fn iter(&self, worker: Option<WorkerInfo>) -> Result<Self::Cursor, BoxError> {
        Ok(worker.map_or(0..self.0, |worker| worker.share(self.0)))
    }

    fn next<'a>(&'a self, left: &'a mut Self::Cursor, _: &'a mut Context) -> Result<Option<Thing<'a>>, BoxError> {
        Ok(left.next().map(thing))
    }
}

/// Copies a field's bytes to the host, after the work that is already on the stream.
pub(crate) fn bytes_of(tensor: &DeviceTensor<'_>, stream: &Stream) -> Vec<u8> {
    download(tensor.ptr(), tensor.bytes(), stream)
}

/// Copies device memory to the host, after the work that is already on the stream.
pub(crate) fn download(from: u64, bytes: usize, stream: &Stream) -> Vec<u8> {
    let mut to = vec![0_u8; bytes];
    // A thread without earlier calls has no context, and the copy below is not made by slotline, which would set one.
    stream.is_idle().unwrap();
    // SAFETY: callers pass a valid range, and the stream is waited for before the vector is used.
    let code = unsafe { sys::cuMemcpyDtoHAsync_v2(to.as_mut_ptr().cast(), from, bytes, stream.as_raw().cast()) };
    assert_eq!(code, sys::CUresult::CUDA_SUCCESS);
    stream.synchronize().unwrap();
    to
}

/// Returns the seeds of `most` schedules, or of a few if the driver is a real one, whose schedule
/// no seed determines.
pub(crate) fn seeds(most: u64) -> std::ops::Range<u64> {
    0..if Fake::load().is_absent() { most.min(20) } else { most }
}

fn words(bytes: &[u8]) -> Vec<i64> {
    bytes.chunks_exact(8).map(|word| i64::from_ne_bytes(word.try_into().unwrap())).collect()
}

/// Checks a batch of [`Things`] on the device.
pub(crate) fn check(batch: &DeviceBatch, stream: &Stream) {
    let indices: Vec<_> = batch.indices().iter().map(|&index| index as usize).collect();
    check_samples(batch, stream, &indices);
}

/// Works like [`check`], for samples that have other indices than the batch's, or none.
pub(crate) fn check_samples(batch: &DeviceBatch, stream: &Stream, samples: &[usize]) {
    batch.ready_on(stream).unwrap();
    let rows = samples.len();
    assert_eq!((batch.len(), batch.fields()), (rows, 4));
    let fields: Vec<_> = (0..4).map(|i| batch.field(i).unwrap()).collect();
    let total: usize = samples.iter().map(|sample| sample % 60).sum();
    let shapes: Vec<_> = fields.iter().map(|field| field.shape().to_vec()).collect();
    assert_eq!(shapes, [vec![rows], vec![rows, 300], vec![rows, 40], vec![total]]);
    assert_eq!(words(&bytes_of(&fields[0], stream)), samples.iter().map(|&n| n as i64).collect::<Vec<_>>());
    let floats: Vec<_> = samples.iter().flat_map(|&n| [n as f32; 300]).flat_map(f32::to_ne_bytes).collect();
    assert_eq!(bytes_of(&fields[1], stream), floats);
    let padded = samples.iter().flat_map(|&n| (0..40).map(move |i| if i < n % 40 { WORDS[n % 20 + i] } else { 0 }));
    assert_eq!(bytes_of(&fields[2], stream), padded.flat_map(u16::to_ne_bytes).collect::<Vec<_>>());
    let packed: Vec<_> = samples.iter().flat_map(|&n| &BYTES[n % 50..][..n % 60]).copied().collect();
    assert_eq!(bytes_of(&fields[3], stream), packed);
    let ends = |i: usize| {
        let (ptr, len) = fields[i].ends().unwrap();
        words(&download(ptr, len * 8, stream))
    };
    assert_eq!(ends(2), samples.iter().map(|n| (n % 40) as i64).collect::<Vec<_>>());
    let mut offsets = vec![0];
    offsets.extend(samples.iter().scan(0, |end, n| {
        *end += (n % 60) as i64;
        Some(*end)
    }));
    assert_eq!(ends(3), offsets);
    assert!(fields[0].ends().is_none());
}

/// Creates a loader of [`Things`] to a device.
pub(crate) fn loader(device: &Device, samples: usize, workers: usize, slots: usize) -> DeviceLoader {
    loader_closed_within(GRACE, device, samples, workers, slots)
}

/// Creates a loader like [`loader`] with this `close_timeout`, the longest time that its drop waits
/// for the device.
pub(crate) fn loader_closed_within(
    time: Duration,
    device: &Device,
    samples: usize,
    workers: usize,
    slots: usize,
) -> DeviceLoader {
    let builder = Loader::builder(Things(samples)).batch_size(8).shuffle(true).seed(7).num_workers(workers).hold(slots);
    let host = builder.close_timeout(time).memory(device.pinned()).build().unwrap();
    DeviceLoader::with_slots(host, device, slots).unwrap()
}

/// Runs passes and compares all batches.
pub(crate) fn check_passes(loader: &mut DeviceLoader, stream: &Stream, samples: usize, passes: usize) {
    for _ in 0..passes {
        let mut seen = BTreeSet::new();
        for (task, batch) in loader.epoch().unwrap().enumerate() {
            let batch = batch.unwrap();
            assert_eq!(batch.batch_index(), task);
            check(&batch, stream);
            seen.extend(batch.indices().to_vec());
        }
        assert_eq!(seen.len(), samples);
    }
}

/// Checks that everything that is still alive in the fake driver was counted as leaked since `leaked_before`.
pub(crate) fn nothing_is_lost(fake: &Fake, leaked_before: slotline_cuda::Leaked) {
    let leaked = leaked();
    if fake.is_absent() {
        return;
    }
    let live = fake.live();
    assert_eq!(live.device_bytes as u64, leaked.device_bytes - leaked_before.device_bytes, "{live:?}");
    let host = live.registered_bytes + live.host_alloc_bytes;
    assert_eq!(host as u64, leaked.host_bytes - leaked_before.host_bytes, "{live:?}");
    let handles = live.streams + live.events + live.contexts;
    assert_eq!(handles as u64, leaked.handles - leaked_before.handles, "{live:?}");
}

/// Returns the error that was returned instead of a batch.
pub(crate) fn error_of(next: Option<Result<DeviceBatch, Error>>) -> Error {
    next.expect("not the end").expect_err("an error")
}
