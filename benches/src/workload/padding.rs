//! `padding`: 50,000 sequences of different lengths in batches of 64 of similar lengths, padded to the longest, with masks.

use anyhow::{Result, ensure};
use slotline::Loader;
use slotline::loader::BatchOf;
use slotline_sequences::sampler::LengthGroupedSampler;

use super::sequences::{self, Sequences};
use super::{Setup, WORKERS};
use crate::peer::external;
use crate::peer::ours::{self, Crew};
use crate::record::Unit;
use crate::rounds::{Contender, Heat, Recorder};

/// The number of sequences.
const SEQUENCES: usize = 50_000;
/// The number of sequences in a batch.
const BATCH: usize = 64;
/// The tokens of the longest sequences.
const LONGEST: usize = 2_048;

fn contender(lengths: &[usize], workers: usize, crew: Crew) -> Result<impl Contender + use<>> {
    let sequences = Sequences::new(lengths);
    let (total, all) = (sequences.total(), sequences.clone());
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
    ours::contender(crew.build(builder)?, (SEQUENCES as f64 / BATCH as f64, total), check, verify)
}

/// Runs the heats of this workload.
pub fn run(setup: &Setup, recorder: &mut Recorder) -> Result<()> {
    let lengths = sequences::lengths(SEQUENCES, 200.0, 0.8, LONGEST);
    sequences::write(&setup.data.join("padding.u32"), &lengths)?;
    let total: usize = lengths.iter().sum();
    for workers in WORKERS {
        let mut entries = vec![ours::entry(contender(&lengths, workers, Crew::Default))];
        entries.extend(ours::variants(workers, |crew| contender(&lengths, workers, crew)));
        let expected = move |_| (SEQUENCES as f64 / BATCH as f64, Some(total as u64));
        entries.extend(external::entries(setup, "padding", workers, expected));
        recorder.heat(Heat { case: String::new(), workers, unit: Unit::MicrosPerBatch, entries });
    }
    Ok(())
}
