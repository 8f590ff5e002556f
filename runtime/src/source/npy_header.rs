//! Headers of `.npy` files, which are a Python dictionary as text.

use super::error::{FormatError, FormatErrorKind, excerpt};
use crate::dtype::{DType, Kind};

const MAGIC: &[u8] = b"\x93NUMPY";

/// The length of the longest text that is parsed, in bytes. NumPy has the same limit for untrusted
/// files.
const LONGEST_TEXT: usize = 10_000;

/// The length of the longest possible preamble, in bytes: magic, version, and the text's length as
/// a u32.
const LONGEST_PREAMBLE: usize = MAGIC.len() + 2 + 4;

/// The header of a `.npy` file. The elements follow it, in C order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NpyHeader {
    /// The type of the elements.
    pub dtype: DType,
    /// Whether the bytes of each number are in big-endian order.
    pub big_endian: bool,
    /// The lengths of the dimensions as stated in the header. They are not checked.
    pub dims: Vec<u64>,
    /// The number of bytes before the first element.
    pub data_start: usize,
}

impl NpyHeader {
    /// The length of the longest header that is parsed, in bytes.
    pub const LONGEST: usize = LONGEST_PREAMBLE + LONGEST_TEXT;

    /// Parses a header of version 1 to 3. `bytes` are the file's first [`LONGEST`](Self::LONGEST)
    /// bytes, or all if there are fewer.
    ///
    /// # Errors
    ///
    /// If these aren't the first bytes of a `.npy` file, the header is damaged or too long, its
    /// type is not one of [`DType`], or the elements are in Fortran order.
    pub fn parse(bytes: &[u8]) -> Result<Self, FormatError> {
        let (text_len, rest) = text_of(bytes)?;
        let data_start = (bytes.len() - rest.len()).saturating_add(text_len);
        if text_len > LONGEST_TEXT {
            return Err(broken(format!("at most {LONGEST_TEXT} bytes of header"), format!("{text_len}")));
        }
        let mut text = Text(rest.get(..text_len).ok_or_else(|| cut_short(data_start, bytes.len()))?);
        let (mut descr, mut fortran_order, mut shape) = (None, None, None);
        text.expect(b'{')?;
        text.items(b'}', |text| {
            let key = text.string()?;
            text.expect(b':')?;
            match key {
                b"descr" => descr = Some(text.element_type()?),
                b"fortran_order" => fortran_order = Some(text.bool()?),
                b"shape" => shape = Some(text.dims()?),
                _ => return Err(broken(KEYS, format!("the key {}", quoted(key)))),
            }
            Ok(())
        })?;
        match text.word() {
            b"" => {}
            found => return Err(unexpected("nothing after the dictionary", found)),
        }
        let (Some((dtype, big_endian)), Some(fortran_order), Some(dims)) = (descr, fortran_order, shape) else {
            return Err(broken(KEYS, "one without some of them"));
        };
        // For fewer dimensions, both orders are the same.
        if fortran_order && dims.len() > 1 {
            return Err(unsupported(
                "C order",
                "Fortran order (fortran_order: True)",
                "save it again with `np.save(path, np.ascontiguousarray(a))`",
            ));
        }
        Ok(Self { dtype, big_endian, dims, data_start })
    }
}

/// Returns the stated length of the header's text, and the bytes from the start of the text on.
fn text_of(bytes: &[u8]) -> Result<(usize, &[u8]), FormatError> {
    let after_magic = bytes.strip_prefix(MAGIC).ok_or_else(|| FormatError::magic("a NumPy .npy file", bytes))?;
    let cut = || cut_short(LONGEST_PREAMBLE, bytes.len());
    let (version, rest) = after_magic.split_first_chunk::<2>().ok_or_else(cut)?;
    let text = match version {
        [1, 0] => rest.split_first_chunk().map(|(len, text)| (u16::from_le_bytes(*len).into(), text)),
        [2 | 3, 0] => rest.split_first_chunk().map(|(len, text)| (u32::from_le_bytes(*len) as usize, text)),
        [major, minor] => return Err(broken("version 1.0, 2.0 or 3.0 of the .npy format", format!("{major}.{minor}"))),
    };
    text.ok_or_else(cut)
}

/// The part of a header's text that is not parsed yet.
struct Text<'a>(&'a [u8]);

impl<'a> Text<'a> {
    /// Skips spaces, and then `byte` if it is next. Returns whether it was.
    fn skip(&mut self, byte: u8) -> bool {
        self.0 = self.0.trim_ascii_start();
        let rest = self.0.strip_prefix(&[byte]);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    /// Takes the next token: a punctuation character, or the characters up to the next one or a
    /// space. At the end of the text the token is empty.
    fn word(&mut self) -> &'a [u8] {
        let text = self.0.trim_ascii_start();
        let end = text.iter().position(|byte| byte.is_ascii_whitespace() || b",:()[]{}".contains(byte));
        let (word, rest) = text.split_at(end.unwrap_or(text.len()).max(1).min(text.len()));
        self.0 = rest;
        word
    }

    fn expect(&mut self, byte: u8) -> Result<(), FormatError> {
        let word = self.word();
        if word == [byte] { Ok(()) } else { Err(unexpected(&quoted(&[byte]), word)) }
    }

