//! Decoding one page of a column, or all pages of a row group's column where the file has no page index.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::{Buf, Bytes};
use parquet::basic::Type as Physical;
use parquet::column::page::PageReader;
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type as data;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::page_index::offset_index::PageLocation;
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::serialized_reader::SerializedPageReader;
use slotline::dtype::DType;

use super::schema::{Holds, Leaf};

/// Some rows of a column.
#[derive(Debug, Default)]
pub(super) struct Page {
    bytes: Vec<u8>,
    /// Where the bytes of each row end, unless all have the same number.
    ends: Option<Vec<u64>>,
    /// Which rows have no value, if any.
    missing: Vec<u64>,
    /// Which rows are lists that lack an element.
    holes: Vec<u64>,
}

/// The value of a row.
pub(super) enum Found<'a> {
    Bytes(&'a [u8]),
    /// There is none: zeros of this size, or nothing.
    Missing(&'a [u8]),
    Hole,
}

impl Page {
    /// Returns the value of a row, which exists.
    pub(super) fn row(&self, row: usize, size: usize) -> Found<'_> {
        let range = match &self.ends {
            Some(ends) => {
                let start = row.checked_sub(1).map_or(0, |before| ends[before]);
                start as usize..ends[row] as usize
            }
            None => row * size..(row + 1) * size,
        };
        let has = |rows: &[u64]| !rows.is_empty() && rows.binary_search(&(row as u64)).is_ok();
        match &self.bytes[range] {
            _ if has(&self.holes) => Found::Hole,
            bytes if has(&self.missing) => Found::Missing(bytes),
            bytes => Found::Bytes(bytes),
        }
    }

    /// Returns the memory that it takes.
    pub(super) fn size(&self) -> u64 {
        let words = self.ends.as_ref().map_or(0, Vec::len) + self.missing.len() + self.holes.len();
        (self.bytes.len() + 8 * words + 128) as u64
    }
}

/// Parts of a file, where the rest is not needed.
pub(super) struct Parts {
    pub(super) len: u64,
    pub(super) parts: Vec<(u64, Bytes)>,
}

impl Length for Parts {
    fn len(&self) -> u64 {
        self.len
    }
}

impl ChunkReader for Parts {
    type T = bytes::buf::Reader<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        Ok(self.from(start)?.reader())
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        let part = self.from(start)?;
        if part.len() < length {
            return Err(ParquetError::EOF(format!("{length} bytes from byte {start} on are not of the column")));
        }
        Ok(part.slice(..length))
    }
}

impl Parts {
    fn from(&self, start: u64) -> Result<Bytes> {
        let in_part = |(first, bytes): &&(u64, Bytes)| start >= *first && start - *first < bytes.len() as u64;
        let found = self.parts.iter().find(in_part);
        let found = found.ok_or_else(|| ParquetError::EOF(format!("byte {start} is not of the column")))?;
        Ok(found.1.slice((start - found.0) as usize..))
    }
}

/// What is decoded.
pub(super) struct Chunk<'a> {
    pub(super) leaf: &'a Leaf,
    pub(super) metadata: &'a ColumnChunkMetaData,
    /// The rows of the row group, and those to decode.
    pub(super) total: usize,
    pub(super) rows: Range<usize>,
    /// The pages of the column in this row group, if they are known.
    pub(super) pages: Option<Vec<PageLocation>>,
    /// How many bytes the result may take.
    pub(super) limit: u64,
}

