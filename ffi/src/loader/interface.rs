//! The C functions of loaders: creating them, starting passes, and getting batches.

use std::ptr::null_mut;
use std::time::Duration;

use slotline::arena::Memory;
use slotline::{BoxError, Loader};

use crate::abi::{
    Failure, SLOTLINE_END, SLOTLINE_OK, Versioned, boundary, check, done, guarded, slotline_error, slotline_status,
    versioned,
};
use crate::batch::handle::{Made, slotline_batch};
use crate::data::dataset::{Data, slotline_dataset};
use crate::data::indexed::Indexed;
use crate::loader::handle::{self, Handle, slotline_loader};
use crate::loader::options::{Owned, slotline_options};
use crate::loader::running::{AnyLoader, LoaderInfo};

/// Builds a loader for a dataset. If `memory` is given, samples are stacked in memory that it
/// allocates, for example for a device.
///
/// # Safety
///
/// The same as for `slotline_loader_new`.
pub(crate) unsafe fn build<M: Memory>(
    dataset: *const slotline_dataset,
    (options, owned): (slotline_options, Owned),
    memory: Option<impl FnMut(usize) -> Result<M, BoxError> + Send + 'static>,
    device: bool,
) -> Result<AnyLoader, Failure> {
    // SAFETY: the caller upholds this function's safety contract.
    unsafe {
        let data = &check::reference(dataset, "dataset")?.0;
        options.check_workers(data, device)?;
        // A macro, because each builder has a different type.
        macro_rules! build {
            ($data:expr, $builder:ident => $stack:expr) => {{
                let ($builder, collator) = options.apply(owned, data, $data)?;
                if let Some(collator) = collator {
                    AnyLoader::Collated($builder.collate(collator.function()).build()?)
                } else {
                    let $builder = if let Some(memory) = memory { $builder.memory(memory) } else { $builder };
                    AnyLoader::Stacked($stack?.untyped())
                }
            }};
        }
        Ok(match data {
            // Arrays and callbacks have separate builders, so that their loops are monomorphised.
            Data::Indexed(Indexed::Arrays(arrays)) => {
                build!(Loader::builder(arrays.clone()), builder => options.build(builder))
            }
            Data::Indexed(Indexed::Map(map)) => build!(Loader::builder(map.clone()), builder => options.build(builder)),
            Data::Indexed(dataset) => build!(Loader::builder(dataset.clone()), builder => options.build(builder)),
            Data::Stream(stream) => build!(Loader::iterable(stream.clone()), builder => options.build_stream(builder)),
        })
    }
}

/// Reads options, and takes ownership of the user's pointers in them. A function that receives
/// options must call this exactly once.
///
/// # Safety
///
/// The same as for `slotline_loader_new`.
pub(crate) unsafe fn take(options: *const slotline_options) -> Result<(slotline_options, Owned), Failure> {
    let defaults = slotline_options::defaults();
    let options = if options.is_null() { &raw const defaults } else { options };
    // SAFETY: `options` points to `defaults`, or the caller guarantees that it is valid for its `struct_size`.
    unsafe { versioned::read(options, "options", slotline_options::own) }
}

/// Creates a loader, with its workers and its memory. If `options` is NULL, the defaults apply. The
/// loader takes ownership of the user pointers of `worker_init`, `collate`, `on_warning` and
/// `allocate`, even if this function fails. On failure `*out` is NULL. Can be called from any
/// thread.
///
/// # Errors
///
/// `SLOTLINE_ERROR_INVALID`: a null pointer, a struct that is too short, or an option with an invalid value.
/// `SLOTLINE_ERROR_BUILD`: options that exclude each other, or memory, threads or processes that are not available.
///
/// # Safety
///
/// `dataset` must be NULL or a dataset that was not freed; `options` must be NULL or a valid `slotline_options` of
/// `options->struct_size` bytes; `out` and `error` must be NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_loader_new(
    dataset: *const slotline_dataset,
    options: *const slotline_options,
    out: *mut *mut slotline_loader,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller upholds this function's safety contract.
    unsafe {
        done(error, || {
            // Comes first, because ownership of the user's pointers is taken even if this function
            // fails.
            let options = take(options);
            let out = check::place(out, null_mut(), "out")?;
            let (options, mut owned) = options?;
            let memory = options.allocator(&mut owned);
            let loader = build(dataset, (options, owned), memory, false)?;
            *out = Box::into_raw(Box::new(slotline_loader(Handle::new(loader))));
            Ok(())
        })
    }
}

