//! What a loader did, what held it back, and what it noticed.

use std::fmt::Write;
use std::ptr::null_mut;

use slotline::loader::{Stats, Warning};

use crate::boundary::boundary;
use crate::bytes::slotline_bytes;
use crate::check;
use crate::error::slotline_error;
use crate::failure::Failure;
use crate::handle::{self, Handled};
use crate::loader::slotline_loader;
use crate::running::Loads;
use crate::status::{SLOTLINE_OK, SLOTLINE_PANIC, slotline_status};
use crate::versioned::{self, Versioned};

/// What a loader has done since it was made. Times are in seconds.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct slotline_stats {
    /// `sizeof(slotline_stats)`, set by the caller.
    pub struct_size: usize,
    /// Passes begun.
    pub passes: u64,
    /// Batches given.
    pub batches: u64,
    /// Samples in them.
    pub samples: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Batches in whose place there was an error.
    pub errors: u64,
    /// Samples that were skipped or replaced.
    pub bad_samples: u64,
    /// Batches that had more than their room.
    pub spilled_batches: u64,
    /// Bytes that were taken for them.
    pub spilled_bytes: u64,
    /// How many batches there can be at once.
    pub depth: u64,
    /// How many workers there are.
    pub num_workers: u64,
    /// Within passes.
    pub elapsed: f64,
    /// Of `elapsed`, in `slotline_loader_epoch`.
    pub starting: f64,
    /// Of `elapsed`, how long the caller waited for batches.
    pub waiting: f64,
    /// Of `elapsed`, how long it waited until another thread freed batches.
    pub held: f64,
    /// How many finished batches the caller found when it asked for one, on average.
    pub ready: f64,
    /// How long the workers were in the dataset's code, all together.
    pub worker_reading: f64,
    /// How long they wrote samples into their rows, or were in the collate function's code.
    pub worker_writing: f64,
    /// How long they waited, since all that may be loaded ahead was.
    pub worker_waiting: f64,
    /// How long they left batches to the caller, which made them faster than they could have been passed on.
    pub worker_resting: f64,
    /// How long the calling thread was in the dataset's code.
    pub caller_reading: f64,
    /// How long it wrote samples into their rows.
    pub caller_writing: f64,
    /// How long the workers were in the code of a sampler that draws as the pass goes, or waited for a thread that was.
    pub worker_drawing: f64,
    /// How long the calling thread was.
    pub caller_drawing: f64,
    /// How many batches there is memory for beyond those that the loader was made for, as more were kept.
    pub extra_batches: u64,
    /// Bytes that were taken for them.
    pub extra_bytes: u64,
}

// SAFETY: numbers, the first one the size.
unsafe impl Versioned for slotline_stats {
    const END: usize = versioned::end!(extra_bytes);

    fn defaults() -> Self {
        Self::default()
    }
}

impl From<&Stats> for slotline_stats {
    fn from(stats: &Stats) -> Self {
        let workers = |time: fn(&slotline::loader::WorkerStats) -> std::time::Duration| {
            stats.workers.iter().map(|worker| time(worker).as_secs_f64()).sum()
        };
        Self {
            struct_size: size_of::<Self>(),
            passes: stats.passes,
            batches: stats.batches,
            samples: stats.samples,
            bytes: stats.bytes,
            errors: stats.errors,
            bad_samples: stats.bad_samples,
            spilled_batches: stats.spilled_batches,
            spilled_bytes: stats.spilled_bytes,
            depth: stats.depth as u64,
            num_workers: stats.workers.len() as u64,
            elapsed: stats.elapsed.as_secs_f64(),
            starting: stats.starting.as_secs_f64(),
            waiting: stats.waiting.as_secs_f64(),
            held: stats.held.as_secs_f64(),
            ready: stats.ready,
            worker_reading: workers(|worker| worker.reading),
            worker_writing: workers(|worker| worker.writing),
            worker_waiting: workers(|worker| worker.waiting),
            worker_resting: workers(|worker| worker.resting),
            caller_reading: stats.consumer.reading.as_secs_f64(),
            caller_writing: stats.consumer.writing.as_secs_f64(),
            worker_drawing: workers(|worker| worker.drawing),
            caller_drawing: stats.consumer.drawing.as_secs_f64(),
            extra_batches: stats.extra_batches,
            extra_bytes: stats.extra_bytes,
        }
    }
}

