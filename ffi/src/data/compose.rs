//! Datasets made of other datasets. They share these datasets; only lists of indices are copied.

use std::ptr::null_mut;
use std::sync::Arc;

use slotline::dataset::{SplitError, SplitLength, Subset, SubsetError, random_split};

use crate::abi::{Failure, SLOTLINE_ERROR_BUILD, chain, check, done, made, slotline_error, slotline_status, versioned};
use crate::data::dataset::{Data, slotline_dataset};
use crate::data::indexed::{Concat, Indexed, Stack};
use crate::data::packed::{Packed, slotline_packing};
use crate::data::streamed::{Chain, Mapped, Streamed};
use crate::data::transform::{Callback, Transform, slotline_transform};
use crate::sampling::{slotline_generator, with_generator};

/// Returns the dataset behind a handle, if it is read by index.
///
/// # Safety
///
/// `dataset` must be NULL or a dataset that was not freed.
unsafe fn indexed(dataset: *const slotline_dataset) -> Result<Indexed, Failure> {
    // SAFETY: the caller upholds this function's safety contract.
    unsafe { data(dataset, Data::indexed) }
}

/// Returns the dataset behind a handle if `kind` accepts it.
///
/// # Safety
///
/// `dataset` must be NULL or a dataset that was not freed.
unsafe fn data<T: Clone>(dataset: *const slotline_dataset, kind: Kind<T>) -> Result<T, Failure> {
    // SAFETY: the caller upholds this function's safety contract.
    kind(&unsafe { check::reference(dataset, "dataset")? }.0).cloned()
}

/// A function that accepts one kind of dataset: [`Data::indexed`] or [`Data::stream`].
type Kind<T> = fn(&Data) -> Result<&T, Failure>;

/// Returns the datasets of a list.
///
/// # Safety
///
/// `datasets` must point to `n` pointers, each NULL or a dataset that was not freed.
unsafe fn list<T: Clone>(datasets: *const *const slotline_dataset, n: usize, kind: Kind<T>) -> Result<Vec<T>, Failure> {
    // SAFETY: the caller upholds this function's safety contract.
    let datasets = unsafe { check::slice(datasets, n, "datasets")? };
    // SAFETY: as above.
    let each = |(place, &dataset)| unsafe { data(dataset, kind) }.map_err(|failure| failure.within("datasets", place));
    datasets.iter().enumerate().map(each).collect()
}

/// Creates a dataset of the samples at `n` indices of another dataset, in that order; an index may
/// occur repeatedly (torch's `Subset`). The indices are copied, and the other dataset is shared, so
/// both may be freed. On failure `*out` is NULL. Can be called from any thread.
///
/// # Errors
///
/// `SLOTLINE_ERROR_INVALID`: a null pointer, a stream, or an index that is not below the number of samples.
/// `SLOTLINE_ERROR_BUILD`: there is no memory for the indices.
///
/// # Safety
///
/// `dataset` must be NULL or a dataset that was not freed; `indices` must point to `n` numbers; `out` and `error` must be NULL
/// or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_dataset_subset(
    dataset: *const slotline_dataset,
    indices: *const usize,
    n: usize,
    out: *mut *mut slotline_dataset,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller upholds this function's safety contract.
    unsafe {
        made(out, error, || {
            let (dataset, indices) = (indexed(dataset)?, check::slice(indices, n, "indices")?);
            let subset = Subset::new(Arc::new(dataset), indices.iter().copied()).map_err(|error| match error {
                SubsetError::Memory { .. } => Failure::of(SLOTLINE_ERROR_BUILD, &error),
                _ => Failure::invalid(chain(&error)),
            })?;
            Ok(Data::Indexed(Indexed::Subset(Arc::new(subset))).into())
        })
    }
}

/// Splits a dataset at random into `n` parts that share no samples (torch's `random_split`). Part
/// `i` has `lengths[i]` samples, and `out` receives `n` datasets. The parts are the same as in
/// torch with the same generator; NULL stands for the process's default generator
/// (`slotline_manual_seed`). On failure all of `out` are NULL. Can be called from any thread.
///
/// # Errors
///
/// `SLOTLINE_ERROR_INVALID`: a null pointer, a stream, or lengths that do not add up to the number of samples.
/// `SLOTLINE_ERROR_BUILD`: there is no memory for the indices.
///
/// # Safety
///
/// `dataset` must be NULL or a dataset that was not freed; `generator` must be NULL or a generator that was not freed; `lengths`
/// must point to `n` numbers; `out` must be NULL or writable for `n` pointers; `error` must be NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_dataset_random_split(
    dataset: *const slotline_dataset,
    lengths: *const usize,
    n: usize,
    generator: *const slotline_generator,
    out: *mut *mut slotline_dataset,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller upholds this function's safety contract.
    unsafe { done(error, || split(dataset, check::slice(lengths, n, "lengths")?, generator, out)) }
}

