//! Tests of states, statistics, and stopping loaders.

use std::thread;

use crate::support::{Loader, bytes, call, options};
use slotline_ffi::*;

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
        let saved = loader.state().unwrap();
        // The other loader is in the middle of a pass, which is abandoned.
        let other = Loader::new(1);
        other.epoch().unwrap();
        drop(other.next());
        other.load(&saved).unwrap();
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
    let saved = loader.state().unwrap();
    let other = Loader::with(options(|options| options.batch_size = 7));
    for (bad, what) in [
        (&b""[..], "not the state"),
        (&saved[..saved.len() / 2], "not the state"),
        (b"\xff\xfe", "not the state"),
        (&other.state().unwrap()[..], "batch_size"),
    ] {
        let (status, message) = loader.load(bad).unwrap_err();
        assert_eq!((status, message.contains(what)), (SLOTLINE_ERROR_STATE, true), "{message}");
    }
    // SAFETY: a null pointer with a length is rejected before it is read.
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
        let saved = loader.state().unwrap();
        assert_eq!(loader.epoch().unwrap_err().0, SLOTLINE_ERROR_STOPPED);
        assert_eq!(loader.next().err().unwrap().0, SLOTLINE_ERROR_STOPPED);
        assert_eq!(stats(&loader).batches, 4);
        drop(loader);
        assert_eq!(held.indices(), got[3]);
        let (other, whole) = (Loader::new(1), Loader::new(0));
        other.load(&saved).unwrap();
        other.epoch().unwrap();
        got.extend(other.rest());
        whole.epoch().unwrap();
        assert_eq!(got, whole.rest());
    }
}
