//! Tests of the process's default generator. There is only one test function, because the generator
//! is global to the process.

mod support;

use std::ptr::null_mut;

use slotline_ffi::*;
use support::{Loader, call, options};

/// Returns the order of a pass of a loader that has a seed, with a sampler that has none.
fn order() -> Vec<Vec<i64>> {
    let mut sampler = null_mut();
    // SAFETY: the out pointer is valid, and the sampler is freed once.
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
fn an_unseeded_sampler_draws_from_the_default_generator() {
    slotline_manual_seed(42);
    let first = order();
    assert_ne!(order(), first, "the process's generator has advanced");
    slotline_manual_seed(42);
    assert_eq!(order(), first);
}
