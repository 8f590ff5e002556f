//! [`Documents`]: sequences as samples whose token type is known at compile time, for packing.

use std::marker::PhantomData;

use slotline::BoxError;
use slotline::dataset::{Context, Dataset, Upcoming};
use slotline::dtype::Element;

use super::Sequences;
use crate::{Error, Records};

/// The sequences of Megatron's files as samples of type `Vec<T>`, for
/// `PackedDataset` of `slotline-sequences` and other code that needs the type of the tokens.
///
/// ```
/// use slotline::Loader;
/// use slotline_sequences::packing::{PackedDataset, PackingOptions};
/// use slotline_sources::tokens::{Documents, SequenceOptions};
///
/// # let prefix = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/tokens/uint16");
/// let documents = Documents::<i64>::new(SequenceOptions::new().widen(true).open(prefix)?)?;
/// let packing = PackingOptions::new(2048).best_fit(documents.lengths())?;
/// let bins = PackedDataset::new(documents, packing)?;
/// let mut loader = Loader::builder(bins).batch_size(8).shuffle(true).build()?;
/// let batch = loader.epoch()?.next().expect("a batch")?;
/// assert_eq!(batch.tensors().tokens.shape()[1], 2048);
/// # Ok::<(), slotline::BoxError>(())
/// ```
#[derive(Debug)]
pub struct Documents<T> {
    sequences: Records<Sequences>,
    element: PhantomData<fn() -> T>,
}

impl<T: Element> Documents<T> {
    /// Creates a dataset of these sequences, whose tokens must be of type `T`.
    ///
    /// # Errors
    ///
    /// If the tokens have another type.
    pub fn new(sequences: Records<Sequences>) -> Result<Self, Error> {
        let dtype = sequences.format().dtype();
        if dtype != T::DTYPE {
            let problem = format!("documents of {}, but the tokens are {dtype}", T::DTYPE);
            return Err(Error::usage(problem, "name the tokens' type, or `widen` them to i64"));
        }
        Ok(Self { sequences, element: PhantomData })
    }

    /// Returns the number of tokens of each document.
    pub fn lengths(&self) -> impl ExactSizeIterator<Item = usize> + '_ {
        self.sequences.format().lengths()
    }

    /// Returns the sequences.
    pub fn sequences(&self) -> &Records<Sequences> {
        &self.sequences
    }
}

impl<T: Element> Dataset for Documents<T> {
    type Sample<'a> = Vec<T>;

    fn len(&self) -> usize {
        self.sequences.len()
    }

    fn get<'a>(&'a self, index: usize, cx: &'a mut Context) -> Result<Vec<T>, BoxError> {
        let record = self.sequences.get(index, cx)?;
        Ok(record.elements("tokens").ok_or("the sequences have no such tokens")?)
    }

    fn prefetch(&self, index: usize) {
        self.sequences.prefetch(index);
    }

    fn reads_ahead(&self) -> bool {
        self.sequences.reads_ahead()
    }

    fn begin_pass(&self, upcoming: Upcoming) {
        self.sequences.begin_pass(upcoming);
    }
}
