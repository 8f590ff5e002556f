//! Random numbers, from two generators with two jobs.
//!
//! [`Generator`] decides the *order* of a pass. It is torch's CPU generator bit for bit, so the same seed gives
//! the same order as torch. It is a sequence: who draws first gets the first number, which is why only one thread
//! draws from it, once per pass.
//!
//! [`SampleRng`] decides what happens *inside* a sample, such as where a random crop starts. It is a pure function
//! of (seed, epoch, position), so that augmentation never depends on which worker made a sample, or when.
//!
//! Both implement [`rand_core`]'s traits and so work with everything that is written for those, the `rand` crate's
//! distributions among it.

mod mt19937;
mod permutation;
mod place;
mod sample;
mod shared;
mod torch;

pub use permutation::{IndexWord, RandpermError};
pub use rand_core;
pub use sample::SampleRng;
pub use shared::{SharedGenerator, default_generator, manual_seed};
pub use torch::Generator;

pub(crate) use permutation::{fill_table, randperm_prefix, reserve_table, skip_randperm};
pub(crate) use place::Place;
