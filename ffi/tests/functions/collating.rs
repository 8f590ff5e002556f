//! Tests of collate callbacks, and of options that exclude each other.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};

use slotline_ffi::*;

use crate::support::datasets::{Drops, dropped, fail_init, map_loader, numbers};
use crate::support::{Digits, Loader, call, options};

/// The number of sums that were created and not dropped yet.
static SUMS: AtomicUsize = AtomicUsize::new(0);

fn empty() -> slotline_tensor {
    // SAFETY: it contains only numbers and pointers.
    let tensor: slotline_tensor = unsafe { std::mem::zeroed() };
    slotline_tensor { struct_size: size_of::<slotline_tensor>(), ..tensor }
}

/// Sums the numbers. If `user` is not null, samples that fail are left out; otherwise they fail the
/// batch.
unsafe extern "C" fn sum(
    user: *mut c_void,
    samples: *mut slotline_samples,
    batch: *mut *mut c_void,
    _: *mut slotline_failure,
) -> i32 {
    let (mut tensor, mut sum, mut left) = (empty(), Box::new(0_i64), 5);
    loop {
        // SAFETY: the pointers are valid during this callback, and the tensor is valid.
        unsafe {
            assert_eq!(slotline_samples_left(samples), left);
            match slotline_samples_next(samples, &mut tensor, 1) {
                SLOTLINE_OK => *sum += tensor.data.cast::<i64>().read(),
                SLOTLINE_END => break,
                SLOTLINE_ERROR_SAMPLE if !user.is_null() => {}
                SLOTLINE_ERROR_SAMPLE => return 1,
                status => panic!("status {status:?}"),
            }
        }
        left -= 1;
    }
    SUMS.fetch_add(1, Ordering::SeqCst);
    // SAFETY: the pointer is valid during this callback.
    unsafe { *batch = Box::into_raw(sum).cast() };
    0
}

/// Reads all samples, and creates no object.
unsafe extern "C" fn count(
    _: *mut c_void,
    samples: *mut slotline_samples,
    _: *mut *mut c_void,
    _: *mut slotline_failure,
) -> i32 {
    let mut tensor = empty();
    // SAFETY: the pointers are valid during this callback, and the tensor is valid.
    while unsafe { slotline_samples_next(samples, &mut tensor, 1) } == SLOTLINE_OK {}
    0
}

unsafe extern "C" fn drop_sum(batch: *mut c_void) {
    // SAFETY: `sum` created it, and it is dropped once.
    drop(unsafe { Box::from_raw(batch.cast::<i64>()) });
    SUMS.fetch_sub(1, Ordering::SeqCst);
}

/// The sum, number and indices of a batch, or its error message.
type Sum = Result<(i64, usize, Vec<i64>), String>;

