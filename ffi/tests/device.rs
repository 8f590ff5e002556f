//! Tests of loaders that deliver batches on a device, with a fake driver.

#[path = "../../cuda/tests/support/reads.rs"]
mod reads;
mod support;

use std::ffi::c_void;
use std::mem::{ManuallyDrop, offset_of};
use std::ops::Deref;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cudarc::driver::sys;
use reads::Reads;
use slotline_cuda::{Device, Stream, leaked};
use slotline_cuda_fake::{Fake, Options};
use slotline_ffi::*;
use support::{Batch, Digits, Loader, call, options, tensor};

type Outcome<T> = Result<T, (slotline_status, String)>;

/// A loader that delivers batches on a device.
struct DeviceLoader(Loader);

/// Options for shuffled digits in batches of 100, as in `Loader::new`.
fn shuffled(num_workers: usize) -> slotline_options {
    options(|options| {
        (options.batch_size, options.num_workers) = (100, num_workers);
        (options.shuffle, options.has_seed, options.seed) = (1, 1, 7);
    })
}

fn on_device(set: impl FnOnce(&mut slotline_device_options)) -> slotline_device_options {
    let struct_size = size_of::<slotline_device_options>();
    let mut options =
        slotline_device_options { struct_size, ordinal: 0, slots: 0, timeout_ms: 0, resumable: 0, reserved: [0; 7] };
    set(&mut options);
    options
}

impl DeviceLoader {
    fn new(options: &slotline_options, device: &slotline_device_options) -> Outcome<Self> {
        let mut loader = null_mut();
        // SAFETY: all pointers are valid.
        call(|error| unsafe { slotline_loader_new_on_device(Digits::open().0, options, device, &mut loader, error) })?;
        Ok(Self(Loader(loader)))
    }
}

impl Deref for DeviceLoader {
    type Target = Loader;

    fn deref(&self) -> &Loader {
        &self.0
    }
}

/// Functions for batches on a device.
trait OnDevice: Sized {
    fn ready_on(&self, stream: &Stream);
    fn release_on(self, stream: *mut c_void) -> Outcome<slotline_status>;
    fn export(&self, i: usize, stream: &Stream) -> Exported;
}

impl OnDevice for Batch {
    fn ready_on(&self, stream: &Stream) {
        // SAFETY: the batch is valid, and the stream belongs to the device.
        call(|error| unsafe { slotline_batch_ready_on(self.0, stream.as_raw(), error) }).unwrap();
    }

    fn release_on(self, stream: *mut c_void) -> Outcome<slotline_status> {
        // SAFETY: as above; the batch is not freed again.
        let outcome = call(|error| unsafe { slotline_batch_release_on(self.0, stream, error) });
        std::mem::forget(self);
        outcome
    }

    fn export(&self, i: usize, stream: &Stream) -> Exported {
        let mut tensor = null_mut();
        // SAFETY: the batch, the stream and the out pointer are valid.
        let outcome = call(|error| unsafe { slotline_batch_dlpack(self.0, i, stream.as_raw(), &mut tensor, error) });
        outcome.unwrap();
        Exported(tensor)
    }
}

/// A DLPack tensor on the device, deleted on drop.
struct Exported(*mut DLManagedTensorVersioned);

// SAFETY: any thread may delete it.
unsafe impl Send for Exported {}

impl Drop for Exported {
    fn drop(&mut self) {
        // SAFETY: the tensor is deleted once.
        unsafe { (*self.0).deleter.unwrap()(self.0) };
    }
}

/// Copies device memory to the host, after all earlier work on the stream.
fn download(from: *const c_void, bytes: usize, stream: &Stream) -> Vec<u8> {
    let mut to = vec![0_u8; bytes];
    // SAFETY: both buffers are that long, and the stream is synchronised before the vector is used.
    let code =
        unsafe { sys::cuMemcpyDtoHAsync_v2(to.as_mut_ptr().cast(), from.addr() as u64, bytes, stream.as_raw().cast()) };
    assert_eq!(code, sys::CUresult::CUDA_SUCCESS);
    stream.synchronize().unwrap();
    to
}

