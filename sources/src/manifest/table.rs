//! Tables of cells, and the kinds of their columns.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};
use serde_json::Value as Json;

use crate::Error;
use crate::record::MOST_FIELDS;

/// A column as it was written.
#[derive(Debug)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) cells: Vec<Cell>,
    /// The line of each row, counted from 1.
    pub(super) lines: Arc<[u64]>,
}

/// One value of a row.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cell {
    Missing,
    /// A cell of CSV, which may be of any kind.
    Raw(Box<str>),
    Integer(i64),
    Float(f64),
    Bool(bool),
    Text(Box<str>),
    /// A list or an object.
    Nested(Box<str>),
}

/// A column whose kind is known.
#[derive(Debug)]
pub(super) enum Values {
    Integers(Vec<i64>),
    Floats(Vec<f64>),
    Bools(Vec<bool>),
    Texts(Vec<Box<str>>),
}

/// The largest integer up to which all are exact as `f64`.
const EXACT: u64 = 1 << f64::MANTISSA_DIGITS;

/// Parses CSV. All rows must have as many cells as the first one.
pub(super) fn csv(path: &Path, bytes: &[u8], delimiter: u8) -> Result<Vec<Column>, Error> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    if let Some(at) = unterminated(bytes, delimiter) {
        let problem = "a quote that is not closed";
        return Err(Error::format(
            path.display(),
            at as u64,
            problem,
            "the file is truncated or damaged: write it again",
        ));
    }
    let failed = |error: csv::Error| {
        let offset = error.position().map(csv::Position::byte);
        let problem = format!("not valid CSV: {error}");
        Error::format(path.display(), offset, problem, "correct the row; all must have as many cells as the first one")
    };
    let mut reader = csv::ReaderBuilder::new().delimiter(delimiter).from_reader(bytes);
    let names: Vec<String> = reader.headers().map_err(failed)?.iter().map(str::to_owned).collect();
    let mut cells = vec![Vec::new(); names.len()];
    let mut lines = Vec::new();
    let mut record = csv::StringRecord::new();
    while reader.read_record(&mut record).map_err(failed)? {
        lines.push(record.position().map_or(0, csv::Position::line));
        for (column, cell) in cells.iter_mut().zip(&record) {
            column.push(if cell.is_empty() { Cell::Missing } else { Cell::Raw(cell.into()) });
        }
    }
    columns(path, names, cells, lines)
}

/// Returns the position of a quote that is not closed.
fn unterminated(bytes: &[u8], delimiter: u8) -> Option<usize> {
    let (mut opened, mut starts) = (None, true);
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        if opened.is_some() {
            if byte == b'"' {
                if bytes.get(at + 1) == Some(&b'"') {
                    at += 1;
                } else {
                    opened = None;
                }
            }
        } else {
            if starts && byte == b'"' {
                opened = Some(at);
            }
            starts = byte == delimiter || matches!(byte, b'\n' | b'\r');
        }
        at += 1;
    }
    opened
}

/// Parses a JSON object in each line. Lines of blanks are skipped.
pub(super) fn jsonl(path: &Path, bytes: &[u8]) -> Result<Vec<Column>, Error> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let (mut names, mut cells, mut lines) = (Vec::<String>::new(), Vec::<Vec<Cell>>::new(), Vec::new());
    let mut known = HashMap::new();
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
        let Object(pairs) = serde_json::from_slice(line).map_err(|found| error(format!("not valid: {found}")))?;
        for (name, value) in pairs {
            let column = *known.entry(name).or_insert_with_key(|name| {
                names.push(name.clone());
                cells.push(Vec::new());
                cells.len() - 1
            });
            if cells[column].len() > lines.len() {
                return Err(error(format!("the key {} is there twice", names[column])));
            }
            // Lines with keys of their own would take memory in proportion to the square of the file's length.
            if names.len() > MOST_FIELDS || names.len().saturating_mul(lines.len()) > bytes.len().saturating_mul(4) {
                return Err(error(format!("the lines have {} different keys", names.len())));
            }
            cells[column].resize(lines.len(), Cell::Missing);
            let cell =
                cell(value).ok_or_else(|| error(format!("the number of {} is no i64 and no f64", names[column])))?;
            cells[column].push(cell);
        }
        lines.push(number);
    }
    cells.iter_mut().for_each(|column| column.resize(lines.len(), Cell::Missing));
    columns(path, names, cells, lines)
}

fn cell(value: Json) -> Option<Cell> {
    Some(match value {
        Json::Null => Cell::Missing,
        Json::Bool(truth) => Cell::Bool(truth),
        Json::Number(number) => match number.as_i64() {
            Some(integer) => Cell::Integer(integer),
            None if number.is_f64() => Cell::Float(number.as_f64()?),
            None => return None,
        },
        Json::String(text) => Cell::Text(text.into()),
        Json::Array(_) | Json::Object(_) => Cell::Nested(value.to_string().into()),
    })
}

