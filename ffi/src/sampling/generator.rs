//! Random number generators.

use slotline::rng::{Generator, SharedGenerator, default_generator};

use crate::abi::{free, made, slotline_error, slotline_status};

/// A random number generator, equivalent to `torch.Generator`: with the same seed it returns the
/// same numbers as PyTorch's. Any number of threads may use it concurrently. Each call that draws
/// from it continues its sequence, and so does each pass of a loader or sampler that draws from it.
#[derive(Debug)]
pub struct slotline_generator(SharedGenerator);

impl slotline_generator {
    /// Returns another reference to the generator.
    pub(crate) fn shared(&self) -> SharedGenerator {
        self.0.clone()
    }
}

/// Calls a function with a generator; NULL stands for the process's default generator.
///
/// # Safety
///
/// `generator` must be NULL or a generator that was not freed.
pub(crate) unsafe fn with_generator<T>(
    generator: *const slotline_generator,
    draw: impl FnOnce(&mut Generator) -> T,
) -> T {
    // SAFETY: the caller upholds this function's safety contract.
    match unsafe { generator.as_ref() } {
        Some(generator) => draw(&mut generator.0.lock()),
        None => draw(&mut default_generator()),
    }
}

/// Creates a generator with a seed. Can be called from any thread.
///
/// # Errors
///
/// `SLOTLINE_ERROR_INVALID`: a null pointer.
///
/// # Safety
///
/// `out` and `error` must be NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_generator_new(
    seed: u64,
    out: *mut *mut slotline_generator,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller guarantees that `out` and `error` are NULL or writable.
    unsafe { made(out, error, || Ok(slotline_generator(Generator::from_seed(seed).into()))) }
}

/// Frees a generator. Does nothing for NULL. Can be called from any thread.
///
/// # Safety
///
/// `generator` must be NULL or a generator that was not freed; it must not be used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_generator_free(generator: *mut slotline_generator) {
    // SAFETY: `made` created the generator, and the caller transfers its ownership.
    unsafe { free(generator) }
}
