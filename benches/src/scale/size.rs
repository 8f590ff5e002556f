//! How the cost depends on the dataset's size, from 10³ to 10⁹ samples that are computed, not
//! stored.

use std::hint::black_box;
use std::time::Instant;

use anyhow::Result;
use slotline::Loader;
use slotline::dataset::from_fn;
use slotline::rng::Generator;
use slotline::sampler::{CipherSampler, Sampler, SequentialSampler};

use crate::peer::ours;
use crate::record::{Kind, Time, Unit};
use crate::rounds::{Contender, Entry, Pass, Recorder};
use crate::workload::Setup;

/// The batch size. It is small, so that 10³ samples are many batches.
const BATCH: usize = 8;
/// The maximum number of batches of a pass that are measured, since passes of 10⁹ samples would
/// take too long.
const BATCHES: usize = 20_000;

/// Runs the comparisons of this section.
pub fn run(_: &Setup, to: &mut Recorder) -> Result<()> {
    for case in ["sequential", "cipher"] {
        for workers in [0, 2] {
            let mut entries = Vec::new();
            for size in (3..=9).map(|digits| 10_usize.pow(digits)) {
                let (contender, memory) = contender(case, size, workers)?;
                let size = Some(size as u64);
                entries.push(Entry { size, ..ours::entry(Ok(contender)) });
                let time = Time::new(case, "slotline", Kind::Ours, Unit::Bytes, vec![memory as f64]);
                to.time(Time { workers: Some(workers), size, ..time });
            }
            to.compare(case, workers, Unit::MicrosPerBatch, entries);
        }
    }
    Ok(())
}

/// Returns a contender whose loader over `size` samples has run one pass, and the loader's
/// `memory_ceiling` in bytes.
fn contender(case: &str, size: usize, workers: usize) -> Result<(Contender, usize)> {
    let sampler: Box<dyn Sampler> = match case {
        "sequential" => Box::new(SequentialSampler::new(size)),
        _ => Box::new(CipherSampler::new(size).generator(Generator::from_seed(42))),
    };
    let dataset = from_fn(size, |index, _| Ok(index as i64));
    let mut loader = Loader::builder(dataset).batch_size(BATCH).sampler(sampler).num_workers(workers).build()?;
    let memory = loader.memory_ceiling();
    let mut pass = move || {
        let pass = loader.epoch()?;
        // The start of the pass is not included: it takes the same time for any size, but would be
        // divided by few or by many batches.
        let (start, mut batches) = (Instant::now(), 0.0);
        for batch in pass.take(BATCHES) {
            black_box(batch?.tensors().as_slice());
            batches += 1.0;
        }
        Ok(Pass::since(start, batches))
    };
    pass()?;
    Ok((Box::new(pass), memory))
}