/// A JSON object whose keys keep their order.
struct Object(Vec<(String, Json)>);

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Object;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
                let mut pairs = Vec::new();
                while let Some((key, value)) = map.next_entry::<String, Json>()? {
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

fn columns(path: &Path, names: Vec<String>, cells: Vec<Vec<Cell>>, lines: Vec<u64>) -> Result<Vec<Column>, Error> {
    let error = |problem: String| Error::format(path.display(), None, problem, "name each column once, and list files");
    if names.len() > MOST_FIELDS {
        return Err(error(format!("{} columns; the maximum is {MOST_FIELDS}", names.len())));
    }
    if let Some(name) = names.iter().enumerate().find_map(|(i, name)| names[..i].contains(name).then_some(name)) {
        return Err(error(format!("two columns have the name `{name}`")));
    }
    if lines.is_empty() {
        return Err(error("no rows".to_owned()));
    }
    let lines: Arc<[u64]> = lines.into();
    let column = |(name, cells)| Column { name, cells, lines: lines.clone() };
    Ok(names.into_iter().zip(cells).map(column).collect())
}

impl Column {
    /// Returns the text in a row.
    pub(super) fn text(&self, path: &Path, row: usize) -> Result<&str, Error> {
        match &self.cells[row] {
            Cell::Raw(text) | Cell::Text(text) => Ok(text),
            _ => Err(self.error(path, row, "expected the name of a file, found none", "add it")),
        }
    }

    /// Decides what the column holds, and takes `default` for missing numbers.
    pub(super) fn decide(self, path: &Path, default: Option<f64>) -> Result<Values, Error> {
        let all = |holds: fn(&Cell) -> bool| {
            let mut present = self.cells.iter().filter(|cell| **cell != Cell::Missing).peekable();
            present.peek().is_some() && present.all(holds)
        };
        if all(|cell| cell.integer().is_some()) {
            let whole = default.map(|default| (default as i64 as f64 == default).then_some(default as i64));
            let whole = match whole {
                Some(None) => return Err(self.error(path, 0, "a column of integers", "set an integer as its default")),
                Some(whole) => whole,
                None => None,
            };
            return self.fill(path, whole, Cell::integer).map(Values::Integers);
        }
        if all(|cell| cell.float().is_some()) {
            return self.fill(path, default, Cell::float).map(Values::Floats);
        }
        if all(|cell| cell.bool().is_some()) {
            return self.fill(path, default.map(|default| default != 0.0), Cell::bool).map(Values::Bools);
        }
        if default.is_some() {
            return Err(self.error(path, 0, "a column of texts, which has no default number", "remove the default"));
        }
        let mut nested = None;
        let mut texts = Vec::with_capacity(self.cells.len());
        for (row, cell) in self.cells.iter().enumerate() {
            let (text, is_nested) = match cell {
                Cell::Missing => ("".into(), nested.unwrap_or(false)),
                Cell::Raw(text) | Cell::Text(text) => (text.clone(), false),
                Cell::Nested(text) => (text.clone(), true),
                Cell::Integer(_) | Cell::Float(_) | Cell::Bool(_) => {
                    let problem = "values of different kinds in the column";
                    return Err(self.error(path, row, problem, "make them all numbers, truth values or texts"));
                }
            };
            if *cell != Cell::Missing && *nested.get_or_insert(is_nested) != is_nested {
                return Err(self.error(path, row, "texts and lists or objects in the column", "make them all texts"));
            }
            texts.push(text);
        }
        Ok(Values::Texts(texts))
    }

    /// Returns the numbers of the column.
    fn fill<T: Copy>(&self, path: &Path, default: Option<T>, number: fn(&Cell) -> Option<T>) -> Result<Vec<T>, Error> {
        let cells = self.cells.iter().enumerate();
        let filled = cells.map(|(row, cell)| {
            number(cell).or(default).ok_or_else(|| {
                let advice = "add it, or set `default_number` for the column";
                self.error(path, row, "no value in a column of numbers", advice)
            })
        });
        filled.collect()
    }

    fn error(&self, path: &Path, row: usize, problem: &str, advice: &'static str) -> Error {
        let problem = format!("line {}, column {}: {problem}", self.lines[row], self.name);
        Error::format(path.display(), None, problem, advice)
    }
}

impl Cell {
    fn integer(&self) -> Option<i64> {
        match self {
            Self::Raw(text) => text.parse().ok(),
            Self::Integer(integer) => Some(*integer),
            _ => None,
        }
    }

    /// Returns the value as a float, if that is exact for an integer.
    fn float(&self) -> Option<f64> {
        let exact = |integer: i64| (integer.unsigned_abs() <= EXACT).then_some(integer as f64);
        match self {
            Self::Raw(text) => match text.parse() {
                Ok(integer) => exact(integer),
                // Longer integers would lose digits.
                Err(_) if text.trim_start_matches(['-', '+']).bytes().all(|byte| byte.is_ascii_digit()) => None,
                Err(_) => text.parse().ok(),
            },
            Self::Integer(integer) => exact(*integer),
            Self::Float(float) => Some(*float),
            _ => None,
        }
    }

    fn bool(&self) -> Option<bool> {
        match self {
            Self::Raw(text) => match &**text {
                "true" | "True" | "TRUE" => Some(true),
                "false" | "False" | "FALSE" => Some(false),
                _ => None,
            },
            Self::Bool(truth) => Some(*truth),
            _ => None,
        }
    }
}
