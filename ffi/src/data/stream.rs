//! Iterable datasets, whose samples callbacks write one after another.
//!
//! Whether there is a next sample is known only once the callback has written it, but a row is
//! allocated only after that. So each cursor has separate memory for one sample, which is then
//! copied into the row.

use std::ffi::c_void;
use std::fmt;
use std::mem;
use std::ptr::null_mut;
use std::sync::Arc;

use slotline::dataset::{Context, IterableDataset};
use slotline::sample::{Fields, OwnedSample};
use slotline::{BoxError, WorkerInfo};

use crate::abi::{Failure, Owner, Versioned, call, slotline_drop, slotline_failure, slotline_worker, versioned};
use crate::data::sample::slotline_sample;
use crate::data::saved::{bytes, slotline_saved};
use crate::fields::field::{Declared, declare, fields, slotline_field};

/// Starts a pass of one worker, in that worker's thread. It sets `*cursor` to any pointer, which is
/// passed to the other callbacks. Each worker has a separate cursor, which must return only that
/// worker's part of the samples. Returns 0, or another value after setting the reason with
/// `slotline_fail`.
pub type slotline_open = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        worker: *const slotline_worker,
        cursor: *mut *mut c_void,
        failure: *mut slotline_failure,
    ) -> i32,
>;

/// Writes the next sample of a cursor, as `slotline_read` does. Returns 0; or 1 at the end, with
/// nothing written; or another value if it fails, after setting the reason with
/// `slotline_sample_fail`. After a failure it is called again.
pub type slotline_next =
    Option<unsafe extern "C" fn(user: *mut c_void, cursor: *mut c_void, sample: *mut slotline_sample) -> i32>;

/// Drops a cursor, on any thread.
pub type slotline_close = Option<unsafe extern "C" fn(user: *mut c_void, cursor: *mut c_void)>;

/// Saves the position of a cursor with `slotline_saved_append`, for `slotline_resume`. Called after
/// each batch. Returns 0, or another value if the position cannot be saved.
pub type slotline_save =
    Option<unsafe extern "C" fn(user: *mut c_void, cursor: *mut c_void, saved: *mut slotline_saved) -> i32>;

/// Opens a cursor at a saved position, instead of `slotline_open`.
pub type slotline_resume = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        worker: *const slotline_worker,
        saved: *const u8,
        len: usize,
        cursor: *mut *mut c_void,
        failure: *mut slotline_failure,
    ) -> i32,
>;

/// An iterable dataset made of callbacks. Callbacks for the same cursor are never called concurrently; callbacks for different
/// cursors are.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct slotline_stream_dataset {
    /// `sizeof(slotline_stream_dataset)`.
    pub struct_size: usize,
    /// The user pointer that is passed to the callbacks.
    pub user: *mut c_void,
    /// The number of samples in a pass, over all workers; -1 if it is unknown.
    pub len: i64,
    /// The fields of every sample, at most 64. They are copied when the dataset is created.
    pub fields: *const slotline_field,
    /// The number of fields.
    pub num_fields: usize,
    /// Starts a pass.
    pub open: slotline_open,
    /// Writes the next sample.
    pub next: slotline_next,
    /// Drops a cursor; may be NULL.
    pub close: slotline_close,
    /// Saves the position of a cursor; may be NULL: a resumed pass then reads its samples again
    /// from the start.
    pub save: slotline_save,
    /// Opens a cursor at a saved position; must be NULL if `save` is.
    pub resume: slotline_resume,
    /// Called once when the dataset is no longer needed, on any thread; may be NULL.
    pub drop: slotline_drop,
}

// SAFETY: it contains only numbers and pointers, and its first field is its size.
unsafe impl Versioned for slotline_stream_dataset {
    const END: usize = versioned::end!(drop);
}

/// An iterable dataset made of callbacks.
#[derive(Debug)]
pub(crate) struct Stream {
    calls: Arc<Calls>,
    len: Option<usize>,
    fields: Fields,
}

/// The callbacks. They are shared with the cursors, which may outlive the dataset and must be
/// closed.
#[derive(Debug)]
struct Calls {
    open: slotline_open,
    next: slotline_next,
    close: slotline_close,
    save: slotline_save,
    resume: slotline_resume,
    declared: Box<[Declared]>,
    owner: Owner,
}

