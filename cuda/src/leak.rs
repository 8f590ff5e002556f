//! Counters of leaked resources.

use std::sync::atomic::{AtomicU64, Ordering};

/// The resources that this process has leaked so far. They are leaked if the driver does not take
/// them back, or if a copy that cannot be waited for may still use them. A warning is logged for
/// each leak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leaked {
    /// The size of the page-locked host memory, in bytes.
    pub host_bytes: u64,
    /// The size of the device memory, in bytes.
    pub device_bytes: u64,
    /// The number of leaked events, streams, and primary contexts.
    pub handles: u64,
}

static HOST_BYTES: AtomicU64 = AtomicU64::new(0);
static DEVICE_BYTES: AtomicU64 = AtomicU64::new(0);
static HANDLES: AtomicU64 = AtomicU64::new(0);

/// Returns the resources that this process has leaked so far.
pub fn leaked() -> Leaked {
    let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    Leaked { host_bytes: read(&HOST_BYTES), device_bytes: read(&DEVICE_BYTES), handles: read(&HANDLES) }
}

pub(crate) fn note_host(bytes: usize) {
    HOST_BYTES.fetch_add(bytes as u64, Ordering::Relaxed);
}

pub(crate) fn note_device(bytes: usize) {
    DEVICE_BYTES.fetch_add(bytes as u64, Ordering::Relaxed);
}

pub(crate) fn note_handle() {
    HANDLES.fetch_add(1, Ordering::Relaxed);
}
