//! Megatron's `GPTDataset`.

use std::ops::Range;
use std::path::{Path, PathBuf};

use super::blend::{Blend, normalized, samples_of_part};
use super::indexed::Index;
use super::layout::{Labels, Layout};
use super::plan::{Plan, PlanOptions};
use crate::files::{Files, Span};
use crate::open::opened;
use crate::{Error, Format, Input, Record, RecordFields, Records};

/// The samples of Megatron's `GPTDataset`, in its order. Documents are shuffled, concatenated and
/// cut into samples, and the samples are shuffled.
///
/// With the same files, sequence length, seed and number of samples, the samples are those of
/// megatron-core 0.16.1. Read them without shuffling, as they are already shuffled. As in Megatron,
/// there may be more samples than requested.
///
/// A sample is `tokens: [sequence_length + 1]`, or with [labels](GptOptions::labels) `tokens` and
/// `labels`, each `[sequence_length]`. The tokenizer's padding token, which Megatron replaces by 0,
/// is not replaced. Megatron's `loss_mask` and `position_ids` do not depend on the files, and are
/// left out.
#[derive(Debug)]
pub struct Gpt {
    files: Files,
    plan: Plan,
    layout: Layout,
}

/// Options for the samples of Megatron's `GPTDataset`.
#[derive(Clone, Debug)]
pub struct GptOptions {
    plan: PlanOptions,
    sequences: Option<Range<usize>>,
    widen: bool,
    maps: bool,
    labels: bool,
}

impl GptOptions {
    /// Creates options for samples of `sequence_length` tokens plus one, with one epoch and the
    /// seed 1234 (the default of Megatron-LM).
    pub fn new(sequence_length: u32) -> Self {
        let plan = PlanOptions { sequence_length, seed: 1234, samples: None, extra: true };
        Self { plan, sequences: None, widen: false, maps: false, labels: false }
    }

    /// Sets Megatron's `random_seed`.
    pub fn seed(mut self, seed: u32) -> Self {
        self.plan.seed = seed;
        self
    }

    /// Sets Megatron's `num_samples`. The number of epochs is the smallest that has this many
    /// samples.
    pub fn samples(mut self, samples: u64) -> Self {
        self.plan.samples = Some(samples);
        self
    }

    /// Sets Megatron's `indexed_indices`: the range of sequences to read, such as those of a split;
    /// all by default.
    pub fn sequences(mut self, sequences: Range<usize>) -> Self {
        self.sequences = Some(sequences);
        self
    }

    /// Sets Megatron's `add_extra_token_to_sequence`, true by default. If true, a sample has one
    /// token more than `sequence_length`, so that each of the `sequence_length` tokens has a label.
    /// If false, the label of the last token is 0, which Megatron's loss mask excludes.
    pub fn extra_token(mut self, extra: bool) -> Self {
        self.plan.extra = extra;
        self
    }

    /// Sets whether tokens are converted to `i64`, as in Megatron.
    pub fn widen(mut self, widen: bool) -> Self {
        self.widen = widen;
        self
    }

    /// Sets whether a sample has two fields of `sequence_length` tokens: `tokens`, and `labels`,
    /// which are the tokens shifted by one.
    pub fn labels(mut self, labels: bool) -> Self {
        self.labels = labels;
        self
    }

    /// Maps the tokens of a local file into memory. It is an error if the file can't be mapped.
    ///
    /// # Safety
    ///
    /// As with [`Files::map`], the file must not be written to or shortened while the dataset
    /// lives.
    pub unsafe fn mapped(mut self) -> Self {
        self.maps = true;
        self
    }

    /// Opens `<prefix>.bin` and `<prefix>.idx`.
    ///
    /// # Errors
    ///
    /// If a file can't be read, the index does not belong to these tokens, there are too few tokens
    /// or too many samples, or [`sequences`](Self::sequences) are not in the file.
    pub fn open(&self, prefix: impl AsRef<Path>) -> Result<Records<Gpt>, Error> {
        let (plan, bin) = self.plan(prefix.as_ref(), self.plan.samples)?;
        let (files, layout) = (opened([bin], self.maps)?, self.layout(&plan)?);
        Ok(Records::new(Gpt { files, plan, layout }))
    }

