//! The calls that the fake driver refuses, and the codes that it returns: the same as a real
//! driver, as `cuda.h` specifies, or stricter.
//!
//! With `SLOTLINE_REAL_DRIVER` set, the tests show where a real driver differs. Behaviour of only
//! the fake driver is tested at the end of each test.

mod support;

use std::ffi::{CStr, c_char};
use std::ptr::{null, null_mut};

use slotline_cuda_fake::{Fake, Live, Options, Session};
use support::*;

const BYTES: usize = 64 << 10;

const INVALID_VALUE: u32 = 1;
const OUT_OF_MEMORY: u32 = 2;
const NO_DEVICE: u32 = 100;
const INVALID_DEVICE: u32 = 101;
const INVALID_IMAGE: u32 = 200;
const INVALID_CONTEXT: u32 = 201;
const INVALID_PTX: u32 = 218;
const INVALID_HANDLE: u32 = 400;
const NOT_FOUND: u32 = 500;
const ILLEGAL_ADDRESS: u32 = 700;
const LAUNCH_TIMEOUT: u32 = 702;
const CONTEXT_IS_DESTROYED: u32 = 709;
const ALREADY_REGISTERED: u32 = 712;
const NOT_REGISTERED: u32 = 713;
const NOT_SUPPORTED: u32 = 801;

/// The calls that returned another code than expected. A test makes all of its calls before it
/// fails, so that one run on a real driver shows all differences.
#[derive(Default)]
struct Codes(Vec<String>);

impl Codes {
    #[track_caller]
    fn check(&mut self) {
        assert!(self.0.is_empty(), "\n{}", self.0.join("\n"));
    }
}

/// Makes a call, and notes its code if it is not the expected one.
macro_rules! gives {
    ($codes:ident, $call:expr, $expected:expr) => {{
        // If a call crashes, the last line of the output names it.
        eprintln!("line {}: {}", line!(), stringify!($call));
        let (code, expected) = ($call, $expected);
        if code != expected {
            $codes.0.push(format!("line {}: {} returned {code}, not {expected}", line!(), stringify!($call)));
        }
    }};
}

fn session() -> Session {
    session_with(Options::default())
}

fn session_with(options: Options) -> Session {
    Fake::load().session(options)
}

/// Returns pages of this process that are not registered with the driver.
fn pages(bytes: usize) -> *mut u8 {
    let layout = std::alloc::Layout::from_size_align(bytes, 4096).unwrap();
    // SAFETY: the size is not 0. The pages are never freed, which is acceptable as the tests need
    // little memory.
    unsafe { std::alloc::alloc_zeroed(layout) }
}

fn register(start: *mut u8, bytes: usize) -> u32 {
    cu!(cuMemHostRegister_v2(start.cast(), bytes, PORTABLE))
}

