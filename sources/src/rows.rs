//! [`Rows`]: samples that are the rows of several tensors.

use std::collections::HashMap;
use std::path::Path;

use slotline::dtype::DType;

use crate::columns::choose;
use crate::files::{Files, Span};
use crate::{Error, FieldKind, Format, Input, Record, RecordFields, Records, Value};

/// Tensors of the same length. Sample `i` has row `i` of each tensor, along the first dimension. A
/// tensor without dimensions is the same number in every sample. The fields have the names of the
/// tensors.
#[derive(Debug)]
pub struct Rows {
    files: Files,
    columns: Vec<Column>,
    len: usize,
    fields: RecordFields,
}

/// A tensor in a file.
#[derive(Debug)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<u64>,
    pub(crate) place: Place,
}

/// The location of a tensor's elements, in C order.
#[derive(Debug)]
pub(crate) enum Place {
    /// In the file, from this byte on. The file has all elements.
    File(u64),
    /// In this memory, from this byte on. The memory has all elements.
    Memory(Vec<u8>, usize),
}

impl Column {
    /// Returns the number of bytes of all elements, or `None` if it overflows.
    pub(crate) fn bytes(dtype: DType, shape: &[u64]) -> Option<u64> {
        // A dimension of 0 must not hide an overflow in the other dimensions.
        let dims = shape.iter().try_fold(dtype.size() as u64, |product, &dim| product.checked_mul(dim.max(1)))?;
        Some(if shape.contains(&0) { 0 } else { dims })
    }

    fn row(&self) -> u64 {
        Self::bytes(self.dtype, self.shape.get(1..).unwrap_or_default()).unwrap_or(0)
    }

    /// Returns the position of row `index`, in bytes from the first row.
    fn start(&self, index: usize) -> u64 {
        if self.shape.is_empty() { 0 } else { index as u64 * self.row() }
    }
}

impl Rows {
    /// Creates the dataset of the tensors in the file that have these names, or of all tensors.
    /// `found` are at least the tensors with these names, and `listed` are the names of all
    /// tensors.
    pub(crate) fn of(
        path: &Path,
        files: Files,
        found: Vec<Column>,
        listed: &[String],
        names: Option<&[String]>,
    ) -> Result<Records<Self>, Error> {
        let usage = |problem: String, advice| Err(Error::usage(format!("{}: {problem}", path.display()), advice));
        let chosen = choose(path, names, listed, |name| name, &[])?;
        let mut found: HashMap<_, _> = found.into_iter().map(|column| (column.name.clone(), column)).collect();
        let columns: Vec<_> = chosen.iter().filter_map(|name| found.remove(name)).collect();
        let Some((first, len)) = columns.iter().find_map(|column| Some((&column.name, *column.shape.first()?))) else {
            return usage("no tensor with rows".into(), "choose others with `columns`");
        };
        let mut fields = Vec::new();
        for column in &columns {
            let (&rows, row) = column.shape.split_first().unwrap_or((&len, &[]));
            if rows != len {
                let problem = format!("{first:?} has {len} rows, and {:?} has {rows}", column.name);
                return usage(problem, "choose tensors of one length with `columns`");
            }
            if column.row() == 0 {
                return usage(format!("the rows of {:?} are empty", column.name), "leave it out with `columns`");
            }
            // The elements fit in a file or in memory, so the dimensions fit in a `usize`.
            let row: Vec<_> = row.iter().map(|&dim| dim as usize).collect();
            let scalar = row.is_empty();
            let kind = if scalar { FieldKind::Number(column.dtype) } else { FieldKind::Tensor(column.dtype, row) };
            fields.push((column.name.clone(), kind));
        }
        Ok(Records::new(Self { files, columns, len: len as usize, fields: RecordFields::new(fields) }))
    }

    fn file_spans(&self, index: usize) -> impl Iterator<Item = Span> + '_ {
        self.columns.iter().filter_map(move |column| match column.place {
            Place::File(start) => Some(Span { file: 0, start: start + column.start(index), len: Some(column.row()) }),
            Place::Memory(..) => None,
        })
    }
}

impl Format for Rows {
    fn len(&self) -> usize {
        self.len
    }

    fn fields(&self) -> &RecordFields {
        &self.fields
    }

    fn files(&self) -> &Files {
        &self.files
    }

    fn spans(&self, index: usize, each: &mut dyn FnMut(Span)) {
        self.file_spans(index).for_each(each);
    }

    fn read<'a>(&'a self, index: usize, input: Input<'a>) -> Result<Record<'a>, Error> {
        let mut read = input.list(self.file_spans(index))?.into_iter();
        let mut values = smallvec::SmallVec::<[Value<'a>; 4]>::new();
        for column in &self.columns {
            let bytes = match &column.place {
                Place::File(_) => read.next().unwrap_or_default(),
                Place::Memory(memory, start) => {
                    let (start, row) = (start + column.start(index) as usize, column.row() as usize);
                    &memory[start..start + row]
                }
            };
            if column.dtype == DType::Bool && bytes.iter().any(|&byte| byte > 1) {
                let problem = format!("{:?}, row {index}: a truth value that is neither 0 nor 1", column.name);
                return Err(Error::in_file(self.files.path(0), problem, "write the file again"));
            }
            values.push(bytes.into());
        }
        Ok(Record::new(&self.fields, values))
    }
}
