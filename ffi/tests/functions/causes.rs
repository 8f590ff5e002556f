//! Objects that callbacks attach to their failures.

use std::ffi::{CStr, c_void};
use std::ptr::{null, null_mut};

use slotline_ffi::batch::*;
use slotline_ffi::callback::*;
use slotline_ffi::collate::*;
use slotline_ffi::dtype::*;
use slotline_ffi::error::*;
use slotline_ffi::field::*;
use slotline_ffi::loader::*;
use slotline_ffi::sample::*;
use slotline_ffi::status::*;

use crate::support::datasets::{Drops, dropped, field, map, map_loader};
use crate::support::{Loader, options};

const KIND: &CStr = c"test.drops";

/// Fails at index 5 with an object that counts its drops; it is the second one that is attached.
unsafe extern "C" fn read(user: *mut c_void, index: usize, sample: *mut slotline_sample) -> i32 {
    // SAFETY: `user` points to the test's `Drops`, and the sample is lent to this callback.
    unsafe {
        if index != 5 {
            return i32::from(slotline_sample_write(sample, 0, (&raw const index).cast(), 1) != SLOTLINE_OK);
        }
        let drops = &*user.cast::<Drops>();
        let attach = |message: &CStr| {
            slotline_sample_fail_with(sample, message.as_ptr(), drops.user(), KIND.as_ptr(), Some(dropped));
        };
        attach(c"the first");
        attach(c"five is refused");
    }
    -1
}

/// Fails with an object that counts its drops, if the first sample is 4.
unsafe extern "C" fn collate(
    user: *mut c_void,
    samples: *mut slotline_samples,
    _: *mut *mut c_void,
    failure: *mut slotline_failure,
) -> i32 {
    let mut tensor = crate::support::tensor();
    // SAFETY: the pointers are lent to this callback, and `user` points to the test's `Drops`.
    unsafe {
        if slotline_samples_next(samples, &mut tensor, 1) != SLOTLINE_OK || *tensor.data.cast::<i64>() == 4 {
            let drops = (*user.cast::<Drops>()).user();
            slotline_fail_with(failure, c"no four".as_ptr(), drops, KIND.as_ptr(), Some(dropped));
            return 1;
        }
        while slotline_samples_next(samples, &mut tensor, 1) == SLOTLINE_OK {}
    }
    0
}

/// Makes a loader of batches of four of the numbers below 20. Where it fails, it attaches an object to `drops`.
fn loader(num_workers: usize, collates: bool, drops: &Drops) -> Loader {
    let fields = [field(c"number", SLOTLINE_I64, SLOTLINE_FIXED, &[])];
    let mut dataset = map(20, &fields, Some(read), drops);
    let user = (&raw const *drops).cast_mut().cast();
    (dataset.user, dataset.drop) = (user, None);
    let set = options(|options| {
        (options.batch_size, options.num_workers) = (4, num_workers);
        if collates {
            options.collate = Some(collate);
            options.collate_user = user;
        }
    });
    map_loader(&dataset, &set).unwrap()
}

/// Returns the first error of a pass.
fn first_error(loader: &Loader) -> *mut slotline_error {
    loader.epoch().unwrap();
    loop {
        let (mut batch, mut error) = (null_mut(), null_mut());
        // SAFETY: the loader and the out pointers are valid; the batch is freed once.
        let status = unsafe {
            let status = slotline_loader_next(loader.0, &mut batch, &mut error);
            slotline_batch_free(batch);
            status
        };
        assert_ne!(status, SLOTLINE_END, "no error");
        if status != SLOTLINE_OK {
            return error;
        }
    }
}

#[test]
fn an_error_has_the_object_of_the_callback_that_failed() {
    for num_workers in [0, 2] {
        for (collates, status, index) in [(false, SLOTLINE_ERROR_SAMPLE, 5), (true, SLOTLINE_ERROR_COLLATE, -1)] {
            let drops = Drops::default();
            let loader = loader(num_workers, collates, &drops);
            let error = first_error(&loader);
            let replaced = usize::from(!collates);
            // SAFETY: the error is valid until it is freed, and freed once.
            unsafe {
                let place = (slotline_error_code(error), slotline_error_index(error), slotline_error_task(error));
                assert_eq!(place, (status, index, 1));
                assert!(!slotline_error_payload(error, KIND.as_ptr()).is_null());
                // Of another type, or of none.
                assert!(slotline_error_payload(error, c"test".as_ptr()).is_null());
                assert!(slotline_error_payload(error, null()).is_null());
                assert_eq!(drops.count(), replaced);
                drop(loader);
                assert_eq!(drops.count(), replaced);
                slotline_error_free(error);
            }
            assert_eq!(drops.count(), replaced + 1);
        }
    }
}

#[test]
fn an_object_that_nobody_takes_is_dropped_with_the_loader() {
    for num_workers in [0, 1] {
        let drops = Drops::default();
        let loader = loader(num_workers, false, &drops);
        loader.epoch().unwrap();
        drop(loader.next().unwrap());
        // A worker has loaded ahead, or nobody has.
        if num_workers > 0 {
            while drops.count() == 0 {
                std::thread::yield_now();
            }
        }
        drop(loader);
        assert_eq!(drops.count(), 2 * num_workers);
    }
}