/// Makes calls on a thread without a context. `expected` is the code of those calls for which a
/// driver of CUDA 13.0 needs no context.
fn call_without_a_context(expected: u32) {
    context(0);
    let (memory, locked) = (device_memory(BYTES), host_memory(BYTES) as usize);
    let [stream, other_stream] = [(); 2].map(|()| stream(NON_BLOCKING) as usize);
    let [event, other_event] = [(); 2].map(|()| event() as usize);
    std::thread::spawn(move || {
        let (mut codes, mut start, mut size, mut number) = (Codes::default(), 0, 0, 0);
        let (mut new_stream, mut new_event, mut current) = (null_mut(), null_mut(), null_mut());
        gives!(codes, cu!(cuMemAlloc_v2(&mut start, 1)), INVALID_CONTEXT);
        gives!(codes, cu!(cuMemGetInfo_v2(&mut size, &mut 0)), INVALID_CONTEXT);
        gives!(codes, cu!(cuStreamCreate(&mut new_stream, 0)), INVALID_CONTEXT);
        gives!(codes, cu!(cuEventCreate(&mut new_event, 0)), INVALID_CONTEXT);
        gives!(codes, cu!(cuMemHostAlloc(&mut null_mut(), 1, PORTABLE)), INVALID_CONTEXT);
        gives!(codes, register(pages(BYTES), BYTES), INVALID_CONTEXT);
        gives!(codes, cu!(cuCtxGetDevice(&mut number)), INVALID_CONTEXT);
        gives!(codes, cu!(cuCtxSynchronize()), INVALID_CONTEXT);
        gives!(codes, cu!(cuEventRecord(event as _, stream as _)), expected);
        gives!(codes, cu!(cuEventRecord(event as _, null_mut())), INVALID_CONTEXT);
        gives!(codes, cu!(cuEventRecord(event as _, 0x2 as _)), INVALID_CONTEXT);
        gives!(codes, cu!(cuEventQuery(event as _)) % NOT_READY, expected);
        gives!(codes, cu!(cuEventSynchronize(event as _)), expected);
        gives!(codes, cu!(cuStreamWaitEvent(stream as _, event as _, 0)), expected);
        gives!(codes, to_device(memory, locked as _, BYTES, stream as _), expected);
        gives!(codes, cu!(cuMemcpyDtoHAsync_v2(locked as _, memory, BYTES, stream as _)), expected);
        gives!(codes, cu!(cuStreamQuery(stream as _)) % NOT_READY, expected);
        gives!(codes, cu!(cuStreamSynchronize(stream as _)), expected);
        gives!(codes, cu!(cuStreamSynchronize(null_mut())), INVALID_CONTEXT);
        gives!(codes, cu!(cuMemFree_v2(memory)), expected);
        gives!(codes, cu!(cuMemFreeHost(locked as _)), expected);
        gives!(codes, cu!(cuEventDestroy_v2(other_event as _)), expected);
        gives!(codes, cu!(cuStreamDestroy_v2(other_stream as _)), expected);
        gives!(codes, cu!(cuCtxGetCurrent(&mut current)), 0);
        assert_eq!(current, null_mut(), "no call sets a context");
        context(0);
        gives!(codes, cu!(cuEventRecord(event as _, stream as _)), 0);
        gives!(codes, cu!(cuEventSynchronize(event as _)), 0);
        codes.check();
    })
    .join()
    .unwrap();
}

#[test]
fn calls_on_objects_need_no_context() {
    let _fake = session();
    call_without_a_context(0);
}

#[test]
fn older_drivers_need_a_context_for_calls_on_objects() {
    let fake = session_with(Options { driver_version: 12_000, ..Options::default() });
    call_without_a_context(INVALID_CONTEXT);
    let (stream, event) = (stream(0), event());
    assert_eq!(cu!(cuCtxSetCurrent(null_mut())), 0);
    fake.reset(Options::default());
    assert_eq!(cu!(cuEventRecord(event, stream)), INVALID_HANDLE, "it no longer exists");
}

