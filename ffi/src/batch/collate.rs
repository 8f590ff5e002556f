//! Batches that a user's callback makes from samples.

use std::cell::{Cell, UnsafeCell};
use std::ffi::c_void;
use std::fmt;
use std::ptr::{NonNull, null_mut};
use std::sync::{Arc, Mutex, PoisonError};

use slotline::BoxError;
use slotline::dataset::Loadable;
use slotline::loader::Samples;
use slotline::sample::{Columns, Fields, OwnedSample, Sample};

use crate::abi::{
    Cause, Owner, SLOTLINE_END, SLOTLINE_ERROR_INVALID, SLOTLINE_ERROR_PANIC, SLOTLINE_ERROR_SAMPLE, SLOTLINE_OK,
    Versioned, answer, guarded, slotline_failure, slotline_status, versioned,
};
use crate::fields::field::About;
use crate::fields::tensor::{describe_field, slotline_tensor};

/// Makes a batch from samples, which it reads with `slotline_samples_next`. It sets `*batch` to any
/// pointer, which `slotline_batch_user` then returns. It returns 0 on success, or another value
/// after setting the reason with `slotline_fail`. One worker makes each batch; several workers may
/// call this concurrently.
pub type slotline_collate = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        samples: *mut slotline_samples,
        batch: *mut *mut c_void,
        failure: *mut slotline_failure,
    ) -> i32,
>;

/// Drops a batch that a `slotline_collate` callback made, on any thread.
pub type slotline_drop_batch = Option<unsafe extern "C" fn(batch: *mut c_void)>;

/// The samples of a batch, as passed to a collate callback. Only the callback's thread may use
/// them, until the callback returns.
pub struct slotline_samples {
    /// Whether the next sample is being read. That may call a callback of the dataset, which could
    /// wrongly call this object again.
    reading: Cell<bool>,
    /// Whether such a reentrant call was made.
    again: Cell<bool>,
    /// Accessed only by the call that has set `reading`.
    lent: UnsafeCell<Lent>,
}

/// The state of `slotline_samples`.
struct Lent {
    /// The samples. Its real lifetime ends when the collate callback returns.
    source: NonNull<dyn Source>,
    indices: Vec<i64>,
    /// The error of the last sample that could not be read.
    failure: Option<BoxError>,
}

impl slotline_samples {
    /// Calls `body` with the state, unless it is in use already.
    fn with<T>(&self, otherwise: T, body: impl FnOnce(&mut Lent) -> T) -> T {
        if self.reading.replace(true) {
            self.again.set(true);
            return otherwise;
        }
        // SAFETY: `reading` was not set, and only one thread uses the samples.
        let outcome = body(unsafe { &mut *self.lent.get() });
        self.reading.set(false);
        outcome
    }
}

/// Creates an error that is attributed to the collate callback instead of a sample.
fn own(message: impl Into<String>) -> BoxError {
    Cause::new(message).of_collate().into()
}

/// The samples of a batch, independent of the dataset's type.
trait Source {
    fn left(&self) -> usize;
    /// Returns the index of the next sample, if it is known.
    fn index(&self) -> Option<usize>;
    fn next(&mut self) -> Option<Result<(), BoxError>>;
    fn columns(&self) -> (Columns<'_>, &[About]);
}

struct Reading<'r, 's, D: Loadable> {
    samples: &'r mut Samples<'s, D>,
    owned: &'r mut OwnedSample,
    fields: &'r [About],
}

impl<D: Loadable> Source for Reading<'_, '_, D> {
    fn left(&self) -> usize {
        self.samples.len()
    }

    fn index(&self) -> Option<usize> {
        self.samples.index()
    }

    fn next(&mut self) -> Option<Result<(), BoxError>> {
        let Self { samples, owned, .. } = self;
        samples.next_as(|sample| owned.fill(|row| sample.write(row)))
    }