/// Starts a pass. If the previous pass has not ended, it is abandoned.
///
/// # Errors
///
/// `SLOTLINE_ERROR_INVALID`: `loader` is NULL or in use. `SLOTLINE_ERROR_SAMPLER`: the order could not be drawn.
/// `SLOTLINE_ERROR_TIMEOUT`: a worker is stuck in the previous pass. `SLOTLINE_ERROR_STATE`: a loaded state does not match the
/// pass. `SLOTLINE_ERROR_WORKER_DIED`: the workers have ended.
///
/// # Safety
///
/// `loader` must be NULL or a loader that was not freed; `error` must be NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_loader_epoch(
    loader: *mut slotline_loader,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller upholds this function's safety contract.
    unsafe { done(error, || handle::enter(loader)?.running().begin_epoch()) }
}

/// Returns the next batch of the pass in `*out`; the caller must free it. After the last batch the status is `SLOTLINE_END`. An
/// error can take the place of a batch. `*out` is NULL unless there is a batch.
///
/// # Errors
///
/// `SLOTLINE_ERROR_INVALID`: a null pointer, no pass was started, or the loader is in use. After
/// `SLOTLINE_ERROR_SAMPLE`, `SLOTLINE_ERROR_COLLATE`, `SLOTLINE_ERROR_BAD_SAMPLES`,
/// `SLOTLINE_ERROR_WORKER_INIT` and a `SLOTLINE_ERROR_PANIC` with an index, the next call continues
/// the pass. After `SLOTLINE_ERROR_TIMEOUT` and `SLOTLINE_ERROR_HELD`, the next call requests the
/// same batch again. After `SLOTLINE_ERROR_SAMPLER` the pass has ended. After
/// `SLOTLINE_ERROR_WORKER_DIED` the loader can no longer be used. For a device,
/// `SLOTLINE_ERROR_HELD` can also mean that the caller holds too many batches on it, and
/// `SLOTLINE_ERROR_TIMEOUT` that a copy took too long. After `SLOTLINE_ERROR_DEVICE`, when the
/// driver rejected a copy, the next call returns the next batch, but two such errors in a row end
/// the pass.
///
/// # Safety
///
/// The same as for `slotline_loader_epoch`; `out` must be NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_loader_next(
    loader: *mut slotline_loader,
    out: *mut *mut slotline_batch,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller upholds this function's safety contract.
    unsafe { next(loader, None, out, error) }
}

/// Works like `slotline_loader_next`, but waits at most `patience_ms` milliseconds, regardless of
/// `timeout_ms`, and then returns `SLOTLINE_ERROR_TIMEOUT`; the next call requests the same batch.
/// For callers that have other work to do while they wait. 0 returns a batch only if it is ready.
///
/// With workers, the calling thread does not load samples (`help`) while it waits. Without workers, a
/// batch that the calling thread loads is not interrupted. Not available for a loader on a device.
///
/// # Errors
///
/// The same as for `slotline_loader_next`.
///
/// # Safety
///
/// The same as for `slotline_loader_next`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_loader_next_within(
    loader: *mut slotline_loader,
    patience_ms: u64,
    out: *mut *mut slotline_batch,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller upholds this function's safety contract.
    unsafe { next(loader, Some(Duration::from_millis(patience_ms)), out, error) }
}

/// Requests a batch, waiting at most `patience` if that is given.
///
/// # Safety
///
/// The same as for `slotline_loader_next`.
#[inline(always)]
unsafe fn next(
    loader: *mut slotline_loader,
    patience: Option<Duration>,
    out: *mut *mut slotline_batch,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller upholds this function's safety contract.
    unsafe {
        boundary(error, || {
            let out = check::place(out, null_mut(), "out")?;
            let mut guard = handle::enter(loader)?;
            let Some(mut batch) = guard.next_batch(patience)? else { return Ok(SLOTLINE_END) };
            if let Made::Collated(batch) = &mut batch {
                let running = guard.running();
                (batch.task, batch.epoch) = (running.given() - 1, running.loader.next_epoch().wrapping_sub(1));
            }
            *out = slotline_batch::boxed(batch, guard.fields());
            Ok(SLOTLINE_OK)
        })
    }
}

/// Returns 1 if the next batch of the pass, an error instead of it, or the end of the pass is ready,
/// so that `slotline_loader_next` neither waits nor loads samples. Otherwise returns 0, also for NULL,
/// or while the loader is in use. Without workers nothing is loaded ahead, so no batch is ever ready.
/// For a stream it may also return 1 when a worker has reached the end of its part, and
/// `slotline_loader_next` then waits for the next worker. For a loader on a device it always returns
/// 1.
///
/// # Safety
///
/// The same as for `slotline_loader_epoch`, without `error`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_loader_is_ready(loader: *mut slotline_loader) -> i32 {
    // SAFETY: the caller upholds this function's safety contract.
    guarded(0, || unsafe { handle::enter(loader) }.map_or(0, |mut guard| i32::from(guard.loader().is_ready())))
}