#[test]
fn an_error_of_the_device_is_returned_without_a_context() {
    let fake = session();
    context(0);
    let (stream, event, memory) = (stream(0), event(), device_memory(BYTES));
    assert_eq!(cu!(cuMemFree_v2(memory)), 0);
    assert_eq!(fake.read_on(stream.cast(), memory, BYTES), Ok(()));
    assert_eq!(cu!(cuEventRecord(event, stream)), 0);
    assert_eq!(cu!(cuCtxSetCurrent(null_mut())), 0);
    assert_eq!(cu!(cuEventSynchronize(event)), ILLEGAL_ADDRESS);
    assert_eq!(cu!(cuStreamQuery(stream)), ILLEGAL_ADDRESS);
    assert_eq!(cu!(cuStreamDestroy_v2(stream)), ILLEGAL_ADDRESS);
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
    if fake.is_absent() {
        return;
    }
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
fn null_handles_and_default_streams_are_refused() {
    let _fake = session();
    context(0);
    let (mut codes, stream, event, mut function) = (Codes::default(), stream(0), event(), null_mut());
    gives!(codes, cu!(cuEventRecord(null_mut(), stream)), INVALID_HANDLE);
    gives!(codes, cu!(cuEventQuery(null_mut())), INVALID_HANDLE);
    gives!(codes, cu!(cuEventSynchronize(null_mut())), INVALID_HANDLE);
    gives!(codes, cu!(cuStreamWaitEvent(stream, null_mut(), 0)), INVALID_HANDLE);
    gives!(codes, cu!(cuEventDestroy_v2(null_mut())), INVALID_HANDLE);
    for default in [0, 1, 2] {
        gives!(codes, cu!(cuStreamDestroy_v2(default as _)), INVALID_HANDLE);
    }
    gives!(codes, cu!(cuModuleGetFunction(&mut function, null_mut(), c"any".as_ptr())), INVALID_HANDLE);
    gives!(codes, cu!(cuModuleUnload(null_mut())), INVALID_HANDLE);
    gives!(codes, cu!(cuEventRecord(event, stream)), 0);
    gives!(codes, cu!(cuEventDestroy_v2(event)), 0);
    gives!(codes, cu!(cuStreamDestroy_v2(stream)), 0);
    codes.check();
}

#[test]
fn invalid_handles_are_refused() {
    let fake = session();
    // A real driver would read memory at these addresses.
    fake.needs_fake();
    context(0);
    let (stream, event) = (stream(0), event());
    assert_eq!(cu!(cuEventRecord(0x1234 as _, stream)), INVALID_HANDLE);
    assert_eq!(cu!(cuEventRecord(event, 0x1234 as _)), INVALID_HANDLE);
    assert_eq!(cu!(cuEventRecord(stream.cast(), event.cast())), INVALID_HANDLE);
    assert_eq!(cu!(cuEventDestroy_v2(event)), 0);
    assert_eq!(cu!(cuEventDestroy_v2(event)), INVALID_HANDLE);
    assert_eq!(cu!(cuStreamDestroy_v2(stream)), 0);
    assert_eq!(cu!(cuStreamSynchronize(stream)), INVALID_HANDLE);
}

#[test]
fn an_event_can_be_waited_for_but_not_recorded_across_devices() {
    let fake = session_with(Options { devices: 2, ..Options::default() });
    context(0);
    let (copies, event, from, to) = (stream(NON_BLOCKING), event(), host_memory(BYTES), device_memory(BYTES));
    context(1);
    let other = stream(NON_BLOCKING);
    assert_eq!(cu!(cuEventRecord(event, other)), INVALID_HANDLE);
    // The handles determine the device, regardless of the current context.
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
    // Stream two waits only for the first record; the event is done at the second record.
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
        let to = device_memory(BYTES);
        // 0 and 1 are the legacy stream, 2 is the per-thread default stream.
        for (i, stream) in [null_mut(), stream(0), 0x1 as _, 0x2 as _, null_mut()].into_iter().enumerate() {
            let from = host_memory(BYTES);
            write(from, BYTES, i as u8);
            assert_eq!(to_device(to, from, BYTES, stream), 0);
        }
        assert_eq!(cu!(cuStreamSynchronize(null_mut())), 0);
        assert_eq!(bytes_on_device(to, BYTES), [4; BYTES], "the last copy");
        assert_eq!(fake.violations(), [""; 0], "seed {seed}");
        assert!(fake.is_absent() || fake.pending() == 0);
    }
}

#[test]
fn a_non_blocking_stream_does_not_wait_for_the_legacy_stream() {
    let fake = session();
    fake.needs_fake();
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
    assert!(fake.is_absent() || fake.live().streams == 0);
    assert_eq!(cu!(cuCtxSynchronize()), 0);
    assert_eq!(bytes_on_device(to, BYTES), [7; BYTES]);
}