/// Says what the loader has done so far. `out->struct_size` must be set. Any thread may ask at any time, also while another call
/// uses the loader.
///
/// # Errors
///
/// `SLOTLINE_INVALID`: a null pointer, or a short struct.
///
/// # Safety
///
/// `loader` must be NULL or a loader that was not freed; `out` NULL or writable for `out->struct_size` bytes; `error` NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_loader_stats(
    loader: *mut slotline_loader,
    out: *mut slotline_stats,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller's word.
    unsafe { figures(loader, out, error) }
}

/// The figures of any loader.
///
/// # Safety
///
/// As of `slotline_loader_stats`.
pub(crate) unsafe fn figures<H: Handled>(
    loader: *mut H,
    out: *mut slotline_stats,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller's word.
    unsafe {
        boundary(error, || {
            let stats = handle::visit(loader)?.handle().stats.stats();
            versioned::write(out, &slotline_stats::from(&stats), "out")?;
            Ok(SLOTLINE_OK)
        })
    }
}

/// All that is known of it, as JSON: what each worker did, the slowest samples, those that are bad or stuck. The text is the
/// caller's; `*out` is NULL if it fails. Any thread may ask at any time, also while another call uses the loader.
///
/// # Errors
///
/// `SLOTLINE_INVALID`: a null pointer.
///
/// # Safety
///
/// `loader` must be NULL or a loader that was not freed; `out` and `error` NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_loader_stats_json(
    loader: *mut slotline_loader,
    out: *mut *mut slotline_bytes,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller's word.
    unsafe { reckoned(loader, out, error, |stats| serde_json::to_string(&stats).map_err(unwritten)) }
}

/// What held the loader back so far, in words. The text is the caller's; `*out` is NULL if it fails.
///
/// # Errors
///
/// As of `slotline_loader_stats_json`.
///
/// # Safety
///
/// As of `slotline_loader_stats_json`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_loader_verdict(
    loader: *mut slotline_loader,
    out: *mut *mut slotline_bytes,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller's word.
    unsafe { reckoned(loader, out, error, |stats| Ok(stats.verdict().to_string())) }
}

/// What was noticed when the loader was made, and since: a line for each warning, and none as a rule. The text is the
/// caller's; `*out` is NULL if it fails.
///
/// # Errors
///
/// `SLOTLINE_INVALID`: a null pointer, or the loader is in use.
///
/// # Safety
///
/// As of `slotline_loader_stats_json`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_loader_warnings(
    loader: *mut slotline_loader,
    out: *mut *mut slotline_bytes,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller's word.
    unsafe { warned(loader, out, error) }
}

/// A text about the statistics of a loader.
///
/// # Safety
///
/// As of `slotline_loader_stats_json`.
unsafe fn reckoned<H: Handled>(
    loader: *mut H,
    out: *mut *mut slotline_bytes,
    error: *mut *mut slotline_error,
    tell: impl FnOnce(Stats) -> Result<String, Failure>,
) -> slotline_status {
    // SAFETY: the caller's word.
    unsafe {
        boundary(error, || {
            let out = check::place(out, null_mut(), "out")?;
            let visit = handle::visit(loader)?;
            *out = slotline_bytes::boxed(tell(visit.handle().stats.stats())?);
            Ok(SLOTLINE_OK)
        })
    }
}

/// The warnings of any loader.
///
/// # Safety
///
/// As of `slotline_loader_stats_json`.
pub(crate) unsafe fn warned<H: Handled>(
    loader: *mut H,
    out: *mut *mut slotline_bytes,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller's word.
    unsafe {
        boundary(error, || {
            let out = check::place(out, null_mut(), "out")?;
            *out = slotline_bytes::boxed(lines(handle::enter(loader)?.loader().warnings()));
            Ok(SLOTLINE_OK)
        })
    }
}

fn lines(warnings: &[Warning]) -> String {
    warnings.iter().fold(String::new(), |mut lines, warning| {
        let _ = writeln!(lines, "{warning}");
        lines
    })
}

fn unwritten(error: serde_json::Error) -> Failure {
    Failure::of(SLOTLINE_PANIC, &error)
}
