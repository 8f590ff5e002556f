//! Loaders: made of a dataset and options, asked for passes and batches.
//!
//! A loader is used by one thread at a time. A word beside it says whether a call is in it, so that a second one (from
//! another thread, or from a callback inside of the first) is an error, and so that a loader which is freed meanwhile goes
//! when the call comes out.

use std::cell::UnsafeCell;
use std::fmt;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use slotline::loader::Stopper;
use slotline::{Error, Loader};

use crate::batch::slotline_batch;
use crate::boundary::{boundary, guarded};
use crate::check;
use crate::dataset::{Data, slotline_dataset};
use crate::error::slotline_error;
use crate::failure::Failure;
use crate::field::About;
use crate::options::slotline_options;
use crate::running::{AnyLoader, Facts, Loads, Running};
use crate::status::{SLOTLINE_END, SLOTLINE_OK, slotline_status};
use crate::versioned::{self, Versioned};

/// A loader. One thread at a time may use it, unless a function says otherwise; it may be another one each time.
pub struct slotline_loader {
    /// `BUSY` while a call is in it, and `FREED` if it was freed meanwhile.
    state: AtomicU8,
    /// Of whoever has set `BUSY`.
    inner: UnsafeCell<Box<dyn AnyLoader>>,
    fields: Arc<[About]>,
    facts: Facts,
    stopper: Stopper,
    stopped: AtomicBool,
}

const BUSY: u8 = 1;
const FREED: u8 = 2;

// SAFETY: the inner loader is Send, and used by whoever has set `BUSY` alone; the rest is never changed.
unsafe impl Sync for slotline_loader {}

impl slotline_loader {
    fn boxed<L: Loads>(loader: L) -> *mut Self {
        let mut facts = loader.facts();
        Box::into_raw(Box::new(Self {
            state: AtomicU8::new(0),
            fields: std::mem::take(&mut facts.fields).into(),
            stopper: loader.stopper(),
            stopped: AtomicBool::new(false),
            facts,
            inner: UnsafeCell::new(Box::new(Running::new(loader))),
        }))
    }

    /// Goes into a loader, unless somebody is in it.
    ///
    /// # Safety
    ///
    /// `loader` must be NULL or a loader that was not freed.
    #[inline]
    pub(crate) unsafe fn enter(loader: *mut Self) -> Result<Inside, Failure> {
        // SAFETY: the caller's word.
        let state = unsafe { &check::reference(loader, "loader")?.state };
        match state.compare_exchange(0, BUSY, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Ok(Inside { loader }),
            Err(_) => Err(Failure::invalid(
                "loader is in use: by a call in another thread, or by the one whose callback this is; let it return first",
            )),
        }
    }
}

/// Whoever is in a loader. As long as this one is there, so is the loader.
pub(crate) struct Inside {
    loader: *mut slotline_loader,
}

impl Inside {
    #[inline]
    pub(crate) fn any(&mut self) -> &mut dyn AnyLoader {
        // SAFETY: this one has set `BUSY`, and so nobody else is here.
        unsafe { &mut **(*self.loader).inner.get() }
    }

    #[inline]
    fn fields(&self) -> &Arc<[About]> {
        // SAFETY: the loader is there, and its fields are never changed.
        unsafe { &(*self.loader).fields }
    }
}

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the loader is there until `BUSY` is taken away.
        let before = unsafe { &(*self.loader).state }.fetch_and(!BUSY, Ordering::AcqRel);
        if before & FREED != 0 {
            // SAFETY: `slotline_loader_free` has left it to us, and nobody else may use it.
            drop(unsafe { Box::from_raw(self.loader) });
        }
    }
}

impl fmt::Debug for slotline_loader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("slotline_loader").field("facts", &self.facts).finish_non_exhaustive()
    }
}

/// Makes a loader, with its threads and its memory. `options` may be NULL: then they are the defaults. Any thread; `*out` is
/// NULL if it fails.
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
            let out = check::place(out, null_mut(), "out")?;
            let dataset = check::reference(dataset, "dataset")?;
            let options = match options.is_null() {
                true => slotline_options::defaults(),
                false => versioned::read(options, "options")?,
            };
            *out = match &dataset.0 {
                Data::Arrays(arrays) => {
                    let builder = options.apply(Loader::builder(arrays.clone()))?;
                    match options.dealt != 0 {
                        true => slotline_loader::boxed(builder.build_dealt()?),
                        false => slotline_loader::boxed(builder.build()?),
                    }
                }
            };
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
            slotline_loader::enter(loader)?.any().epoch()?;
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
            let mut inside = slotline_loader::enter(loader)?;
            match inside.any().next() {
                Some(Some(batch)) => {
                    *out = slotline_batch::new(batch?, inside.fields());
                    Ok(SLOTLINE_OK)
                }
                _ if (*inside.loader).stopped.load(Ordering::Acquire) => Err(Error::Stopped.into()),
                Some(None) => Ok(SLOTLINE_END),
                None => Err(Failure::invalid("loader is in no pass; call slotline_loader_epoch first")),
            }
        })
    }
}

