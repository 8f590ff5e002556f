//! The sections `packing` and `padding`, with sequences of log-normal lengths.
//!
//! `packing` makes the plan of packing a million documents into rows of 8,192 tokens by best fit.
//! `padding` loads 50,000 sequences in batches of 64 of similar lengths, padded to the longest,
//! with masks.

use std::f64::consts::TAU;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow, ensure};
use seqpacker::{PackStrategy, Packer};
use slotline::dataset::{Context, Dataset, prefetch};
use slotline::loader::BatchOf;
use slotline::sample::{Mask, PaddedToLongest};
use slotline::{BoxError, Loader};
use slotline_sequences::packing::PackingOptions;
use slotline_sequences::sampler::LengthGroupedSampler;

use super::Setup;
use crate::machine::version_of;
use crate::peer::external;
use crate::peer::ours::{self, WorkerKind};
use crate::record::{Kind, Unit};
use crate::rounds::{Contender, Entry, Pass, Recorder};

/// The number of documents of `packing`, and the number of tokens of a row.
const DOCUMENTS: usize = 1_000_000;
const CAPACITY: usize = 8_192;
/// The number of sequences of `padding`, and the number of sequences in a batch.
const SEQUENCES: usize = 50_000;
const BATCH: usize = 64;

/// Creates a contender from a function that packs and returns the number of bins, which must be at
/// most `most`.
fn packs(most: usize, mut pack: impl FnMut() -> Result<(usize, Pass)> + 'static) -> Result<Contender> {
    Ok(Box::new(move || {
        let (bins, pass) = pack()?;
        ensure!(bins <= most, "{bins} bins instead of {most}");
        Ok(pass)
    }))
}

/// Measures packing documents.
pub fn packing(setup: &Setup, to: &mut Recorder) -> Result<()> {
    let lengths = lengths(DOCUMENTS, 400.0, 1.0, CAPACITY);
    write(&setup.data.join("packing.u32"), &lengths)?;
    let options = PackingOptions::new(CAPACITY);
    let bins = options.best_fit(lengths.iter().copied())?.len();
    let own = lengths.clone();
    let pack = move || {
        let start = Instant::now();
        let packing = options.best_fit(own.iter().copied())?;
        Ok((packing.len(), Pass::since(start, 1.0)))
    };
    let mut entries = vec![ours::entry(packs(bins, pack))];
    for (name, strategy, most) in [
        ("seqpacker", PackStrategy::OptimizedBestFitDecreasing, bins),
        ("seqpacker, not optimised", PackStrategy::BestFitDecreasing, bins),
        // The parallel packer splits the documents among its threads, so it may need more bins.
        ("seqpacker, parallel", PackStrategy::ParallelOptimizedBestFitDecreasing, bins + bins / 100),
    ] {
        let (packer, lengths) = (Packer::new(CAPACITY).with_strategy(strategy), lengths.clone());
        let pack = move || {
            let start = Instant::now();
            let packed = packer.pack_lengths(&lengths).map_err(|error| anyhow!("{error}"))?;
            Ok((packed.packs.len(), Pass::since(start, 1.0)))
        };
        let entry = Entry::new(name, Kind::Peer, packs(most, pack));
        entries.push(Entry { version: version_of("seqpacker"), ..entry });
    }
    let expected = move |_| (1.0, Some(bins as u64));
    entries.extend(external::entries(&setup.programs, &setup.data, "packing", 0, expected));
    to.compare("", 0, Unit::MillisPerPass, entries);
    Ok(())
}

