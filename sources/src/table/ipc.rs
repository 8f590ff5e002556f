//! The batches of Arrow files and streams.
//!
//! A message consists of the marker `ffffffff` (absent before Arrow 0.15), the length of its
//! metadata (i32), the metadata (a flatbuffer padded to 8 bytes), and its body. A length of 0 ends
//! the stream, and so does the end of the file. An Arrow file (or Feather file) has such messages
//! after the 8 bytes `ARROW1\0\0`. At its end it has a footer with the schema and the positions of
//! the messages. Messages that the footer does not list are not read, since polars writes a schema
//! without a length among them.
//!
//! Dictionaries are batches of one column. A later dictionary replaces the previous one or, if it
//! is a delta, extends it. In a stream, this applies to the batches that follow. In a file, all
//! batches have the same dictionaries, and none is replaced.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, RefUnwindSafe, catch_unwind};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_buffer::Buffer;
use arrow_ipc::reader::{read_dictionary, read_record_batch};
use arrow_ipc::{Message, MessageHeader, MetadataVersion};
use arrow_schema::SchemaRef;

use super::schema::{Columns, DEEPEST, Leaf};
use super::{DAMAGED, Decode, MIN, Part};
use crate::Error;
use crate::columns::is_in;
use crate::files::{Files, Span};
use crate::open::Settings;
use crate::window::{Progress, Window};

/// The maximum length of the metadata of one message.
const LONGEST: u64 = 64 << 20;

/// The first bytes of an Arrow file.
pub(super) const MAGIC: &[u8] = b"ARROW1\0\0";

type Dictionaries = Arc<HashMap<i64, ArrayRef>>;

/// An Arrow file or stream.
#[derive(Debug)]
pub(super) struct File {
    pub(super) columns: Columns,
    schema: SchemaRef,
    batches: Vec<Batch>,
}

/// The location of a batch of a file.
#[derive(Debug)]
struct Batch {
    message: Arc<[u8]>,
    /// The range of its body in the file.
    body: Span,
    rows: usize,
    dictionaries: Dictionaries,
}

/// A batch, with the columns that are read.
#[derive(Debug)]
struct Rows {
    batch: Batch,
    schema: SchemaRef,
    chosen: Arc<[usize]>,
}

impl File {
    /// Reads the positions of the batches of a file, and its dictionaries. The size of the
    /// dictionaries is added to `spent`, which must not exceed `limit`.
    pub(super) fn open(files: &Arc<Files>, file: usize, options: &Settings, spent: &AtomicU64) -> Result<Self, Error> {
        let path = files.path(file);
        let progress = Progress::default();
        let mut window = Window::new(files, file, &progress);
        let len = window.file_len();
        let is_file = len >= 8 && window.bytes(0, 8)? == MAGIC;
        let mut walk = Walk {
            files,
            file,
            path: &path,
            window,
            options,
            is_file,
            of: None,
            used: Vec::new(),
            dictionaries: Arc::default(),
            spent,
        };
        if !is_file {
            let mut next = 0;
            while next < len {
                let Some(end) = walk.message(next)? else { break };
                next = end;
            }
            let advice = "check that it was written completely, by Arrow";
            return walk.of.ok_or_else(|| Error::in_file(path, "no schema", advice));
        }
        // The end of a file: the footer, its length as i32, and the magic number without its zeros.
        let error = |problem: &str| Error::format(path.display(), len.saturating_sub(10), problem, DAMAGED);
        let end = if len < 18 { &[][..] } else { walk.window.bytes(len - 10, 10)? };
        let size = word(end).map(u64::from).filter(|&size| end.ends_with(&MAGIC[..6]) && size <= LONGEST.min(len - 18));
        let size = size.ok_or_else(|| error("no footer"))?;
        let bytes = walk.window.bytes(len - 10 - size, size)?.to_vec();
        let footer = arrow_ipc::root_as_footer(&bytes).map_err(|found| error(&format!("invalid footer: {found}")))?;
        walk.begin(footer.schema().ok_or_else(|| error("no schema"))?).map_err(|problem| error(&problem))?;
        for blocks in [footer.dictionaries(), footer.recordBatches()] {
            let mut next = 8;
            for block in blocks.into_iter().flatten() {
                let at = u64::try_from(block.offset()).ok().filter(|&at| at >= next && at < len);
                let at = at.ok_or_else(|| error("a footer whose messages are not in order"))?;
                next = walk.message(at)?.ok_or_else(|| error("a footer with a message that is not there"))?;
            }
        }
        walk.of.ok_or_else(|| error("no schema"))
    }

