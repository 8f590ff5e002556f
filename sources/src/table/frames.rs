//! Pages of Parquet that consist of several frames of Hadoop's LZ4. The Parquet decoder (parquet
//! 60.1) stops after a frame that is not shorter than the frames after it together, so such pages
//! are unpacked before they are passed to it.

use std::sync::Arc;

use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::basic::Compression;
use parquet::errors::ParquetError;

use super::Problem;
use super::header::Header;

/// The unpacked pages: the length of the pages before the data (the dictionary, if there is one),
/// and all pages.
pub(super) struct Unpacked {
    dictionary: Option<usize>,
    pub(super) pages: Vec<u8>,
}

/// Unpacks the pages of a column, if the decoder could not. The caller has checked how much memory
/// they take.
pub(super) fn unpack(pages: &[u8]) -> Result<Option<Unpacked>, Problem> {
    let (mut rest, mut stops) = (pages, false);
    let mut unpacked = Unpacked { dictionary: None, pages: Vec::new() };
    while !rest.is_empty() {
        let (header, data) = Header::read(rest).ok_or("a page without a valid header")?;
        let page = data.get(..header.compressed as usize).ok_or("a page that ends after its column")?;
        let levels = header.levels as usize;
        let (head, size) = (&rest[..rest.len() - data.len()], header.size_at.clone());
        unpacked.pages.extend_from_slice(&head[..size.start]);
        write_int(header.uncompressed, &mut unpacked.pages);
        unpacked.pages.extend_from_slice(&head[size.end..]);
        if header.is_compressed {
            unpacked.pages.extend_from_slice(page.get(..levels).ok_or("a page that is shorter than its levels")?);
            // If this fails, the page is LZ4 of another kind.
            let most = header.uncompressed.saturating_sub(header.levels) as usize;
            let Some(stops_here) = unpack_frames(&page[levels..], most, &mut unpacked.pages) else { return Ok(None) };
            stops |= stops_here;
        } else {
            unpacked.pages.extend_from_slice(page);
        }
        if header.is_dictionary {
            unpacked.dictionary = Some(unpacked.pages.len());
        }
        rest = &data[page.len()..];
    }
    Ok(stops.then_some(unpacked))
}

/// Appends the contents of the frames of a page. Each frame is preceded by its size before and
/// after compression. Returns whether the decoder would stop before the end of the frames, or
/// `None` if these are not such frames, or if they have another number of bytes than stated.
fn unpack_frames(mut page: &[u8], most: usize, into: &mut Vec<u8>) -> Option<bool> {
    let (mut stops, end) = (false, into.len() + most);
    while let Some((sizes, rest)) = page.split_first_chunk::<8>() {
        let size = |at: usize| u32::from_be_bytes([sizes[at], sizes[at + 1], sizes[at + 2], sizes[at + 3]]) as usize;
        let (packed, rest) = rest.split_at_checked(size(4))?;
        if size(0) > end - into.len() {
            return None;
        }
        into.extend(lz4_flex::block::decompress(packed, size(0)).ok()?);
        stops |= !rest.is_empty() && rest.len() <= packed.len();
        page = rest;
    }
    (page.is_empty() && into.len() == end).then_some(stops)
}

/// Appends an integer in the encoding of Thrift's compact protocol.
fn write_int(number: u64, into: &mut Vec<u8>) {
    let mut left = number << 1;
    while left >= 0x80 {
        into.push(left as u8 | 0x80);
        left >>= 7;
    }
    into.push(left as u8);
}

impl Unpacked {
    /// Returns the metadata of a file in which the pages of a column are replaced by these unpacked
    /// ones, from byte `start` on.
    pub(super) fn metadata(
        &self,
        of: &ArrowReaderMetadata,
        group: usize,
        column: usize,
        start: u64,
    ) -> Result<ArrowReaderMetadata, ParquetError> {
        let metadata = of.metadata();
        let mut groups = metadata.row_groups().to_vec();
        let mut columns = groups[group].columns().to_vec();
        let chunk = columns[column].clone().into_builder().set_compression(Compression::UNCOMPRESSED);
        let first = start as i64;
        columns[column] = chunk
            .set_total_compressed_size(self.pages.len() as i64)
            .set_dictionary_page_offset(self.dictionary.map(|_| first))
            .set_data_page_offset(first + self.dictionary.unwrap_or_default() as i64)
            .build()?;
        groups[group] = groups[group].clone().into_builder().set_column_metadata(columns).build()?;
        let metadata = metadata.as_ref().clone().into_builder().set_row_groups(groups).build();
        let options = ArrowReaderOptions::new().with_schema(of.schema().clone());
        ArrowReaderMetadata::try_new(Arc::new(metadata), options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a page of data (type 0) or of a dictionary (type 2) with `values` values in frames.
    fn page(dictionary: bool, frames: &[&[u8]], values: u8) -> Vec<u8> {
        let mut packed = Vec::new();
        for frame in frames {
            let bytes = lz4_flex::block::compress(frame);
            packed.extend((frame.len() as u32).to_be_bytes());
            packed.extend((bytes.len() as u32).to_be_bytes());
            packed.extend(bytes);
        }
        header(dictionary, frames.concat().len(), packed.len(), values, &packed)
    }

    fn header(dictionary: bool, uncompressed: usize, compressed: usize, values: u8, data: &[u8]) -> Vec<u8> {
        let mut page = vec![0x15, if dictionary { 4 } else { 0 }, 0x15];
        write_int(uncompressed as u64, &mut page);
        page.push(0x15);
        write_int(compressed as u64, &mut page);
        page.extend([if dictionary { 0x4c } else { 0x2c }, 0x15, values << 1, 0x15, 0, 0, 0]);
        [&page, data].concat()
    }

    #[test]
    fn pages_are_unpacked_with_new_headers() {
        let (words, numbers): (&[u8], Vec<u8>) = (b"some words in a dictionary", (0..200).collect());
        let two = [&numbers[..150], &numbers[150..]];
        let pages = [page(true, &[words], 5), page(false, &two, 50)].concat();
        let unpacked = unpack(&pages).unwrap().unwrap();
        let first = header(true, words.len(), words.len(), 5, words);
        assert_eq!(unpacked.dictionary, Some(first.len()));
        assert_eq!(unpacked.pages, [first, header(false, 200, 200, 50, &numbers)].concat());
        // The decoder can read a single frame, and LZ4 of other kinds.
        assert!(unpack(&page(false, &[&numbers], 50)).unwrap().is_none());
        assert!(unpack(&header(false, 200, 9, 50, b"not lz4!!")).unwrap().is_none());
        assert!(unpack(&pages[..pages.len() - 1]).is_err());
    }
}
