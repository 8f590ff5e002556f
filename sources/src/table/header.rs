//! The headers of Parquet pages. They say how much memory decoding takes, and are checked before
//! decoding.

use std::io::{self, Read};
use std::ops::Range;

use bytes::Bytes as Shared;
use parquet::basic::{Compression, Type as Physical};
use parquet::file::metadata::ColumnChunkMetaData;

use super::Problem;
use super::thrift::{Bytes, Kind};

/// The largest factor by which gzip and LZ4 can expand data.
const EXPANSION: u64 = 1032;

/// The header of a page.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) uncompressed: u64,
    pub(super) compressed: u64,
    /// The range of the bytes in the header that state the compressed size.
    pub(super) size_at: Range<usize>,
    values: u64,
    /// The number of bytes before the compressed data that are not compressed.
    pub(super) levels: u64,
    pub(super) is_compressed: bool,
    pub(super) is_dictionary: bool,
}

/// Checks that decoding pages takes at most `most` bytes. Returns an upper limit of what it takes.
pub(super) fn check<'a>(
    parts: impl Iterator<Item = &'a Shared>,
    metadata: &ColumnChunkMetaData,
    most: u64,
) -> Result<u64, Problem> {
    // A value, and two levels of 2 bytes.
    let value = 4 + match metadata.column_type() {
        Physical::BYTE_ARRAY | Physical::FIXED_LEN_BYTE_ARRAY => 32,
        Physical::INT96 => 16,
        _ => 8,
    };
    let mut all = 0_u64;
    for part in parts {
        let mut rest = &part[..];
        while !rest.is_empty() {
            let (header, data) = Header::read(rest).ok_or("a page without a valid header")?;
            if header.is_dictionary && header.values > header.uncompressed {
                let Header { values, uncompressed, .. } = header;
                return Err(Problem::from(format!("a dictionary of {values} values in {uncompressed} bytes")));
            }
            all = all.saturating_add(header.uncompressed).saturating_add(header.values.saturating_mul(value));
            if all > most {
                return Err(Problem::too_large(all));
            }
            let page = data.get(..header.compressed as usize).ok_or("a page that ends after its column")?;
            header.check_packed(page, metadata.compression(), most)?;
            rest = &data[page.len()..];
        }
    }
    Ok(all)
}

impl Header {
    /// Reads a header. Returns the header, and the bytes after it.
    pub(super) fn read(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let len = bytes.len();
        let mut header = Self { is_compressed: true, ..Self::default() };
        let mut bytes = Bytes(bytes);
        bytes.fields(|bytes, number, kind| {
            match number {
                2 if kind.is_int() => header.uncompressed = size(bytes)?,
                3 if kind.is_int() => {
                    let start = len - bytes.0.len();
                    header.compressed = size(bytes)?;
                    header.size_at = start..len - bytes.0.len();
                }
                // The parts of the header for a page of data, for a dictionary, and for a page of
                // data of version 2.
                5 | 7 | 8 if kind.is_struct() => {
                    header.is_dictionary = number == 7;
                    bytes.fields(|bytes, field, kind| header.field(bytes, number, field, kind))?;
                }
                _ => return Some(false),
            }
            Some(true)
        })?;
        Some((header, bytes.0))
    }

    /// Reads a field of `part`, the part of a header for one type of page (5, 7 or 8).
    fn field(&mut self, bytes: &mut Bytes<'_>, part: i64, number: i64, kind: Kind) -> Option<bool> {
        match (part, number) {
            (_, 1) if kind.is_int() => self.values = size(bytes)?,
            (8, 5 | 6) if kind.is_int() => self.levels += size(bytes)?,
            (8, 7) => {
                self.is_compressed = !kind.is_false();
                return Some(false);
            }
            _ => return Some(false),
        }
        Some(true)
    }

    /// Checks that a page does not unpack to more bytes than its header says, unless the decoder of
    /// its codec checks that.
    fn check_packed(&self, page: &[u8], codec: Compression, most: u64) -> Result<(), Problem> {
        if !self.is_compressed || self.compressed.saturating_mul(EXPANSION) <= most {
            return Ok(());
        }
        let packed = page.get(self.levels as usize..).ok_or("a page that is shorter than its levels")?;
        let take =
            |reader: &mut dyn Read| io::copy(&mut reader.take(self.uncompressed.saturating_add(1)), &mut io::sink());
        let unpacked = match codec {
            Compression::GZIP(_) => take(&mut flate2::read::MultiGzDecoder::new(packed)),
            // Old writers used LZ4 frames. The decoder tries those after other forms of LZ4.
            Compression::LZ4 => take(&mut lz4_flex::frame::FrameDecoder::new(packed)),
            _ => return Ok(()),
        };
        match unpacked {
            Ok(bytes) if bytes > self.uncompressed => {
                Err(Problem::from(format!("a page that unpacks to more than {} bytes", self.uncompressed)))
            }
            // If it is invalid, the decoder reports that.
            _ => Ok(()),
        }
    }
}

/// Reads a size, which must not be negative.
fn size(bytes: &mut Bytes<'_>) -> Option<u64> {
    bytes.int().and_then(|size| u64::try_from(size).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_to_their_end() {
        // A page of data: type 0, sizes 100 and 50, a checksum, and 7 values. Its data follows.
        let bytes = [0x15, 0, 0x15, 0xc8, 0x01, 0x15, 100, 0x15, 2, 0x1c, 0x15, 14, 0x15, 0, 0, 0, 9, 9];
        let header = Header {
            uncompressed: 100,
            compressed: 50,
            size_at: 6..7,
            values: 7,
            is_compressed: true,
            ..Header::default()
        };
        assert_eq!(Header::read(&bytes), Some((header, &[9, 9][..])));
        // A negative size.
        assert_eq!(Header::read(&[0x25, 1, 0]), None);
    }

    #[test]
    fn bombs_are_found_before_they_are_unpacked() {
        let mut packed = Vec::new();
        let mut writer = flate2::write::GzEncoder::new(&mut packed, flate2::Compression::best());
        io::copy(&mut io::repeat(0).take(100 << 20), &mut writer).unwrap();
        writer.finish().unwrap();
        let header = |uncompressed| Header {
            uncompressed,
            compressed: packed.len() as u64,
            is_compressed: true,
            ..Header::default()
        };
        let check =
            |uncompressed| header(uncompressed).check_packed(&packed, Compression::GZIP(Default::default()), 64 << 20);
        assert!(check(1000).unwrap_err().what.contains("more than 1000 bytes"));
        assert!(check(100 << 20).is_ok());
    }
}
