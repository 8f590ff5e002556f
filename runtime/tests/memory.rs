//! Tests that a loader takes the memory that it states. They are a separate program, because they
//! measure its memory.
#![cfg(target_os = "linux")]

#[path = "support/locks.rs"]
mod locks;
mod support;

use std::time::{Duration, Instant};

use locks::{is_done, limit_locks, run_children, status};
use slotline::Loader;
use slotline::array::{AnyArray, Array};
use slotline::dataset::from_fn;
use slotline::loader::Warning;

/// The memory allowed in addition to the stated ceiling, in bytes: the used part of a few stacks,
/// code that runs for the first time, and memory that the allocator keeps.
const ON_TOP: usize = 6 << 20;

#[test]
fn a_loader_takes_its_ceiling_at_once_and_no_more_later() {
    for (workers, timeout) in [(0, Duration::ZERO), (2, Duration::ZERO), (2, support::LONG)] {
        let dataset = from_fn(1_000, |index, _| Ok([index as f32; 25_000]));
        let before = status("VmRSS");
        let builder = support::prefetch(Loader::builder(dataset).batch_size(80).shuffle(true), workers, 3);
        let mut loader = builder.timeout(timeout).build().unwrap();
        let ceiling = loader.memory_ceiling();
        assert!(ceiling >= loader.depth() * 80 * 100_000);
        let is_touched = || status("VmRSS") - before + ON_TOP >= ceiling;
        // With workers and without a timeout, the workers touch the rest of the memory during the
        // pass, which makes the system allocate it.
        assert!(workers > 0 && timeout.is_zero() || is_touched(), "not all memory was touched before the first batch");
        let begun = Instant::now();
        while !is_touched() {
            assert!(begun.elapsed() < support::LONG, "not all of {ceiling} bytes was touched");
            std::thread::yield_now();
        }
        for _ in 0..3 {
            let rows: usize = loader.epoch().unwrap().map(|batch| batch.unwrap().len()).sum();
            assert_eq!(rows, 1_000);
            let grown = status("VmRSS").saturating_sub(before);
            assert!(grown <= ceiling + ON_TOP, "{grown} with a ceiling of {ceiling}");
        }
        drop(loader);
        let left = status("VmRSS").saturating_sub(before);
        assert!(left <= ON_TOP, "{left} bytes are left");
    }
}

#[test]
#[ignore = "another test runs it in separate processes"]
fn child() {
    let Some(limit) = limit_locks() else { return };
    let dataset = || from_fn(100, |index, _| Ok([index as f32; 1_000]));
    let mut loader = Loader::builder(dataset()).batch_size(10).pin_memory(true).build().unwrap();
    if limit < 80_000 {
        let [warning] = loader.warnings() else { panic!("{:?}", loader.warnings()) };
        assert!(matches!(warning, Warning::NotLocked { bytes, limit: Some(l), .. } if *bytes > 80_000 && *l == limit));
        let text = warning.to_string();
        assert!(text.contains(&format!("RLIMIT_MEMLOCK is {limit} bytes")) && text.contains("ulimit -l"), "{text}");
        assert_eq!(status("VmLck"), 0);
    } else {
        assert_eq!(loader.warnings(), []);
        assert!(status("VmLck") >= 80_000);
    }
    assert_eq!(loader.epoch().unwrap().filter(Result::is_ok).count(), 10);
    drop(loader);
    assert_eq!(status("VmLck"), 0);
    drop(Loader::builder(dataset()).build().unwrap());
    pin_arrays(limit);
    println!("{}", is_done(limit));
}

/// Pins two arrays of two pages each. The limit may allow only one of them.
fn pin_arrays(limit: u64) {
    let arrays: [AnyArray; 2] = [
        Array::new(vec![1.0_f64; 1_000], &[1_000]).unwrap().into(),
        Array::new(vec![2_i64; 1_000], &[1_000]).unwrap().into(),
    ];
    let locked = status("VmLck");
    let pinned: Vec<_> = arrays.iter().map(AnyArray::pin_memory).collect();
    let fit = [8_192, 16_384].map(|most| limit >= most);
    for ((array, pinned), fits) in arrays.iter().zip(&pinned).zip(fit) {
        match pinned {
            Ok(pinned) => assert!(fits && pinned.is_pinned() && pinned == array),
            Err(error) => {
                let text = error.to_string();
                assert!(!fits && text.starts_with("8192 bytes"), "{text}");
                assert!(text.contains(&format!("RLIMIT_MEMLOCK is {limit} bytes")), "{text}");
            }
        }
    }
    assert_eq!(status("VmLck") - locked, 8_192 * fit.into_iter().filter(|fits| *fits).count());
    drop(pinned);
    assert_eq!(status("VmLck"), locked);
}

#[test]
fn memory_that_cannot_be_locked_gives_a_warning() {
    run_children([0, 8_192, 4 << 20]);
}
