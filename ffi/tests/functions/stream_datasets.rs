//! Tests of iterable datasets, whose samples callbacks write one after another.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::slice;
use std::sync::atomic::{AtomicUsize, Ordering};

use slotline_ffi::*;

use crate::support::datasets::{Drops, dropped, field, loader_of};
use crate::support::{Loader, call, options};

/// The number of open cursors, in all tests of this process that use them.
static OPEN: AtomicUsize = AtomicUsize::new(0);

/// A cursor: the remaining numbers of a worker's part of the numbers below 10.
struct Left {
    next: i64,
    step: i64,
}

unsafe extern "C" fn open(
    _: *mut c_void,
    worker: *const slotline_worker,
    cursor: *mut *mut c_void,
    _: *mut slotline_failure,
) -> i32 {
    // SAFETY: both pointers are valid during this callback.
    unsafe {
        assert_eq!((*worker).struct_size, size_of::<slotline_worker>());
        assert_eq!((*worker).id < 0, (*worker).num_workers == 0);
        let left = Left { next: (*worker).id.max(0), step: (*worker).num_workers.max(1) as i64 };
        OPEN.fetch_add(1, Ordering::SeqCst);
        *cursor = Box::into_raw(Box::new(left)).cast();
    }
    0
}

unsafe extern "C" fn next(_: *mut c_void, cursor: *mut c_void, sample: *mut slotline_sample) -> i32 {
    // SAFETY: `open` made the cursor, and the sample is valid during this callback.
    unsafe {
        let left = &mut *cursor.cast::<Left>();
        if left.next >= 10 {
            return 1;
        }
        let number = left.next;
        left.next += left.step;
        if number == 7 {
            slotline_sample_fail(sample, c"seven is missing".as_ptr());
            return 2;
        }
        let words: Vec<u16> = (0..number as u16).collect();
        slotline_sample_write(sample, 0, (&raw const number).cast(), 1);
        slotline_sample_write(sample, 1, words.as_ptr().cast(), words.len()) as i32
    }
}

unsafe extern "C" fn close(_: *mut c_void, cursor: *mut c_void) {
    // SAFETY: `open` made the cursor, and it is closed once.
    drop(unsafe { Box::from_raw(cursor.cast::<Left>()) });
    OPEN.fetch_sub(1, Ordering::SeqCst);
}

unsafe extern "C" fn save(_: *mut c_void, cursor: *mut c_void, saved: *mut slotline_saved) -> i32 {
    // SAFETY: `open` made the cursor, and `saved` is valid during this callback.
    unsafe { slotline_saved_append(saved, (&raw const (*cursor.cast::<Left>()).next).cast(), 8) as i32 }
}

unsafe extern "C" fn resume(
    user: *mut c_void,
    worker: *const slotline_worker,
    saved: *const u8,
    len: usize,
    cursor: *mut *mut c_void,
    failure: *mut slotline_failure,
) -> i32 {
    assert_eq!(len, 8);
    // SAFETY: the pointers are valid during this callback.
    unsafe {
        open(user, worker, cursor, failure);
        (*(*cursor).cast::<Left>()).next = saved.cast::<i64>().read_unaligned();
    }
    0
}

fn fields() -> [slotline_field; 2] {
    [field(c"number", SLOTLINE_I64, SLOTLINE_FIXED, &[]), field(c"words", SLOTLINE_U16, SLOTLINE_PACKED, &[10])]
}

fn stream(fields: &[slotline_field], drops: &Drops) -> slotline_stream_dataset {
    slotline_stream_dataset {
        struct_size: size_of::<slotline_stream_dataset>(),
        user: drops.user(),
        len: -1,
        fields: fields.as_ptr(),
        num_fields: fields.len(),
        open: Some(open),
        next: Some(next),
        close: Some(close),
        save: Some(save),
        resume: Some(resume),
        drop: Some(dropped),
    }
}

fn stream_loader(
    dataset: &slotline_stream_dataset,
    options: &slotline_options,
) -> Result<Loader, (slotline_status, String)> {
    // SAFETY: the dataset is valid.
    loader_of(|out, error| unsafe { slotline_dataset_from_stream(dataset, out, error) }, options)
}

