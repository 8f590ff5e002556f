//! The handle of a dataset, and the functions that create and read one.

use std::ffi::c_char;
use std::ptr::null_mut;
use std::sync::Arc;

use slotline::dataset::{Dataset, IterableDataset};
use slotline::sample::Fields;
use slotline::source::{ParseSourceError, Source};

use crate::abi::{Failure, SLOTLINE_ERROR_SOURCE, check, done, free, guarded, made, slotline_error, slotline_status};
use crate::batch::handle::slotline_batch;
use crate::data::alone;
use crate::data::arrays::{Arrays, slotline_array};
#[cfg(feature = "sources")]
use crate::data::files;
use crate::data::indexed::Indexed;
use crate::data::map::{Map, slotline_map_dataset};
use crate::data::stream::{Stream, slotline_stream_dataset};
use crate::data::streamed::Streamed;

/// A dataset. A loader keeps what it needs of it, so the dataset may be freed once the loader was
/// created. Any number of threads may use it concurrently.
#[derive(Debug)]
pub struct slotline_dataset(pub(crate) Data);

impl From<Data> for slotline_dataset {
    fn from(data: Data) -> Self {
        Self(data)
    }
}

/// A dataset that is read by index, or a stream.
#[derive(Clone, Debug)]
pub(crate) enum Data {
    Indexed(Indexed),
    Stream(Streamed),
}

impl Data {
    /// Returns the number of samples; `None` if it is unknown.
    pub(crate) fn len(&self) -> Option<usize> {
        match self {
            Self::Indexed(dataset) => Some(dataset.len()),
            Self::Stream(stream) => stream.len(),
        }
    }

    /// Returns the fields of every sample.
    pub(crate) fn fields(&self) -> Fields {
        let fields = match self {
            Self::Indexed(dataset) => dataset.fields(),
            Self::Stream(stream) => stream.fields(),
        };
        fields.unwrap_or_default()
    }

    /// Returns the dataset if it is read by index.
    pub(crate) fn indexed(&self) -> Result<&Indexed, Failure> {
        match self {
            Self::Indexed(dataset) => Ok(dataset),
            Self::Stream(_) => Err(Failure::invalid(
                "the dataset is a stream, whose samples have no index; use one that reads by index, or \
                 slotline_dataset_chain for streams",
            )),
        }
    }

    /// Returns the dataset if it is a stream.
    pub(crate) fn stream(&self) -> Result<&Streamed, Failure> {
        match self {
            Self::Stream(stream) => Ok(stream),
            Self::Indexed(_) => Err(Failure::invalid(
                "the dataset is read by index; use a stream, or slotline_dataset_concat for datasets with indices",
            )),
        }
    }
}

/// Opens a dataset by name, with the names that the `slotline` program accepts: `digits` (1797
/// images and labels that are part of the library), `idx:FILE[,FILE...]` (the format of MNIST, read
/// into memory) or `npy:FILE[,FILE...]` (NumPy's format, memory-mapped). A sample is a row of each
/// file; fields are named by their position, from "0". On failure `*out` is NULL. Can be called
/// from any thread.
///
/// A library built with `SLOTLINE_SOURCES` also opens a file, a folder, or a pattern of files, and
/// detects the format: a folder with one folder of files for each class, tars of WebDataset, a CSV
/// or JSONL file with a column of file names, TFRecord, tokens, MDS, LitData, Arrow, Parquet,
/// safetensors and npz. Fields are named as in the files; bytes, texts and lists are packed fields.
/// Arrow files on a local disk are memory-mapped.
///
/// No process may write to a mapped file or truncate it while the dataset, or a loader of it, exists. To replace a file, rename
/// another file over it.
///
/// # Errors
///
/// `SLOTLINE_ERROR_INVALID`: a null pointer, or a name that is not valid. `SLOTLINE_ERROR_SOURCE`: a file cannot be read, or
/// the files differ in their number of rows.
///
/// # Safety
///
/// `source` must be NULL or end with a NUL; `out` and `error` must be NULL or writable. Mapped files must not be changed, as
/// described above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_dataset_open(
    source: *const c_char,
    out: *mut *mut slotline_dataset,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller guarantees the conditions of both functions; the options are a constant.
    unsafe { slotline_dataset_open_with(source, c"".as_ptr(), out, error) }
}

