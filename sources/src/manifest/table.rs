//! The cells of a manifest, and the kinds of its columns.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use slotline::dtype::{DType, Element, bytes_of};

use super::json;
use crate::default_number::exact;
use crate::record::MAX_FIELDS;
use crate::{DefaultNumber, Error};

/// The rows of a file.
#[derive(Debug)]
pub(super) struct Rows {
    pub(super) columns: Vec<Column>,
    /// The errors of the damaged rows, whose cells are all [`Cell::Damaged`]. They are at most half
    /// of the rows.
    pub(super) damaged: BTreeMap<usize, Error>,
}

/// A column with its values as they are written in the file.
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
    /// JSON's `null`, or a key that is missing in a line.
    Missing,
    /// A cell of a damaged row.
    Damaged,
    /// A cell of a CSV file, whose kind is not decided yet.
    Raw(Box<str>),
    Integer(i64),
    Float(f64),
    /// The text of a number that fits neither in `i64` nor in `f64`.
    Unfit(Box<str>),
    Bool(bool),
    Text(Box<str>),
    /// The text of a list or an object.
    Nested(Box<str>),
}

/// A column after its kind was decided.
#[derive(Debug)]
pub(super) enum Values {
    Integers(Vec<i64>),
    Floats(Vec<f64>),
    Bools(Vec<bool>),
    /// The type of the numbers, the bytes of the numbers of all lists, and the end of each list.
    Lists(DType, Vec<u8>, Vec<usize>),
    Texts(Vec<Box<str>>),
}

/// The values that replace missing ones.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Missing {
    /// The default of the column, if one was set.
    pub(super) number: Option<DefaultNumber>,
    /// Whether missing values are replaced: numbers by zero, texts and lists by empty ones.
    pub(super) as_zero: bool,
}

/// Parses CSV. A row is damaged if it does not have as many cells as the first one, or is not UTF-8.
pub(super) fn csv(path: &Path, bytes: &[u8], delimiter: u8) -> Result<Rows, Error> {
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
    let (mut lines, mut damaged) = (Vec::new(), BTreeMap::new());
    let mut record = csv::StringRecord::new();
    loop {
        match reader.read_record(&mut record) {
            Ok(false) => break,
            Ok(true) => {
                lines.push(record.position().map_or(0, csv::Position::line));
                for (column, cell) in cells.iter_mut().zip(&record) {
                    column.push(Cell::Raw(cell.into()));
                }
            }
            Err(error) => {
                let is_of_row =
                    matches!(error.kind(), csv::ErrorKind::UnequalLengths { .. } | csv::ErrorKind::Utf8 { .. });
                let line = error.position().map_or(0, csv::Position::line);
                let error = failed(error);
                if !is_of_row {
                    return Err(error);
                }
                damaged.insert(lines.len(), error);
                lines.push(line);
                cells.iter_mut().for_each(|column| column.push(Cell::Damaged));
                if is_hopeless(damaged.len(), lines.len()) {
                    break;
                }
            }
        }
    }
    rows(path, names, cells, lines, damaged)
}

/// Returns the position of a quotation mark that is not closed.
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

/// Whether the rest of a file need not be read, since the rows so far suffice for the error of
/// [`rows`]. Without this, the errors of a large file of another format would take much memory.
pub(super) fn is_hopeless(damaged: usize, rows: usize) -> bool {
    damaged > (rows / 2).max(1000)
}

/// Checks the rows of a file. If most of them are damaged, it is hardly of this format, and the
/// first error is returned.
pub(super) fn rows(
    path: &Path,
    names: Vec<String>,
    mut cells: Vec<Vec<Cell>>,
    lines: Vec<u64>,
    mut damaged: BTreeMap<usize, Error>,
) -> Result<Rows, Error> {
    if damaged.len() > lines.len() / 2
        && let Some((_, first)) = damaged.pop_first()
    {
        return Err(first);
    }
    for &row in damaged.keys() {
        cells.iter_mut().for_each(|column| column[row] = Cell::Damaged);
    }
    let error = |problem: String| Error::in_file(path, problem, "name each column once, and list files");
    if names.len() > MAX_FIELDS {
        return Err(error(format!("{} columns; the maximum is {MAX_FIELDS}", names.len())));
    }
    if let Some(name) = names.iter().enumerate().find_map(|(i, name)| names[..i].contains(name).then_some(name)) {
        return Err(error(format!("two columns have the name `{name}`")));
    }
    if lines.is_empty() {
        return Err(error("no rows".to_owned()));
    }
    let lines: Arc<[u64]> = lines.into();
    let column = |(name, cells)| Column { name, cells, lines: lines.clone() };
    Ok(Rows { columns: names.into_iter().zip(cells).map(column).collect(), damaged })
}