#[test]
fn device_batches_equal_host_batches() {
    for (workers, round_robin, slots) in [(0, 0, 0), (2, 0, 1), (1, 0, 2), (2, 1, 3), (0, 1, 0)] {
        let fake = Fake::load().session(Options { seed: workers as u64, ..Options::default() });
        let stream = Stream::new(&Device::new(0).unwrap()).unwrap();
        let options = slotline_options { round_robin, ..shuffled(workers) };
        let loader = DeviceLoader::new(&options, &on_device(|device| device.slots = slots)).unwrap();
        // SAFETY: the loader is valid.
        assert_eq!(unsafe { slotline_loader_len(loader.0.0) }, 18);
        let host = Loader::new(0);
        for epoch in 0..2 {
            loader.epoch().unwrap();
            host.epoch().unwrap();
            let mut task = 0;
            while let Some(expected) = host.next().unwrap() {
                let batch = loader.next().unwrap().unwrap();
                // SAFETY: the batch is valid.
                let about = unsafe {
                    (
                        slotline_batch_index(batch.0),
                        slotline_batch_epoch(batch.0),
                        slotline_batch_num_fields(batch.0),
                        slotline_batch_device(batch.0),
                        slotline_batch_device(expected.0),
                    )
                };
                assert_eq!(about, (task, epoch, 2, 0, -1));
                assert_eq!(batch.indices(), expected.indices());
                batch.ready_on(&stream);
                for i in 0..2 {
                    let (ours, theirs) = (batch.field(i), expected.field(i));
                    assert_eq!((ours.shape, ours.strides, ours.dtype), (theirs.shape, theirs.strides, theirs.dtype));
                    // SAFETY: the field has that many bytes.
                    let theirs = unsafe { std::slice::from_raw_parts(theirs.data.cast::<u8>(), theirs.bytes) };
                    assert_eq!(download(ours.data, ours.bytes, &stream), theirs);
                }
                task += 1;
                if task % 2 == 0 {
                    batch.release_on(stream.as_raw()).unwrap();
                }
            }
            assert!(loader.next().unwrap().is_none());
        }
        drop(loader);
        assert_eq!(fake.violations(), Vec::<String>::new());
    }
}

#[test]
fn a_tensor_keeps_its_slot_until_its_stream_is_done() {
    let fake = Fake::load().session(Options::default());
    let stream = Stream::new(&Device::new(0).unwrap()).unwrap();
    let loader = DeviceLoader::new(&shuffled(1), &on_device(|device| device.slots = 1)).unwrap();
    let reads = Reads::new(&fake);
    loader.epoch().unwrap();
    for release in [false, true] {
        let batch = loader.next().unwrap().unwrap();
        let (images, labels) = (batch.export(0, &stream), batch.export(1, &stream));
        // SAFETY: the tensor is valid until it is deleted.
        let tensor = unsafe { &(*images.0).dl_tensor };
        assert_eq!((tensor.device.device_type, tensor.device.device_id, tensor.ndim), (2, 0, 3));
        assert_eq!(tensor.data.cast_const(), batch.field(0).data);
        if release {
            batch.release_on(stream.as_raw()).unwrap();
        } else {
            drop(batch);
        }
        drop(images);
        // The exported labels keep the only slot in use.
        assert_eq!(loader.next().err().unwrap().0, SLOTLINE_ERROR_HELD);
        // SAFETY: as above.
        let data = unsafe { (*labels.0).dl_tensor.data };
        // Simulates a kernel that reads the labels while the next copy is about to begin.
        reads.read(stream.as_raw(), data.addr() as u64, 800);
        thread::spawn(move || drop(labels)).join().unwrap();
    }
    assert_eq!(loader.rest().len(), 16);
    drop(loader);
    reads.check("");
}

/// Options of the fake driver that make kernels slow compared with the copies.
fn slow_readers(seed: u64) -> Options {
    Options { seed, kernel_steps: 400, max_steps_per_call: 8, ..Options::default() }
}

