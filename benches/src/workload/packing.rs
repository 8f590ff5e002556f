//! `packing`: packing a million documents best-fit into rows of 8,192 tokens: the plan alone.

use std::time::Instant;

use anyhow::{Result, anyhow, ensure};
use seqpacker::{PackStrategy, Packer};
use slotline_sequences::packing::PackingOptions;

use super::{Setup, sequences};
use crate::peer::{external, ours};
use crate::record::{Kind, Unit};
use crate::rounds::{Contender, Entry, Heat, Pass, Recorder};

/// The number of documents.
const DOCUMENTS: usize = 1_000_000;
/// The tokens of a row.
const CAPACITY: usize = 8_192;

/// Returns the lengths of the documents.
pub fn lengths() -> Vec<usize> {
    sequences::lengths(DOCUMENTS, 400.0, 1.0, CAPACITY)
}

/// Makes a contender of a function that packs, and returns the number of bins.
fn packs<T>(bins: usize, mut pack: impl FnMut() -> Result<T>, count: impl Fn(&T) -> usize) -> Result<impl Contender> {
    Ok(move || {
        let start = Instant::now();
        let packed = pack()?;
        let seconds = start.elapsed().as_secs_f64();
        ensure!(count(&packed) <= bins, "{} bins, and best-fit decreasing needs {bins}", count(&packed));
        Ok(Pass { batches: 1.0, seconds })
    })
}

/// Runs the heat of this workload.
pub fn run(setup: &Setup, recorder: &mut Recorder) -> Result<()> {
    let lengths = lengths();
    sequences::write(&setup.data.join("packing.u32"), &lengths)?;
    let options = PackingOptions::new(CAPACITY);
    let bins = options.best_fit(lengths.iter().copied())?.len();
    let own = lengths.clone();
    let mut entries =
        vec![ours::entry(packs(bins, move || Ok(options.best_fit(own.iter().copied())?), |packing| packing.len()))];
    for (name, strategy, most) in [
        ("seqpacker", PackStrategy::OptimizedBestFitDecreasing, bins),
        ("seqpacker, not optimised", PackStrategy::BestFitDecreasing, bins),
        // Its threads pack parts of the documents, so that there may be more bins.
        ("seqpacker, parallel", PackStrategy::ParallelOptimizedBestFitDecreasing, bins + bins / 100),
    ] {
        let (packer, lengths) = (Packer::new(CAPACITY).with_strategy(strategy), lengths.clone());
        let pack = move || packer.pack_lengths(&lengths).map_err(|error| anyhow!("{error}"));
        let version = crate::machine::version_of("seqpacker");
        entries.push(Entry { version, ..Entry::new(name, Kind::Peer, packs(most, pack, |packed| packed.packs.len())) });
    }
    entries.extend(external::entries(setup, "packing", 0, move |_| (1.0, Some(bins as u64))));
    recorder.heat(Heat { case: String::new(), workers: 0, unit: Unit::MillisPerPass, entries });
    Ok(())
}
