//! The values of one row.

use std::borrow::Cow;
use std::io::Read;
use std::ops::Range;

use slotline::dtype::DType;
use smallvec::SmallVec;

use super::Arrow;
use super::dictionary::{self, Values};
use super::schema::{Holds, Layout, Leaf};
use super::walk::{Batch, Codec};
use crate::files::{Files, Span};
use crate::{Error, Input, Value, decimal};

pub(super) const DAMAGED: &str = "the file is damaged: copy it or write it again";

/// A batch in memory.
#[derive(Debug)]
pub(super) struct Body {
    bytes: Vec<u8>,
    /// The positions and lengths of the buffers in it. Those of columns that are not read may be empty.
    buffers: Vec<(u64, u64)>,
}

impl Arrow {
    /// Reads the values of a row.
    pub(super) fn values<'a>(&'a self, index: usize, input: Input<'a>) -> Result<SmallVec<[Value<'a>; 4]>, Error> {
        let (number, row) = self.place(index);
        let (file, batch) = &self.batches[number];
        let wrong = |problem: String| {
            let problem = format!("row {index}: {problem}");
            let advice = if problem.ends_with(MISSING) {
                MISSING_ADVICE
            } else if problem.ends_with(HOLE) {
                "fill it in, or leave the column out with `columns`"
            } else {
                DAMAGED
            };
            Error::format(self.files.path(*file).display(), batch.start, problem, advice)
        };
        if self.keep || batch.codec.is_some() {
            let body = self.kept.get(number, || {
                let body = Body::load(&self.files, *file, batch, &self.leaves, self.kept.limit())?;
                let bytes = body.bytes.len() as u64;
                Ok((body, bytes))
            })?;
            let body = input.hold(body);
            let place = |buffer, range| body.place(buffer, range).map(Cow::Borrowed);
            return self.row(*file, batch, row, place).map_err(wrong);
        }
        if let Some(bytes) = self.files.mapped(self.body(number)) {
            let place = |buffer: usize, range| part(bytes, batch.buffers[buffer], range).map(Cow::Borrowed);
            return self.row(*file, batch, row, place).map_err(wrong);
        }
        let mut failed = None;
        let place = |buffer: usize, range: Range<u64>| {
            let (start, len) = batch.buffers[buffer];
            if range.start > range.end || range.end > len {
                return None;
            }
            let (start, len) = (batch.start + start + range.start, range.end - range.start);
            let mut bytes = Vec::new();
            match self.files.read_into(Span { file: *file, start, len: Some(len) }, &mut bytes) {
                Ok(()) => Some(Cow::Owned(bytes)),
                Err(error) => {
                    failed.get_or_insert(error);
                    None
                }
            }
        };
        let values = self.row(*file, batch, row, place);
        match failed {
            Some(error) => Err(error),
            None => values.map_err(wrong),
        }
    }

    /// Reads the values of a row. `place` returns bytes of a buffer, if it has them.
    fn row<'a>(
        &'a self,
        file: usize,
        batch: &Batch,
        row: u64,
        mut place: impl FnMut(usize, Range<u64>) -> Option<Cow<'a, [u8]>>,
    ) -> Result<SmallVec<[Value<'a>; 4]>, String> {
        let dictionaries = self.dictionaries.get(file).map_or(&[][..], |all| &all[..]);
        let mut values = SmallVec::new();
        for leaf in &self.leaves {
            // Most columns are numbers, of which none is missing.
            if let (Layout::Fixed, Holds::Number(dtype)) = (leaf.layout, &leaf.holds)
                && leaf.validity.iter().all(|(_, node)| batch.nulls[*node] == 0)
            {
                let size = dtype.size() as u64;
                if let Some(bytes) = place(leaf.data, row * size..(row + 1) * size) {
                    values.push(Value::Bytes(bytes));
                    continue;
                }
            }
            values.push(match value(leaf, batch, row, &mut place, dictionaries)? {
                Some(value) => value,
                None if !self.missing_as_zero => return Err(format!("column {}{MISSING}", leaf.name)),
                None => match &leaf.holds {
                    Holds::Bits => Value::number(false),
                    Holds::Decimal(..) => Value::number(0.0_f64),
                    Holds::Number(_) | Holds::Tensor(..) => Value::Bytes(Cow::Owned(vec![0; leaf.row_bytes()])),
                    Holds::List(_) | Holds::Bytes | Holds::Text => Value::from(&[][..]),
                },
            });
        }
        Ok(values)
    }
}

