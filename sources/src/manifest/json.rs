//! JSON Lines. Numbers are kept exactly as written, and lists and objects are kept as text.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::path::Path;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::table::{Cell, Rows, is_hopeless, rows};
use crate::Error;
use crate::record::MAX_FIELDS;

/// Parses JSON Lines: each line is a JSON object. Blank lines are skipped.
pub(super) fn jsonl(path: &Path, bytes: &[u8]) -> Result<Rows, Error> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let (mut names, mut cells, mut lines) = (Vec::<String>::new(), Vec::<Vec<Cell>>::new(), Vec::new());
    let (mut known, mut damaged) = (HashMap::new(), BTreeMap::new());
    let mut start = 0;
    for (number, line) in bytes.split_inclusive(|&byte| byte == b'\n').enumerate() {
        let at = start;
        start += line.len() as u64;
        if line.trim_ascii().is_empty() {
            continue;
        }
        let number = number as u64 + 1;
        let error = |problem: String| {
            let problem = format!("line {number}: {problem}");
            Error::format(path.display(), at, problem, "write one JSON object in each line")
        };
        let pairs = row(line.trim_ascii_end()).unwrap_or_else(|problem| {
            damaged.insert(lines.len(), error(problem));
            Vec::new()
        });
        for (name, cell) in pairs {
            let column = *known.entry(name).or_insert_with_key(|name| {
                names.push(name.clone());
                cells.push(Vec::new());
                cells.len() - 1
            });
            // If each line had other keys, the memory would be proportional to the square of the
            // file's length.
            if names.len() > MAX_FIELDS || names.len().saturating_mul(lines.len()) > bytes.len().saturating_mul(4) {
                return Err(error(format!("the lines have {} different keys", names.len())));
            }
            cells[column].resize(lines.len(), Cell::Missing);
            cells[column].push(cell);
        }
        lines.push(number);
        if is_hopeless(damaged.len(), lines.len()) {
            break;
        }
    }
    cells.iter_mut().for_each(|column| column.resize(lines.len(), Cell::Missing));
    rows(path, names, cells, lines, damaged)
}

/// Returns the keys and the values of a line, or what is wrong with it.
fn row(line: &[u8]) -> Result<Vec<(String, Cell)>, String> {
    let mut cover = Vec::new();
    let (Object(pairs), parsed) = parse(line, &mut cover)
        .map_err(|found| format!("not valid: {} at column {}", without_line(&found), found.column()))?;
    let mut keys = HashSet::new();
    if let Some((name, _)) = pairs.iter().find(|(name, _)| !keys.insert(name)) {
        return Err(format!("the key {name} is there twice"));
    }
    let cell = |(name, value): (String, &RawValue)| match cell(written(line, parsed, value)) {
        Ok(cell) => Ok((name, cell)),
        Err(found) => Err(format!("the value of {name}: {}", without_line(&found))),
    };
    pairs.into_iter().map(cell).collect()
}

/// Returns the values of a JSON list; `None` if it is not a list.
pub(super) fn list(text: &str) -> Option<Vec<Cell>> {
    let mut cover = Vec::new();
    let (values, parsed) = parse::<Vec<&RawValue>>(text.as_bytes(), &mut cover).ok()?;
    values.into_iter().map(|value| cell(written(text.as_bytes(), parsed, value)).ok()).collect()
}

/// Parses JSON that may contain `NaN` and `Infinity`, as Python writes them. Also returns the bytes
/// that were parsed: `text` itself, or a copy in `cover` of the same length, in which such names
/// are replaced by numbers.
fn parse<'a, T: Deserialize<'a>>(text: &'a [u8], cover: &'a mut Vec<u8>) -> serde_json::Result<(T, &'a [u8])> {
    serde_json::from_slice(text).map(|value| (value, text)).or_else(|error| {
        cover.extend_from_slice(text);
        let (mut at, mut in_text) = (0, false);
        while at < text.len() {
            match text[at] {
                b'\\' if in_text => at += 1,
                b'"' => in_text = !in_text,
                b'N' if !in_text && text[at..].starts_with(b"NaN") => cover[at..at + 3].copy_from_slice(b"1.0"),
                b'I' if !in_text && text[at..].starts_with(b"Infinity") => {
                    cover[at..at + 8].copy_from_slice(b"1.000000");
                }
                _ => {}
            }
            at += 1;
        }
        serde_json::from_slice(cover).map(|value| (value, &cover[..])).map_err(|_| error)
    })
}

/// Returns the original text of a value that was parsed from a copy of the same length.
fn written<'a>(text: &'a [u8], parsed: &[u8], value: &RawValue) -> &'a str {
    let start = value.get().as_ptr().addr() - parsed.as_ptr().addr();
    std::str::from_utf8(&text[start..start + value.get().len()]).unwrap_or_default()
}

/// Returns the message of an error without its line number, which is always 1 because lines are
/// parsed separately.
fn without_line(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    text.strip_suffix(&place).unwrap_or(&text).to_owned()
}

fn cell(text: &str) -> serde_json::Result<Cell> {
    Ok(match text.as_bytes()[0] {
        b'n' => Cell::Missing,
        b't' | b'f' => Cell::Bool(text == "true"),
        b'"' => Cell::Text(serde_json::from_str(text)?),
        b'[' | b'{' => Cell::Nested(text.into()),
        _ => number(text),
    })
}

/// Parses a number. It is a float only if it is written as one.
fn number(text: &str) -> Cell {
    let number = if matches!(text, "NaN" | "Infinity" | "-Infinity") {
        text.parse().ok().map(Cell::Float)
    } else if text.contains(['.', 'e', 'E']) {
        text.parse().ok().filter(|float: &f64| float.is_finite()).map(Cell::Float)
    } else {
        text.parse().ok().map(Cell::Integer)
    };
    number.unwrap_or_else(|| Cell::Unfit(text.into()))
}

/// A JSON object whose keys keep their order.
struct Object<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Object<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Object<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object<'de>, A::Error> {
                let mut pairs = Vec::new();
                while let Some((key, value)) = map.next_entry::<String, &RawValue>()? {
                    if key.is_empty() {
                        return Err(A::Error::custom("an empty key"));
                    }
                    pairs.push((key, value));
                }
                Ok(Object(pairs))
            }
        }
        deserializer.deserialize_map(Pairs)
    }
}
