//! Shared test code: calls that return their error messages, and loaders over the bundled digits.
#![allow(dead_code)] // Each test binary uses a part of it.

pub(crate) mod datasets;

use std::ffi::CStr;
use std::ptr::{null, null_mut};
use std::slice;

use slotline_ffi::*;

/// Makes a call, and returns its status, or its status with the error's message.
#[track_caller]
pub(crate) fn call(
    body: impl FnOnce(*mut *mut slotline_error) -> slotline_status,
) -> Result<slotline_status, (slotline_status, String)> {
    let mut error = null_mut();
    let status = body(&mut error);
    if error.is_null() {
        assert!(matches!(status, SLOTLINE_OK | SLOTLINE_END), "status {status:?} without an error");
        return Ok(status);
    }
    // SAFETY: the error is new, and freed once.
    unsafe {
        assert_eq!(slotline_error_code(error), status);
        let message = CStr::from_ptr(slotline_error_message(error)).to_str().unwrap().to_owned();
        slotline_error_free(error);
        Err((status, message))
    }
}

/// The dataset of digits, freed on drop.
pub(crate) struct Digits(pub(crate) *mut slotline_dataset);

impl Digits {
    pub(crate) fn open() -> Self {
        let mut dataset = null_mut();
        // SAFETY: the string and the out pointer are valid.
        call(|error| unsafe { slotline_dataset_open(c"digits".as_ptr(), &mut dataset, error) }).unwrap();
        Self(dataset)
    }
}

impl Drop for Digits {
    fn drop(&mut self) {
        // SAFETY: the dataset is freed once.
        unsafe { slotline_dataset_free(self.0) };
    }
}

/// A loader, freed on drop.
pub(crate) struct Loader(pub(crate) *mut slotline_loader);

// SAFETY: any thread may use a loader, one at a time, or stop it.
unsafe impl Send for Loader {}
// SAFETY: as above; the tests follow these rules.
unsafe impl Sync for Loader {}

/// Returns the default options, changed by `set`.
pub(crate) fn options(set: impl FnOnce(&mut slotline_options)) -> slotline_options {
    let mut options = std::mem::MaybeUninit::uninit();
    // SAFETY: `slotline_options_init` writes the whole struct.
    let mut options = unsafe {
        slotline_options_init(options.as_mut_ptr(), size_of::<slotline_options>());
        options.assume_init()
    };
    set(&mut options);
    options
}

impl Loader {
    /// Creates a loader over shuffled digits in batches of 100.
    pub(crate) fn new(num_workers: usize) -> Self {
        Self::with(options(|options| {
            (options.batch_size, options.num_workers) = (100, num_workers);
            (options.shuffle, options.has_seed, options.seed) = (1, 1, 7);
        }))
    }

    pub(crate) fn with(options: slotline_options) -> Self {
        let mut loader = null_mut();
        // SAFETY: all pointers are valid.
        call(|error| unsafe { slotline_loader_new(Digits::open().0, &options, &mut loader, error) }).unwrap();
        Self(loader)
    }

    pub(crate) fn epoch(&self) -> Result<slotline_status, (slotline_status, String)> {
        // SAFETY: the loader is valid.
        call(|error| unsafe { slotline_loader_epoch(self.0, error) })
    }

    /// Returns the next batch; `None` at the end.
    pub(crate) fn next(&self) -> Result<Option<Batch>, (slotline_status, String)> {
        let mut batch = null_mut();
        // SAFETY: the loader and the out pointer are valid.
        let status = call(|error| unsafe { slotline_loader_next(self.0, &mut batch, error) });
        assert_eq!(batch.is_null(), status != Ok(SLOTLINE_OK));
        Ok((status? == SLOTLINE_OK).then_some(Batch(batch)))
    }

    /// Returns the indices of the remaining batches of a pass.
    pub(crate) fn rest(&self) -> Vec<Vec<i64>> {
        std::iter::from_fn(|| self.next().unwrap()).map(|batch| batch.indices().to_vec()).collect()
    }

    /// Returns the state, as bytes.
    pub(crate) fn state(&self) -> Result<Vec<u8>, (slotline_status, String)> {
        // SAFETY: the loader and the out pointers are valid.
        bytes(|out, error| unsafe { slotline_loader_state(self.0, out, error) })
    }

    pub(crate) fn load(&self, state: &[u8]) -> Result<slotline_status, (slotline_status, String)> {
        // SAFETY: the loader is valid, and the state has the length that is passed.
        call(|error| unsafe { slotline_loader_load_state(self.0, state.as_ptr(), state.len(), error) })
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        // SAFETY: the loader is freed once.
        unsafe { slotline_loader_free(self.0) };
    }
}

/// Returns an empty tensor struct to be filled in.
pub(crate) fn tensor() -> slotline_tensor {
    slotline_tensor {
        struct_size: size_of::<slotline_tensor>(),
        name: null(),
        dtype: 0,
        ndim: 0,
        shape: [0; SLOTLINE_MAX_DIMS],
        strides: [0; SLOTLINE_MAX_DIMS],
        data: null(),
        bytes: 0,
        ends: null(),
        num_ends: 0,
        kind: 0,
        reserved: 0,
    }
}

/// A batch, freed on drop.
pub(crate) struct Batch(pub(crate) *mut slotline_batch);

impl Batch {
    pub(crate) fn indices(&self) -> &[i64] {
        // SAFETY: the pointer and the length belong together.
        unsafe { slice::from_raw_parts(slotline_batch_indices(self.0), slotline_batch_len(self.0)) }
    }

    pub(crate) fn field(&self, i: usize) -> slotline_tensor {
        let mut tensor = tensor();
        // SAFETY: the batch and the out pointer are valid.
        call(|error| unsafe { slotline_batch_field(self.0, i, &mut tensor, error) }).unwrap();
        tensor
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        // SAFETY: the batch is freed once.
        unsafe { slotline_batch_free(self.0) };
    }
}

/// Returns the bytes that a call wrote.
pub(crate) fn bytes(
    body: impl FnOnce(*mut *mut slotline_bytes, *mut *mut slotline_error) -> slotline_status,
) -> Result<Vec<u8>, (slotline_status, String)> {
    let mut bytes = null_mut();
    let status = call(|error| body(&mut bytes, error));
    assert_eq!(bytes.is_null(), status.is_err());
    status?;
    // SAFETY: the bytes are new, with a NUL after them, and freed once.
    unsafe {
        let (data, len) = (slotline_bytes_data(bytes), slotline_bytes_len(bytes));
        assert_eq!(*data.add(len), 0);
        let copy = slice::from_raw_parts(data, len).to_vec();
        slotline_bytes_free(bytes);
        Ok(copy)
    }
}
