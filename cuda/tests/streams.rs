//! Tests of owned and borrowed CUDA streams, and of measured times.

mod support;

use std::ffi::c_void;
use std::ptr;
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use cudarc::driver::sys::{self, CUresult};
use slotline::Loader;
use slotline::dataset::from_fn;
use slotline_cuda::{Device, DeviceBatch, DeviceLoader, Error, Stream, TimedEvent};
use slotline_cuda_fake::{Fake, Options, Session};
use support::reads::Reads;

fn code(error: Error) -> u32 {
    let Error::Driver(error) = error else { panic!("{error}") };
    error.code
}

fn session() -> (Session, Device) {
    let fake = Fake::load().session(Options::default());
    (fake, Device::new(0).unwrap())
}

#[test]
fn only_owned_streams_are_destroyed_with_the_last_clone() {
    let (fake, device) = session();
    let stream = Stream::new(&device).unwrap();
    // SAFETY: the stream lives until the end of the test.
    let borrowed = unsafe { Stream::from_raw(&device, stream.as_raw()) };
    assert_eq!(borrowed, stream);
    assert_ne!(stream, Stream::new(&device).unwrap());
    drop(borrowed);
    let clone = stream.clone();
    assert_eq!(clone, stream);
    drop(stream);
    clone.synchronize().unwrap();
    assert!(fake.is_absent() || fake.live().streams == 1);
    drop(clone);
    assert!(fake.is_absent() || fake.live().streams == 0);
}

#[test]
fn default_streams_keep_their_handles_and_are_not_destroyed() {
    let (fake, device) = session();
    let raw = |handle: usize| {
        // SAFETY: the default streams always exist.
        unsafe { Stream::from_raw(&device, ptr::without_provenance_mut(handle)) }
    };
    assert_eq!(raw(1), Stream::legacy_default(&device));
    assert_eq!(raw(2), Stream::per_thread_default(&device));
    for handle in [0, 1, 2] {
        assert_eq!(raw(handle).as_raw().addr(), handle);
        raw(handle).synchronize().unwrap();
        assert!(raw(handle).is_idle().unwrap());
    }
    assert!(fake.is_absent() || fake.count("cuStreamDestroy_v2") == 0);
}

#[test]
fn default_streams_of_two_threads_are_not_confused() {
    // Streams make steps only while a call waits, in an order that depends on the seed.
    for seed in 0..20 {
        let fake = Fake::load().session(Options { seed, max_steps_per_call: 0, ..Options::default() });
        let device = Device::new(0).unwrap();
        let [event, last] = [(); 2].map(|()| TimedEvent::new(&device).unwrap());
        let (stream, reads) = (Stream::per_thread_default(&device), Reads::new(&fake));
        let put_work = || {
            (0..30).for_each(|_| event.record(&stream).unwrap());
            reads.spin(stream.as_raw(), 100_000_000);
            last.record(&stream).unwrap();
        };
        let is_done = || last.elapsed_since(&last).is_ok();
        put_work();
        assert!(!stream.is_idle().unwrap());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(Stream::per_thread_default(&device).is_idle().unwrap(), "the stream of this thread is idle");
                assert!(!stream.is_idle().unwrap(), "the stream of the other thread is not");
                event.record(&stream).unwrap();
                event.synchronize().unwrap();
                assert!(is_done(), "the event is after the other thread's work");
            });
        });
        put_work();
        std::thread::scope(|scope| {
            scope.spawn(|| stream.synchronize().unwrap());
        });
        assert!(is_done());
        reads.check("");
    }
}

#[test]
fn an_unknown_return_code_is_an_error_with_its_number() {
    let (fake, device) = session();
    let stream = Stream::new(&device).unwrap();
    for unknown in [226, 12_345, u32::MAX - 1] {
        fake.fail_call(0, unknown);
        let error = stream.is_idle().unwrap_err();
        let name = if unknown == 226 { "CUDA_ERROR_CONTAINED" } else { "CUDA error" };
        assert!(error.to_string().contains(&format!("{name} ({unknown})")), "{error}");
        assert_eq!(code(error), unknown);
    }
}

