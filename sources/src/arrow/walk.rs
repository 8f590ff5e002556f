//! The messages of an Arrow file or stream: where each batch's rows and buffers are.
//!
//! A message is the marker `ffffffff` (not before Arrow 0.15), i32 length of its metadata, the metadata, a flatbuffer
//! padded to 8 bytes, and its body. A length of 0 ends the stream, as does the end of the file. An Arrow file, or Feather
//! file, has such messages after the 8 bytes `ARROW1\0\0`, and at its end a footer with the schema, and where the messages
//! are. Those that it does not name are not read: polars writes a schema without a length there.
//!
//! Dictionaries are batches of one column. A later one replaces the one before it or, as a delta, goes on with it. In a
//! stream this holds for the batches that follow; in a file, all batches have the same dictionaries, and none is replaced.

use std::path::Path;

use arrow_ipc::{CompressionType, MessageHeader, RecordBatch};

use super::schema::{Columns, Holds, Layout, Leaf};
use crate::Error;
use crate::files::Files;
use crate::window::{Progress, Window};

const DAMAGED: &str = "the file is truncated or damaged: copy it or write it again";

/// The maximum length of the metadata of one message.
const LONGEST: u64 = 64 << 20;

/// What an Arrow file begins with.
const MAGIC: &[u8] = b"ARROW1\0\0";

/// The batches of a file.
pub(super) struct Stream {
    pub(super) columns: Columns,
    pub(super) batches: Vec<Batch>,
    /// The parts of each dictionary, as they are in the file.
    pub(super) dictionaries: Vec<Vec<Part>>,
}

/// A batch of a dictionary.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) batch: Batch,
    /// Whether it goes on with the part before it.
    pub(super) is_delta: bool,
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
    /// The positions in the body, and the lengths, of the buffers: those that each batch has, and then those of views.
    pub(super) buffers: Vec<(u64, u64)>,
    /// For each column of views, the first of these buffers, and how many there are.
    pub(super) views: Vec<(usize, usize)>,
    /// Where the parts of each dictionary begin and end.
    pub(super) dictionaries: Vec<(usize, usize)>,
}

/// How buffers are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Codec {
    Lz4,
    Zstd,
}

/// Walks over the messages of a file.
pub(super) fn walk(files: &Files, file: usize, decimals: bool) -> Result<Stream, Error> {
    let path = files.path(file);
    let progress = Progress::default();
    let mut window = Window::new(files, file, &progress);
    let len = window.file_len();
    if len < 8 || window.bytes(0, 8)? != MAGIC {
        let mut walk = Walk { path: &path, window, decimals, is_file: false, stream: None, in_force: Vec::new() };
        let mut next = 0;
        while next < len {
            let Some(end) = walk.message(next)? else { break };
            next = end;
        }
        let advice = "check that it was written completely, by Arrow";
        return walk.stream.ok_or_else(|| Error::format(path.display(), None, "no schema", advice));
    }
    // The footer, its length as i32, and the magic number without its zeros.
    let error = |problem: &str| Error::format(path.display(), len.saturating_sub(10), problem, DAMAGED);
    let end = if len < 18 { &[][..] } else { window.bytes(len - 10, 10)? };
    let size = word(end).map(u64::from).filter(|&size| end.ends_with(&MAGIC[..6]) && size <= LONGEST.min(len - 18));
    let size = size.ok_or_else(|| error("no footer"))?;
    let bytes = window.bytes(len - 10 - size, size)?.to_vec();
    let footer = arrow_ipc::root_as_footer(&bytes).map_err(|found| error(&format!("invalid footer: {found}")))?;
    let schema = footer.schema().ok_or_else(|| error("no schema"))?;
    let columns = Columns::parse(&path, schema, footer.version(), decimals)?;
    let in_force = vec![(0, 0); columns.dictionaries.len()];
    let mut walk = Walk { path: &path, window, decimals, is_file: true, stream: Some(Stream::new(columns)), in_force };
    for blocks in [footer.dictionaries(), footer.recordBatches()] {
        let mut next = 8;
        for block in blocks.into_iter().flatten() {
            let at = u64::try_from(block.offset()).ok().filter(|&at| at >= next && at < len);
            let at = at.ok_or_else(|| error("a footer whose messages are not in order"))?;
            next = walk.message(at)?.ok_or_else(|| error("a footer with a message that is not there"))?;
        }
    }
    walk.stream.ok_or_else(|| error("no schema"))
}