/// Returns the number of batches in a pass; -1 if it is not known in advance, or for NULL. Can be
/// called from any thread.
///
/// # Safety
///
/// `loader` must be NULL or a loader that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_loader_len(loader: *const slotline_loader) -> i64 {
    // SAFETY: the caller upholds this function's safety contract.
    unsafe { handle::ask(loader, -1, LoaderInfo::len) }
}

/// Returns the maximum number of samples in a batch; 0 for NULL. Can be called from any thread.
///
/// # Safety
///
/// The same as for `slotline_loader_len`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_loader_batch_size(loader: *const slotline_loader) -> usize {
    // SAFETY: the caller upholds this function's safety contract.
    unsafe { handle::ask(loader, 0, |info| info.batch_size) }
}

/// Returns how many batches can exist at the same time: being filled, ready, or held by the caller.
/// 0 for NULL. Can be called from any thread.
///
/// # Safety
///
/// The same as for `slotline_loader_len`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_loader_depth(loader: *const slotline_loader) -> usize {
    // SAFETY: the caller upholds this function's safety contract.
    unsafe { handle::ask(loader, 0, |info| info.depth) }
}

/// Returns the maximum memory that the loader allocates for batches and for the order of a pass, in
/// bytes; 0 for NULL. Can be called from any thread.
///
/// # Safety
///
/// The same as for `slotline_loader_len`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_loader_memory_ceiling(loader: *const slotline_loader) -> usize {
    // SAFETY: the caller upholds this function's safety contract.
    unsafe { handle::ask(loader, 0, |info| info.memory_ceiling) }
}

/// Returns the number of the pass that the next `slotline_loader_epoch` starts, from 0. 0 for NULL, or while the loader is in
/// use.
///
/// # Safety
///
/// The same as for `slotline_loader_len`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_loader_next_epoch(loader: *mut slotline_loader) -> u32 {
    // SAFETY: the caller upholds this function's safety contract.
    guarded(0, || unsafe { handle::enter(loader) }.map_or(0, |mut guard| guard.loader().next_epoch()))
}

/// Stops a loader permanently, and returns immediately. A waiting `slotline_loader_next` or
/// `slotline_loader_epoch` returns `SLOTLINE_ERROR_STOPPED`, and so does every later one. Workers
/// stop after their current sample; callbacks are not interrupted. Batches that the caller holds
/// stay valid, and `slotline_loader_state` still returns the position, so that another loader can
/// resume from it. Batches that are already on a device are delivered before
/// `SLOTLINE_ERROR_STOPPED`.
///
/// Can be called from any thread and from callbacks, even while another call uses the loader. On
/// Linux it is async-signal-safe: it takes no lock, does not allocate, and preserves `errno`. No
/// thread may free the loader before a signal handler that calls this has returned, because the
/// handler might then have to free its memory. Does nothing for NULL. A thread that receives
/// `SLOTLINE_ERROR_STOPPED` sees everything that was done before this call, and, except for calls
/// in signal handlers, may free the loader even if this call has not returned.
///
/// # Safety
///
/// The same as for `slotline_loader_len`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_loader_stop(loader: *const slotline_loader) {
    // SAFETY: the caller upholds this function's safety contract.
    unsafe { handle::stop(loader) }
}

/// Frees a loader. Does nothing for NULL. The loader's batches stay valid. The call waits until the
/// loader's threads have left callbacks, for up to `close_timeout_ms` (5 s). Threads that do not
/// leave by then continue to run, the memory that they can access is not freed, and `on_warning`
/// receives a warning. The call also waits up to that long for copies to a device. Freeing a loader
/// twice is reported on the standard error and aborts the process. This is detected until 64 more
/// loaders were freed, though possibly not if several threads free loaders at the same moment.
///
/// Can be called from any thread, even while other calls use the loader, in other threads or
/// further up the stack of a callback. The loader is then stopped. If one of these calls uses the
/// loader exclusively (for example `slotline_loader_next`), the loader is destroyed when that call
/// returns. Calls that any thread may make at any time (`slotline_loader_stop`,
/// `slotline_loader_len`) do not keep the loader alive, and may return after it was destroyed.
///
/// Every other call must have begun before this one. The library cannot check this: a call that
/// begins later reads freed memory. A call has certainly begun once one of its effects was seen: a
/// callback runs within it, or, for the only call of `slotline_loader_stop`, another call has
/// returned `SLOTLINE_ERROR_STOPPED`. In all other cases, wait until the call has returned. A
/// callback of the loader that is running may still call the loader's functions, which then behave
/// as for a loader that is stopped and in use.
///
/// # Safety
///
/// The same as for `slotline_loader_len`; no call may begin afterwards, except from the loader's callbacks that this call waits
/// for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_loader_free(loader: *mut slotline_loader) {
    // SAFETY: `slotline_loader_new` created the loader, and the caller upholds the rest.
    unsafe { handle::free(loader) }
}