    /// Returns the batches of the file, each with these columns.
    pub(super) fn parts(self, leaves: &[Leaf]) -> Vec<Part> {
        let mut chosen: Vec<usize> = leaves.iter().map(|leaf| leaf.path[0]).collect();
        chosen.sort_unstable();
        chosen.dedup();
        let chosen: Arc<[usize]> = chosen.into();
        let part = |(group, batch): (usize, Batch)| {
            let (file, rows, size) = (batch.body.file, batch.rows, batch.body.len.unwrap_or(0));
            let decode = Box::new(Rows { batch, schema: self.schema.clone(), chosen: chosen.clone() });
            Part { file, group, rows, size, steps: 1, decode }
        };
        self.batches.into_iter().enumerate().map(part).collect()
    }
}

/// The state of a walk over the messages of a file.
struct Walk<'a> {
    files: &'a Arc<Files>,
    file: usize,
    path: &'a Path,
    window: Window<'a>,
    options: &'a Settings,
    is_file: bool,
    of: Option<File>,
    /// The identifiers of the dictionaries that the chosen columns use.
    used: Vec<i64>,
    /// The dictionaries that apply to the next batch.
    dictionaries: Dictionaries,
    spent: &'a AtomicU64,
}

impl Walk<'_> {
    fn begin(&mut self, schema: arrow_ipc::Schema<'_>) -> Result<(), String> {
        if schema.endianness() != arrow_ipc::Endianness::Little {
            return Err("a file of a big-endian machine; write it again with Arrow".to_owned());
        }
        let is_chosen = |field: &arrow_ipc::Field<'_>| match (&self.options.columns, field.name()) {
            (Some(chosen), Some(name)) => chosen.iter().any(|chosen| is_in(chosen, name) || is_in(name, chosen)),
            _ => true,
        };
        let fields = schema.fields().into_iter().flatten().filter(is_chosen);
        fields.for_each(|field| dictionaries(field, DEEPEST, &mut self.used));
        let schema = caught(|| arrow_ipc::convert::try_fb_to_schema(schema))?;
        let columns = Columns::new(&schema, self.options.decimals_as_f64)?;
        self.of = Some(File { columns, schema: Arc::new(schema), batches: Vec::new() });
        Ok(())
    }

    /// Reads a message. Returns the position of its end, or `None` if it ends the stream.
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
        let bytes: Arc<[u8]> = self.window.bytes(metadata, u64::from(size))?.into();
        let message =
            arrow_ipc::root_as_message(&bytes).map_err(|found| error(&format!("invalid metadata: {found}")))?;
        let body_len = u64::try_from(message.bodyLength()).ok().filter(|&found| found <= len - body);
        let body_len = body_len.ok_or_else(|| error("a body that ends after the file"))?;
        let span = Span { file: self.file, start: body, len: Some(body_len) };
        match message.header_type() {
            MessageHeader::Schema => {
                let schema = message.header_as_schema().ok_or_else(|| error("a message without its header"))?;
                if self.of.is_some() {
                    return Err(error("a second schema"));
                }
                self.begin(schema).map_err(|problem| error(&problem))?;
            }
            MessageHeader::RecordBatch => {
                let batch = message.header_as_record_batch().ok_or_else(|| error("a message without its header"))?;
                let of = self.of.as_mut().ok_or_else(|| error("a batch before the schema"))?;
                // Without columns, a batch could claim any number of rows; it is limited by the
                // file's length.
                let rows = usize::try_from(batch.length()).ok().filter(|&rows| rows as u64 <= 8 * len);
                let rows =
                    rows.ok_or_else(|| error("a number of rows that is negative, or more than the file has bits"))?;
                let dictionaries = self.dictionaries.clone();
                of.batches.push(Batch { message: bytes.clone(), body: span, rows, dictionaries });
            }
            MessageHeader::DictionaryBatch => {
                let of = self.of.as_ref().ok_or_else(|| error("a dictionary before the schema"))?;
                let found =
                    message.header_as_dictionary_batch().ok_or_else(|| error("a message without its header"))?;
                if self.is_file && !found.isDelta() && self.dictionaries.contains_key(&found.id()) {
                    return Err(error("a second dictionary of the same column"));
                }
                if !self.used.contains(&found.id()) {
                    return Ok(Some(body + body_len));
                }
                let limit = self.options.memory_limit();
                let data = found.data().ok_or_else(|| error("a message without its header"))?;
                let wrong = |problem: String| error(&format!("a dictionary: {problem}"));
                let buffer = body_of(self.files, span)?;
                check(data, &buffer, limit).map_err(wrong)?;
                let schema = of.schema.clone();
                let all = Arc::make_mut(&mut self.dictionaries);
                caught(|| read_dictionary(&buffer, found, &schema, all, &message.version())).map_err(wrong)?;
                let bytes = all.get(&found.id()).map_or(0, |values| values.get_array_memory_size() as u64);
                if self.spent.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) > limit {
                    let problem = format!("a dictionary, with the others, of more than {limit} bytes");
                    let advice = "raise `memory_limit`, or leave the column out with `columns`";
                    return Err(Error::format(self.path.display(), at, problem, advice));
                }
            }
            _ => return Err(error("a message that is neither a schema nor a batch")),
        }
        Ok(Some(body + body_len))
    }
}

