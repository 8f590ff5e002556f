//! Row groups of Parquet files, or parts of row groups that begin at pages.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::cast::AsArray;
use arrow_array::types::{TimestampNanosecondType, TimestampSecondType};
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema, TimeUnit};
use bytes::{Buf, Bytes};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder, RowSelection, RowSelector,
};
use parquet::basic::{Compression, Type as Physical};
use parquet::errors::ParquetError;
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};
use parquet::file::reader::{ChunkReader, Length};
use parquet::schema::types::{SchemaDescriptor, Type};

use super::frames;
use super::header::check;
use super::schema::{Columns, DEEPEST, Leaf};
use super::{DAMAGED, Decode, MIN, Part, Problem, thrift};
use crate::Error;
use crate::files::{Files, Span};

/// The minimum size of a part of a row group, decoded, in bytes.
const PART: u64 = 1 << 20;

/// A Parquet file.
#[derive(Debug)]
pub(super) struct File {
    file: usize,
    metadata: ArrowReaderMetadata,
    pub(super) columns: Columns,
}

/// The columns of a file that are read.
#[derive(Debug)]
struct Chosen {
    file: usize,
    metadata: ArrowReaderMetadata,
    /// The metadata with timestamps of 96 bits as seconds, if there are any.
    seconds: Option<ArrowReaderMetadata>,
    /// The indices and the names of the columns, which are decoded separately.
    leaves: Vec<(usize, String)>,
}

/// A range of rows of a row group.
#[derive(Debug)]
struct Rows {
    of: Arc<Chosen>,
    group: usize,
    rows: Range<usize>,
}

impl File {
    /// Reads the metadata at the end of a file, with the page index.
    pub(super) fn open(files: &Files, file: usize, decimals: bool) -> Result<Self, Error> {
        let wrong = |problem: String| Error::in_file(files.path(file), problem, DAMAGED);
        let reader = ParquetMetaDataReader::new()
            .with_column_index_policy(PageIndexPolicy::Skip)
            .with_offset_index_policy(PageIndexPolicy::Optional);
        let footer = FooterReader { files, file };
        // The decoder may panic on a damaged file, which must not end the program.
        let read = catch_unwind(AssertUnwindSafe(|| {
            let metadata = reader.parse_and_finish(&footer)?;
            ArrowReaderMetadata::try_new(Arc::new(metadata), ArrowReaderOptions::new())
        }));
        let metadata = read.map_err(|_| wrong("metadata that can't be read".to_owned()))?;
        let metadata = metadata.map_err(|error| wrong(format!("not a valid Parquet file: {error}")))?;
        let columns = Columns::new(metadata.schema(), decimals).map_err(wrong)?;
        Ok(Self { file, metadata, columns })
    }

    /// Returns the parts of the file (row groups, or ranges of their rows), each with these
    /// columns.
    pub(super) fn parts(self, files: &Files, leaves: &[Leaf]) -> Result<Vec<Part>, Error> {
        let wrong = |problem: String| Error::in_file(files.path(self.file), problem, DAMAGED);
        let schema = self.metadata.parquet_schema();
        let mut decoded = Vec::new();
        for leaf in leaves {
            let column = below(schema, leaf);
            let column = column.ok_or_else(|| wrong(format!("column {}: a schema of two kinds", leaf.name)))?;
            decoded.push((column, leaf.name.clone()));
        }
        let seconds = seconds(&self.metadata, &decoded).map_err(|error| wrong(error.to_string()))?;
        let metadata = self.metadata.metadata().clone();
        let chosen = Arc::new(Chosen { file: self.file, metadata: self.metadata, seconds, leaves: decoded });
        let mut parts = Vec::new();
        for group in 0..metadata.num_row_groups() {
            let starts = starts(&metadata, group, &chosen.leaves)
                .map_err(|problem| wrong(format!("row group {group}: {problem}")))?;
            for rows in starts.windows(2).filter(|rows| rows[0] < rows[1]) {
                let rows = Rows { of: chosen.clone(), group, rows: rows[0]..rows[1] };
                let (steps, size) = (chosen.leaves.len(), rows.size());
                let len = rows.rows.len();
                parts.push(Part { file: self.file, group, rows: len, size, steps, decode: Box::new(rows) });
            }
        }
        Ok(parts)
    }
}

