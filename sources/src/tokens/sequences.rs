//! [`Sequences`]: Megatron's files with one sequence per sample.

use std::path::Path;

use slotline::dtype::DType;

use super::indexed::Index;
use super::layout::{tokens, widened};
use crate::files::{Files, Span};
use crate::open::opened;
use crate::record::CapacityHint;
use crate::{Error, FieldKind, Format, Input, Record, RecordFields, Records, Value};

/// A dataset of the sequences of Megatron's `IndexedDataset`. A sample has the list `tokens`, and
/// `mode: i8` if the file has modes.
///
/// The results were compared with those of megatron-core 0.16.1.
#[derive(Debug)]
pub struct Sequences {
    files: Files,
    index: Index,
    dtype: DType,
    fields: RecordFields,
}

/// Options for reading sequences.
#[derive(Clone, Debug, Default)]
pub struct SequenceOptions {
    widen: bool,
    /// Whether the file is mapped. Only unsafe functions set it.
    pub(crate) maps: bool,
}

impl SequenceOptions {
    /// Creates the default options, with which tokens keep their type.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets whether tokens are converted to `i64`.
    pub fn widen(mut self, widen: bool) -> Self {
        self.widen = widen;
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
    /// If a file can't be read, or the index does not belong to these tokens.
    pub fn open(&self, prefix: impl AsRef<Path>) -> Result<Records<Sequences>, Error> {
        let (index, bin) = Index::open(prefix.as_ref())?;
        let files = opened([bin], self.maps)?;
        let dtype = widened(index.dtype, self.widen)?;
        let room = CapacityHint::of(index.lengths.iter().map(|&length| length.into()));
        let mut fields = vec![("tokens", FieldKind::List(dtype, room))];
        if !index.modes.is_empty() {
            fields.push(("mode", FieldKind::Number(DType::I8)));
        }
        Ok(Records::new(Sequences { files, index, dtype, fields: RecordFields::new(fields) }))
    }
}

impl Sequences {
    /// Opens `<prefix>.bin` and `<prefix>.idx` with the default options.
    ///
    /// # Errors
    ///
    /// If a file can't be read, or the index does not belong to these tokens.
    pub fn open(prefix: impl AsRef<Path>) -> Result<Records<Self>, Error> {
        SequenceOptions::new().open(prefix)
    }

    /// Returns the index, which also has the documents that the sequences belong to.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// Returns the type of the samples' tokens.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the number of tokens of each sequence.
    pub fn lengths(&self) -> impl ExactSizeIterator<Item = usize> + '_ {
        self.index.lengths.iter().map(|&length| length as usize)
    }

    fn span(&self, index: usize) -> Span {
        self.index.span(0, index, 0, self.index.lengths[index].into())
    }
}

impl Format for Sequences {
    fn len(&self) -> usize {
        self.index.len()
    }

    fn fields(&self) -> &RecordFields {
        &self.fields
    }

    fn files(&self) -> &Files {
        &self.files
    }

    fn spans(&self, index: usize, each: &mut dyn FnMut(Span)) {
        each(self.span(index));
    }

    fn read<'a>(&'a self, index: usize, input: Input<'a>) -> Result<Record<'a>, Error> {
        let tokens = Value::from(tokens(input, [self.span(index)], self.index.dtype, self.dtype)?);
        let mode = self.index.modes.get(index).map(|&mode| Value::number(mode));
        Ok(Record::new(&self.fields, [tokens].into_iter().chain(mode)))
    }
}
