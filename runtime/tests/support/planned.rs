//! A sampler that decides where each batch ends, so that batches have different sizes.

use std::ops::Range;
use std::sync::Arc;

use slotline::BoxError;
use slotline::rng::{Generator, SharedGenerator};
use slotline::sampler::{Order, SampledBatches, Sampler, SamplerError, Saved, Spans, put_generator};

/// The maximum number of samples in a batch.
const MAX: usize = 6;
/// The maximum number of tokens in a batch.
const TOKENS: u32 = 40;

/// A sampler that visits all samples in random order, and puts as many of them into a batch as have
/// at most 40 tokens together.
pub(crate) struct Planned {
    lengths: Arc<[u32]>,
    generator: SharedGenerator,
    spans: Spans,
}

impl Planned {
    pub(crate) fn batches(lengths: impl IntoIterator<Item = u32>, seed: u64) -> SampledBatches {
        let (lengths, generator) = (lengths.into_iter().collect(), Generator::from_seed(seed).into());
        SampledBatches::planned(Self { lengths, generator, spans: Spans::default() }, MAX)
    }
}

impl Sampler for Planned {
    fn len(&self) -> usize {
        self.lengths.len()
    }

    fn memory(&self) -> usize {
        2 * size_of_val(&*self.lengths)
    }

    fn order(&mut self, _: &mut Generator, order: &mut Order) -> Result<(), SamplerError> {
        let (table, mut ends, mut tokens) = (order.u32_table(), Vec::new(), 0);
        self.generator.lock().randperm_into(self.lengths.len(), table).map_err(BoxError::from)?;
        for (at, &index) in (0..).zip(&*table) {
            let (start, length) = (ends.last().copied().unwrap_or(0), self.lengths[index as usize]);
            tokens += length;
            if at > start && (tokens > TOKENS || at - start == MAX as u32) {
                ends.push(at);
                tokens = length;
            }
        }
        ends.extend((!table.is_empty()).then_some(table.len() as u32));
        self.spans = Spans::new(ends);
        Ok(())
    }

    fn spans(&self) -> Option<Spans> {
        Some(self.spans.clone())
    }

    fn lengths(&self) -> Option<Arc<[u32]>> {
        Some(self.lengths.clone())
    }

    fn name(&self) -> &str {
        "Planned"
    }

    fn save(&self, to: &mut String) -> bool {
        put_generator(to, Some(&self.generator));
        true
    }

    fn restore(&mut self, saved: &str, _: Range<usize>) -> Result<(), BoxError> {
        Saved { sampler: "Planned", text: saved }.restore_generator(Some(&self.generator))
    }
}
