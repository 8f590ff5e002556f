//! Rows of one length, filled with documents of different lengths, as `PackedDataset` of
//! slotline-sequences makes them. Here the types are known only at run time.

use std::collections::HashMap;

use slotline::BoxError;
use slotline::dataset::{Context, Dataset, OutOfRange, Upcoming};
use slotline::dtype::{DType, element_bytes};
use slotline::sample::{Fields, OwnedSample, Row, Sample};
use slotline_sequences::packing::{Long, Packing, PackingError, PackingOptions};

use crate::abi::{Failure, Versioned, chain, check, versioned};
use crate::data::indexed::{Indexed, declare};
use crate::fields::field::{self, Declared, SLOTLINE_FIXED, SLOTLINE_PADDED_TO_MAX};

/// The rule for packing documents into rows, for `slotline_dataset_pack`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct slotline_packing {
    /// `sizeof(slotline_packing)`.
    pub struct_size: usize,
    /// The number of tokens of a row, 1 to 2^28.
    pub capacity: usize,
    /// The number of tokens of each document of the dataset.
    pub lengths: *const usize,
    /// The number of documents.
    pub num_lengths: usize,
    /// The number that fills the rest of a row, for each field of the documents. Fields without a number
    /// are padded with zeros.
    pub padding: *const i64,
    /// The number of numbers in `padding`.
    pub num_padding: usize,
    /// The seed for shuffling the documents before they are packed, and the rows afterwards, if
    /// `has_seed` is set.
    pub seed: u64,
    /// Whether `seed` is used.
    pub has_seed: u8,
    /// Whether all documents are concatenated and cut into chunks of `capacity` tokens. Otherwise each
    /// document goes whole into the fullest row that has room for it, from the longest to the shortest,
    /// and only documents that are longer than a row are cut.
    pub chunks: u8,
    /// Whether the last chunk of an epoch is left out if it is not full. Has no effect without `chunks`.
    pub drop_last: u8,
    /// Whether a document that is longer than a row is an error, and not cut. Has no effect with
    /// `chunks`.
    pub refuse_long: u8,
    /// Zeros; reserved for later versions.
    pub reserved: [u8; 4],
    /// How many times the documents are packed, one after another; 0 works like 1. With a seed, each
    /// epoch has other rows: epoch `e` is shuffled with `seed + e`. One pass of a loader then goes
    /// through all epochs. Do not shuffle its rows in the loader, which would mix the epochs.
    pub epochs: usize,
}

// SAFETY: it contains only numbers and pointers, and its first field is its size.
unsafe impl Versioned for slotline_packing {
    const END: usize = versioned::end!(epochs);

    fn is_known(&self) -> bool {
        self.reserved == [0; 4]
    }
}

/// Documents that are packed into rows, called bins.
#[derive(Debug)]
pub(crate) struct Packed {
    documents: Indexed,
    packing: Packing,
    /// The element that fills the rest of a bin, for each sequence of a document.
    padding: Vec<Box<[u8]>>,
    fields: Fields,
}

