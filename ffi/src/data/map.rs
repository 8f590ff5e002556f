//! Map-style datasets, whose samples a callback writes by index.

use std::ffi::c_void;

use slotline::BoxError;
use slotline::dataset::{Context, Dataset, OutOfRange, reading};
use slotline::sample::{Fields, Row, Sample};

use crate::abi::{Failure, Owner, Versioned, slotline_drop, versioned};
use crate::data::bulk_read::{call, one_by_one, slotline_prefetch, slotline_read_many};
use crate::data::sample::slotline_sample;
use crate::fields::field::{Declared, declare, fields, slotline_field};

/// Writes sample `index` (below `len`): each of its fields with `slotline_sample_row` or
/// `slotline_sample_write`. Returns 0, or another value if the sample cannot be read, after setting
/// the reason with `slotline_sample_fail`. Several threads call it concurrently.
pub type slotline_read =
    Option<unsafe extern "C" fn(user: *mut c_void, index: usize, sample: *mut slotline_sample) -> i32>;

/// A map-style dataset made of callbacks.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct slotline_map_dataset {
    /// `sizeof(slotline_map_dataset)`.
    pub struct_size: usize,
    /// The user pointer that is passed to the callbacks.
    pub user: *mut c_void,
    /// The number of samples.
    pub len: usize,
    /// The fields of every sample, at most 64. They are copied when the dataset is created.
    pub fields: *const slotline_field,
    /// The number of fields.
    pub num_fields: usize,
    /// Writes a sample.
    pub read: slotline_read,
    /// Called once when the dataset is no longer needed, on any thread; may be NULL.
    pub drop: slotline_drop,
    /// Reads several samples at once, if the dataset does this faster than one at a time; may be
    /// NULL. A loader then calls it instead of `read` for a batch or a part of a batch. In a
    /// concatenation it is called for adjacent samples of the same dataset. In a stack, it is used
    /// only for the first dataset that has this function.
    pub read_many: slotline_read_many,
    /// Announces that a sample will be read soon; may be NULL.
    pub prefetch: slotline_prefetch,
}

// SAFETY: it contains only numbers and pointers, and its first field is its size.
unsafe impl Versioned for slotline_map_dataset {
    const END: usize = versioned::end!(prefetch);
}

/// A callback that writes a sample.
pub(crate) type Read = unsafe extern "C" fn(*mut c_void, usize, *mut slotline_sample) -> i32;

/// A map-style dataset made of callbacks.
#[derive(Debug)]
pub(crate) struct Map {
    owner: Owner,
    len: usize,
    read: Read,
    read_many: slotline_read_many,
    prefetch: slotline_prefetch,
    declared: Box<[Declared]>,
    fields: Fields,
}

impl Map {
    /// Takes ownership of a user's dataset.
    ///
    /// # Safety
    ///
    /// `dataset` must be NULL or valid as documented at `slotline_map_dataset`.
    pub(crate) unsafe fn from_c(dataset: *const slotline_map_dataset) -> Result<Self, Failure> {
        // SAFETY: the caller guarantees that `dataset` is valid for its `struct_size`.
        let (dataset, owner) = unsafe { versioned::read(dataset, "dataset", |c| Owner::new(c.user, c.drop))? };
        let read = dataset.read.ok_or_else(|| Failure::invalid("dataset->read is NULL"))?;
        // SAFETY: the caller guarantees that the fields and their pointers are valid.
        let declared = unsafe { declare(dataset.fields, dataset.num_fields)? };
        let slotline_map_dataset { len, read_many, prefetch, .. } = dataset;
        Ok(Self { owner, len, read, read_many, prefetch, fields: fields(&declared)?, declared: declared.into() })
    }
}

impl Dataset for Map {
    type Sample<'a> = Called<'a>;

    fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn get<'a>(&'a self, index: usize, context: &'a mut Context) -> Result<Called<'a>, BoxError> {
        if index >= self.len {
            return Err(OutOfRange { dataset: "the dataset", index, len: self.len }.into());
        }
        Ok(Called { dataset: self, index, context, write: None })
    }

    #[inline]
    fn prefetch(&self, index: usize) {
        if let Some(prefetch) = self.prefetch.filter(|_| index < self.len) {
            // SAFETY: the user has guaranteed that any thread may call `prefetch` this way.
            unsafe { prefetch(self.owner.user(), index) };
        }
    }

    fn reads_many(&self) -> bool {
        self.read_many.is_some()
    }

    fn get_many(
        &self,
        indices: &[usize],
        context: &mut Context,
        put: &mut dyn for<'a> FnMut(Called<'a>) -> Result<(), BoxError>,
    ) -> Result<(), BoxError> {
        let Some(read_many) = self.read_many else { return one_by_one(self, indices, context, put) };
        // An index out of range is an error only of its own sample, so the samples before it are
        // read first.
        let within = indices.iter().position(|&index| index >= self.len).unwrap_or(indices.len());
        let (inside, beyond) = indices.split_at(within);
        if !inside.is_empty() {
            let mut given = 0;
            let mut next = |write, user| {
                let many = inside.len();
                let more = || format!("read_many was asked for {many} samples, but put more");
                let &index = inside.get(given).ok_or_else(more)?;
                context.go_to(given);
                put(Called { dataset: self, index, context, write: Some((write, user)) })?;
                given += 1;
                Ok(())
            };
            call(&mut next, |put, failure| {
                // SAFETY: the user has guaranteed that any thread may call `read_many` this way;
                // `put` and `failure` are valid during the call.
                unsafe { read_many(self.owner.user(), inside.as_ptr(), inside.len(), put, failure) }
            })?;
            if given < inside.len() {
                let many = inside.len();
                return Err(format!("read_many was asked for {many} samples, but put only {given}").into());
            }
        }
        beyond.first().map_or(Ok(()), |&index| Err(OutOfRange { dataset: "the dataset", index, len: self.len }.into()))
    }

    fn fields(&self) -> Option<Fields> {
        Some(self.fields.clone())
    }
}

/// A sample that a callback writes once a row is available.
#[derive(Debug)]
pub(crate) struct Called<'a> {
    dataset: &'a Map,
    index: usize,
    context: &'a mut Context,
    /// For a sample of a bulk read: the callback that writes it, and the callback's user pointer.
    write: Option<(Read, *mut c_void)>,
}

impl Sample for Called<'_> {
    type Schema = ();

    fn declare(&self, fields: &mut Fields) {
        self.dataset.declared.iter().for_each(|field| fields.named(&field.name, &field));
    }

    #[inline]
    fn write(self, row: &mut Row<'_>) -> Result<(), BoxError> {
        let Map { owner, read, declared, .. } = self.dataset;
        if let Some((write, user)) = self.write {
            // SAFETY: the running bulk read has passed this callback and its pointer; the sample is
            // valid during the call.
            let write = |sample| unsafe { write(user, self.index, sample) };
            return slotline_sample::write(row, self.context, declared, false, write).map(drop);
        }
        // SAFETY: the user has guaranteed that any thread may call `read` this way; the sample is
        // valid during the call.
        let read = |sample| unsafe { read(owner.user(), self.index, sample) };
        // Time in the callback counts as reading, except in `slotline_sample_write`.
        reading(|| slotline_sample::write(row, self.context, declared, false, read)).map(drop)
    }
}