/// Returns the rest of a pass: the numbers of each batch, or the error in its place.
fn rest(loader: &Loader) -> Vec<Result<Vec<i64>, String>> {
    let mut all = Vec::new();
    loop {
        match loader.next() {
            Ok(None) => return all,
            Ok(Some(batch)) => {
                let (numbers, words) = (batch.field(0), batch.field(1));
                // SAFETY: the lengths are those of the tensors.
                let (numbers, ends) = unsafe {
                    (
                        slice::from_raw_parts(numbers.data.cast::<i64>(), numbers.bytes / 8),
                        slice::from_raw_parts(words.ends, words.num_ends),
                    )
                };
                let lengths: Vec<i64> = ends.windows(2).map(|ends| ends[1] - ends[0]).collect();
                assert_eq!(lengths, numbers, "each sample has as many words as its number");
                all.push(Ok(numbers.to_vec()));
            }
            Err((status, message)) => {
                assert_eq!(status, SLOTLINE_ERROR_SAMPLE);
                all.push(Err(message));
            }
        }
    }
}

/// Serialises the tests that count open cursors.
static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[test]
fn each_worker_reads_its_part_and_errors_keep_their_place() {
    let _alone = ALONE.lock();
    let drops = Drops::default();
    let fields = fields();
    let kinds = [(0, false, vec![0, 1, 2, 3]), (2, false, vec![0, 2, 4, 6]), (2, PROCESSES, vec![0, 2, 4, 6])];
    for (num_workers, processes, whole) in kinds {
        let dataset = stream(&fields, &drops);
        let set = options(|options| {
            (options.batch_size, options.num_workers, options.processes) = (4, num_workers, u8::from(processes));
        });
        let loader = stream_loader(&dataset, &set).unwrap();
        // SAFETY: the loader is valid.
        assert_eq!(unsafe { slotline_loader_len(loader.0) }, -1);
        for _ in 0..2 {
            loader.epoch().unwrap();
            let all = rest(&loader);
            assert_eq!(all[0], Ok(whole.clone()));
            let errors: Vec<_> = all.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
            assert_eq!(errors.len(), 1);
            assert!(errors[0].ends_with(": seven is missing"), "{}", errors[0]);
        }
        drop(loader);
    }
    assert_eq!((OPEN.load(Ordering::SeqCst), drops.count()), (0, 3));
}

#[test]
fn a_stream_resumes_at_its_saved_cursors() {
    let _alone = ALONE.lock();
    let fields = fields();
    let drops = Drops::default();
    let make = |num_workers, processes| {
        let set = options(|options| {
            (options.batch_size, options.num_workers, options.on_error) = (2, num_workers, SLOTLINE_ON_ERROR_SKIP);
            options.processes = u8::from(processes);
        });
        stream_loader(&stream(&fields, &drops), &set).unwrap()
    };
    for (num_workers, processes) in [(0, false), (2, false), (2, PROCESSES)] {
        let (before, after) = (make(num_workers, processes), make(num_workers, processes));
        before.epoch().unwrap();
        before.next().unwrap().unwrap();
        before.next().unwrap().unwrap();
        let state = before.state().unwrap();
        after.load(&state).unwrap();
        after.epoch().unwrap();
        let (resumed, want) = (rest(&after), rest(&before));
        assert_eq!(resumed, want);
        assert!(!want.is_empty());
    }
    assert_eq!(OPEN.load(Ordering::SeqCst), 0);
}

/// Whether this build supports worker processes.
const PROCESSES: bool = cfg!(all(target_os = "linux", not(delays)));

/// A file that the callback creates when it aborts.
const ABORTED: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/aborted_stream");

/// Aborts the first time that it reaches the number 4.
unsafe extern "C" fn next_or_abort(user: *mut c_void, cursor: *mut c_void, sample: *mut slotline_sample) -> i32 {
    // SAFETY: `open` made the cursor, and the caller upholds the contract of `next`.
    unsafe {
        if (*cursor.cast::<Left>()).next == 4 && std::fs::File::create_new(ABORTED).is_ok() {
            std::process::abort();
        }
        next(user, cursor, sample)
    }
}

#[test]
#[cfg_attr(not(all(target_os = "linux", not(delays))), ignore = "workers are no processes here")]
fn nobody_can_tell_that_a_replaced_worker_of_a_stream_aborted() {
    let _alone = ALONE.lock();
    let (fields, drops) = (fields(), Drops::default());
    let pass = |dataset: &slotline_stream_dataset, processes: u8| {
        let set = options(|options| {
            (options.batch_size, options.num_workers) = (2, 2);
            (options.processes, options.restart_workers) = (processes, processes.into());
        });
        let loader = stream_loader(dataset, &set).unwrap();
        loader.epoch().unwrap();
        rest(&loader).into_iter().map(Result::ok).collect::<Vec<_>>()
    };
    let expected = pass(&stream(&fields, &drops), 0);
    for (save, resume) in [(Some(save as _), Some(resume as _)), (None, None)] {
        let _ = std::fs::remove_file(ABORTED);
        let dataset = slotline_stream_dataset { next: Some(next_or_abort), save, resume, ..stream(&fields, &drops) };
        assert_eq!(pass(&dataset, 1), expected);
        assert!(std::fs::exists(ABORTED).unwrap());
    }
}

