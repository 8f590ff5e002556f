//! Datasets for measurements, with batches of any size and passes of any length that take little
//! memory.

use slotline::BoxError;
use slotline::dataset::{Context, Dataset};
use slotline::dtype::DType;
use slotline::sample::{Fields, Row, Sample};

/// Rows that cost nothing to produce: a worker writes only the sample's number, and leaves the
/// other bytes as they are. So mostly the transfer to the device is measured.
#[derive(Debug)]
pub(crate) struct Stamps {
    pub(crate) len: usize,
    pub(crate) row_bytes: usize,
}

/// A row of [`Stamps`].
#[derive(Debug)]
pub(crate) struct Stamp {
    index: usize,
    bytes: usize,
}

impl Dataset for Stamps {
    type Sample<'a> = Stamp;

    fn len(&self) -> usize {
        self.len
    }

    fn get<'a>(&'a self, index: usize, _: &'a mut Context) -> Result<Stamp, BoxError> {
        Ok(Stamp { index, bytes: self.row_bytes })
    }
}

impl Sample for Stamp {
    type Schema = u8;

    fn declare(&self, fields: &mut Fields) {
        fields.fixed(DType::U8, &[self.bytes]);
    }

    fn write(self, row: &mut Row<'_>) -> Result<(), BoxError> {
        let bytes = row.fill::<u8>(&[self.bytes])?;
        bytes[..8].copy_from_slice(&self.index.to_le_bytes());
        Ok(())
    }
}

/// Rows of bytes in memory, gathered into batches with their numbers, like images that need no
/// decoding. There are fewer rows in memory than samples in the dataset, so that a pass can be as
/// long as a measurement needs.
#[derive(Debug)]
pub(crate) struct Rows {
    len: usize,
    row_bytes: usize,
    source: Vec<u8>,
}

impl Rows {
    /// Creates a dataset of `len` samples that share `in_memory` rows.
    pub(crate) fn new(len: usize, row_bytes: usize, in_memory: usize) -> Self {
        Self { len, row_bytes, source: vec![7; in_memory * row_bytes] }
    }
}

impl Dataset for Rows {
    type Sample<'a> = (&'a [u8], i64);

    fn len(&self) -> usize {
        self.len
    }

    fn get<'a>(&'a self, index: usize, _: &'a mut Context) -> Result<Self::Sample<'a>, BoxError> {
        let at = index * self.row_bytes % self.source.len();
        Ok((&self.source[at..][..self.row_bytes], index as i64))
    }
}
