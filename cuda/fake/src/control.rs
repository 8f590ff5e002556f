//! The interface between the client and the driver. These are two copies of this crate, one in the
//! program and one in the library that the program loads, so they exchange only plain values,
//! addresses and C functions.

use std::ffi::c_void;

/// The name of the only function that the library exports in addition to the driver's.
pub(crate) const SYMBOL: &str = "slotline_fake_controls";
/// The version of the table, which is a hash of everything in the interface that could differ
/// between builds.
pub(crate) const VERSION: u64 = version(
    env!("CARGO_PKG_VERSION"),
    &[
        size_of::<Controls>() as u64,
        size_of::<Options>() as u64,
        size_of::<Live>() as u64,
        Skip::HostWait as u64,
        Skip::CopyWait as u64,
        Skip::TrainingWait as u64,
        Skip::Consumed as u64,
        Number::Pending as u64,
        Lines::Trace as u64,
    ],
);

const fn version(package: &str, layout: &[u64]) -> u64 {
    let (bytes, mut hash, mut i) = (package.as_bytes(), 0_u64, 0);
    while i < bytes.len() {
        hash = hash.wrapping_mul(31).wrapping_add(bytes[i] as u64);
        i += 1;
    }
    i = 0;
    while i < layout.len() {
        hash = hash.wrapping_mul(0x0100_0000_01b3).wrapping_add(layout[i]);
        i += 1;
    }
    hash
}

/// The behaviour of the driver, which [`reset`](crate::Fake::reset) sets.
#[repr(C)]
#[derive(Clone, Debug)]
pub struct Options {
    /// The seed of the schedule. The same seed and the same calls give the same schedule.
    pub seed: u64,
    /// The number of devices. With 0, `cuInit` reports that there is no device.
    pub devices: usize,
    /// The memory of each device, in bytes.
    pub memory_bytes: usize,
    /// The maximum number of steps that the streams make at the start of each driver call. The
    /// number is drawn for each call, from 0 on.
    pub max_steps_per_call: u32,
    /// The maximum delay of a copy or a kernel, in steps of its stream. The delay is drawn for
    /// each, from 0 on.
    pub latency: u32,
    /// The number of bytes that one step of a copy copies.
    pub piece_bytes: usize,
    /// The maximum number of steps of a kernel. The number is drawn for each kernel, from 1 on.
    pub kernel_steps: u32,
    /// Whether a thread makes steps all the time, in addition to the steps at calls. This gives
    /// real concurrency, but the schedule is not reproducible.
    pub ticker: bool,
    /// Whether the pages of a copy's host memory are read-only while the copy is in progress, so
    /// that an early write raises `SIGSEGV` at the faulting instruction. Only whole pages are
    /// protected. This is for tests that run in a separate process.
    pub read_only_sources: bool,
    /// Whether to record a [`trace`](crate::Fake::trace).
    pub trace: bool,
    /// The version that `cuDriverGetVersion` returns. For a version before 13,000, every call on
    /// memory, streams and events needs a current context, as documented. From 13,000 on, no
    /// context is needed to record, query, wait for and destroy events, to query, wait for and
    /// destroy created streams, to copy to the device and back on them, or to free memory; a driver
    /// of CUDA 13.0 behaves in this way.
    pub driver_version: i32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            seed: 0,
            devices: 1,
            memory_bytes: 1 << 30,
            max_steps_per_call: 4,
            latency: 8,
            piece_bytes: 4096,
            kernel_steps: 16,
            ticker: false,
            read_only_sources: false,
            trace: false,
            driver_version: 13_000,
        }
    }
}

impl Options {
    /// Whether these options differ from the default only in how work is scheduled and traced.
    pub(crate) fn is_schedule_only(&self) -> bool {
        let Self { devices, memory_bytes, read_only_sources, driver_version, .. } = Self::default();
        (self.devices, self.memory_bytes, self.read_only_sources, self.driver_version)
            == (devices, memory_bytes, read_only_sources, driver_version)
    }
}

