//! A loader's statistics, verdict and warnings.

use std::fmt::Write;

use slotline::loader::{Stats, Warning};

use crate::abi::{
    Failure, SLOTLINE_ERROR_PANIC, Versioned, done, made, slotline_bytes, slotline_error, slotline_status, versioned,
};
use crate::loader::handle;
use crate::loader::slotline_loader;

/// Statistics of a loader since it was created. Times are in seconds.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct slotline_stats {
    /// `sizeof(slotline_stats)`, set by the caller.
    pub struct_size: usize,
    /// The number of passes started.
    pub passes: u64,
    /// The number of batches delivered.
    pub batches: u64,
    /// The number of samples in the delivered batches.
    pub samples: u64,
    /// The number of bytes in these samples.
    pub bytes: u64,
    /// The number of errors that took the place of a batch.
    pub errors: u64,
    /// The number of samples that were skipped or replaced.
    pub bad_samples: u64,
    /// The number of batches whose packed samples needed more than the reserved memory.
    pub spilled_batches: u64,
    /// The number of bytes that were allocated for these batches.
    pub spilled_bytes: u64,
    /// The number of batches that can exist at the same time.
    pub depth: u64,
    /// The number of workers.
    pub num_workers: u64,
    /// The time spent in passes.
    pub elapsed: f64,
    /// The part of `elapsed` in `slotline_loader_epoch`.
    pub starting: f64,
    /// The part of `elapsed` in which the caller waited for batches.
    pub waiting: f64,
    /// The part of `elapsed` in which the caller waited for another thread to free batches.
    pub held: f64,
    /// The average number of finished batches when the caller requested one.
    pub ready: f64,
    /// The time that all workers spent in the dataset's code, except in `slotline_sample_write`. It
    /// includes a callback's direct writes to memory from `slotline_sample_row`, which cannot be
    /// measured separately.
    pub worker_reading: f64,
    /// The time that all workers spent writing samples into their rows (in `slotline_sample_write`
    /// for callbacks), or in the collate function.
    pub worker_writing: f64,
    /// The time that all workers waited because everything that may be prefetched was loaded.
    pub worker_waiting: f64,
    /// The time in which all workers left the loading to the caller, because it loaded batches
    /// faster than they could be handed over.
    pub worker_resting: f64,
    /// Like `worker_reading`, for the calling thread.
    pub caller_reading: f64,
    /// Like `worker_writing`, for the calling thread.
    pub caller_writing: f64,
    /// The time that all workers spent in a sampler that draws during the pass, or waiting for
    /// another thread in it.
    pub worker_drawing: f64,
    /// Like `worker_drawing`, for the calling thread.
    pub caller_drawing: f64,
    /// The number of batches that were additionally allocated because the caller held more than
    /// `hold`.
    pub extra_batches: u64,
    /// The number of bytes that were allocated for these batches.
    pub extra_bytes: u64,
    /// The time that all workers spent decoding pictures, tables and compressed shards. It is not
    /// included in `worker_reading` and `worker_writing`.
    pub worker_decoding: f64,
    /// Like `worker_decoding`, for the calling thread.
    pub caller_decoding: f64,
}

// SAFETY: it contains only numbers, and its first field is its size.
unsafe impl Versioned for slotline_stats {
    const END: usize = versioned::end!(caller_decoding);
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
            worker_decoding: workers(|worker| worker.decoding),
            caller_decoding: stats.consumer.decoding.as_secs_f64(),
        }
    }
}

/// Writes the loader's statistics to `*out`. The caller must set `out->struct_size`. Can be called from any thread at any time,
/// even while another call uses the loader.
///
/// # Errors
///
/// `SLOTLINE_ERROR_INVALID`: a null pointer, or a struct that is too short.
///
/// # Safety
///
/// `loader` must be NULL or a loader that was not freed; `out` must be NULL or writable for `out->struct_size` bytes; `error`
/// must be NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_loader_stats(
    loader: *mut slotline_loader,
    out: *mut slotline_stats,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller upholds this function's safety contract.
    unsafe {
        done(error, || {
            let stats = handle::visit(loader)?.handle().stats.stats();
            versioned::write(out, &slotline_stats::from(&stats), "out")
        })
    }
}

/// Returns all statistics as JSON, including the work of each worker, the slowest samples, and the
/// samples that are bad or still being read for too long. The caller owns the text. On failure
/// `*out` is NULL. Can be called from any thread at any time, even while another call uses the
/// loader.
///
/// # Errors
///
/// `SLOTLINE_ERROR_INVALID`: a null pointer.
///
/// # Safety
///
/// `loader` must be NULL or a loader that was not freed; `out` and `error` must be NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_loader_stats_json(
    loader: *mut slotline_loader,
    out: *mut *mut slotline_bytes,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller upholds this function's safety contract.
    unsafe { stats_text(loader, out, error, |stats| serde_json::to_string(&stats).map_err(not_serialised)) }
}

/// Returns a text about what has limited the loader's speed so far. The caller owns it. On failure
/// `*out` is NULL. Can be called from any thread at any time, even while another call uses the
/// loader.
///
/// # Errors
///
/// The same as for `slotline_loader_stats_json`.
///
/// # Safety
///
/// The same as for `slotline_loader_stats_json`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_loader_verdict(
    loader: *mut slotline_loader,
    out: *mut *mut slotline_bytes,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller upholds this function's safety contract.
    unsafe { stats_text(loader, out, error, |stats| Ok(stats.verdict().to_string())) }
}

/// Returns the warnings since the loader was created, one per line; usually there are none. The
/// caller owns the text. On failure `*out` is NULL. `on_warning` in `slotline_options` receives
/// these and other warnings at once.
///
/// # Errors
///
/// `SLOTLINE_ERROR_INVALID`: a null pointer, or the loader is in use.
///
/// # Safety
///
/// The same as for `slotline_loader_stats_json`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_loader_warnings(
    loader: *mut slotline_loader,
    out: *mut *mut slotline_bytes,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller upholds this function's safety contract.
    unsafe { made(out, error, || Ok(slotline_bytes::new(lines(handle::enter(loader)?.loader().warnings())))) }
}

/// Creates a text from a loader's statistics.
///
/// # Safety
///
/// The same as for `slotline_loader_stats_json`.
unsafe fn stats_text(
    loader: *mut slotline_loader,
    out: *mut *mut slotline_bytes,
    error: *mut *mut slotline_error,
    make_text: impl FnOnce(Stats) -> Result<String, Failure>,
) -> slotline_status {
    // SAFETY: the caller upholds this function's safety contract.
    unsafe { made(out, error, || Ok(slotline_bytes::new(make_text(handle::visit(loader)?.handle().stats.stats())?))) }
}

fn lines(warnings: &[Warning]) -> String {
    warnings.iter().fold(String::new(), |mut lines, warning| {
        let _ = writeln!(lines, "{warning}");
        lines
    })
}

fn not_serialised(error: serde_json::Error) -> Failure {
    Failure::of(SLOTLINE_ERROR_PANIC, &error)
}