    fn columns(&self) -> (Columns<'_>, &[About]) {
        (self.owned.columns(), self.fields)
    }
}

/// A collate callback, with what is needed to read samples for it.
pub(crate) struct Collator {
    pub(crate) owner: Owner,
    pub(crate) collate:
        unsafe extern "C" fn(*mut c_void, *mut slotline_samples, *mut *mut c_void, *mut slotline_failure) -> i32,
    pub(crate) drop_batch: slotline_drop_batch,
    fields: Fields,
    about: Box<[About]>,
    /// Memory for single samples, one for each thread that collates concurrently.
    spare: Mutex<Vec<OwnedSample>>,
}

impl Collator {
    pub(crate) fn new(
        owner: Owner,
        collate: unsafe extern "C" fn(
            *mut c_void,
            *mut slotline_samples,
            *mut *mut c_void,
            *mut slotline_failure,
        ) -> i32,
        drop_batch: slotline_drop_batch,
        fields: Fields,
    ) -> Self {
        let about = fields.as_slice().iter().map(About::from).collect();
        Self { owner, collate, drop_batch, fields, about, spare: Mutex::default() }
    }

    /// Returns the collate function for a builder.
    pub(crate) fn function<D: Loadable>(
        self: Arc<Self>,
    ) -> impl Fn(&mut Samples<'_, D>) -> Result<Collated, BoxError> + Send + Sync + 'static {
        move |samples| self.collate(samples)
    }

    fn collate<D: Loadable>(self: &Arc<Self>, samples: &mut Samples<'_, D>) -> Result<Collated, BoxError> {
        let spare = || self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = spare().pop();
        let mut owned = match kept {
            Some(owned) => owned,
            None => OwnedSample::new(self.fields.clone())?,
        };
        let mut source = Reading { samples, owned: &mut owned, fields: &self.about };
        let source: NonNull<dyn Source + '_> = NonNull::from(&mut source as &mut dyn Source);
        // SAFETY: only the lifetime is extended, and the samples are used only until the callback
        // returns.
        let source = unsafe { std::mem::transmute::<NonNull<dyn Source + '_>, NonNull<dyn Source>>(source) };
        let lent = UnsafeCell::new(Lent { source, indices: Vec::new(), failure: None });
        let mut samples = slotline_samples { reading: Cell::new(false), again: Cell::new(false), lent };
        let mut batch = null_mut();
        let outcome = answer(|failure| {
            // SAFETY: the user has agreed that any thread may call `collate` this way.
            unsafe { (self.collate)(self.owner.user(), &mut samples, &mut batch, failure) }
        });
        let again = samples.again.get();
        let Lent { indices, failure, .. } = samples.lent.into_inner();
        spare().push(owned);
        match (outcome, failure) {
            (Ok(0), _) => Ok(Collated { batch, collator: self.clone(), indices, task: 0, epoch: 0 }),
            // The callback's own message takes precedence over the error of a sample.
            (Err(cause), _) => Err(cause.of_collate().into()),
            (Ok(_), _) if again => {
                Err(own("the dataset's callback read from slotline_samples while it was called for the same batch"))
            }
            (Ok(_), Some(failure)) => Err(failure),
            (Ok(code), None) => Err(own(format!("the callback returned {code}"))),
        }
    }
}

impl fmt::Debug for Collator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Collator").field("fields", &self.about).finish_non_exhaustive()
    }
}

/// A batch that a callback made from samples.
#[derive(Debug)]
pub(crate) struct Collated {
    pub(crate) batch: *mut c_void,
    collator: Arc<Collator>,
    pub(crate) indices: Vec<i64>,
    /// Set when the batch is delivered.
    pub(crate) task: usize,
    pub(crate) epoch: u32,
}

// SAFETY: the user has agreed that the callback's batch may be used and dropped on any thread.
unsafe impl Send for Collated {}
// SAFETY: as above; this crate only returns the pointer.
unsafe impl Sync for Collated {}

impl Drop for Collated {
    fn drop(&mut self) {
        if let Some(drop) = self.collator.drop_batch {
            // SAFETY: the same user's callback made the batch, and this is the only call.
            unsafe { drop(self.batch) };
        }
    }
}

impl fmt::Debug for slotline_samples {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("slotline_samples").finish_non_exhaustive()
    }
}

