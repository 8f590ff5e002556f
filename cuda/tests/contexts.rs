//! Tests that calls to a device leave the CUDA context of the caller's thread as it was.

use std::ptr;

use cudarc::driver::sys::{self, CUcontext, CUresult};
use slotline_cuda::{Device, Error, Pinned, Stream, TimedEvent};
use slotline_cuda_fake::{Fake, Options};

fn current() -> CUcontext {
    let mut context = ptr::null_mut();
    // SAFETY: the driver writes the context.
    assert_eq!(unsafe { sys::cuCtxGetCurrent(&mut context) }, CUresult::CUDA_SUCCESS);
    context
}

fn make_current(context: CUcontext) {
    // SAFETY: callers pass an existing context, or null for none.
    assert_eq!(unsafe { sys::cuCtxSetCurrent(context) }, CUresult::CUDA_SUCCESS);
}

/// Returns the primary context of a device that is in use.
fn context_of(device: &Device) -> CUcontext {
    let (mut context, handle) = (ptr::null_mut(), device.ordinal() as i32);
    // SAFETY: the driver writes the context, which is released again and stays alive with the device.
    let codes =
        unsafe { [sys::cuDevicePrimaryCtxRetain(&mut context, handle), sys::cuDevicePrimaryCtxRelease_v2(handle)] };
    assert_eq!(codes, [CUresult::CUDA_SUCCESS; 2]);
    context
}

/// Returns whether the primary context of device 0 exists.
fn is_active() -> bool {
    let (mut flags, mut active) = (0, -1);
    // SAFETY: the driver writes the numbers.
    let code = unsafe { sys::cuDevicePrimaryCtxGetState(0, &mut flags, &mut active) };
    assert_eq!(code, CUresult::CUDA_SUCCESS);
    active == 1
}

/// Makes all calls that act on the current context.
fn use_everything(device: &Device) {
    let stream = Stream::new(device).unwrap();
    let (first, second) = (TimedEvent::new(device).unwrap(), TimedEvent::new(device).unwrap());
    let (registered, allocated) = (Pinned::registered(device, 5000).unwrap(), Pinned::allocated(device, 5000).unwrap());
    for stream in [&stream, &Stream::legacy_default(device), &Stream::per_thread_default(device)] {
        first.record(stream).unwrap();
        second.record(stream).unwrap();
        stream.is_idle().unwrap();
        stream.synchronize().unwrap();
        second.synchronize().unwrap();
        second.elapsed_since(&first).unwrap();
    }
    device.synchronize().unwrap();
    drop((registered, allocated, first, second, stream));
}

#[test]
fn the_current_context_is_preserved() {
    let fake = Fake::load().session(Options { devices: 2, ..Options::default() });
    let (mine, other) = (Device::new(0).unwrap(), Device::new(1).unwrap());
    for theirs in [context_of(&other), context_of(&mine)] {
        make_current(theirs);
        use_everything(&mine);
        assert_eq!(current(), theirs);
    }
    make_current(ptr::null_mut());
    let stream = Stream::new(&mine).unwrap();
    drop(Pinned::allocated(&mine, 1).unwrap());
    drop(Pinned::registered(&mine, 1).unwrap());
    mine.synchronize().unwrap();
    assert!(current().is_null());
    drop((stream, mine, other));
    assert_eq!(fake.violations(), Vec::<String>::new());
    fake.assert_released();
}

#[test]
fn calls_on_handles_do_not_query_the_context() {
    let fake = Fake::load().session(Options { devices: 2, ..Options::default() });
    let (mine, other) = (Device::new(0).unwrap(), Device::new(1).unwrap());
    let (stream, event) = (Stream::new(&mine).unwrap(), TimedEvent::new(&mine).unwrap());
    make_current(context_of(&other));
    let before = fake.calls();
    event.record(&stream).unwrap();
    stream.synchronize().unwrap();
    event.synchronize().unwrap();
    assert!(stream.is_idle().unwrap());
    assert_eq!(fake.calls(), before + 4);
    make_current(ptr::null_mut());
}

