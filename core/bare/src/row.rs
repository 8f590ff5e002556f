//! The data that goes through the rings: a payload without a heap that shows whether it is complete.

use core::sync::atomic::{AtomicU32, Ordering};

use heapless::Vec;

/// A few numbers, whose values and count are derived from a single number.
#[derive(Debug, Default)]
pub struct Row(Vec<u32, 5>);

impl Row {
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Writes the row of number `n`, and overwrites what was there.
    pub fn write(&mut self, n: u32) {
        self.0.clear();
        self.0.extend((0..n % 6).map(|i| n.rotate_left(i)));
    }

    /// Panics unless this is the row of number `n`.
    #[track_caller]
    pub fn check(&self, n: u32) {
        assert!(self.0.iter().copied().eq((0..n % 6).map(|i| n.rotate_left(i))), "row {n} is {self:?}");
    }
}

/// A row whose parts are written by different workers.
#[derive(Debug)]
pub struct Parted<const N: usize>(Vec<AtomicU32, N>);

impl<const N: usize> Parted<N> {
    pub const fn new() -> Self {
        Self(Vec::from_array([const { AtomicU32::new(0) }; N]))
    }

    /// Writes one part of the row of number `n`.
    pub fn write(&self, n: u32, part: usize) {
        self.0[part].store(value(n, part), Ordering::Relaxed);
    }

    /// Panics unless these are the parts of the row of number `n`.
    #[track_caller]
    pub fn check(&self, n: u32) {
        for (part, found) in self.0.iter().enumerate() {
            assert_eq!(found.load(Ordering::Relaxed), value(n, part), "part {part} of row {n}");
        }
    }
}

fn value(n: u32, part: usize) -> u32 {
    n.rotate_left(part as u32) ^ 0x5a5a
}
