//! Sizes from options and data for which there is no memory are errors that say a size: none of them ends the process.

#![cfg(target_os = "linux")]

#[path = "../../runtime/tests/support/sizes.rs"]
mod sizes;

use slotline::rng::Generator;
use slotline::sampler::{Order, Sampler};
use slotline_sequences::packing::PackingOptions;
use slotline_sequences::sampler::{MixtureSampler, SequenceError, ShardShuffleSampler, Stop};

use crate::sizes::{each, text};

#[test]
fn no_size_of_a_sampler_ends_the_process() {
    fn draw<S: Sampler>(sampler: Result<S, SequenceError>) -> Result<(), String> {
        text(sampler.and_then(|mut sampler| Ok(sampler.order(&mut Generator::new(), &mut Order::default())?)))
    }
    each("ShardShuffleSampler", |size| draw(ShardShuffleSampler::new([size, 3], 2)));
    each("MixtureSampler", |size| draw(MixtureSampler::new([size, 3], [0.5, 0.5])));
    each("MixtureSampler", |size| draw(MixtureSampler::by_size([size, 3])));
    each("Stop", |size| draw(MixtureSampler::new([size, 3], [1e-12, 0.5]).and_then(|it| it.stop(Stop::AllExhausted))));
}

#[test]
fn no_size_of_a_packing_ends_the_process() {
    each("capacity", |size| text(PackingOptions::new(size).best_fit([1, 2, 3])));
    each("best_fit", |size| text(PackingOptions::new(1).best_fit([size])));
    each("chunks", |size| text(PackingOptions::new(3).chunks([size])));
}