/// Reads the images of a batch on a stream that has waited for the copy.
fn read_images(reads: &Reads<'_>, batch: &Batch, stream: &Stream) {
    let images = batch.field(0);
    reads.read(stream.as_raw(), images.data.addr() as u64, images.bytes);
}

#[test]
fn a_tensors_stream_is_waited_for_in_any_deletion_order() {
    for (seed, last) in (0..10).flat_map(|seed| [(seed, false), (seed, true)]) {
        let fake = Fake::load().session(slow_readers(seed));
        let device = Device::new(0).unwrap();
        let [reader, other] = [(); 2].map(|()| Stream::new(&device).unwrap());
        let reads = Reads::new(&fake);
        let loader = DeviceLoader::new(&shuffled(0), &on_device(|device| device.slots = 1)).unwrap();
        loader.epoch().unwrap();
        for _ in 0..3 {
            let batch = loader.next().unwrap().unwrap();
            let tensor = batch.export(0, &reader);
            read_images(&reads, &batch, &reader);
            let tensor = last.then_some(tensor);
            batch.release_on(other.as_raw()).unwrap();
            drop(tensor);
        }
        drop(loader);
        reads.check(&format!("seed {seed}, tensor last: {last}"));
    }
}

#[test]
fn the_last_tensor_waits_for_a_release_on_a_fifth_stream() {
    for seed in 0..10 {
        let fake = Fake::load().session(slow_readers(seed));
        let device = Device::new(0).unwrap();
        let streams = [(); 5].map(|()| Stream::new(&device).unwrap());
        let reads = Reads::new(&fake);
        let loader = DeviceLoader::new(&shuffled(0), &on_device(|device| device.slots = 1)).unwrap();
        loader.epoch().unwrap();
        for _ in 0..3 {
            let batch = loader.next().unwrap().unwrap();
            let tensors = [0, 1, 2, 3].map(|i| batch.export(0, &streams[i]));
            // SAFETY: the batch is valid.
            call(|error| unsafe { slotline_batch_wait(batch.0, error) }).unwrap();
            read_images(&reads, &batch, &streams[4]);
            batch.release_on(streams[4].as_raw()).unwrap();
            drop(tensors);
        }
        assert_eq!(loader.rest().len(), 15);
        drop(loader);
        reads.check(&format!("seed {seed}"));
    }
}

#[test]
fn a_refused_release_loses_the_slot_with_the_last_tensor() {
    for seed in 0..10 {
        let fake = Fake::load().session(slow_readers(seed));
        let device = Device::new(0).unwrap();
        let [first, second] = [(); 2].map(|()| Stream::new(&device).unwrap());
        let reads = Reads::new(&fake);
        let loader = DeviceLoader::new(&shuffled(0), &on_device(|device| device.slots = 2)).unwrap();
        loader.epoch().unwrap();
        let batch = loader.next().unwrap().unwrap();
        let tensor = batch.export(0, &first);
        // SAFETY: the batch is valid.
        call(|error| unsafe { slotline_batch_wait(batch.0, error) }).unwrap();
        read_images(&reads, &batch, &second);
        fake.fail_call(0, 2);
        assert_eq!(batch.release_on(second.as_raw()).unwrap_err().0, SLOTLINE_ERROR_DEVICE);
        fake.fail_none();
        let before = leaked().device_bytes;
        drop(tensor);
        let (status, message) = loader.next().err().unwrap();
        assert_eq!((status, message.contains("slots left: 1")), (SLOTLINE_ERROR_DEVICE, true), "{message}");
        assert!(leaked().device_bytes > before, "a kernel may still read it");
        assert_eq!(loader.rest().len(), 17);
        drop(loader);
        reads.check(&format!("seed {seed}"));
    }
}

