//! Loaders: made of a dataset and options, asked for passes and batches.

use std::ptr::null_mut;

use slotline::arena::{Memory, Pages};
use slotline::{BoxError, Loader};

use crate::batch::{Made, slotline_batch};
use crate::boundary::{boundary, guarded};
use crate::check;
use crate::dataset::{Data, slotline_dataset};
use crate::error::slotline_error;
use crate::failure::Failure;
use crate::handle::{self, Handle, Handled};
use crate::options::{Owned, slotline_options};
use crate::running::{Facts, HostLoader, Loads};
use crate::status::{SLOTLINE_END, SLOTLINE_OK, slotline_status};
use crate::versioned::{self, Versioned};

/// A loader. One thread at a time may use it, unless a function says otherwise; it may be another one each time.
#[derive(Debug)]
pub struct slotline_loader(Handle<HostLoader>);

impl Handled for slotline_loader {
    type Loader = HostLoader;

    #[inline]
    fn handle(&self) -> &Handle<HostLoader> {
        &self.0
    }
}

/// Memory that is allocated by the loader itself.
pub(crate) const OWN_MEMORY: Option<fn(usize) -> Result<Pages, BoxError>> = None;

/// Builds a loader of a dataset; samples are stacked in memory from `memory`, if that is said.
///
/// # Safety
///
/// As of `slotline_loader_new`.
pub(crate) unsafe fn build<M: Memory>(
    dataset: *const slotline_dataset,
    (options, owned): (slotline_options, Owned),
    memory: Option<impl FnMut(usize) -> Result<M, BoxError> + Send + 'static>,
) -> Result<HostLoader, Failure> {
    // SAFETY: the caller's word.
    unsafe {
        let data = &check::reference(dataset, "dataset")?.0;
        // Each builder is of its own type.
        macro_rules! build {
            ($builder:expr) => {{
                let (builder, collator) = options.apply(owned, data, $builder)?;
                match (collator, memory) {
                    (Some(collator), _) => HostLoader::Collated(builder.collate(collator.function()).build()?),
                    (None, Some(memory)) => HostLoader::Stacked(builder.memory(memory).build()?.untyped()),
                    (None, None) => HostLoader::Stacked(builder.build()?.untyped()),
                }
            }};
        }
        Ok(match data {
            Data::Arrays(arrays) => build!(Loader::builder(arrays.clone())),
            Data::Map(map) => build!(Loader::builder(map.clone())),
            Data::Stream(stream) => build!(Loader::iterable(stream.clone())),
        })
    }
}

/// Reads options, and takes the user's pointers in them over. To be done once.
///
/// # Safety
///
/// As of `slotline_loader_new`.
pub(crate) unsafe fn take(options: *const slotline_options) -> Result<(slotline_options, Owned), Failure> {
    let defaults = slotline_options::defaults();
    let options = if options.is_null() { &raw const defaults } else { options };
    // SAFETY: the caller's word, or ours.
    unsafe { versioned::read(options, "options", slotline_options::own) }
}

/// Makes a loader, with its threads and its memory. `options` may be NULL: then they are the defaults. What `worker_init` and
/// `collate` in them are called with is taken over, also if this fails. Any thread; `*out` is NULL if it fails.
///
/// # Errors
///
/// `SLOTLINE_INVALID`: a null pointer, a short struct, or an option that is none of its values. `SLOTLINE_BUILD`: options
/// that exclude each other, or memory or threads that are not to be had.
///
/// # Safety
///
/// `dataset` must be NULL or a dataset that was not freed; `options` NULL, or as `slotline_options` says, for
/// `options->struct_size` bytes; `out` and `error` writable, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_loader_new(
    dataset: *const slotline_dataset,
    options: *const slotline_options,
    out: *mut *mut slotline_loader,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller's word.
    unsafe {
        boundary(error, || {
            // First of all, since its callbacks are taken over in any case.
            let options = take(options);
            let out = check::place(out, null_mut(), "out")?;
            let loader = build(dataset, options?, OWN_MEMORY)?;
            *out = Box::into_raw(Box::new(slotline_loader(Handle::new(loader))));
            Ok(SLOTLINE_OK)
        })
    }
}

/// Starts a pass; a pass before it that is not over is given up.
///
/// # Errors
///
/// `SLOTLINE_INVALID`: NULL, or the loader is in use. `SLOTLINE_SAMPLER`: the order could not be drawn. `SLOTLINE_TIMEOUT`: a
/// worker is stuck in the pass before. `SLOTLINE_STATE`: a loaded state does not fit the pass.
///
/// # Safety
///
/// `loader` must be NULL or a loader that was not freed; `error` NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_loader_epoch(
    loader: *mut slotline_loader,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller's word.
    unsafe {
        boundary(error, || {
            handle::enter(loader)?.running().begin_epoch()?;
            Ok(SLOTLINE_OK)
        })
    }
}