#[test]
fn times_are_available_once_both_events_are_reached() {
    let (fake, device) = session();
    let stream = Stream::new(&device).unwrap();
    let (first, second) = (TimedEvent::new(&device).unwrap(), TimedEvent::new(&device).unwrap());
    assert_eq!(code(second.elapsed_since(&first).unwrap_err()), 400, "never recorded");
    let reads = Reads::new(&fake);
    if !fake.is_absent() {
        fake.hold(true);
    }
    first.record(&stream).unwrap();
    reads.spin(stream.as_raw(), 100_000_000);
    second.record(&stream).unwrap();
    assert!(!stream.is_idle().unwrap());
    assert_eq!(code(second.elapsed_since(&first).unwrap_err()), 600);
    if !fake.is_absent() {
        fake.hold(false);
    }
    second.synchronize().unwrap();
    let time = second.elapsed_since(&first).unwrap();
    assert!(!fake.is_absent() || (20..200).contains(&time.as_millis()), "{time:?}");
    assert_eq!(first.elapsed_since(&second).unwrap(), Duration::ZERO, "the other way round");
    assert!(stream.is_idle().unwrap());
    drop((first, second, stream, device));
    reads.check("");
    fake.assert_released();
}

/// A batch and its stream, for the thread's last destructor, and the destructor's result.
static LAST: Mutex<Option<(DeviceBatch, Stream)>> = Mutex::new(None);
static OUTCOME: OnceLock<Result<(), Error>> = OnceLock::new();

/// The key whose destructor is `release_last`.
static KEY: OnceLock<libc::pthread_key_t> = OnceLock::new();

/// Runs after the thread's Rust thread-locals are destroyed: in the third round of destructors, as Rust's run in the
/// second.
unsafe extern "C" fn release_last(rounds: *mut c_void) {
    if rounds.addr() > 1 {
        // SAFETY: the key exists as long as the process.
        unsafe { libc::pthread_setspecific(*KEY.get().unwrap(), ptr::without_provenance(rounds.addr() - 1)) };
        return;
    }
    let released = std::panic::catch_unwind(|| {
        let (batch, stream) = LAST.lock().unwrap().take().expect("a batch was stored");
        assert_eq!(stream, Stream::per_thread_default(stream.device()));
        drop(batch);
        Stream::per_thread_default(stream.device()).is_idle().map(drop)
    });
    let _ = OUTCOME.set(released.unwrap_or(Err(Error::NoSlots)));
}

#[test]
fn a_thread_keeps_its_default_stream_in_its_last_destructor() {
    let _fake = Fake::load().session(Options { kernel_steps: 500, max_steps_per_call: 1, ..Options::default() });
    let device = Device::new(0).unwrap();
    let dataset = from_fn(80, |index, _| Ok([index as u32; 1500]));
    let host = Loader::builder(dataset).batch_size(8).memory(device.pinned()).build().unwrap();
    let mut loader = DeviceLoader::with_slots(host, &device, 1).unwrap();
    let mut pass = loader.epoch().unwrap();
    let batch = pass.next().unwrap().unwrap();
    let of_thread = device.clone();
    let thread = std::thread::spawn(move || {
        let stream = Stream::per_thread_default(&of_thread);
        batch.ready_on(&stream).unwrap();
        of_thread.synchronize().unwrap();
        let mut context = ptr::null_mut();
        // SAFETY: the driver writes the context, which the device keeps; the key's destructor is a function.
        unsafe {
            assert_eq!(sys::cuDevicePrimaryCtxRetain(&mut context, 0), CUresult::CUDA_SUCCESS);
            assert_eq!(sys::cuCtxSetCurrent(context), CUresult::CUDA_SUCCESS);
            assert_eq!(sys::cuDevicePrimaryCtxRelease_v2(0), CUresult::CUDA_SUCCESS);
            let mut key = 0;
            assert_eq!(libc::pthread_key_create(&mut key, Some(release_last)), 0);
            assert_eq!(libc::pthread_setspecific(*KEY.get_or_init(|| key), ptr::without_provenance(3)), 0);
        }
        let field = batch.field(0).unwrap();
        let reads = Reads::new(Fake::load());
        reads.read(stream.as_raw(), field.ptr(), field.bytes());
        *LAST.lock().unwrap() = Some((batch, stream));
        reads
    });
    let reads = thread.join().unwrap();
    assert!(OUTCOME.get().unwrap().is_ok(), "{OUTCOME:?}");
    assert!(pass.by_ref().all(|batch| batch.is_ok()), "the slot was returned");
    drop(pass);
    drop(loader);
    reads.check("");
}