#[test]
fn a_tensor_outlives_the_loader() {
    let fake = Fake::load().session(Options::default());
    let stream = Stream::new(&Device::new(0).unwrap()).unwrap();
    let loader = DeviceLoader::new(&shuffled(1), &on_device(|_| ())).unwrap();
    loader.epoch().unwrap();
    let batch = loader.next().unwrap().unwrap();
    let mut old = null_mut();
    // SAFETY: the batch, the stream and the out pointer are valid.
    call(|error| unsafe { slotline_batch_dlpack_unversioned(batch.0, 1, stream.as_raw(), &mut old, error) }).unwrap();
    let labels = batch.field(1);
    // SAFETY: the batch is valid.
    call(|error| unsafe { slotline_batch_wait(batch.0, error) }).unwrap();
    let before = download(labels.data, labels.bytes, &stream);
    drop((batch, loader));
    // SAFETY: the tensor is valid until it is deleted, and it is deleted once.
    unsafe {
        assert_eq!(download((*old).dl_tensor.data, labels.bytes, &stream), before);
        (*old).deleter.unwrap()(old);
    }
    assert_eq!(fake.violations(), Vec::<String>::new());
}

#[test]
fn freeing_a_loader_waits_for_copies_as_long_as_close_timeout_says() {
    let fake = Fake::load().session(Options::default());
    let mut host = shuffled(0);
    host.close_timeout_ms = 100;
    let loader = DeviceLoader::new(&host, &on_device(|_| ())).unwrap();
    loader.epoch().unwrap();
    fake.hold(true);
    drop(loader.next().unwrap().unwrap());
    let (start, before) = (Instant::now(), leaked());
    drop(loader);
    let took = start.elapsed();
    assert!((Duration::from_millis(100)..Duration::from_secs(5)).contains(&took), "{took:?}");
    assert!(leaked().host_bytes > before.host_bytes, "a copy may still read it");
    fake.hold(false);
}

#[test]
fn a_host_loader_resumes_from_a_device_loaders_state() {
    let _fake = Fake::load().session(Options::default());
    let host = Loader::new(0);
    host.epoch().unwrap();
    let expected = host.rest();
    let loader = DeviceLoader::new(&shuffled(2), &on_device(|device| device.resumable = 1)).unwrap();
    loader.epoch().unwrap();
    let mut got: Vec<_> = (0..5).map(|_| loader.next().unwrap().unwrap().indices().to_vec()).collect();
    let state = loader.state().unwrap();
    host.load(&state).unwrap();
    host.epoch().unwrap();
    let rest = host.rest();
    // The device loader itself can also resume from the state.
    loader.load(&state).unwrap();
    loader.epoch().unwrap();
    assert_eq!(loader.rest(), rest);
    // SAFETY: the loader is valid.
    assert_eq!(unsafe { slotline_loader_next_epoch(loader.0.0) }, 1);
    got.extend(rest);
    assert_eq!(got, expected);

    let plain = DeviceLoader::new(&shuffled(0), &on_device(|_| ())).unwrap();
    assert!(plain.state().is_ok());
    plain.epoch().unwrap();
    let (status, message) = plain.state().unwrap_err();
    assert_eq!((status, message.contains("resumable")), (SLOTLINE_ERROR_STATE, true), "{message}");
}

#[test]
fn a_stop_ends_the_device_pass_and_all_later_ones() {
    let _fake = Fake::load().session(Options::default());
    for workers in 0..3 {
        let loader = DeviceLoader::new(&shuffled(workers), &on_device(|_| ())).unwrap();
        loader.epoch().unwrap();
        let batch = loader.next().unwrap().unwrap();
        // SAFETY: the loader is valid, and any thread may stop it.
        thread::scope(|scope| scope.spawn(|| unsafe { slotline_loader_stop({ &loader }.0.0) }).join()).unwrap();
        let mut in_flight = 0;
        let (status, _) = loop {
            match loader.next() {
                Ok(batch) => in_flight += usize::from(batch.is_some()),
                Err(error) => break error,
            }
        };
        assert_eq!((status, in_flight < 3), (SLOTLINE_ERROR_STOPPED, true));
        assert_eq!(loader.next().err().unwrap().0, SLOTLINE_ERROR_STOPPED);
        assert_eq!(loader.epoch().unwrap_err().0, SLOTLINE_ERROR_STOPPED);
        drop(loader);
        assert_eq!(batch.indices().len(), 100);
    }
}