#[test]
fn host_memory_is_registered_once_and_by_whole_pages() {
    let fake = session();
    context(0);
    let (mut codes, start) = (Codes::default(), pages(BYTES));
    // SAFETY: the addresses are inside of the pages.
    let (second, last) = unsafe { (start.add(4096), start.add(BYTES - 1)) };
    let registered = |bytes| fake.is_absent() || fake.live().registered_bytes == bytes;
    gives!(codes, cu!(cuMemHostUnregister(start.cast())), NOT_REGISTERED);
    gives!(codes, register(start, 5000), 0);
    gives!(codes, register(start, 5000), ALREADY_REGISTERED);
    gives!(codes, register(second, 1), ALREADY_REGISTERED);
    gives!(codes, register(last, 1), 0);
    assert!(registered(5001));
    gives!(codes, cu!(cuMemHostUnregister(second.cast())), INVALID_VALUE);
    gives!(codes, cu!(cuMemFreeHost(start.cast())), INVALID_VALUE);
    gives!(codes, cu!(cuMemHostUnregister(start.cast())), 0);
    gives!(codes, cu!(cuMemHostUnregister(last.cast())), 0);
    gives!(codes, register(start, BYTES), 0);
    assert!(registered(BYTES));
    codes.check();
}

#[test]
fn copies_from_pageable_memory_are_counted_and_staged() {
    let fake = session();
    context(0);
    let (stream, start, to) = (stream(NON_BLOCKING), pages(BYTES), device_memory(BYTES));
    write(start, BYTES, 1);
    let mut codes = Codes::default();
    gives!(codes, to_device(to, start, BYTES, stream), 0);
    write(start, BYTES, 2);
    gives!(codes, cu!(cuStreamSynchronize(stream)), 0);
    assert_eq!(bytes_on_device(to, BYTES), [1; BYTES]);
    let pageable = |copies| fake.is_absent() || fake.pageable_copies() == copies;
    assert!(pageable(2) && fake.violations().is_empty());

    gives!(codes, register(start, BYTES / 2), 0);
    gives!(codes, to_device(to, start, BYTES / 2, stream), 0);
    assert!(pageable(2));
    // The memory is registered only in part, or in two registrations; no driver copies such memory.
    gives!(codes, to_device(to, start, BYTES, stream), INVALID_VALUE);
    // SAFETY: inside the pages.
    gives!(codes, register(unsafe { start.add(BYTES / 2) }, BYTES / 2), 0);
    gives!(codes, to_device(to, start, BYTES, stream), INVALID_VALUE);
    gives!(codes, cu!(cuStreamSynchronize(stream)), 0);
    codes.check();
    assert!(fake.is_absent() || fake.violations().len() == 2);
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
    let (mut codes, stream, from, to) = (Codes::default(), stream(0), host_memory(BYTES), device_memory(BYTES));
    gives!(codes, to_device(to + 1, from, BYTES - 1, stream), 0);
    gives!(codes, to_device(to + 1, from, BYTES, stream), INVALID_VALUE);
    // Page-locked memory has the same address on the device.
    gives!(codes, to_device(from as u64, from, BYTES, stream), 0);
    gives!(codes, cu!(cuStreamSynchronize(stream)), 0);
    gives!(codes, to_device(pages(BYTES) as u64, from, BYTES, stream), INVALID_VALUE);
    gives!(codes, cu!(cuMemFree_v2(to)), 0);
    gives!(codes, to_device(to, from, BYTES, stream), INVALID_VALUE);
    gives!(codes, cu!(cuStreamSynchronize(stream)), 0);
    codes.check();
    if fake.is_absent() {
        return;
    }
    let violations = fake.violations();
    let expected = [
        format!("{BYTES} bytes at {:#x} run past the end of {BYTES} allocated bytes", to + 1),
        format!("{:#x} is not device memory", from as usize),
        format!("device memory {to:#x} was freed"),
    ];
    assert_eq!([0, 1, 3].map(|i| violations[i].clone()), expected);
    assert!(violations.len() == 4 && violations[2].ends_with("is not device memory"), "{violations:?}");
}

