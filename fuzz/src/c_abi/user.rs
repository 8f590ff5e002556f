//! The role of the C program: user data with a drop function, and callbacks that behave correctly
//! or not.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, Ordering};

use slotline_ffi::*;

/// A counter of the user pointers that were passed to the library and not dropped yet.
pub(crate) type Ledger = Arc<AtomicIsize>;

/// An additional action of a callback when it writes a sample.
type Act = Box<dyn Fn(*mut slotline_sample) + Send + Sync>;

/// The user data that a user pointer points to.
pub(crate) struct User {
    pub(crate) ledger: Ledger,
    /// A number that selects how the callbacks behave.
    pub(crate) way: usize,
    /// The fields of a dataset: the dtype, the size of an element, and the number of elements of a sample.
    pub(crate) fields: Vec<(slotline_dtype, usize, usize)>,
    /// The number of samples in a dataset; for a stream, in each worker.
    pub(crate) len: usize,
    pub(crate) act: Option<Act>,
}

impl User {
    /// Creates a user pointer, which is counted in the ledger until it is dropped.
    pub(super) fn hand_over(ledger: &Ledger, way: usize, fields: Vec<(slotline_dtype, usize, usize)>) -> *mut c_void {
        Self { ledger: ledger.clone(), way, fields, len: 0, act: None }.into_pointer()
    }

    fn into_pointer(self) -> *mut c_void {
        self.ledger.fetch_add(1, Ordering::Relaxed);
        Box::into_raw(Box::new(self)).cast()
    }

    /// Returns a map-style dataset, which takes ownership of the user data.
    pub(crate) fn map_dataset(self, fields: *const slotline_field, num_fields: usize) -> slotline_map_dataset {
        slotline_map_dataset {
            struct_size: size_of::<slotline_map_dataset>(),
            len: self.len,
            user: self.into_pointer(),
            fields,
            num_fields,
            read: Some(read),
            drop: Some(dropped),
            read_many: None,
            prefetch: None,
        }
    }

    /// Returns a stream of unknown length, which takes ownership of the user data.
    pub(crate) fn stream_dataset(self, fields: *const slotline_field, num_fields: usize) -> slotline_stream_dataset {
        slotline_stream_dataset {
            struct_size: size_of::<slotline_stream_dataset>(),
            user: self.into_pointer(),
            len: -1,
            fields,
            num_fields,
            open: Some(open),
            next: Some(next),
            close: Some(close),
            save: None,
            resume: None,
            drop: Some(dropped),
        }
    }
}

/// Drops a user pointer.
pub(super) unsafe extern "C" fn dropped(user: *mut c_void) {
    // SAFETY: the pointer was created by `User::hand_over`, and is dropped once.
    let user = unsafe { Box::from_raw(user.cast::<User>()) };
    user.ledger.fetch_sub(1, Ordering::Relaxed);
}

/// Returns the user data behind a pointer.
///
/// # Safety
///
/// The pointer must have been made by `User::hand_over`, and not dropped yet.
unsafe fn user<'a>(user: *mut c_void) -> &'a User {
    // SAFETY: the caller upholds that the pointer was made by `User::hand_over` and not dropped yet.
    unsafe { &*user.cast::<User>() }
}

/// Returns the byte that fills sample `index`: the lowest byte of the index or, for a bool, its
/// lowest bit.
pub(super) fn content(dtype: slotline_dtype, index: usize) -> u8 {
    if dtype == SLOTLINE_BOOL { index as u8 & 1 } else { index as u8 }
}

