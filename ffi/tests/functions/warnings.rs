//! Warnings, which a callback is told of.

use std::ffi::{CStr, c_void};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use slotline_ffi::dtype::*;
use slotline_ffi::field::*;
use slotline_ffi::options::*;
use slotline_ffi::sample::*;
use slotline_ffi::status::*;
use slotline_ffi::warning::*;

use crate::support::datasets::{Drops, field, map, map_loader};
use crate::support::options;

/// The kind, index, batch and worker of each warning, and its message.
type Heard = Mutex<Vec<(u32, [i64; 3], String)>>;

unsafe extern "C" fn hear(user: *mut c_void, warning: *const slotline_warning) {
    // SAFETY: `user` is an `Arc` that is not dropped yet, and the warning is lent to this callback.
    unsafe {
        let warning = &*warning;
        assert_eq!((warning.struct_size, warning.reserved), (size_of::<slotline_warning>(), 0));
        assert_eq!(warning.seconds > 0.0, warning.kind == SLOTLINE_WARNING_STUCK);
        let message = CStr::from_ptr(warning.message).to_str().unwrap().to_owned();
        let heard = (warning.kind, [warning.index, warning.task, warning.worker], message);
        (*user.cast::<Heard>()).lock().unwrap().push(heard);
    }
}

unsafe extern "C" fn drop_heard(user: *mut c_void) {
    // SAFETY: it came from `Arc::into_raw`, and is dropped once.
    drop(unsafe { Arc::from_raw(user.cast::<Heard>()) });
}

/// Takes long for 6, and fails for 9.
unsafe extern "C" fn read(_: *mut c_void, index: usize, sample: *mut slotline_sample) -> i32 {
    if index == 6 {
        std::thread::sleep(Duration::from_millis(500));
    }
    // SAFETY: the sample is lent to this callback, and the pointers are valid.
    unsafe {
        slotline_sample_write(sample, 0, (&raw const index).cast(), 1);
        if index == 9 {
            slotline_sample_fail(sample, c"nine is scratched".as_ptr());
        }
    }
    i32::from(index == 9)
}

#[test]
fn slow_and_bad_samples_are_told_with_their_places() {
    for num_workers in [0, 1] {
        let heard = Arc::new(Heard::default());
        let fields = [field(c"number", SLOTLINE_I64, SLOTLINE_FIXED, &[])];
        let dataset = map(12, &fields, Some(read), &Drops::default());
        let set = options(|options| {
            (options.batch_size, options.num_workers, options.help) = (4, num_workers, SLOTLINE_HELP_AUTO);
            (options.watchdog_ms, options.on_error) = (20, SLOTLINE_ON_ERROR_SKIP);
            if num_workers > 0 {
                options.help = 0;
            }
            options.on_warning = Some(hear);
            options.on_warning_user = Arc::into_raw(heard.clone()).cast_mut().cast();
            options.on_warning_drop = Some(drop_heard);
        });
        let loader = map_loader(&dataset, &set).unwrap();
        for _ in 0..2 {
            assert_eq!(loader.epoch(), Ok(SLOTLINE_OK));
            while loader.next().unwrap().is_some() {}
        }
        drop(loader);
        let worker = num_workers as i64 - 1;
        // Nothing else has the callback's pointer any more.
        let all = Arc::into_inner(heard).unwrap().into_inner().unwrap();
        let of = |kind| all.iter().filter(move |one| one.0 == kind).collect::<Vec<_>>();
        // On a busy machine other samples may be late, too.
        let stuck = of(SLOTLINE_WARNING_STUCK).into_iter().filter(|one| one.1 == [6, 1, worker]);
        assert_eq!(stuck.count(), 2, "{all:?}");
        let [bad] = of(SLOTLINE_WARNING_BAD_SAMPLE)[..] else { panic!("{all:?}") };
        assert_eq!(bad.1, [9, 2, worker]);
        assert!(bad.2.starts_with("sample 9 of batch 2 is bad, in ") && bad.2.ends_with(": nine is scratched"));
    }
}