/// Asks a loader for something that never changes, with an answer for NULL.
///
/// # Safety
///
/// `loader` must be NULL or a loader that was not freed.
unsafe fn ask<T>(loader: *const slotline_loader, otherwise: T, question: impl FnOnce(&Facts) -> T) -> T {
    // SAFETY: the caller's word.
    unsafe { loader.as_ref() }.map_or(otherwise, |loader| question(&loader.facts))
}

/// How many batches a pass has; -1 if only its end will tell, or for NULL. Any thread.
///
/// # Safety
///
/// `loader` must be NULL or a loader that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_loader_len(loader: *const slotline_loader) -> i64 {
    // SAFETY: the caller's word.
    unsafe { ask(loader, -1, |facts| facts.len.and_then(|len| i64::try_from(len).ok()).unwrap_or(-1)) }
}

/// The most samples that a batch has. 0 for NULL. Any thread.
///
/// # Safety
///
/// As of `slotline_loader_len`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_loader_batch_size(loader: *const slotline_loader) -> usize {
    // SAFETY: the caller's word.
    unsafe { ask(loader, 0, |facts| facts.batch_size) }
}

/// How many batches there can be at once: those being filled, those ready, and those held. 0 for NULL. Any thread.
///
/// # Safety
///
/// As of `slotline_loader_len`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_loader_depth(loader: *const slotline_loader) -> usize {
    // SAFETY: the caller's word.
    unsafe { ask(loader, 0, |facts| facts.depth) }
}

/// The bytes that the loader takes for batches and for the order of a pass. 0 for NULL. Any thread.
///
/// # Safety
///
/// As of `slotline_loader_len`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_loader_memory_ceiling(loader: *const slotline_loader) -> usize {
    // SAFETY: the caller's word.
    unsafe { ask(loader, 0, |facts| facts.memory_ceiling) }
}

/// The number of the pass that the next `slotline_loader_epoch` starts, from 0. 0 for NULL, or while the loader is in use.
///
/// # Safety
///
/// As of `slotline_loader_len`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_loader_next_epoch(loader: *mut slotline_loader) -> u32 {
    // SAFETY: the caller's word.
    guarded(0, || unsafe { slotline_loader::enter(loader) }.map_or(0, |mut inside| inside.any().next_epoch()))
}

/// Stops a loader, for ever, and returns at once: a `slotline_loader_next` or `slotline_loader_epoch` that waits returns with
/// `SLOTLINE_STOPPED`, and so does every later one. Workers stop at their current sample; callbacks are not interrupted.
/// Batches in hand stay good, and `slotline_loader_state` says what was given, for another loader to go on from.
///
/// Any thread, and from callbacks, too, whether the loader is in use or not; NULL is fine.
///
/// # Safety
///
/// As of `slotline_loader_len`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_loader_stop(loader: *const slotline_loader) {
    // SAFETY: the caller's word.
    if let Some(loader) = unsafe { loader.as_ref() } {
        guarded((), || {
            loader.stopped.store(true, Ordering::Release);
            loader.stopper.stop();
        });
    }
}

/// Frees a loader; NULL is fine. Its batches live on. It waits for its threads to come out of callbacks; those that do not
/// within 5 s are left behind, with the memory that they can touch.
///
/// Any thread, also while a call is in the loader, in another thread or in a callback's caller: then the loader is stopped, and goes when
/// that call returns.
///
/// # Safety
///
/// As of `slotline_loader_len`; nobody may begin to use it from then on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_loader_free(loader: *mut slotline_loader) {
    if loader.is_null() {
        return;
    }
    guarded((), || {
        // Else a call that waits in it would go on waiting.
        // SAFETY: the caller's word.
        unsafe { &(*loader).stopper }.stop();
        // SAFETY: the caller's word.
        let before = unsafe { &(*loader).state }.fetch_or(FREED, Ordering::AcqRel);
        if before & BUSY == 0 {
            // SAFETY: it was made by `boxed`, nobody is in it, and the caller gives it up.
            drop(unsafe { Box::from_raw(loader) });
        }
    });
}
