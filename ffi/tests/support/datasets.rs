//! Datasets of callbacks, written in Rust as a C program would write them.

use std::ffi::{CStr, c_void};
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use slotline_ffi::*;

use super::{Loader, call};

/// A counter of how often something was dropped.
#[derive(Clone, Default)]
pub(crate) struct Drops(Arc<AtomicUsize>);

impl Drops {
    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    /// Returns a user pointer whose drop is counted.
    pub(crate) fn user(&self) -> *mut c_void {
        Arc::into_raw(self.0.clone()).cast_mut().cast()
    }
}

/// Drops a pointer of `Drops::user`.
pub(crate) unsafe extern "C" fn dropped(user: *mut c_void) {
    // SAFETY: the pointer is from `Drops::user`, and is dropped once.
    unsafe { Arc::from_raw(user.cast::<AtomicUsize>()) }.fetch_add(1, Ordering::SeqCst);
}

/// Returns one field of a dataset.
pub(crate) fn field(name: &CStr, dtype: slotline_dtype, kind: slotline_kind, shape: &'static [i64]) -> slotline_field {
    slotline_field {
        struct_size: size_of::<slotline_field>(),
        name: name.as_ptr(),
        dtype,
        kind,
        ndim: shape.len() as u32,
        shape: shape.as_ptr(),
        padding: null(),
        multiple_of: 0,
    }
}

/// Returns a map-style dataset; its user pointer counts drops.
pub(crate) fn map(len: usize, fields: &[slotline_field], read: slotline_read, drops: &Drops) -> slotline_map_dataset {
    slotline_map_dataset {
        struct_size: size_of::<slotline_map_dataset>(),
        user: drops.user(),
        len,
        fields: fields.as_ptr(),
        num_fields: fields.len(),
        read,
        drop: Some(dropped),
        read_many: None,
        prefetch: None,
    }
}

/// Creates a loader over a dataset, and then frees the dataset's handle.
pub(crate) fn loader_of(
    make: impl FnOnce(*mut *mut slotline_dataset, *mut *mut slotline_error) -> slotline_status,
    options: &slotline_options,
) -> Result<Loader, (slotline_status, String)> {
    let (mut dataset, mut loader) = (null_mut(), null_mut());
    call(|error| make(&mut dataset, error))?;
    // SAFETY: all pointers are valid, and the dataset is freed once.
    let outcome = unsafe {
        let outcome = call(|error| slotline_loader_new(dataset, options, &mut loader, error));
        slotline_dataset_free(dataset);
        outcome
    };
    assert_eq!(loader.is_null(), outcome.is_err());
    outcome.map(|_| Loader(loader))
}

/// Creates a loader over a map-style dataset.
pub(crate) fn map_loader(
    dataset: &slotline_map_dataset,
    options: &slotline_options,
) -> Result<Loader, (slotline_status, String)> {
    // SAFETY: the dataset is valid.
    loader_of(|out, error| unsafe { slotline_dataset_from_callbacks(dataset, out, error) }, options)
}

/// Returns a dataset of the numbers below `len`.
pub(crate) fn numbers(len: usize, drops: &Drops) -> (Vec<slotline_field>, slotline_map_dataset) {
    let fields = vec![field(c"number", SLOTLINE_I64, SLOTLINE_FIXED, &[])];
    let dataset = map(len, &fields, Some(read_number), drops);
    (fields, dataset)
}

/// Writes the index; index 13 fails.
unsafe extern "C" fn read_number(_: *mut c_void, index: usize, sample: *mut slotline_sample) -> i32 {
    // SAFETY: the sample is valid during this callback, and the data pointers are valid.
    unsafe {
        if index == 13 {
            slotline_sample_fail(sample, c"thirteen is refused".as_ptr());
            return -1;
        }
        i32::from(slotline_sample_write(sample, 0, (&raw const index).cast(), 1) != SLOTLINE_OK)
    }
}

/// A `worker_init` that fails in worker 0.
pub(crate) unsafe extern "C" fn fail_init(
    _: *mut c_void,
    worker: *const slotline_worker,
    failure: *mut slotline_failure,
) -> i32 {
    // SAFETY: both pointers are valid during this callback.
    unsafe {
        if (*worker).id == 0 {
            slotline_fail(failure, c"worker 0 fails".as_ptr());
            return 1;
        }
    }
    0
}