    /// Blends datasets by weight, like Megatron's `BlendedDataset` with a `size`. Each dataset has
    /// the number of samples that Megatron's builder requests (with its surplus of 0.5 %).
    /// [`samples`](Self::samples) is ignored.
    ///
    /// # Errors
    ///
    /// The errors of [`open`](Self::open). Also fails if a weight is not positive, a dataset has
    /// too few samples, or the tokens have different types.
    pub fn blend(
        &self,
        parts: impl IntoIterator<Item = (impl AsRef<Path>, f64)>,
        samples: u64,
    ) -> Result<Records<Blend>, Error> {
        let (prefixes, weights): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
        let weights = normalized(&weights)?;
        let mut opened = Vec::new();
        for (prefix, &weight) in prefixes.iter().zip(&weights) {
            opened.push(self.plan(prefix.as_ref(), Some(samples_of_part(weight, samples)))?);
        }
        self.blended(opened, |plans| Blend::weighted(plans, &weights, samples))
    }

    /// Blends all samples of datasets, in proportion to their numbers of samples, like Megatron's
    /// `BlendedDataset` without a `size`.
    ///
    /// # Errors
    ///
    /// The errors of [`open`](Self::open). Also fails if there are no datasets, or the tokens have
    /// different types.
    pub fn blend_all(&self, prefixes: impl IntoIterator<Item = impl AsRef<Path>>) -> Result<Records<Blend>, Error> {
        let mut opened = Vec::new();
        for prefix in prefixes {
            opened.push(self.plan(prefix.as_ref(), self.plan.samples)?);
        }
        self.blended(opened, Blend::exhaustive)
    }

    fn blended(
        &self,
        opened: Vec<(Plan, PathBuf)>,
        order: impl FnOnce(&[Plan]) -> Result<Vec<(u16, u32)>, Error>,
    ) -> Result<Records<Blend>, Error> {
        let (plans, bins): (Vec<_>, Vec<_>) = opened.into_iter().unzip();
        let order = order(&plans)?;
        let dtype = plans[0].index.dtype();
        if let Some(other) = plans.iter().map(|plan| plan.index.dtype()).find(|&other| other != dtype) {
            let problem = format!("datasets of {dtype} and {other} tokens");
            return Err(Error::usage(problem, "blend datasets of one tokenizer"));
        }
        let layout = self.layout(&plans[0])?;
        Ok(Records::new(Blend { files: Files::open(bins)?, plans, order, layout }))
    }

    fn plan(&self, prefix: &Path, samples: Option<u64>) -> Result<(Plan, PathBuf), Error> {
        let (index, bin) = Index::open(prefix)?;
        let name = prefix.display().to_string();
        let sequences = self.sequences.clone().unwrap_or(0..index.len());
        let (Ok(start), Ok(end)) = (u32::try_from(sequences.start), u32::try_from(sequences.end)) else {
            return Err(Error::usage(format!("too many sequences in {name}"), "set `sequences` to a part of them"));
        };
        if sequences.end > index.len() || sequences.start > sequences.end {
            let problem = format!("sequences {sequences:?} of {name}, which has {}", index.len());
            return Err(Error::usage(problem, "set `sequences` to a part of them"));
        }
        let options = PlanOptions { samples, ..self.plan.clone() };
        Ok((Plan::new(&name, index, start..end, &options)?, bin))
    }

    fn layout(&self, plan: &Plan) -> Result<Layout, Error> {
        let labels = match (self.labels, self.plan.extra) {
            (false, _) => Labels::No,
            (true, true) => Labels::Extra,
            (true, false) => Labels::Padded,
        };
        let len = self.plan.sequence_length as usize + usize::from(self.plan.extra);
        Layout::new(plan.index.dtype(), self.widen, len, labels)
    }
}

impl Format for Gpt {
    fn len(&self) -> usize {
        self.plan.len()
    }

    fn fields(&self) -> &RecordFields {
        &self.layout.fields
    }

    fn files(&self) -> &Files {
        &self.files
    }

    fn spans(&self, index: usize, each: &mut dyn FnMut(Span)) {
        self.plan.spans(index, 0).for_each(each);
    }

    fn read<'a>(&'a self, index: usize, input: Input<'a>) -> Result<Record<'a>, Error> {
        self.layout.read(input, self.plan.spans(index, 0))
    }
}
