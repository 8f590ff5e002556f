//! Generators of random numbers.

use slotline::rng::{Generator, SharedGenerator, default_generator};

use crate::abi::{free, made, slotline_error, slotline_status};

/// A generator of random numbers (`torch.Generator`): it gives the same numbers as PyTorch's with the same seed. Any number of
/// threads may use it at once; each call that draws from it, and each pass of a loader or sampler that does, continues its
/// sequence.
#[derive(Debug)]
pub struct slotline_generator(SharedGenerator);

impl slotline_generator {
    /// Returns the generator, for another owner.
    pub(crate) fn shared(&self) -> SharedGenerator {
        self.0.clone()
    }
}

/// Calls a function with a generator, which is the process's default generator for NULL.
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

/// Makes a generator with a seed. Can be called from any thread.
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
    // SAFETY: `made` made the generator, and the caller gives it up.
    unsafe { free(generator) }
}