/// Writes a sample, correctly or not, as the user data selects. Returns the callback's status.
///
/// # Safety
///
/// The sample must be the one that was passed to the current callback.
unsafe fn write(user: &User, index: usize, sample: *mut slotline_sample) -> i32 {
    user.act.iter().for_each(|act| act(sample));
    let fault = (user.way / 8 * 31 + index) % 16;
    let mut memory = [0_u64; 40];
    // SAFETY: the caller upholds that the sample is valid; every write has the stated length.
    unsafe {
        for (field, &(dtype, size, elements)) in user.fields.iter().enumerate() {
            let mut bytes = 0;
            let row =
                slotline_sample_row(sample, field, if user.way.is_multiple_of(2) { &mut bytes } else { null_mut() });
            if !row.is_null() && user.way % 8 != 1 {
                assert!(!user.way.is_multiple_of(2) || bytes == size * elements);
                row.cast::<u8>().write_bytes(content(dtype, index), size * elements);
                continue;
            }
            memory.as_mut_ptr().cast::<u8>().write_bytes(content(dtype, index), size_of_val(&memory));
            slotline_sample_write(sample, field, memory.as_ptr().cast(), elements);
        }
        assert!(slotline_sample_worker(sample) >= -1 && slotline_sample_epoch(sample) < 100);
        let _ = (slotline_sample_random(sample), slotline_sample_position(sample));
        // Only every other dataset has bad samples.
        if user.way & 4 == 0 {
            return 0;
        }
        match fault {
            0 => {
                slotline_sample_fail(sample, c"no such sample".as_ptr());
                return 7;
            }
            1 => return -1,
            2 => _ = slotline_sample_write(sample, user.fields.len() + index, memory.as_ptr().cast(), 1),
            3 => _ = slotline_sample_write(sample, 0, null(), 1),
            4 => _ = slotline_sample_write(sample, 0, memory.as_ptr().cast(), 17),
            5 => {
                let mut bytes = 0;
                let row = slotline_sample_row(sample, 0, &mut bytes);
                if !row.is_null() && user.fields[0].0 == SLOTLINE_BOOL && bytes > 0 {
                    row.cast::<u8>().write_bytes(2, bytes);
                }
            }
            6 => {
                slotline_sample_fail(sample, null());
                slotline_sample_fail(sample, c"bad \xff text".as_ptr());
                return 2;
            }
            _ => {}
        }
    }
    0
}

unsafe extern "C" fn read(pointer: *mut c_void, index: usize, sample: *mut slotline_sample) -> i32 {
    // SAFETY: the library passes a valid user pointer and sample.
    unsafe { write(user(pointer), index, sample) }
}

/// Writes a sample with the same index as its source, or misbehaves.
pub(super) unsafe extern "C" fn map(
    pointer: *mut c_void,
    source: *const slotline_batch,
    sample: *mut slotline_sample,
) -> i32 {
    // SAFETY: the library passes a valid user pointer, a batch of one sample, and a sample.
    unsafe {
        for i in 0..slotline_batch_num_fields(source) {
            let mut field = tensor();
            assert_eq!(slotline_batch_field(source, i, &mut field, null_mut()), SLOTLINE_OK);
            if field.bytes > 0 {
                std::hint::black_box(std::slice::from_raw_parts(field.data.cast::<u8>(), field.bytes).iter().max());
            }
        }
        write(user(pointer), *slotline_batch_indices(source) as usize, sample)
    }
}

/// The usual number of samples of a stream, in each worker.
pub(super) const STREAMED: usize = 19;

/// Opens a cursor, which counts the samples read so far.
unsafe extern "C" fn open(
    pointer: *mut c_void,
    worker: *const slotline_worker,
    cursor: *mut *mut c_void,
    failure: *mut slotline_failure,
) -> i32 {
    // SAFETY: the library passes valid pointers.
    unsafe {
        let user = user(pointer);
        if user.way & 16 != 0 && (*worker).id == 1 {
            slotline_fail(failure, c"no cursor".as_ptr());
            return 1;
        }
        user.ledger.fetch_add(1, Ordering::Relaxed);
        *cursor = Box::into_raw(Box::new(0_usize)).cast();
    }
    0
}

unsafe extern "C" fn next(pointer: *mut c_void, cursor: *mut c_void, sample: *mut slotline_sample) -> i32 {
    // SAFETY: the library passes valid pointers, and only one thread uses a cursor at a time.
    unsafe {
        let user = user(pointer);
        let read = &mut *cursor.cast::<usize>();
        if *read >= user.len {
            return 1;
        }
        *read += 1;
        match write(user, *read - 1, sample) {
            1 => 2,
            code => code,
        }
    }
}

unsafe extern "C" fn close(pointer: *mut c_void, cursor: *mut c_void) {
    // SAFETY: the cursor was made by `open` or `resume`, and is closed once.
    unsafe {
        user(pointer).ledger.fetch_sub(1, Ordering::Relaxed);
        drop(Box::from_raw(cursor.cast::<usize>()));
    }
}

pub(super) unsafe extern "C" fn save(pointer: *mut c_void, cursor: *mut c_void, saved: *mut slotline_saved) -> i32 {
    // SAFETY: the library passes valid pointers.
    unsafe {
        let bytes = (*cursor.cast::<usize>()).to_ne_bytes();
        if user(pointer).way & 32 != 0 {
            return 1;
        }
        slotline_saved_append(saved, bytes.as_ptr(), bytes.len()) as i32
    }
}

