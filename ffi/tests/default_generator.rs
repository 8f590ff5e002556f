//! What is drawn from the process's default generator; by one test, since it is the process's.

mod support;

use std::ptr::null_mut;

use slotline_ffi::sampler::*;
use support::{Loader, call, options};

/// The order of a pass of a loader with a seed, whose sampler has none.
fn order() -> Vec<Vec<i64>> {
    let mut sampler = null_mut();
    // SAFETY: a place, and a sampler that is freed once.
    let loader = unsafe {
        call(|error| slotline_sampler_random(0, 0, &mut sampler, error)).unwrap();
        let loader = Loader::with(options(|options| {
            (options.batch_size, options.sampler) = (100, sampler);
            (options.has_seed, options.seed) = (1, 7);
        }));
        slotline_sampler_free(sampler);
        loader
    };
    loader.epoch().unwrap();
    loader.rest()
}

#[test]
fn a_sampler_without_a_seed_draws_from_the_processs_generator_and_not_from_the_loaders() {
    slotline_manual_seed(42);
    let first = order();
    assert_ne!(order(), first, "the process's generator went on");
    slotline_manual_seed(42);
    assert_eq!(order(), first);
}
