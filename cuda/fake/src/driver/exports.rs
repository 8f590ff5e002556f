//! The functions that CUDA programs find in the library, with the signatures of `cuda.h`.

use std::ffi::{CStr, c_char, c_int, c_void};

use super::code::{self, INVALID_VALUE, Outcome};
use super::kernel::Request;
use super::{CURRENT, Driver, Handle, call, call_after_init};

/// A pointer to which the caller wants a result to be written.
#[repr(transparent)]
struct Out<T>(*mut T);

impl<T> Out<T> {
    fn set(self, value: T) -> Outcome {
        if self.0.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: callers of the driver pass null or room for the result, and null was checked.
        unsafe { self.0.write(value) };
        Ok(())
    }
}

/// Writes nul-terminated text to a caller's buffer of `room` bytes, and truncates it if necessary.
fn set_text(to: *mut c_char, room: c_int, text: &str) -> Outcome {
    let room = usize::try_from(room).ok().filter(|&room| room > 0 && !to.is_null()).ok_or(INVALID_VALUE)?;
    let len = text.len().min(room - 1);
    // SAFETY: callers of the driver pass a buffer of `room` bytes.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), to.cast(), len);
        *to.add(len) = 0;
    }
    Ok(())
}

macro_rules! exports {
    ($through:ident: $($name:ident($($arg:ident: $type:ty),*) = |$driver:pat_param| $body:expr;)*) => {$(
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, reason = "CUDA's names")]
        extern "C" fn $name($($arg: $type),*) -> u32 {
            $through(stringify!($name), |$driver| $body)
        }
    )*};
}

exports! { call:
    cuInit(flags: u32) = |driver| driver.init(flags);
    cuDriverGetVersion(to: Out<c_int>) = |driver| to.set(driver.options.driver_version);
    cuGetErrorName(code: u32, to: Out<*const c_char>) = |_| error_text(code, to, |texts| texts.0);
    cuGetErrorString(code: u32, to: Out<*const c_char>) = |_| error_text(code, to, |texts| texts.1);
}