/// The resources that were not released, including those whose context was destroyed.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Live {
    /// The number of devices whose primary context is retained.
    pub contexts: usize,
    /// The number of created streams.
    pub streams: usize,
    /// The number of events.
    pub events: usize,
    /// The number of modules.
    pub modules: usize,
    /// The allocated memory of all devices, in bytes.
    pub device_bytes: usize,
    /// The registered host memory, in bytes.
    pub registered_bytes: usize,
    /// The host memory allocated by the driver, in bytes.
    pub host_alloc_bytes: usize,
}

/// A gate of the overlap protocol: a wait or a record that keeps copies and kernels apart. The fake
/// driver can disable it by returning wrong answers.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skip {
    /// The host does not wait: `cuEventQuery`, `cuEventSynchronize`, `cuStreamQuery` and
    /// `cuStreamSynchronize` immediately report that the work is done.
    HostWait = 1,
    /// `cuStreamWaitEvent` does nothing on streams that have carried a copy to the device.
    CopyWait = 2,
    /// `cuStreamWaitEvent` does nothing on streams that have not carried a copy to the device.
    TrainingWait = 4,
    /// `cuEventRecord` does nothing on streams that have not carried a copy to the device.
    Consumed = 8,
}

/// The host function of a kernel. Its arguments are the user's pointer, the addresses of the
/// parameters and their number, the grid, and the block.
pub(crate) type HostKernel = extern "C" fn(*mut c_void, *const *mut c_void, usize, *const u32, *const u32);
/// A function that receives one line of text: a pointer of the caller, and the text's address and
/// length.
pub(crate) type Sink = extern "C" fn(*mut c_void, *const u8, usize);

/// A number that the driver reports.
#[repr(u32)]
#[derive(Clone, Copy, Debug)]
pub(crate) enum Number {
    Calls,
    PageableCopies,
    Pending,
}

/// Lines that the driver reports.
#[repr(u32)]
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lines {
    Violations,
    Trace,
}

/// The table of functions that the driver's library provides to its client. Names are passed as
/// addresses and lengths of UTF-8.
#[repr(C)]
pub(crate) struct Controls {
    pub(crate) version: u64,
    pub(crate) reset: extern "C" fn(*const Options) -> Live,
    pub(crate) live: extern "C" fn() -> Live,
    pub(crate) number: extern "C" fn(Number) -> u64,
    pub(crate) count: extern "C" fn(*const u8, usize) -> u64,
    pub(crate) lines: extern "C" fn(Lines, Sink, *mut c_void),
    pub(crate) fail: extern "C" fn(calls: u64, code: u32, sticky: bool),
    pub(crate) skip: extern "C" fn(gates: u32),
    pub(crate) hold: extern "C" fn(bool),
    pub(crate) advance: extern "C" fn(steps: u64) -> u64,
    pub(crate) kernel: extern "C" fn(*const u8, usize, HostKernel, *mut c_void),
    pub(crate) watch: extern "C" fn(*const u8, usize, pointer: usize, count: usize, unit: usize),
    pub(crate) read_on: extern "C" fn(stream: *mut c_void, from: u64, bytes: usize) -> u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_different_layout_changes_the_version() {
        let sizes = [size_of::<Controls>(), size_of::<Options>(), size_of::<Live>()].map(|size| size as u64);
        let gates = [Skip::HostWait, Skip::CopyWait, Skip::TrainingWait, Skip::Consumed].map(|gate| gate as u64);
        let layout = [&sizes[..], &gates, &[Number::Pending as u64, Lines::Trace as u64]].concat();
        let package = env!("CARGO_PKG_VERSION");
        assert_eq!(version(package, &layout), VERSION);
        for i in 0..layout.len() {
            let mut other = layout.clone();
            other[i] += 8;
            assert_ne!(version(package, &other), VERSION, "number {i}");
        }
    }
}
