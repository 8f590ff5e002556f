//! Blocks of tokens that begin at equal distances.

use std::path::Path;

use slotline::dtype::{DType, Kind};

use super::layout::{Labels, Layout};
use crate::files::{Files, Span};
use crate::open::opened;
use crate::{Error, Format, Input, Record, RecordFields, Records};

/// The header of llm.c's files, in bytes: 256 numbers of 32 bits.
const HEADER: u64 = 1024;

/// Options for cutting files of tokens into samples.
///
/// Sample `i` of a file has the `block_size` + 1 tokens that begin at token `i · stride`. The label
/// of each token is the token after it, so the last token is only a label. Tokens at the end of a
/// file that do not fill a sample are left out. The samples of a file come after those of the file
/// before it, and no sample spans two files.
///
/// nanoGPT draws blocks at random positions. To do the same, set a stride of 1, so that sample `i`
/// starts at token `i`, and use a `RandomSampler` with replacement. With the same seed, it draws
/// the same positions as nanoGPT's `get_batch`.
///
/// ```
/// use slotline::Loader;
/// use slotline_sources::tokens::BlockOptions;
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("train.bin");
/// # std::fs::write(&path, (0..9_u16).flat_map(u16::to_le_bytes).collect::<Vec<_>>())?;
/// let blocks = BlockOptions::new(4).widen(true).labels(true).open_raw([path])?;
/// let mut loader = Loader::builder(blocks).batch_size(2).build()?;
/// let batch = loader.epoch()?.next().expect("two blocks")?;
/// let columns = batch.tensors();
/// assert_eq!(columns.get(0).unwrap().typed::<i64>().unwrap().as_slice(), [0, 1, 2, 3, 4, 5, 6, 7]);
/// assert_eq!(columns.get(1).unwrap().typed::<i64>().unwrap().as_slice(), [1, 2, 3, 4, 5, 6, 7, 8]);
/// # Ok::<(), slotline::BoxError>(())
/// ```
#[derive(Clone, Debug)]
pub struct BlockOptions {
    block_size: usize,
    stride: usize,
    dtype: DType,
    widen: bool,
    /// Whether files are mapped. Only unsafe functions set it.
    pub(crate) maps: bool,
    labels: bool,
}

/// A dataset of blocks of tokens. A sample is `tokens: [block_size + 1]`, or with
/// [labels](BlockOptions::labels) `tokens` and `labels`, each `[block_size]`.
#[derive(Debug)]
pub struct Blocks {
    files: Files,
    shards: Vec<Shard>,
    len: usize,
    /// The distance from one sample to the next, in bytes.
    stride: u64,
    /// The size of a sample, in bytes.
    bytes: u64,
    layout: Layout,
}

/// A file of tokens.
#[derive(Debug)]
struct Shard {
    /// The index of the file's first sample in the dataset.
    first: usize,
    /// The position of the first token, in bytes.
    start: u64,
}

/// The kind of the files' headers.
#[derive(Clone, Copy)]
enum Header {
    No,
    LlmC,
}

impl BlockOptions {
    /// Creates options for samples of `block_size` + 1 tokens.
    pub fn new(block_size: usize) -> Self {
        Self { block_size, stride: block_size, dtype: DType::U16, widen: false, maps: false, labels: false }
    }

    /// Sets the number of tokens from the start of a sample to the start of the next one,
    /// `block_size` by default.
    pub fn stride(mut self, tokens: usize) -> Self {
        self.stride = tokens;
        self
    }

    /// Sets the type of the tokens in files without a header, `u16` by default; any integer.
    pub fn dtype(mut self, dtype: DType) -> Self {
        self.dtype = dtype;
        self
    }

    /// Sets whether tokens are converted to `i64`.
    pub fn widen(mut self, widen: bool) -> Self {
        self.widen = widen;
        self
    }

    /// Sets whether a sample has two fields of `block_size` tokens: `tokens`, and `labels`, which
    /// has the token after each of them.
    pub fn labels(mut self, labels: bool) -> Self {
        self.labels = labels;
        self
    }

    /// Maps local files into memory. It is an error if a file can't be mapped.
    ///
    /// # Safety
    ///
    /// As with [`Files::map`], the files must not be written to or shortened while the dataset
    /// lives.
    pub unsafe fn mapped(mut self) -> Self {
        self.maps = true;
        self
    }

    /// Opens files of tokens without a header, as nanoGPT writes them with NumPy's `tofile`.
    /// [Patterns](crate::paths) are expanded.
    ///
    /// # Errors
    ///
    /// If a file can't be found, its length is not a multiple of the size of a token, there are no
    /// samples, or the options are invalid.
    pub fn open_raw(&self, paths: impl IntoIterator<Item = impl AsRef<Path>>) -> Result<Records<Blocks>, Error> {
        self.open(opened(crate::paths::expand(paths)?, self.maps)?, Header::No)
    }