exports! { call_after_init:
    cuDeviceGetCount(to: Out<c_int>) = |driver| to.set(driver.devices.len() as c_int);
    cuDeviceGet(to: Out<c_int>, ordinal: c_int) = |driver| driver.device(ordinal).and_then(|_| to.set(ordinal));
    cuDeviceGetName(to: *mut c_char, room: c_int, device: c_int) = |driver| {
        driver.device(device)?;
        set_text(to, room, &format!("slotline fake device {device}"))
    };
    cuDeviceGetPCIBusId(to: *mut c_char, room: c_int, device: c_int) = |driver| {
        driver.device(device)?;
        set_text(to, room, &format!("{:04x}:{device:02x}:00.0", PCI_DOMAIN))
    };
    cuDeviceGetUuid(to: Out<[u8; 16]>, device: c_int) = |driver| driver.device(device).and_then(|_| to.set(uuid(device)));
    cuDeviceGetUuid_v2(to: Out<[u8; 16]>, device: c_int) = |driver| {
        driver.device(device).and_then(|_| to.set(uuid(device)))
    };
    cuDeviceTotalMem_v2(to: Out<usize>, device: c_int) = |driver| {
        driver.device(device)?;
        to.set(driver.options.memory_bytes)
    };
    cuDeviceGetAttribute(to: Out<c_int>, attribute: u32, device: c_int) = |driver| {
        driver.device(device)?;
        to.set(self::attribute(attribute, device))
    };

    cuDevicePrimaryCtxRetain(to: Out<Handle>, device: c_int) = |driver| driver.retain(device).and_then(|c| to.set(c));
    cuDevicePrimaryCtxRelease_v2(device: c_int) = |driver| driver.release(device);
    cuDevicePrimaryCtxGetState(device: c_int, flags: Out<u32>, active: Out<c_int>) = |driver| {
        let retained = driver.device(device)?.retained > 0;
        flags.set(0).and_then(|()| active.set(c_int::from(retained)))
    };
    cuDevicePrimaryCtxSetFlags_v2(device: c_int, _flags: u32) = |driver| driver.device(device).map(drop);
    cuCtxGetCurrent(to: Out<Handle>) = |_| to.set(CURRENT.get());
    cuCtxSetCurrent(context: Handle) = |driver| driver.set_current(context);
    cuCtxGetDevice(to: Out<c_int>) = |driver| to.set(driver.current()? as c_int);
    cuCtxSetFlags(_flags: u32) = |driver| driver.current().map(drop);
    cuCtxSynchronize() = |driver| {
        let device = driver.current()?;
        driver.finish_device(device)?;
        // The current context is checked after the wait, so that errors of the finished work are
        // returned.
        driver.current().map(drop)
    };

    cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) = |driver| {
        let (left, all) = driver.memory_info()?;
        free.set(left).and_then(|()| total.set(all))
    };
    cuMemAlloc_v2(to: Out<usize>, bytes: usize) = |driver| driver.allocate(bytes).and_then(|start| to.set(start));
    cuMemFree_v2(start: usize) = |driver| driver.free(start);
    cuMemAllocAsync(to: Out<usize>, bytes: usize, stream: Handle) = |driver| {
        driver.find_stream(stream)?;
        driver.allocate(bytes).and_then(|start| to.set(start))
    };
    cuMemFreeAsync(start: usize, stream: Handle) = |driver| driver.free_on(start, stream);
    cuMemHostAlloc(to: Out<usize>, bytes: usize, flags: u32) = |driver| {
        driver.allocate_host(bytes, flags).and_then(|start| to.set(start))
    };
    cuMemFreeHost(start: usize) = |driver| driver.free_host(start);
    cuMemHostRegister_v2(start: usize, bytes: usize, flags: u32) = |driver| driver.register(start, bytes, flags);
    cuMemHostUnregister(start: usize) = |driver| driver.unregister(start);
    cuMemsetD8Async(start: usize, value: u8, bytes: usize, stream: Handle) = |driver| {
        driver.fill(start, value, bytes, stream)
    };
    cuMemcpyHtoDAsync_v2(to: usize, from: usize, bytes: usize, stream: Handle) = |driver| {
        driver.copy_to_device(to, from, bytes, stream)
    };
    cuMemcpyDtoHAsync_v2(to: usize, from: usize, bytes: usize, stream: Handle) = |driver| {
        driver.copy_to_host(to, from, bytes, stream)
    };
    cuMemcpyDtoDAsync_v2(to: usize, from: usize, bytes: usize, stream: Handle) = |driver| {
        driver.copy_within_device(to, from, bytes, stream)
    };
    cuMemcpyHtoD_v2(to: usize, from: usize, bytes: usize) = |driver| {
        driver.copy_to_device(to, from, bytes, 0).and_then(|()| driver.synchronize_stream(0))
    };
    cuMemcpyDtoH_v2(to: usize, from: usize, bytes: usize) = |driver| {
        driver.copy_to_host(to, from, bytes, 0).and_then(|()| driver.synchronize_stream(0))
    };

    cuStreamCreate(to: Out<Handle>, flags: u32) = |driver| driver.create_stream(flags).and_then(|new| to.set(new));
    cuStreamCreateWithPriority(to: Out<Handle>, flags: u32, _priority: c_int) = |driver| {
        driver.create_stream(flags).and_then(|new| to.set(new))
    };
    cuStreamDestroy_v2(stream: Handle) = |driver| driver.destroy_stream(stream);
    cuStreamQuery(stream: Handle) = |driver| driver.query_stream(stream);
    cuStreamSynchronize(stream: Handle) = |driver| driver.synchronize_stream(stream);
    cuStreamWaitEvent(stream: Handle, event: Handle, _flags: u32) = |driver| driver.wait_event(stream, event);

    cuEventCreate(to: Out<Handle>, flags: u32) = |driver| driver.create_event(flags).and_then(|new| to.set(new));
    cuEventDestroy_v2(event: Handle) = |driver| driver.destroy_event(event);
    cuEventRecord(event: Handle, stream: Handle) = |driver| driver.record(event, stream);
    cuEventQuery(event: Handle) = |driver| driver.query_event(event);
    cuEventSynchronize(event: Handle) = |driver| driver.synchronize_event(event);
    cuEventElapsedTime(to: Out<f32>, start: Handle, end: Handle) = |driver| to.set(driver.elapsed(start, end)?);
    cuEventElapsedTime_v2(to: Out<f32>, start: Handle, end: Handle) = |driver| to.set(driver.elapsed(start, end)?);

    cuModuleLoadData(to: Out<Handle>, image: *const u8) = |driver| load_module(driver, to, image);
    cuModuleLoadDataEx(
        to: Out<Handle>, image: *const u8, _count: u32, _options: *mut u32, _values: *mut *mut c_void
    ) = |driver| load_module(driver, to, image);
    cuModuleUnload(module: Handle) = |driver| driver.unload_module(module);
    cuModuleGetFunction(to: Out<Handle>, module: Handle, name: *const c_char) = |driver| {
        if name.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: callers of the driver pass a C string.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
        driver.find_function(module, name).and_then(|function| to.set(function))
    };
    cuLaunchKernel(
        function: Handle, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        _shared_bytes: u32, stream: Handle, params: *const *const u8, extra: *const *const u8
    ) = |driver| {
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        let request = Request { grid, block, stream, params, has_extra: !extra.is_null() };
        // SAFETY: callers of the driver pass an address for each parameter.
        unsafe { driver.launch(function, request) }
    };
}