impl Stream {
    /// Takes ownership of the user's dataset.
    ///
    /// # Safety
    ///
    /// `dataset` must be NULL or valid as documented at `slotline_stream_dataset`.
    pub(crate) unsafe fn from_c(dataset: *const slotline_stream_dataset) -> Result<Self, Failure> {
        // SAFETY: the caller guarantees that `dataset` is valid for its `struct_size`.
        let (c, owner) = unsafe { versioned::read(dataset, "dataset", |c| Owner::new(c.user, c.drop))? };
        let given = [(c.open.is_some(), "open"), (c.next.is_some(), "next")];
        if let Some((_, name)) = given.iter().find(|(given, _)| !given) {
            return Err(Failure::invalid(format!("dataset->{name} is NULL")));
        }
        if c.save.is_some() != c.resume.is_some() {
            return Err(Failure::invalid("only one of dataset->save and dataset->resume is set; set both or neither"));
        }
        let len = match c.len {
            -1 => None,
            len => Some(
                usize::try_from(len)
                    .map_err(|_| Failure::invalid(format!("dataset->len is {len}; set it to -1 if it is unknown")))?,
            ),
        };
        // SAFETY: the caller guarantees that the fields and their pointers are valid.
        let declared = unsafe { declare(c.fields, c.num_fields)? };
        let fields = fields(&declared)?;
        let slotline_stream_dataset { open, next, close, save, resume, .. } = c;
        let calls = Calls { open, next, close, save, resume, declared: declared.into(), owner };
        Ok(Self { calls: Arc::new(calls), len, fields })
    }

    /// Creates a cursor from the user's pointer, with memory for a sample.
    fn cursor(&self, cursor: *mut c_void) -> Result<Cursor, BoxError> {
        // Created first, so that the user's cursor is closed even if there is no memory for the
        // sample.
        let cursor = Open { cursor, calls: self.calls.clone() };
        Ok(Cursor { cursor, owned: OwnedSample::new(self.fields.clone())? })
    }
}

/// A worker's position in the stream, with memory for one sample.
#[derive(Debug)]
pub(crate) struct Cursor {
    cursor: Open,
    owned: OwnedSample,
}

/// The user's cursor, which is closed when this is dropped.
struct Open {
    cursor: *mut c_void,
    calls: Arc<Calls>,
}

// SAFETY: the user has guaranteed that different threads may use a cursor, one at a time.
unsafe impl Send for Open {}

impl Drop for Open {
    fn drop(&mut self) {
        if let Some(close) = self.calls.close {
            // SAFETY: the same callbacks opened the cursor, and this is the last use of it.
            unsafe { close(self.calls.owner.user(), self.cursor) };
        }
    }
}

impl fmt::Debug for Open {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Open").field("cursor", &self.cursor).finish_non_exhaustive()
    }
}

impl IterableDataset for Stream {
    type Sample<'a> = &'a OwnedSample;
    type Cursor = Cursor;

    fn iter(&self, worker: Option<WorkerInfo>) -> Result<Cursor, BoxError> {
        let (worker, mut cursor) = (slotline_worker::from(worker), null_mut());
        let open = self.calls.open.ok_or("open is NULL")?;
        // SAFETY: the user has guaranteed that `open` may be called this way.
        call("open", |failure| unsafe { open(self.calls.owner.user(), &worker, &mut cursor, failure) })?;
        self.cursor(cursor)
    }

    fn next<'a>(
        &'a self,
        cursor: &'a mut Cursor,
        context: &'a mut Context,
    ) -> Result<Option<&'a OwnedSample>, BoxError> {
        let next = self.calls.next.ok_or("next is NULL")?;
        let Cursor { cursor, owned } = cursor;
        let mut there = false;
        let written = owned.fill(|row| {
            // SAFETY: the user has guaranteed that `next` may be called this way; the sample is
            // valid during the call.
            let next = |sample| unsafe { next(self.calls.owner.user(), cursor.cursor, sample) };
            there = slotline_sample::write(row, context, &self.calls.declared, true, next)?;
            if !there {
                // At the end, the memory keeps the previous sample, which is not returned again.
                row.go_to(self.calls.declared.len());
            }
            Ok(())
        });
        written?;
        Ok(there.then_some(&*owned))
    }

    fn save(&self, cursor: &Cursor, to: &mut String) -> bool {
        let Some(save) = self.calls.save else { return false };
        let mut saved = slotline_saved(mem::take(to));
        // SAFETY: the user has guaranteed that `save` may be called this way.
        let code = unsafe { save(self.calls.owner.user(), cursor.cursor.cursor, &mut saved) };
        *to = saved.0;
        code == 0
    }

    fn resume(&self, worker: Option<WorkerInfo>, saved: &str) -> Result<Cursor, BoxError> {
        let resume = self.calls.resume.ok_or("this dataset saves no positions to resume from")?;
        let saved = bytes(saved).ok_or("the saved position is damaged")?;
        let (worker, mut cursor) = (slotline_worker::from(worker), null_mut());
        call("resume", |failure| {
            // SAFETY: the user has guaranteed that `resume` may be called this way; `saved` is
            // valid for its length.
            unsafe { resume(self.calls.owner.user(), &worker, saved.as_ptr(), saved.len(), &mut cursor, failure) }
        })?;
        self.cursor(cursor)
    }

    fn len(&self) -> Option<usize> {
        self.len
    }

    fn fields(&self) -> Option<Fields> {
        Some(self.fields.clone())
    }
}