    /// Opens files of llm.c (`dev/data/data_common.py`). They have a header of 1024 bytes, followed
    /// by tokens of type `u16` (version 1, used for GPT-2) or `u32` (version 7, used for Llama 3).
    /// [Patterns](crate::paths) are expanded.
    ///
    /// # Errors
    ///
    /// If a file can't be read, has another header or length, the files have different types, there
    /// are no samples, or the options are invalid.
    pub fn open_llmc(&self, paths: impl IntoIterator<Item = impl AsRef<Path>>) -> Result<Records<Blocks>, Error> {
        self.open(opened(crate::paths::expand(paths)?, self.maps)?, Header::LlmC)
    }

    fn open(&self, files: Files, header: Header) -> Result<Records<Blocks>, Error> {
        if !matches!(self.dtype.kind(), Kind::Unsigned | Kind::Signed) {
            return Err(Error::usage(format!("tokens of type {}", self.dtype), "set `dtype` to a type of integers"));
        }
        let per_sample = self.block_size.checked_add(1).filter(|_| self.block_size > 0 && self.stride > 0);
        let per_sample = per_sample.ok_or_else(|| {
            let problem = format!("blocks of {} tokens with a stride of {}", self.block_size, self.stride);
            Error::usage(problem, "set both to at least 1")
        })?;
        let (mut shards, mut len, mut dtype) = (Vec::new(), 0_usize, None);
        for file in 0..files.len() {
            let path = files.path(file);
            let found = files.file_len(file).unwrap_or(0);
            let (stored, start) = match header {
                Header::No => (self.dtype, 0),
                Header::LlmC => (llmc(&files, file, &path, found)?, HEADER),
            };
            if *dtype.get_or_insert(stored) != stored {
                let problem = format!("tokens of type {stored}, and other files have another type");
                return Err(Error::in_file(path, problem, "open files of one tokenizer"));
            }
            let size = stored.size() as u64;
            if !(found - start).is_multiple_of(size) {
                let problem = format!("{} bytes, which is not a multiple of {size}", found - start);
                let advice = "set `dtype` to the type that was written, or copy the file again";
                return Err(Error::in_file(path, problem, advice));
            }
            shards.push(Shard { first: len, start });
            if let Some(rest) = ((found - start) / size).checked_sub(per_sample as u64) {
                // The sum is at most the number of bytes of all files, which is less than 2^64.
                len = len.saturating_add((rest / self.stride as u64) as usize + 1);
            }
        }
        if len == 0 {
            let problem = format!("no file has the {per_sample} tokens of a sample");
            return Err(Error::usage(problem, "set a smaller block size, or pass other files"));
        }
        let stored = dtype.unwrap_or(self.dtype);
        let labels = if self.labels { Labels::Extra } else { Labels::No };
        let layout = Layout::new(stored, self.widen, per_sample, labels)?;
        let size = stored.size() as u64;
        // If there are several samples, the stride fits in a file.
        let stride = (self.stride as u64).saturating_mul(size);
        Ok(Records::new(Blocks { files, shards, len, stride, bytes: per_sample as u64 * size, layout }))
    }
}

/// Checks the header of a llm.c file of this length. Returns the type of its tokens.
fn llmc(files: &Files, file: usize, path: &Path, found: u64) -> Result<DType, Error> {
    let mut memory = Vec::new();
    let header = files.read(Span { file, start: 0, len: Some(found.min(HEADER)) }, &mut memory)?;
    let wrong = |offset: u64, problem, advice| Err(Error::format(path.display(), offset, problem, advice));
    let (numbers, _) = header.as_chunks::<4>();
    let [magic, version, count] = match numbers {
        [magic, version, count, ..] if header.len() as u64 == HEADER => {
            [magic, version, count].map(|bytes| u32::from_le_bytes(*bytes))
        }
        _ => return wrong(0, format!("{found} bytes, and a header has {HEADER}"), "copy the file again"),
    };
    let dtype = match (magic, version) {
        (20240520, 1) => DType::U16,
        (20240801, 7) => DType::U32,
        (20240520 | 20240801, _) => {
            let expected = if magic == 20240520 { 1 } else { 7 };
            let problem = format!("version {version}, and version {expected} was expected");
            return wrong(4, problem, "write the file with a current version of llm.c");
        }
        _ => {
            let problem = format!("expected the number 20240520 or 20240801 of llm.c, found {magic}");
            return wrong(0, problem, "open files without a header with `open_raw`");
        }
    };
    let expected = HEADER + u64::from(count) * dtype.size() as u64;
    if expected != found {
        let problem = format!("{count} tokens make a file of {expected} bytes, and it has {found}");
        return wrong(8, problem, "copy the file again");
    }
    Ok(dtype)
}

impl Blocks {
    fn span(&self, index: usize) -> Span {
        let file = self.shards.partition_point(|shard| shard.first <= index) - 1;
        let shard = &self.shards[file];
        Span { file, start: shard.start + (index - shard.first) as u64 * self.stride, len: Some(self.bytes) }
    }
}

impl Format for Blocks {
    fn len(&self) -> usize {
        self.len
    }

    fn fields(&self) -> &RecordFields {
        &self.layout.fields
    }

    fn files(&self) -> &Files {
        &self.files
    }

    fn spans(&self, index: usize, each: &mut dyn FnMut(Span)) {
        each(self.span(index));
    }

    fn read<'a>(&'a self, index: usize, input: Input<'a>) -> Result<Record<'a>, Error> {
        self.layout.read(input, [self.span(index)])
    }
}
