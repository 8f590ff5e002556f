//! Datasets: what a loader loads.

use std::ffi::c_char;
use std::sync::Arc;

use slotline::dataset::{Dataset, IterableDataset};
use slotline::sample::Fields;
use slotline::source::Source;

use crate::arrays::{Arrays, slotline_array};
use crate::boundary::{boundary, guarded};
use crate::check;
use crate::error::slotline_error;
use crate::failure::{Failure, chain};
use crate::map::{Map, slotline_map_dataset};
use crate::status::{SLOTLINE_OK, SLOTLINE_SOURCE, slotline_status};
use crate::stream::{Stream, slotline_stream_dataset};

/// A dataset. Loaders keep what they need of it, so that it may be freed as soon as they are made. Any number of threads may
/// use it at once.
#[derive(Debug)]
pub struct slotline_dataset(pub(crate) Data);

/// What a dataset is.
#[derive(Clone, Debug)]
pub(crate) enum Data {
    Arrays(Arc<Arrays>),
    Map(Arc<Map>),
    Stream(Arc<Stream>),
}

impl Data {
    /// How many samples there are, if that is known.
    pub(crate) fn len(&self) -> Option<usize> {
        match self {
            Self::Arrays(arrays) => Some(arrays.len()),
            Self::Map(map) => Some(map.len()),
            Self::Stream(stream) => stream.len(),
        }
    }

    /// The fields of every sample.
    pub(crate) fn fields(&self) -> Fields {
        let fields = match self {
            Self::Arrays(arrays) => arrays.fields(),
            Self::Map(map) => map.fields(),
            Self::Stream(stream) => stream.fields(),
        };
        fields.unwrap_or_default()
    }
}

impl slotline_dataset {
    fn boxed(data: Data) -> *mut Self {
        Box::into_raw(Box::new(Self(data)))
    }
}

/// Opens a dataset that a text names, as those of the `slotline` program: `digits` (1797 images and labels that come with the
/// library), `idx:FILE[,FILE...]` (as MNIST has them, read into memory) or `npy:FILE[,FILE...]` (NumPy's, memory-mapped). A
/// sample is a row of each; fields are named by their places, from "0". Any thread; `*out` is NULL if it fails.
///
/// Nobody, in this process or another one, may write to a mapped file or cut it short as long as the dataset, or a loader of it,
/// is there. To replace one, rename another file over it.
///
/// # Errors
///
/// `SLOTLINE_INVALID`: a null pointer, or a text that names nothing. `SLOTLINE_SOURCE`: a file that cannot be read, or files of
/// different numbers of rows.
///
/// # Safety
///
/// `source` must be NULL or end with a NUL; `out` and `error` must be writable, or NULL. Mapped files must
/// not be changed, as said above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_dataset_open(
    source: *const c_char,
    out: *mut *mut slotline_dataset,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller's word.
    unsafe {
        boundary(error, || {
            let out = check::place(out, std::ptr::null_mut(), "out")?;
            let source = check::text(source, "source")?.parse::<Source>();
            let source = source.map_err(|error| Failure::invalid(format!("source: {}", chain(&error))))?;
            // SAFETY: the caller's word.
            let rows = source.map().map_err(|error| Failure::of(SLOTLINE_SOURCE, &error))?;
            *out = slotline_dataset::boxed(Data::Arrays(Arc::new(Arrays::new(rows)?)));
            Ok(SLOTLINE_OK)
        })
    }
}

/// Makes a dataset of `n` arrays of equal length: a sample is a row of each, and a field's shape is that of a row. Nothing is
/// copied. Any thread.
///
/// The arrays are the dataset's from here on, also if this fails: each one's `drop` is called when it is not needed any more
/// (but not if its struct is too short to have one). `*out` is NULL if it fails.
///
/// # Errors
///
/// `SLOTLINE_INVALID`: a null pointer, no arrays, a short struct, a dtype, shape or name that is none, data that is not
/// aligned, `bool`s other than 0 and 1, different numbers of rows, or two fields of one name.
///
/// # Safety
///
/// `arrays` must point to `n` structs, whose pointers are what they are said to be; `out` and `error` must be writable, or
/// NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_dataset_from_arrays(
    arrays: *const slotline_array,
    n: usize,
    out: *mut *mut slotline_dataset,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller's word.
    unsafe {
        boundary(error, || {
            let arrays = Arrays::from_c(arrays, n);
            let out = check::place(out, std::ptr::null_mut(), "out")?;
            *out = slotline_dataset::boxed(Data::Arrays(Arc::new(arrays?)));
            Ok(SLOTLINE_OK)
        })
    }
}

/// Makes a dataset whose samples a callback writes, by index. Any thread; `*out` is NULL if it fails.
///
/// The callbacks are the dataset's from here on, also if this fails: `drop` is called when they are not needed any more (but
/// not if the struct is too short to have one).
///
/// # Errors
///
/// `SLOTLINE_INVALID`: a null pointer, a short struct, or fields that are none.
///
/// # Safety
///
/// `dataset` must be NULL, or what `slotline_map_dataset` says; `out` and `error` must be writable, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_dataset_from_callbacks(
    dataset: *const slotline_map_dataset,
    out: *mut *mut slotline_dataset,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller's word.
    unsafe {
        boundary(error, || {
            let map = Map::from_c(dataset);
            let out = check::place(out, std::ptr::null_mut(), "out")?;
            *out = slotline_dataset::boxed(Data::Map(Arc::new(map?)));
            Ok(SLOTLINE_OK)
        })
    }
}

/// Makes a dataset whose samples callbacks give one after the other. Any thread; `*out` is NULL if it fails.
///
/// The callbacks are the dataset's from here on, as with `slotline_dataset_from_callbacks`.
///
/// # Errors
///
/// `SLOTLINE_INVALID`: a null pointer, a short struct, or fields that are none.
///
/// # Safety
///
/// `dataset` must be NULL, or what `slotline_stream_dataset` says; `out` and `error` must be writable, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_dataset_from_stream(
    dataset: *const slotline_stream_dataset,
    out: *mut *mut slotline_dataset,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller's word.
    unsafe {
        boundary(error, || {
            let stream = Stream::from_c(dataset);
            let out = check::place(out, std::ptr::null_mut(), "out")?;
            *out = slotline_dataset::boxed(Data::Stream(Arc::new(stream?)));
            Ok(SLOTLINE_OK)
        })
    }
}

/// How many samples it has; -1 if that is not known, or for NULL. Any thread.
///
/// # Safety
///
/// `dataset` must be NULL or a dataset that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_dataset_len(dataset: *const slotline_dataset) -> i64 {
    // SAFETY: the caller's word.
    let len = unsafe { dataset.as_ref() }.and_then(|dataset| dataset.0.len());
    len.and_then(|len| i64::try_from(len).ok()).unwrap_or(-1)
}

/// Frees a dataset; NULL is fine. Loaders made of it go on. Any thread.
///
/// # Safety
///
/// As of `slotline_dataset_len`; nobody may use it from then on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_dataset_free(dataset: *mut slotline_dataset) {
    if !dataset.is_null() {
        // SAFETY: it was made by `boxed`, and the caller gives it up.
        guarded((), || drop(unsafe { Box::from_raw(dataset) }));
    }
}