/// Reads the value of a column in a row: `None` if it is missing. The parts of the file's dictionaries are in
/// `dictionaries`.
#[inline(always)]
pub(super) fn value<'a>(
    leaf: &Leaf,
    batch: &Batch,
    row: u64,
    mut place: impl FnMut(usize, Range<u64>) -> Option<Cow<'a, [u8]>>,
    dictionaries: &'a [Vec<Values>],
) -> Result<Option<Value<'a>>, String> {
    let ends = || format!("column {}: a value that ends after its buffer", leaf.name);
    for &(buffer, _) in leaf.validity.iter().filter(|(_, node)| batch.nulls[*node] > 0) {
        let byte = place(buffer, row / 8..row / 8 + 1).ok_or_else(ends)?;
        if byte[0] >> (row % 8) & 1 == 0 {
            return Ok(None);
        }
    }
    let size = leaf.row_bytes() as u64;
    let range = match leaf.layout {
        Layout::Fixed if leaf.holds == Holds::Bits => {
            let byte = place(leaf.data, row / 8..row / 8 + 1).ok_or_else(ends)?;
            return Ok(Some(Value::number(byte[0] >> (row % 8) & 1 == 1)));
        }
        Layout::Fixed => row * size..(row + 1) * size,
        Layout::Offsets { buffer, wide } => {
            let width = if wide { 8 } else { 4 };
            let offsets = place(buffer, row * width..(row + 2) * width).ok_or_else(ends)?;
            let (start, end) = offsets.split_at(width as usize);
            let scaled = |at: &[u8]| offset(at).and_then(|at| at.checked_mul(size)).ok_or_else(ends);
            scaled(start)?..scaled(end)?
        }
        Layout::Sizes { offsets, sizes, wide } => {
            let width = if wide { 8 } else { 4 };
            let mut read = |buffer| offset(&place(buffer, row * width..(row + 1) * width)?);
            let (start, items) = (read(offsets), read(sizes));
            let range = start.zip(items).and_then(|(start, items)| {
                let end = start.checked_add(items)?.checked_mul(size)?;
                Some(start.checked_mul(size)?..end)
            });
            range.ok_or_else(ends)?
        }
        Layout::Views(number) => {
            let bytes = view(leaf, batch.views[number], row, &mut place).ok_or_else(ends)?;
            return text(leaf, bytes).map(Some);
        }
        Layout::Dictionary(number, dtype) => {
            let size = dtype.size() as u64;
            let bytes = place(leaf.data, row * size..(row + 1) * size).ok_or_else(ends)?;
            let (first, end) = batch.dictionaries[number];
            let found =
                index(dtype, &bytes).and_then(|index| dictionary::find(&dictionaries[number][first..end], index).ok());
            let found = found.ok_or_else(|| format!("column {}: an index that is not in its dictionary", leaf.name))?;
            return Ok(found.map(Value::from));
        }
    };
    check_inner(leaf, batch, &range, &mut place).map_err(|found| match found {
        Some(()) => format!("column {}{HOLE}", leaf.name),
        None => ends(),
    })?;
    let bytes = place(leaf.data, range).ok_or_else(ends)?;
    if let Holds::Decimal(_, scale) = leaf.holds {
        return Ok(Some(Value::number(decimal::to_f64(decimal::from_le(&bytes), scale))));
    }
    text(leaf, bytes).map(Some)
}

/// Returns bytes as a value, which of a text are UTF-8.
fn text<'a>(leaf: &Leaf, bytes: Cow<'a, [u8]>) -> Result<Value<'a>, String> {
    if leaf.holds == Holds::Text && std::str::from_utf8(&bytes).is_err() {
        return Err(format!("column {}: a text that is not UTF-8", leaf.name));
    }
    Ok(Value::Bytes(bytes))
}

/// Reads what a view stands for: an i32 length, and up to 12 bytes; or 4 of them, which buffer they are in, and where.
fn view<'a>(
    leaf: &Leaf,
    (first, buffers): (usize, usize),
    row: u64,
    place: &mut impl FnMut(usize, Range<u64>) -> Option<Cow<'a, [u8]>>,
) -> Option<Cow<'a, [u8]>> {
    let view = place(leaf.data, row * 16..(row + 1) * 16)?;
    let word = |at: usize| offset(&view[at..at + 4]);
    let len = word(0)?;
    if len <= 12 {
        let end = 4 + len as usize;
        return Some(match view {
            Cow::Borrowed(view) => Cow::Borrowed(&view[4..end]),
            Cow::Owned(view) => Cow::Owned(view[4..end].to_vec()),
        });
    }
    let (buffer, start) = (word(8)? as usize, word(12)?);
    if buffer >= buffers {
        return None;
    }
    place(first + buffer, start..start + len)
}

/// Checks that no element of a list is missing: `Err(Some(()))` if one is, `Err(None)` if that can't be read.
fn check_inner<'a>(
    leaf: &Leaf,
    batch: &Batch,
    bytes: &Range<u64>,
    place: &mut impl FnMut(usize, Range<u64>) -> Option<Cow<'a, [u8]>>,
) -> Result<(), Option<()>> {
    let Some((buffer, _)) = leaf.inner_validity.filter(|(_, node)| batch.nulls[*node] > 0) else { return Ok(()) };
    let size = match &leaf.holds {
        Holds::List(dtype) | Holds::Tensor(dtype, _) => dtype.size() as u64,
        _ => return Ok(()),
    };
    let items = bytes.start / size..bytes.end / size;
    if items.start >= items.end {
        return Ok(());
    }
    let bits = place(buffer, items.start / 8..items.end.div_ceil(8)).ok_or(None)?;
    let first = items.start / 8 * 8;
    let is_there = |item: u64| bits[((item - first) / 8) as usize] >> (item % 8) & 1 == 1;
    if items.clone().all(is_there) { Ok(()) } else { Err(Some(())) }
}

