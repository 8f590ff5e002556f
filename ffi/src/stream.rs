//! Datasets whose samples callbacks give one after the other.
//!
//! Whether there is a sample is known only once the callback has written it, before there is a row for it. So each cursor has
//! memory of its own that samples are written into, and copied from.

use std::ffi::c_void;
use std::fmt;
use std::mem;
use std::ptr::null_mut;
use std::sync::Arc;

use slotline::dataset::{Context, IterableDataset};
use slotline::sample::{Apart, Fields};
use slotline::{BoxError, WorkerInfo};

use crate::callback::{call, slotline_failure, slotline_worker};
use crate::failure::Failure;
use crate::field::{Declared, declare, fields, slotline_field};
use crate::owner::{Owner, slotline_drop};
use crate::sample::slotline_sample;
use crate::saved::{bytes, slotline_saved};
use crate::versioned::{self, Versioned};

/// Starts a pass of one worker, in that worker: sets `*cursor` to whatever the others are to be given. Each worker reads its
/// own, and must give a part only. Returns 0, or fails by `slotline_fail`.
pub type slotline_open = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        worker: *const slotline_worker,
        cursor: *mut *mut c_void,
        failure: *mut slotline_failure,
    ) -> i32,
>;

/// Writes the next sample of a cursor, as `slotline_read` does. Returns 0; or 1 at the end, with nothing written; or something
/// else, by `slotline_sample_fail`, after which it is called again.
pub type slotline_next =
    Option<unsafe extern "C" fn(user: *mut c_void, cursor: *mut c_void, sample: *mut slotline_sample) -> i32>;

/// Drops a cursor, on whichever thread that is.
pub type slotline_close = Option<unsafe extern "C" fn(user: *mut c_void, cursor: *mut c_void)>;

/// Writes what `slotline_resume` needs to go on from where a cursor is, by `slotline_saved_append`. Called after each batch.
/// Returns 0, or something else if it cannot.
pub type slotline_save =
    Option<unsafe extern "C" fn(user: *mut c_void, cursor: *mut c_void, saved: *mut slotline_saved) -> i32>;

/// Goes on from what was saved, in the place of `slotline_open`.
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

/// A dataset of one's own, read from the start. Callbacks for one cursor are never called at once, but those for several are.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct slotline_stream_dataset {
    /// `sizeof(slotline_stream_dataset)`.
    pub struct_size: usize,
    /// What the callbacks are called with.
    pub user: *mut c_void,
    /// How many samples a pass has, over all workers; -1 if that is not known.
    pub len: i64,
    /// The fields of every sample, read when the dataset is made; at most 64.
    pub fields: *const slotline_field,
    /// How many.
    pub num_fields: usize,
    /// Starts a pass.
    pub open: slotline_open,
    /// Writes the next sample.
    pub next: slotline_next,
    /// Drops a cursor; may be NULL.
    pub close: slotline_close,
    /// Saves where a cursor is; may be NULL: then a resumed pass is read again from its start.
    pub save: slotline_save,
    /// Goes on from there; may be NULL if `save` is.
    pub resume: slotline_resume,
    /// Called once, when nobody needs the dataset any more, on whichever thread that is; may be NULL.
    pub drop: slotline_drop,
}

// SAFETY: numbers and pointers, the first one the size.
unsafe impl Versioned for slotline_stream_dataset {
    const END: usize = versioned::end!(drop);

    fn defaults() -> Self {
        Self {
            struct_size: 0,
            user: null_mut(),
            len: -1,
            fields: std::ptr::null(),
            num_fields: 0,
            open: None,
            next: None,
            close: None,
            save: None,
            resume: None,
            drop: None,
        }
    }
}

/// A dataset of callbacks.
#[derive(Debug)]
pub(crate) struct Stream {
    calls: Arc<Calls>,
    len: Option<usize>,
    fields: Fields,
}

