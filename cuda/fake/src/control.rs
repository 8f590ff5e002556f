//! What the client and the driver say to each other. They are two copies of this crate, one in the program and one in
//! the library that it loaded, so nothing but plain values, addresses and C functions goes between them.

use std::ffi::c_void;

/// What the library's one function of ours is called.
pub(crate) const SYMBOL: &str = "slotline_fake_controls";
/// Told apart from the tables of other builds, by all that goes between the two and could differ.
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

/// How the driver behaves from a [`reset`](crate::Fake::reset) on.
#[repr(C)]
#[derive(Clone, Debug)]
pub struct Options {
    /// What the schedule is drawn from. The same seed and the same calls give the same schedule.
    pub seed: u64,
    /// How many devices there are. With none, `cuInit` says so.
    pub devices: usize,
    /// Memory of each device, in bytes.
    pub memory_bytes: usize,
    /// At each driver call the streams make 0 to this many steps first.
    pub max_steps_per_call: u32,
    /// A copy or a kernel begins 0 to this many of its stream's steps late.
    pub latency: u32,
    /// How much of a copy is one step, in bytes.
    pub piece_bytes: usize,
    /// A kernel takes 1 to this many steps.
    pub kernel_steps: u32,
    /// A thread makes steps all the time, beside the calls: real concurrency, at the price of the same schedule.
    pub ticker: bool,
    /// While a copy is in flight, the whole pages of its host memory can only be read: an early write is a `SIGSEGV` at
    /// the guilty instruction. For tests in a process of their own.
    pub read_only_sources: bool,
    /// Keep [`trace`](crate::Fake::trace).
    pub trace: bool,
    /// What `cuDriverGetVersion` says.
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

/// What the driver's user has not given back, be its context still there or not.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Live {
    /// Devices whose primary context is retained.
    pub contexts: usize,
    /// Streams that were created.
    pub streams: usize,
    /// Events.
    pub events: usize,
    /// Modules.
    pub modules: usize,
    /// Memory of all devices, in bytes.
    pub device_bytes: usize,
    /// Host memory that is registered, in bytes.
    pub registered_bytes: usize,
    /// Host memory that the driver allocated, in bytes.
    pub host_alloc_bytes: usize,
}

/// A gate of the overlap protocol that the driver can take away by lying.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skip {
    /// The host waits for nothing: `cuEventQuery`, `cuEventSynchronize`, `cuStreamQuery` and `cuStreamSynchronize` say
    /// at once that all is done.
    HostWait = 1,
    /// `cuStreamWaitEvent` does nothing on streams that have carried a copy to the device.
    CopyWait = 2,
    /// `cuStreamWaitEvent` does nothing on streams that have not.
    TrainingWait = 4,
    /// `cuEventRecord` does nothing on streams that have not carried a copy to the device.
    Consumed = 8,
}

/// A kernel's function on the host: the user's pointer, the parameters' addresses and their number, grid, block.
pub(crate) type HostKernel = extern "C" fn(*mut c_void, *const *mut c_void, usize, *const u32, *const u32);
/// Takes one line of text.
pub(crate) type Sink = extern "C" fn(*mut c_void, *const u8, usize);

/// A number that the driver tells.
#[repr(u32)]
#[derive(Clone, Copy, Debug)]
pub(crate) enum Number {
    Calls,
    PageableCopies,
    Pending,
}

/// Lines that the driver tells.
#[repr(u32)]
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lines {
    Violations,
    Trace,
}

/// The functions that the driver's library has for its client. Names are addresses and lengths of UTF-8.
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
    fn a_build_with_another_layout_has_another_version() {
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
