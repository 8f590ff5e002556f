//! Datasets in which a callback makes each sample from one of another dataset.

use std::collections::HashMap;
use std::ffi::c_void;

use slotline::BoxError;
use slotline::dataset::{Context, Dataset, OutOfRange, Upcoming, reading};
use slotline::sample::{Fields, Row};

use crate::abi::{Failure, Owner, Versioned, slotline_drop, versioned};
use crate::batch::handle::slotline_batch;
use crate::data::alone::{Shape, Single};
use crate::data::indexed::Indexed;
use crate::data::sample::slotline_sample;
use crate::fields::field::{Declared, declare, fields, slotline_field};

/// Makes a sample from `source`, a sample of the other dataset. It reads the source's fields with
/// `slotline_batch_field`, and writes each field of `sample` with `slotline_sample_row` or
/// `slotline_sample_write`. `source` is a batch of one sample, as `slotline_dataset_read` returns
/// it. The callback may use it until it returns, and must not free it; it may keep tensors exported
/// from it with `slotline_batch_dlpack`. Returns 0, or another value after setting the reason with
/// `slotline_sample_fail`. Several threads call it concurrently.
pub type slotline_map_sample =
    Option<unsafe extern "C" fn(user: *mut c_void, source: *const slotline_batch, sample: *mut slotline_sample) -> i32>;

/// A callback that makes samples from those of another dataset.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct slotline_transform {
    /// `sizeof(slotline_transform)`.
    pub struct_size: usize,
    /// The user pointer that is passed to the callbacks.
    pub user: *mut c_void,
    /// The fields of every sample that the callback makes, at most 64. They are copied when the
    /// dataset is created.
    pub fields: *const slotline_field,
    /// The number of fields.
    pub num_fields: usize,
    /// Makes a sample.
    pub map: slotline_map_sample,
    /// Called once when the callback is no longer needed, on any thread; may be NULL.
    pub drop: slotline_drop,
}

// SAFETY: it contains only numbers and pointers, and its first field is its size.
unsafe impl Versioned for slotline_transform {
    const END: usize = versioned::end!(drop);
}

/// A dataset in which a callback makes each sample from one of `source`.
#[derive(Debug)]
pub(crate) struct Transform {
    source: Indexed,
    shape: Shape,
    callback: Callback,
}

/// The callback, and the fields of the samples that it makes.
#[derive(Debug)]
pub(crate) struct Callback {
    owner: Owner,
    map: unsafe extern "C" fn(*mut c_void, *const slotline_batch, *mut slotline_sample) -> i32,
    declared: Box<[Declared]>,
    fields: Fields,
}

impl Callback {
    /// Takes ownership of a user's callback.
    ///
    /// # Safety
    ///
    /// `transform` must be NULL or valid as documented at `slotline_transform`.
    pub(crate) unsafe fn from_c(transform: *const slotline_transform) -> Result<Self, Failure> {
        // SAFETY: the caller guarantees that `transform` is valid for its `struct_size`.
        let (transform, owner) = unsafe { versioned::read(transform, "transform", |c| Owner::new(c.user, c.drop))? };
        let map = transform.map.ok_or_else(|| Failure::invalid("transform->map is NULL"))?;
        // SAFETY: the caller guarantees that the fields and their pointers are valid.
        let declared = unsafe { declare(transform.fields, transform.num_fields)? };
        Ok(Self { owner, map, fields: fields(&declared)?, declared: declared.into() })
    }

    pub(crate) fn fields(&self) -> Fields {
        self.fields.clone()
    }

    /// Makes a sample from `source`, and writes it into a row.
    pub(crate) fn write(&self, source: &Single, row: &mut Row<'_>, context: &mut Context) -> Result<(), BoxError> {
        // SAFETY: the user has guaranteed that any thread may call `map` this way; the source and
        // the sample are valid during the call.
        let map = |sample| unsafe { (self.map)(self.owner.user(), source.batch(), sample) };
        slotline_sample::write(row, context, &self.declared, false, map).map(drop)
    }
}