/// What cursors need, too, to be closed: they may outlive the dataset.
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
    /// Takes the user's dataset over.
    ///
    /// # Safety
    ///
    /// It must be what `slotline_stream_dataset` says.
    pub(crate) unsafe fn from_c(dataset: *const slotline_stream_dataset) -> Result<Self, Failure> {
        // SAFETY: the caller's word.
        let (c, owner) = unsafe { versioned::read(dataset, "dataset", |c| Owner::new(c.user, c.drop))? };
        let given = [(c.open.is_some(), "open"), (c.next.is_some(), "next")];
        if let Some((_, name)) = given.iter().find(|(given, _)| !given) {
            return Err(Failure::invalid(format!("dataset->{name} is NULL")));
        }
        if c.save.is_some() != c.resume.is_some() {
            return Err(Failure::invalid("dataset->save and dataset->resume go together; give both, or none"));
        }
        let len = match c.len {
            -1 => None,
            len => Some(usize::try_from(len).map_err(|_| Failure::invalid(format!("dataset->len is {len}")))?),
        };
        // SAFETY: the caller's word.
        let declared = unsafe { declare(c.fields, c.num_fields)? };
        let fields = fields(&declared)?;
        let slotline_stream_dataset { open, next, close, save, resume, .. } = c;
        let calls = Calls { open, next, close, save, resume, declared: declared.into(), owner };
        Ok(Self { calls: Arc::new(calls), len, fields })
    }

    /// What a worker's callbacks have given, with memory for its samples.
    fn cursor(&self, cursor: *mut c_void) -> Result<Cursor, BoxError> {
        // Closed also if there is no memory.
        let cursor = Open { cursor, calls: self.calls.clone() };
        Ok(Cursor { cursor, apart: Apart::new(self.fields.clone())? })
    }
}

/// How far a worker is.
#[derive(Debug)]
pub(crate) struct Cursor {
    cursor: Open,
    apart: Apart,
}

/// A cursor of the user's.
struct Open {
    cursor: *mut c_void,
    calls: Arc<Calls>,
}

// SAFETY: the user said that a cursor may be used by one thread after the other.
unsafe impl Send for Open {}

impl Drop for Open {
    fn drop(&mut self) {
        if let Some(close) = self.calls.close {
            // SAFETY: it was opened by the same callbacks, and this is the last time.
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
    type Sample<'a> = &'a Apart;
    type Cursor = Cursor;

    fn iter(&self, worker: Option<WorkerInfo>) -> Result<Cursor, BoxError> {
        let (worker, mut cursor) = (slotline_worker::from(worker), null_mut());
        let open = self.calls.open.ok_or("open is NULL")?;
        // SAFETY: the user said that it may be called so.
        call("open", |failure| unsafe { open(self.calls.owner.user(), &worker, &mut cursor, failure) })?;
        self.cursor(cursor)
    }

    fn next<'a>(&'a self, cursor: &'a mut Cursor, context: &'a mut Context) -> Result<Option<&'a Apart>, BoxError> {
        let next = self.calls.next.ok_or("next is NULL")?;
        let Cursor { cursor, apart } = cursor;
        let mut there = false;
        let written = apart.fill(|row| {
            // SAFETY: the user said that it may be called so; the sample is the callback's while it runs.
            let next = |sample| unsafe { next(self.calls.owner.user(), cursor.cursor, sample) };
            there = slotline_sample::write(row, context, &self.calls.declared, true, next)?;
            if !there {
                // What is there of the sample before, which nobody gets to see.
                row.go_to(self.calls.declared.len());
            }
            Ok(())
        });
        written?;
        Ok(there.then_some(&*apart))
    }

    fn save(&self, cursor: &Cursor, to: &mut String) -> bool {
        let Some(save) = self.calls.save else { return false };
        let mut saved = slotline_saved(mem::take(to));
        // SAFETY: the user said that it may be called so.
        let code = unsafe { save(self.calls.owner.user(), cursor.cursor.cursor, &mut saved) };
        *to = saved.0;
        code == 0
    }

    fn resume(&self, worker: Option<WorkerInfo>, saved: &str) -> Result<Cursor, BoxError> {
        let resume = self.calls.resume.ok_or("this dataset saves nothing that it could go on from")?;
        let saved = bytes(saved).ok_or("what was saved is damaged")?;
        let (worker, mut cursor) = (slotline_worker::from(worker), null_mut());
        call("resume", |failure| {
            // SAFETY: the user said that it may be called so.
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
