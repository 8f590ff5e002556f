//! Tests of worker processes.

use std::ffi::c_void;
use std::fs::{self, File};
use std::path::Path;

use slotline_ffi::*;

use crate::map_datasets::{elements, mixed, read_mixed};
use crate::support::datasets::{Drops, field, map, map_loader, numbers};
use crate::support::{Loader, options};

/// Returns the options of a loader with batches of 4 and two workers, which are threads or
/// processes.
fn workers(processes: bool, restart_workers: usize) -> slotline_options {
    options(|options| {
        (options.batch_size, options.num_workers) = (4, 2);
        (options.shuffle, options.has_seed, options.seed) = (1, 1, 7);
        (options.processes, options.restart_workers) = (u8::from(processes), restart_workers);
    })
}

/// Returns the indices and the bytes of all fields of the batches of two passes.
fn two_passes(loader: &Loader, fields: usize) -> Vec<(Vec<i64>, Vec<Vec<u8>>)> {
    let mut all = Vec::new();
    for _ in 0..2 {
        loader.epoch().unwrap();
        let batches = std::iter::from_fn(|| loader.next().unwrap());
        all.extend(batches.map(|batch| {
            let fields = (0..fields).map(|i| elements::<u8>(&batch, i)).collect();
            (batch.indices().to_vec(), fields)
        }));
    }
    all
}

/// Writes the index and a random number.
unsafe extern "C" fn read_pair(_: *mut c_void, index: usize, sample: *mut slotline_sample) -> i32 {
    // SAFETY: the sample is valid during this callback, and the data pointer is valid.
    unsafe {
        let pair = [index as u64, slotline_sample_random(sample)];
        i32::from(slotline_sample_write(sample, 0, pair.as_ptr().cast(), 2) != SLOTLINE_OK)
    }
}

fn pair() -> [slotline_field; 1] {
    [field(c"pair", SLOTLINE_U64, SLOTLINE_FIXED, &[2])]
}

/// Returns two passes over a dataset of 40 pairs that are read with this callback.
fn passes_of_pairs(read: slotline_read, options: &slotline_options) -> Vec<(Vec<i64>, Vec<Vec<u8>>)> {
    two_passes(&map_loader(&map(40, &pair(), read, &Drops::default()), options).unwrap(), 1)
}

#[test]
fn processes_give_the_batches_of_threads() {
    let digits = |processes| two_passes(&Loader::with(workers(processes, 0)), 2);
    assert_eq!(digits(true), digits(false));
    let mixed = |processes| {
        let (fields, drops) = (mixed(), Drops::default());
        let loader = map_loader(&map(30, &fields, Some(read_mixed), &drops), &workers(processes, 0)).unwrap();
        let passes = two_passes(&loader, fields.len());
        drop(loader);
        assert_eq!(drops.count(), 1);
        passes
    };
    assert_eq!(mixed(true), mixed(false));
    let pairs = |processes| passes_of_pairs(Some(read_pair), &workers(processes, 0));
    assert_eq!(pairs(true), pairs(false));
}

#[test]
fn a_failed_sample_is_the_same_error_in_a_process() {
    let outcomes = |processes| {
        let drops = Drops::default();
        let (_fields, dataset) = numbers(20, &drops);
        let loader = map_loader(&dataset, &slotline_options { shuffle: 0, ..workers(processes, 0) }).unwrap();
        loader.epoch().unwrap();
        let outcomes: Vec<_> = (0..5).map(|_| loader.next().map(|batch| batch.unwrap().indices().to_vec())).collect();
        assert_eq!(loader.next().map(|batch| batch.is_none()), Ok(true));
        outcomes
    };
    let [threads, processes] = [outcomes(false), outcomes(true)];
    let (status, message) = processes[3].as_ref().unwrap_err();
    assert!(*status == SLOTLINE_ERROR_SAMPLE && message.contains("thirteen is refused"), "{status:?} {message}");
    for (thread, process) in threads.iter().zip(&processes) {
        assert_eq!(thread.as_ref().ok(), process.as_ref().ok());
    }
}

/// Aborts at index 21.
unsafe extern "C" fn read_or_abort(user: *mut c_void, index: usize, sample: *mut slotline_sample) -> i32 {
    if index == 21 {
        std::process::abort();
    }
    // SAFETY: the caller upholds the same contract.
    unsafe { read_pair(user, index, sample) }
}

#[test]
fn a_callback_that_aborts_is_an_error_and_the_program_goes_on() {
    let in_turn = slotline_options { shuffle: 0, ..workers(true, 0) };
    let loader = map_loader(&map(40, &pair(), Some(read_or_abort), &Drops::default()), &in_turn).unwrap();
    loader.epoch().unwrap();
    for task in 0..10 {
        match loader.next() {
            Ok(batch) => assert_eq!(batch.unwrap().indices()[0], 4 * task),
            Err((status, message)) => {
                assert_eq!((status, task), (SLOTLINE_ERROR_SAMPLE, 5), "{message}");
                assert!(message.contains("sample 21 of batch 5") && message.contains("signal 6"), "{message}");
            }
        }
    }
    assert_eq!(loader.next().map(|batch| batch.is_none()), Ok(true));

    // In the next pass the second worker aborts, too.
    loader.epoch().unwrap();
    let (status, message) =
        (0..).find_map(|_| loader.next().err().filter(|error| error.0 != SLOTLINE_ERROR_SAMPLE)).unwrap();
    assert!(status == SLOTLINE_ERROR_WORKER_DIED && message.contains("signal 6"), "{status:?} {message}");
    assert_eq!(loader.epoch().unwrap_err().0, SLOTLINE_ERROR_WORKER_DIED);
}

/// A folder in which the callback records the indices at which it aborted.
const ABORTED: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/aborted");

/// Aborts the first time that it reads one of certain indices.
unsafe extern "C" fn read_or_abort_once(user: *mut c_void, index: usize, sample: *mut slotline_sample) -> i32 {
    if index % 7 == 3 && File::create_new(Path::new(ABORTED).join(index.to_string())).is_ok() {
        std::process::abort();
    }
    // SAFETY: the caller upholds the same contract.
    unsafe { read_pair(user, index, sample) }
}

#[test]
fn nobody_can_tell_that_a_replaced_worker_aborted() {
    let _ = fs::remove_dir_all(ABORTED);
    fs::create_dir(ABORTED).unwrap();
    let replaced = passes_of_pairs(Some(read_or_abort_once), &workers(true, 6));
    assert_eq!(fs::read_dir(ABORTED).unwrap().count(), 6);
    assert_eq!(replaced, passes_of_pairs(Some(read_pair), &workers(false, 0)));
}

#[test]
fn processes_without_workers_are_refused() {
    let none = slotline_options { num_workers: 0, ..workers(true, 0) };
    let refused = map_loader(&map(40, &pair(), Some(read_pair), &Drops::default()), &none).map(drop).unwrap_err();
    assert!(refused.0 == SLOTLINE_ERROR_BUILD && refused.1.contains("num_workers = 0"), "{refused:?}");
}
