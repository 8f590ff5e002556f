//! Random numbers, from two generators for two purposes.
//!
//! [`Generator`] determines the *order* of a pass. It is torch's CPU generator bit for bit, so the
//! same seed gives the same order as in torch. It draws from a sequence, so its results depend on
//! the order of draws. Therefore only one thread draws from it, when a pass starts.
//!
//! [`SampleRng`] determines what happens *inside* a sample, such as the position of a random crop.
//! It depends only on seed, epoch and position, so augmentation does not depend on the worker that
//! makes a sample, or on timing.
//!
//! Both implement [`rand_core`]'s traits, so they work with code written for those, such as the
//! distributions of the `rand` crate.

mod generator_state;
mod jump;
mod mt19937;
mod permutation;
mod sample;
mod shared;
mod torch;

pub use permutation::{IndexWord, RandpermError};
pub use rand_core;
pub use sample::SampleRng;
pub use shared::{SharedGenerator, default_generator, manual_seed};
pub use torch::Generator;

pub(crate) use generator_state::GeneratorState;
pub(crate) use permutation::{fill_table, randperm_prefix, reserve_table, skip_randperm};
