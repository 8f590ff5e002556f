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

use super::header::Pages;
use super::schema::{Holds, Leaf, is_decimal};
use super::{DAMAGED, Problem};
use crate::decimal;

/// How many rows are decoded at a time.
const STEP: u64 = 1 << 14;

/// What decoding may take, at least.
const LEAST: u64 = 64 << 20;

const NANOS_OF_DAY: i64 = 86_400_000_000_000;

/// The first day of 1970, in days of the Julian calendar.
const EPOCH: i64 = 2_440_588;

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
    pub(super) fn decode(self, parts: Parts) -> std::result::Result<Page, Problem> {
        // The decoder believes what pages say of their size.
        let most = self.limit.saturating_mul(2).max(LEAST);
        let pages = Pages::check(&parts, self.metadata, most)?;
        // A damaged page must not end the program, whatever the decoder makes of it.
        let decoded =
            catch_unwind(AssertUnwindSafe(|| self.decode_typed(parts, (most / pages.longest).clamp(1, STEP))));
        decoded.unwrap_or_else(|_| Err(Problem::from("a page that the decoder can't read")))
    }

    /// Decodes the rows, a number of them at a time.
    fn decode_typed(self, parts: Parts, step: u64) -> std::result::Result<Page, Problem> {
        let descr = self.metadata.column_descr_ptr();
        let pages = SerializedPageReader::new(Arc::new(parts), self.metadata, self.total, self.pages.clone())?;
        let pages: Box<dyn PageReader> = Box::new(pages);
        let (physical, scale) = (descr.physical_type(), descr.type_scale());
        let is_decimal = is_decimal(descr.self_type());
        // Narrow integers are stored with 32 bits.
        macro_rules! read {
            ($of:ty, $value:ident => $bytes:expr) => {
                self.read(ColumnReaderImpl::<$of>::new(descr, pages), step, |$value, into| {
                    into.extend_from_slice(&$bytes);
                    Ok(())
                })
            };
        }
        match (physical, self.leaf.holds) {
            (Physical::INT32, _) if is_decimal => {
                read!(data::Int32Type, value => decimal::to_f64((*value).into(), scale).to_ne_bytes())
            }
            (Physical::INT64, _) if is_decimal => {
                read!(data::Int64Type, value => decimal::to_f64((*value).into(), scale).to_ne_bytes())
            }
            (Physical::BYTE_ARRAY, _) if is_decimal => {
                self.read(ColumnReaderImpl::<data::ByteArrayType>::new(descr, pages), step, |value, into| {
                    add_decimal(value.data(), scale, into)
                })
            }
            (Physical::FIXED_LEN_BYTE_ARRAY, _) if is_decimal => {
                self.read(ColumnReaderImpl::<data::FixedLenByteArrayType>::new(descr, pages), step, |value, into| {
                    add_decimal(value.data(), scale, into)
                })
            }
            (Physical::BOOLEAN, _) => read!(data::BoolType, value => [u8::from(*value)]),
            (Physical::INT32, Holds::Number(DType::I8 | DType::U8)) => {
                read!(data::Int32Type, value => (*value as u8).to_ne_bytes())
            }
            (Physical::INT32, Holds::Number(DType::I16 | DType::U16)) => {
                read!(data::Int32Type, value => (*value as u16).to_ne_bytes())
            }
            (Physical::INT32, _) => read!(data::Int32Type, value => value.to_ne_bytes()),
            (Physical::INT64, _) => read!(data::Int64Type, value => value.to_ne_bytes()),
            (Physical::FLOAT, _) => read!(data::FloatType, value => value.to_ne_bytes()),
            (Physical::DOUBLE, _) => read!(data::DoubleType, value => value.to_ne_bytes()),
            (Physical::BYTE_ARRAY, _) => read!(data::ByteArrayType, value => *value.data()),
            (Physical::FIXED_LEN_BYTE_ARRAY, _) => read!(data::FixedLenByteArrayType, value => *value.data()),
            (Physical::INT96, _) => {
                self.read(ColumnReaderImpl::<data::Int96Type>::new(descr, pages), step, |value, into| {
                    into.extend_from_slice(&nanos(value.data())?.to_ne_bytes());
                    Ok(())
                })
            }
        }
    }

    /// Reads values, which `add` appends, from `step` rows at a time.
    fn read<T: data::DataType>(
        &self,
        mut reader: ColumnReaderImpl<T>,
        step: u64,
        add: impl Fn(&T::T, &mut Vec<u8>) -> std::result::Result<(), Problem>,
    ) -> std::result::Result<Page, Problem> {
        let cut = |found: usize| {
            let problem = format!("{found} rows, and the file's metadata says {}", self.rows.end);
            Problem { what: problem, advice: DAMAGED }
        };
        let skipped = reader.skip_records(self.rows.start)?;
        if skipped < self.rows.start {
            return Err(cut(skipped));
        }
        let size = self.leaf.holds.size();
        let is_text = matches!(self.leaf.holds, Holds::Bytes | Holds::Text);
        let is_packed = self.leaf.element.is_some() || is_text;
        let (mut definitions, mut repetitions, mut values) = (Vec::new(), Vec::new(), Vec::new());
        let (mut read, mut patience) = (0, self.pages.as_ref().map_or(0, Vec::len) + 2);
        let (mut page, mut ends, mut has_begun) = (Page::default(), Vec::new(), false);
        while read < self.rows.len() {
            definitions.clear();
            repetitions.clear();
            values.clear();
            let rows = (self.rows.len() - read).min(step as usize);
            let (rows, found, levels) =
                reader.read_records(rows, Some(&mut definitions), Some(&mut repetitions), &mut values)?;
            // A page may have no rows.
            patience -= usize::from((rows, found, levels) == (0, 0, 0));
            if patience == 0 {
                return Err(cut(self.rows.start + read));
            }
            read += rows;
            let mut values = values.iter();
            // A column without missing values has no levels.
            let levels = if self.leaf.full == 0 { rows } else { definitions.len() };
            for level in 0..levels {
                let definition = definitions.get(level).copied().unwrap_or(0);
                if self.leaf.element.is_none() || repetitions.get(level).is_none_or(|&level| level == 0) {
                    if has_begun {
                        ends.push(page.bytes.len() as u64);
                    }
                    has_begun = true;
                }
                let row = ends.len() as u64;
                if definition == self.leaf.full {
                    let value = values.next().ok_or_else(|| cut(row as usize))?;
                    let before = page.bytes.len();
                    add(value, &mut page.bytes)?;
                    if !is_text && page.bytes.len() - before != size {
                        return Err(Problem::from(format!("a value of {} bytes", page.bytes.len() - before)));
                    }
                } else {
                    match self.leaf.element {
                        // A list that is empty, one that is missing, and an element that is missing.
                        Some(element) if definition == element - 1 => {}
                        Some(element) if definition >= element => {
                            if page.holes.last() != Some(&row) {
                                page.holes.push(row);
                            }
                        }
                        _ => {
                            page.missing.push(row);
                            if !is_packed {
                                self.check((page.bytes.len() + size) as u64)?;
                                page.bytes.resize(page.bytes.len() + size, 0);
                            }
                        }
                    }
                }
                self.check(page.bytes.len() as u64)?;
            }
        }
        if has_begun {
            ends.push(page.bytes.len() as u64);
        }
        if ends.len() != self.rows.len() {
            return Err(cut(self.rows.start + ends.len()));
        }
        page.ends = is_packed.then_some(ends);
        Ok(page)
    }

    /// Checks that the result may have this size.
    fn check(&self, bytes: u64) -> std::result::Result<(), Problem> {
        if bytes <= self.limit {
            return Ok(());
        }
        let what = format!("a page of more than {} bytes", self.limit);
        Err(Problem { what, advice: "raise `memory_limit`, or write smaller pages" })
    }
}

