//! Choosing among the fields of a dataset, and the room that they have.

use std::path::Path;
use std::sync::Arc;

use slotline::sample::RowsMut;

use crate::files::{Files, Span};
use crate::record::MOST_FIELDS;
use crate::{Error, FieldKind, Format, Input, Record, RecordField, RecordFields, Value};

/// Samples with some of their fields, or with fields that are described in another way.
#[derive(Debug)]
pub(crate) struct Chosen<F: ?Sized> {
    all: Arc<F>,
    fields: RecordFields,
    /// The numbers of these fields among all.
    numbers: Vec<usize>,
    /// Whether the fields are known without the bytes of the files.
    unread: bool,
}

impl<F: Format + ?Sized> Chosen<F> {
    pub(crate) fn new(all: Arc<F>, names: &[String]) -> Result<Self, Error> {
        let fields: Vec<(usize, &RecordField)> = all.fields().as_slice().iter().enumerate().collect();
        let chosen = choose(&all.files().first_path(), Some(names), &fields, |(_, field)| &field.name, &[])?;
        let numbers = chosen.iter().map(|(number, _)| *number).collect();
        let is_bytes = |field: &RecordField| matches!(field.kind, FieldKind::Bytes(_));
        let unread = all.knows_fields() && !chosen.iter().any(|(_, field)| is_bytes(field));
        let fields = RecordFields::new(chosen.iter().map(|(_, field)| (field.name.clone(), field.kind.clone())));
        Ok(Self { all, fields, numbers, unread })
    }

    /// All fields, with `times` the room that they have.
    pub(crate) fn with_room(all: Arc<F>, times: usize) -> Self {
        let fields = all.fields().as_slice().iter().map(|field| (field.name.clone(), field.kind.with_room(times)));
        let fields = RecordFields::new(fields);
        let numbers = (0..fields.as_slice().len()).collect();
        Self { all, fields, numbers, unread: false }
    }
}

impl<F: Format + ?Sized> Format for Chosen<F> {
    fn len(&self) -> usize {
        self.all.len()
    }

    fn fields(&self) -> &RecordFields {
        &self.fields
    }

    fn files(&self) -> &Files {
        self.all.files()
    }

    fn spans(&self, index: usize, each: &mut dyn FnMut(Span)) {
        if !self.unread {
            self.all.spans(index, each);
        }
    }

    fn file_of(&self, index: usize) -> Option<usize> {
        self.all.file_of(index)
    }

    fn shard_lens(&self) -> Vec<usize> {
        self.all.shard_lens()
    }

    fn read<'a>(&'a self, index: usize, input: Input<'a>) -> Result<Record<'a>, Error> {
        let input = if self.unread { input.unread() } else { input };
        let mut values = self.all.read(index, input)?.into_values();
        let mut take = |&i: &usize| std::mem::replace(&mut values[i], Value::from(&[][..]));
        Ok(Record::new(&self.fields, self.numbers.iter().map(&mut take)))
    }

    fn reads_many(&self) -> bool {
        self.all.reads_many() && self.numbers.iter().copied().eq(0..self.all.fields().as_slice().len())
    }

    fn write_many(&self, indices: &[usize], rows: &mut RowsMut<'_>) {
        self.all.write_many(indices, rows);
    }
}

/// What columns hold that are not read, if there is something to do about it.
pub(crate) const DECIMALS: &str = "decimals";
pub(crate) const NESTED: &str = "lists of other values than numbers";
pub(crate) const NO_VALUES: &str = "nulls only";

/// How many names of columns an error lists.
const LISTED: usize = 20;

/// Whether this is the column of the chosen name, or of a member of a struct of that name.
pub(crate) fn is_in(name: &str, chosen: &str) -> bool {
    name.strip_prefix(chosen).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Returns which of the columns are needed for the fields that `names` lists, if not for all. A column of arrays has also
/// a field with their shapes, `NAME.shape`.
pub(crate) fn needed(path: &Path, names: Option<&[String]>, columns: &[&str]) -> Result<Vec<bool>, Error> {
    let gives = |column: &str, chosen: &str| is_in(column, chosen) || chosen.strip_suffix(".shape") == Some(column);
    let Some(names) = names else { return Ok(vec![true; columns.len()]) };
    if let Some(name) = names.iter().find(|name| !columns.iter().any(|column| gives(column, name))) {
        let problem = format!("no column {name}, but {}", columns.join(", "));
        return Err(Error::format(path.display(), None, problem, "choose among these columns"));
    }
    Ok(columns.iter().map(|column| names.iter().any(|name| gives(column, name))).collect())
}

/// Returns the columns that `names` lists, in that order, or all. If no column has one of the names, it is that of a
/// struct, and stands for all its members, whose names start with it and a dot. `others` are columns that can't be read,
/// and what they hold.
pub(crate) fn choose<C: Clone>(
    path: &Path,
    names: Option<&[String]>,
    all: &[C],
    name: impl Fn(&C) -> &str,
    others: &[(String, String)],
) -> Result<Vec<C>, Error> {
    let wrong = |problem: String, advice| Err(Error::format(path.display(), None, problem, advice));
    let unread = |(name, what): &(String, String)| {
        let problem = format!("the column {name} holds {what}, which is not read");
        let advice = match &**what {
            DECIMALS => "set `decimals_as_f64`, or list others with `columns`",
            NESTED => "write it as JSON text, or list others with `columns`",
            _ => "list others with `columns`",
        };
        wrong(problem, advice)
    };
    let columns = match names {
        None => match others.first() {
            Some(other) => return unread(other),
            None => all.to_vec(),
        },
        Some(names) => {
            let mut columns = Vec::new();
            for chosen in names {
                if let Some(other) = others.iter().find(|(other, _)| is_in(other, chosen)) {
                    return unread(other);
                }
                let before = columns.len();
                match all.iter().find(|column| name(column) == chosen) {
                    Some(column) => columns.push(column.clone()),
                    None => columns.extend(all.iter().filter(|column| is_in(name(column), chosen)).cloned()),
                }
                if columns.len() == before {
                    let listed: Vec<&str> = all.iter().map(&name).take(LISTED).collect();
                    let more =
                        if all.len() > LISTED { format!(", and {} more", all.len() - LISTED) } else { String::new() };
                    let problem = format!("no column {chosen}, but {}{more}", listed.join(", "));
                    return wrong(problem, "choose among these columns");
                }
            }
            columns
        }
    };
    match columns.len() {
        0 => return wrong("no columns".to_owned(), "choose some with `columns`"),
        1..=MOST_FIELDS => {}
        many => return wrong(format!("{many} columns; the maximum is {MOST_FIELDS}"), "choose some with `columns`"),
    }
    let same = |(i, column): &(usize, &C)| columns[..*i].iter().any(|other| name(other) == name(column));
    match columns.iter().enumerate().find(same) {
        Some((_, column)) => wrong(format!("two columns {}", name(column)), "choose different ones with `columns`"),
        None => Ok(columns),
    }
}
