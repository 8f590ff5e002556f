//! Converts tokens to fields.

use std::io;

use slotline::dtype::{DType, Kind};

use crate::files::{Span, reserve};
use crate::{Error, FieldKind, Input, Record, RecordFields, Value};

/// The layout of samples of one length.
#[derive(Debug)]
pub(super) struct Layout {
    stored: DType,
    dtype: DType,
    /// The number of tokens of a sample in the file.
    len: usize,
    labels: Labels,
    pub(super) fields: RecordFields,
}

/// The way in which the field `labels` is made, which has the tokens shifted by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Labels {
    No,
    /// The sample has one token more than each field.
    Extra,
    /// The label of the last token is 0.
    Padded,
}

impl Layout {
    pub(super) fn new(stored: DType, widen: bool, len: usize, labels: Labels) -> Result<Self, Error> {
        let dtype = widened(stored, widen)?;
        let shape = if labels == Labels::Extra { len - 1 } else { len };
        if len.checked_mul(dtype.size()).is_none_or(|bytes| bytes > isize::MAX as usize) {
            return Err(Error::usage(format!("a sample of {len} tokens is too long"), "choose shorter blocks"));
        }
        let kind = FieldKind::Tensor(dtype, vec![shape]);
        let names = if labels == Labels::No { &["tokens"][..] } else { &["tokens", "labels"] };
        let fields = RecordFields::new(names.iter().map(|&name| (name, kind.clone())));
        Ok(Self { stored, dtype, len, labels, fields })
    }

    /// Reads the tokens of these spans, which must have as many tokens as a sample.
    pub(super) fn read<'a>(
        &'a self,
        input: Input<'a>,
        spans: impl IntoIterator<Item = Span>,
    ) -> Result<Record<'a>, Error> {
        let size = self.dtype.size();
        let bytes = match self.labels {
            Labels::Padded => input.converted(spans, |from, to| {
                convert(self.stored, self.dtype, from, to)?;
                reserve(to, size)?;
                to.resize(to.len() + size, 0);
                Ok(())
            })?,
            _ => tokens(input, spans, self.stored, self.dtype)?,
        };
        Ok(match self.labels {
            Labels::No => Record::new(&self.fields, [Value::from(bytes)]),
            Labels::Extra => {
                let end = bytes.len().saturating_sub(size);
                Record::new(&self.fields, [Value::from(&bytes[..end]), Value::from(&bytes[size.min(bytes.len())..])])
            }
            Labels::Padded => {
                Record::new(&self.fields, [Value::from(&bytes[..self.len * size]), Value::from(&bytes[size..])])
            }
        })
    }
}

/// Returns the type of the field for tokens that are stored as `stored`.
pub(super) fn widened(stored: DType, widen: bool) -> Result<DType, Error> {
    if !widen {
        return Ok(stored);
    }
    match (stored.kind(), stored) {
        (_, DType::U64) | (Kind::Bool | Kind::Float | Kind::BFloat | Kind::Complex, _) => {
            Err(Error::usage(format!("tokens of type {stored} can't become i64"), "don't set `widen`"))
        }
        (Kind::Unsigned | Kind::Signed, _) => Ok(DType::I64),
    }
}

/// Reads the tokens of these spans.
pub(super) fn tokens<'a>(
    input: Input<'a>,
    spans: impl IntoIterator<Item = Span>,
    stored: DType,
    dtype: DType,
) -> Result<&'a [u8], Error> {
    if stored == dtype {
        return input.joined(spans);
    }
    input.converted(spans, |from, to| convert(stored, dtype, from, to))
}

/// Appends tokens, as i64 if `dtype` is not the stored type.
fn convert(stored: DType, dtype: DType, from: &[u8], to: &mut Vec<u8>) -> io::Result<()> {
    fn widen<const N: usize>(from: &[u8], to: &mut Vec<u8>, number: impl Fn([u8; N]) -> i64) -> io::Result<()> {
        let (from, _) = from.as_chunks::<N>();
        let start = to.len();
        reserve(to, 8 * from.len())?;
        to.resize(start + 8 * from.len(), 0);
        let (to, _) = to[start..].as_chunks_mut::<8>();
        for (from, to) in from.iter().zip(to) {
            *to = number(*from).to_le_bytes();
        }
        Ok(())
    }
    match stored {
        _ if stored == dtype => {
            reserve(to, from.len())?;
            to.extend_from_slice(from);
            Ok(())
        }
        DType::U8 => widen(from, to, |bytes| u8::from_le_bytes(bytes).into()),
        DType::I8 => widen(from, to, |bytes| i8::from_le_bytes(bytes).into()),
        DType::U16 => widen(from, to, |bytes| u16::from_le_bytes(bytes).into()),
        DType::I16 => widen(from, to, |bytes| i16::from_le_bytes(bytes).into()),
        DType::U32 => widen(from, to, |bytes| u32::from_le_bytes(bytes).into()),
        DType::I32 => widen(from, to, |bytes| i32::from_le_bytes(bytes).into()),
        _ => unreachable!("{stored} does not become i64"),
    }
}