/// Joins the rows of several tables. In a column that some tables do not have, their rows have
/// missing values.
pub(super) fn joined(tables: Vec<Rows>) -> Rows {
    let mut all = Vec::<Column>::new();
    let (mut rows, mut lines, mut all_damaged) = (0, Vec::new(), BTreeMap::new());
    for Rows { columns: table, damaged } in tables {
        all_damaged.extend(damaged.into_iter().map(|(row, error)| (rows + row, error)));
        lines.extend(table.iter().take(1).flat_map(|column| column.lines.iter().copied()));
        for mut column in table {
            match all.iter_mut().find(|other| other.name == column.name) {
                Some(other) => {
                    other.cells.resize(rows, Cell::Missing);
                    other.cells.append(&mut column.cells);
                }
                None => {
                    let cells = vec![Cell::Missing; rows].into_iter().chain(column.cells).collect();
                    all.push(Column { cells, ..column });
                }
            }
        }
        rows = lines.len();
    }
    let lines: Arc<[u64]> = lines.into();
    for column in &mut all {
        column.cells.resize(rows, Cell::Missing);
        column.lines = lines.clone();
    }
    // A column that the file of a damaged row does not have has no cells of it.
    for &row in all_damaged.keys() {
        all.iter_mut().for_each(|column| column.cells[row] = Cell::Damaged);
    }
    Rows { columns: all, damaged: all_damaged }
}

impl Column {
    /// Prepends a text to all texts of the column.
    pub(super) fn prefix(&mut self, prefix: &str) {
        for cell in &mut self.cells {
            if let Cell::Raw(text) | Cell::Text(text) = cell {
                *text = format!("{prefix}{text}").into();
            }
        }
    }

    /// Returns the text in a row.
    pub(super) fn text(&self, path: &Path, row: usize) -> Result<&str, Error> {
        match &self.cells[row] {
            Cell::Raw(text) | Cell::Text(text) if !text.is_empty() => Ok(text),
            _ => Err(self.error(path, row, "expected the name of a file, found none", "add it")),
        }
    }

    /// Decides the kind of the column, and replaces missing values.
    pub(super) fn decide(self, path: &Path, missing: Missing) -> Result<Values, Error> {
        if let Some((row, Cell::Unfit(number))) = self.cells.iter().enumerate().find(|(_, cell)| cell.is_unfit()) {
            let problem = format!("{number} is no i64 and no f64");
            return Err(self.error(path, row, &problem, "write it as a text, or leave the column out with `columns`"));
        }
        let all = |holds: fn(&Cell) -> bool| {
            let mut present = self.cells.iter().filter(|cell| !cell.is_missing()).peekable();
            present.peek().is_some() && present.all(holds)
        };
        let number = missing.number.or(missing.as_zero.then_some(DefaultNumber::Integer(0)));
        let unfit =
            |what: &str, advice| self.error(path, 0, &format!("a column of {what}, which its default is not"), advice);
        if all(|cell| cell.integer().is_some()) {
            let default = number.map(|number| {
                number.integer().ok_or_else(|| unfit("integers", "set an integer of i64 as its default"))
            });
            return self.fill(path, default.transpose()?, Cell::integer).map(Values::Integers);
        }
        let default =
            number.map(|number| number.float().ok_or_else(|| unfit("f64", "set a default that f64 holds exactly")));
        if all(|cell| cell.float().is_some()) {
            return self.fill(path, default.transpose()?, Cell::float).map(Values::Floats);
        }
        if all(|cell| cell.bool().is_some()) {
            let default = default.transpose()?.map(|number| number != 0.0);
            return self.fill(path, default, Cell::bool).map(Values::Bools);
        }
        if missing.number.is_some() {
            return Err(self.error(path, 0, "a column without numbers, which has no default", "remove the default"));
        }
        if let Some(row) = self.cells.iter().position(|cell| *cell == Cell::Missing).filter(|_| !missing.as_zero) {
            let advice = "add it, set `missing_as_zero`, or leave the column out with `columns`";
            return Err(self.error(path, row, "no value", advice));
        }
        if let Some(lists) = self.lists(Cell::integer).or_else(|| self.lists(Cell::float)) {
            return Ok(lists);
        }
        self.texts(path).map(Values::Texts)
    }