/// Makes a sample with the same number and one more word. Fails for the number 5.
unsafe extern "C" fn lengthened(_: *mut c_void, source: *const slotline_batch, sample: *mut slotline_sample) -> i32 {
    let (mut number, mut words) = (crate::support::tensor(), crate::support::tensor());
    // SAFETY: both are valid during this callback, and the source has these fields.
    unsafe {
        assert_eq!(slotline_batch_len(source), 1);
        assert_eq!(*slotline_batch_indices(source), slotline_sample_position(sample) as i64);
        slotline_batch_field(source, 0, &mut number, null_mut());
        slotline_batch_field(source, 1, &mut words, null_mut());
        let number = *number.data.cast::<i64>();
        if number == 5 {
            slotline_sample_fail(sample, c"five is not wanted".as_ptr());
            return 2;
        }
        let longer: Vec<u16> = vec![7; words.bytes / 2 + 1];
        slotline_sample_write(sample, 0, (&raw const number).cast(), 1);
        slotline_sample_write(sample, 1, longer.as_ptr().cast(), longer.len()) as i32
    }
}

/// Returns a loader of two chained streams, in which a callback changes each sample.
fn composed(drops: &Drops, options: &slotline_options) -> Loader {
    let fields = fields();
    let longer =
        [field(c"number", SLOTLINE_I64, SLOTLINE_FIXED, &[]), field(c"words", SLOTLINE_U16, SLOTLINE_PACKED, &[11])];
    let (first, second) = (stream(&fields, drops), stream(&longer, drops));
    let transform = slotline_transform {
        struct_size: size_of::<slotline_transform>(),
        user: drops.user(),
        fields: longer.as_ptr(),
        num_fields: 2,
        map: Some(lengthened),
        drop: Some(dropped),
    };
    let make = |out: *mut *mut slotline_dataset, error| {
        let (mut streams, mut chain) = ([null_mut(); 2], null_mut());
        // SAFETY: all pointers are valid, and each object is freed once.
        unsafe {
            call(|error| slotline_dataset_from_stream(&first, &mut streams[0], error)).unwrap();
            call(|error| slotline_dataset_from_stream(&second, &mut streams[1], error)).unwrap();
            call(|error| slotline_dataset_chain(streams.as_ptr().cast(), 2, &mut chain, error)).unwrap();
            streams.into_iter().for_each(|stream| slotline_dataset_free(stream));
            let status = slotline_dataset_map(chain, &transform, out, error);
            slotline_dataset_free(chain);
            status
        }
    };
    loader_of(make, options).unwrap()
}

/// Returns the remaining numbers of a pass, each with its number of words; errors are left out.
fn longer(loader: &Loader) -> Vec<Vec<i64>> {
    let mut all = Vec::new();
    while let Some(batch) = loader.next().unwrap() {
        let (numbers, words) = (batch.field(0), batch.field(1));
        // SAFETY: the lengths are those of the tensors.
        let (numbers, ends) = unsafe {
            (
                slice::from_raw_parts(numbers.data.cast::<i64>(), numbers.bytes / 8),
                slice::from_raw_parts(words.ends, words.num_ends),
            )
        };
        assert!(ends.windows(2).map(|ends| ends[1] - ends[0] - 1).eq(numbers.iter().copied()), "{ends:?} {numbers:?}");
        all.push(numbers.to_vec());
    }
    all
}

