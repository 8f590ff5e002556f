//! What the fake driver refuses, and with which codes: as `cuda.h` specifies, or stricter.

mod support;

use std::ptr::null_mut;

use slotline_cuda_fake::{Fake, Live, Options, Session};
use support::*;

const BYTES: usize = 64 << 10;

const INVALID_VALUE: u32 = 1;
const OUT_OF_MEMORY: u32 = 2;
const NO_DEVICE: u32 = 100;
const INVALID_DEVICE: u32 = 101;
const INVALID_CONTEXT: u32 = 201;
const INVALID_HANDLE: u32 = 400;
const NOT_FOUND: u32 = 500;
const ILLEGAL_ADDRESS: u32 = 700;
const LAUNCH_TIMEOUT: u32 = 702;
const CONTEXT_IS_DESTROYED: u32 = 709;
const ALREADY_REGISTERED: u32 = 712;
const NOT_REGISTERED: u32 = 713;

fn session() -> Session {
    session_with(Options::default())
}

fn session_with(options: Options) -> Session {
    Fake::load().session(options)
}

/// Returns pages of this process that are not registered with the driver.
fn pages(bytes: usize) -> *mut u8 {
    let layout = std::alloc::Layout::from_size_align(bytes, 4096).unwrap();
    // SAFETY: the size is not 0. The pages are never freed, since the tests need little memory.
    unsafe { std::alloc::alloc_zeroed(layout) }
}

fn register(start: *mut u8, bytes: usize) -> u32 {
    cu!(cuMemHostRegister_v2(start.cast(), bytes, PORTABLE))
}

#[test]
fn calls_on_a_thread_without_a_context_fail() {
    let _fake = session();
    context(0);
    let (stream, event) = (stream(0) as usize, event() as usize);
    std::thread::spawn(move || {
        let mut start = 0;
        assert_eq!(cu!(cuMemAlloc_v2(&mut start, 1)), INVALID_CONTEXT);
        assert_eq!(cu!(cuEventRecord(event as _, stream as _)), INVALID_CONTEXT);
        assert_eq!(cu!(cuEventQuery(event as _)), INVALID_CONTEXT);
        let mut current = null_mut();
        assert_eq!((cu!(cuCtxGetCurrent(&mut current)), current), (0, null_mut()));
        context(0);
        assert_eq!(cu!(cuEventRecord(event as _, stream as _)), 0);
    })
    .join()
    .unwrap();
}

#[test]
fn objects_left_in_a_destroyed_context_are_counted() {
    let fake = session();
    context(0);
    context(0);
    let (stream, _memory) = (stream(0), device_memory(100));
    assert_eq!(cu!(cuDevicePrimaryCtxRelease_v2(0)), 0);
    assert_eq!(cu!(cuStreamQuery(stream)), 0);
    assert_eq!(cu!(cuDevicePrimaryCtxRelease_v2(0)), 0);
    assert_eq!(cu!(cuStreamQuery(stream)), CONTEXT_IS_DESTROYED);
    assert_eq!(cu!(cuDevicePrimaryCtxRelease_v2(0)), INVALID_CONTEXT);
    assert_eq!(fake.live(), Live { streams: 1, device_bytes: 100, ..Live::default() });
    assert_eq!(fake.reset(Options::default()), Live { streams: 1, device_bytes: 100, ..Live::default() });
    assert_eq!(fake.live(), Live::default());
}

#[test]
fn the_number_of_devices_is_configurable() {
    let fake = session_with(Options { devices: 2, ..Options::default() });
    let mut device = 0;
    assert_eq!(cu!(cuInit(0)), 0);
    assert_eq!((cu!(cuDeviceGet(&mut device, 1)), device), (0, 1));
    assert_eq!(cu!(cuDeviceGet(&mut device, 2)), INVALID_DEVICE);
    assert_eq!(cu!(cuDeviceGet(&mut device, -1)), INVALID_DEVICE);
    fake.reset(Options { devices: 0, ..Options::default() });
    assert_eq!(cu!(cuInit(0)), NO_DEVICE);
}

#[test]
fn invalid_handles_are_refused() {
    let _fake = session();
    context(0);
    let (stream, event) = (stream(0), event());
    assert_eq!(cu!(cuEventRecord(0x1234 as _, stream)), INVALID_HANDLE);
    assert_eq!(cu!(cuEventRecord(event, 0x1234 as _)), INVALID_HANDLE);
    assert_eq!(cu!(cuEventRecord(stream.cast(), event.cast())), INVALID_HANDLE);
    assert_eq!(cu!(cuEventDestroy_v2(event)), 0);
    assert_eq!(cu!(cuEventDestroy_v2(event)), INVALID_HANDLE);
    assert_eq!(cu!(cuStreamDestroy_v2(stream)), 0);
    assert_eq!(cu!(cuStreamSynchronize(stream)), INVALID_HANDLE);
    assert_eq!(cu!(cuStreamDestroy_v2(0x2 as _)), INVALID_HANDLE);
}

