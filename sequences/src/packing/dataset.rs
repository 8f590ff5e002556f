//! [`PackedDataset`]: a dataset whose samples are bins of documents.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use slotline::BoxError;
use slotline::dataset::{Context, Dataset, OutOfRange, Upcoming};
use slotline::dtype::Element;
use slotline::sample::{Columns, Fields, PaddedTensor, PaddedToMax, Row, Sample, Schema};
use slotline::tensor::TensorView;
use slotline::with_causes;

use super::document::{BinRow, Document};
use super::{Packing, PackingError, Piece};

/// A dataset whose samples are the bins of a [`Packing`]. All have the same shape: a row of a batch
/// has the documents of one bin, one after another.
///
/// | field of the batch | |
/// |---|---|
/// | `tokens` | `[B, capacity]`, padded at the end of each row; if a document has several sequences, a tuple with one such field for each |
/// | `position_ids` | `i32 [B, capacity]`: 0, 1, 2, … in each document, 0 in the padding |
/// | `document_ids` | `i32 [B, capacity]`: 1, 2, … in each row, 0 in the padding |
/// | `cu_seqlens` | the cumulative lengths in each row: 0, the end of the first document, …, the end of the last one |
///
/// Attention within documents compares `document_ids`: token i may attend to token j ≤ i if both
/// have the same document id. Kernels for sequences of different lengths take
/// [`BinTensors::flat_cu_seqlens`].
///
/// A bin is a sample like any other for `batch_size`, `shuffle`, samplers, ranks, workers and
/// states of the loader. Documents are read while their bin is written, directly into the row. A
/// document is a sample of the wrapped dataset and implements [`Document`]. If only a part of a
/// document is in the bin, as after [`chunks`](super::PackingOptions::chunks), position ids count
/// from the start of the part.
///
/// ```
/// use slotline::Loader;
/// use slotline::dataset::{Context, Dataset};
/// use slotline_sequences::packing::{PackedDataset, PackingOptions};
/// # use slotline::BoxError;
///
/// struct Texts(Vec<Vec<u16>>);
///
/// impl Dataset for Texts {
///     type Sample<'a> = &'a [u16];
///
///     fn len(&self) -> usize {
///         self.0.len()
///     }
///
///     fn get<'a>(&'a self, index: usize, _: &'a mut Context) -> Result<&'a [u16], BoxError> {
///         Ok(&self.0[index])
///     }
/// }
///
/// let texts = Texts(vec![vec![7, 8], vec![1, 2, 3, 4, 5], vec![9], vec![10, 11, 12]]);
/// let packing = PackingOptions::new(6).best_fit(texts.0.iter().map(Vec::len))?;
/// let bins = PackedDataset::new(texts, packing)?;
/// let mut loader = Loader::builder(bins).batch_size(2).build()?;
/// let batch = loader.epoch()?.next().expect("two bins")?;
/// let bins = batch.tensors();
/// assert_eq!(bins.tokens.row(0).as_slice(), [1, 2, 3, 4, 5, 0]);
/// assert_eq!(bins.tokens.row(1).as_slice(), [10, 11, 12, 7, 8, 9]);
/// assert_eq!(bins.position_ids.row(1).as_slice(), [0, 1, 2, 0, 1, 0]);
/// assert_eq!(bins.document_ids.row(1).as_slice(), [1, 1, 1, 2, 2, 3]);
/// assert_eq!(bins.cu_seqlens.row(1), [0, 3, 5, 6]);
/// # Ok::<(), BoxError>(())
/// ```
#[derive(Clone)]
pub struct PackedDataset<D> {
    documents: D,
    packing: Packing,
    padding: Arc<[i64]>,
}