/// Returns the maximum number of samples that are left: a stream may end earlier, and bad samples
/// may be skipped. 0 for NULL, and while `slotline_samples_next` is running.
///
/// # Safety
///
/// `samples` must be NULL or the pointer that this callback received.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_samples_left(samples: *const slotline_samples) -> usize {
    // SAFETY: the source is valid until the callback returns, and the caller guarantees that it has not returned.
    let left = |lent: &mut Lent| guarded(0, || unsafe { lent.source.as_ref() }.left());
    // SAFETY: the caller guarantees that `samples` is NULL or the pointer that this callback received.
    unsafe { samples.as_ref() }.map_or(0, |samples| samples.with(0, left))
}

/// Reads the next sample, and describes its fields in `fields`. The caller must set `struct_size`
/// of each element. The memory that the fields point to is valid until the next call.
///
/// Returns `SLOTLINE_END` after the last sample, and `SLOTLINE_ERROR_SAMPLE` if a sample cannot be
/// read; the next call continues with the sample after it. If the callback then returns a nonzero
/// value without a message, it fails with that sample's error. With `on_error`, unreadable samples
/// are skipped or replaced instead.
///
/// # Errors
///
/// `SLOTLINE_ERROR_SAMPLE`: the sample cannot be read. `SLOTLINE_ERROR_INVALID`: a null pointer, a struct that is too short,
/// `num_fields` below the number of fields of a sample, or a call from the dataset's callback that reads the next sample.
///
/// # Safety
///
/// The same as for `slotline_samples_left`; `fields` must be writable for `num_fields` structs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_samples_next(
    samples: *mut slotline_samples,
    fields: *mut slotline_tensor,
    num_fields: usize,
) -> slotline_status {
    // SAFETY: the caller guarantees that `samples` is NULL or the pointer that this callback received.
    let Some(samples) = (unsafe { samples.as_ref() }) else { return SLOTLINE_ERROR_INVALID };
    // SAFETY: the caller guarantees that `fields` is writable for `num_fields` structs.
    let next = |samples: &mut Lent| guarded(SLOTLINE_ERROR_PANIC, || unsafe { next(samples, fields, num_fields) });
    samples.with(SLOTLINE_ERROR_INVALID, next)
}

/// Implements `slotline_samples_next`.
///
/// # Safety
///
/// The same as for `slotline_samples_next`.
unsafe fn next(samples: &mut Lent, fields: *mut slotline_tensor, num_fields: usize) -> slotline_status {
    // SAFETY: the source is valid until the callback returns, and nothing else uses it.
    let source = unsafe { samples.source.as_mut() };
    let wanted = source.columns().1.len();
    if num_fields < wanted {
        samples.failure = Some(own(format!("num_fields is {num_fields}, but a sample has {wanted} fields")));
        return SLOTLINE_ERROR_INVALID;
    }
    // SAFETY: the caller guarantees that `fields` is writable for `num_fields` structs, and `i` is below that.
    let put = |i, tensor: &slotline_tensor| unsafe { versioned::write_nth(fields, i, tensor, "fields") };
    // Check the structs before a sample is read.
    if let Err(failure) = (0..wanted).try_for_each(|i| put(i, &slotline_tensor::defaults())) {
        samples.failure = Some(own(failure.message));
        return SLOTLINE_ERROR_INVALID;
    }
    let index = source.index();
    match source.next() {
        None => return SLOTLINE_END,
        Some(Err(error)) => {
            samples.failure = Some(error);
            return SLOTLINE_ERROR_SAMPLE;
        }
        Some(Ok(())) => samples.indices.push(index.map_or(-1, |index| index as i64)),
    }
    let (columns, about) = source.columns();
    for (i, about) in about.iter().enumerate() {
        let mut tensor = slotline_tensor::defaults();
        if describe_field(&mut tensor, &columns, about, i)
            && let Err(failure) = put(i, &tensor)
        {
            samples.failure = Some(own(failure.message));
            return SLOTLINE_ERROR_INVALID;
        }
    }
    SLOTLINE_OK
}