impl Chunk<'_> {
    /// Decodes the rows.
    pub(super) fn decode(self, parts: Parts) -> std::result::Result<Page, String> {
        // A damaged page must not end the program, whatever the decoder makes of it.
        let decoded = catch_unwind(AssertUnwindSafe(|| self.decode_typed(parts)));
        match decoded {
            Ok(page) => page.map_err(|error| error.to_string()),
            Err(_) => Err("a page that the decoder can't read".to_owned()),
        }
    }

    fn decode_typed(self, parts: Parts) -> Result<Page> {
        let descr = self.metadata.column_descr_ptr();
        let pages = SerializedPageReader::new(Arc::new(parts), self.metadata, self.total, self.pages.clone())?;
        let pages: Box<dyn PageReader> = Box::new(pages);
        // Narrow integers are stored with 32 bits.
        macro_rules! number {
            ($of:ty, $as:ty) => {
                self.read(ColumnReaderImpl::<$of>::new(descr, pages), |value, into| {
                    into.extend_from_slice(&(*value as $as).to_ne_bytes());
                })
            };
        }
        match (descr.physical_type(), self.leaf.holds) {
            (Physical::BOOLEAN, _) => self
                .read(ColumnReaderImpl::<data::BoolType>::new(descr, pages), |value, into| into.push(u8::from(*value))),
            (Physical::INT32, Holds::Number(DType::I8 | DType::U8)) => number!(data::Int32Type, u8),
            (Physical::INT32, Holds::Number(DType::I16 | DType::U16)) => number!(data::Int32Type, u16),
            (Physical::INT32, _) => number!(data::Int32Type, i32),
            (Physical::INT64, _) => number!(data::Int64Type, i64),
            (Physical::FLOAT, _) => number!(data::FloatType, f32),
            (Physical::DOUBLE, _) => number!(data::DoubleType, f64),
            (Physical::BYTE_ARRAY, _) => {
                self.read(ColumnReaderImpl::<data::ByteArrayType>::new(descr, pages), |value, into| {
                    into.extend_from_slice(value.data());
                })
            }
            (Physical::FIXED_LEN_BYTE_ARRAY, _) => {
                self.read(ColumnReaderImpl::<data::FixedLenByteArrayType>::new(descr, pages), |value, into| {
                    into.extend_from_slice(value.data());
                })
            }
            (Physical::INT96, _) => Err(ParquetError::NYI("timestamps of 96 bits".to_owned())),
        }
    }

    /// Reads values, which `add` appends.
    fn read<T: data::DataType>(
        &self,
        mut reader: ColumnReaderImpl<T>,
        add: impl Fn(&T::T, &mut Vec<u8>),
    ) -> Result<Page> {
        let cut =
            |found: usize| ParquetError::EOF(format!("{found} rows, and the file's metadata says {}", self.rows.end));
        let skipped = reader.skip_records(self.rows.start)?;
        if skipped < self.rows.start {
            return Err(cut(skipped));
        }
        let (mut definitions, mut repetitions, mut values) = (Vec::new(), Vec::new(), Vec::new());
        let (mut read, mut patience) = (0, self.pages.as_ref().map_or(0, Vec::len) + 2);
        while read < self.rows.len() {
            let (rows, found, levels) = reader.read_records(
                self.rows.len() - read,
                Some(&mut definitions),
                Some(&mut repetitions),
                &mut values,
            )?;
            // A page may have no rows.
            patience -= usize::from((rows, found, levels) == (0, 0, 0));
            if patience == 0 {
                return Err(cut(self.rows.start + read));
            }
            read += rows;
        }
        let size = self.leaf.holds.size();
        let is_packed = self.leaf.element.is_some() || matches!(self.leaf.holds, Holds::Bytes | Holds::Text);
        let (mut page, mut values, mut ends) = (Page::default(), values.iter(), Vec::new());
        // A column without missing values has no levels.
        let levels = if self.leaf.full == 0 { self.rows.len() } else { definitions.len() };
        for level in 0..levels {
            let definition = definitions.get(level).copied().unwrap_or(0);
            let begins = self.leaf.element.is_none() || repetitions.get(level).is_none_or(|&level| level == 0);
            if begins && level > 0 {
                ends.push(page.bytes.len() as u64);
            }
            let row = ends.len() as u64;
            if definition == self.leaf.full {
                let value = values.next().ok_or_else(|| cut(row as usize))?;
                let before = page.bytes.len();
                add(value, &mut page.bytes);
                if !matches!(self.leaf.holds, Holds::Bytes | Holds::Text) && page.bytes.len() - before != size {
                    return Err(ParquetError::General(format!("a value of {} bytes", page.bytes.len() - before)));
                }
                if page.bytes.len() as u64 > self.limit {
                    let limit = self.limit;
                    return Err(ParquetError::General(format!(
                        "a page of more than {limit} bytes; raise `memory_limit`"
                    )));
                }
                continue;
            }
            match self.leaf.element {
                // A list that is empty, one that is missing, and an element that is missing.
                Some(element) if definition == element - 1 => {}
                Some(element) if definition >= element => page.holes.push(row),
                _ => {
                    page.missing.push(row);
                    if !is_packed {
                        page.bytes.resize(page.bytes.len() + size, 0);
                    }
                }
            }
        }
        if levels > 0 {
            ends.push(page.bytes.len() as u64);
        }
        if ends.len() != self.rows.len() {
            return Err(cut(self.rows.start + ends.len()));
        }
        page.holes.dedup();
        page.ends = is_packed.then_some(ends);
        Ok(page)
    }
}
