//! Target for the C interface: calls in any order, with any arguments that its contract allows.
//! These include null pointers, structs that are too short or longer than known, invalid enum
//! values, and handles that are freed in any order.

mod calls;
mod compose;
mod data;
mod options;
mod user;

use std::ffi::CStr;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use slotline_ffi::*;

use self::data::Content;
pub(crate) use self::user::{Ledger, User, tensor};
use crate::choices::Choices;

/// Makes the calls that `data` encodes. Checks that each call reports its outcome correctly, that
/// batches have the bytes of their samples, and that every user pointer was dropped exactly once at
/// the end.
pub fn c_abi(data: &[u8]) {
    let mut world = World::default();
    let mut choices = Choices::new(data);
    for _ in 0..60 {
        if choices.is_over() {
            break;
        }
        world.step(&mut choices);
    }
    let ledger = world.ledger.clone();
    world.free(&mut choices);
    assert_eq!(ledger.load(Ordering::Relaxed), 0, "a user's pointer was not dropped, or dropped twice");
}

/// A handle with the expected content of its samples. It is freed when it is dropped.
pub(crate) struct Handle<T> {
    pub(crate) pointer: *mut T,
    free: unsafe extern "C" fn(*mut T),
    content: Arc<Content>,
}

impl<T> Drop for Handle<T> {
    fn drop(&mut self) {
        // SAFETY: the handle has not been freed yet.
        unsafe { (self.free)(self.pointer) };
    }
}

/// All live handles.
#[derive(Default)]
struct World {
    ledger: Ledger,
    datasets: Vec<Handle<slotline_dataset>>,
    samplers: Vec<Handle<slotline_sampler>>,
    batch_samplers: Vec<Handle<slotline_batch_sampler>>,
    loaders: Vec<Handle<slotline_loader>>,
    batches: Vec<Handle<slotline_batch>>,
    exports: Vec<Export>,
    /// The memory of the arrays.
    memory: Vec<Vec<u64>>,
    /// States that loaders have returned.
    states: Vec<Vec<u8>>,
}

/// Returns the pointer of one of the handles, or NULL. If there are no handles, returns NULL.
fn any<T>(all: &[Handle<T>], choices: &mut Choices<'_>) -> *mut T {
    if all.is_empty() || choices.one_in(16) { null_mut() } else { all[choices.below(all.len())].pointer }
}

/// Makes a call, with or without a place for an error, and checks its result. Returns the status.
fn call(choices: &mut Choices<'_>, body: impl FnOnce(*mut *mut slotline_error) -> slotline_status) -> slotline_status {
    if choices.one_in(8) { body(null_mut()) } else { checked(body).0 }
}

/// Makes a call, and checks its result. Returns its status and its error's message.
pub(crate) fn checked(body: impl FnOnce(*mut *mut slotline_error) -> slotline_status) -> (slotline_status, String) {
    let mut error = null_mut();
    let status = body(&mut error);
    assert_eq!(error.is_null(), matches!(status, SLOTLINE_OK | SLOTLINE_END), "status {status:?}");
    if error.is_null() {
        return (status, String::new());
    }
    // SAFETY: a new error, freed once.
    unsafe {
        let message = CStr::from_ptr(slotline_error_message(error)).to_str().expect("UTF-8").to_owned();
        assert!(!message.is_empty() && slotline_error_code(error) == status);
        assert_ne!(status, SLOTLINE_ERROR_PANIC, "{message}");
        let named = [slotline_error_index(error), slotline_error_task(error), slotline_error_worker(error)];
        assert!(named.iter().all(|&number| number >= -1));
        slotline_error_free(error);
        (status, message)
    }
}

/// Returns the default options.
pub(crate) fn default_options() -> slotline_options {
    let mut memory = std::mem::MaybeUninit::uninit();
    // SAFETY: `slotline_options_init` initializes the whole struct.
    unsafe {
        slotline_options_init(memory.as_mut_ptr(), size_of::<slotline_options>());
        memory.assume_init()
    }
}

