//! Datasets whose callbacks use the loader that calls them.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};

use slotline_ffi::*;

use super::World;
use super::gate::Kind;
use crate::choices::Choices;

/// The number of pointers that were handed over and not dropped yet.
pub(super) type Ledger = AtomicIsize;

/// Returns the number of pointers that were not dropped yet.
pub(super) fn left(world: &World) -> isize {
    world.ledger.load(Ordering::SeqCst)
}

/// The user data of the callbacks.
pub(super) struct User {
    world: Arc<World>,
    len: usize,
    /// The number of the read at which the callback acts.
    at: usize,
    /// What it does then.
    does: Does,
    read: AtomicUsize,
}

/// What a callback does with its loader.
#[derive(Clone, Copy)]
enum Does {
    Nothing,
    Stop,
    Ask,
    Use,
    Free,
}

impl User {
    pub(super) fn new(world: &Arc<World>, choices: &mut Choices<'_>) -> Self {
        let does = choices.of(&[Does::Nothing, Does::Nothing, Does::Stop, Does::Ask, Does::Use, Does::Free]);
        let (len, at) = (choices.within(1, 30), choices.below(40));
        Self { world: world.clone(), len, at, does, read: AtomicUsize::new(0) }
    }

    /// Creates a dataset, by index or a stream, that takes ownership of the user data.
    pub(super) fn dataset(self, stream: bool) -> *mut slotline_dataset {
        let field = slotline_field {
            struct_size: size_of::<slotline_field>(),
            name: null(),
            dtype: SLOTLINE_I64,
            kind: SLOTLINE_FIXED,
            ndim: 0,
            shape: null(),
        };
        self.world.ledger.fetch_add(1, Ordering::SeqCst);
        let len = self.len;
        let user = Box::into_raw(Box::new(self)).cast();
        let mut dataset = null_mut();
        // SAFETY: the structs are valid, and live longer than the call.
        let status = super::checked(|error| unsafe {
            if stream {
                let callbacks = slotline_stream_dataset {
                    struct_size: size_of::<slotline_stream_dataset>(),
                    user,
                    len: -1,
                    fields: &field,
                    num_fields: 1,
                    open: Some(open),
                    next: Some(next),
                    close: Some(close),
                    save: None,
                    resume: None,
                    drop: Some(dropped),
                };
                slotline_dataset_from_stream(&callbacks, &mut dataset, error)
            } else {
                let callbacks = slotline_map_dataset {
                    struct_size: size_of::<slotline_map_dataset>(),
                    user,
                    len,
                    fields: &field,
                    num_fields: 1,
                    read: Some(read),
                    drop: Some(dropped),
                    read_many: None,
                    prefetch: None,
                };
                slotline_dataset_from_callbacks(&callbacks, &mut dataset, error)
            }
        });
        assert_eq!(status.0, SLOTLINE_OK);
        dataset
    }

    /// Performs the callback's action if this is the chosen read.
    fn act(&self, sample: *mut slotline_sample) {
        self.world.gate.inside();
        if self.read.fetch_add(1, Ordering::SeqCst) != self.at {
            return;
        }
        // SAFETY: the sample is valid during the callback.
        let worker = unsafe { slotline_sample_worker(sample) };
        match self.does {
            Does::Nothing => {}
            Does::Stop => self.world.stop(),
            Does::Ask => {
                if let Some(inside) = self.world.gate.begin(Kind::Ask) {
                    // SAFETY: a valid loader.
                    unsafe { slotline_loader_depth(inside.loader()) };
                }
            }
            Does::Use => {
                if let Some(inside) = self.world.gate.begin(Kind::Use) {
                    // SAFETY: a valid loader, and a place for the batch.
                    unsafe {
                        slotline_loader_next_epoch(inside.loader());
                        // In the consumer's thread, a call to `next` is already running. A worker would wait for itself.
                        if worker < 0 {
                            let status = slotline_loader_next(inside.loader(), &mut null_mut(), null_mut());
                            assert_eq!(status, SLOTLINE_ERROR_INVALID);
                        }
                    }
                }
            }
            // A worker that frees its own loader waits 5 s for itself.
            Does::Free if worker < 0 => self.world.free(),
            Does::Free => {}
        }
    }
}

unsafe extern "C" fn dropped(user: *mut c_void) {
    // SAFETY: `user` was made by `User::dataset`, and is dropped once.
    let user = unsafe { Box::from_raw(user.cast::<User>()) };
    user.world.ledger.fetch_sub(1, Ordering::SeqCst);
}

/// Writes a number as a sample.
///
/// # Safety
///
/// Both pointers must be those that the library passed to a callback.
unsafe fn write(user: *mut c_void, number: usize, sample: *mut slotline_sample) -> i32 {
    // SAFETY: the caller upholds that both pointers come from the library.
    unsafe {
        (*user.cast::<User>()).act(sample);
        i32::from(slotline_sample_write(sample, 0, (&raw const number).cast(), 1) != SLOTLINE_OK)
    }
}

unsafe extern "C" fn read(user: *mut c_void, index: usize, sample: *mut slotline_sample) -> i32 {
    // SAFETY: the library passes a valid user pointer and sample.
    unsafe { write(user, index, sample) }
}

/// Opens a cursor, which is the number of the next sample.
unsafe extern "C" fn open(
    user: *mut c_void,
    _: *const slotline_worker,
    cursor: *mut *mut c_void,
    _: *mut slotline_failure,
) -> i32 {
    // SAFETY: the library passes valid pointers.
    unsafe {
        let user = &*user.cast::<User>();
        user.world.ledger.fetch_add(1, Ordering::SeqCst);
        *cursor = Box::into_raw(Box::new(0_usize)).cast();
    }
    0
}

unsafe extern "C" fn next(user: *mut c_void, cursor: *mut c_void, sample: *mut slotline_sample) -> i32 {
    // SAFETY: the library passes valid pointers, and only one thread uses a cursor at a time.
    unsafe {
        let number = &mut *cursor.cast::<usize>();
        if *number >= (*user.cast::<User>()).len {
            return 1;
        }
        *number += 1;
        write(user, *number - 1, sample)
    }
}

unsafe extern "C" fn close(user: *mut c_void, cursor: *mut c_void) {
    // SAFETY: the cursor was made by `open`, and is closed once.
    unsafe {
        let user = &*user.cast::<User>();
        user.world.ledger.fetch_sub(1, Ordering::SeqCst);
        drop(Box::from_raw(cursor.cast::<usize>()));
    }
}
