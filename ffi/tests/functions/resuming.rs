//! States, statistics, and loaders that are stopped.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::thread;
use std::time::Duration;

use crate::support::{Loader, bytes, call, options};
use slotline_ffi::dataset::*;
use slotline_ffi::dtype::SLOTLINE_I64;
use slotline_ffi::field::*;
use slotline_ffi::loader::*;
use slotline_ffi::map::*;
use slotline_ffi::options::SLOTLINE_ON_HELD_WAIT;
use slotline_ffi::sample::*;
use slotline_ffi::state::*;
use slotline_ffi::stats::*;
use slotline_ffi::status::*;

fn state(loader: &Loader) -> Vec<u8> {
    // SAFETY: the loader and the out pointers are valid.
    bytes(|out, error| unsafe { slotline_loader_state(loader.0, out, error) }).unwrap()
}

fn load(loader: &Loader, state: &[u8]) -> Result<slotline_status, (slotline_status, String)> {
    // SAFETY: the loader is valid, and the state has the length that is passed.
    call(|error| unsafe { slotline_loader_load_state(loader.0, state.as_ptr(), state.len(), error) })
}

fn stats(loader: &Loader) -> slotline_stats {
    let mut stats = slotline_stats { struct_size: size_of::<slotline_stats>(), ..Default::default() };
    // SAFETY: the loader and the out pointer are valid.
    call(|error| unsafe { slotline_loader_stats(loader.0, &mut stats, error) }).unwrap();
    stats
}

#[test]
fn a_state_resumes_with_any_number_of_workers() {
    let whole = Loader::new(0);
    let expected: Vec<_> = (0..2).map(|_| (whole.epoch(), whole.rest()).1).collect();
    for taken in [0, 1, 7, 18] {
        let loader = Loader::new(2);
        loader.epoch().unwrap();
        let mut got: Vec<_> = (0..taken).map(|_| loader.next().unwrap().unwrap().indices().to_vec()).collect();
        let saved = state(&loader);
        // The other loader is in a pass, which is abandoned.
        let other = Loader::new(1);
        other.epoch().unwrap();
        drop(other.next());
        load(&other, &saved).unwrap();
        other.epoch().unwrap();
        got.extend(other.rest());
        assert_eq!(got, expected[0], "after {taken} batches");
        other.epoch().unwrap();
        assert_eq!(other.rest(), expected[1]);
        // SAFETY: the loader is valid.
        assert_eq!(unsafe { slotline_loader_next_epoch(other.0) }, 2);
    }
}

#[test]
fn damaged_and_mismatched_states_are_refused() {
    let loader = Loader::new(0);
    let saved = state(&loader);
    let other = Loader::with(options(|options| options.batch_size = 7));
    for (bad, what) in [
        (&b""[..], "not the state"),
        (&saved[..saved.len() / 2], "not the state"),
        (b"\xff\xfe", "not the state"),
        (&state(&other)[..], "batch_size"),
    ] {
        let (status, message) = load(&loader, bad).unwrap_err();
        assert_eq!((status, message.contains(what)), (SLOTLINE_ERROR_STATE, true), "{message}");
    }
    // SAFETY: a null pointer with a length is refused before it is read.
    let outcome = call(|error| unsafe { slotline_loader_load_state(loader.0, std::ptr::null(), 3, error) });
    assert_eq!(outcome.unwrap_err().0, SLOTLINE_ERROR_INVALID);
    loader.epoch().unwrap();
    assert_eq!(loader.rest().len(), 18);
}

#[test]
fn statistics_are_available_in_and_between_passes() {
    let loader = Loader::new(1);
    loader.epoch().unwrap();
    drop(loader.next());
    assert_eq!((stats(&loader).batches, stats(&loader).samples, stats(&loader).num_workers), (1, 100, 1));
    loader.rest();
    let all = stats(&loader);
    assert_eq!((all.passes, all.batches, all.samples, all.bytes, all.errors), (1, 18, 1797, 1797 * 72, 0));
    assert!(all.elapsed > 0.0 && all.depth > 0);
    let text_of = |of: unsafe extern "C" fn(_, _, _) -> _| {
        // SAFETY: the loader and the out pointers are valid.
        let text = bytes(|out, error| unsafe { of(loader.0, out, error) });
        String::from_utf8(text.unwrap()).unwrap()
    };
    assert!(!text_of(slotline_loader_verdict).is_empty());
    let json: serde_json::Value = serde_json::from_str(&text_of(slotline_loader_stats_json)).unwrap();
    assert_eq!((&json["samples"], json["workers"].as_array().unwrap().len()), (&1797.into(), 1));
    let crowded = Loader::new(300);
    // SAFETY: as above.
    let warnings = bytes(|out, error| unsafe { slotline_loader_warnings(crowded.0, out, error) }).unwrap();
    assert!(String::from_utf8(warnings).unwrap().starts_with("num_workers is 300"));
}