impl Body {
    /// Reads a batch, and unpacks the buffers of `leaves` if it is compressed, to `limit` bytes at most.
    pub(super) fn load(files: &Files, file: usize, batch: &Batch, leaves: &[Leaf], limit: u64) -> Result<Self, Error> {
        let mut bytes = Vec::new();
        files.read_into(Span { file, start: batch.start, len: Some(batch.len) }, &mut bytes)?;
        let Some(codec) = batch.codec else { return Ok(Self { bytes, buffers: batch.buffers.clone() }) };
        let wrong = |problem: String| Error::format(files.path(file).display(), batch.start, problem, DAMAGED);
        let mut body = Self { bytes: Vec::new(), buffers: vec![(0, 0); batch.buffers.len()] };
        for leaf in leaves {
            let inner = leaf.inner_validity.iter();
            let validity = leaf.validity.iter().chain(inner).filter(|(_, node)| batch.nulls[*node] > 0);
            for buffer in validity.map(|(buffer, _)| *buffer).chain(batch.buffers_of(leaf)) {
                if body.buffers[buffer].1 > 0 {
                    continue;
                }
                let (start, len) = batch.buffers[buffer];
                let packed = &bytes[start as usize..(start + len) as usize];
                let before = body.bytes.len() as u64;
                unpack(packed, codec, limit, &mut body.bytes)
                    .map_err(|problem| wrong(format!("column {}: {problem}", leaf.name)))?;
                body.buffers[buffer] = (before, body.bytes.len() as u64 - before);
            }
        }
        batch.check(leaves.iter(), &body.buffers).map_err(wrong)?;
        Ok(body)
    }

    /// Returns a part of a buffer.
    pub(super) fn place(&self, buffer: usize, range: Range<u64>) -> Option<&[u8]> {
        part(&self.bytes, self.buffers[buffer], range)
    }
}

/// What a message about a list with a missing element ends with.
const HOLE: &str = " has an element without a value (null)";
/// What a message about a missing value ends with.
const MISSING: &str = " has no value (null)";
const MISSING_ADVICE: &str = "fill it in, leave the column out with `columns`, or set `missing_as_zero`";

/// Returns a part of a buffer.
fn part(body: &[u8], (start, len): (u64, u64), range: Range<u64>) -> Option<&[u8]> {
    let buffer = body.get(start as usize..(start + len) as usize)?;
    buffer.get(usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?)
}

/// Reads an offset of 4 or 8 bytes.
fn offset(bytes: &[u8]) -> Option<u64> {
    match bytes.first_chunk() {
        Some(wide) => i64::from_le_bytes(*wide).try_into().ok(),
        None => i32::from_le_bytes(*bytes.first_chunk()?).try_into().ok(),
    }
}

/// Reads an index of a dictionary.
fn index(dtype: DType, bytes: &[u8]) -> Option<u64> {
    let mut wide = [0; 8];
    wide.get_mut(..bytes.len())?.copy_from_slice(bytes);
    let index = u64::from_le_bytes(wide);
    let is_signed = matches!(dtype, DType::I8 | DType::I16 | DType::I32 | DType::I64);
    (!is_signed || index >> (8 * bytes.len() - 1) == 0).then_some(index)
}

/// Appends what a buffer unpacks to: after its length in 8 bytes, or -1 if it is not compressed, come the packed bytes.
fn unpack(packed: &[u8], codec: Codec, limit: u64, into: &mut Vec<u8>) -> Result<(), String> {
    let Some((len, rest)) = packed.split_first_chunk::<8>() else {
        return if packed.is_empty() { Ok(()) } else { Err("a buffer without its length".to_owned()) };
    };
    let is_packed = i64::from_le_bytes(*len) != -1;
    let len = if is_packed { i64::from_le_bytes(*len) } else { rest.len() as i64 };
    let len = u64::try_from(len).map_err(|_| "a buffer of a negative length".to_owned())?;
    if (into.len() as u64).checked_add(len).is_none_or(|all| all > limit) {
        return Err(format!("a batch of more than {limit} bytes, unpacked; raise `memory_limit`"));
    }
    if !is_packed {
        into.extend_from_slice(rest);
        return Ok(());
    }
    // Memory grows with what is unpacked.
    let before = into.len();
    let read = match codec {
        Codec::Zstd => zstd::Decoder::with_buffer(rest).and_then(|decoder| decoder.take(len + 1).read_to_end(into)),
        Codec::Lz4 => lz4_flex::frame::FrameDecoder::new(rest).take(len + 1).read_to_end(into),
    };
    read.map_err(|error| format!("can't be unpacked: {error}"))?;
    match (into.len() - before) as u64 == len {
        true => Ok(()),
        false => Err(format!("a buffer that does not unpack to {len} bytes")),
    }
}