/// Gives the next batch of the pass, which is the caller's to free; or `SLOTLINE_END` after the last one; or an error in a
/// batch's place. `*out` is NULL unless there is a batch.
///
/// # Errors
///
/// `SLOTLINE_INVALID`: a null pointer, no pass was begun, or the loader is in use. After `SLOTLINE_SAMPLE`,
/// `SLOTLINE_BAD_SAMPLES`, `SLOTLINE_WORKER_INIT` and a `SLOTLINE_PANIC` with an index the pass goes on with the next call; after
/// `SLOTLINE_TIMEOUT` and `SLOTLINE_HELD` that asks for the same batch again; after `SLOTLINE_SAMPLER` it is over.
///
/// # Safety
///
/// As of `slotline_loader_epoch`; `out` must be NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_loader_next(
    loader: *mut slotline_loader,
    out: *mut *mut slotline_batch,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller's word.
    unsafe {
        boundary(error, || {
            let out = check::place(out, null_mut(), "out")?;
            let mut inside = handle::enter(loader)?;
            let Some(mut batch) = inside.next_batch()? else { return Ok(SLOTLINE_END) };
            if let Made::Collated(batch) = &mut batch {
                let running = inside.running();
                (batch.task, batch.epoch) = (running.given() - 1, running.loader.next_epoch().wrapping_sub(1));
            }
            *out = slotline_batch::boxed(batch, inside.fields());
            Ok(SLOTLINE_OK)
        })
    }
}

/// How many batches a pass has; -1 if only its end will tell, or for NULL. Any thread.
///
/// # Safety
///
/// `loader` must be NULL or a loader that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_loader_len(loader: *const slotline_loader) -> i64 {
    // SAFETY: the caller's word.
    unsafe { handle::ask(loader, -1, Facts::len) }
}

/// The most samples that a batch has. 0 for NULL. Any thread.
///
/// # Safety
///
/// As of `slotline_loader_len`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_loader_batch_size(loader: *const slotline_loader) -> usize {
    // SAFETY: the caller's word.
    unsafe { handle::ask(loader, 0, |facts| facts.batch_size) }
}

/// How many batches there can be at once: those being filled, those ready, and those held. 0 for NULL. Any thread.
///
/// # Safety
///
/// As of `slotline_loader_len`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_loader_depth(loader: *const slotline_loader) -> usize {
    // SAFETY: the caller's word.
    unsafe { handle::ask(loader, 0, |facts| facts.depth) }
}

/// The bytes that the loader takes for batches and for the order of a pass. 0 for NULL. Any thread.
///
/// # Safety
///
/// As of `slotline_loader_len`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_loader_memory_ceiling(loader: *const slotline_loader) -> usize {
    // SAFETY: the caller's word.
    unsafe { handle::ask(loader, 0, |facts| facts.memory_ceiling) }
}

/// The number of the pass that the next `slotline_loader_epoch` starts, from 0. 0 for NULL, or while the loader is in use.
///
/// # Safety
///
/// As of `slotline_loader_len`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_loader_next_epoch(loader: *mut slotline_loader) -> u32 {
    // SAFETY: the caller's word.
    guarded(0, || unsafe { handle::enter(loader) }.map_or(0, |mut inside| inside.loader().next_epoch()))
}

/// Stops a loader, for ever, and returns at once: a `slotline_loader_next` or `slotline_loader_epoch` that waits returns with
/// `SLOTLINE_STOPPED`, and so does every later one. Workers stop at their current sample; callbacks are not interrupted.
/// Batches in hand stay good, and `slotline_loader_state` says what was given, for another loader to go on from.
///
/// Any thread, and from callbacks, too, whether the loader is in use or not; NULL is fine. Who is told `SLOTLINE_STOPPED` sees all
/// that was done before this call, and may free the loader although this call has not returned.
///
/// # Safety
///
/// As of `slotline_loader_len`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_loader_stop(loader: *const slotline_loader) {
    // SAFETY: the caller's word.
    unsafe { handle::stop(loader) }
}

/// Frees a loader; NULL is fine. Its batches live on. It waits for its threads to come out of callbacks; those that do not
/// within 5 s are left behind, with the memory that they can touch.
///
/// Any thread, also while other calls are in the loader, in other threads or in a callback's caller. It is stopped then. If one of
/// these calls uses the loader (one that another such call would be refused beside: `slotline_loader_next`, for example), the
/// loader goes when that call returns. Calls that any thread may make (`slotline_loader_stop`, `slotline_loader_len`) do not keep
/// the loader, and may return after it is gone.
///
/// Other calls must have begun before this one, and the library cannot see that they have not: a call that another thread is
/// about to make when this one is made reads memory that was freed. That a call has begun is certain when something of it was
/// seen: it runs a callback, or, of the only call of `slotline_loader_stop`, some call gave `SLOTLINE_STOPPED`. Of any other call wait
/// until it has returned. Callbacks of the loader's own may call it until they return; it is stopped and in use for them.
///
/// # Safety
///
/// As of `slotline_loader_len`; no call may begin from then on, but by the loader's callbacks that this call waits for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_loader_free(loader: *mut slotline_loader) {
    // SAFETY: it was made by `slotline_loader_new`; else the caller's word.
    unsafe { handle::free(loader) }
}
