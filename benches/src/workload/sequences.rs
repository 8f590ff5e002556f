//! Sequences of log-normal lengths.

use std::f64::consts::TAU;
use std::path::Path;

use anyhow::{Context as _, Result};
use slotline::BoxError;
use slotline::dataset::{Context, Dataset, prefetch};
use slotline::sample::{Mask, Padded};

/// Returns lengths of a log-normal distribution with this median, from 1 to `most`.
pub fn lengths(count: usize, median: f64, sigma: f64, most: usize) -> Vec<usize> {
    let mut random = fastrand::Rng::with_seed(42);
    let mut draw = || {
        // Box and Muller's normal numbers.
        let (radius, angle) = ((-2.0 * (1.0 - random.f64()).ln()).sqrt(), TAU * random.f64());
        (median.ln() + sigma * radius * angle.cos()).exp().round().clamp(1.0, most as f64) as usize
    };
    (0..count).map(|_| draw()).collect()
}

/// Writes lengths to a file, for the programs.
pub fn write(path: &Path, lengths: &[usize]) -> Result<()> {
    let bytes: Vec<u8> = lengths.iter().flat_map(|&length| (length as u32).to_ne_bytes()).collect();
    std::fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

/// Sequences of tokens in memory, one after another. Sequence `i` is i, i + 1, i + 2, …
#[derive(Clone, Debug)]
pub struct Sequences {
    tokens: Vec<i64>,
    starts: Vec<usize>,
    longest: usize,
}

impl Sequences {
    /// Makes sequences of these lengths.
    pub fn new(lengths: &[usize]) -> Self {
        let mut starts = vec![0];
        let mut tokens = Vec::new();
        for (i, &length) in (0..).zip(lengths) {
            tokens.extend(i..i + length as i64);
            starts.push(tokens.len());
        }
        Self { tokens, starts, longest: lengths.iter().copied().max().unwrap_or(0) }
    }

    /// Returns a sequence.
    #[inline]
    pub fn sequence(&self, index: usize) -> &[i64] {
        &self.tokens[self.starts[index]..self.starts[index + 1]]
    }

    /// Returns the number of tokens.
    pub fn total(&self) -> u64 {
        self.tokens.len() as u64
    }
}

impl Dataset for Sequences {
    type Sample<'a> = (Padded<'a, i64>, Mask<i64>);

    fn len(&self) -> usize {
        self.starts.len() - 1
    }

    #[inline]
    fn get<'a>(&'a self, index: usize, _: &'a mut Context) -> Result<Self::Sample<'a>, BoxError> {
        let tokens = Padded::new(self.sequence(index), self.longest);
        Ok((tokens.clone(), tokens.mask(1)))
    }

    fn prefetch(&self, index: usize) {
        prefetch(self.sequence(index));
    }
}
