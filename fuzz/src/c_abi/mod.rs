//! The C interface: calls in any order with any arguments that its contract allows. These include null pointers, structs that
//! are too short or longer than known, invalid enum values, and handles that are freed in any order.

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
use self::user::Ledger;
pub(crate) use self::user::tensor;
use crate::choices::Choices;

/// Makes the calls that `data` encodes. Checks that each call reports its outcome correctly, that batches have the bytes of
/// their samples, and that everything that was handed over is dropped once at the end.
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

/// All live handles.
#[derive(Default)]
struct World {
    ledger: Ledger,
    datasets: Vec<(*mut slotline_dataset, Arc<Content>)>,
    samplers: Vec<*mut slotline_sampler>,
    batch_samplers: Vec<*mut slotline_batch_sampler>,
    loaders: Vec<(*mut slotline_loader, Arc<Content>)>,
    batches: Vec<(*mut slotline_batch, Arc<Content>)>,
    exports: Vec<Export>,
    /// The memory of the arrays.
    memory: Vec<Vec<u64>>,
    /// States that loaders have returned.
    states: Vec<Vec<u8>>,
}

/// Returns the pointer of one of the elements, or NULL, which is the only choice if there are none.
fn any<T, P>(all: &[T], choices: &mut Choices<'_>, pointer: impl Fn(&T) -> *mut P) -> *mut P {
    if all.is_empty() || choices.one_in(16) { null_mut() } else { pointer(&all[choices.below(all.len())]) }
}

/// Makes a call, with or without a place for an error, and checks its result. Returns its status.
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

/// Frees a text that a call returned, and returns its bytes, after which there is a NUL.
///
/// # Safety
///
/// The text must not have been freed yet.
pub(crate) unsafe fn freed(bytes: *mut slotline_bytes) -> Vec<u8> {
    // SAFETY: the caller upholds that the text is valid.
    unsafe {
        let (data, len) = (slotline_bytes_data(bytes), slotline_bytes_len(bytes));
        assert_eq!(*data.add(len), 0);
        let copy = std::slice::from_raw_parts(data, len).to_vec();
        slotline_bytes_free(bytes);
        copy
    }
}

/// Makes a call that creates a handle, with or without a place for it, as [`call`] does. Returns the handle.
fn make<T>(
    choices: &mut Choices<'_>,
    body: impl FnOnce(*mut *mut T, *mut *mut slotline_error) -> slotline_status,
) -> Option<*mut T> {
    if choices.one_in(24) {
        assert_eq!(call(choices, |error| body(null_mut(), error)), SLOTLINE_ERROR_INVALID);
        return None;
    }
    let mut out = std::ptr::dangling_mut();
    let status = call(choices, |error| body(&mut out, error));
    assert_eq!(out.is_null(), status != SLOTLINE_OK, "status {status:?}");
    (!out.is_null()).then_some(out)
}

impl World {
    /// Frees all remaining handles, in an order that `choices` picks.
    fn free(mut self, choices: &mut Choices<'_>) {
        for _ in 0..5 {
            match choices.below(5) {
                0 => self.free_loaders(),
                1 => self.free_datasets(),
                2 => self.free_batches(),
                3 => self.exports.clear(),
                _ => self.free_samplers(),
            }
        }
        self.exports.clear();
        self.free_batches();
        self.free_loaders();
        self.free_datasets();
        self.free_samplers();
    }

    fn free_loaders(&mut self) {
        // SAFETY: each handle was not freed yet.
        self.loaders.drain(..).for_each(|(loader, _)| unsafe { slotline_loader_free(loader) });
    }

    fn free_datasets(&mut self) {
        // SAFETY: each handle was not freed yet.
        self.datasets.drain(..).for_each(|(dataset, _)| unsafe { slotline_dataset_free(dataset) });
    }

    fn free_batches(&mut self) {
        // SAFETY: each handle was not freed yet.
        self.batches.drain(..).for_each(|(batch, _)| unsafe { slotline_batch_free(batch) });
    }

    fn free_samplers(&mut self) {
        // SAFETY: each handle was not freed yet.
        self.samplers.drain(..).for_each(|sampler| unsafe { slotline_sampler_free(sampler) });
        // SAFETY: each handle was not freed yet.
        self.batch_samplers.drain(..).for_each(|sampler| unsafe { slotline_batch_sampler_free(sampler) });
    }
}

/// An exported tensor.
pub(crate) enum Export {
    Versioned(*mut DLManagedTensorVersioned),
    Unversioned(*mut DLManagedTensor),
}

// SAFETY: any thread may read and delete a tensor.
unsafe impl Send for Export {}

impl Export {
    pub(crate) fn tensor(&self) -> &DLTensor {
        // SAFETY: the tensor is valid until it is deleted.
        unsafe {
            match *self {
                Self::Versioned(tensor) => &(*tensor).dl_tensor,
                Self::Unversioned(tensor) => &(*tensor).dl_tensor,
            }
        }
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        // SAFETY: each tensor has a deleter, which is called once.
        unsafe {
            match *self {
                Self::Versioned(tensor) => (*tensor).deleter.expect("a deleter")(tensor),
                Self::Unversioned(tensor) => (*tensor).deleter.expect("a deleter")(tensor),
            }
        }
    }
}
