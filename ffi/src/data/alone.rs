//! A single sample that is read without a loader, as a batch.

use std::fmt;
use std::sync::Arc;

use slotline::BoxError;
use slotline::dataset::{Context, Dataset};
use slotline::sample::{Columns, Fields, OwnedSample, OwnedSampleError, Row, Sample};

use crate::abi::{Failure, SLOTLINE_ERROR_BUILD, SLOTLINE_ERROR_SAMPLE, chain, find};
use crate::batch::handle::{Made, slotline_batch};
use crate::fields::field::About;

/// The content of a batch that consists of one sample.
#[derive(Debug)]
pub(crate) struct Alone {
    owned: OwnedSample,
    index: [i64; 1],
}

impl Alone {
    /// Returns the fields. They have no dimension for the samples.
    pub(crate) fn columns(&self) -> Columns<'_> {
        self.owned.columns()
    }

    /// Returns the dataset index of the sample.
    pub(crate) fn index(&self) -> &[i64; 1] {
        &self.index
    }

    fn fill(&mut self, index: usize, write: impl FnOnce(&mut Row<'_>) -> Result<(), BoxError>) -> Result<(), BoxError> {
        self.index = [i64::try_from(index).unwrap_or(-1)];
        self.owned.fill(write)
    }
}

/// The fields of the samples of one dataset.
#[derive(Debug)]
pub(crate) struct Shape {
    fields: Fields,
    about: Arc<[About]>,
}

impl Shape {
    pub(crate) fn of(fields: Option<Fields>) -> Self {
        let fields = fields.unwrap_or_default();
        Self { about: fields.as_slice().iter().map(About::from).collect(), fields }
    }

    /// Returns a number that identifies the shape as long as a [`Single`] with this shape exists.
    pub(crate) fn key(&self) -> usize {
        self.about.as_ptr().addr()
    }
}

/// A batch of one sample, whose memory is reused for the next sample unless an exported tensor
/// still uses it.
pub(crate) struct Single {
    /// A handle, of which this object owns one reference.
    batch: *mut slotline_batch,
}

// SAFETY: any thread may use and free a batch.
unsafe impl Send for Single {}

impl Single {
    pub(crate) fn new(shape: &Shape) -> Result<Self, OwnedSampleError> {
        let owned = OwnedSample::new(shape.fields.clone())?;
        Ok(Self { batch: slotline_batch::boxed(Made::Alone(Box::new(Alone { owned, index: [0] })), &shape.about) })
    }

    /// Returns whether the memory can be written, that is, no exported tensor uses it.
    pub(crate) fn is_free(&mut self) -> bool {
        self.alone().is_some()
    }

    /// Reads a sample; fails if an exported tensor still uses the memory.
    pub(crate) fn fill(&mut self, index: usize, sample: impl Sample) -> Result<(), BoxError> {
        let alone = self.alone().ok_or("an exported tensor still uses the memory of the sample before this one")?;
        alone.fill(index, |row| sample.write(row))
    }

    fn alone(&mut self) -> Option<&mut Alone> {
        // SAFETY: this object's reference keeps the handle alive, and no other code accesses the
        // handle while there are no other references, which `made_mut` checks.
        match unsafe { (*self.batch).made_mut() } {
            Some(Made::Alone(sample)) => Some(sample),
            _ => None,
        }
    }

    /// Returns the batch, which this object continues to own.
    pub(crate) fn batch(&self) -> *const slotline_batch {
        self.batch
    }

    /// Returns the batch; the caller must release it.
    fn into_batch(self) -> *mut slotline_batch {
        std::mem::ManuallyDrop::new(self).batch
    }
}

impl Drop for Single {
    fn drop(&mut self) {
        // SAFETY: this object owns the reference.
        unsafe { slotline_batch::release(self.batch) };
    }
}

impl fmt::Debug for Single {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Single").finish_non_exhaustive()
    }
}

/// Reads one sample of a dataset, and returns it as a batch that the caller must release.
pub(crate) fn read(dataset: &impl Dataset, index: usize) -> Result<*mut slotline_batch, Failure> {
    let len = dataset.len();
    if index >= len {
        let failure = Failure::invalid(format!("index is {index}, but the dataset has {len} samples"));
        return Err(Failure { index: Some(index), ..failure });
    }
    let single = Single::new(&Shape::of(dataset.fields()));
    let mut single = single.map_err(|error| Failure::new(SLOTLINE_ERROR_BUILD, chain(&error)))?;
    let mut context = Context::default();
    let read = dataset.get(index, &mut context).and_then(|sample| single.fill(index, sample));
    read.map_err(|error| Failure {
        index: Some(index),
        payload: find(Some(&*error)).and_then(|cause| cause.payload.clone()),
        ..Failure::new(SLOTLINE_ERROR_SAMPLE, format!("sample {index} failed: {}", chain(&*error)))
    })?;
    Ok(single.into_batch())
}