#[test]
fn a_thread_without_a_context_gets_the_device_s_context() {
    // This driver needs a context for all of these calls.
    let fake = Fake::load().session(Options { driver_version: 12_000, ..Options::default() });
    let device = Device::new(0).unwrap();
    let (stream, event) = (Stream::new(&device).unwrap(), TimedEvent::new(&device).unwrap());
    let expected = context_of(&device).addr();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert!(current().is_null());
            let before = (fake.calls(), fake.count("cuEventRecord"));
            event.record(&stream).unwrap();
            assert_eq!(fake.count("cuEventRecord"), before.1 + 2);
            assert_eq!(fake.calls(), before.0 + 4, "and two calls to get and set the context");
            event.record(&stream).unwrap();
            assert_eq!(fake.calls(), before.0 + 5);
            assert_eq!(current().addr(), expected);
            make_current(ptr::null_mut());
        });
    });
}

#[test]
fn every_call_succeeds_on_a_thread_without_a_context() {
    make_each_call_without_a_context(Options::default());
}

#[test]
fn every_call_succeeds_on_a_thread_without_a_context_with_an_older_driver() {
    make_each_call_without_a_context(Options { driver_version: 12_000, ..Options::default() });
}

fn make_each_call_without_a_context(options: Options) {
    let fake = Fake::load().session(options);
    let device = Device::new(0).unwrap();
    let [first, second] = [(); 2].map(|()| TimedEvent::new(&device).unwrap());
    let stream = Stream::new(&device).unwrap();
    let expected = context_of(&device).addr();
    // Some drivers need a context for some of these calls. The thread then keeps the device's
    // context.
    let each: [&(dyn Fn() + Sync); 6] = [
        &|| first.record(&stream).unwrap(),
        &|| second.record(&stream).unwrap(),
        &|| stream.is_idle().map(drop).unwrap(),
        &|| stream.synchronize().unwrap(),
        &|| second.synchronize().unwrap(),
        &|| second.elapsed_since(&first).map(drop).unwrap(),
    ];
    for call in each {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                call();
                assert!([0, expected].contains(&current().addr()));
                use_everything(&device);
                assert!([0, expected].contains(&current().addr()));
            });
        });
    }
    drop((first, second, stream, device));
    assert_eq!(fake.violations(), Vec::<String>::new());
    fake.assert_released();
}

#[test]
fn a_repeated_call_that_fails_again_is_an_error() {
    let fake = Fake::load().session(Options::default());
    let device = Device::new(0).unwrap();
    let stream = Stream::new(&device).unwrap();
    make_current(context_of(&device));
    for code in [201, 709] {
        fake.fail_call(0, code);
        stream.synchronize().unwrap();
        let before = fake.count("cuStreamSynchronize");
        fake.fail_from(0, code);
        let error = stream.synchronize().unwrap_err();
        fake.fail_none();
        assert!(matches!(&error, Error::Driver(error) if error.code == code), "{error}");
        assert!(fake.count("cuStreamSynchronize") <= before + 2);
    }
    make_current(ptr::null_mut());
}

#[test]
fn default_streams_do_not_depend_on_the_current_context() {
    let fake = Fake::load().session(Options { devices: 2, ..Options::default() });
    let (mine, other) = (Device::new(0).unwrap(), Device::new(1).unwrap());
    let event = TimedEvent::new(&mine).unwrap();
    make_current(context_of(&other));
    for stream in [Stream::legacy_default(&mine), Stream::per_thread_default(&mine)] {
        event.record(&stream).unwrap();
        let refused = event.record(&Stream::legacy_default(&other)).unwrap_err();
        assert!(matches!(&refused, Error::Driver(error) if error.code == 400), "{refused}");
    }
    make_current(ptr::null_mut());
    drop(event);
    assert_eq!(fake.live().events, 0);
}

#[test]
fn the_last_object_releases_the_primary_context() {
    let fake = Fake::load().session(Options::default());
    let device = Device::new(0).unwrap();
    let again = Device::new(0).unwrap();
    assert_eq!(device, again);
    let (stream, event) = (Stream::new(&device).unwrap(), TimedEvent::new(&device).unwrap());
    let pinned = Pinned::registered(&again, 1).unwrap();
    drop((device, again));
    assert!(is_active());
    event.record(&stream).unwrap();
    drop(stream);
    drop(pinned);
    assert!(is_active());
    drop(event);
    assert!(!is_active());
    assert_eq!(fake.violations(), Vec::<String>::new());
    fake.assert_released();
}