    /// Returns the column as lists of numbers, if every value is such a list and at least one is
    /// not empty.
    fn lists<T: Element>(&self, number: fn(&Cell) -> Option<T>) -> Option<Values> {
        let (mut items, mut ends) = (Vec::new(), Vec::with_capacity(self.cells.len()));
        for cell in &self.cells {
            match cell {
                Cell::Missing | Cell::Damaged => {}
                Cell::Nested(text) => {
                    let list = json::list(text)?;
                    items.extend(list.iter().map(number).collect::<Option<Vec<T>>>()?);
                }
                _ => return None,
            }
            ends.push(items.len() * size_of::<T>());
        }
        (!items.is_empty()).then(|| Values::Lists(T::DTYPE, bytes_of(&items).to_vec(), ends))
    }

    /// Returns the texts of the column.
    fn texts(mut self, path: &Path) -> Result<Vec<Box<str>>, Error> {
        let numbers = self
            .cells
            .iter()
            .all(|cell| matches!(cell, Cell::Missing | Cell::Damaged | Cell::Integer(_) | Cell::Float(_)));
        let wrong = |cell: &Cell| matches!(cell, Cell::Integer(_) | Cell::Float(_) | Cell::Bool(_));
        if numbers && let Some(row) = self.cells.iter().position(|cell| wrong(cell) && cell.float().is_none()) {
            let problem = "an integer that f64 does not hold exactly, in a column with fractions";
            return Err(self.error(path, row, problem, "write the numbers as texts, or choose `columns`"));
        }
        if let Some(row) = self.cells.iter().position(wrong) {
            let problem = "values of different kinds in the column";
            return Err(self.error(path, row, problem, "make them all numbers, truth values or texts"));
        }
        let kinds = [|cell: &Cell| matches!(cell, Cell::Text(_)), |cell: &Cell| matches!(cell, Cell::Nested(_))];
        if let [Some(text), Some(nested)] = kinds.map(|kind| self.cells.iter().position(kind)) {
            let problem = "texts and lists or objects in the column";
            return Err(self.error(path, text.max(nested), problem, "make them all texts"));
        }
        let text = |cell| match cell {
            Cell::Raw(text) | Cell::Text(text) | Cell::Nested(text) => text,
            _ => "".into(),
        };
        Ok(std::mem::take(&mut self.cells).into_iter().map(text).collect())
    }

    /// Returns the numbers of the column, with the default in place of missing numbers, and any
    /// number in damaged rows.
    fn fill<T: Copy + Default>(
        &self,
        path: &Path,
        default: Option<T>,
        number: fn(&Cell) -> Option<T>,
    ) -> Result<Vec<T>, Error> {
        let cells = self.cells.iter().enumerate();
        let filled = cells.map(|(row, cell)| {
            let any = (*cell == Cell::Damaged).then(T::default);
            number(cell).or(any).or(default).ok_or_else(|| {
                let advice = "add it, set `missing_as_zero`, or `default_number` for the column";
                self.error(path, row, "no value in a column of numbers", advice)
            })
        });
        filled.collect()
    }

    fn error(&self, path: &Path, row: usize, problem: &str, advice: &'static str) -> Error {
        let problem = format!("line {}, column {}: {problem}", self.lines[row], self.name);
        Error::in_file(path, problem, advice)
    }
}

impl Cell {
    /// Whether the value is missing, or not known because the row is damaged. For a column of texts
    /// of a CSV file this does not hold: there, an empty cell is an empty text.
    fn is_missing(&self) -> bool {
        match self {
            Self::Raw(text) => text.is_empty(),
            other => matches!(other, Self::Missing | Self::Damaged),
        }
    }

    fn is_unfit(&self) -> bool {
        matches!(self, Self::Unfit(_))
    }

    fn integer(&self) -> Option<i64> {
        match self {
            Self::Raw(text) => text.parse().ok(),
            Self::Integer(integer) => Some(*integer),
            _ => None,
        }
    }

    /// Returns the value as a float. An integer is a float only if the conversion is exact.
    fn float(&self) -> Option<f64> {
        match self {
            Self::Raw(text) => match text.parse() {
                Ok(integer) => exact(integer),
                // Longer integers would lose digits.
                Err(_) if text.trim_start_matches(['-', '+']).bytes().all(|byte| byte.is_ascii_digit()) => None,
                // Numbers that are too large would become infinite.
                Err(_) => {
                    let digits = text.contains(|letter: char| letter.is_ascii_digit());
                    text.parse().ok().filter(|float: &f64| float.is_finite() || !digits)
                }
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
