//! Collate callbacks, `worker_init`, and invalid options.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};

use slotline_ffi::arrays::*;
use slotline_ffi::batch::*;
use slotline_ffi::callback::*;
use slotline_ffi::collate::*;
use slotline_ffi::dataset::*;
use slotline_ffi::dtype::*;
use slotline_ffi::field::*;
use slotline_ffi::loader::*;
use slotline_ffi::options::*;
use slotline_ffi::sample::*;
use slotline_ffi::state::*;
use slotline_ffi::stats::*;
use slotline_ffi::status::*;
use slotline_ffi::tensor::*;

use crate::support::datasets::{Drops, dropped, fail_init, field, loader_of, map, map_loader, numbers};
use crate::support::{Digits, Loader, bytes, call, options};

/// The number of sums that were made and not dropped.
static SUMS: AtomicUsize = AtomicUsize::new(0);

fn empty() -> slotline_tensor {
    // SAFETY: it contains only numbers and pointers.
    let tensor: slotline_tensor = unsafe { std::mem::zeroed() };
    slotline_tensor { struct_size: size_of::<slotline_tensor>(), ..tensor }
}

/// Sums the numbers. If `user` is not null, samples that fail are left out; otherwise they fail the batch.
unsafe extern "C" fn sum(
    user: *mut c_void,
    samples: *mut slotline_samples,
    batch: *mut *mut c_void,
    _: *mut slotline_failure,
) -> i32 {
    let (mut tensor, mut sum, mut left) = (empty(), Box::new(0_i64), 5);
    loop {
        // SAFETY: the pointers are lent to this callback, and the tensor is valid.
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
    // SAFETY: the pointer is lent to this callback.
    unsafe { *batch = Box::into_raw(sum).cast() };
    0
}

/// Reads all samples, and makes no object.
unsafe extern "C" fn count(
    _: *mut c_void,
    samples: *mut slotline_samples,
    _: *mut *mut c_void,
    _: *mut slotline_failure,
) -> i32 {
    let mut tensor = empty();
    // SAFETY: the pointers are lent to this callback, and the tensor is valid.
    while unsafe { slotline_samples_next(samples, &mut tensor, 1) } == SLOTLINE_OK {}
    0
}

unsafe extern "C" fn drop_sum(batch: *mut c_void) {
    // SAFETY: `sum` made it, and it is dropped once.
    drop(unsafe { Box::from_raw(batch.cast::<i64>()) });
    SUMS.fetch_sub(1, Ordering::SeqCst);
}

/// A batch's sum, number and indices, or its error message.
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

/// Reads all samples, and fails if one is bad.
unsafe extern "C" fn all_good(
    _: *mut c_void,
    samples: *mut slotline_samples,
    _: *mut *mut c_void,
    _: *mut slotline_failure,
) -> i32 {
    let mut tensor = empty();
    loop {
        // SAFETY: the pointers are lent to this callback, and the tensor is valid.
        match unsafe { slotline_samples_next(samples, &mut tensor, 1) } {
            SLOTLINE_OK => {}
            status => return i32::from(status != SLOTLINE_END),
        }
    }
}

thread_local! {
    /// The samples of the batch that is being made.
    static SAMPLES: Cell<*mut slotline_samples> = const { Cell::new(null_mut()) };
}

/// Tries to read the next sample of the batch for which it is called.
unsafe extern "C" fn read_again(_: *mut c_void, index: usize, sample: *mut slotline_sample) -> i32 {
    let (samples, mut tensor) = (SAMPLES.get(), empty());
    // SAFETY: both pointers are lent to this callback, or NULL, and the data pointers are valid.
    unsafe {
        if !samples.is_null() && index % 2 == 1 {
            assert_eq!(slotline_samples_left(samples), 0);
            assert_eq!(slotline_samples_next(samples, &mut tensor, 1), SLOTLINE_ERROR_INVALID);
        }
        i32::from(slotline_sample_write(sample, 0, (&raw const index).cast(), 1) != SLOTLINE_OK)
    }
}

/// Reads four samples, and fails if `user` is not NULL.
unsafe extern "C" fn lend(
    user: *mut c_void,
    samples: *mut slotline_samples,
    _: *mut *mut c_void,
    _: *mut slotline_failure,
) -> i32 {
    SAMPLES.set(samples);
    let (mut tensor, mut indices) = (empty(), Vec::new());
    // SAFETY: the pointers are lent to this callback, and the tensor is valid.
    while unsafe { slotline_samples_next(samples, &mut tensor, 1) } == SLOTLINE_OK {
        // SAFETY: the tensor contains a number.
        indices.push(unsafe { tensor.data.cast::<i64>().read() });
    }
    SAMPLES.set(null_mut());
    assert_eq!(indices, [0, 1, 2, 3]);
    i32::from(!user.is_null())
}

#[test]
fn a_read_callback_cannot_read_samples_of_its_own_batch() {
    for fails in [false, true] {
        let fields = [field(c"number", SLOTLINE_I64, SLOTLINE_FIXED, &[])];
        let dataset = map(4, &fields, Some(read_again), &Drops::default());
        let set = options(|options| {
            options.batch_size = 4;
            options.collate = Some(lend);
            options.collate_user = std::ptr::without_provenance_mut(usize::from(fails));
        });
        let loader = map_loader(&dataset, &set).unwrap();
        loader.epoch().unwrap();
        match loader.next() {
            Ok(batch) => assert_eq!((batch.unwrap().indices(), fails), (&[0, 1, 2, 3][..], false)),
            Err((_, message)) => {
                assert!(
                    fails && message.contains("read from slotline_samples while it was called for the same batch"),
                    "{message}"
                );
            }
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
    // SAFETY: the loaders are valid, and the state has the length that is passed.
    unsafe {
        let state = bytes(|out, error| slotline_loader_state(loader.0, out, error)).unwrap();
        call(|error| slotline_loader_load_state(other.0, state.as_ptr(), state.len(), error)).unwrap();
    }
    other.epoch().unwrap();
    assert_eq!(task(&other), 2);
    other.epoch().unwrap();
    assert_eq!(task(&other), 0);
    let failing = make(2, Some(fail_init));
    failing.epoch().unwrap();
    assert_eq!(failing.next().err().unwrap().0, SLOTLINE_ERROR_WORKER_INIT);
    assert_eq!((task(&failing), task(&failing)), (0, 1));
}

#[test]
fn a_collate_callback_can_set_its_error_message() {
    unsafe extern "C" fn refuse(
        _: *mut c_void,
        samples: *mut slotline_samples,
        _: *mut *mut c_void,
        failure: *mut slotline_failure,
    ) -> i32 {
        // SAFETY: the pointers are lent to this callback.
        unsafe {
            assert_eq!(slotline_samples_next(samples, null_mut(), 2), SLOTLINE_ERROR_INVALID);
            assert_eq!(slotline_samples_next(samples, &mut empty(), 1), SLOTLINE_ERROR_INVALID);
            let mut short = slotline_tensor { struct_size: 8, ..empty() };
            assert_eq!(slotline_samples_next(samples, &mut short, 2), SLOTLINE_ERROR_INVALID);
            slotline_fail(failure, c"no batch today".as_ptr());
        }
        1
    }
    let loader = Loader::with(options(|options| options.collate = Some(refuse)));
    loader.epoch().unwrap();
    let Err((SLOTLINE_ERROR_COLLATE, message)) = loader.next() else { panic!("no error") };
    assert_eq!(message, "the collate function failed for batch 0 in the consumer's thread: no batch today");
}

#[test]
fn a_failed_worker_init_names_the_worker_and_others_continue() {
    let drops = Drops::default();
    let loader = Loader::with(options(|options| {
        (options.num_workers, options.batch_size) = (2, 1000);
        options.worker_init = Some(fail_init);
        options.worker_init_user = drops.user();
        options.worker_init_drop = Some(dropped);
    }));
    for _ in 0..2 {
        loader.epoch().unwrap();
        let Err((SLOTLINE_ERROR_WORKER_INIT, message)) = loader.next() else { panic!("no error") };
        assert!(message.contains("worker 0") && message.ends_with("worker 0 fails"), "{message}");
        assert_eq!(loader.rest().len(), 2);
    }
    drop(loader);
    assert_eq!(drops.count(), 1);
}

/// A command without words.
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
    let invalid = |set: &dyn Fn(&mut slotline_options), words: &str| {
        let (status, message) = refused(digits.0, set);
        assert!(status == SLOTLINE_ERROR_INVALID && message.contains(words), "{status:?} {message}");
    };
    invalid(&|options| options.batch_size = -2, "options->batch_size is -2, which is not a valid value");
    invalid(&|options| options.help = 2, "options->help is 2");
    invalid(&|options| options.wait_strategy = 3, "options->wait_strategy is 3");
    invalid(&|options| options.affinity = 3, "options->affinity is 3");
    invalid(&|options| options.affinity = SLOTLINE_AFFINITY_CORES, "options->num_cores is 0");
    invalid(&|options| (options.affinity, options.num_cores) = (2, 1), "options->cores is NULL");
    invalid(&|options| options.on_overflow = 2, "options->on_overflow is 2");
    invalid(&|options| options.on_error = 3, "options->on_error is 3");
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
    assert_eq!(drops.count(), 3 * 17);
}

#[test]
fn arrays_are_read_in_place_and_invalid_ones_are_refused() {
    let (numbers, shape, drops) = ([1.5_f32, 2.0, 3.0, 4.0, 5.0, 6.0], [3_i64, 2], Drops::default());
    let array = slotline_array {
        struct_size: size_of::<slotline_array>(),
        name: c"x".as_ptr(),
        dtype: SLOTLINE_F32,
        ndim: 2,
        shape: shape.as_ptr(),
        data: numbers.as_ptr().cast(),
        user: drops.user(),
        drop: Some(dropped),
    };
    let flags = [0_u8, 1, 1];
    let flag = slotline_array {
        name: null(),
        dtype: SLOTLINE_BOOL,
        ndim: 1,
        data: flags.as_ptr().cast(),
        user: drops.user(),
        ..array
    };
    let both = [array, flag];
    // SAFETY: the arrays are valid.
    let make = |out, error| unsafe { slotline_dataset_from_arrays(both.as_ptr(), 2, out, error) };
    let loader = loader_of(make, &options(|options| options.batch_size = 2)).unwrap();
    loader.epoch().unwrap();
    let batch = loader.next().unwrap().unwrap();
    let mut tensor = empty();
    // SAFETY: the batch, the name and the out pointer are valid; the tensor has four numbers.
    unsafe {
        call(|error| slotline_batch_field_by_name(batch.0, c"x".as_ptr(), &mut tensor, error)).unwrap();
        assert_eq!(tensor.data.cast::<[f32; 4]>().read(), numbers[..4]);
        let outcome = call(|error| slotline_batch_field_by_name(batch.0, c"y".as_ptr(), &mut tensor, error));
        assert_eq!(outcome, Err((SLOTLINE_ERROR_INVALID, "no field is named \"y\"; the fields are x, 1".into())));
    }
    assert_eq!(drops.count(), 0);
    drop(loader);
    drop(batch);
    assert_eq!(drops.count(), 2);

    let refused = |change: &dyn Fn(&mut [slotline_array; 2])| {
        let mut both = [slotline_array { user: drops.user(), ..array }, slotline_array { user: drops.user(), ..flag }];
        change(&mut both);
        let mut out = null_mut();
        // SAFETY: the arrays are valid, or refused before they are read.
        let outcome = call(|error| unsafe { slotline_dataset_from_arrays(both.as_ptr(), 2, &mut out, error) });
        assert!(out.is_null());
        let Err((SLOTLINE_ERROR_INVALID, message)) = outcome else { panic!("the arrays were accepted") };
        message
    };
    let bad = [0_u8, 1, 2];
    let check = |message: String, words: &str| assert!(message.contains(words), "{message}");
    check(
        refused(&|both| both[1].data = bad.as_ptr().cast()),
        "arrays[1]: data contains a bool that is neither 0 nor 1",
    );
    check(refused(&|both| both[0].data = null()), "arrays[0]: data is NULL");
    check(refused(&|both| both[0].data = both[0].data.wrapping_byte_add(1)), "arrays[0]: data is not aligned");
    check(refused(&|both| both[0].dtype = 0), "arrays[0]: dtype is 0");
    check(refused(&|both| both[0].shape = null()), "arrays[0]: shape is NULL");
    check(
        refused(&|both| both[0].shape = [i64::MAX, 8].as_ptr()),
        "arrays[0]: shape [9223372036854775807, 8] has more",
    );
    check(refused(&|both| both[0].shape = [2, 3].as_ptr()), "the first has 2 rows, number 2 has 3");
    check(refused(&|both| both[1].name = c"x".as_ptr()), "two fields have the name \"x\"");
    assert_eq!(drops.count(), 2 + 2 * 8, "the dataset dropped them");
    let mut out = null_mut();
    // SAFETY: nothing is read.
    let outcome = call(|error| unsafe { slotline_dataset_from_arrays(null(), 0, &mut out, error) });
    assert_eq!(outcome, Err((SLOTLINE_ERROR_INVALID, "there are no arrays".into())));
}

/// Uses and frees the loader. The loader's calling thread runs it, within `slotline_loader_next`.
unsafe extern "C" fn use_and_free_loader(
    user: *mut c_void,
    _: *mut slotline_samples,
    _: *mut *mut c_void,
    failure: *mut slotline_failure,
) -> i32 {
    // SAFETY: `user` holds the loader.
    unsafe {
        let loader = *user.cast::<*mut slotline_loader>();
        let mut batch = null_mut();
        let outcome = call(|error| slotline_loader_next(loader, &mut batch, error));
        let Err((SLOTLINE_ERROR_INVALID, message)) = outcome else { panic!("the call was not refused") };
        assert!(message.starts_with("loader is in use"), "{message}");
        slotline_loader_free(loader);
        slotline_fail(failure, c"the loader was freed".as_ptr());
    }
    1
}

#[test]
fn a_callback_cannot_use_its_loader_but_can_free_it() {
    let mut own = Box::new(null_mut::<slotline_loader>());
    let set = options(|options| {
        options.collate = Some(use_and_free_loader);
        options.collate_user = (&raw mut *own).cast();
    });
    let loader = Loader::with(set);
    *own = loader.0;
    loader.epoch().unwrap();
    let outcome = loader.next();
    // The callback has freed the loader.
    std::mem::forget(loader);
    let Err((status, message)) = outcome else { panic!("no error") };
    assert!(status == SLOTLINE_ERROR_STOPPED || message.ends_with("the loader was freed"), "{status:?} {message}");
}

/// Simulates a callback that reads from a slow disk.
unsafe extern "C" fn read_slowly(_: *mut c_void, index: usize, sample: *mut slotline_sample) -> i32 {
    std::thread::sleep(std::time::Duration::from_millis(3));
    // SAFETY: the sample is lent to this callback, and the data pointer is valid.
    unsafe { i32::from(slotline_sample_write(sample, 0, (&raw const index).cast(), 1) != SLOTLINE_OK) }
}

#[test]
fn a_slow_read_callback_counts_as_reading() {
    for (num_workers, collates) in [(0, false), (2, false), (0, true), (2, true)] {
        let drops = Drops::default();
        let fields = [field(c"number", SLOTLINE_I64, SLOTLINE_FIXED, &[])];
        let dataset = map(40, &fields, Some(read_slowly), &drops);
        let loader = map_loader(
            &dataset,
            &options(|options| {
                (options.batch_size, options.num_workers) = (4, num_workers);
                if collates {
                    options.collate = Some(count);
                }
            }),
        )
        .unwrap();
        assert_eq!(loader.epoch(), Ok(SLOTLINE_OK));
        while loader.next().unwrap().is_some() {}
        // SAFETY: the loader and the out pointers are valid.
        let verdict = bytes(|out, error| unsafe { slotline_loader_verdict(loader.0, out, error) }).unwrap();
        let verdict = String::from_utf8(verdict).unwrap();
        assert!(verdict.starts_with("bound by reading"), "{verdict}");
    }
}
