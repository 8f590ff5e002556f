//! Random choices, all of which depend on one seed.

use std::thread;
use std::time::Duration;

/// A generator of random choices (splitmix64).
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// Returns a number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.word() % end as u64) as usize
    }

    /// Returns a number from `first` to `last`, inclusive.
    pub(crate) fn from(&mut self, first: usize, last: usize) -> usize {
        first + self.below(last - first + 1)
    }

    /// Returns true once in `times` calls on average.
    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// Returns an independent generator for another thread.
    pub(crate) fn fork(&mut self) -> Self {
        Self(self.word())
    }

    /// Sleeps, yields or spins for a short time, or does nothing.
    pub(crate) fn pause(&mut self) {
        match self.below(8) {
            0 => thread::sleep(Duration::from_micros(self.below(300) as u64)),
            1 => thread::yield_now(),
            2 => (0..self.below(2000)).for_each(|_| std::hint::spin_loop()),
            _ => {}
        }
    }
}