    /// Parses items up to the closing bracket `close`. They are separated by commas, and the last
    /// one may have a comma, too.
    fn items(
        &mut self,
        close: u8,
        mut item: impl FnMut(&mut Self) -> Result<(), FormatError>,
    ) -> Result<(), FormatError> {
        while !self.skip(close) {
            item(self)?;
            if !self.skip(b',') {
                return self.expect(close);
            }
        }
        Ok(())
    }

    /// Parses a quoted string without escapes.
    fn string(&mut self) -> Result<&'a [u8], FormatError> {
        let Some(quote) = [b'\'', b'"'].into_iter().find(|&quote| self.skip(quote)) else {
            return Err(unexpected("a text in quotes", self.word()));
        };
        let end = self.0.iter().position(|&byte| byte == quote);
        let (text, rest) = self.0.split_at(end.ok_or_else(|| broken("terminated strings", "an unterminated one"))?);
        if text.contains(&b'\\') {
            return Err(broken("strings without escapes", "a backslash"));
        }
        self.0 = &rest[1..];
        Ok(text)
    }

    fn bool(&mut self) -> Result<bool, FormatError> {
        match self.word() {
            b"True" => Ok(true),
            b"False" => Ok(false),
            found => Err(unexpected("True or False for fortran_order", found)),
        }
    }

    fn dims(&mut self) -> Result<Vec<u64>, FormatError> {
        let mut dims = Vec::new();
        let Some(close) = [(b'(', b')'), (b'[', b']')].into_iter().find_map(|(o, c)| self.skip(o).then_some(c)) else {
            return Err(unexpected("a list or tuple for shape", self.word()));
        };
        self.items(close, |text| {
            let word = text.word();
            // Python 2 wrote long integers as `3L`.
            let digits = word.strip_suffix(b"L").unwrap_or(word);
            if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
                return Err(unexpected("whole numbers for shape", word));
            }
            let number = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
            dims.push(number.ok_or_else(|| too_large(digits))?);
            Ok(())
        })?;
        Ok(dims)
    }

    /// Parses the dtype of the elements, and whether they are big-endian.
    fn element_type(&mut self) -> Result<(DType, bool), FormatError> {
        if self.skip(b'[') || self.skip(b'(') {
            return Err(unsupported(
                EXPECTED_TYPES,
                "a structured dtype (records with named fields)",
                "save each field in a separate file, as in `np.save('x.npy', a['x'])`",
            ));
        }
        let descr = self.string()?;
        let invalid = || broken("a type string such as '<f4'", quoted(descr));
        let Some((&[order @ (b'<' | b'>' | b'|'), letter], size)) = descr.split_first_chunk() else {
            return Err(invalid());
        };
        let kind = match letter {
            b'b' => Some(Kind::Bool),
            b'u' => Some(Kind::Unsigned),
            b'i' => Some(Kind::Signed),
            b'f' => Some(Kind::Float),
            b'c' => Some(Kind::Complex),
            _ => None,
        };
        // The size of a date is followed by a unit, and an object has no size.
        let size = std::str::from_utf8(size).ok().and_then(|size| size.parse().ok());
        let known = DType::ALL.iter().find(|dtype| Some(dtype.kind()) == kind && Some(dtype.size()) == size);
        let (name, advice) = match (known, letter) {
            (Some(&dtype), _) if order != b'|' || dtype.size() == 1 => {
                return Ok((dtype, order == b'>' && dtype.size() > 1));
            }
            (None, b'f') => ("an extended float", "save it again as `a.astype('float64')`"),
            (None, b'c') => ("an extended complex number", "save it again as `a.astype('complex128')`"),
            (_, b'm' | b'M') => ("dates or times", "save it again as `a.view('int64')`"),
            (_, b'S' | b'a' | b'U') => ("text", "save it as numbers, such as class indices"),
            (_, b'O') => ("Python objects", "save it again with a numeric dtype, as `a.astype('float32')`"),
            (_, b'V') => ("raw data", "save it again as `a.view('uint8')`"),
            _ => return Err(invalid()),
        };
        Err(unsupported(EXPECTED_TYPES, &format!("{name} ({})", quoted(descr)), advice))
    }
}

const KEYS: &str = "a header with descr, fortran_order and shape";

const EXPECTED_TYPES: &str =
    "bool, an integer of 8 to 64 bits, a float of 16 to 64 bits, or a complex number of two 32- or 64-bit floats";

fn quoted(text: &[u8]) -> String {
    format!("`{}`", excerpt(&String::from_utf8_lossy(text)))
}

fn too_large(digits: &[u8]) -> FormatError {
    FormatError::new(
        FormatErrorKind::Shape,
        "a shape that fits in memory",
        format!("one with {}", quoted(digits)),
        "the header is damaged: write or download the file again",
    )
}

fn unexpected(expected: &str, found: &[u8]) -> FormatError {
    broken(expected, if found.is_empty() { "the end of the header".to_owned() } else { quoted(found) })
}

fn unsupported(expected: &str, found: &str, advice: &'static str) -> FormatError {
    FormatError::new(FormatErrorKind::Unsupported, expected, found, advice)
}

fn broken(expected: impl Into<String>, found: impl Into<String>) -> FormatError {
    FormatError::new(FormatErrorKind::Header, expected, found, "save the file again with NumPy's `np.save`")
}

fn cut_short(needed: usize, found: usize) -> FormatError {
    FormatError::new(
        FormatErrorKind::Truncated,
        format!("a .npy header of {needed} bytes"),
        format!("only {found}"),
        "the file is truncated: write or download it again",
    )
}