#[test]
fn an_event_can_be_waited_for_but_not_recorded_across_devices() {
    let fake = session_with(Options { devices: 2, ..Options::default() });
    context(0);
    let (copies, event, from, to) = (stream(NON_BLOCKING), event(), host_memory(BYTES), device_memory(BYTES));
    context(1);
    let other = stream(NON_BLOCKING);
    assert_eq!(cu!(cuEventRecord(event, other)), INVALID_HANDLE);
    // Handles determine the device, regardless of the current one.
    assert_eq!(to_device(to, from, BYTES, copies), 0);
    assert_eq!(cu!(cuEventRecord(event, copies)), 0);
    assert_eq!(cu!(cuStreamWaitEvent(other, event, 0)), 0);
    assert_eq!(cu!(cuStreamSynchronize(other)), 0);
    assert_eq!(cu!(cuEventQuery(event)), 0);
    assert_eq!(to_device(to, from, BYTES, other), INVALID_VALUE);
    assert_eq!(fake.violations(), ["a stream of device 1 uses memory of device 0"]);
}

#[test]
fn a_wait_refers_to_the_latest_record_before_it() {
    let fake = session();
    context(0);
    let (one, two, event) = (stream(NON_BLOCKING), stream(NON_BLOCKING), event());
    let (from, to) = (host_memory(BYTES), device_memory(BYTES));
    assert_eq!(cu!(cuEventQuery(event)), 0, "never recorded");
    assert_eq!(cu!(cuEventSynchronize(event)), 0);
    fake.hold(true);
    assert_eq!(cu!(cuEventRecord(event, one)), 0);
    assert_eq!(cu!(cuStreamWaitEvent(two, event, 0)), 0);
    assert_eq!(to_device(to, from, BYTES, one), 0);
    assert_eq!(cu!(cuEventRecord(event, one)), 0);
    fake.hold(false);
    // Stream two waits only for the first record; the event is done with the second.
    while cu!(cuStreamQuery(two)) == NOT_READY {}
    assert_eq!(cu!(cuEventQuery(event)), NOT_READY);
    assert_eq!(cu!(cuEventSynchronize(event)), 0);
    assert_eq!(fake.pending(), 0);
}

#[test]
fn held_streams_make_no_step_and_waits_time_out() {
    let fake = session();
    context(0);
    let (stream, event, from, to) = (stream(0), event(), host_memory(BYTES), device_memory(BYTES));
    fake.hold(true);
    assert_eq!(cu!(cuStreamSynchronize(stream)), 0, "nothing to wait for");
    assert_eq!(to_device(to, from, BYTES, stream), 0);
    assert_eq!(cu!(cuEventRecord(event, stream)), 0);
    for _ in 0..100 {
        assert_eq!(cu!(cuEventQuery(event)), NOT_READY);
    }
    assert_eq!(cu!(cuEventSynchronize(event)), LAUNCH_TIMEOUT);
    assert_eq!(cu!(cuCtxSynchronize()), LAUNCH_TIMEOUT);
    assert_eq!(cu!(cuDevicePrimaryCtxRelease_v2(0)), LAUNCH_TIMEOUT);
    assert_eq!(fake.advance(5), 0);
    assert_eq!(fake.pending(), 2);
    fake.hold(false);
    assert_eq!(fake.advance(5), 5);
    assert_eq!(cu!(cuEventSynchronize(event)), 0);
}

#[test]
fn only_blocking_streams_wait_for_the_legacy_stream() {
    for seed in 0..50 {
        let fake = session_with(Options { seed, ..Options::default() });
        context(0);
        let (from, to) = (host_memory(BYTES), device_memory(BYTES));
        // 0 and 1 are the legacy stream, 2 is the per-thread default stream.
        for stream in [null_mut(), stream(0), 0x1 as _, 0x2 as _, null_mut()] {
            assert_eq!(to_device(to, from, BYTES, stream), 0);
        }
        assert_eq!(cu!(cuStreamSynchronize(null_mut())), 0);
        assert_eq!(fake.violations(), [""; 0], "seed {seed}");
        assert_eq!(fake.pending(), 0);
    }
    let fake = session();
    context(0);
    let (from, to) = (host_memory(BYTES), device_memory(BYTES));
    assert_eq!(to_device(to, from, BYTES, null_mut()), 0);
    assert_eq!(to_device(to, from, BYTES, stream(NON_BLOCKING)), 0);
    assert_eq!(cu!(cuCtxSynchronize()), 0);
    assert_eq!(fake.violations().len(), 1, "{:?}", fake.violations());
}