/// Returns the index of the column in the file's own schema that corresponds to a column of Arrow's
/// schema.
fn below(schema: &SchemaDescriptor, leaf: &Leaf) -> Option<usize> {
    fn count(of: &Type) -> usize {
        if of.is_group() { of.get_fields().iter().map(|field| count(field)).sum() } else { 1 }
    }
    let (mut of, mut first, mut names) = (schema.root_schema(), 0, Vec::new());
    for &member in &leaf.path {
        let fields = of.is_group().then(|| of.get_fields())?;
        of = fields.get(member)?;
        first += fields[..member].iter().map(|field| count(field)).sum::<usize>();
        names.push(of.name());
    }
    (names.join(".") == leaf.name && count(of) == 1).then_some(first)
}

/// Returns metadata in which timestamps of 96 bits are read as seconds, if there are any. Their
/// nanoseconds may overflow 64 bits, which the decoder does not detect.
fn seconds(
    metadata: &ArrowReaderMetadata,
    leaves: &[(usize, String)],
) -> Result<Option<ArrowReaderMetadata>, ParquetError> {
    let schema = metadata.parquet_schema();
    if !leaves.iter().any(|&(column, _)| schema.column(column).physical_type() == Physical::INT96) {
        return Ok(None);
    }
    let of_seconds = |field: &Arc<Field>| match field.data_type() {
        DataType::Timestamp(TimeUnit::Nanosecond, zone) => {
            let of = DataType::Timestamp(TimeUnit::Second, zone.clone());
            Arc::new(Field::clone(field).with_data_type(of))
        }
        _ => field.clone(),
    };
    let fields: Vec<_> = metadata.schema().fields().iter().map(of_seconds).collect();
    let options = ArrowReaderOptions::new().with_schema(Arc::new(Schema::new(fields)));
    ArrowReaderMetadata::try_new(metadata.metadata().clone(), options).map(Some)
}

/// Returns the first row of each part of a row group, and the number of rows of the group.
fn starts(metadata: &ParquetMetaData, number: usize, leaves: &[(usize, String)]) -> Result<Vec<usize>, &'static str> {
    let group = metadata.row_group(number);
    let rows = usize::try_from(group.num_rows()).map_err(|_| "a negative number of rows")?;
    if leaves.iter().any(|&(column, _)| column >= group.num_columns()) {
        return Err("fewer columns than the schema");
    }
    let index = metadata.page_index_for_row_group(number);
    let pages =
        |&(column, _): &(usize, String)| index.offset_index(column).map_or(&[][..], |index| index.page_locations());
    let bytes: i64 =
        leaves.iter().map(|&(column, _)| group.column(column).uncompressed_size().max(0)).fold(0, i64::saturating_add);
    // Parts begin where pages of the column with the most pages begin.
    let most = leaves.iter().map(pages).max_by_key(|pages| pages.len()).unwrap_or_default();
    let mut starts = vec![0];
    for page in most {
        let first = usize::try_from(page.first_row_index).ok().filter(|&first| first <= rows);
        let first = first.ok_or("a page index whose rows are not in order")?;
        let last = starts[starts.len() - 1];
        let part = first.checked_sub(last).ok_or("a page index whose rows are not in order")?;
        if part as u128 * bytes as u128 >= PART as u128 * rows as u128 && part > 0 {
            starts.push(first);
        }
    }
    starts.push(rows);
    Ok(starts)
}

impl Rows {
    /// Returns the approximate size of the decoded rows in bytes.
    fn size(&self) -> u64 {
        let group = self.of.metadata.metadata().row_group(self.group);
        let columns = self.of.leaves.iter().map(|(column, _)| group.column(*column).uncompressed_size().max(0) as u64);
        let (all, rows) = (columns.fold(0, u64::saturating_add), group.num_rows().max(1) as u128);
        (u128::from(all) * self.rows.len() as u128 / rows) as u64
    }

