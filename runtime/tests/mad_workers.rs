//! Worker processes that write over the memory that they share with the loader.
//!
//! There is one test here, since another loader of the same process would be written over, too.
#![cfg(all(target_os = "linux", not(any(shuttle, delays))))]

#[path = "support/mappings.rs"]
mod mappings;
mod support;

use std::time::{Duration, Instant};

use slotline::Loader;
use slotline::rng::SampleRng;
use slotline::rng::rand_core::Rng;
use slotline::sample::{Packed, Sample, Text};

use crate::mappings::shared_mappings;
use crate::support::{LONG, from_fn};

/// Writes at random over the shared memory, mostly over its first pages, which have the control words.
fn scribble(rng: &mut SampleRng) {
    let mappings = shared_mappings();
    for _ in 0..1 + rng.next_u32() % 200 {
        let (start, len) = mappings[rng.next_u32() as usize % mappings.len()];
        let within = if rng.next_u32().is_multiple_of(4) { len } else { len.min(4096 * 3) };
        let at = start + rng.next_u32() as usize % (within / 8) * 8;
        let word = match rng.next_u32() % 5 {
            0 => rng.next_u64(),
            1 => u64::MAX,
            2 => u64::from(rng.next_u32() % 16),
            3 => 0,
            // SAFETY: the word is in a mapping that can be read.
            _ => (unsafe { (at as *const u64).read_volatile() }) ^ (1 << (rng.next_u32() % 64)),
        };
        // SAFETY: the word is in a mapping that can be written. What this does to the loader is the test.
        unsafe { (at as *mut u64).write_volatile(word) };
    }
}

/// Runs loaders over samples that a mad worker makes, with this seed, until one says that it cannot go on.
fn run<S: Sample + 'static>(seed: u64, sample: fn(usize) -> S, in_order: bool) {
    let parent = std::process::id();
    let dataset = from_fn(200, move |index, _| {
        let mut rng = SampleRng::new(seed, 0, index as u64);
        if std::process::id() != parent && rng.next_u32().is_multiple_of(12) {
            scribble(&mut rng);
            if rng.next_u32().is_multiple_of(8) {
                // SAFETY: sends a signal to this process.
                unsafe { libc::raise(libc::SIGKILL) };
            }
        }
        Ok(sample(index))
    });
    let builder = Loader::builder(dataset).batch_size(7).num_workers(2).in_order(in_order);
    let timeout = if seed.is_multiple_of(3) { Duration::from_millis(200) } else { Duration::ZERO };
    let builder = builder.timeout(timeout).memory_limit(64 << 20);
    let mut loader = builder.processes().restart_workers(100).build().unwrap();
    let begun = Instant::now();
    for _ in 0..3 {
        let Ok(pass) = loader.epoch() else { break };
        for batch in pass.take(300) {
            assert!(begun.elapsed() < LONG);
            // Whatever it contains can be read.
            let Ok(batch) = batch else { continue };
            let text = format!("{:?} {:?}", batch.indices(), batch);
            assert!(!text.is_empty());
            for i in 0..batch.columns().len() {
                let _ = batch.columns().get(i).map(|tensor| format!("{tensor:?}"));
            }
        }
        let _ = (loader.stats(), loader.is_ready());
    }
    drop(loader);
    assert!(begun.elapsed() < LONG);
}

#[test]
fn a_mad_worker_does_not_crash_the_loader() {
    const NUMBERS: [i64; 5] = [3, 1, 4, 1, 5];
    let seeds: u64 = std::env::var("SLOTLINE_MAD").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(12);
    for seed in 0..seeds {
        run(seed, |index| (index as i64, [index as u8; 40]), seed.is_multiple_of(2));
        let packed =
            |index: usize| (Packed::new(&NUMBERS[..index % 5], 5), index.is_multiple_of(2), Text::new("ab", 9));
        run(seed, packed, true);
    }
}