/// Returns the batches of a pass over the numbers below 20, in which 13 fails.
fn sums(num_workers: usize, user: *mut c_void) -> Vec<Sum> {
    let (_fields, dataset) = numbers(20, &Drops::default());
    let set = options(|options| {
        (options.batch_size, options.num_workers) = (5, num_workers);
        options.collate = Some(sum);
        options.collate_drop_batch = Some(drop_sum);
        if !user.is_null() {
            options.collate_user = user;
            options.collate_drop = Some(dropped);
        }
    });
    let loader = map_loader(&dataset, &set).unwrap();
    loader.epoch().unwrap();
    loader.epoch().unwrap();
    let mut all = Vec::new();
    loop {
        match loader.next() {
            Ok(None) => return all,
            Ok(Some(batch)) => {
                // SAFETY: the batch is valid.
                let (sum, task) = unsafe {
                    assert_eq!((slotline_batch_num_fields(batch.0), slotline_batch_epoch(batch.0)), (0, 1));
                    (slotline_batch_user(batch.0).cast::<i64>().read(), slotline_batch_index(batch.0))
                };
                all.push(Ok((sum, task, batch.indices().to_vec())));
            }
            Err((SLOTLINE_ERROR_SAMPLE, message)) => all.push(Err(message)),
            Err(other) => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_collate_callback_makes_batches() {
    let drops = Drops::default();
    for num_workers in [0, 2] {
        let all = sums(num_workers, drops.user());
        let rows = |from: i64, to| (from..to).collect::<Vec<i64>>();
        let want = [
            (10, 0, rows(0, 5)),
            (35, 1, rows(5, 10)),
            (10 + 11 + 12 + 14, 2, vec![10, 11, 12, 14]),
            (85, 3, rows(15, 20)),
        ];
        assert_eq!(all, want.map(Ok));
        let failing = sums(num_workers, null_mut());
        assert_eq!((failing[0].clone(), failing[3].clone()), (Ok((10, 0, rows(0, 5))), Ok((85, 3, rows(15, 20)))));
        let message = failing[2].as_ref().unwrap_err();
        assert!(message.contains("batch 2 failed in") && message.ends_with("thirteen is refused"), "{message}");
    }
    assert_eq!((SUMS.load(Ordering::SeqCst), drops.count()), (0, 2));
}

#[test]
fn a_collate_callback_gets_no_bad_samples() {
    for (num_workers, on_error) in
        [0, 2].into_iter().flat_map(|n| [SLOTLINE_ON_ERROR_SKIP, SLOTLINE_ON_ERROR_REPLACE].map(|e| (n, e)))
    {
        let (_fields, dataset) = numbers(20, &Drops::default());
        let set = options(|options| {
            (options.batch_size, options.num_workers, options.on_error) = (5, num_workers, on_error);
            (options.has_seed, options.seed, options.bad_samples) = (1, 7, usize::MAX);
            options.collate = Some(all_good);
        });
        let loader = map_loader(&dataset, &set).unwrap();
        loader.epoch().unwrap();
        let sizes: Vec<_> = (0..4).map(|_| loader.next().unwrap().unwrap().indices().len()).collect();
        assert_eq!(sizes, if on_error == SLOTLINE_ON_ERROR_SKIP { [5, 5, 4, 5] } else { [5; 4] });
    }
}

/// Reads all samples; fails if one cannot be read.
unsafe extern "C" fn all_good(
    _: *mut c_void,
    samples: *mut slotline_samples,
    _: *mut *mut c_void,
    _: *mut slotline_failure,
) -> i32 {
    let mut tensor = empty();
    loop {
        // SAFETY: the pointers are valid during this callback, and the tensor is valid.
        match unsafe { slotline_samples_next(samples, &mut tensor, 1) } {
            SLOTLINE_OK => {}
            status => return i32::from(status != SLOTLINE_END),
        }
    }
}

/// Reads a sample into a list of tensors in which the second `struct_size` is larger than the first.
unsafe extern "C" fn overlong(
    _: *mut c_void,
    samples: *mut slotline_samples,
    _: *mut *mut c_void,
    _: *mut slotline_failure,
) -> i32 {
    let mut tensors = [empty(), empty(), empty()];
    tensors[1].struct_size *= 2;
    tensors[2].ndim = 77;
    // SAFETY: the list contains two tensors.
    let status = unsafe { slotline_samples_next(samples, tensors.as_mut_ptr(), 2) };
    i32::from(status == SLOTLINE_ERROR_INVALID && tensors[2].ndim == 77)
}

#[test]
fn a_list_of_tensors_is_not_overrun() {
    let loader = Loader::with(options(|options| options.collate = Some(overlong)));
    loader.epoch().unwrap();
    let (_, message) = loader.next().err().expect("the list was accepted");
    assert!(message.contains("fields[1]: struct_size is"), "{message}");
}

#[test]
fn collated_batches_are_numbered_after_resumes_and_errors() {
    let make = |workers, init: slotline_worker_init| {
        let (_fields, dataset) = numbers(13, &Drops::default());
        let set = options(|options| {
            (options.batch_size, options.num_workers) = (5, workers);
            options.collate = Some(count);
            options.worker_init = init;
        });
        map_loader(&dataset, &set).unwrap()
    };
    // SAFETY: the batch is valid.
    let task = |loader: &Loader| unsafe { slotline_batch_index(loader.next().unwrap().unwrap().0) };
    let (loader, other) = (make(0, None), make(0, None));
    loader.epoch().unwrap();
    assert_eq!((task(&loader), task(&loader)), (0, 1));
    other.load(&loader.state().unwrap()).unwrap();
    other.epoch().unwrap();
    assert_eq!(task(&other), 2);
    other.epoch().unwrap();
    assert_eq!(task(&other), 0);
    let failing = make(2, Some(fail_init));
    failing.epoch().unwrap();
    assert_eq!(failing.next().err().unwrap().0, SLOTLINE_ERROR_WORKER_INIT);
    assert_eq!((task(&failing), task(&failing)), (0, 1));
}

/// A command for `spawn` without a program: a list that contains only NULL.
static NOTHING: usize = 0;

#[test]
fn invalid_options_are_named_and_user_pointers_are_dropped() {
    let (digits, drops) = (Digits::open(), Drops::default());
    let refused = |dataset, set: &dyn Fn(&mut slotline_options)| {
        let set = options(|options| {
            options.collate = Some(sum);
            options.collate_drop = Some(dropped);
            (options.collate_user, options.worker_init_user) = (drops.user(), drops.user());
            options.worker_init_drop = Some(dropped);
            options.on_warning_user = drops.user();
            options.on_warning_drop = Some(dropped);
            set(options);
        });
        let mut loader = null_mut();
        // SAFETY: all pointers are valid or NULL.
        let outcome = call(|error| unsafe { slotline_loader_new(dataset, &set, &mut loader, error) });
        assert!(loader.is_null());
        outcome.map(drop).unwrap_err()
    };
    let build = |set: &dyn Fn(&mut slotline_options), words: &str| {
        let (status, message) = refused(digits.0, set);
        assert!(status == SLOTLINE_ERROR_BUILD && message.contains(words), "{status:?} {message}");
    };
    build(&|options| options.batch_size = 0, "batch_size is 0");
    build(&|options| options.timeout_ms = 5, "timeout and num_workers = 0 exclude each other");
    build(&|options| (options.on_error, options.bad_share) = (1, 2.0), "the maximum share of bad samples is 2");
    build(&|options| options.restart_workers = 1, "restart_workers and threads exclude each other; set processes");
    build(&|options| options.sample_timeout_ms = 1, "sample_timeout_ms and threads exclude each other; set processes");
    build(
        &|options| options.spawn = (&raw const NOTHING).cast(),
        "spawn and threads exclude each other; set processes",
    );
    build(&|options| options.spawn_setup_len = 1, "spawn_setup and spawn = NULL exclude each other; set spawn");
    build(&|options| (options.processes, options.num_workers) = (1, 1), "processes and ");
    assert_eq!(refused(null(), &|_| ()), (SLOTLINE_ERROR_INVALID, "dataset is NULL".into()));
    assert_eq!(drops.count(), 3 * 9);
}