    /// Calls `each` with the ranges of a column's pages that contain the rows of this part, and
    /// with the range of the dictionary.
    fn pages(&self, column: usize, file_len: u64, each: &mut dyn FnMut(Span)) {
        let metadata = self.of.metadata.metadata();
        let chunk = metadata.row_group(self.group).column(column);
        let (first, last) = match (chunk.dictionary_page_offset(), chunk.data_page_offset()) {
            (Some(dictionary), data) if dictionary > 0 => (dictionary.min(data), data),
            (_, data) => (data, data),
        };
        let span = |start: i64, end: Option<i64>| {
            let (start, end) = (u64::try_from(start).ok()?, u64::try_from(end?).ok()?);
            (start < end && end <= file_len).then(|| Span { file: self.of.file, start, len: Some(end - start) })
        };
        let pages = metadata.page_index_for_row_group(self.group);
        let pages = pages.offset_index(column).map_or(&[][..], |index| index.page_locations());
        if pages.is_empty() {
            span(first, first.checked_add(chunk.compressed_size())).into_iter().for_each(each);
            return;
        }
        span(first, Some(last)).into_iter().for_each(&mut *each);
        for (number, page) in pages.iter().enumerate() {
            let end = pages.get(number + 1).map_or(i64::MAX, |next| next.first_row_index);
            if page.first_row_index < self.rows.end as i64 && end > self.rows.start as i64 {
                let end = page.offset.checked_add(page.compressed_page_size.into());
                span(page.offset, end).into_iter().for_each(&mut *each);
            }
        }
    }

    fn decode(&self, metadata: &ArrowReaderMetadata, column: usize, parts: Parts) -> Result<RecordBatch, Problem> {
        let of = self.of.metadata.metadata().row_group(self.group).num_rows() as usize;
        let mask = ProjectionMask::leaves(metadata.parquet_schema(), [column]);
        let mut builder = ParquetRecordBatchReaderBuilder::new_with_metadata(parts, metadata.clone())
            .with_row_groups(vec![self.group])
            .with_projection(mask)
            .with_batch_size(self.rows.len());
        if self.rows.len() < of {
            let selection = vec![RowSelector::skip(self.rows.start), RowSelector::select(self.rows.len())];
            builder = builder.with_row_selection(RowSelection::from(selection));
        }
        let batch = builder.build()?.next().ok_or("no rows")?.map_err(|error| Problem::from(error.to_string()))?;
        if batch.num_rows() != self.rows.len() {
            return Err(Problem::from(format!(
                "{} rows, and the file's metadata says {}",
                batch.num_rows(),
                self.rows.len()
            )));
        }
        Ok(batch)
    }

    fn checked(&self, step: usize, mut parts: Parts, limit: u64, spent: &AtomicU64) -> Result<RecordBatch, Problem> {
        // The pages are checked here, as the decoder trusts the sizes in their headers.
        let (most, (column, name)) = (limit.saturating_mul(2).max(MIN), &self.of.leaves[step]);
        let group = self.of.metadata.metadata().row_group(self.group);
        let left = most.saturating_sub(spent.load(Ordering::Relaxed));
        let pages = check(parts.bytes(), group.column(*column), left).map_err(|problem| problem.of_column(name))?;
        // Other threads may be decoding other columns.
        if spent.fetch_add(pages, Ordering::Relaxed).saturating_add(pages) > most {
            return Err(Problem::too_large(most).of_column(name));
        }
        let (mut metadata, mut seconds) = (self.of.metadata.clone(), self.of.seconds.clone());
        // Old writers of such LZ4 frames wrote no page index, so the pages are in one range.
        if let (Compression::LZ4, [(start, bytes)]) = (group.column(*column).compression(), &mut parts.parts[..])
            && let Some(unpacked) = frames::unpack(bytes).map_err(|problem| problem.of_column(name))?
        {
            let changed = |of: &ArrowReaderMetadata| unpacked.metadata(of, self.group, *column, *start);
            metadata = changed(&metadata)?;
            seconds = seconds.as_ref().map(changed).transpose()?;
            parts.len = parts.len.max(*start + unpacked.pages.len() as u64);
            *bytes = unpacked.pages.into();
        }
        let decode = |metadata, parts| {
            catch_unwind(AssertUnwindSafe(|| self.decode(metadata, *column, parts)))
                .unwrap_or_else(|_| Err(Problem::from("a page that the decoder can't read")))
                .map_err(|problem| problem.of_column(name))
        };
        let Some(seconds) = seconds else { return decode(&metadata, parts) };
        let batch = decode(&metadata, parts.clone())?;
        let coarse = decode(&seconds, parts)?;
        for ((fine, coarse), field) in batch.columns().iter().zip(coarse.columns()).zip(batch.schema().fields()) {
            if !matches!(coarse.data_type(), DataType::Timestamp(TimeUnit::Second, _))
                || fine.data_type() == coarse.data_type()
            {
                continue;
            }
            let fine = fine.as_primitive::<TimestampNanosecondType>().iter();
            let coarse = coarse.as_primitive::<TimestampSecondType>().iter();
            let is_same =
                |(fine, coarse): (Option<i64>, Option<i64>)| fine.map(|fine| fine.div_euclid(1_000_000_000)) == coarse;
            if !fine.zip(coarse).all(is_same) {
                return Err(Problem {
                    what: format!(
                        "column {}: a timestamp before 1677 or after 2262, which i64 nanoseconds can't hold",
                        field.name()
                    ),
                    advice: "write the column as timestamps of microseconds, or leave it out with `columns`",
                });
            }
        }
        Ok(batch)
    }
}