impl Packed {
    /// Packs the samples of a dataset.
    ///
    /// # Safety
    ///
    /// The pointers of `packing` must be valid as documented at its fields.
    pub(crate) unsafe fn new(documents: Indexed, options: &slotline_packing) -> Result<Self, Failure> {
        // SAFETY: the caller guarantees that the pointers are valid.
        let (lengths, numbers) = unsafe {
            let lengths = check::slice(options.lengths, options.num_lengths, "packing->lengths")?;
            (lengths, check::slice(options.padding, options.num_padding, "packing->padding")?)
        };
        let flag = |flag, name| check::flag(flag, &format!("packing->{name}"));
        let (has_seed, chunks) = (flag(options.has_seed, "has_seed")?, flag(options.chunks, "chunks")?);
        let mut plan = PackingOptions::new(options.capacity)
            .drop_last(flag(options.drop_last, "drop_last")?)
            .epochs(options.epochs.max(1));
        if has_seed {
            plan = plan.seed(options.seed);
        }
        if flag(options.refuse_long, "refuse_long")? {
            plan = plan.long(Long::Refuse);
        }
        let lengths = lengths.iter().copied();
        let packing = if chunks { plan.chunks(lengths) } else { plan.best_fit(lengths) };
        let packing = packing.map_err(|error| match error {
            PackingError::Memory { .. } => Failure::of(crate::abi::SLOTLINE_ERROR_BUILD, &error),
            PackingError::TooLong { document, length, capacity } => Failure::invalid(format!(
                "packing: document {document} has {length} tokens, but a row has {capacity}; raise capacity, or set refuse_long to 0"
            )),
            _ => Failure::invalid(chain(&error)),
        })?;
        let (packed, samples) = (packing.documents(), documents.len());
        if packed != samples {
            return Err(Failure::invalid(chain(&PackingError::Documents { packed, samples })));
        }
        let all = documents.fields().unwrap_or_default();
        let (mut padding, mut declared) = (Vec::new(), Vec::new());
        for field in all.as_slice() {
            let Declared { name, dtype, kind, shape, .. } = Declared::from(field);
            if kind == SLOTLINE_FIXED || shape.len() != 1 {
                return Err(Failure::invalid(format!(
                    "field {name:?} is no sequence of tokens; leave it out with slotline_dataset_map"
                )));
            }
            let number = numbers.get(padding.len()).copied().unwrap_or(0);
            let element = element_bytes(dtype, number).ok_or_else(|| {
                Failure::invalid(format!("packing->padding: {number} is no {} of field {name:?}", dtype.name()))
            })?;
            padding.push(element.into());
            declared.push(Declared::new(name, dtype, SLOTLINE_FIXED, [packing.capacity()]));
        }
        if numbers.len() > padding.len() {
            let (numbers, fields) = (numbers.len(), padding.len());
            return Err(Failure::invalid(format!("packing->padding has {numbers} numbers for {fields} fields")));
        }
        for (name, kind, len) in [
            ("position_ids", SLOTLINE_FIXED, packing.capacity()),
            ("document_ids", SLOTLINE_FIXED, packing.capacity()),
            ("cu_seqlens", SLOTLINE_PADDED_TO_MAX, packing.most_pieces() + 1),
        ] {
            declared.push(Declared::new(name, DType::I32, kind, [len]));
        }
        let fields = field::fields(&declared)?;
        OwnedSample::new(fields.clone()).map_err(|error| Failure::invalid(chain(&error)))?;
        Ok(Self { documents, packing, padding, fields })
    }
}

impl Dataset for Packed {
    type Sample<'a> = Bin<'a>;

    fn len(&self) -> usize {
        self.packing.len()
    }

    fn get<'a>(&'a self, index: usize, context: &'a mut Context) -> Result<Bin<'a>, BoxError> {
        if index >= self.len() {
            return Err(OutOfRange { dataset: "the packed dataset", index, len: self.len() }.into());
        }
        Ok(Bin { packed: self, index, context })
    }

    fn prefetch(&self, index: usize) {
        let pieces = self.packing.bin(index).into_iter().flatten();
        pieces.for_each(|piece| self.documents.prefetch(piece.document));
    }

    fn reads_ahead(&self) -> bool {
        self.documents.reads_ahead()
    }

    /// Announces the documents of the upcoming bins.
    fn begin_pass(&self, upcoming: Upcoming) {
        self.documents.begin_pass(self.packing.upcoming(&upcoming));
    }

    fn fields(&self) -> Option<Fields> {
        Some(self.fields.clone())
    }
}

/// A bin, whose documents are read when it is written.
#[derive(Debug)]
pub(crate) struct Bin<'a> {
    packed: &'a Packed,
    index: usize,
    context: &'a mut Context,
}

/// A thread's memory for documents: one for each packed dataset.
#[derive(Default)]
struct Documents(HashMap<usize, OwnedSample>);

impl Sample for Bin<'_> {
    type Schema = ();

    fn declare(&self, fields: &mut Fields) {
        declare(fields, self.packed.fields());
    }

    fn write(self, row: &mut Row<'_>) -> Result<(), BoxError> {
        let Self { packed, index, context } = self;
        let key = std::ptr::from_ref(packed).addr();
        let mut document = match context.local::<Documents>().0.remove(&key) {
            Some(document) => document,
            None => OwnedSample::new(packed.documents.fields().unwrap_or_default())?,
        };
        let read = |number, row: &mut Row<'_>| packed.documents.get(number, context)?.write(row);
        let written = packed.packing.write_untyped(index, &packed.padding, row, &mut document, read);
        context.local::<Documents>().0.insert(key, document);
        Ok(row.write_padded_to_max(&written?)?)
    }
}