impl<D: Dataset> PackedDataset<D>
where
    for<'a> D::Sample<'a>: Document,
{
    /// Packs the samples of a dataset. `packing` must have been made from the lengths of all
    /// samples of the dataset, in order. Rows are padded with zeros.
    ///
    /// # Errors
    ///
    /// If the number of samples differs from the number of lengths that were packed.
    pub fn new(documents: D, packing: Packing) -> Result<Self, PackingError> {
        let (packed, samples) = (packing.documents(), documents.len());
        if packed != samples {
            return Err(PackingError::Documents { packed, samples });
        }
        Ok(Self { documents, packing, padding: Arc::default() })
    }

    /// Sets the numbers that rows are padded with: one for each sequence of a document, such as
    /// `[0, -100]` for tokens and labels. Sequences without a number are padded with zeros.
    ///
    /// If a number is out of range for the field's type, writing a bin fails.
    #[must_use]
    pub fn padding(mut self, padding: impl IntoIterator<Item = i64>) -> Self {
        self.padding = padding.into_iter().collect();
        self
    }
}

impl<D> PackedDataset<D> {
    /// Returns the dataset of the documents.
    pub fn documents(&self) -> &D {
        &self.documents
    }

    /// Returns the plan of the bins.
    pub fn packing(&self) -> &Packing {
        &self.packing
    }
}

impl<D> fmt::Debug for PackedDataset<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PackedDataset").field("packing", &self.packing).finish_non_exhaustive()
    }
}

impl<D: Dataset> Dataset for PackedDataset<D>
where
    for<'a> D::Sample<'a>: Document,
{
    type Sample<'a> = Bin<'a, D>;

    fn len(&self) -> usize {
        self.packing.len()
    }

    fn get<'a>(&'a self, index: usize, cx: &'a mut Context) -> Result<Bin<'a, D>, BoxError> {
        if index >= self.len() {
            return Err(OutOfRange { dataset: "PackedDataset", index, len: self.len() }.into());
        }
        Ok(Bin { from: self, index, cx })
    }

    fn prefetch(&self, index: usize) {
        for piece in self.packing.pieces(index) {
            self.packing.document(piece).into_iter().for_each(|document| self.documents.prefetch(document));
        }
    }

    fn reads_ahead(&self) -> bool {
        self.documents.reads_ahead()
    }

    /// Announces the documents of the upcoming bins to the wrapped dataset.
    fn begin_pass(&self, upcoming: Upcoming) {
        self.documents.begin_pass(self.packing.upcoming(&upcoming));
    }

    fn fields(&self) -> Option<Fields> {
        let mut fields = Fields::new();
        declare::<D::Sample<'static>>(&self.packing, &mut fields);
        Some(fields)
    }
}

/// A bin: a sample of a [`PackedDataset`], which reads its documents when it is written.
pub struct Bin<'a, D> {
    from: &'a PackedDataset<D>,
    index: usize,
    cx: &'a mut Context,
}

impl<D> fmt::Debug for Bin<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bin").field("index", &self.index).finish_non_exhaustive()
    }
}

/// Declares the fields of bins whose documents are of type `S`.
fn declare<S: Document>(packing: &Packing, fields: &mut Fields) {
    let capacity = packing.capacity();
    fields.named_by("tokens", |fields| S::declare_bin(capacity, fields));
    for name in ["position_ids", "document_ids"] {
        fields.named_by(name, |fields| fields.fixed(i32::DTYPE, &[capacity]));
    }
    fields.named_by("cu_seqlens", |fields| fields.padded_to_max(i32::DTYPE, packing.most_pieces() + 1));
}