pub(super) unsafe extern "C" fn resume(
    pointer: *mut c_void,
    _: *const slotline_worker,
    saved: *const u8,
    len: usize,
    cursor: *mut *mut c_void,
    failure: *mut slotline_failure,
) -> i32 {
    // SAFETY: the library passes valid pointers.
    unsafe {
        let saved: Result<[u8; 8], _> = std::slice::from_raw_parts(saved, len).try_into();
        let Ok(saved) = saved else {
            slotline_fail(failure, c"not saved here".as_ptr());
            return 1;
        };
        user(pointer).ledger.fetch_add(1, Ordering::Relaxed);
        *cursor = Box::into_raw(Box::new(usize::from_ne_bytes(saved))).cast();
    }
    0
}

/// Takes some or all of the samples, and sets the batch to a new user pointer.
pub(super) unsafe extern "C" fn collate(
    pointer: *mut c_void,
    samples: *mut slotline_samples,
    batch: *mut *mut c_void,
    failure: *mut slotline_failure,
) -> i32 {
    // SAFETY: the library passes valid pointers.
    unsafe {
        let user = user(pointer);
        let mut fields: Vec<slotline_tensor> = (0..8).map(|_| tensor()).collect();
        let mut taken = 0;
        while slotline_samples_left(samples) > 0 && (user.way % 4 != 1 || taken < 2) {
            let status = slotline_samples_next(samples, fields.as_mut_ptr(), user.way % 9);
            if status == SLOTLINE_END {
                break;
            }
            taken += 1;
            if status != SLOTLINE_OK && user.way % 4 != 2 {
                return 5;
            }
            if status != SLOTLINE_OK && taken > 200 {
                break;
            }
        }
        if user.way % 4 == 3 {
            slotline_fail(failure, c"no batch".as_ptr());
            return 1;
        }
        *batch = User::hand_over(&user.ledger, 0, Vec::new());
    }
    0
}

pub(super) unsafe extern "C" fn init(
    pointer: *mut c_void,
    worker: *const slotline_worker,
    failure: *mut slotline_failure,
) -> i32 {
    // SAFETY: the library passes valid pointers.
    unsafe {
        if user(pointer).way % 3 == 0 && (*worker).id == 0 {
            slotline_fail(failure, c"no init".as_ptr());
            return 1;
        }
    }
    0
}

/// Draws an order, with indices that are out of range for small datasets, or fails.
pub(super) unsafe extern "C" fn order(
    pointer: *mut c_void,
    pass: u64,
    seed: u64,
    indices: *mut u64,
    len: usize,
    failure: *mut slotline_failure,
) -> i32 {
    // SAFETY: the library passes valid pointers.
    unsafe {
        if user(pointer).way % 4 == 3 && pass == 1 {
            slotline_fail(failure, c"no order".as_ptr());
            return 1;
        }
        for i in 0..len {
            indices.add(i).write((i as u64 * 3 + pass + seed % 3) % 9);
        }
    }
    0
}

/// Returns six batches; the fourth may fail.
pub(super) unsafe extern "C" fn batches(
    pointer: *mut c_void,
    pass: u64,
    seed: u64,
    batch: u64,
    indices: *mut u64,
    room: usize,
    len: *mut usize,
    failure: *mut slotline_failure,
) -> i32 {
    // SAFETY: the library passes valid pointers.
    unsafe {
        let way = user(pointer).way;
        if batch >= 6 {
            return 1;
        }
        if way % 4 == 3 && batch == 3 {
            slotline_fail(failure, c"no batch".as_ptr());
            return 9;
        }
        let many = (batch as usize + way) % (room + 1);
        for i in 0..many {
            indices.add(i).write((batch + pass + seed % 3 + i as u64) % 9);
        }
        *len = if way % 8 == 6 { room + 1 } else { many };
    }
    0
}

/// Returns an empty tensor for the library to fill in.
pub(crate) fn tensor() -> slotline_tensor {
    slotline_tensor {
        struct_size: size_of::<slotline_tensor>(),
        name: null(),
        dtype: 0,
        ndim: 0,
        shape: [0; SLOTLINE_MAX_DIMS],
        strides: [0; SLOTLINE_MAX_DIMS],
        data: null(),
        bytes: 0,
        ends: null(),
        num_ends: 0,
        kind: 0,
        reserved: 0,
    }
}
