//! The values of one row.

use std::borrow::Cow;
use std::io::Read;
use std::ops::Range;

use smallvec::SmallVec;

use super::Arrow;
use super::schema::{Holds, Leaf};
use super::walk::{Batch, Codec};
use crate::files::Span;
use crate::{Error, Input, Value};

const DAMAGED: &str = "the file is damaged: copy it or write it again";

/// A batch in memory.
pub(super) struct Body {
    bytes: Vec<u8>,
    /// The positions and lengths of the buffers in it. Those of columns that are not read may be empty.
    buffers: Vec<(u64, u64)>,
}

/// The values of a row, or what is wrong with it.
type Values<'a> = SmallVec<[Value<'a>; 4]>;

impl Arrow {
    /// Reads the values of a row.
    pub(super) fn values<'a>(&'a self, index: usize, input: Input<'a>) -> Result<Values<'a>, Error> {
        let (number, row) = self.place(index);
        let (file, batch) = &self.batches[number];
        let wrong = |problem: String| {
            let problem = format!("row {index}: {problem}");
            let advice = if problem.ends_with(MISSING) { MISSING_ADVICE } else { DAMAGED };
            Error::format(self.files.path(*file).display(), batch.start, problem, advice)
        };
        if self.keep || batch.codec.is_some() {
            let body = self.kept.get(number, || {
                let body = self.load(number)?;
                let bytes = body.bytes.len() as u64;
                Ok((body, bytes))
            })?;
            let body = input.hold(body);
            let place =
                |buffer: usize, range: Range<u64>| part(&body.bytes, body.buffers[buffer], range).map(Cow::Borrowed);
            return self.row(batch, row, place).map_err(wrong);
        }
        if let Some(bytes) = self.files.mapped(self.body(number)) {
            let place = |buffer: usize, range: Range<u64>| part(bytes, batch.buffers[buffer], range).map(Cow::Borrowed);
            return self.row(batch, row, place).map_err(wrong);
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
        let values = self.row(batch, row, place);
        match failed {
            Some(error) => Err(error),
            None => values.map_err(wrong),
        }
    }

    /// Reads the values of a row. `place` returns bytes of a buffer, if it has them.
    fn row<'a>(
        &self,
        batch: &Batch,
        row: u64,
        mut place: impl FnMut(usize, Range<u64>) -> Option<Cow<'a, [u8]>>,
    ) -> Result<Values<'a>, String> {
        let mut values = Values::new();
        for leaf in &self.leaves {
            let ends = || format!("column {}: a value that ends after its buffer", leaf.name);
            let missing = || format!("column {}{MISSING}", leaf.name);
            let mut is_missing = false;
            for &(buffer, _) in leaf.validity.iter().filter(|(_, node)| batch.nulls[*node] > 0) {
                let byte = place(buffer, row / 8..row / 8 + 1).ok_or_else(ends)?;
                is_missing |= byte[0] >> (row % 8) & 1 == 0;
            }
            if is_missing && !self.missing_as_zero {
                return Err(missing());
            }
            let size = leaf.row_bytes() as u64;
            if leaf.holds == Holds::Bits {
                let byte = place(leaf.data, row / 8..row / 8 + 1).ok_or_else(ends)?;
                values.push(Value::number(!is_missing && byte[0] >> (row % 8) & 1 == 1));
                continue;
            }
            let range = match leaf.offsets {
                _ if is_missing && leaf.offsets.is_some() => 0..0,
                Some((buffer, wide)) => {
                    let width = if wide { 8 } else { 4 };
                    let offsets = place(buffer, row * width..(row + 2) * width).ok_or_else(ends)?;
                    let (start, end) = (offset(&offsets[..width as usize]), offset(&offsets[width as usize..]));
                    let scaled = |at: Option<u64>| at.and_then(|at| at.checked_mul(size));
                    scaled(start).ok_or_else(ends)?..scaled(end).ok_or_else(ends)?
                }
                None => row * size..(row + 1) * size,
            };
            self.check_inner(leaf, batch, &range, &mut place)
                .map_err(|found| found.map_or_else(ends, |()| missing()))?;
            let mut bytes = place(leaf.data, range).ok_or_else(ends)?;
            if is_missing && leaf.offsets.is_none() {
                bytes = Cow::Owned(vec![0; bytes.len()]);
            }
            if leaf.holds == Holds::Text && std::str::from_utf8(&bytes).is_err() {
                return Err(format!("column {}: a text that is not UTF-8", leaf.name));
            }
            values.push(Value::Bytes(bytes));
        }
        Ok(values)
    }

    /// Checks that no element of a list is missing: `Err(Some(()))` if one is, `Err(None)` if that can't be read.
    fn check_inner<'a>(
        &self,
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

    /// Reads a batch, and unpacks the buffers of the columns that are read.
    fn load(&self, number: usize) -> Result<Body, Error> {
        let (file, batch) = &self.batches[number];
        let mut bytes = Vec::new();
        self.files.read_into(self.body(number), &mut bytes)?;
        let Some(codec) = batch.codec else { return Ok(Body { bytes, buffers: batch.buffers.clone() }) };
        let wrong = |problem: String| Error::format(self.files.path(*file).display(), batch.start, problem, DAMAGED);
        let mut body = Body { bytes: Vec::new(), buffers: vec![(0, 0); batch.buffers.len()] };
        for leaf in &self.leaves {
            let inner = leaf.inner_validity.iter();
            let validity = leaf.validity.iter().chain(inner).filter(|(_, node)| batch.nulls[*node] > 0);
            let offsets = leaf.offsets.iter().map(|(buffer, _)| *buffer);
            for buffer in validity.map(|(buffer, _)| *buffer).chain(offsets).chain([leaf.data]) {
                if body.buffers[buffer].1 > 0 {
                    continue;
                }
                let (start, len) = batch.buffers[buffer];
                let packed = &bytes[start as usize..(start + len) as usize];
                let before = body.bytes.len() as u64;
                unpack(packed, codec, self.kept.limit(), &mut body.bytes)
                    .map_err(|problem| wrong(format!("column {}: {problem}", leaf.name)))?;
                body.buffers[buffer] = (before, body.bytes.len() as u64 - before);
            }
        }
        batch.check(self.leaves.iter(), &body.buffers).map_err(wrong)?;
        Ok(body)
    }
}

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

/// Appends what a buffer unpacks to: after its length in 8 bytes, or -1 if it is not compressed, come the packed bytes.
fn unpack(packed: &[u8], codec: Codec, limit: u64, into: &mut Vec<u8>) -> Result<(), String> {
    let Some((len, rest)) = packed.split_first_chunk::<8>() else {
        return if packed.is_empty() { Ok(()) } else { Err("a buffer without its length".to_owned()) };
    };
    let len = match i64::from_le_bytes(*len) {
        -1 => {
            into.extend_from_slice(rest);
            return Ok(());
        }
        len => u64::try_from(len).map_err(|_| "a buffer of a negative length".to_owned())?,
    };
    if (into.len() as u64).checked_add(len).is_none_or(|all| all > limit) {
        return Err(format!("a batch of more than {limit} bytes, unpacked; raise `memory_limit`"));
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