#[test]
fn streams_are_chained_and_mapped_and_resume() {
    let _alone = ALONE.lock();
    let drops = Drops::default();
    let evens = [vec![0, 2], vec![1, 3], vec![4, 6], vec![9, 1], vec![8, 0], vec![3, 9], vec![2, 4], vec![6, 8]];
    let whole = [[0, 1], [2, 3], [4, 6], [8, 9], [0, 1], [2, 3], [4, 6], [8, 9]].map(Vec::from);
    let kinds = [(0, false, &whole), (2, false, &evens), (2, PROCESSES, &evens)];
    for (num_workers, processes, want) in kinds {
        let make = || {
            let set = options(|options| {
                (options.batch_size, options.num_workers, options.on_error) = (2, num_workers, SLOTLINE_ON_ERROR_SKIP);
                options.processes = u8::from(processes);
            });
            composed(&drops, &set)
        };
        let before = make();
        before.epoch().unwrap();
        assert_eq!(longer(&before), want);
        for batches in 0..want.len() {
            before.epoch().unwrap();
            (0..batches).for_each(|_| drop(before.next().unwrap().unwrap()));
            let state = before.state().unwrap();
            let after = make();
            after.load(&state).unwrap();
            after.epoch().unwrap();
            assert_eq!(longer(&after), want[batches..], "after {batches} batches with {num_workers} workers");
        }
    }
    // Each of nine loaders of each kind has dropped two streams and one callback.
    assert_eq!((OPEN.load(Ordering::SeqCst), drops.count()), (0, 3 * 9 * 3));
}

#[test]
fn a_failed_callback_of_a_mapped_stream_takes_the_place_of_a_batch() {
    let _alone = ALONE.lock();
    let drops = Drops::default();
    let loader = composed(&drops, &options(|options| options.batch_size = 4));
    loader.epoch().unwrap();
    let mut outcomes = Vec::new();
    loop {
        match loader.next() {
            Ok(None) => break,
            Ok(Some(batch)) => outcomes.push(batch.indices().len().to_string()),
            Err((status, message)) => {
                assert_eq!(status, SLOTLINE_ERROR_SAMPLE);
                outcomes.push(message.rsplit(": ").next().unwrap().to_owned());
            }
        }
    }
    // Samples that were read for a batch before the failure are lost.
    let (five, seven) = ("five is not wanted", "seven is missing");
    assert_eq!(outcomes, ["4", five, seven, "4", five, seven, "2"]);
}

#[test]
fn a_chain_of_streams_with_other_fields_is_refused() {
    let (drops, fields) = (Drops::default(), fields());
    let others = [field(c"number", SLOTLINE_I32, SLOTLINE_FIXED, &[]), fields[1]];
    let (mut streams, mut chain) = ([null_mut(); 2], null_mut());
    // SAFETY: all pointers are valid, and each object is freed once.
    let outcome = unsafe {
        call(|error| slotline_dataset_from_stream(&stream(&fields, &drops), &mut streams[0], error)).unwrap();
        call(|error| slotline_dataset_from_stream(&stream(&others, &drops), &mut streams[1], error)).unwrap();
        let outcome = call(|error| slotline_dataset_chain(streams.as_ptr().cast(), 2, &mut chain, error));
        streams.into_iter().for_each(|stream| slotline_dataset_free(stream));
        outcome
    };
    let Err((SLOTLINE_ERROR_INVALID, message)) = outcome else { panic!("the chain was made") };
    assert!(message.contains("number") && message.contains("i32") && message.contains("i64"), "{message}");
    assert_eq!(drops.count(), 2);
}

#[test]
fn a_stream_rejects_samplers_and_workers_of_a_command() {
    let fields = fields();
    let refused = |set: &dyn Fn(&mut slotline_options)| {
        let outcome = stream_loader(&stream(&fields, &Drops::default()), &options(set));
        let Err((SLOTLINE_ERROR_BUILD, message)) = outcome.map(drop) else { panic!("the options were accepted") };
        message
    };
    let (mut sampler, mut batches) = (null_mut(), null_mut());
    // SAFETY: all pointers are valid, and each object is freed once.
    unsafe {
        call(|error| slotline_sampler_random(0, 0, &mut sampler, error)).unwrap();
        call(|error| slotline_batch_sampler_of(sampler, 2, 0, &mut batches, error)).unwrap();
        assert!(refused(&|options| options.sampler = sampler).contains("an iterable dataset and sampler exclude"));
        let message = refused(&|options| options.batch_sampler = batches);
        assert!(message.contains("an iterable dataset and batch_sampler exclude"), "{message}");
        assert!(refused(&|options| options.shuffle = 1).contains("an iterable dataset and shuffle exclude"));
        let spawn = [c"true".as_ptr(), null()];
        let message = refused(&|options| {
            (options.processes, options.num_workers, options.spawn) = (1, 1, spawn.as_ptr());
        });
        assert!(message.contains("spawn and an iterable dataset exclude each other"), "{message}");
        slotline_sampler_free(sampler);
        slotline_batch_sampler_free(batches);
    }
}
