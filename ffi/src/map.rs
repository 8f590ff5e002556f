//! Map-style datasets, whose samples a callback writes by index.

use std::ffi::c_void;

use slotline::BoxError;
use slotline::dataset::{Context, Dataset, OutOfRange, reading};
use slotline::sample::{Fields, Row, Sample};

use crate::failure::Failure;
use crate::field::{Declared, declare, fields, slotline_field};
use crate::owner::{Owner, slotline_drop};
use crate::sample::slotline_sample;
use crate::versioned::{self, Versioned};

/// Writes sample `index` (below `len`): each of its fields with `slotline_sample_row` or `slotline_sample_write`. Returns 0, or
/// another value if the sample cannot be read; `slotline_sample_fail` sets the reason. Several threads call it at once.
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
    /// The fields of every sample, read when the dataset is made; at most 64.
    pub fields: *const slotline_field,
    /// The number of fields.
    pub num_fields: usize,
    /// Writes a sample.
    pub read: slotline_read,
    /// Called once when the dataset is no longer needed, on any thread; may be NULL.
    pub drop: slotline_drop,
}

// SAFETY: it contains only numbers and pointers, and its first field is its size.
unsafe impl Versioned for slotline_map_dataset {
    const END: usize = versioned::end!(drop);

    fn defaults() -> Self {
        Self {
            struct_size: 0,
            user: std::ptr::null_mut(),
            len: 0,
            fields: std::ptr::null(),
            num_fields: 0,
            read: None,
            drop: None,
        }
    }
}

/// A dataset made of callbacks.
#[derive(Debug)]
pub(crate) struct Map {
    owner: Owner,
    len: usize,
    read: unsafe extern "C" fn(*mut c_void, usize, *mut slotline_sample) -> i32,
    declared: Box<[Declared]>,
    fields: Fields,
}

impl Map {
    /// Takes ownership of a user's dataset.
    ///
    /// # Safety
    ///
    /// `dataset` must be as `slotline_map_dataset` documents it.
    pub(crate) unsafe fn from_c(dataset: *const slotline_map_dataset) -> Result<Self, Failure> {
        // SAFETY: the caller guarantees that `dataset` is valid for its `struct_size`.
        let (dataset, owner) = unsafe { versioned::read(dataset, "dataset", |c| Owner::new(c.user, c.drop))? };
        let read = dataset.read.ok_or_else(|| Failure::invalid("dataset->read is NULL"))?;
        // SAFETY: the caller guarantees that the fields and their pointers are valid.
        let declared = unsafe { declare(dataset.fields, dataset.num_fields)? };
        Ok(Self { owner, len: dataset.len, read, fields: fields(&declared)?, declared: declared.into() })
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
        Ok(Called { dataset: self, index, context })
    }

    fn fields(&self) -> Option<Fields> {
        Some(self.fields.clone())
    }
}

/// A sample that a callback writes once there is a row for it.
#[derive(Debug)]
pub(crate) struct Called<'a> {
    dataset: &'a Map,
    index: usize,
    context: &'a mut Context,
}

impl Sample for Called<'_> {
    type Schema = ();

    fn declare(&self, fields: &mut Fields) {
        self.dataset.declared.iter().for_each(|field| fields.named(&field.name, &field));
    }

    #[inline]
    fn write(self, row: &mut Row<'_>) -> Result<(), BoxError> {
        let Map { owner, read, declared, .. } = self.dataset;
        // SAFETY: the user has agreed that any thread may call `read` this way; the sample is lent to the callback while it
        // runs.
        let read = |sample| unsafe { read(owner.user(), self.index, sample) };
        // The callback reads, except in `slotline_sample_write`.
        reading(|| slotline_sample::write(row, self.context, declared, false, read)).map(drop)
    }
}
