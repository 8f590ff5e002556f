//! Choices that are drawn from a fuzzer's bytes.

use arbitrary::Unstructured;

/// The remaining bytes of an input. When they are used up, every choice returns its first option.
#[derive(Debug)]
pub(crate) struct Choices<'a>(Unstructured<'a>);

impl<'a> Choices<'a> {
    pub(crate) fn new(data: &'a [u8]) -> Self {
        Self(Unstructured::new(data))
    }

    /// Returns whether the input is used up.
    pub(crate) fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns a number below `n`.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0.int_in_range(0..=n - 1).unwrap_or(0)
    }

    /// Returns a number in `least..=most`.
    pub(crate) fn within(&mut self, least: usize, most: usize) -> usize {
        self.0.int_in_range(least..=most).unwrap_or(least)
    }

    /// Returns true in one of `n` cases, and false when the input is used up.
    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == n - 1
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.0.arbitrary().unwrap_or(0)
    }

    pub(crate) fn word(&mut self) -> u64 {
        self.0.arbitrary().unwrap_or(0)
    }

    /// Returns one of `choices`.
    pub(crate) fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// Returns the next `len` bytes, or the rest of the input if it is shorter.
    pub(crate) fn bytes(&mut self, len: usize) -> &'a [u8] {
        self.0.bytes(len.min(self.0.len())).unwrap_or(&[])
    }
}
