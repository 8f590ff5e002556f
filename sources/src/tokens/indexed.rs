//! The index of Megatron's files.
//!
//! The layout, according to `megatron/core/datasets/indexed_dataset.py` (megatron-core 0.16.1), is:
//! the magic number, the version as u64, the type as u8, the number of sequences, and the number of
//! documents plus one, as u64; then the lengths of all sequences in tokens (i32), their positions
//! in bytes (i64), the first sequence of each document followed by the number of sequences (i64),
//! and optionally the mode of each sequence (i8). The header has 34 bytes, so the numbers after it
//! are not aligned.

use std::path::{Path, PathBuf};

use slotline::dtype::DType;

use crate::Error;
use crate::files::{Files, Span};

const MAGIC: &[u8] = b"MMIDIDX\0\0";
const HEADER: usize = 34;
const ADVICE: &str = "write the files again with Megatron, or copy both again";

/// The index of a pair of files `.bin` and `.idx`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    pub(super) dtype: DType,
    pub(super) lengths: Vec<u32>,
    pub(super) starts: Vec<u64>,
    documents: Vec<u64>,
    pub(super) modes: Vec<i8>,
}

impl Index {
    /// Returns the type of the tokens.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns the number of sequences.
    pub fn len(&self) -> usize {
        self.lengths.len()
    }

    /// Whether there are no sequences.
    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// Returns the index of the first sequence of each document, followed by the number of
    /// sequences.
    pub fn documents(&self) -> &[u64] {
        &self.documents
    }

    /// Returns the mode of each sequence, or an empty slice if the file has no modes.
    pub fn modes(&self) -> &[i8] {
        &self.modes
    }

    /// Parses the bytes of a file `.idx` that belongs to a file `.bin` of `bin_len` bytes. `name`
    /// is used in messages.
    ///
    /// # Errors
    ///
    /// If the bytes are not exactly an index of version 1, or if sequences overlap or exceed a file
    /// of this length.
    pub fn parse(name: &str, bytes: &[u8], bin_len: u64) -> Result<Self, Error> {
        let wrong = |offset: usize, problem: String| Error::format(name, offset as u64, problem, ADVICE);
        if !bytes.starts_with(MAGIC) {
            let found = &bytes[..bytes.len().min(MAGIC.len())];
            return Err(wrong(0, format!("expected {MAGIC:02x?}, found {found:02x?}")));
        }
        if bytes.len() < HEADER {
            return Err(wrong(bytes.len(), format!("the header has {HEADER} bytes, and the file ends before")));
        }
        let word = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().expect("the header is complete"));
        if word(9) != 1 {
            return Err(wrong(9, format!("expected version 1, found {}", word(9))));
        }
        let dtype =
            dtype(bytes[17]).ok_or_else(|| wrong(17, format!("expected a type from 1 to 8, found {}", bytes[17])))?;
        let (sequences, documents) = (word(18), word(26));
        let expected = u128::from(sequences) * 12 + u128::from(documents) * 8 + HEADER as u128;
        let (found, with_modes) = (bytes.len() as u128, expected + u128::from(sequences));
        if found != expected && found != with_modes {
            let problem = format!(
                "{sequences} sequences and {documents} documents make {expected} bytes, or {with_modes} with modes, and \
                 the file has {found}"
            );
            return Err(wrong(18, problem));
        }
        // The conversions do not overflow, since the file has more bytes than these numbers.
        let (sequences, documents) = (sequences as usize, documents as usize);
        let (lengths, rest) = bytes[HEADER..].split_at(4 * sequences);
        let (starts, rest) = rest.split_at(8 * sequences);
        let (first, modes) = rest.split_at(8 * documents);
        let lengths: Vec<_> = lengths.as_chunks().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
        let starts: Vec<_> = starts.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
        let first: Vec<_> = first.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
        let mut end = 0_u64;
        for (i, (&length, &start)) in lengths.iter().zip(&starts).enumerate() {
            if length > i32::MAX as u32 {
                return Err(wrong(HEADER + 4 * i, format!("sequence {i} has the length {}", length as i32)));
            }
            let at = HEADER + 4 * sequences + 8 * i;
            if start < end {
                let problem = format!("sequence {i} starts at byte {start}, and the one before ends at {end}");
                return Err(wrong(at, problem));
            }
            let stop = start.checked_add(u64::from(length) * dtype.size() as u64);
            end = stop.filter(|&stop| stop <= bin_len).ok_or_else(|| {
                wrong(
                    at,
                    format!("sequence {i} has {length} tokens from byte {start}, and the .bin has {bin_len} bytes"),
                )
            })?;
        }
        let at = HEADER + 12 * sequences;
        if !first.is_sorted() || first.last().is_some_and(|&last| last != sequences as u64) {
            return Err(wrong(at, format!("the documents do not divide the {sequences} sequences in order")));
        }
        let modes = modes.iter().map(|&mode| mode as i8).collect();
        Ok(Self { dtype, lengths, starts, documents: first, modes })
    }

    /// Opens the pair of files with this prefix. Reads the index, and returns it with the path of
    /// the tokens.
    pub(super) fn open(prefix: &Path) -> Result<(Self, PathBuf), Error> {
        let with = |extension: &str| {
            let mut path = prefix.as_os_str().to_owned();
            path.push(extension);
            PathBuf::from(path)
        };
        let (idx, bin) = (with(".idx"), with(".bin"));
        let bin_len = Files::open([&bin])?.file_len(0).unwrap_or(0);
        let (files, mut memory) = (Files::open([&idx])?, Vec::new());
        let bytes = files.read(Span { file: 0, start: 0, len: None }, &mut memory)?;
        Ok((Self::parse(&idx.display().to_string(), bytes, bin_len)?, bin))
    }

    /// Returns the span of `len` tokens of a sequence, from its token `offset` on.
    pub(super) fn span(&self, file: usize, sequence: usize, offset: u64, len: u64) -> Span {
        let size = self.dtype.size() as u64;
        Span { file, start: self.starts[sequence] + offset * size, len: Some(len * size) }
    }
}

/// Returns the type with this code. (Forks older than Megatron-Core have other floats at 6 and 7.)
fn dtype(code: u8) -> Option<DType> {
    use DType::{F32, F64, I8, I16, I32, I64, U8, U16};
    [U8, I8, I16, I32, I64, F64, F32, U16].get(usize::from(code).checked_sub(1)?).copied()
}