/// A walk over the messages of a file.
struct Walk<'a> {
    path: &'a Path,
    window: Window<'a>,
    decimals: bool,
    is_file: bool,
    stream: Option<Stream>,
    /// The parts of each dictionary that hold for the next batch.
    in_force: Vec<(usize, usize)>,
}

impl Walk<'_> {
    /// Reads a message, and returns where it ends; `None` if it ends the stream.
    fn message(&mut self, at: u64) -> Result<Option<u64>, Error> {
        let len = self.window.file_len();
        let error = |problem: &str| Error::format(self.path.display(), at, problem, DAMAGED);
        let mut metadata = at + 4;
        let mut size =
            word(self.window.bytes(at, 4.min(len - at))?).ok_or_else(|| error("a message without a length"))?;
        if size == u32::MAX {
            size = word(self.window.bytes(metadata, 4.min(len.saturating_sub(metadata)))?)
                .ok_or_else(|| error("a message without a length"))?;
            metadata += 4;
        }
        if size == 0 {
            return Ok(None);
        }
        let body = metadata + u64::from(size);
        if body > len || u64::from(size) > LONGEST {
            return Err(error("metadata that ends after the file, or not an Arrow file"));
        }
        let bytes = self.window.bytes(metadata, u64::from(size))?;
        let message =
            arrow_ipc::root_as_message(bytes).map_err(|found| error(&format!("invalid metadata: {found}")))?;
        let body_len = u64::try_from(message.bodyLength()).ok().filter(|&found| found <= len - body);
        let body_len = body_len.ok_or_else(|| error("a body that ends after the file"))?;
        match message.header_type() {
            MessageHeader::Schema => {
                let schema = message.header_as_schema().ok_or_else(|| error("a message without its header"))?;
                if self.stream.is_some() {
                    return Err(error("a second schema"));
                }
                let columns = Columns::parse(self.path, schema, message.version(), self.decimals)?;
                self.in_force = vec![(0, 0); columns.dictionaries.len()];
                self.stream = Some(Stream::new(columns));
            }
            MessageHeader::RecordBatch => {
                let batch = message.header_as_record_batch().ok_or_else(|| error("a message without its header"))?;
                let stream = self.stream.as_mut().ok_or_else(|| error("a batch before the schema"))?;
                let mut batch =
                    check(&stream.columns, batch, body, body_len, len).map_err(|problem| error(&problem))?;
                batch.dictionaries.clone_from(&self.in_force);
                stream.batches.push(batch);
            }
            MessageHeader::DictionaryBatch => {
                let stream = self.stream.as_mut().ok_or_else(|| error("a dictionary before the schema"))?;
                let found = message.header_as_dictionary_batch();
                let found = found.and_then(|found| Some((found.id(), found.data()?, found.isDelta())));
                let (id, data, is_delta) = found.ok_or_else(|| error("a message without its header"))?;
                // Others belong to columns that can't be read.
                if let Some(&number) = stream.columns.numbers.get(&id) {
                    let (parts, range) = (&mut stream.dictionaries[number], &mut self.in_force[number]);
                    match (parts.is_empty(), is_delta) {
                        (true, true) => return Err(error("a dictionary that goes on with none")),
                        (false, false) if self.is_file => return Err(error("a second dictionary of the same column")),
                        _ => {}
                    }
                    *range = (if is_delta { range.0 } else { parts.len() }, parts.len() + 1);
                    let batch = check(&stream.columns.dictionaries[number], data, body, body_len, len);
                    parts.push(Part { batch: batch.map_err(|problem| error(&problem))?, is_delta });
                }
            }
            _ => return Err(error("a message that is neither a schema nor a batch")),
        }
        Ok(Some(body + body_len))
    }
}

