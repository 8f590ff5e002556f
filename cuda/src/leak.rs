//! What could not be given back.

use std::sync::atomic::{AtomicU64, Ordering};

/// What this process has leaked so far because the driver would not take it back, or because a copy that could not be
/// waited for may still read or write it. Each time a warning says so, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leaked {
    /// Bytes of page-locked host memory.
    pub host_bytes: u64,
    /// Bytes of device memory.
    pub device_bytes: u64,
    /// Events, streams, and holds on a device's primary context.
    pub handles: u64,
}

static HOST_BYTES: AtomicU64 = AtomicU64::new(0);
static DEVICE_BYTES: AtomicU64 = AtomicU64::new(0);
static HANDLES: AtomicU64 = AtomicU64::new(0);

/// What this process has leaked so far.
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
