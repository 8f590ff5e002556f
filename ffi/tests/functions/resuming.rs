//! States as bytes, figures, and loaders that are stopped.

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::thread;
use std::time::Duration;

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
use crate::support::{Loader, bytes, call, options};

fn state(loader: &Loader) -> Vec<u8> {
    // SAFETY: a loader and places.
    bytes(|out, error| unsafe { slotline_loader_state(loader.0, out, error) }).unwrap()
}

fn load(loader: &Loader, state: &[u8]) -> Result<slotline_status, (slotline_status, String)> {
    // SAFETY: a loader, and so many bytes.
    call(|error| unsafe { slotline_loader_load_state(loader.0, state.as_ptr(), state.len(), error) })
}

fn stats(loader: &Loader) -> slotline_stats {
    let mut stats = slotline_stats { struct_size: size_of::<slotline_stats>(), ..Default::default() };
    // SAFETY: a loader and a place.
    call(|error| unsafe { slotline_loader_stats(loader.0, &mut stats, error) }).unwrap();
    stats
}

#[test]
fn another_loader_goes_on_from_a_state_with_any_number_of_workers() {
    let whole = Loader::new(0);
    let expected: Vec<_> = (0..2).map(|_| (whole.epoch(), whole.rest()).1).collect();
    for taken in [0, 1, 7, 18] {
        let loader = Loader::new(2);
        loader.epoch().unwrap();
        let mut got: Vec<_> = (0..taken).map(|_| loader.next().unwrap().unwrap().indices().to_vec()).collect();
        let saved = state(&loader);
        // A pass of its own is given up.
        let other = Loader::new(1);
        other.epoch().unwrap();
        drop(other.next());
        load(&other, &saved).unwrap();
        other.epoch().unwrap();
        got.extend(other.rest());
        assert_eq!(got, expected[0], "after {taken} batches");
        other.epoch().unwrap();
        assert_eq!(other.rest(), expected[1]);
        // SAFETY: a loader.
        assert_eq!(unsafe { slotline_loader_next_epoch(other.0) }, 2);
    }
}

#[test]
fn a_state_that_is_damaged_or_of_another_loader_is_refused_and_the_loader_goes_on() {
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
        assert_eq!((status, message.contains(what)), (SLOTLINE_STATE, true), "{message}");
    }
    // SAFETY: a null pointer with a length is what is tried.
    let outcome = call(|error| unsafe { slotline_loader_load_state(loader.0, std::ptr::null(), 3, error) });
    assert_eq!(outcome.unwrap_err().0, SLOTLINE_INVALID);
    loader.epoch().unwrap();
    assert_eq!(loader.rest().len(), 18);
}

#[test]
fn figures_are_those_of_the_loader_in_a_pass_and_between() {
    let loader = Loader::new(1);
    loader.epoch().unwrap();
    drop(loader.next());
    assert_eq!((stats(&loader).batches, stats(&loader).samples, stats(&loader).num_workers), (1, 100, 1));
    loader.rest();
    let all = stats(&loader);
    assert_eq!((all.passes, all.batches, all.samples, all.bytes, all.errors), (1, 18, 1797, 1797 * 72, 0));
    assert!(all.elapsed > 0.0 && all.depth > 0);
    let told = |of: unsafe extern "C" fn(_, _, _) -> _| {
        // SAFETY: a loader and places.
        let text = bytes(|out, error| unsafe { of(loader.0, out, error) });
        String::from_utf8(text.unwrap()).unwrap()
    };
    assert!(!told(slotline_loader_verdict).is_empty());
    let json: serde_json::Value = serde_json::from_str(&told(slotline_loader_stats_json)).unwrap();
    assert_eq!((&json["samples"], json["workers"].as_array().unwrap().len()), (&1797.into(), 1));
    let crowded = Loader::new(300);
    // SAFETY: as above.
    let warnings = bytes(|out, error| unsafe { slotline_loader_warnings(crowded.0, out, error) }).unwrap();
    assert!(String::from_utf8(warnings).unwrap().starts_with("num_workers is 300"));
}

#[test]
fn a_struct_of_another_size_is_filled_as_far_as_it_goes_or_refused() {
    let loader = Loader::new(0);
    let mut short = slotline_stats { struct_size: 8, ..Default::default() };
    // SAFETY: a loader and a place.
    let (status, message) = call(|error| unsafe { slotline_loader_stats(loader.0, &mut short, error) }).unwrap_err();
    assert_eq!((status, message.contains("struct_size is 8")), (SLOTLINE_INVALID, true), "{message}");
}

#[test]
fn a_stopped_loader_says_so_for_ever_and_its_state_is_what_it_gave() {
    for workers in 0..3 {
        let loader = Loader::new(workers);
        loader.epoch().unwrap();
        let mut got: Vec<_> = (0..3).map(|_| loader.next().unwrap().unwrap().indices().to_vec()).collect();
        let held = loader.next().unwrap().unwrap();
        got.push(held.indices().to_vec());
        // SAFETY: a loader; any thread may.
        thread::scope(|scope| scope.spawn(|| unsafe { slotline_loader_stop({ &loader }.0) }).join()).unwrap();
        for _ in 0..3 {
            assert_eq!(loader.next().err().unwrap().0, SLOTLINE_STOPPED);
        }
        let saved = state(&loader);
        assert_eq!(loader.epoch().unwrap_err().0, SLOTLINE_STOPPED);
        assert_eq!(loader.next().err().unwrap().0, SLOTLINE_STOPPED);
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

/// A callback that stops the loader which `user` points to, once there is one, and then writes its index.
unsafe extern "C" fn stop_and_read(user: *mut c_void, index: usize, sample: *mut slotline_sample) -> i32 {
    let loader = user.cast::<AtomicPtr<slotline_loader>>();
    let index = index as i64;
    // SAFETY: the test keeps the place, and the loader as long as it is in it.
    unsafe {
        slotline_loader_stop((*loader).load(Ordering::SeqCst));
        slotline_sample_write(sample, 0, (&raw const index).cast(), 1)
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
        };
        let (mut dataset, mut loader) = (null_mut(), null_mut());
        let options = options(|options| (options.batch_size, options.num_workers) = (10, workers));
        // SAFETY: all are there.
        unsafe {
            call(|error| slotline_dataset_from_callbacks(&callbacks, &mut dataset, error)).unwrap();
            call(|error| slotline_loader_new(dataset, &options, &mut loader, error)).unwrap();
            slotline_dataset_free(dataset);
        }
        let loader = Loader(loader);
        loader.epoch().unwrap();
        place.store(loader.0, Ordering::SeqCst);
        // Workers may have made some before there was a loader to be stopped.
        let outcome = std::iter::repeat_n((), 100_000)
            .find_map(|()| loader.next().map(|batch| batch.expect("it is stopped before the end")).err());
        assert_eq!(outcome.unwrap().0, SLOTLINE_STOPPED);
        // Before it is freed.
        place.store(null_mut(), Ordering::SeqCst);
    }
}

#[test]
fn who_waits_for_a_batch_to_be_freed_returns_when_the_loader_is_stopped_or_freed() {
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
            // By then it waits, as a rule.
            thread::sleep(Duration::from_millis(30));
            // SAFETY: a loader that is in use may be stopped, and freed.
            unsafe { if free { slotline_loader_free({ &loader }.0) } else { slotline_loader_stop({ &loader }.0) } };
            assert_eq!(taker.join().unwrap(), SLOTLINE_STOPPED);
        });
        if free {
            std::mem::forget(loader);
        }
    }
}