#[test]
fn a_stats_struct_that_is_too_short_is_refused() {
    let loader = Loader::new(0);
    let mut short = slotline_stats { struct_size: 8, ..Default::default() };
    // SAFETY: the loader and the out pointer are valid.
    let (status, message) = call(|error| unsafe { slotline_loader_stats(loader.0, &mut short, error) }).unwrap_err();
    assert_eq!((status, message.contains("struct_size is 8")), (SLOTLINE_ERROR_INVALID, true), "{message}");
}

#[test]
fn a_stopped_loader_stays_stopped_and_keeps_its_state() {
    for workers in 0..3 {
        let loader = Loader::new(workers);
        loader.epoch().unwrap();
        let mut got: Vec<_> = (0..3).map(|_| loader.next().unwrap().unwrap().indices().to_vec()).collect();
        let held = loader.next().unwrap().unwrap();
        got.push(held.indices().to_vec());
        // SAFETY: the loader is valid, and any thread may stop it.
        thread::scope(|scope| scope.spawn(|| unsafe { slotline_loader_stop({ &loader }.0) }).join()).unwrap();
        for _ in 0..3 {
            assert_eq!(loader.next().err().unwrap().0, SLOTLINE_ERROR_STOPPED);
        }
        let saved = state(&loader);
        assert_eq!(loader.epoch().unwrap_err().0, SLOTLINE_ERROR_STOPPED);
        assert_eq!(loader.next().err().unwrap().0, SLOTLINE_ERROR_STOPPED);
        assert_eq!(stats(&loader).batches, 4);
        drop(loader);
        assert_eq!(held.indices(), got[3]);
        let (other, whole) = (Loader::new(1), Loader::new(0));
        load(&other, &saved).unwrap();
        other.epoch().unwrap();
        got.extend(other.rest());
        whole.epoch().unwrap();
        assert_eq!(got, whole.rest());
    }
}

/// A callback that stops the loader to which `user` points, once there is one, and then writes its index.
unsafe extern "C" fn stop_and_read(user: *mut c_void, index: usize, sample: *mut slotline_sample) -> i32 {
    let loader = user.cast::<AtomicPtr<slotline_loader>>();
    let index = index as i64;
    // SAFETY: the test keeps the pointer's memory, and the loader while the pointer is set.
    unsafe {
        slotline_loader_stop((*loader).load(Ordering::SeqCst));
        slotline_sample_write(sample, 0, (&raw const index).cast(), 1) as i32
    }
}

#[test]
fn a_callback_may_stop_its_loader() {
    for workers in 0..3 {
        let place = AtomicPtr::<slotline_loader>::new(null_mut());
        let field = slotline_field {
            struct_size: size_of::<slotline_field>(),
            name: null(),
            dtype: SLOTLINE_I64,
            kind: SLOTLINE_FIXED,
            ndim: 0,
            shape: null(),
        };
        let callbacks = slotline_map_dataset {
            struct_size: size_of::<slotline_map_dataset>(),
            user: (&raw const place).cast_mut().cast(),
            len: 1_000_000,
            fields: &field,
            num_fields: 1,
            read: Some(stop_and_read),
            drop: None,
            read_many: None,
            prefetch: None,
        };
        let (mut dataset, mut loader) = (null_mut(), null_mut());
        let options = options(|options| (options.batch_size, options.num_workers) = (10, workers));
        // SAFETY: all pointers are valid.
        unsafe {
            call(|error| slotline_dataset_from_callbacks(&callbacks, &mut dataset, error)).unwrap();
            call(|error| slotline_loader_new(dataset, &options, &mut loader, error)).unwrap();
            slotline_dataset_free(dataset);
        }
        let loader = Loader(loader);
        loader.epoch().unwrap();
        place.store(loader.0, Ordering::SeqCst);
        // Workers may have made some batches before there was a loader to stop.
        let outcome = std::iter::repeat_n((), 100_000)
            .find_map(|()| loader.next().map(|batch| batch.expect("it is stopped before the end")).err());
        assert_eq!(outcome.unwrap().0, SLOTLINE_ERROR_STOPPED);
        // Cleared before the loader is freed.
        place.store(null_mut(), Ordering::SeqCst);
    }
}

#[test]
fn a_stop_or_free_wakes_up_a_waiting_next() {
    for free in [false, true] {
        let loader =
            Loader::with(options(|options| (options.num_workers, options.on_held) = (1, SLOTLINE_ON_HELD_WAIT)));
        loader.epoch().unwrap();
        thread::scope(|scope| {
            let taker = scope.spawn(|| {
                let mut held = Vec::new();
                loop {
                    match { &loader }.next() {
                        Ok(batch) => held.push(batch.expect("not all can be held")),
                        Err((status, _)) => return status,
                    }
                }
            });
            // After this time the thread usually waits.
            thread::sleep(Duration::from_millis(30));
            // SAFETY: a loader that is in use may be stopped and freed.
            unsafe { if free { slotline_loader_free({ &loader }.0) } else { slotline_loader_stop({ &loader }.0) } };
            assert_eq!(taker.join().unwrap(), SLOTLINE_ERROR_STOPPED);
        });
        if free {
            std::mem::forget(loader);
        }
    }
}