impl Transform {
    pub(crate) fn new(source: Indexed, callback: Callback) -> Self {
        Self { shape: Shape::of(source.fields()), source, callback }
    }

    pub(crate) fn len(&self) -> usize {
        self.source.len()
    }

    pub(crate) fn prefetch(&self, index: usize) {
        self.source.prefetch(index);
    }

    pub(crate) fn reads_ahead(&self) -> bool {
        self.source.reads_ahead()
    }

    pub(crate) fn begin_pass(&self, upcoming: Upcoming) {
        self.source.begin_pass(upcoming);
    }

    pub(crate) fn reads_many(&self) -> bool {
        self.source.reads_many()
    }

    pub(crate) fn get<'a>(&'a self, index: usize, context: &'a mut Context) -> Mapped<'a> {
        let [inner, own] = context.parts();
        Mapped { transform: self, own, from: From::Index(index, inner) }
    }

    pub(crate) fn get_many(
        &self,
        indices: &[usize],
        context: &mut Context,
        put: &mut dyn for<'a> FnMut(Mapped<'a>) -> Result<(), BoxError>,
    ) -> Result<(), BoxError> {
        let [inner, own] = context.parts();
        let mut places = 0..;
        self.source.get_many(indices, inner, &mut |sample| {
            let place = places.next().unwrap_or_default();
            own.go_to(place);
            let mut single = own.local::<Sources>().take(&self.shape)?;
            // If the bulk read stores more samples than there are indices, `put` reports the error.
            single.fill(indices.get(place).copied().unwrap_or_default(), sample)?;
            put(Mapped { transform: self, own, from: From::Sample(single) })
        })
    }

    #[expect(clippy::unnecessary_wraps, reason = "the same signature as `Dataset::fields`")]
    pub(crate) fn fields(&self) -> Option<Fields> {
        Some(self.callback.fields())
    }
}

/// A sample that a callback makes once a row is available.
#[derive(Debug)]
pub(crate) struct Mapped<'a> {
    pub(crate) transform: &'a Transform,
    own: &'a mut Context,
    from: From<'a>,
}

/// The source of a sample.
#[derive(Debug)]
enum From<'a> {
    /// The index of a sample that has not been read yet, and the context for reading it.
    Index(usize, &'a mut Context),
    /// A sample that a bulk read has read.
    Sample(Single),
}

impl Mapped<'_> {
    pub(crate) fn write(self, row: &mut Row<'_>) -> Result<(), BoxError> {
        let Self { transform: Transform { source, shape, callback }, own, from } = self;
        // Reading the source and calling the callback both count as reading time.
        reading(|| {
            let (single, filled) = match from {
                From::Index(index, _) if index >= source.len() => {
                    return Err(OutOfRange { dataset: "the dataset", index, len: source.len() }.into());
                }
                From::Index(index, inner) => {
                    let mut single = own.local::<Sources>().take(shape)?;
                    let filled = source.get(index, inner).and_then(|sample| single.fill(index, sample));
                    (single, filled)
                }
                From::Sample(single) => (single, Ok(())),
            };
            let outcome = filled.and_then(|()| callback.write(&single, row, own));
            own.local::<Sources>().give_back(shape, single);
            outcome
        })
    }
}

/// A thread's memory for samples that are passed to callbacks: one for each source dataset.
#[derive(Debug, Default)]
struct Sources(HashMap<usize, Single>);

impl Sources {
    /// Takes memory for a sample of this shape that nothing else uses.
    fn take(&mut self, shape: &Shape) -> Result<Single, BoxError> {
        if let Some(mut single) = self.0.remove(&shape.key())
            && single.is_free()
        {
            return Ok(single);
        }
        Ok(Single::new(shape)?)
    }

    fn give_back(&mut self, shape: &Shape, single: Single) {
        self.0.insert(shape.key(), single);
    }
}
