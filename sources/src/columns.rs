//! Views of a dataset with other fields: some of its fields, additional ones, or fields with
//! another capacity.

use std::path::Path;
use std::sync::Arc;

use slotline::sample::RowsMut;

use crate::files::{Files, Span};
use crate::format::place;
use crate::record::MAX_FIELDS;
use crate::{CapacityHint, Error, FieldKind, Format, Input, Record, RecordField, RecordFields, Value};

/// A view of samples with some of their fields, with fields that have another capacity, or with
/// additional fields.
#[derive(Debug)]
pub(crate) struct View<F: ?Sized> {
    inner: Arc<F>,
    fields: RecordFields,
    sources: Vec<Source>,
    /// Whether the view's fields can be made without reading the files.
    unread: bool,
    /// The index of the first sample of each shard, followed by the number of all samples. Empty if
    /// no field is a value of shards.
    starts: Vec<usize>,
}

/// The source of a field of the view.
#[derive(Debug)]
enum Source {
    /// A field of the dataset, by its index.
    Field(usize),
    /// A value for each shard, which all samples of the shard have.
    Shards(Vec<Value<'static>>),
}

impl<F: Format + ?Sized> View<F> {
    /// Creates a view with the fields that have these names.
    pub(crate) fn new(inner: Arc<F>, names: &[String]) -> Result<Self, Error> {
        let fields: Vec<(usize, &RecordField)> = inner.fields().as_slice().iter().enumerate().collect();
        let chosen = choose(&inner.files().first_path(), Some(names), &fields, |(_, field)| &field.name, &[])?;
        let sources = chosen.iter().map(|(number, _)| Source::Field(*number)).collect();
        let is_bytes = |field: &RecordField| matches!(field.kind, FieldKind::Bytes(_));
        let unread = inner.knows_fields() && !chosen.iter().any(|(_, field)| is_bytes(field));
        let fields = RecordFields::new(chosen.iter().map(|(_, field)| (field.name.clone(), field.kind.clone())));
        Ok(Self { inner, fields, sources, unread, starts: Vec::new() })
    }

    /// Creates a view with all fields, whose capacity in a batch is multiplied by `times`.
    pub(crate) fn with_room(inner: Arc<F>, times: usize) -> Self {
        let more = |room: CapacityHint| CapacityHint { items: room.items.saturating_mul(times), ..room };
        let fields = inner.fields().as_slice().iter().map(|field| (field.name.clone(), field.kind.with_room(more)));
        Self::with_values(inner.clone(), RecordFields::new(fields), Vec::new(), Vec::new())
    }

    /// Creates a view with all fields and additional ones, as listed in `fields`. `starts` are the
    /// indices of the first sample of each shard, followed by the number of all samples. `values`
    /// are the values of the additional fields: one for each shard.
    pub(crate) fn with_values(
        inner: Arc<F>,
        fields: RecordFields,
        starts: Vec<usize>,
        values: Vec<Vec<Value<'static>>>,
    ) -> Self {
        let own = (0..inner.fields().as_slice().len()).map(Source::Field);
        let sources = own.chain(values.into_iter().map(Source::Shards)).collect();
        Self { inner, fields, sources, unread: false, starts }
    }
}

impl<F: Format + ?Sized> Format for View<F> {
    fn len(&self) -> usize {
        self.inner.len()
    }

    fn fields(&self) -> &RecordFields {
        &self.fields
    }

    fn files(&self) -> &Files {
        self.inner.files()
    }

    fn spans(&self, index: usize, each: &mut dyn FnMut(Span)) {
        if !self.unread {
            self.inner.spans(index, each);
        }
    }

    fn file_of(&self, index: usize) -> Option<usize> {
        self.inner.file_of(index)
    }

    fn shard_lens(&self) -> Vec<usize> {
        self.inner.shard_lens()
    }

    fn read<'a>(&'a self, index: usize, input: Input<'a>) -> Result<Record<'a>, Error> {
        let input = if self.unread { input.unread() } else { input };
        let mut values = self.inner.read(index, input)?.into_values();
        let shard = if self.starts.is_empty() { 0 } else { place(&self.starts, index).0 };
        let value = |source: &Source| match source {
            Source::Field(i) => std::mem::replace(&mut values[*i], Value::from(&[][..])),
            Source::Shards(values) => values[shard].clone(),
        };
        Ok(Record::new(&self.fields, self.sources.iter().map(value)))
    }

    fn reads_many(&self) -> bool {
        let is_own = |(i, source): (usize, &Source)| matches!(source, Source::Field(number) if *number == i);
        let fields = self.inner.fields().as_slice().len();
        self.inner.reads_many() && self.sources.len() == fields && self.sources.iter().enumerate().all(is_own)
    }

    fn write_many(&self, indices: &[usize], rows: &mut RowsMut<'_>) {
        self.inner.write_many(indices, rows);
    }
}

/// The name of a kind of column in error messages: decimals, which are read only with
/// `decimals_as_f64`.
pub(crate) const DECIMALS: &str = "decimals";
pub(crate) const NESTED: &str = "lists of other values than numbers";
pub(crate) const NO_VALUES: &str = "nulls only";

/// The maximum number of column names that an error lists.
const LISTED: usize = 20;

/// Whether a column has the chosen name, or is a member of a struct with that name.
pub(crate) fn is_in(name: &str, chosen: &str) -> bool {
    name.strip_prefix(chosen).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Returns the names of the columns that are needed for the fields in `names`, or `None` if all
/// columns are needed. A column of arrays also makes a field with their shapes, `NAME.shape`.
pub(crate) fn needed(path: &Path, names: Option<&[String]>, columns: &[&str]) -> Result<Vec<bool>, Error> {
    let gives = |column: &str, chosen: &str| is_in(column, chosen) || chosen.strip_suffix(".shape") == Some(column);
    let Some(names) = names else { return Ok(vec![true; columns.len()]) };
    if let Some(name) = names.iter().find(|name| !columns.iter().any(|column| gives(column, name))) {
        let problem = format!("no column {name}, but {}", columns.join(", "));
        return Err(Error::in_file(path, problem, "choose among these columns"));
    }
    Ok(columns.iter().map(|column| names.iter().any(|name| gives(column, name))).collect())
}

/// Returns the columns whose names are listed in `names`, in that order, or all columns if there is
/// no list. A name that no column has may be that of a struct; it stands for all members, whose
/// names start with it and a dot. `others` are the columns that can't be read, each with its
/// contents for the error message.
pub(crate) fn choose<C: Clone>(
    path: &Path,
    names: Option<&[String]>,
    all: &[C],
    name: impl Fn(&C) -> &str,
    others: &[(String, String)],
) -> Result<Vec<C>, Error> {
    let wrong = |problem: String, advice| Err(Error::in_file(path, problem, advice));
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
        1..=MAX_FIELDS => {}
        many => return wrong(format!("{many} columns; the maximum is {MAX_FIELDS}"), "choose some with `columns`"),
    }
    let same = |(i, column): &(usize, &C)| columns[..*i].iter().any(|other| name(other) == name(column));
    match columns.iter().enumerate().find(same) {
        Some((_, column)) => wrong(format!("two columns {}", name(column)), "choose different ones with `columns`"),
        None => Ok(columns),
    }
}