#[test]
fn invalid_addresses_and_sizes_are_refused() {
    let fake = session();
    context(0);
    let (stream, memory, from, end) = (stream(0), device_memory(BYTES), host_memory(BYTES), usize::MAX - 10);
    let mut codes = Codes::default();
    gives!(codes, to_device(memory, from, usize::MAX, stream), INVALID_VALUE);
    gives!(codes, to_device(end as u64, from, BYTES, stream), INVALID_VALUE);
    gives!(codes, to_device(0, from, BYTES, stream), INVALID_VALUE);
    gives!(codes, to_device(memory, from, 0, stream), 0);
    gives!(codes, register(end as _, BYTES), INVALID_VALUE);
    gives!(codes, register(end as _, 1), NOT_SUPPORTED);
    gives!(codes, register(null_mut(), BYTES), INVALID_VALUE);
    gives!(codes, register(from, 0), INVALID_VALUE);
    gives!(codes, cu!(cuMemFree_v2(0)), 0);
    gives!(codes, cu!(cuMemFree_v2(memory + 1)), INVALID_VALUE);
    gives!(codes, cu!(cuMemFreeAsync(memory + 1 + BYTES as u64, stream)), INVALID_VALUE);
    gives!(codes, cu!(cuMemAlloc_v2(&mut 0, 0)), INVALID_VALUE);
    gives!(codes, cu!(cuMemAlloc_v2(&mut 0, usize::MAX)), OUT_OF_MEMORY);
    gives!(codes, cu!(cuMemHostAlloc(&mut null_mut(), 0, 0)), 0);
    gives!(codes, cu!(cuMemHostAlloc(&mut null_mut(), usize::MAX, 0)), OUT_OF_MEMORY);
    gives!(codes, cu!(cuMemHostAlloc(null_mut(), 1, 0)), INVALID_VALUE);
    gives!(codes, cu!(cuStreamSynchronize(stream)), 0);
    codes.check();
    assert!(fake.is_absent() || fake.pending() == 0);
}

#[test]
fn unreadable_memory_is_refused() {
    let fake = session();
    // A real driver reads host memory that is not page-locked on the CPU, so it would crash here.
    fake.needs_fake();
    context(0);
    let (stream, memory, end) = (stream(0), device_memory(BYTES), usize::MAX - 10);
    assert_eq!(to_device(memory, end as _, BYTES, stream), INVALID_VALUE);
    assert_eq!(to_device(memory, null(), BYTES, stream), INVALID_VALUE);
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
    type Describe = unsafe extern "C" fn(u32, *mut *const c_char) -> u32;
    let _fake = session();
    // cudarc declares these functions with an enum, which must not have unknown values. SAFETY: the
    // functions have this type, with the number in place of the enum.
    let [name, text] = unsafe { [&b"cuGetErrorName"[..], b"cuGetErrorString"].map(|f| *sys::culib().get(f).unwrap()) };
    let describe = |function: Describe, code| {
        let mut text = null();
        // SAFETY: the driver writes a pointer to a C string, or null.
        let outcome = unsafe { function(code, &mut text) };
        assert_eq!(outcome, if text.is_null() { INVALID_VALUE } else { 0 }, "{code}");
        // SAFETY: the pointer is not null, so it points to a C string.
        (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_str().unwrap())
    };
    for code in 0..1000 {
        if let (Some(name), Some(text)) = (describe(name, code), describe(text, code)) {
            println!("{code} {name}: {text}");
        }
    }
    let some = [0, 1, 2, 34, 46, 100, 201, 226, 304, 400, 500, 600, 700, 712, 717, 802, 810, 909, 916, 999];
    let names = some.map(|code| describe(name, code).unwrap_or_default().trim_start_matches("CUDA_ERROR_"));
    let expected = "CUDA_SUCCESS INVALID_VALUE OUT_OF_MEMORY STUB_LIBRARY DEVICE_UNAVAILABLE NO_DEVICE INVALID_CONTEXT \
                    CONTAINED OPERATING_SYSTEM INVALID_HANDLE NOT_FOUND NOT_READY ILLEGAL_ADDRESS \
                    HOST_MEMORY_ALREADY_REGISTERED INVALID_ADDRESS_SPACE SYSTEM_NOT_READY MPS_CLIENT_TERMINATED TIMEOUT \
                    KEY_ROTATION UNKNOWN";
    assert_eq!(names.join(" "), expected);
    assert_eq!(
        [2, 300, 700].map(|code| describe(text, code)),
        ["out of memory", "device kernel image is invalid", "an illegal memory access was encountered"].map(Some)
    );
    assert_eq!([9, 12_345, u32::MAX].map(|code| (describe(name, code), describe(text, code))), [(None, None); 3]);
}