#[test]
fn driver_errors_are_device_errors() {
    let fake = Fake::load().session(Options::default());
    let mut devices = 9;
    // SAFETY: the out pointer is valid.
    call(|error| unsafe { slotline_device_probe(&mut devices, error) }).unwrap();
    assert!(devices >= 1);
    let absent = on_device(|device| device.ordinal = 99);
    let (status, message) = DeviceLoader::new(&shuffled(0), &absent).err().unwrap();
    assert_eq!((status, message.contains("no device 99")), (SLOTLINE_ERROR_DEVICE, true), "{message}");
    let loader = DeviceLoader::new(&shuffled(0), &on_device(|_| ())).unwrap();
    loader.epoch().unwrap();
    drop(loader.next().unwrap());
    // From here on, every driver call fails with an out-of-memory error.
    fake.fail_from(0, 2);
    let mut refused = 0;
    while let Err((status, _)) = loader.next() {
        assert_eq!(status, SLOTLINE_ERROR_DEVICE);
        refused += 1;
    }
    fake.fail_none();
    assert_eq!(refused, 2);
}

unsafe extern "C" fn collate(
    _: *mut c_void,
    _: *mut slotline_samples,
    _: *mut *mut c_void,
    _: *mut slotline_failure,
) -> i32 {
    0
}

unsafe extern "C" fn count(user: *mut c_void) {
    // SAFETY: `user` points to a counter of the test.
    unsafe { (*user.cast::<AtomicUsize>()).fetch_add(1, Ordering::SeqCst) };
}

#[test]
fn device_loaders_refuse_worker_processes() {
    let _fake = Fake::load().session(Options::default());
    let processes = slotline_options { processes: 1, ..shuffled(1) };
    let (status, message) = DeviceLoader::new(&processes, &on_device(|_| ())).err().unwrap();
    assert_eq!((status, message.contains("processes and ")), (SLOTLINE_ERROR_BUILD, true), "{message}");
}

#[test]
fn device_loaders_refuse_collate_and_drop_its_user_pointer() {
    let _fake = Fake::load().session(Options::default());
    let dropped = AtomicUsize::new(0);
    let collated = slotline_options {
        collate: Some(collate),
        collate_user: (&raw const dropped).cast_mut().cast(),
        collate_drop: Some(count),
        ..shuffled(0)
    };
    let (status, message) = DeviceLoader::new(&collated, &on_device(|_| ())).err().unwrap();
    assert_eq!((status, message.contains("leave collate NULL")), (SLOTLINE_ERROR_BUILD, true), "{message}");
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
    let absent = on_device(|device| device.ordinal = 99);
    assert_eq!(DeviceLoader::new(&collated, &absent).err().unwrap().0, SLOTLINE_ERROR_DEVICE);
    assert_eq!(dropped.load(Ordering::SeqCst), 2);
}