impl Decode for Rows {
    fn spans(&self, _: &Files, each: &mut dyn FnMut(Span)) {
        each(self.batch.body);
    }

    fn mapped<'f>(&self, files: &'f Files) -> Option<&'f [u8]> {
        files.mapped(self.batch.body)
    }

    fn read(&self, files: &Arc<Files>, _: usize, limit: u64, _: &AtomicU64) -> Result<RecordBatch, Error> {
        let wrong = |problem: String| {
            Error::format(files.path(self.batch.body.file).display(), self.batch.body.start, problem, DAMAGED)
        };
        let message = arrow_ipc::root_as_message(&self.batch.message).map_err(|error| wrong(error.to_string()))?;
        let batch = message.header_as_record_batch().ok_or_else(|| wrong("a message without its header".to_owned()))?;
        let body = body_of(files, self.batch.body)?;
        check(batch, &body, limit).map_err(wrong)?;
        let (schema, dictionaries) = (self.schema.clone(), &self.batch.dictionaries);
        let version: MetadataVersion = Message::version(&message);
        caught(|| read_record_batch(&body, batch, schema, dictionaries, Some(&self.chosen), &version)).map_err(wrong)
    }
}

/// Adds the identifiers of the dictionaries of a column and of the columns nested in it.
fn dictionaries(field: arrow_ipc::Field<'_>, depth: usize, into: &mut Vec<i64>) {
    into.extend(field.dictionary().map(|dictionary| dictionary.id()));
    if let Some(depth) = depth.checked_sub(1) {
        field.children().into_iter().flatten().for_each(|child| dictionaries(child, depth, into));
    }
}

/// Runs the Arrow decoder, and converts a panic to an error, as a damaged file must not end the
/// program.
fn caught<T>(run: impl FnOnce() -> Result<T, arrow_schema::ArrowError>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(outcome) => outcome.map_err(|error| error.to_string()),
        Err(_) => Err("a batch that the decoder can't read".to_owned()),
    }
}

/// Checks that a batch does not unpack to more than `limit` bytes.
fn check(batch: arrow_ipc::RecordBatch<'_>, body: &Buffer, limit: u64) -> Result<(), String> {
    if batch.compression().is_none() {
        return Ok(());
    }
    let limit = limit.max(MIN);
    let mut all = 0_u64;
    for buffer in batch.buffers().into_iter().flatten() {
        let start = usize::try_from(buffer.offset()).ok();
        let len = start.and_then(|start| body.get(start..)?.first_chunk().copied());
        // An empty buffer has no length. A length of -1 means that the buffer is not compressed.
        if let Some(len) = len.filter(|_| buffer.length() > 0) {
            all = all.saturating_add(u64::try_from(i64::from_le_bytes(len)).unwrap_or(0));
        }
        if all > limit {
            return Err(format!("a batch of more than {limit} bytes, unpacked; raise `memory_limit`"));
        }
    }
    Ok(())
}

/// An owner of mapped files, which keeps them alive while arrays use their bytes.
struct Mapped(#[expect(dead_code, reason = "it is only kept")] Arc<Files>);

impl RefUnwindSafe for Mapped {}

/// Returns the body of a message. It is not copied if the file is mapped.
fn body_of(files: &Arc<Files>, span: Span) -> Result<Buffer, Error> {
    if let Some(bytes) = files.mapped(span) {
        let (start, len) = (NonNull::from(bytes).cast(), bytes.len());
        // SAFETY: the bytes are valid as long as the files, which the buffer keeps alive.
        return Ok(unsafe { Buffer::from_custom_allocation(start, len, Arc::new(Mapped(files.clone()))) });
    }
    let mut bytes = Vec::new();
    files.read_into(span, &mut bytes)?;
    Ok(bytes.into())
}

fn word(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}