/// Returns the time between two events, by cudarc's function, which knows for which of two driver
/// functions it was built.
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
    assert_eq!(cu!(cuStreamSynchronize(stream)), 0);
    let time = elapsed(start, end).unwrap();
    // The copy has 16 pieces and is up to 8 turns late, and the record itself takes a step; each
    // step counts as a microsecond.
    assert!(if fake.is_absent() { time > 0.0 } else { (0.017..=0.025).contains(&time) }, "{time}");
    let back = elapsed(end, start).unwrap();
    assert!((back + time).abs() < 1e-3, "{time} {back}");
    let plain = event();
    assert_eq!(elapsed(start, plain), Err(INVALID_HANDLE));
    assert_eq!(cu!(cuEventRecord(plain, stream)), 0);
    assert_eq!(cu!(cuStreamSynchronize(stream)), 0);
    assert_eq!(elapsed(start, plain), Err(INVALID_HANDLE), "it was created without times");
    if !fake.is_absent() {
        fake.hold(true);
        assert_eq!(cu!(cuEventRecord(end, stream)), 0);
        assert_eq!(elapsed(start, end), Err(NOT_READY));
        fake.hold(false);
    }
}

#[test]
fn a_loaded_module_has_the_functions_that_it_declares() {
    let fake = session();
    context(0);
    let (mut codes, mut module, mut function) = (Codes::default(), null_mut(), null_mut());
    let ptx = c".version 7.8\n.target sm_75\n.address_size 64\n.visible .entry known(.param .u64 p) { ret; }";
    gives!(codes, cu!(cuModuleLoadData(&mut module, c"\x7fELF".as_ptr().cast())), INVALID_IMAGE);
    gives!(codes, cu!(cuModuleLoadData(&mut module, c"no PTX".as_ptr().cast())), INVALID_IMAGE);
    gives!(codes, cu!(cuModuleLoadData(&mut module, c".version 7.8\n.entry".as_ptr().cast())), INVALID_PTX);
    gives!(codes, cu!(cuModuleLoadData(&mut module, null())), INVALID_VALUE);
    assert_eq!(cu!(cuModuleLoadData(&mut module, ptx.as_ptr().cast())), 0);
    gives!(codes, cu!(cuModuleGetFunction(&mut function, module, c"unknown".as_ptr())), NOT_FOUND);
    assert_eq!(cu!(cuModuleGetFunction(&mut function, module, c"known".as_ptr())), 0);
    let launch = |blocks, threads| {
        let (mut value, none) = (7u64, null_mut());
        let mut params = [(&raw mut value).cast()];
        cu!(cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, none, params.as_mut_ptr(), null_mut()))
    };
    gives!(codes, launch(1, 32), 0);
    gives!(codes, launch(0, 32), INVALID_VALUE);
    gives!(codes, launch(1, 0), INVALID_VALUE);
    gives!(codes, launch(1, 1025), INVALID_VALUE);
    gives!(codes, cu!(cuModuleUnload(module)), 0);
    gives!(codes, cu!(cuCtxSynchronize()), 0);
    codes.check();
    if !fake.is_absent() {
        assert_eq!(fake.pending(), 0, "launched kernels continue");
        // A real driver may crash.
        assert_eq!(launch(1, 32), INVALID_HANDLE);
    }
}