#[test]
fn a_destroyed_stream_still_finishes_its_work() {
    let fake = session();
    context(0);
    let (stream, from, to) = (stream(NON_BLOCKING), host_memory(BYTES), device_memory(BYTES));
    write(from, BYTES, 7);
    assert_eq!(to_device(to, from, BYTES, stream), 0);
    assert_eq!(cu!(cuStreamDestroy_v2(stream)), 0);
    assert_eq!(fake.live().streams, 0);
    assert_eq!(cu!(cuCtxSynchronize()), 0);
    assert_eq!(bytes_on_device(to, BYTES), [7; BYTES]);
}

#[test]
fn host_memory_is_registered_once_and_by_whole_pages() {
    let fake = session();
    context(0);
    let start = pages(BYTES);
    // SAFETY: addresses inside the pages.
    let (second, last) = unsafe { (start.add(4096), start.add(BYTES - 1)) };
    assert_eq!(cu!(cuMemHostUnregister(start.cast())), NOT_REGISTERED);
    assert_eq!(register(start, 5000), 0);
    assert_eq!(register(start, 5000), ALREADY_REGISTERED);
    assert_eq!(register(second, 1), ALREADY_REGISTERED);
    assert_eq!(register(last, 1), 0);
    assert_eq!(fake.live().registered_bytes, 5001);
    assert_eq!(cu!(cuMemHostUnregister(second.cast())), NOT_REGISTERED);
    assert_eq!(cu!(cuMemFreeHost(start.cast())), INVALID_VALUE);
    assert_eq!(cu!(cuMemHostUnregister(start.cast())), 0);
    assert_eq!(cu!(cuMemHostUnregister(last.cast())), 0);
    assert_eq!(register(start, BYTES), 0);
    assert_eq!(fake.live().registered_bytes, BYTES);
}

#[test]
fn copies_from_pageable_memory_are_counted_and_staged() {
    let fake = session();
    context(0);
    let (stream, start, to) = (stream(NON_BLOCKING), pages(BYTES), device_memory(BYTES));
    write(start, BYTES, 1);
    assert_eq!(to_device(to, start, BYTES, stream), 0);
    write(start, BYTES, 2);
    assert_eq!(cu!(cuStreamSynchronize(stream)), 0);
    assert_eq!(bytes_on_device(to, BYTES), [1; BYTES]);
    assert_eq!((fake.pageable_copies(), fake.violations()), (2, vec![]));

    assert_eq!(register(start, BYTES / 2), 0);
    assert_eq!(to_device(to, start, BYTES / 2, stream), 0);
    assert_eq!(fake.pageable_copies(), 2);
    // Partly registered, or in two registrations: no driver copies such memory.
    assert_eq!(to_device(to, start, BYTES, stream), INVALID_VALUE);
    // SAFETY: inside the pages.
    assert_eq!(register(unsafe { start.add(BYTES / 2) }, BYTES / 2), 0);
    assert_eq!(to_device(to, start, BYTES, stream), INVALID_VALUE);
    assert_eq!(fake.violations().len(), 2);
}

#[test]
fn memory_released_during_a_copy_is_noticed() {
    let fake = session();
    context(0);
    let (stream, start, to) = (stream(NON_BLOCKING), pages(BYTES), device_memory(BYTES));
    assert_eq!(register(start, BYTES), 0);
    fake.hold(true);
    assert_eq!(to_device(to, start, BYTES, stream), 0);
    assert_eq!(cu!(cuMemHostUnregister(start.cast())), LAUNCH_TIMEOUT);
    assert_eq!(cu!(cuMemFree_v2(to)), LAUNCH_TIMEOUT);
    assert_eq!(fake.violations().len(), 2);
    fake.hold(false);
    assert_eq!(cu!(cuMemFree_v2(to)), 0);
    assert_eq!(fake.violations().len(), 3);
    assert_eq!(cu!(cuMemHostUnregister(start.cast())), 0);
    assert_eq!(fake.violations().len(), 3);
    assert_eq!(cu!(cuMemFree_v2(to)), INVALID_VALUE);
    assert_eq!(fake.violations()[3], format!("frees {to:#x} a second time"));
}

