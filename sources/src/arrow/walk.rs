//! The messages of an Arrow file or stream: where each batch's rows and buffers are.
//!
//! A message is the marker `ffffffff` (not before Arrow 0.15), i32 length of its metadata, the metadata, a flatbuffer
//! padded to 8 bytes, and its body. A length of 0 ends the stream, as does the end of the file. An Arrow file, or Feather
//! file, is such a stream after the 8 bytes `ARROW1\0\0`, with a footer after it, which is not needed.

use arrow_ipc::{CompressionType, MessageHeader, RecordBatch};

use super::schema::{Columns, Holds, Leaf};
use crate::Error;
use crate::files::Files;
use crate::window::{Progress, Window};

const DAMAGED: &str = "the file is truncated or damaged: copy it or write it again";

/// The maximum length of the metadata of one message.
const LONGEST: u64 = 64 << 20;

/// The batches of a file.
pub(super) struct Stream {
    pub(super) columns: Columns,
    pub(super) batches: Vec<Batch>,
}

/// Some rows of a file.
#[derive(Clone, Debug)]
pub(super) struct Batch {
    /// Where its body is in the file.
    pub(super) start: u64,
    pub(super) len: u64,
    pub(super) rows: u64,
    pub(super) codec: Option<Codec>,
    /// The number of missing values of each node.
    pub(super) nulls: Vec<u64>,
    /// The positions in the body, and the lengths, of the buffers.
    pub(super) buffers: Vec<(u64, u64)>,
}

/// How buffers are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Codec {
    Lz4,
    Zstd,
}

/// Walks over the messages of a file.
pub(super) fn walk(files: &Files, file: usize) -> Result<Stream, Error> {
    let path = files.path(file);
    let progress = Progress::default();
    let mut window = Window::new(files, file, &progress);
    let len = window.file_len();
    let is_file = len >= 8 && window.bytes(0, 8)? == b"ARROW1\0\0";
    let (mut at, mut stream) = (if is_file { 8 } else { 0 }, None::<Stream>);
    while at < len {
        let error = |problem: &str| Error::format(path.display(), at, problem, DAMAGED);
        let mut metadata = at + 4;
        let mut size = word(window.bytes(at, 4.min(len - at))?).ok_or_else(|| error("a message without a length"))?;
        if size == u32::MAX {
            size = word(window.bytes(metadata, 4.min(len - metadata))?)
                .ok_or_else(|| error("a message without a length"))?;
            metadata += 4;
        }
        if size == 0 {
            break;
        }
        let body = metadata + u64::from(size);
        if body > len || u64::from(size) > LONGEST {
            return Err(error("metadata that ends after the file, or not an Arrow file"));
        }
        let bytes = window.bytes(metadata, u64::from(size))?;
        let message =
            arrow_ipc::root_as_message(bytes).map_err(|found| error(&format!("invalid metadata: {found}")))?;
        let body_len = u64::try_from(message.bodyLength()).ok().filter(|&found| found <= len - body);
        let body_len = body_len.ok_or_else(|| error("a body that ends after the file"))?;
        match message.header_type() {
            MessageHeader::Schema => {
                let schema = message.header_as_schema().ok_or_else(|| error("a message without its header"))?;
                if stream.is_some() {
                    return Err(error("a second schema"));
                }
                stream = Some(Stream { columns: Columns::parse(&path, schema)?, batches: Vec::new() });
            }
            MessageHeader::RecordBatch => {
                let batch = message.header_as_record_batch().ok_or_else(|| error("a message without its header"))?;
                let stream = stream.as_mut().ok_or_else(|| error("a batch before the schema"))?;
                let batch = check(&stream.columns, batch, body, body_len, len);
                stream.batches.push(batch.map_err(|problem| error(&problem))?);
            }
            // Columns in dictionaries are not read.
            MessageHeader::DictionaryBatch => {}
            _ => return Err(error("a message that is neither a schema nor a batch")),
        }
        at = body + body_len;
    }
    let advice = "check that it was written completely, by Arrow";
    stream.ok_or_else(|| Error::format(path.display(), None, "no schema", advice))
}

fn word(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

/// Returns the batch of a message.
fn check(columns: &Columns, batch: RecordBatch<'_>, start: u64, len: u64, file_len: u64) -> Result<Batch, String> {
    let number = |number: i64| u64::try_from(number).map_err(|_| "a negative number of rows or bytes".to_owned());
    let codec = match batch.compression().map(|of| of.codec()) {
        None => None,
        Some(CompressionType::LZ4_FRAME) => Some(Codec::Lz4),
        Some(CompressionType::ZSTD) => Some(Codec::Zstd),
        Some(_) => return Err("an unknown compression".to_owned()),
    };
    let rows = number(batch.length())?;
    // Rows of nothing could be any number.
    if rows > 8 * file_len {
        return Err(format!("{rows} rows, more than the file has bits"));
    }
    let nulls =
        batch.nodes().into_iter().flatten().map(|node| number(node.null_count())).collect::<Result<Vec<_>, _>>()?;
    let buffers = batch.buffers().into_iter().flatten().map(|buffer| {
        let (start, bytes) = (number(buffer.offset())?, number(buffer.length())?);
        let end = start.checked_add(bytes).filter(|&end| end <= len);
        end.map(|_| (start, bytes)).ok_or_else(|| "a buffer that ends after the body".to_owned())
    });
    let buffers = buffers.collect::<Result<Vec<_>, String>>()?;
    if (nulls.len(), buffers.len()) != (columns.nodes, columns.buffers) {
        let (nodes, expected) = (columns.nodes, columns.buffers);
        let (found, listed) = (nulls.len(), buffers.len());
        return Err(format!("{found} columns in {listed} buffers, and the schema has {nodes} in {expected}"));
    }
    let batch = Batch { start, len, rows, codec, nulls, buffers };
    // Those of compressed buffers are checked when they are unpacked.
    if codec.is_none() {
        batch.check(columns.leaves.iter(), &batch.buffers)?;
    }
    Ok(batch)
}

impl Batch {
    /// Checks that the buffers of columns are long enough for the rows, so that reading a row needs no checks of its own.
    pub(super) fn check<'a>(
        &self,
        leaves: impl Iterator<Item = &'a Leaf>,
        buffers: &[(u64, u64)],
    ) -> Result<(), String> {
        let rows = self.rows;
        for leaf in leaves {
            let (buffer, needed) = match (leaf.offsets, &leaf.holds) {
                // A batch without rows may have no offsets, not even the first.
                (Some((buffer, _)), _) if rows == 0 => (buffer, Some(0)),
                (Some((buffer, wide)), _) => (buffer, (rows + 1).checked_mul(if wide { 8 } else { 4 })),
                (None, Holds::Bits) => (leaf.data, Some(rows.div_ceil(8))),
                (None, _) => (leaf.data, rows.checked_mul(leaf.row_bytes() as u64)),
            };
            let valid =
                |&(buffer, node): &(usize, usize)| self.nulls[node] == 0 || buffers[buffer].1 >= rows.div_ceil(8);
            if needed.is_none_or(|needed| needed > buffers[buffer].1) || !leaf.validity.iter().all(valid) {
                return Err(format!("buffers of column {} that are too short for {rows} rows", leaf.name));
            }
        }
        Ok(())
    }
}
