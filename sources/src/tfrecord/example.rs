//! A parser of `tf.Example`. This is a protocol buffer with a map from names to lists of bytes, of
//! `f32` or of `i64`. A `tf.SequenceExample` has a second map, from names to lists of such lists,
//! one for each step.
//!
//! As the specification of protocol buffers demands, the last of several entries with the same name
//! counts, and lists may be packed or not. Unknown fields are errors, so that parts of another kind
//! of message are not ignored by mistake.

use slotline::dtype::DType;
use smallvec::SmallVec;

/// The error for bytes that are not a `tf.Example`: what is wrong, and at which byte.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed(pub(super) &'static str, pub(super) usize);

/// The values of one name.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Feature<'a> {
    /// There is no list of values.
    #[default]
    Empty,
    Bytes(SmallVec<[&'a [u8]; 1]>),
    /// Little-endian `f32`s, in one or more slices of bytes.
    Floats(SmallVec<[&'a [u8]; 1]>),
    /// Integers in variable-length encoding, in one or more slices of bytes.
    Integers(SmallVec<[&'a [u8]; 1]>),
    /// Values that are not supported, with a description.
    Unread(&'static str),
}

/// The values that a record has for a name.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Found<'a> {
    /// The values; for a feature list, those of all steps.
    pub(super) feature: Feature<'a>,
    /// For a feature list, the number of values in each step, or the number of bytes of each step's
    /// only value; 0 if there are no steps. `None` for a feature.
    pub(super) step: Option<usize>,
}

const UNKNOWN: &str = "an unknown field";

/// The bytes that are still to be parsed, and their position in the record.
#[derive(Clone, Copy)]
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// The value of a field of a protocol buffer.
enum Field<'a> {
    Varint,
    Fixed(&'a [u8]),
    Message(Reader<'a>),
}

impl<'a> Reader<'a> {
    fn take(&mut self, len: u64) -> Result<&'a [u8], Malformed> {
        let split = usize::try_from(len).ok().and_then(|len| self.bytes.split_at_checked(len));
        let (taken, rest) = split.ok_or(Malformed("a length beyond the end", self.at))?;
        (self.bytes, self.at) = (rest, self.at + taken.len());
        Ok(taken)
    }

    fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0_u64;
        for (i, &byte) in self.bytes.iter().take(10).enumerate() {
            // The tenth byte has only one significant bit; protobuf ignores the others.
            value |= u64::from(byte & 0x7f) << (7 * i);
            if byte < 0x80 {
                (self.bytes, self.at) = (&self.bytes[i + 1..], self.at + i + 1);
                return Ok(value);
            }
        }
        Err(Malformed("an unfinished integer", self.at))
    }

    /// Returns the next field and its number; `None` at the end.
    fn field(&mut self) -> Result<Option<(u64, Field<'a>)>, Malformed> {
        if self.bytes.is_empty() {
            return Ok(None);
        }
        let at = self.at;
        let tag = self.varint()?;
        let field = match tag & 7 {
            0 => {
                self.varint()?;
                Field::Varint
            }
            1 => Field::Fixed(self.take(8)?),
            2 => {
                let len = self.varint()?;
                let at = self.at;
                Field::Message(Reader { bytes: self.take(len)?, at })
            }
            5 => Field::Fixed(self.take(4)?),
            _ => return Err(Malformed("a field of an unknown kind", at)),
        };
        if tag >> 3 == 0 {
            return Err(Malformed("a field with number 0", at));
        }
        Ok(Some((tag >> 3, field)))
    }

    /// Returns the next message with field number 1, or `None` at the end. Any other field is an
    /// error.
    fn message(&mut self) -> Result<Option<Self>, Malformed> {
        let at = self.at;
        match self.field()? {
            None => Ok(None),
            Some((1, Field::Message(message))) => Ok(Some(message)),
            Some(_) => Err(Malformed(UNKNOWN, at)),
        }
    }
}

/// Calls `each` with the names and values of a `tf.Example` or `tf.SequenceExample`, in the order
/// in which they are stored.
pub(super) fn parse<'a>(bytes: &'a [u8], mut each: impl FnMut(&'a str, Found<'a>)) -> Result<(), Malformed> {
    let mut example = Reader { bytes, at: 0 };
    loop {
        let at = example.at;
        let (lists, mut features) = match example.field()? {
            None => return Ok(()),
            Some((number @ (1 | 2), Field::Message(features))) => (number == 2, features),
            Some(_) => return Err(Malformed(UNKNOWN, at)),
        };
        while let Some(mut entry) = features.message()? {
            let mut name = "";
            let mut found = Found { feature: Feature::Empty, step: lists.then_some(0) };
            loop {
                let at = entry.at;
                match entry.field()? {
                    None => break,
                    Some((1, Field::Message(key))) => {
                        name = std::str::from_utf8(key.bytes)
                            .map_err(|_| Malformed("a name that is not UTF-8", key.at))?;
                    }
                    Some((2, Field::Message(value))) if !lists => found.feature.merge(value)?,
                    Some((2, Field::Message(mut steps))) => {
                        while let Some(step) = steps.message()? {
                            found.add(step)?;
                        }
                    }
                    Some(_) => return Err(Malformed(UNKNOWN, at)),
                }
            }
            each(name, found);
        }
    }
}

impl<'a> Found<'a> {
    /// Adds a step of a feature list.
    fn add(&mut self, step: Reader<'a>) -> Result<(), Malformed> {
        let mut next = Feature::Empty;
        next.merge(step)?;
        let len = next.items();
        match (&mut self.feature, next) {
            (Feature::Unread(_), _) => {}
            (all, _) if len == 0 => *all = Feature::Unread("steps without values"),
            (all, Feature::Bytes(values)) if values.len() > 1 => {
                *all = Feature::Unread("steps with several values of bytes")
            }
            (all @ Feature::Empty, next) => (*all, self.step) = (next, Some(len)),
            (Feature::Bytes(all), Feature::Bytes(next))
            | (Feature::Floats(all), Feature::Floats(next))
            | (Feature::Integers(all), Feature::Integers(next))
                if self.step == Some(len) =>
            {
                all.extend(next);
            }
            (all, _) => *all = Feature::Unread("steps of different kinds or lengths"),
        }
        Ok(())
    }

    /// Replaces what was found for the same name before, unless a feature of the other kind
    /// (feature or feature list) would be lost.
    pub(super) fn replace(self, before: &mut Option<Self>) {
        let feature = match before {
            Some(before) if before.step.is_some() != self.step.is_some() => {
                Feature::Unread("a feature and a feature list")
            }
            _ => self.feature,
        };
        *before = Some(Self { feature, ..self });
    }
}

impl<'a> Feature<'a> {
    /// Merges the values of a message into this feature.
    fn merge(&mut self, mut message: Reader<'a>) -> Result<(), Malformed> {
        loop {
            let at = message.at;
            let Some((number, field)) = message.field()? else { return Ok(()) };
            let Field::Message(mut list) = field else { return Err(Malformed(UNKNOWN, at)) };
            match (number, &*self) {
                (1, Self::Bytes(_)) | (2, Self::Floats(_)) | (3, Self::Integers(_)) => {}
                (1, _) => *self = Self::Bytes(SmallVec::new()),
                (2, _) => *self = Self::Floats(SmallVec::new()),
                (3, _) => *self = Self::Integers(SmallVec::new()),
                _ => return Err(Malformed(UNKNOWN, at)),
            }
            loop {
                let before = list;
                let Some((number, field)) = list.field()? else { break };
                match (number, field, &mut *self) {
                    (1, Field::Message(value), Self::Bytes(values)) => values.push(value.bytes),
                    (1, Field::Message(run), Self::Floats(runs)) if run.bytes.len().is_multiple_of(4) => {
                        runs.push(run.bytes);
                    }
                    (1, Field::Fixed(value @ [_, _, _, _]), Self::Floats(runs)) => runs.push(value),
                    (1, Field::Message(run), Self::Integers(runs)) => {
                        integers(run.bytes, run.at, |_| {})?;
                        runs.push(run.bytes);
                    }
                    (1, Field::Varint, Self::Integers(runs)) => {
                        let mut value = before;
                        value.varint()?;
                        let len = value.bytes.len() - list.bytes.len();
                        runs.push(&value.bytes[..len]);
                    }
                    (1, _, _) => return Err(Malformed("a value of another kind than its list", before.at)),
                    _ => return Err(Malformed(UNKNOWN, before.at)),
                }
            }
        }
    }

    /// Returns the type of the values, `U8` for bytes; `None` if there are none.
    pub(super) fn dtype(&self) -> Option<DType> {
        match self {
            Self::Empty | Self::Unread(_) => None,
            Self::Bytes(_) => Some(DType::U8),
            Self::Floats(_) => Some(DType::F32),
            Self::Integers(_) => Some(DType::I64),
        }
    }

    /// Returns the number of values, or of bytes.
    pub(super) fn items(&self) -> usize {
        match self {
            Self::Empty | Self::Unread(_) => 0,
            Self::Bytes(values) => values.iter().map(|value| value.len()).sum(),
            Self::Floats(runs) => runs.iter().map(|run| run.len() / 4).sum(),
            Self::Integers(runs) => {
                let mut count = 0;
                Self::integers(runs, |_| count += 1);
                count
            }
        }
    }

    /// Calls `each` with the integers that are encoded in `runs`.
    pub(super) fn integers(runs: &[&[u8]], mut each: impl FnMut(i64)) {
        for run in runs {
            // The integers were validated when the feature was parsed.
            let _ = integers(run, 0, &mut each);
        }
    }
}

fn integers(run: &[u8], at: usize, mut each: impl FnMut(i64)) -> Result<(), Malformed> {
    let mut reader = Reader { bytes: run, at };
    while !reader.bytes.is_empty() {
        each(reader.varint()?.cast_signed());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(number: u8, bytes: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, bytes.len() as u8], bytes].concat()
    }

    fn example(value: &[u8]) -> Vec<u8> {
        message(1, &message(1, &[message(1, b"x"), message(2, value)].concat()))
    }

    fn found(bytes: &[u8]) -> Result<Feature<'_>, Malformed> {
        let mut found = Feature::Empty;
        parse(bytes, |name, value| {
            assert_eq!(name, "x");
            found = value.feature;
        })?;
        Ok(found)
    }

    #[test]
    fn lists_may_be_packed_or_not() {
        let unpacked = message(3, &[8, 1, 8, 0xac, 2]);
        let packed = message(3, &message(1, &[1, 0xac, 2]));
        for list in [&unpacked, &packed] {
            let bytes = example(list);
            let Feature::Integers(runs) = found(&bytes).unwrap() else { panic!("integers") };
            let mut numbers = Vec::new();
            Feature::integers(&runs, |number| numbers.push(number));
            assert_eq!(numbers, [1, 300]);
        }
        let floats = example(&message(2, &[0x0d, 0, 0, 0x80, 0x3f]));
        assert_eq!(found(&floats), Ok(Feature::Floats(SmallVec::from_slice(&[&[0, 0, 0x80, 0x3f][..]]))));
    }

    #[test]
    fn of_two_lists_of_different_kinds_the_last_counts() {
        let both = [message(3, &[8, 1]), message(1, &message(1, b"b"))].concat();
        assert_eq!(found(&example(&both)), Ok(Feature::Bytes(SmallVec::from_slice(&[&b"b"[..]]))));
        let twice = [message(1, &message(1, b"a")), message(1, &message(1, b"b"))].concat();
        assert_eq!(found(&example(&twice)), Ok(Feature::Bytes(SmallVec::from_slice(&[&b"a"[..], b"b"]))));
    }

    #[test]
    fn malformed_bytes_are_errors() {
        for bytes in [&[0x0a, 5][..], &[0x0b], &[0x80], &[0xff; 11], &[2, 0]] {
            found(bytes).expect_err("malformed");
        }
        found(&example(&message(2, &message(1, &[0; 3])))).expect_err("not a whole number of floats");
        found(&example(&message(3, &message(1, &[0x80])))).expect_err("an unfinished integer");
        found(&example(&message(3, &message(1, &[0x80; 20])))).expect_err("a long integer");
        found(&example(&message(1, &[8, 1]))).expect_err("an integer in a list of bytes");
    }
}
