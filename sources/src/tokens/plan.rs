//! The tables that say which tokens are in which sample of Megatron's `GPTDataset`.
//!
//! There are three tables, as in `gpt_dataset.py` and in `build_sample_idx` of `helpers.cpp`
//! (megatron-core 0.16.1): the sequences in reading order, for all epochs; the position in this
//! order at which each sample starts; and the shuffled order of samples.

use std::ops::Range;

use super::indexed::Index;
use super::random::RandomState;
use crate::Error;
use crate::files::Span;

/// The samples of one Megatron dataset: a `.bin` file and its `.idx` file.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) index: Index,
    /// The indices of the sequences, epoch after epoch.
    documents: Vec<u32>,
    /// The start of each sample, and the end of the last one: an index into `documents`, and the
    /// index of a token in that sequence.
    starts: Vec<(u32, u32)>,
    /// The index of the sample at each position.
    order: Vec<u32>,
    /// The number of tokens that the end of a sample shares with the start of the next one: 0 or 1.
    extra: u32,
}

/// The options of a plan.
#[derive(Clone, Debug)]
pub(super) struct PlanOptions {
    pub(super) sequence_length: u32,
    pub(super) seed: u32,
    pub(super) samples: Option<u64>,
    pub(super) extra: bool,
}

impl Plan {
    /// Creates the tables for a range of sequences. `name` is used in messages.
    pub(super) fn new(name: &str, index: Index, sequences: Range<u32>, options: &PlanOptions) -> Result<Self, Error> {
        let extra = u32::from(options.extra);
        let per_epoch: u64 = sequences.clone().map(|i| u64::from(index.lengths[i as usize])).sum();
        let length = u64::from(options.sequence_length);
        let overflow = || Error::usage(format!("too many samples of {name}"), "ask for fewer samples or shorter ones");
        if options.sequence_length == 0 || per_epoch < length + u64::from(extra) && options.samples.is_none() {
            let problem = format!("{name} has {per_epoch} tokens, and a sample has {}", length + u64::from(extra));
            return Err(Error::usage(problem, "set another sequence length of at least 1, or ask for more samples"));
        }
        let wanted = options.samples.unwrap_or(0).checked_mul(length).and_then(|n| n.checked_add(extra.into()));
        let epochs = if per_epoch == 0 {
            return Err(Error::usage(format!("{name} has no tokens"), "pass other files"));
        } else {
            wanted.ok_or_else(overflow)?.div_ceil(per_epoch).max(1)
        };
        let samples_of = |epochs: u64| Some(epochs.checked_mul(per_epoch)?.checked_sub(extra.into())? / length);
        let samples = samples_of(epochs).ok_or_else(overflow)?;
        let in_order = u64::from(sequences.end - sequences.start).checked_mul(epochs);
        if samples >= u64::from(u32::MAX) || in_order.is_none_or(|count| count >= u64::from(u32::MAX)) {
            return Err(overflow());
        }
        // The last epoch is shuffled on its own if less than 80 % of it is needed.
        let whole = samples_of(epochs - 1).unwrap_or(0);
        let separate = epochs > 1 && {
            let threshold = (0.80 * samples_of(1).unwrap_or(0) as f64) as u64;
            options.samples.unwrap_or(0).saturating_sub(whole) < threshold
        };

        let mut random = RandomState::new(options.seed);
        let mut documents = reserved(in_order.unwrap_or(0), overflow)?;
        for epochs in if separate { [epochs - 1, 1] } else { [epochs, 0] } {
            let first = documents.len();
            (0..epochs).for_each(|_| documents.extend(sequences.clone()));
            random.shuffle(&mut documents[first..]);
        }
        let starts = starts(&index.lengths, &documents, options.sequence_length, extra, samples, overflow)?;
        let mut order = reserved(samples, overflow)?;
        order.extend(0..samples as u32);
        let (first, last) = order.split_at_mut(if separate { whole } else { samples } as usize);
        random.shuffle(first);
        random.shuffle(last);
        Ok(Self { index, documents, starts, order, extra })
    }

    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    /// Returns the spans of a sample's tokens, in file `file`.
    pub(super) fn spans(&self, sample: usize, file: usize) -> impl Iterator<Item = Span> + '_ {
        let sample = self.order[sample] as usize;
        let ((first, from), (last, to)) = (self.starts[sample], self.starts[sample + 1]);
        (first..=last).map(move |position| {
            let sequence = self.documents[position as usize] as usize;
            let start = if position == first { from } else { 0 };
            let end = if position == last { to + self.extra } else { self.index.lengths[sequence] };
            self.index.span(file, sequence, start.into(), (end - start).into())
        })
    }
}

fn reserved<T>(len: u64, overflow: impl Fn() -> Error) -> Result<Vec<T>, Error> {
    let (mut list, len) = (Vec::new(), usize::try_from(len).map_err(|_| overflow())?);
    list.try_reserve_exact(len).map_err(|_| overflow())?;
    Ok(list)
}

/// Returns where each sample starts. A sample has `length` + `extra` tokens, and the next one
/// starts with its extra token.
fn starts(
    lengths: &[u32],
    documents: &[u32],
    length: u32,
    extra: u32,
    samples: u64,
    overflow: impl Fn() -> Error,
) -> Result<Vec<(u32, u32)>, Error> {
    let mut starts = reserved(samples + 1, overflow)?;
    let (mut position, mut offset) = (0_usize, 0_u32);
    starts.push((0, 0));
    for _ in 0..samples {
        let mut missing = u64::from(length) + u64::from(extra);
        loop {
            let left = u64::from(lengths[documents[position] as usize] - offset);
            if left >= missing {
                offset += missing as u32 - extra;
                break;
            }
            missing -= left;
            (position, offset) = (position + 1, 0);
        }
        starts.push((position as u32, offset));
    }
    Ok(starts)
}