impl Decode for Rows {
    fn spans(&self, files: &Files, each: &mut dyn FnMut(Span)) {
        let file_len = files.file_len(self.of.file).unwrap_or(0);
        for (column, _) in &self.of.leaves {
            self.pages(*column, file_len, each);
        }
    }

    fn mapped<'f>(&self, _: &'f Files) -> Option<&'f [u8]> {
        None
    }

    fn read(&self, files: &Arc<Files>, step: usize, limit: u64, spent: &AtomicU64) -> Result<RecordBatch, Error> {
        let file_len = files.file_len(self.of.file).unwrap_or(0);
        let (mut parts, mut spans) = (Parts { len: file_len, parts: Vec::new() }, Vec::new());
        self.pages(self.of.leaves[step].0, file_len, &mut |span| spans.push(span));
        for span in spans {
            let mut bytes = Vec::new();
            files.read_into(span, &mut bytes)?;
            parts.parts.push((span.start, bytes.into()));
        }
        self.checked(step, parts, limit, spent).map_err(|Problem { what, advice }| {
            let problem = format!("row group {}: {what}", self.group);
            Error::in_file(files.path(self.of.file), problem, advice)
        })
    }
}

impl From<ParquetError> for Problem {
    fn from(error: ParquetError) -> Self {
        Self::from(error.to_string())
    }
}

/// A reader of the metadata at the end of a file, for the Parquet library.
struct FooterReader<'a> {
    files: &'a Files,
    file: usize,
}

impl Length for FooterReader<'_> {
    fn len(&self) -> u64 {
        self.files.file_len(self.file).unwrap_or(0)
    }
}

impl ChunkReader for FooterReader<'_> {
    type T = bytes::buf::Reader<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        let rest = Length::len(self).saturating_sub(start);
        Ok(self.get_bytes(start, rest as usize)?.reader())
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let mut bytes = Vec::new();
        let span = Span { file: self.file, start, len: Some(length as u64) };
        self.files.read_into(span, &mut bytes).map_err(|error| ParquetError::External(Box::new(error)))?;
        // The metadata are followed by 8 bytes at the end of the file: their length and the magic
        // number. The parser of the metadata does not limit its recursion, so their depth is
        // checked first.
        let is_metadata = start.checked_add(length as u64 + 8) == Some(Length::len(self));
        if is_metadata && thrift::schema_depth(&bytes).is_none_or(|depth| depth > DEEPEST) {
            return Err(ParquetError::General(format!("a damaged schema, or one that is more than {DEEPEST} deep")));
        }
        Ok(bytes.into())
    }
}

/// The ranges of a file that a column needs, each with its position and its bytes.
#[derive(Clone)]
struct Parts {
    len: u64,
    parts: Vec<(u64, Bytes)>,
}

impl Length for Parts {
    fn len(&self) -> u64 {
        self.len
    }
}

impl ChunkReader for Parts {
    type T = bytes::buf::Reader<Bytes>;

    fn get_read(&self, start: u64) -> Result<Self::T, ParquetError> {
        Ok(self.from(start)?.reader())
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes, ParquetError> {
        let part = self.from(start)?;
        if part.len() < length {
            return Err(ParquetError::EOF(format!("{length} bytes from byte {start} on are not of the column")));
        }
        Ok(part.slice(..length))
    }
}

impl Parts {
    fn from(&self, start: u64) -> Result<Bytes, ParquetError> {
        let in_part = |(first, bytes): &&(u64, Bytes)| start >= *first && start - *first < bytes.len() as u64;
        let found = self.parts.iter().find(in_part);
        let found = found.ok_or_else(|| ParquetError::EOF(format!("byte {start} is not of the column")))?;
        Ok(found.1.slice((start - found.0) as usize..))
    }

    fn bytes(&self) -> impl Iterator<Item = &Bytes> {
        self.parts.iter().map(|(_, bytes)| bytes)
    }
}
