//! Headers of .npy files.
//!
//! The `npyz` crate parses them, with a general parser of Python literals. It trusts its input more than a data loader
//! should: its time doubles with each level of nesting, deep nesting overflows the stack, and the product of the shape
//! may overflow. [`guard`] rejects any header that could cause this before `npyz` sees it.

use npyz::{DType as Written, Endianness, NpyHeader, Order, TypeChar, TypeStr};

use super::error::{FormatError, FormatErrorKind, excerpt};
use super::layout::{ByteOrder, Layout};
use crate::dtype::{DType, Kind};

const MAGIC: &[u8] = b"\x93NUMPY";

/// The longest text that is parsed, in bytes. NumPy has the same limit for untrusted files.
const LONGEST_TEXT: usize = 10_000;

/// The longest possible preamble: magic, version, and the text's length as a u32.
const LONGEST_PREAMBLE: usize = MAGIC.len() + 2 + 4;

/// The length of the longest header that is parsed.
pub(super) const LONGEST_HEADER: usize = LONGEST_PREAMBLE + LONGEST_TEXT;

/// The maximum nesting of brackets. The four levels are a dictionary, its list of fields, a field, and the field's
/// shape.
const DEEPEST: usize = 4;

/// Returns the layout that a header describes, from the file's first bytes and its length.
pub(super) fn header(bytes: &[u8], file_len: u64) -> Result<Layout, FormatError> {
    let (text_start, text_len) = text_range(bytes)?;
    let data_start = text_start.saturating_add(text_len);
    if text_len > LONGEST_TEXT {
        return Err(broken(format!("at most {LONGEST_TEXT} bytes of header"), format!("{text_len}")));
    }
    let text = bytes.get(text_start..data_start).ok_or_else(|| cut_short(data_start, bytes.len()))?;
    let mut header = bytes[..data_start].to_vec();
    guard(text)?.into_iter().for_each(|at| header[text_start + at] = b' ');
    let parsed = NpyHeader::from_reader(&header[..]).map_err(|error| {
        broken(
            "a header with descr, fortran_order and shape",
            format!("one that fails: {}", excerpt(&error.to_string())),
        )
    })?;
    let (dtype, order) = element_type(&parsed.dtype())?;
    if parsed.order() == Order::Fortran {
        return Err(unsupported(
            "C order",
            "Fortran order (fortran_order: True)",
            "save it again with `np.save(path, np.ascontiguousarray(a))`",
        ));
    }
    Layout::new(dtype, order, parsed.shape(), data_start, file_len)
}

/// Returns the start and the stated length of the header's text.
fn text_range(bytes: &[u8]) -> Result<(usize, usize), FormatError> {
    let after_magic = bytes.strip_prefix(MAGIC).ok_or_else(|| FormatError::magic("a NumPy .npy file", bytes))?;
    let cut = || cut_short(LONGEST_PREAMBLE, bytes.len());
    let (version, rest) = after_magic.split_first_chunk::<2>().ok_or_else(cut)?;
    let preamble = MAGIC.len() + version.len();
    match version {
        [1, 0] => {
            let len = rest.first_chunk::<2>().ok_or_else(cut)?;
            Ok((preamble + 2, u16::from_le_bytes(*len).into()))
        }
        [2 | 3, 0] => {
            let len = rest.first_chunk::<4>().ok_or_else(cut)?;
            Ok((preamble + 4, usize::try_from(u32::from_le_bytes(*len)).unwrap_or(usize::MAX)))
        }
        [major, minor] => Err(broken("version 1.0, 2.0 or 3.0 of the .npy format", format!("{major}.{minor}"))),
    }
}