impl<D: Dataset> Sample for Bin<'_, D>
where
    for<'a> D::Sample<'a>: Document,
{
    type Schema = Bins<<D::Sample<'static> as Document>::Schema>;

    fn declare(&self, fields: &mut Fields) {
        declare::<D::Sample<'static>>(&self.from.packing, fields);
    }

    fn write(self, row: &mut Row<'_>) -> Result<(), BoxError> {
        let Self { from: PackedDataset { documents, packing, padding }, index, cx } = self;
        let pieces = || packing.bin(index).into_iter().flatten();
        let capacity = packing.capacity();
        let mut bin = BinRow::new(row, capacity, padding);
        let mut at = 0;
        for Piece { document, tokens } in pieces() {
            let wrong = |source| Wrong { document, source };
            let read = documents.get(document, cx).map_err(wrong)?;
            let (length, packed) = (read.tokens().map_err(wrong)?, packing.length(document));
            if length != packed {
                let error =
                    format!("it has {length} tokens, but {packed} were packed; pack the lengths of the samples");
                return Err(wrong(error.into()).into());
            }
            bin.rewind();
            read.write_bin(tokens.clone(), &mut bin, at).map_err(wrong)?;
            at += tokens.len();
        }
        bin.rewind();
        <D::Sample<'static> as Document>::pad_bin(&mut bin, at)?;
        let row = bin.go_to(<D::Sample<'static> as Document>::SEQUENCES);
        let mut rest = row.fill::<i32>(&[capacity])?;
        for piece in pieces() {
            let (own, others) = rest.split_at_mut(piece.tokens.len());
            own.iter_mut().zip(0..).for_each(|(position, number)| *position = number);
            rest = others;
        }
        rest.fill(0);
        let mut rest = row.fill::<i32>(&[capacity])?;
        for (piece, id) in pieces().zip(1..) {
            let (own, others) = rest.split_at_mut(piece.tokens.len());
            own.fill(id);
            rest = others;
        }
        rest.fill(0);
        let Ends(ends) = cx.local();
        ends.clear();
        ends.push(0);
        ends.extend(pieces().scan(0, |end, piece| {
            *end += piece.tokens.len() as i32; // At most 2^28.
            Some(*end)
        }));
        Ok(row.write_padded_to_max(ends)?)
    }
}

/// A buffer for the ends of a bin's documents, reused from bin to bin.
#[derive(Default)]
struct Ends(Vec<i32>);

/// The error of a document that cannot be written into its bin.
#[derive(Debug, thiserror::Error)]
#[error("document {document} of the bin can't be packed: {}", with_causes(&**source))]
struct Wrong {
    document: usize,
    r#source: BoxError,
}

/// The schema of batches of [bins](Bin). `S` is the schema of the tokens: `u16`, or `(u16, i64)`
/// for documents of two sequences.
pub struct Bins<S>(PhantomData<fn() -> S>);

impl<S> fmt::Debug for Bins<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bins")
    }
}

impl<S: Schema> Schema for Bins<S> {
    type Tensors<'b> = BinTensors<'b, S::Tensors<'b>>;

    fn tensors<'b>(columns: &mut Columns<'b>) -> Self::Tensors<'b> {
        BinTensors {
            tokens: S::tensors(columns),
            position_ids: columns.take(),
            document_ids: columns.take(),
            cu_seqlens: <PaddedToMax<'static, i32>>::tensors(columns),
        }
    }
}

/// A batch of [bins](Bin). [`PackedDataset`] describes the fields.
#[derive(Clone, Debug)]
pub struct BinTensors<'b, T> {
    /// The tokens, `[B, capacity]`; a tuple if a document has several sequences.
    pub tokens: T,
    /// The position of each token in its document, or in the document's part that is in the bin.
    pub position_ids: TensorView<'b, i32>,
    /// The number of each token's document in its row, from 1; 0 in the padding.
    pub document_ids: TensorView<'b, i32>,
    /// Where the documents of each row begin, and where the last one ends.
    pub cu_seqlens: PaddedTensor<'b, i32>,
}

impl<T> BinTensors<'_, T> {
    /// Writes the cumulative lengths of all sequences of the batch, for attention kernels that take
    /// the rows as one sequence of `B × capacity` tokens: 0, the end of the first document, …, `B ×
    /// capacity`. The padding of a row counts as one sequence. Returns the length of the longest
    /// sequence, which kernels call `max_seqlen`.
    ///
    /// # Panics
    ///
    /// If the batch has more than 2³¹ - 1 tokens.
    pub fn flat_cu_seqlens(&self, to: &mut Vec<i32>) -> i32 {
        let capacity = self.position_ids.shape().last().copied().unwrap_or(0);
        let end_of =
            |row: usize, at: usize| i32::try_from(row * capacity + at).expect("a batch of less than 2^31 tokens");
        to.clear();
        to.push(0);
        for row in 0..self.cu_seqlens.lengths().len() {
            let ends = self.cu_seqlens.row(row).iter().skip(1).map(|&end| end as usize);
            to.extend(ends.chain([capacity]).map(|end| end_of(row, end)));
        }
        to.dedup();
        to.windows(2).map(|ends| ends[1] - ends[0]).max().unwrap_or(0)
    }
}