/// Appends a decimal, whose highest byte is the first, as f64.
fn add_decimal(bytes: &[u8], scale: i32, into: &mut Vec<u8>) -> std::result::Result<(), Problem> {
    if bytes.len() > 16 {
        return Err(Problem::from(format!("a decimal of {} bytes", bytes.len())));
    }
    into.extend_from_slice(&decimal::to_f64(decimal::from_be(bytes), scale).to_ne_bytes());
    Ok(())
}

/// Returns the nanoseconds since 1970 of a timestamp of 96 bits: those of a day, and the day.
fn nanos(words: &[u32]) -> std::result::Result<i64, Problem> {
    let &[low, high, day] = words else { return Err(Problem::from("a timestamp without a value")) };
    let of_day = i64::from(low) | i64::from(high) << 32;
    let days = i64::from(day as i32) - EPOCH;
    // In 128 bits, so that only the result may be too large.
    let nanos = i128::from(days) * i128::from(NANOS_OF_DAY) + i128::from(of_day);
    i64::try_from(nanos).map_err(|_| Problem {
        what: "a timestamp before 1677 or after 2262, which i64 nanoseconds can't hold".to_owned(),
        advice: "write the column as timestamps of microseconds, or leave it out with `columns`",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_beyond_the_range_are_errors() {
        let of = |days: i64, nanos: i64| {
            self::nanos(&[nanos as u32, (nanos >> 32) as u32, (EPOCH + days) as u32]).map_err(|problem| problem.what)
        };
        assert_eq!(of(0, 0), Ok(0));
        assert_eq!(of(-1, NANOS_OF_DAY - 1), Ok(-1));
        assert_eq!(of(i64::MAX / NANOS_OF_DAY, i64::MAX % NANOS_OF_DAY), Ok(i64::MAX));
        assert_eq!(of(-(i64::MAX / NANOS_OF_DAY) - 1, NANOS_OF_DAY - 1 - i64::MAX % NANOS_OF_DAY), Ok(i64::MIN));
        assert!(of(i64::MAX / NANOS_OF_DAY + 1, 0).is_err());
        assert!(of(-200_000, 5).unwrap_err().contains("1677"));
    }
}