/// A PCI domain that no machine has, so that the system has no entry for the fake device.
const PCI_DOMAIN: c_int = 0xfa4e;

fn uuid(device: c_int) -> [u8; 16] {
    let mut uuid = *b"slotline fake  0";
    uuid[15] += device as u8;
    uuid
}

/// Returns an attribute by its number in `cuda.h`. Attributes that no test has needed are 0.
fn attribute(attribute: u32, device: c_int) -> c_int {
    match attribute {
        1 => 1024,        // MAX_THREADS_PER_BLOCK
        10 => 32,         // WARP_SIZE
        16 => 4,          // MULTIPROCESSOR_COUNT
        31 => 1,          // CONCURRENT_KERNELS
        33 => device,     // PCI_BUS_ID
        34 => 0,          // PCI_DEVICE_ID
        40 => 1,          // ASYNC_ENGINE_COUNT
        41 => 1,          // UNIFIED_ADDRESSING
        50 => PCI_DOMAIN, // PCI_DOMAIN_ID
        75 => 9,          // COMPUTE_CAPABILITY_MAJOR
        76 => 0,          // COMPUTE_CAPABILITY_MINOR
        91 => 1,          // CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM
        99 => 1,          // HOST_REGISTER_SUPPORTED
        115 => 1,         // MEMORY_POOLS_SUPPORTED
        131 | 134 => -1,  // NUMA_ID, HOST_NUMA_ID
        _ => 0,
    }
}

fn error_text(
    code: u32,
    to: Out<*const c_char>,
    which: impl Fn((&'static CStr, &'static CStr)) -> &'static CStr,
) -> Outcome {
    match code::describe(code) {
        Some(texts) => to.set(which(texts).as_ptr()),
        None => to.set(std::ptr::null()).and(Err(INVALID_VALUE)),
    }
}

fn load_module(driver: &mut Driver, to: Out<Handle>, image: *const u8) -> Outcome {
    // SAFETY: callers of the driver pass a module: a C string, or a binary whose first byte is not
    // text.
    unsafe { driver.load_module(image) }.and_then(|module| to.set(module))
}

impl Driver {
    fn init(&mut self, flags: u32) -> Outcome {
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        if self.devices.is_empty() {
            return Err(code::NO_DEVICE);
        }
        self.initialised = true;
        Ok(())
    }
}
