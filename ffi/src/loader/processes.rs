//! Worker processes: building loaders that use them, and running as a worker that a command has
//! started.

use std::ffi::{CStr, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::process::Command;
use std::ptr::null_mut;
use std::time::Duration;

use slotline::dataset::{Dataset, Iterable, IterableDataset};
use slotline::loader::{BatchOf, BuildError, Builder, ProcessBuilder, work_if_spawned};
use slotline::{BoxError, Loader};

use crate::abi::{Failure, call, check};
use crate::data::dataset::{Data, slotline_dataset};
use crate::data::indexed::Indexed;
use crate::loader::options::slotline_options;
use crate::loader::spawned::slotline_make_dataset;

/// Builds a loader of a dataset that is read by index.
///
/// # Safety
///
/// The pointers in the options must be valid as documented at `slotline_options`.
pub(crate) unsafe fn build<D: Dataset>(
    options: &slotline_options,
    builder: Builder<D>,
) -> Result<Loader<BatchOf<D>>, Failure> {
    let mut builder = processes(options, builder);
    if !options.spawn.is_null() {
        // SAFETY: the caller guarantees that `spawn` is such a list, and that `spawn_setup` points
        // to `spawn_setup_len` bytes.
        let (command, setup) = unsafe {
            let setup = check::slice(options.spawn_setup, options.spawn_setup_len, "options->spawn_setup")?;
            (command(options.spawn)?, setup)
        };
        builder = builder.spawn(command, setup);
    }
    Ok(builder.build()?)
}

/// Builds a loader of a stream.
pub(crate) fn build_stream<D: IterableDataset>(
    options: &slotline_options,
    builder: Builder<Iterable<D>>,
) -> Result<Loader<BatchOf<Iterable<D>>>, BuildError> {
    processes(options, builder).build()
}

fn processes<D>(options: &slotline_options, builder: Builder<D>) -> ProcessBuilder<D> {
    let limit = Duration::from_millis(options.sample_timeout_ms);
    builder.processes().restart_workers(options.restart_workers).sample_timeout(limit)
}

/// Creates a command from a program and its arguments.
///
/// # Safety
///
/// Unless it is misaligned, `words` must point to strings that end with a NUL, with a NULL after the last one.
unsafe fn command(words: *const *const c_char) -> Result<Command, Failure> {
    if !words.is_aligned() {
        return Err(check::misaligned("options->spawn", align_of::<*const c_char>()));
    }
    // SAFETY: the caller guarantees that each element up to the first NULL is valid, and no later
    // one is read.
    let words = (0..).map(|place| unsafe { *words.add(place) }).take_while(|word| !word.is_null());
    // SAFETY: the caller guarantees that each string ends with a NUL.
    let mut words = words.map(|word| OsStr::from_bytes(unsafe { CStr::from_ptr(word) }.to_bytes()));
    let program = words.next().ok_or_else(|| Failure::invalid("options->spawn is empty; begin it with a program"))?;
    let mut command = Command::new(program);
    command.args(words);
    Ok(command)
}

/// Runs as a worker if a loader has started this process as one, with the dataset that `make`
/// returns.
///
/// # Safety
///
/// `make` must be NULL or a function that can be called with `user`.
pub(crate) unsafe fn work(make: slotline_make_dataset, user: *mut c_void) {
    // SAFETY: the caller guarantees that `make` can be called with `user`.
    work_if_spawned(|setup| unsafe { made(make, user, setup) });
}

/// Creates the dataset of a worker.
///
/// # Safety
///
/// `make` must be NULL or a function that can be called with `user`.
unsafe fn made(make: slotline_make_dataset, user: *mut c_void, setup: &[u8]) -> Result<Indexed, BoxError> {
    let make = make.ok_or("make is NULL in the worker's call of slotline_work_if_spawned")?;
    let mut out: *mut slotline_dataset = null_mut();
    // SAFETY: the caller guarantees that `make` can be called with `user`; the setup is valid
    // during the call, and `out` is writable.
    call("make", |failure| unsafe { make(user, setup.as_ptr(), setup.len(), &mut out, failure) })?;
    if out.is_null() {
        return Err("make returned 0, but no dataset in *out".into());
    }
    // SAFETY: the user transfers the ownership of a dataset that the library created in a box.
    match unsafe { Box::from_raw(out) }.0 {
        Data::Indexed(dataset) => Ok(dataset),
        Data::Stream(_) => Err("its dataset is a stream, and the loader's is read by index; make the same one".into()),
    }
}