/// Splits a dataset at random by fractions, which must add up to 1; otherwise the same as
/// `slotline_dataset_random_split`. The length of each part is rounded down, and the remaining
/// samples are distributed to the parts in turn, beginning with the first.
///
/// # Errors
///
/// The same as for `slotline_dataset_random_split`, and also for fractions that are not between 0
/// and 1 or do not add up to 1.
///
/// # Safety
///
/// The same as for `slotline_dataset_random_split`, for `fractions`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_dataset_random_split_fractions(
    dataset: *const slotline_dataset,
    fractions: *const f64,
    n: usize,
    generator: *const slotline_generator,
    out: *mut *mut slotline_dataset,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller upholds this function's safety contract.
    unsafe { done(error, || split(dataset, check::slice(fractions, n, "fractions")?, generator, out)) }
}

/// Splits a dataset, and writes a handle for each part to `out`.
///
/// # Safety
///
/// `dataset` and `generator` must be NULL or not freed; `out` must be NULL or writable for as many pointers as there are parts.
unsafe fn split<L: SplitLength>(
    dataset: *const slotline_dataset,
    lengths: &[L],
    generator: *const slotline_generator,
    out: *mut *mut slotline_dataset,
) -> Result<(), Failure> {
    // SAFETY: the caller upholds this function's safety contract; `out` is checked before it is written.
    unsafe {
        check::pointer(out, "out")?;
        (0..lengths.len()).for_each(|i| *out.add(i) = null_mut());
        let dataset = indexed(dataset)?;
        let parts = with_generator(generator, |generator| random_split(dataset, lengths, generator));
        let parts = parts.map_err(|error| match error {
            SplitError::Randperm(_) => Failure::of(SLOTLINE_ERROR_BUILD, &error),
            _ => Failure::invalid(chain(&error)),
        })?;
        for (i, part) in parts.into_iter().enumerate() {
            let part = Data::Indexed(Indexed::Subset(Arc::new(part)));
            *out.add(i) = Box::into_raw(Box::new(part.into()));
        }
        Ok(())
    }
}

/// Creates a dataset of the samples of `n` datasets, one after another (torch's `ConcatDataset`).
/// The datasets must have the same fields; only the lengths of padded and packed fields may differ,
/// and the largest applies. The datasets are shared, so they may be freed. On failure `*out` is
/// NULL. Can be called from any thread.
///
/// # Errors
///
/// `SLOTLINE_ERROR_INVALID`: a null pointer, no datasets, a stream, or fields that differ.
///
/// # Safety
///
/// `datasets` must point to `n` pointers, each NULL or a dataset that was not freed; `out` and `error` must be NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_dataset_concat(
    datasets: *const *const slotline_dataset,
    n: usize,
    out: *mut *mut slotline_dataset,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller upholds this function's safety contract.
    unsafe {
        made(out, error, || {
            let concat = Concat::new(list(datasets, n, Data::indexed)?)?;
            Ok(Data::Indexed(Indexed::Concat(Arc::new(concat))).into())
        })
    }
}

/// Creates a stream of the samples of `n` streams, one after another (torch's `ChainDataset`). Each
/// worker reads all of the streams, and opens each one when it reaches it; if that fails, the error
/// takes the place of a batch, and the worker continues with the next stream. The fields must agree
/// as for `slotline_dataset_concat`. The streams are shared, so they may be freed. On failure
/// `*out` is NULL. Can be called from any thread.
///
/// # Errors
///
/// `SLOTLINE_ERROR_INVALID`: a null pointer, no datasets, one that is not a stream, or fields that differ.
///
/// # Safety
///
/// The same as for `slotline_dataset_concat`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_dataset_chain(
    datasets: *const *const slotline_dataset,
    n: usize,
    out: *mut *mut slotline_dataset,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller upholds this function's safety contract.
    unsafe {
        made(out, error, || {
            let chain = Chain::new(list(datasets, n, Data::stream)?)?;
            Ok(Data::Stream(Streamed::Chain(Arc::new(chain))).into())
        })
    }
}