/// Opens a dataset like `slotline_dataset_open`, with options for files. Each line of `options` is
/// `NAME` or `NAME=VALUE`, for example `"columns=jpg;png,cls\nskip_incomplete"`; fields and columns
/// are named as in error messages. The options are those of `OpenOptions` in Rust: `columns`,
/// `skip_incomplete`, `missing_end`, `missing_as_zero`, `decimals_as_f64`, `decode=FIELD=KIND`,
/// `file_column`, `without_files`, `default_number=COLUMN=NUMBER`, `extensions`, `allow_empty`,
/// `mask_folder`, `block_size`, `dtype`, `memory_limit`, `room`, `index_files`.
///
/// # Errors
///
/// The same as for `slotline_dataset_open`, and `SLOTLINE_ERROR_INVALID` also if an option does not
/// exist or has an invalid value, or if the source does not consist of files.
///
/// # Safety
///
/// `source` and `options` must be NULL or end with a NUL; `out` and `error` must be NULL or writable. Mapped files must not be
/// changed, as for `slotline_dataset_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_dataset_open_with(
    source: *const c_char,
    options: *const c_char,
    out: *mut *mut slotline_dataset,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller guarantees that `source` and `options` are NULL or end with a NUL, and that `out` and `error` are NULL
    // or writable.
    unsafe {
        made(out, error, || {
            let source = check::text(source, "source")?;
            let options = check::text(options, "options")?;
            #[cfg(feature = "sources")]
            if matches!(source.parse::<Source>(), Err(ParseSourceError::Kind)) && files::is_name(source) {
                return Ok(Data::Indexed(files::open(source, options)?).into());
            }
            if !options.trim().is_empty() {
                return Err(Failure::invalid("options of files for a source that is none; pass none".to_owned()));
            }
            let source = source.parse::<Source>();
            let source = source.map_err(|error| {
                let advice = match error {
                    ParseSourceError::Kind if cfg!(not(feature = "sources")) => {
                        "; for other files and folders, build the library with the CMake option SLOTLINE_SOURCES"
                    }
                    _ => "",
                };
                Failure::invalid(format!("source: {error}{advice}"))
            })?;
            // SAFETY: the caller guarantees that no process changes the mapped files.
            let rows = source.map().map_err(|error| Failure::of(SLOTLINE_ERROR_SOURCE, &error))?;
            Ok(Data::Indexed(Indexed::Arrays(Arc::new(Arrays::new(rows)?))).into())
        })
    }
}

/// Creates a dataset of `n` arrays of equal length. A sample is a row of each array, and the shape
/// of a field is the shape of a row. Nothing is copied. Can be called from any thread.
///
/// The dataset takes ownership of the arrays, even if this function fails: each array's `drop` is
/// called once the array is no longer needed (unless its struct is too short to contain `drop`). On
/// failure `*out` is NULL.
///
/// # Errors
///
/// `SLOTLINE_ERROR_INVALID`: a null pointer, no arrays, a struct that is too short, an invalid dtype, shape or name, data that
/// is not aligned, `bool`s other than 0 and 1, different numbers of rows, or two fields with the same name.
///
/// # Safety
///
/// `arrays` must point to `n` structs with valid pointers; `out` and `error` must be NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_dataset_from_arrays(
    arrays: *const slotline_array,
    n: usize,
    out: *mut *mut slotline_dataset,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller guarantees that `arrays` points to `n` valid structs, and that `out` and `error` are NULL or writable.
    unsafe { made(out, error, || Ok(Data::Indexed(Indexed::Arrays(Arc::new(Arrays::from_c(arrays, n)?))).into())) }
}

