//! A reader of Thrift's compact protocol. It is used to check sizes and depths before the Parquet
//! decoder, which trusts them, runs.
//!
//! A struct is a list of fields. A field begins with a byte. Its lower half is the type. Its upper
//! half is the difference between the field's number and the previous field's number; if that is 0,
//! the number itself follows. A byte of 0 ends the struct.

/// The codes of the types of values.
const TRUE: u8 = 1;
const FALSE: u8 = 2;
const BYTE: u8 = 3;
const I16: u8 = 4;
const I32: u8 = 5;
const I64: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const SET: u8 = 10;
const MAP: u8 = 11;
const STRUCT: u8 = 12;

/// The maximum depth of nested values.
const DEEPEST: u32 = 64;

/// The bytes that are still to be read. Methods return `None` if the bytes end or are invalid.
pub(super) struct Bytes<'a>(pub(super) &'a [u8]);

impl Bytes<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(byte)
    }

    /// Reads an integer that is stored in groups of 7 bits per byte, the lowest group first.
    fn varint(&mut self) -> Option<u64> {
        let mut all = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            all |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(all);
            }
        }
        None
    }

    /// Reads a signed integer in zigzag encoding: its lowest bit is the sign.
    pub(super) fn int(&mut self) -> Option<i64> {
        let found = self.varint()?;
        Some((found >> 1) as i64 ^ -((found & 1) as i64))
    }

    fn pass(&mut self, len: u64) -> Option<()> {
        self.0 = self.0.get(usize::try_from(len).ok()?..)?;
        Some(())
    }

    /// Reads the header of a list: the type and the number of its elements.
    fn list(&mut self) -> Option<(u8, u64)> {
        let byte = self.byte()?;
        let len = if byte >> 4 == 15 { self.varint()? } else { u64::from(byte >> 4) };
        Some((byte & 15, len))
    }

    /// Reads a struct. `each` is called with the number and the type of each field, and returns
    /// whether it has read the value.
    pub(super) fn fields(&mut self, mut each: impl FnMut(&mut Self, i64, Kind) -> Option<bool>) -> Option<()> {
        self.fields_below(DEEPEST, &mut each)
    }

    fn fields_below(&mut self, depth: u32, each: &mut dyn FnMut(&mut Self, i64, Kind) -> Option<bool>) -> Option<()> {
        let (depth, mut number) = (depth.checked_sub(1)?, 0_i64);
        loop {
            let byte = self.byte()?;
            if byte == 0 {
                return Some(());
            }
            number = if byte >> 4 == 0 { self.int()? } else { number.checked_add(i64::from(byte >> 4))? };
            let kind = byte & 15;
            if !each(self, number, Kind(kind))? {
                self.skip(kind, true, depth)?;
            }
        }
    }

    /// Skips a value. A truth value in a field is encoded in the field's type; elsewhere it is a
    /// byte.
    fn skip(&mut self, kind: u8, in_field: bool, depth: u32) -> Option<()> {
        match kind {
            TRUE | FALSE if in_field => Some(()),
            TRUE | FALSE | BYTE => self.pass(1),
            I16 | I32 | I64 => self.varint().map(|_| ()),
            DOUBLE => self.pass(8),
            BINARY => {
                let len = self.varint()?;
                self.pass(len)
            }
            LIST | SET => {
                let (kind, len) = self.list()?;
                let depth = depth.checked_sub(1)?;
                // Each element takes at least a byte, so the number of steps is limited.
                (0..len).try_for_each(|_| self.skip(kind, false, depth))
            }
            MAP => {
                let (len, depth) = (self.varint()?, depth.checked_sub(1)?);
                let kinds = if len == 0 { 0 } else { self.byte()? };
                (0..len).try_for_each(|_| {
                    self.skip(kinds >> 4, false, depth)?;
                    self.skip(kinds & 15, false, depth)
                })
            }
            STRUCT => self.fields_below(depth, &mut |_, _, _| Some(false)),
            _ => None,
        }
    }
}

/// The type of a field.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Kind(u8);

impl Kind {
    pub(super) fn is_int(self) -> bool {
        matches!(self.0, I16 | I32 | I64)
    }

    pub(super) fn is_struct(self) -> bool {
        self.0 == STRUCT
    }

    pub(super) fn is_false(self) -> bool {
        self.0 == FALSE
    }
}

/// Returns the depth of the schema in the metadata of a file.
pub(super) fn schema_depth(metadata: &[u8]) -> Option<usize> {
    let mut deepest = 0;
    Bytes(metadata).fields(|bytes, number, kind| {
        if (number, kind) != (2, Kind(LIST)) {
            return Some(false);
        }
        let (Kind(STRUCT), len) = bytes.list().map(|(kind, len)| (Kind(kind), len))? else { return None };
        // For each column that is not complete, how many members are still to come.
        let mut open: Vec<i64> = Vec::new();
        for _ in 0..len {
            let mut members = 0;
            bytes.fields(|bytes, number, kind| {
                if (number, kind.is_int()) == (5, true) {
                    members = bytes.int()?;
                }
                Some((number, kind.is_int()) == (5, true))
            })?;
            if let Some(left) = open.last_mut() {
                *left -= 1;
            }
            open.push(members);
            deepest = deepest.max(open.len());
            while open.last().is_some_and(|&left| left <= 0) {
                open.pop();
            }
        }
        Some(true)
    })?;
    Some(deepest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_all_types_are_passed_over() {
        // The fields: 1: true, 2: byte, 3: i32, 4: double, 5: binary, 6: list of 2 truth values, 7:
        // map of a byte to a byte, 8: struct, 40: i64
        let bytes: Vec<u8> = [
            &[0x11, 0x13, 7, 0x15, 0x80, 0x01, 0x17][..],
            &[0; 8],
            &[0x18, 2, b'a', b'b', 0x19, 0x21, 1, 2, 0x1b, 1, 0x33, 1, 2, 0x1c, 0x15, 2, 0, 0x06, 0x50, 0x03, 0],
        ]
        .concat();
        let mut found = Vec::new();
        let mut rest = Bytes(&bytes);
        let read = rest.fields(|bytes, number, kind| {
            found.push(number);
            if number == 40 {
                assert!(kind.is_int());
                assert_eq!(bytes.int(), Some(-2));
            }
            Some(number == 40)
        });
        assert_eq!((read, rest.0.len(), found), (Some(()), 0, vec![1, 2, 3, 4, 5, 6, 7, 8, 40]));
        for len in 0..bytes.len() {
            assert!(Bytes(&bytes[..len]).fields(|_, _, _| Some(false)).is_none());
        }
    }

    #[test]
    fn deep_and_long_values_end() {
        assert!(Bytes(&[0x1c; 1000]).fields(|_, _, _| Some(false)).is_none());
        assert!(Bytes(&[0x19; 1000]).fields(|_, _, _| Some(false)).is_none());
        // A list that claims 2^60 values.
        assert!(
            Bytes(&[0x19, 0xf3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x0f, 0])
                .fields(|_, _, _| Some(false))
                .is_none()
        );
    }
}