#[test]
fn nulls_short_structs_and_missing_fields_are_errors() {
    let _fake = Fake::load().session(Options::default());
    let short = slotline_device_options { struct_size: 8, ..on_device(|_| ()) };
    let (status, message) = DeviceLoader::new(&shuffled(0), &short).err().unwrap();
    assert_eq!((status, message.contains("struct_size is 8")), (SLOTLINE_ERROR_INVALID, true), "{message}");
    let mut later = on_device(|_| ());
    // A later version of the struct may have a field at this offset.
    // SAFETY: the offset is within the struct.
    unsafe { (&raw mut later).cast::<u8>().add(offset_of!(slotline_device_options, resumable) + 1).write(1) };
    let (status, message) = DeviceLoader::new(&shuffled(0), &later).err().expect("an unknown field is refused");
    assert_eq!((status, message.contains("later version")), (SLOTLINE_ERROR_INVALID, true), "{message}");
    let loader = DeviceLoader::new(&shuffled(0), &on_device(|_| ())).unwrap();
    loader.epoch().unwrap();
    let batch = loader.next().unwrap().unwrap();
    let (mut field, mut old, mut new) = (tensor(), null_mut(), null_mut());
    let mut text = null_mut();
    let (mut made, mut next) = (null_mut(), null_mut());
    let (digits, host) = (Digits::open(), Loader::new(0));
    host.epoch().unwrap();
    let (on_host, released) = (host.next().unwrap().unwrap(), ManuallyDrop::new(host.next().unwrap().unwrap()).0);
    // SAFETY: every pointer is NULL or valid.
    let outcomes = unsafe {
        [
            ("devices is NULL", call(|error| slotline_device_probe(null_mut(), error))),
            ("dataset is NULL", call(|error| slotline_loader_new_on_device(null(), null(), null(), &mut made, error))),
            ("out is NULL", call(|error| slotline_loader_new_on_device(digits.0, null(), null(), null_mut(), error))),
            ("loader is NULL", call(|error| slotline_loader_epoch(null_mut(), error))),
            ("loader is NULL", call(|error| slotline_loader_next(null_mut(), &mut next, error))),
            ("out is NULL", call(|error| slotline_loader_next(loader.0.0, null_mut(), error))),
            ("out is NULL", call(|error| slotline_loader_state(loader.0.0, null_mut(), error))),
            ("data is NULL", call(|error| slotline_loader_load_state(loader.0.0, null(), 1, error))),
            ("out is NULL", call(|error| slotline_loader_stats(loader.0.0, null_mut(), error))),
            ("loader is NULL", call(|error| slotline_loader_warnings(null_mut(), &mut text, error))),
            ("batch is NULL", call(|error| slotline_batch_field(null(), 0, &mut field, error))),
            ("out is NULL", call(|error| slotline_batch_field(batch.0, 0, null_mut(), error))),
            ("field is 2", call(|error| slotline_batch_field(batch.0, 2, &mut field, error))),
            ("batch is NULL", call(|error| slotline_batch_ready_on(null(), null_mut(), error))),
            ("batch is NULL", call(|error| slotline_batch_release_on(null_mut(), null_mut(), error))),
            ("batch is NULL", call(|error| slotline_batch_wait(null(), error))),
            ("batch is on the host", call(|error| slotline_batch_ready_on(on_host.0, null_mut(), error))),
            ("batch is on the host", call(|error| slotline_batch_wait(on_host.0, error))),
            // The batch is freed although the call fails.
            ("batch is on the host", call(|error| slotline_batch_release_on(released, null_mut(), error))),
            ("field is 2", call(|error| slotline_batch_dlpack(batch.0, 2, null_mut(), &mut new, error))),
            ("out is NULL", call(|error| slotline_batch_dlpack(batch.0, 0, null_mut(), null_mut(), error))),
            ("batch is NULL", call(|error| slotline_batch_dlpack_unversioned(null(), 0, null_mut(), &mut old, error))),
        ]
    };
    for (what, outcome) in outcomes {
        let (status, message) = outcome.expect_err(what);
        assert_eq!((status, message.contains(what)), (SLOTLINE_ERROR_INVALID, true), "{message}");
    }
    assert!(made.is_null() && next.is_null() && old.is_null() && new.is_null() && text.is_null());
    // SAFETY: NULL is allowed.
    unsafe {
        assert_eq!((slotline_batch_len(null()), slotline_batch_num_fields(null())), (0, 0));
        assert_eq!((slotline_batch_index(null()), slotline_batch_epoch(null())), (0, 0));
        assert!(slotline_batch_indices(null()).is_null());
        assert_eq!((slotline_loader_len(null()), slotline_loader_next_epoch(null_mut())), (-1, 0));
        slotline_loader_stop(null());
        slotline_loader_free(null_mut());
        slotline_batch_free(null_mut());
    }
}
