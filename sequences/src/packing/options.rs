//! Options of packing, and its errors.

use std::collections::TryReserveError;

use slotline::rng::Generator;
use slotline::with_causes;

use super::Packing;
use super::plan::plan;

/// The largest capacity of a bin, in tokens.
pub(super) const MAX_CAPACITY: usize = 1 << 28;

/// Options for packing documents into bins by [`best_fit`](Self::best_fit) or
/// [`chunks`](Self::chunks).
///
/// ```
/// use slotline_sequences::packing::PackingOptions;
///
/// let lengths = [3, 7, 5, 2, 1, 8]; // tokens of each document
/// let packing = PackingOptions::new(10).best_fit(lengths)?;
/// let bins: Vec<Vec<usize>> = packing.bins().map(|bin| bin.map(|piece| piece.document).collect()).collect();
/// assert_eq!(bins, [vec![5, 3], vec![1, 0], vec![2, 4]]); // 8 + 2, 7 + 3, and 5 + 1 tokens
/// # Ok::<(), slotline_sequences::packing::PackingError>(())
/// ```
#[derive(Clone, Debug)]
pub struct PackingOptions {
    pub(super) capacity: usize,
    long: Long,
    pub(super) drop_last: bool,
    seed: Option<u64>,
    epochs: usize,
}

/// What [`PackingOptions::best_fit`] does with a document that is longer than a bin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Long {
    /// Cut the document into pieces of the bin's capacity and a rest, which is packed like a
    /// document. No token is lost.
    #[default]
    Split,
    /// Return [`PackingError::TooLong`], which names the document.
    Refuse,
}

/// The reason why documents can't be packed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PackingError {
    /// The capacity is 0 or too large.
    #[error("packing: capacity is {capacity}; set it to the number of tokens of a row, from 1 to 2^28")]
    Capacity {
        /// The capacity that was requested, in tokens.
        capacity: usize,
    },
    /// `epochs` is 0.
    #[error("packing: epochs is 0; set it to the number of passes over the documents, at least 1")]
    NoEpochs,
    /// A document has more tokens than a bin.
    #[error(
        "packing: document {document} has {length} tokens, but capacity is {capacity}; raise it, leave the document out, or \
         cut it with `long(Long::Split)`"
    )]
    TooLong {
        /// The document, counted from 0.
        document: usize,
        /// The number of tokens of the document.
        length: usize,
        /// The capacity of a bin, in tokens.
        capacity: usize,
    },
    /// There are more documents, pieces or tokens of one document than a plan can have.
    #[error("packing: {what} are too many; a plan can have 2^32 - 1; pack the documents in parts")]
    TooMany {
        /// What there are too many of.
        what: String,
    },
    /// The dataset's number of documents differs from the number that were packed.
    #[error(
        "packing: {packed} documents were packed, but the dataset has {samples}; pass the lengths of all its samples"
    )]
    Documents {
        /// The number of lengths that were packed.
        packed: usize,
        /// The number of samples of the dataset.
        samples: usize,
    },
    /// The memory for the plan could not be allocated.
    #[error(
        "packing: cannot allocate {bytes} bytes for the plan; free memory, or pack fewer documents or epochs: {}",
        with_causes(source)
    )]
    Memory {
        /// The size of the plan in bytes, or of the part of it whose size is known.
        bytes: usize,
        /// The allocator's error.
        r#source: TryReserveError,
    },
}

impl PackingOptions {
    /// Creates options for bins of `capacity` tokens, 1 to 2²⁸.
    pub fn new(capacity: usize) -> Self {
        Self { capacity, long: Long::Split, drop_last: false, seed: None, epochs: 1 }
    }

    /// Sets what happens with documents that are longer than the capacity; [`Long::Split`] by
    /// default. This has no effect on [`chunks`](Self::chunks), which cuts documents anyway.
    #[must_use]
    pub fn long(mut self, long: Long) -> Self {
        self.long = long;
        self
    }

    /// Sets whether [`chunks`](Self::chunks) leaves out the last chunk of an epoch if it is not
    /// full; false by default.
    #[must_use]
    pub fn drop_last(mut self, drop_last: bool) -> Self {
        self.drop_last = drop_last;
        self
    }

    /// Sets a seed, with which the documents are shuffled before they are packed, and the bins
    /// afterwards; by default neither is shuffled.
    ///
    /// For epoch e of the plan, the permutations of the documents and of the bins are drawn from
    /// torch's generator with the seed `seed` + e, wrapping.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Sets how many times the documents are packed, one after another; 1 by default. With a
    /// [`seed`](Self::seed), each epoch has other bins.
    ///
    /// One pass of the loader then goes through all epochs of the plan. Do not shuffle its bins in
    /// the loader, which would mix the epochs.
    #[must_use]
    pub fn epochs(mut self, epochs: usize) -> Self {
        self.epochs = epochs;
        self
    }

    /// Packs documents of these lengths by best-fit decreasing: each document, from the longest to
    /// the shortest, goes into the fullest bin that has room for it. In a bin, longer documents
    /// come first.
    ///
    /// Only documents that are longer than a bin are cut, if [`long`](Self::long) allows it. Empty
    /// documents are in no bin. This takes O(n log n) steps, as in "Fewer Truncations Improve
    /// Language Modeling" (arXiv 2404.10830), and a fraction of a second for a million documents.
    ///
    /// # Errors
    ///
    /// If an option is out of range, a document is too long, or the plan would be too large.
    pub fn best_fit(&self, lengths: impl IntoIterator<Item = usize>) -> Result<Packing, PackingError> {
        plan(self, lengths, true)
    }

    /// Concatenates documents of these lengths and cuts them into chunks of the capacity. A
    /// document may continue in the next bin, and only the last bin of an epoch may not be full.
    ///
    /// # Errors
    ///
    /// If an option is out of range, or the plan would be too large.
    pub fn chunks(&self, lengths: impl IntoIterator<Item = usize>) -> Result<Packing, PackingError> {
        plan(self, lengths, false)
    }

    /// Checks the options that do not depend on the lengths, and returns the capacity.
    pub(super) fn check(&self) -> Result<usize, PackingError> {
        if self.capacity == 0 || self.capacity > MAX_CAPACITY {
            return Err(PackingError::Capacity { capacity: self.capacity });
        }
        if self.epochs == 0 { Err(PackingError::NoEpochs) } else { Ok(self.epochs) }
    }

    pub(super) fn check_length(&self, document: usize, length: usize) -> Result<u32, PackingError> {
        if self.long == Long::Refuse && length > self.capacity {
            return Err(PackingError::TooLong { document, length, capacity: self.capacity });
        }
        let too_many = |_| PackingError::TooMany { what: format!("{length} tokens of document {document}") };
        u32::try_from(length).map_err(too_many)
    }

    /// Returns the generator of an epoch, if documents are shuffled.
    pub(super) fn generator(&self, epoch: usize) -> Option<Generator> {
        self.seed.map(|seed| Generator::from_seed(seed.wrapping_add(epoch as u64)))
    }
}