#[test]
fn the_memory_of_a_device_is_limited() {
    let fake = session_with(Options { memory_bytes: 1 << 20, ..Options::default() });
    context(0);
    let mut start = 0;
    let (mut free, mut total) = (0, 0);
    let first = device_memory(1 << 19);
    assert_eq!(cu!(cuMemAlloc_v2(&mut start, (1 << 19) + 1)), OUT_OF_MEMORY);
    assert_eq!(cu!(cuMemAlloc_v2(&mut start, usize::MAX)), OUT_OF_MEMORY);
    assert_eq!(cu!(cuMemAlloc_v2(&mut start, 0)), INVALID_VALUE);
    assert_eq!(cu!(cuMemGetInfo_v2(&mut free, &mut total)), 0);
    assert_eq!((free, total), (1 << 19, 1 << 20));
    assert_eq!(cu!(cuMemFree_v2(first)), 0);
    assert_eq!(fake.live().device_bytes, 0);
    assert_ne!(device_memory(1 << 20), first, "addresses are not reused");
}

#[test]
fn a_copy_stays_within_one_allocation() {
    let fake = session();
    context(0);
    let (stream, from, to) = (stream(0), host_memory(BYTES), device_memory(BYTES));
    assert_eq!(to_device(to + 1, from, BYTES - 1, stream), 0);
    assert_eq!(to_device(to + 1, from, BYTES, stream), INVALID_VALUE);
    assert_eq!(to_device(from as u64, from, BYTES, stream), INVALID_VALUE);
    assert_eq!(cu!(cuStreamSynchronize(stream)), 0);
    assert_eq!(cu!(cuMemFree_v2(to)), 0);
    assert_eq!(to_device(to, from, BYTES, stream), INVALID_VALUE);
    let expected = [
        format!("{BYTES} bytes at {:#x} run past the end of {BYTES} allocated bytes", to + 1),
        format!("{:#x} is not device memory", from as usize),
        format!("device memory {to:#x} was freed"),
    ];
    assert_eq!(fake.violations(), expected);
}

#[test]
fn invalid_addresses_and_sizes_are_refused() {
    let fake = session();
    context(0);
    let (stream, memory, end) = (stream(0), device_memory(BYTES), usize::MAX - 10);
    assert_eq!(to_device(memory, end as _, BYTES, stream), INVALID_VALUE);
    assert_eq!(to_device(memory, null_mut(), BYTES, stream), INVALID_VALUE);
    assert_eq!(to_device(memory, host_memory(1), usize::MAX, stream), INVALID_VALUE);
    assert_eq!(to_device(end as u64, host_memory(1), BYTES, stream), INVALID_VALUE);
    assert_eq!(register(end as _, BYTES), INVALID_VALUE);
    assert_eq!(register(end as _, 1), INVALID_VALUE);
    assert_eq!(register(null_mut(), BYTES), INVALID_VALUE);
    assert_eq!(cu!(cuMemFreeAsync(memory + 1 + BYTES as u64, stream)), INVALID_VALUE);
    assert_eq!(cu!(cuMemHostAlloc(&mut null_mut(), usize::MAX, 0)), OUT_OF_MEMORY);
    assert_eq!(cu!(cuMemHostAlloc(null_mut(), 1, 0)), INVALID_VALUE);
    assert_eq!(fake.pending(), 0);
    assert_eq!(fake.read_on(stream.cast(), end as u64, usize::MAX), Ok(()));
    assert_eq!(cu!(cuStreamSynchronize(stream)), ILLEGAL_ADDRESS);
}

#[test]
fn a_kernel_that_reads_freed_memory_breaks_its_context() {
    let fake = session_with(Options { devices: 2, ..Options::default() });
    context(1);
    context(0);
    let (stream, memory) = (stream(0), device_memory(BYTES));
    assert_eq!(cu!(cuMemFree_v2(memory)), 0);
    assert_eq!(fake.read_on(stream.cast(), memory, BYTES), Ok(()));
    assert_eq!(cu!(cuStreamSynchronize(stream)), ILLEGAL_ADDRESS);
    assert_eq!(cu!(cuStreamQuery(stream)), ILLEGAL_ADDRESS);
    assert_eq!(fake.violations().len(), 1);
    context(1);
    assert_eq!(cu!(cuCtxSynchronize()), 0, "the other device still works");
}