fn padded(lengths: &[usize], workers: usize, kind: WorkerKind) -> Result<Contender> {
    let sequences = Sequences::new(lengths);
    let (total, all) = (sequences.tokens.len() as u64, sequences.clone());
    let sampler = LengthGroupedSampler::new(lengths.iter().copied(), BATCH)?;
    let builder = Loader::builder(sequences).batch_size(BATCH).sampler(sampler).seed(42).num_workers(workers);
    let verify = move |batch: &BatchOf<Sequences>| {
        let (tokens, mask) = batch.tensors();
        let longest = tokens.lengths().iter().max().map_or(0, |&longest| longest as usize);
        ensure!(tokens.padded().shape() == [batch.len(), longest], "the batch is not as wide as its longest row");
        for (row, &index) in batch.indices().iter().enumerate() {
            let (want, got) = (all.sequence(index as usize), tokens.padded().row(row));
            let (own, padding) = got.as_slice().split_at(want.len());
            ensure!(own == want && padding.iter().all(|&token| token == 0), "row {row} has other tokens");
            let mask = mask.padded().row(row);
            let (own, padding) = mask.as_slice().split_at(want.len());
            ensure!(own.iter().all(|&one| one == 1) && padding.iter().all(|&one| one == 0), "a wrong mask");
        }
        Ok(())
    };
    let check = |batch: &BatchOf<Sequences>| batch.tensors().0.lengths().iter().sum::<i64>() as u64;
    ours::contender_of(kind.build(builder)?, (SEQUENCES as f64 / BATCH as f64, total), check, verify)
}

/// Measures padding sequences.
pub fn padding(setup: &Setup, to: &mut Recorder) -> Result<()> {
    let lengths = lengths(SEQUENCES, 200.0, 0.8, 2_048);
    write(&setup.data.join("padding.u32"), &lengths)?;
    let total: usize = lengths.iter().sum();
    for workers in [0, 1, 2] {
        let mut entries = vec![ours::entry(padded(&lengths, workers, WorkerKind::Default))];
        if workers > 0 {
            let kinds = [WorkerKind::Alone, WorkerKind::Processes];
            entries.extend(kinds.map(|kind| ours::variant(kind.name(), padded(&lengths, workers, kind))));
        }
        let expected = move |_| (SEQUENCES as f64 / BATCH as f64, Some(total as u64));
        entries.extend(external::entries(&setup.programs, &setup.data, "padding", workers, expected));
        to.compare("", workers, Unit::MicrosPerBatch, entries);
    }
    Ok(())
}

/// Returns random lengths with a log-normal distribution of this median, from 1 to `most`.
fn lengths(count: usize, median: f64, sigma: f64, most: usize) -> Vec<usize> {
    let mut random = fastrand::Rng::with_seed(42);
    let mut draw = || {
        // Draws normal numbers by the method of Box and Muller.
        let (radius, angle) = ((-2.0 * (1.0 - random.f64()).ln()).sqrt(), TAU * random.f64());
        (median.ln() + sigma * radius * angle.cos()).exp().round().clamp(1.0, most as f64) as usize
    };
    (0..count).map(|_| draw()).collect()
}

/// Writes lengths to a file, for the programs.
fn write(path: &Path, lengths: &[usize]) -> Result<()> {
    let bytes: Vec<u8> = lengths.iter().flat_map(|&length| (length as u32).to_ne_bytes()).collect();
    std::fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

/// Sequences of tokens in memory, one after another. Sequence `i` is i, i + 1, i + 2, …
#[derive(Clone, Debug)]
struct Sequences {
    tokens: Vec<i64>,
    starts: Vec<usize>,
    longest: usize,
}

impl Sequences {
    /// Makes sequences of these lengths.
    fn new(lengths: &[usize]) -> Self {
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
    fn sequence(&self, index: usize) -> &[i64] {
        &self.tokens[self.starts[index]..self.starts[index + 1]]
    }
}

impl Dataset for Sequences {
    type Sample<'a> = (PaddedToLongest<'a, i64>, Mask<i64>);

    fn len(&self) -> usize {
        self.starts.len() - 1
    }

    #[inline]
    fn get<'a>(&'a self, index: usize, _: &'a mut Context) -> Result<Self::Sample<'a>, BoxError> {
        let tokens = PaddedToLongest::new(self.sequence(index), self.longest);
        Ok((tokens.clone(), tokens.mask(1)))
    }

    fn prefetch(&self, index: usize) {
        prefetch(self.sequence(index));
    }
}
