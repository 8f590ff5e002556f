//! The part of NumPy's `RandomState` that Megatron uses.

use slotline::rng::Generator;
use slotline::rng::rand_core::Rng;

/// A reimplementation of `numpy.random.RandomState(seed)`. Its engine, and how it is seeded with
/// one number, are the same as in torch.
#[derive(Debug)]
pub(super) struct RandomState(Generator);

impl RandomState {
    pub(super) fn new(seed: u32) -> Self {
        Self(Generator::from_seed(seed.into()))
    }

    /// Shuffles like `RandomState.shuffle` with an array of at most 2^32 items (NumPy 2.1,
    /// `_shuffle_raw`).
    pub(super) fn shuffle(&mut self, items: &mut [u32]) {
        for last in (1..items.len()).rev() {
            let drawn = self.interval(last as u32);
            items.swap(last, drawn as usize);
        }
    }

    /// Draws a number from 0 to `max`, as `random_interval` does (NumPy 2.1, `distributions.c`).
    fn interval(&mut self, max: u32) -> u32 {
        let mask = u32::MAX.checked_shr(max.leading_zeros()).unwrap_or(0);
        loop {
            let drawn = self.0.next_u32() & mask;
            if drawn <= max {
                return drawn;
            }
        }
    }
}