#[test]
fn an_injected_failure_has_no_effect_on_the_state() {
    let fake = session();
    context(0);
    let mut memory = 0;
    fake.fail_call(1, OUT_OF_MEMORY);
    assert_eq!(cu!(cuMemAlloc_v2(&mut memory, 100)), 0);
    assert_eq!(cu!(cuMemAlloc_v2(&mut memory, 100)), OUT_OF_MEMORY);
    assert_eq!(cu!(cuMemAlloc_v2(&mut memory, 100)), 0);
    assert_eq!(fake.live().device_bytes, 200);
    fake.fail_from(0, ILLEGAL_ADDRESS);
    assert_eq!(cu!(cuMemFree_v2(memory)), ILLEGAL_ADDRESS);
    assert_eq!(cu!(cuCtxSynchronize()), ILLEGAL_ADDRESS);
    fake.fail_none();
    assert_eq!(cu!(cuMemFree_v2(memory)), 0);
    assert_eq!((fake.count("cuMemAlloc_v2"), fake.count("cuMemFree_v2"), fake.count("cuLaunchKernel")), (3, 2, 0));
    assert_eq!(fake.calls(), 3 + 6, "including the calls that set up the context");
}

#[test]
fn error_codes_have_cuda_s_names() {
    let _fake = session();
    let mut text = std::ptr::null();
    for (code, name) in
        [(sys::CUresult::CUDA_SUCCESS, "CUDA_SUCCESS"), (sys::CUresult::CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY")]
    {
        assert_eq!(cu!(cuGetErrorName(code, &mut text)), 0);
        // SAFETY: the driver returned a C string.
        assert_eq!(unsafe { std::ffi::CStr::from_ptr(text) }.to_str(), Ok(name));
    }
    assert_eq!(cu!(cuGetErrorString(sys::CUresult::CUDA_ERROR_TIMEOUT, &mut text)), INVALID_VALUE);
    assert!(text.is_null());
}

/// Uses cudarc, which knows which of the two calls it was built for.
fn elapsed(start: sys::CUevent, end: sys::CUevent) -> Result<f32, u32> {
    // SAFETY: both are events of the fake driver.
    unsafe { cudarc::driver::result::event::elapsed(start, end) }.map_err(|error| error.0 as u32)
}

#[test]
fn the_time_between_events_is_the_number_of_steps() {
    let fake = session();
    context(0);
    let (stream, from, to) = (stream(0), host_memory(BYTES), device_memory(BYTES));
    let (mut start, mut end) = (null_mut(), null_mut());
    assert_eq!(cu!(cuEventCreate(&mut start, 0)), 0);
    assert_eq!(cu!(cuEventCreate(&mut end, 0)), 0);
    assert_eq!(elapsed(start, end), Err(INVALID_HANDLE));
    assert_eq!(cu!(cuEventRecord(start, stream)), 0);
    assert_eq!(to_device(to, from, BYTES, stream), 0);
    assert_eq!(cu!(cuEventRecord(end, stream)), 0);
    fake.hold(true);
    assert_eq!(elapsed(start, end), Err(NOT_READY));
    fake.hold(false);
    assert_eq!(cu!(cuStreamSynchronize(stream)), 0);
    let time = elapsed(start, end).unwrap();
    // 16 pieces, up to 8 turns late, and the record itself: a microsecond each.
    assert!((0.017..=0.025).contains(&time), "{time}");
    let plain = event();
    assert_eq!(elapsed(start, plain), Err(INVALID_HANDLE));
}

#[test]
fn a_loaded_module_has_the_functions_that_it_declares() {
    let fake = session();
    context(0);
    let (mut module, mut function) = (null_mut(), null_mut());
    let ptx = c".entry known(.param .u64 p) { ret; }";
    assert_eq!(cu!(cuModuleLoadData(&mut module, c"\x7fELF".as_ptr().cast())), 209);
    assert_eq!(cu!(cuModuleLoadData(&mut module, c"no PTX".as_ptr().cast())), 218);
    assert_eq!(cu!(cuModuleLoadData(&mut module, ptx.as_ptr().cast())), 0);
    assert_eq!(cu!(cuModuleGetFunction(&mut function, module, c"unknown".as_ptr())), NOT_FOUND);
    assert_eq!(cu!(cuModuleGetFunction(&mut function, module, c"known".as_ptr())), 0);
    let launch = |threads| {
        let (mut value, none) = (7u64, null_mut());
        let mut params = [(&raw mut value).cast()];
        cu!(cuLaunchKernel(function, 1, 1, 1, threads, 1, 1, 0, none, params.as_mut_ptr(), null_mut()))
    };
    assert_eq!(launch(32), 0);
    assert_eq!(launch(0), INVALID_VALUE);
    assert_eq!(launch(1025), INVALID_VALUE);
    assert_eq!(cu!(cuModuleUnload(module)), 0);
    assert_eq!(launch(32), INVALID_HANDLE);
    assert_eq!(cu!(cuCtxSynchronize()), 0, "launched kernels continue");
    assert_eq!(fake.pending(), 0);
}
