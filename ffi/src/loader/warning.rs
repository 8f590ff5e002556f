//! Warnings, and the callback that receives them.

use std::ffi::{CString, c_char, c_void};

use slotline::loader::{By, Warning};

use crate::abi::Owner;

/// There are more workers than cores, so they take turns.
pub const SLOTLINE_WARNING_MANY_WORKERS: u32 = 0;
/// A pass has no batches, because of `drop_last`.
pub const SLOTLINE_WARNING_NO_BATCH: u32 = 1;
/// The memory of the batches could not be page-locked.
pub const SLOTLINE_WARNING_NOT_LOCKED: u32 = 2;
/// `pin_memory` has no effect on the results of a collate function.
pub const SLOTLINE_WARNING_NOTHING_TO_PIN: u32 = 3;
/// A stream returned more samples than its length.
pub const SLOTLINE_WARNING_OVERLONG: u32 = 4;
/// The caller holds more batches than `hold`, so more memory was allocated.
pub const SLOTLINE_WARNING_KEPT: u32 = 5;
/// To resume, all samples before the saved position are read again.
pub const SLOTLINE_WARNING_FAST_FORWARD: u32 = 6;
/// A worker could not be bound to its core.
pub const SLOTLINE_WARNING_NOT_BOUND: u32 = 7;
/// Workers cannot be bound, because the system does not report its cores.
pub const SLOTLINE_WARNING_UNKNOWN_CORES: u32 = 8;
/// A sample has taken longer than `watchdog_ms`; reported once for each time that a thread reads
/// the sample.
pub const SLOTLINE_WARNING_STUCK: u32 = 9;
/// A sample was skipped or replaced (`on_error`); reported once for each index.
pub const SLOTLINE_WARNING_BAD_SAMPLE: u32 = 10;
/// A worker process ended or was killed (`sample_timeout_ms`), and was replaced.
pub const SLOTLINE_WARNING_WORKER_REPLACED: u32 = 11;
/// A worker process ended, and was not replaced.
pub const SLOTLINE_WARNING_WORKER_LOST: u32 = 12;
/// Packed samples needed more memory than is reserved for their batch (`on_overflow`); reported
/// once.
pub const SLOTLINE_WARNING_SPILLED: u32 = 13;
/// The loader was freed, but some of its threads were still in callbacks after `close_timeout_ms`.
pub const SLOTLINE_WARNING_LEFT_BEHIND: u32 = 14;
/// A warning that this version of the header has no constant for.
pub const SLOTLINE_WARNING_OTHER: u32 = 15;

/// A problem that does not stop a loader. The callback may use the struct until it returns. Later
/// versions may add fields.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct slotline_warning {
    /// The size of this struct in the library.
    pub struct_size: usize,
    /// The kind of the warning, such as `SLOTLINE_WARNING_STUCK`. Later versions may add values.
    pub kind: u32,
    /// Always 0.
    pub reserved: u32,
    /// What happened, and what to do about it, in UTF-8.
    pub message: *const c_char,
    /// The dataset index of the sample; -1 if the warning is not about one sample.
    pub index: i64,
    /// The number of the batch in its pass; -1 if the warning is not about one batch.
    pub task: i64,
    /// The index of the worker; -1 if there is none, or if it is the thread that requests batches.
    pub worker: i64,
    /// For `SLOTLINE_WARNING_STUCK`, how long the thread has spent on the sample, in seconds; otherwise 0.
    pub seconds: f64,
}

/// Receives a warning in the thread that detects it: the one that creates or uses the loader, the
/// watchdog's, or the one that monitors worker processes. So it may run in several threads
/// concurrently, and it delays that thread. It may call functions that any thread may call at any
/// time, such as `slotline_loader_stop`.
pub type slotline_on_warning = Option<unsafe extern "C" fn(user: *mut c_void, warning: *const slotline_warning)>;

/// The callback and its user pointer.
pub(crate) struct Listener {
    pub(crate) owner: Owner,
    pub(crate) listen: unsafe extern "C" fn(*mut c_void, *const slotline_warning),
}

impl Listener {
    /// Passes a warning to the user's callback.
    pub(crate) fn hear(&self, warning: &Warning) {
        let mut message = warning.to_string();
        message.retain(|c| c != '\0');
        let message = CString::new(message).unwrap_or_default();
        let (index, task, by, seconds) = match *warning {
            Warning::Stuck { index, batch, by, time } => (Some(index), Some(batch), Some(by), time.as_secs_f64()),
            Warning::BadSample { index, batch, by, .. } => (Some(index), Some(batch), Some(by), 0.0),
            Warning::Spilled { batch, .. } => (None, Some(batch), None, 0.0),
            Warning::WorkerEnded { worker, .. } | Warning::NotBound { worker, .. } => {
                (None, None, Some(By::Worker(worker)), 0.0)
            }
            _ => (None, None, None, 0.0),
        };
        let worker = match by {
            Some(By::Worker(worker)) => Some(worker),
            Some(By::Consumer) | None => None,
        };
        let number = |value: Option<usize>| value.and_then(|value| i64::try_from(value).ok()).unwrap_or(-1);
        let warning = slotline_warning {
            struct_size: size_of::<slotline_warning>(),
            kind: kind(warning),
            reserved: 0,
            message: message.as_ptr(),
            index: number(index),
            task: number(task),
            worker: number(worker),
            seconds,
        };
        // SAFETY: the user has guaranteed that any thread may call it this way; the warning is
        // valid during the call.
        unsafe { (self.listen)(self.owner.user(), &warning) };
    }
}

fn kind(warning: &Warning) -> u32 {
    match warning {
        Warning::ManyWorkers { .. } => SLOTLINE_WARNING_MANY_WORKERS,
        Warning::NoBatch { .. } => SLOTLINE_WARNING_NO_BATCH,
        Warning::NotLocked { .. } => SLOTLINE_WARNING_NOT_LOCKED,
        Warning::NothingToPin => SLOTLINE_WARNING_NOTHING_TO_PIN,
        Warning::Overlong { .. } => SLOTLINE_WARNING_OVERLONG,
        Warning::Kept { .. } => SLOTLINE_WARNING_KEPT,
        Warning::FastForward { .. } => SLOTLINE_WARNING_FAST_FORWARD,
        Warning::NotBound { .. } => SLOTLINE_WARNING_NOT_BOUND,
        Warning::UnknownCores => SLOTLINE_WARNING_UNKNOWN_CORES,
        Warning::Stuck { .. } => SLOTLINE_WARNING_STUCK,
        Warning::BadSample { .. } => SLOTLINE_WARNING_BAD_SAMPLE,
        Warning::WorkerEnded { replaced: true, .. } => SLOTLINE_WARNING_WORKER_REPLACED,
        Warning::WorkerEnded { .. } => SLOTLINE_WARNING_WORKER_LOST,
        Warning::Spilled { .. } => SLOTLINE_WARNING_SPILLED,
        Warning::LeftBehind { .. } => SLOTLINE_WARNING_LEFT_BEHIND,
        _ => SLOTLINE_WARNING_OTHER,
    }
}