/// Creates a dataset whose samples have the fields of `n` datasets of equal length at the same
/// index (torch's `StackDataset`), in the order of the datasets. A field that is named by its
/// position, such as "0", is renamed to its new position; other names must be unique. Each dataset
/// has separate random numbers. The datasets are shared, so they may be freed. On failure `*out` is
/// NULL. Can be called from any thread.
///
/// # Errors
///
/// `SLOTLINE_ERROR_INVALID`: a null pointer, no datasets, a stream, different numbers of samples, or two fields with the same
/// name.
///
/// # Safety
///
/// The same as for `slotline_dataset_concat`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_dataset_stack(
    datasets: *const *const slotline_dataset,
    n: usize,
    out: *mut *mut slotline_dataset,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller upholds this function's safety contract.
    unsafe {
        made(out, error, || {
            let stack = Stack::new(list(datasets, n, Data::indexed)?)?;
            Ok(Data::Indexed(Indexed::Stack(Arc::new(stack))).into())
        })
    }
}

/// Creates a dataset in which a callback makes each sample from one sample of another dataset. The
/// callback and the other dataset have separate random numbers. If the other dataset is a stream,
/// the result is a stream that resumes where the other one does. The other dataset is shared, so it
/// may be freed. On failure `*out` is NULL. Can be called from any thread.
///
/// The dataset takes ownership of the callback's user pointer, even if this function fails: `drop` is called once the callback
/// is no longer needed (unless the struct is too short to contain `drop`).
///
/// # Errors
///
/// `SLOTLINE_ERROR_INVALID`: a null pointer, a struct that is too short, or invalid fields.
///
/// # Safety
///
/// `dataset` must be NULL or a dataset that was not freed; `transform` must be NULL or a valid `slotline_transform`; `out` and
/// `error` must be NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_dataset_map(
    dataset: *const slotline_dataset,
    transform: *const slotline_transform,
    out: *mut *mut slotline_dataset,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller upholds this function's safety contract.
    unsafe {
        made(out, error, || {
            // Comes first, because ownership of the callback's user pointer is taken even if this
            // function fails.
            let callback = Callback::from_c(transform);
            let mapped = match check::reference(dataset, "dataset")?.0.clone() {
                Data::Indexed(source) => Data::Indexed(Indexed::Transform(Arc::new(Transform::new(source, callback?)))),
                Data::Stream(source) => Data::Stream(Streamed::Mapped(Arc::new(Mapped::new(source, callback?)))),
            };
            Ok(mapped.into())
        })
    }
}

/// Creates a dataset of rows of one length, which are filled with the samples of another dataset, called
/// documents. Each field of a document must be a sequence of tokens (padded, or packed with single
/// elements), and all of them have equally many tokens. Which documents are in which row depends only on
/// `packing`. Documents are read when their row is. The arrays are copied, and the other dataset is
/// shared, so it may be freed. On failure `*out` is NULL. Can be called from any thread.
///
/// A row has the fields of the documents, with the shape `[capacity]`, and three more of type `int32_t`:
/// `position_ids`, of the shape `[capacity]`, the position of each token in its document or its piece,
/// from 0; `document_ids`, of the same shape: 1 for the first document of the row, 2 for the second, and
/// so on, and 0 in the padding; and `cu_seqlens`, padded to a maximum: 0 and the end of each document.
/// Attention within documents compares `document_ids`.
///
/// # Errors
///
/// `SLOTLINE_ERROR_INVALID`: a null pointer, a struct that is too short, a stream, a field that is no
/// sequence, or that has the name of another field of a row, a capacity out of range, a number of
/// `lengths` that is not that of the documents, or padding that its field cannot have.
/// `SLOTLINE_ERROR_BUILD`: there is no memory for the plan. A document whose length is not that in
/// `lengths` makes its row a bad sample.
///
/// # Safety
///
/// `dataset` must be NULL or a dataset that was not freed; `packing` must be NULL or a valid `slotline_packing`; `out` and
/// `error` must be NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_dataset_pack(
    dataset: *const slotline_dataset,
    packing: *const slotline_packing,
    out: *mut *mut slotline_dataset,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller upholds this function's safety contract.
    unsafe {
        made(out, error, || {
            let (packing, ()) = versioned::read(packing, "packing", |_| ())?;
            let packed = Packed::new(indexed(dataset)?, &packing)?;
            Ok(Data::Indexed(Indexed::Packed(Arc::new(packed))).into())
        })
    }
}