/// Returns the bytes of a string that a call returned, and checks that a NUL follows them.
pub(crate) fn text(bytes: &Handle<slotline_bytes>) -> Vec<u8> {
    // SAFETY: the string is valid until it is freed.
    unsafe {
        let (data, len) = (slotline_bytes_data(bytes.pointer), slotline_bytes_len(bytes.pointer));
        assert_eq!(*data.add(len), 0);
        std::slice::from_raw_parts(data, len).to_vec()
    }
}

/// Makes a call that creates a handle, with or without a place for the handle. Returns the handle.
fn make<T>(
    choices: &mut Choices<'_>,
    free: unsafe extern "C" fn(*mut T),
    body: impl FnOnce(*mut *mut T, *mut *mut slotline_error) -> slotline_status,
) -> Option<Handle<T>> {
    if choices.one_in(24) {
        assert_eq!(call(choices, |error| body(null_mut(), error)), SLOTLINE_ERROR_INVALID);
        return None;
    }
    let mut handle = None;
    call(choices, |error| {
        let (status, new) = made(free, |out| body(out, error));
        handle = new;
        status
    });
    handle
}

/// Makes a call that creates a handle. Returns its status and the handle.
pub(crate) fn made<T>(
    free: unsafe extern "C" fn(*mut T),
    body: impl FnOnce(*mut *mut T) -> slotline_status,
) -> (slotline_status, Option<Handle<T>>) {
    let mut pointer = std::ptr::dangling_mut();
    let status = body(&mut pointer);
    assert_eq!(pointer.is_null(), status != SLOTLINE_OK, "status {status:?}");
    (status, (!pointer.is_null()).then(|| Handle { pointer, free, content: Arc::default() }))
}

impl World {
    /// Frees all remaining handles, in an order that `choices` picks.
    fn free(mut self, choices: &mut Choices<'_>) {
        let order: [usize; 5] = std::array::from_fn(|_| choices.below(5));
        for which in order.into_iter().chain([3, 2, 0, 1, 4]) {
            match which {
                0 => self.loaders.clear(),
                1 => self.datasets.clear(),
                2 => self.batches.clear(),
                3 => self.exports.clear(),
                _ => {
                    self.samplers.clear();
                    self.batch_samplers.clear();
                }
            }
        }
    }
}

/// An exported tensor.
pub(crate) enum Export {
    Versioned(Handle<DLManagedTensorVersioned>),
    Unversioned(Handle<DLManagedTensor>),
}

// SAFETY: any thread may read and delete a tensor.
unsafe impl Send for Export {}

impl Export {
    /// Exports a field of a batch, if the batch has that field.
    pub(crate) fn new(
        batch: *mut slotline_batch,
        i: usize,
        is_versioned: bool,
        choices: &mut Choices<'_>,
    ) -> Option<Self> {
        unsafe extern "C" fn delete_versioned(tensor: *mut DLManagedTensorVersioned) {
            // SAFETY: each tensor has a deleter, which is called once.
            unsafe { (*tensor).deleter.expect("a deleter")(tensor) }
        }
        unsafe extern "C" fn delete(tensor: *mut DLManagedTensor) {
            // SAFETY: as above.
            unsafe { (*tensor).deleter.expect("a deleter")(tensor) }
        }
        // SAFETY: a valid batch or NULL, and out-pointers that are valid or NULL.
        unsafe {
            if is_versioned {
                make(choices, delete_versioned, |out, error| slotline_batch_dlpack(batch, i, null_mut(), out, error))
                    .map(Self::Versioned)
            } else {
                make(choices, delete, |out, error| slotline_batch_dlpack_unversioned(batch, i, null_mut(), out, error))
                    .map(Self::Unversioned)
            }
        }
    }

    pub(crate) fn tensor(&self) -> &DLTensor {
        // SAFETY: the tensor is valid until it is deleted.
        unsafe {
            match self {
                Self::Versioned(tensor) => &(*tensor.pointer).dl_tensor,
                Self::Unversioned(tensor) => &(*tensor.pointer).dl_tensor,
            }
        }
    }
}