/// Accepts only headers that `npyz` can parse quickly, with little stack, and without overflow. Returns where the suffixes
/// are that Python 2 wrote after long numbers (`3L`), which `npyz` does not know.
///
/// That means: brackets nest at most [`DEEPEST`] levels, and braces not at all; all words outside of strings are plain
/// numbers, `True`, `False` or `None`; and the product of all nonzero numbers, which include the shape's lengths, is
/// below 2^64. Strings end here where they end for the parser, because escapes are rejected too.
fn guard(text: &[u8]) -> Result<Vec<usize>, FormatError> {
    let mut depth = 0_usize;
    let mut product = 1_u64;
    let mut suffixes = Vec::new();
    let mut rest = text;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = match byte {
            b'\'' | b'"' => {
                let end = tail.iter().position(|&b| b == byte);
                let end = end.ok_or_else(|| broken("terminated strings", "an unterminated one"))?;
                if tail[..end].contains(&b'\\') {
                    return Err(broken("strings without escapes", "a backslash"));
                }
                &tail[end + 1..]
            }
            b'{' | b'[' | b'(' => {
                if byte == b'{' && depth > 0 {
                    return Err(broken("a single dictionary", "a nested one"));
                }
                depth += 1;
                if depth > DEEPEST {
                    return Err(broken(
                        format!("brackets nested at most {DEEPEST} deep"),
                        "deeper nesting, as in nested records",
                    ));
                }
                tail
            }
            b'}' | b']' | b')' => {
                depth = depth.saturating_sub(1);
                tail
            }
            _ if in_word(byte) => {
                let (word, tail) = rest.split_at(rest.iter().position(|&b| !in_word(b)).unwrap_or(rest.len()));
                let (number, is_long) = word.strip_suffix(b"L").map_or((word, false), |number| (number, true));
                if is_long && !number.is_empty() {
                    suffixes.push(text.len() - tail.len() - 1);
                }
                match number {
                    b"True" | b"False" | b"None" if !is_long => {}
                    word if !word.is_empty() && word.iter().all(u8::is_ascii_digit) => {
                        product = multiplied(product, word)?
                    }
                    _ => return Err(broken("whole numbers, True, False or None", quoted(word))),
                }
                tail
            }
            _ => tail,
        };
    }
    Ok(suffixes)
}

/// Whether a byte can be part of a number or name.
fn in_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'+' | b'-')
}

fn multiplied(product: u64, digits: &[u8]) -> Result<u64, FormatError> {
    let number = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse::<u64>().ok());
    number.and_then(|number| product.checked_mul(number.max(1))).ok_or_else(|| {
        FormatError::new(
            FormatErrorKind::Shape,
            "a shape that fits in memory",
            format!("one with {}", quoted(digits)),
            "the header is damaged: write or download the file again",
        )
    })
}

fn quoted(word: &[u8]) -> String {
    format!("`{}`", excerpt(&String::from_utf8_lossy(word)))
}

/// Returns the dtype and byte order that a header describes.
fn element_type(written: &Written) -> Result<(DType, ByteOrder), FormatError> {
    let Written::Plain(plain) = written else {
        return Err(unsupported(
            EXPECTED_TYPES,
            "a structured dtype (records with named fields)",
            "save each field in a separate file, as in `np.save('x.npy', a['x'])`",
        ));
    };
    let kind = match plain.type_char() {
        TypeChar::Bool => Kind::Bool,
        TypeChar::Uint => Kind::Unsigned,
        TypeChar::Int => Kind::Signed,
        TypeChar::Float => Kind::Float,
        TypeChar::Complex => Kind::Complex,
        _ => return Err(other_type(plain)),
    };
    let known = |dtype: &&DType| dtype.kind() == kind && dtype.size() as u64 == plain.size_field();
    let &dtype = DType::ALL.iter().find(known).ok_or_else(|| other_type(plain))?;
    let order = if plain.endianness() == Endianness::Big { ByteOrder::Big } else { ByteOrder::Little };
    Ok((dtype, order))
}

const EXPECTED_TYPES: &str =
    "bool, an integer of 8 to 64 bits, a float of 16 to 64 bits, or a complex number of two 32- or 64-bit floats";

fn other_type(plain: &TypeStr) -> FormatError {
    let (name, advice) = match (plain.type_char(), plain.size_field()) {
        (TypeChar::Float, _) => ("an extended float", "save it again as `a.astype('float64')`"),
        (TypeChar::Complex, _) => ("an extended complex number", "save it again as `a.astype('complex128')`"),
        (TypeChar::TimeDelta | TypeChar::DateTime, _) => ("dates or times", "save it again as `a.view('int64')`"),
        (TypeChar::ByteStr | TypeChar::UnicodeStr, _) => ("text", "save it as numbers, such as class indices"),
        (TypeChar::Object, _) => ("Python objects", "save it again with a numeric dtype, as `a.astype('float32')`"),
        _ => ("raw data", "save it again as `a.view('uint8')`"),
    };
    unsupported(EXPECTED_TYPES, &format!("{name} ({})", excerpt(&plain.to_string())), advice)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(shape: &str) -> Result<Layout, FormatError> {
        let text = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n");
        let bytes = [MAGIC, &[1, 0], &(text.len() as u16).to_le_bytes()[..], text.as_bytes()].concat();
        header(&bytes, bytes.len() as u64 + 24)
    }

    #[test]
    fn numbers_of_python_2_are_read() {
        assert_eq!(layout("(3L, 2L)").unwrap().shape.dims(), [3, 2]);
        for wrong in ["(L, 2)", "(3LL, 2)", "(TrueL, 2)", "(3l, 2)"] {
            assert!(layout(wrong).is_err(), "{wrong}");
        }
    }
}