impl Stream {
    fn new(columns: Columns) -> Self {
        let dictionaries = columns.dictionaries.iter().map(|_| Vec::new()).collect();
        Self { columns, batches: Vec::new(), dictionaries }
    }
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
    let listed = buffers.collect::<Result<Vec<_>, String>>()?;
    let counts = batch.variadicBufferCounts().into_iter().flatten().map(number).collect::<Result<Vec<_>, _>>()?;
    let found = (nulls.len(), listed.len() as u64, counts.len());
    let expected = counts.iter().try_fold(columns.buffers as u64, |sum, &count| sum.checked_add(count));
    if Some(found) != expected.map(|expected| (columns.nodes, expected, columns.views.len())) {
        let (nodes, expected) = (columns.nodes, columns.buffers);
        let (nulls, listed, counts) = found;
        return Err(format!(
            "{nulls} columns in {listed} buffers, {counts} of them views, and the schema has {nodes} in {expected} or more, {} of them \
             views",
            columns.views.len()
        ));
    }
    let (mut buffers, mut views) = (listed, Vec::new());
    if !counts.is_empty() {
        let (mut all, mut of_views) = (buffers.into_iter(), Vec::new());
        buffers = Vec::with_capacity(all.len());
        for (&before, count) in columns.views.iter().zip(counts) {
            buffers.extend(all.by_ref().take(before - buffers.len()));
            views.push((columns.buffers + of_views.len(), count as usize));
            of_views.extend(all.by_ref().take(count as usize));
        }
        buffers.extend(all.chain(of_views));
    }
    let batch = Batch { start, len, rows, codec, nulls, buffers, views, dictionaries: Vec::new() };
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
            let has = |buffer: usize, rows: u64, bytes: u64| {
                rows.checked_mul(bytes).is_some_and(|needed| needed <= buffers[buffer].1)
            };
            let width = |wide| if wide { 8 } else { 4 };
            let is_long = match leaf.layout {
                Layout::Fixed if leaf.holds == Holds::Bits => has(leaf.data, rows.div_ceil(8), 1),
                Layout::Fixed => has(leaf.data, rows, leaf.row_bytes() as u64),
                // A batch without rows may have no offsets, not even the first.
                Layout::Offsets { buffer, wide } => rows == 0 || has(buffer, rows + 1, width(wide)),
                Layout::Sizes { offsets, sizes, wide } => {
                    has(offsets, rows, width(wide)) && has(sizes, rows, width(wide))
                }
                Layout::Views(_) => has(leaf.data, rows, 16),
                Layout::Dictionary(_, index) => has(leaf.data, rows, index.size() as u64),
            };
            let valid =
                |&(buffer, node): &(usize, usize)| self.nulls[node] == 0 || buffers[buffer].1 >= rows.div_ceil(8);
            if !is_long || !leaf.validity.iter().all(valid) {
                return Err(format!("buffers of column {} that are too short for {rows} rows", leaf.name));
            }
        }
        Ok(())
    }

    /// Returns the buffers that the values of a column are in, apart from those of missing values.
    pub(super) fn buffers_of(&self, leaf: &Leaf) -> impl Iterator<Item = usize> + use<> {
        let (others, views) = match leaf.layout {
            Layout::Fixed | Layout::Dictionary(..) => ([None, None], 0..0),
            Layout::Offsets { buffer, .. } => ([Some(buffer), None], 0..0),
            Layout::Sizes { offsets, sizes, .. } => ([Some(offsets), Some(sizes)], 0..0),
            Layout::Views(number) => {
                let (first, count) = self.views[number];
                ([None, None], first..first + count)
            }
        };
        others.into_iter().flatten().chain([leaf.data]).chain(views)
    }

    /// Returns where in the body about all values of a column are: the position, and the length.
    pub(super) fn extent(&self, leaf: &Leaf) -> (u64, u64) {
        match leaf.layout {
            Layout::Views(number) => {
                let (first, count) = self.views[number];
                let of_views = &self.buffers[first..first + count];
                let start = of_views.iter().map(|(start, _)| *start).min().unwrap_or(0);
                let end = of_views.iter().map(|(start, len)| start + len).max().unwrap_or(0);
                (start, end - start)
            }
            _ => self.buffers[leaf.data],
        }
    }
}