/// Creates a map-style dataset, whose samples a callback writes by index. On failure `*out` is
/// NULL. Can be called from any thread.
///
/// The dataset takes ownership of the callbacks' user pointer, even if this function fails: `drop` is called once the callbacks
/// are no longer needed (unless the struct is too short to contain `drop`).
///
/// # Errors
///
/// `SLOTLINE_ERROR_INVALID`: a null pointer, a struct that is too short, or invalid fields.
///
/// # Safety
///
/// `dataset` must be NULL or a valid `slotline_map_dataset`; `out` and `error` must be NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_dataset_from_callbacks(
    dataset: *const slotline_map_dataset,
    out: *mut *mut slotline_dataset,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller guarantees that `dataset` is NULL or valid, and that `out` and `error` are NULL or writable.
    unsafe { made(out, error, || Ok(Data::Indexed(Indexed::Map(Arc::new(Map::from_c(dataset)?))).into())) }
}

/// Creates an iterable dataset, whose samples callbacks write one after another. On failure `*out`
/// is NULL. Can be called from any thread.
///
/// The dataset takes ownership of the callbacks' user pointer, as with `slotline_dataset_from_callbacks`.
///
/// # Errors
///
/// `SLOTLINE_ERROR_INVALID`: a null pointer, a struct that is too short, or invalid fields.
///
/// # Safety
///
/// `dataset` must be NULL or a valid `slotline_stream_dataset`; `out` and `error` must be NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_dataset_from_stream(
    dataset: *const slotline_stream_dataset,
    out: *mut *mut slotline_dataset,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller guarantees that `dataset` is NULL or valid, and that `out` and `error` are NULL or writable.
    unsafe { made(out, error, || Ok(Data::Stream(Streamed::Calls(Arc::new(Stream::from_c(dataset)?))).into())) }
}

/// Returns the number of samples; -1 if it is unknown, or for NULL. Can be called from any thread.
///
/// # Safety
///
/// `dataset` must be NULL or a dataset that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_dataset_len(dataset: *const slotline_dataset) -> i64 {
    // SAFETY: the caller guarantees that `dataset` is NULL or was not freed.
    let len = unsafe { dataset.as_ref() }.and_then(|dataset| dataset.0.len());
    len.and_then(|len| i64::try_from(len).ok()).unwrap_or(-1)
}

/// Reads sample `index` in the calling thread, without a loader. `*out` receives a batch of only
/// this sample, which the caller must free: its tensors lack the first dimension,
/// `slotline_batch_len` is 1, and `slotline_batch_indices` is `index`. The random numbers are those
/// of position 0 in epoch 0 of a loader with seed 0. On failure `*out` is NULL. Can be called from
/// any thread.
///
/// # Errors
///
/// `SLOTLINE_ERROR_INVALID`: a null pointer, an index that is not below the number of samples, or a stream.
/// `SLOTLINE_ERROR_SAMPLE`: the sample cannot be read. `SLOTLINE_ERROR_BUILD`: there is not enough
/// memory for it.
///
/// # Safety
///
/// `dataset` must be NULL or a dataset that was not freed; `out` and `error` must be NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_dataset_read(
    dataset: *const slotline_dataset,
    index: usize,
    out: *mut *mut slotline_batch,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller guarantees that `dataset` is NULL or was not freed, and that `out` and `error` are NULL or writable.
    unsafe {
        done(error, || {
            let out = check::place(out, null_mut(), "out")?;
            *out = alone::read(check::reference(dataset, "dataset")?.0.indexed()?, index)?;
            Ok(())
        })
    }
}

/// Returns another handle of the same dataset, which must also be freed. NULL for NULL. Can be called from any thread.
///
/// # Safety
///
/// The same as for `slotline_dataset_len`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_dataset_clone(dataset: *const slotline_dataset) -> *mut slotline_dataset {
    guarded(null_mut(), || {
        // SAFETY: the caller guarantees that `dataset` is NULL or was not freed.
        let dataset = unsafe { dataset.as_ref() };
        dataset.map_or(null_mut(), |dataset| Box::into_raw(Box::new(slotline_dataset(dataset.0.clone()))))
    })
}

/// Frees a dataset. Does nothing for NULL. Loaders created from it are not affected. Can be called
/// from any thread.
///
/// # Safety
///
/// The same as for `slotline_dataset_len`; the dataset must not be used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_dataset_free(dataset: *mut slotline_dataset) {
    // SAFETY: the library created the dataset in a box, and the caller transfers its ownership.
    unsafe { free(dataset) }
}
