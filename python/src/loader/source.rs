//! Datasets of arrays and files, and their combinations.

use std::cell::RefCell;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use pyo3::{PyTraverseError, PyVisit};
use slotline::BoxError;
use slotline::dataset::{ConcatDataset, Context, Dataset, OutOfRange, Subset, Upcoming};
use slotline::rng::Generator;
use slotline::sample::{Fields, Row, RowsMut, Sample};
use slotline::sampler::{Order, Sampler};
use slotline::source::{digits, map_npy, read_idx, read_npy};
use slotline_python_shielded::shielded;
use slotline_sequences::packing::PackingOptions;

use super::column::Column;
use super::failure;
use super::field::{Field, Form};
use super::files::{Files, options};
use super::map::{Declared, Function, Functions, Mapped, Names, Results};
use super::pack::Packed;
use super::plan::{self, Passes, Plan};
use super::stream::Stream;
use super::watched::watched;
use crate::detached::detached;

/// A dataset, or a combination of datasets.
#[derive(Debug)]
pub(crate) enum Node {
    /// Arrays of equal length; a sample is a row of each.
    Columns {
        columns: Box<[Column]>,
        rows: usize,
    },
    Files(Files),
    /// Samples without indices.
    Stream(Stream),
    Subset(Subset<Arc<Node>>),
    Concat(ConcatDataset<Arc<Node>>),
    /// Datasets of equal length; a sample has the fields of a sample of each.
    Stack(Box<[Arc<Node>]>),
    /// Some fields of columns or files, by their numbers.
    Fields(Arc<Node>, Box<[usize]>),
    /// Rows of one length, filled with samples.
    Packed(Packed),
    /// What a function of the program makes of each sample.
    Map(Box<Mapped>),
}

impl Node {
    /// Returns the fields of a sample.
    pub(crate) fn list(&self) -> Vec<&Field> {
        match self {
            Self::Columns { columns, .. } => columns.iter().map(Column::field).collect(),
            Self::Files(files) => files.fields().iter().collect(),
            Self::Stream(stream) => stream.fields().iter().collect(),
            Self::Subset(subset) => subset.dataset().list(),
            Self::Concat(concat) => concat.datasets().first().map_or_else(Vec::new, |first| first.list()),
            Self::Stack(parts) => parts.iter().flat_map(|part| part.list()).collect(),
            Self::Fields(node, fields) => {
                let all = node.list();
                fields.iter().map(|&field| all[field]).collect()
            }
            Self::Packed(packed) => packed.fields().iter().collect(),
            Self::Map(map) => map.fields().iter().collect(),
        }
    }

    /// Returns the same samples with only these fields, which must exist. What is left out is not written, and a part of a
    /// stack of which nothing is left is not read.
    fn select(self: &Arc<Self>, fields: &[usize]) -> Result<Arc<Self>, String> {
        let node = match &**self {
            Self::Columns { .. } | Self::Files(_) | Self::Stream(_) | Self::Map(_) => {
                Self::Fields(self.clone(), fields.into())
            }
            Self::Fields(node, of) => Self::Fields(node.clone(), fields.iter().map(|&field| of[field]).collect()),
            Self::Subset(subset) => Self::Subset(subset.of(subset.dataset().select(fields)?)),
            Self::Concat(concat) => {
                let parts: Result<Vec<_>, _> = concat.datasets().iter().map(|part| part.select(fields)).collect();
                Self::Concat(ConcatDataset::new(parts?).map_err(|error| error.to_string())?)
            }
            Self::Packed(_) => return Err("packed documents have all of their fields; select before pack".to_owned()),
            Self::Stack(parts) => {
                // The part of each field, and its number there.
                let places: Vec<(usize, usize)> = (0..)
                    .zip(parts)
                    .flat_map(|(part, node)| (0..node.list().len()).map(move |field| (part, field)))
                    .collect();
                let places: Vec<_> = fields.iter().map(|&field| places[field]).collect();
                let runs = places.chunk_by(|a, b| a.0 == b.0).map(|run| {
                    let fields: Vec<_> = run.iter().map(|&(_, field)| field).collect();
                    parts[run[0].0].select(&fields)
                });
                Self::Stack(runs.collect::<Result<_, _>>()?)
            }
        };
        Ok(Arc::new(node))
    }

    /// Returns the form of each field, with the room that any sample needs.
    fn forms(&self) -> Vec<Form> {
        match self {
            Self::Subset(subset) => subset.dataset().forms(),
            Self::Concat(concat) => {
                let mut parts = concat.datasets().iter().map(|part| part.forms());
                let mut forms = parts.next().unwrap_or_default();
                for part in parts {
                    forms.iter_mut().zip(part).for_each(|(form, other)| form.widen(other));
                }
                forms
            }
            Self::Stack(parts) => parts.iter().flat_map(|part| part.forms()).collect(),
            Self::Columns { .. }
            | Self::Files(_)
            | Self::Stream(_)
            | Self::Fields(..)
            | Self::Packed(_)
            | Self::Map(_) => self.list().iter().map(|field| field.form).collect(),
        }
    }

    /// Returns the path or URL of the file that a sample is in, which must exist. A sample of a
    /// stack has the file of the first part that has one.
    fn path(&self, index: usize) -> Option<PathBuf> {
        match self {
            Self::Files(files) => files.path(index),
            Self::Subset(subset) => subset.dataset().path(subset.locate(index)?),
            Self::Concat(concat) => {
                let (part, index) = concat.locate(index)?;
                concat.datasets()[part].path(index)
            }
            Self::Stack(parts) => parts.iter().find_map(|part| part.path(index)),
            Self::Fields(node, _) => node.path(index),
            Self::Map(map) => map.samples().path(index),
            Self::Columns { .. } | Self::Stream(_) | Self::Packed(_) => None,
        }
    }

    /// Returns the class names of the field `label`, of a folder of classes or a part of it.
    fn classes(&self) -> Option<Vec<String>> {
        match self {
            Self::Files(files) => files.classes(),
            Self::Subset(subset) => subset.dataset().classes(),
            Self::Concat(concat) => {
                let mut all = concat.datasets().iter().map(|part| part.classes());
                let first = all.next()??;
                all.all(|other| other.as_ref() == Some(&first)).then_some(first)
            }
            _ => None,
        }
    }

    /// Returns a description of the dataset that contains `of` for each of its parts, in order.
    fn outline(&self, of: &impl Fn(&Self) -> String) -> String {
        let parts = match self {
            Self::Columns { .. } | Self::Files(_) | Self::Stream(_) => return of(self),
            Self::Fields(node, _) => return node.outline(of),
            Self::Subset(subset) => std::slice::from_ref(subset.dataset()),
            Self::Concat(concat) => concat.datasets(),
            Self::Stack(parts) => parts,
            Self::Packed(packed) => std::slice::from_ref(packed.documents()),
            Self::Map(map) => std::slice::from_ref(map.samples()),
        };
        let parts: Vec<_> = parts.iter().map(|part| part.outline(of)).collect();
        format!("{}({})", of(self), parts.join(", "))
    }

    /// Returns whether samples are read from files, or, with `on_servers`, from servers. Arrays may
    /// be mapped from files.
    pub(crate) fn reads_files(&self, on_servers: bool) -> bool {
        match self {
            Self::Columns { columns, .. } => !on_servers && columns.iter().any(Column::is_mapped),
            Self::Files(files) => !on_servers || files.is_remote(),
            Self::Stream(stream) => !on_servers || stream.is_remote(),
            Self::Subset(subset) => subset.dataset().reads_files(on_servers),
            Self::Concat(concat) => concat.datasets().iter().any(|part| part.reads_files(on_servers)),
            Self::Stack(parts) => parts.iter().any(|part| part.reads_files(on_servers)),
            Self::Fields(node, _) => node.reads_files(on_servers),
            Self::Packed(packed) => packed.documents().reads_files(on_servers),
            Self::Map(map) => map.samples().reads_files(on_servers),
        }
    }

    /// Calls `visit` with each function of the program that is called.
    pub(crate) fn visit_functions(&self, visit: &mut dyn FnMut(&Function)) {
        let visit = RefCell::new(visit);
        self.outline(&|node: &Self| {
            match node {
                Self::Map(map) => visit.borrow_mut()(map.function()),
                Self::Stream(stream) => stream.functions().for_each(&mut **visit.borrow_mut()),
                _ => {}
            }
            String::new()
        });
    }

    /// Returns whether functions of the program are called.
    pub(crate) fn calls_python(&self) -> bool {
        let mut found = false;
        self.visit_functions(&mut |_| found = true);
        found
    }

    /// Returns the format of files, or how other datasets are combined.
    fn format(&self) -> String {
        match self {
            Self::Columns { .. } => "arrays".to_owned(),
            Self::Files(files) => files.format(),
            Self::Stream(stream) => stream.format(),
            Self::Subset(_) => "subset".to_owned(),
            Self::Concat(_) => "concat".to_owned(),
            Self::Stack(_) => "stack".to_owned(),
            Self::Fields(node, _) => node.format(),
            Self::Packed(packed) => packed.format(),
            Self::Map(_) => "map".to_owned(),
        }
    }

    /// Returns how pictures are decoded, or how other datasets are combined.
    fn image(&self) -> String {
        match self {
            Self::Columns { .. } | Self::Stream(_) => "none".to_owned(),
            Self::Files(files) => files.image().unwrap_or_else(|| "none".to_owned()),
            Self::Packed(_) => "packed".to_owned(),
            _ => self.format(),
        }
    }

    /// Returns the warnings about the files, such as failed connections to a server.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let found = RefCell::new(Vec::new());
        self.outline(&|node: &Self| {
            if let Self::Files(files) = node {
                found.borrow_mut().extend(files.warnings());
            }
            String::new()
        });
        found.into_inner()
    }

    /// Writes a sample, which must exist.
    pub(crate) fn write(&self, index: usize, row: &mut Row<'_>, cx: &mut Context) -> Result<(), BoxError> {
        let Record { node, index, cx } = match self {
            Self::Columns { columns, .. } => return columns.iter().try_for_each(|column| column.write(index, row)),
            Self::Files(files) => return files.write(index, row, cx),
            Self::Fields(node, fields) => return node.write_fields(fields, index, row, cx),
            Self::Packed(packed) => return packed.write(index, row, cx),
            Self::Map(map) => return map.write(0..map.fields().len(), index, row, cx),
            Self::Stream(_) => return Err("a stream has no samples by index".into()),
            Self::Stack(parts) => return parts.iter().try_for_each(|part| part.write(index, row, cx)),
            Self::Subset(subset) => subset.get(index, cx)?,
            Self::Concat(concat) => concat.get(index, cx)?,
        };
        node.write(index, row, cx)
    }

    /// Writes some fields of a sample of columns, of files, or that a function makes.
    fn write_fields(
        &self,
        fields: &[usize],
        index: usize,
        row: &mut Row<'_>,
        cx: &mut Context,
    ) -> Result<(), BoxError> {
        match self {
            Self::Columns { columns, .. } => fields.iter().try_for_each(|&field| columns[field].write(index, row)),
            Self::Files(files) => files.write_fields(fields.iter().copied(), index, row, cx),
            Self::Map(map) => map.write(fields.iter().copied(), index, row, cx),
            _ => Err("only columns and files have fields of their own".into()),
        }
    }
}

/// A sample that is written once a row of a batch is available.
#[derive(Debug)]
pub(crate) struct Record<'a> {
    node: &'a Node,
    index: usize,
    cx: &'a mut Context,
}

impl Sample for Record<'_> {
    type Schema = ();

    fn declare(&self, fields: &mut Fields) {
        declare(self.node, fields);
    }

    #[inline]
    fn write(self, row: &mut Row<'_>) -> Result<(), BoxError> {
        self.node.write(self.index, row, self.cx)
    }
}

/// Declares each field with its number as its name: only Python uses the real names.
fn declare(node: &Node, fields: &mut Fields) {
    for (place, form) in node.forms().iter().enumerate() {
        fields.named(place, form);
    }
}

impl Dataset for Node {
    type Sample<'a> = Record<'a>;

    fn len(&self) -> usize {
        match self {
            Self::Columns { rows, .. } => *rows,
            Self::Files(files) => files.len(),
            Self::Stream(_) => 0,
            Self::Subset(subset) => subset.len(),
            Self::Concat(concat) => concat.len(),
            Self::Stack(parts) => parts.first().map_or(0, |part| part.len()),
            Self::Fields(node, _) => node.len(),
            Self::Packed(packed) => packed.len(),
            Self::Map(map) => map.samples().len(),
        }
    }

    #[inline]
    fn get<'a>(&'a self, index: usize, cx: &'a mut Context) -> Result<Record<'a>, BoxError> {
        let len = self.len();
        if index >= len {
            return Err(OutOfRange { dataset: "the dataset", index, len }.into());
        }
        Ok(Record { node: self, index, cx })
    }

    #[inline]
    fn prefetch(&self, index: usize) {
        match self {
            Self::Columns { columns, .. } => columns.iter().for_each(|column| column.prefetch(index)),
            // They are read ahead instead.
            Self::Files(_) | Self::Stream(_) | Self::Packed(_) => {}
            Self::Subset(subset) => subset.prefetch(index),
            Self::Concat(concat) => concat.prefetch(index),
            Self::Stack(parts) => parts.iter().for_each(|part| part.prefetch(index)),
            Self::Map(map) => map.samples().prefetch(index),
            Self::Fields(node, fields) => {
                if let Self::Columns { columns, .. } = &**node {
                    fields.iter().for_each(|&field| columns[field].prefetch(index));
                }
            }
        }
    }

    fn reads_ahead(&self) -> bool {
        match self {
            Self::Columns { .. } | Self::Stream(_) => false,
            Self::Files(files) => files.reads_ahead(),
            Self::Subset(subset) => subset.reads_ahead(),
            Self::Concat(concat) => concat.reads_ahead(),
            Self::Stack(parts) => parts.iter().any(Dataset::reads_ahead),
            Self::Fields(node, _) => node.reads_ahead(),
            Self::Packed(packed) => packed.documents().reads_ahead(),
            Self::Map(map) => map.samples().reads_ahead(),
        }
    }

    fn begin_pass(&self, upcoming: Upcoming) {
        match self {
            Self::Columns { .. } | Self::Stream(_) => {}
            Self::Files(files) => files.begin_pass(upcoming),
            Self::Subset(subset) => subset.begin_pass(upcoming),
            Self::Concat(concat) => concat.begin_pass(upcoming),
            Self::Fields(node, _) => node.begin_pass(upcoming),
            Self::Map(map) => map.samples().begin_pass(upcoming),
            Self::Packed(packed) if self.reads_ahead() => packed.begin_pass(upcoming),
            Self::Packed(_) => {}
            Self::Stack(parts) => {
                parts.iter().filter(|part| part.reads_ahead()).for_each(|part| part.begin_pass(upcoming.clone()));
            }
        }
    }

    fn reads_many(&self) -> bool {
        match self {
            Self::Files(files) => files.reads_many(),
            Self::Subset(subset) => subset.reads_many(),
            Self::Concat(concat) => concat.reads_many(),
            _ => false,
        }
    }

    fn write_many(&self, indices: &[usize], cx: &mut Context, rows: &mut RowsMut<'_>) -> Result<(), BoxError> {
        let written = match self {
            Self::Files(files) => files.write_some(indices, rows),
            Self::Subset(subset) => return subset.write_many(indices, cx, rows),
            Self::Concat(concat) => return concat.write_many(indices, cx, rows),
            _ => 0,
        };
        for (place, &index) in indices.iter().enumerate().skip(written) {
            cx.go_to(place);
            rows.push(self.get(index, cx)?)?;
        }
        Ok(())
    }

    fn fields(&self) -> Option<Fields> {
        let mut fields = Fields::new();
        declare(self, &mut fields);
        Some(fields)
    }
}

/// The options for decoding pictures: a dict that `slotline._files` has checked.
#[derive(Clone, Debug, FromPyObject)]
#[pyo3(from_item_all)]
#[cfg_attr(not(feature = "files"), expect(dead_code, reason = "nothing is read"))]
pub(crate) struct Image {
    pub(crate) transforms: String,
    pub(crate) field: Option<String>,
    pub(crate) dtype: String,
    pub(crate) channels_last: bool,
    /// The field with masks, the type of their elements, and the class of padding.
    pub(crate) mask: Option<(String, String, i64)>,
    /// The field with boxes, and their format.
    pub(crate) boxes: Option<(String, String)>,
}

/// The options for opening files of any format, from the arguments of `slotline.open`, passed as a
/// dict.
#[derive(Debug, FromPyObject)]
#[pyo3(from_item_all)]
#[cfg_attr(not(feature = "files"), expect(dead_code, reason = "nothing is read"))]
pub(crate) struct Opening {
    pub(crate) columns: Option<Vec<String>>,
    pub(crate) skip_incomplete: bool,
    pub(crate) missing_end: bool,
    pub(crate) missing_as_zero: bool,
    pub(crate) decimals_as_f64: bool,
    /// The names of fields, and their types in the notation of slotline-sources.
    pub(crate) decode: Vec<(String, String)>,
    pub(crate) file_column: Vec<String>,
    pub(crate) without_files: bool,
    /// The names of columns, and their numbers as text.
    pub(crate) default_number: Vec<(String, String)>,
    pub(crate) extensions: Option<Vec<String>>,
    pub(crate) allow_empty: bool,
    pub(crate) mask_folder: Option<PathBuf>,
    pub(crate) block_size: Option<usize>,
    pub(crate) dtype: Option<String>,
    pub(crate) memory_limit: Option<u64>,
    pub(crate) room: Option<usize>,
    /// `None`: next to the files; an empty path: do not save.
    pub(crate) index_files: Option<PathBuf>,
}

/// The most concurrent requests to a server, the most seconds for one request, and whether to
/// follow redirects to other hosts.
pub(crate) type Requests = (Option<usize>, Option<f64>, bool);

/// The options for reading files that all formats share: a dict that `slotline._files` has checked.
#[derive(Clone, Debug, FromPyObject)]
#[pyo3(from_item_all)]
#[cfg_attr(not(feature = "files"), expect(dead_code, reason = "nothing is read"))]
pub(crate) struct Reading {
    /// The number of bytes to read ahead.
    pub(crate) read_ahead: u64,
    /// The folder for objects of buckets, and the most bytes to use there.
    pub(crate) cache: Option<(PathBuf, u64)>,
    #[cfg_attr(not(feature = "remote"), expect(dead_code, reason = "there are no servers"))]
    pub(crate) requests: Requests,
    pub(crate) image: Option<Image>,
}

/// How token files are cut into samples: a dict.
#[derive(Debug, FromPyObject)]
#[pyo3(from_item_all)]
#[cfg_attr(not(feature = "files"), expect(dead_code, reason = "nothing is read"))]
pub(crate) struct Blocks {
    pub(crate) size: usize,
    pub(crate) stride: Option<usize>,
    /// The token type of files without a header; `None` to detect a header.
    pub(crate) dtype: Option<String>,
    pub(crate) labels: bool,
    pub(crate) widen: bool,
}

/// A dataset that the engine reads; the native part of `slotline.Dataset`.
#[pyclass(module = "slotline._slotline", frozen)]
pub(crate) struct Source {
    pub(crate) node: Arc<Node>,
    pub(crate) functions: Functions,
}

impl Source {
    /// Creates a dataset of columns. `names` appear in errors.
    fn of(py: Python<'_>, columns: Vec<Column>, names: &[String]) -> PyResult<Self> {
        let Some(rows) = columns.first().map(Column::rows) else {
            return Err(failure::invalid(py, "there are no arrays; pass at least one"));
        };
        if let Some((column, name)) = columns.iter().zip(names).find(|(column, _)| column.rows() != rows) {
            let (first, len) = (&names[0], column.rows());
            return Err(failure::invalid(
                py,
                format!("{name} has {len} rows, but {first} has {rows}; arrays of one dataset must have equal lengths"),
            ));
        }
        Ok(Self::new(Node::Columns { columns: columns.into(), rows }))
    }

    fn new(node: Node) -> Self {
        Self::shared(Arc::new(node))
    }

    fn shared(node: Arc<Node>) -> Self {
        let functions = Python::attach(|py| Functions::of(py, &node));
        Self { node, functions }
    }
}

#[shielded]
#[pymethods]
impl Source {
    /// Reads arrays in place. `names` appear in errors.
    #[staticmethod]
    fn arrays(arrays: &Bound<'_, PyTuple>, names: Vec<String>) -> PyResult<Self> {
        let columns = arrays.iter().zip(&names).map(|(array, name)| Column::of(&array, name));
        Self::of(arrays.py(), columns.collect::<PyResult<_>>()?, &names)
    }

    /// Reads IDX files into memory.
    #[staticmethod]
    fn idx(py: Python<'_>, paths: Vec<PathBuf>) -> PyResult<Self> {
        Self::files(py, &paths, false, |path| read_idx(path))
    }

    /// Reads `.npy` files into memory, or maps them, which requires that they do not change.
    #[staticmethod]
    fn npy(py: Python<'_>, paths: Vec<PathBuf>, mapped: bool) -> PyResult<Self> {
        Self::files(py, &paths, mapped, move |path| match mapped {
            // SAFETY: the documentation of `from_npy` requires that the file does not change.
            true => unsafe { map_npy(path) },
            false => read_npy(path),
        })
    }

    /// Returns the dataset of digits that is part of the package.
    #[staticmethod]
    fn digits(py: Python<'_>) -> PyResult<Self> {
        let ((images, labels), names) = (digits(), ["images".to_owned(), "labels".to_owned()]);
        let columns = [images.into(), labels.into()].into_iter().zip(&names);
        let columns = columns.map(|(array, name)| Column::of_file(py, array, false, name)).collect::<PyResult<_>>()?;
        Self::of(py, columns, &names)
    }

    /// Opens files, and detects their format.
    #[staticmethod]
    fn open(
        py: Python<'_>,
        path: PathBuf,
        opening: Opening,
        reading: Reading,
        shuffle_buffer: usize,
    ) -> PyResult<Self> {
        let options = options(py, opening)?;
        Ok(Self::new(match Stream::open(py, &path, &options, shuffle_buffer, &reading)? {
            Some(stream) => Node::Stream(stream),
            None => Node::Files(Files::open(py, &path, &options, &reading)?),
        }))
    }

    /// Opens a folder with one folder of files for each class.
    #[staticmethod]
    fn folder(
        py: Python<'_>,
        path: PathBuf,
        extensions: Option<Vec<String>>,
        allow_empty: bool,
        mask_folder: Option<PathBuf>,
        reading: Reading,
    ) -> PyResult<Self> {
        Ok(Self::new(Node::Files(Files::folder(py, &path, extensions, allow_empty, mask_folder, &reading)?)))
    }

    /// Opens token files.
    #[staticmethod]
    fn tokens(py: Python<'_>, paths: Vec<PathBuf>, blocks: Blocks, reading: Reading) -> PyResult<Self> {
        Ok(Self::new(Node::Files(Files::tokens(py, paths, &blocks, &reading)?)))
    }

    /// Returns the samples at these indices.
    #[staticmethod]
    fn subset(py: Python<'_>, source: &Self, indices: Vec<usize>) -> PyResult<Self> {
        let subset = Subset::new(source.node.clone(), indices);
        Ok(Self::new(Node::Subset(subset.map_err(|error| failure::invalid(py, error.to_string()))?)))
    }

    /// As many samples as `len`: those at `start`, `start + step`, and so on, which continue at the other end. Nothing is
    /// stored for each of them.
    #[staticmethod]
    fn every(source: &Self, start: usize, step: isize, len: usize) -> Self {
        let node = source.node.clone();
        let all = node.len() as i128;
        let index = move |place| (start as i128 + place as i128 * step as i128).rem_euclid(all) as usize;
        Self::new(Node::Subset(Subset::ordered(node, Order::computed(len, 0, index))))
    }

    /// The samples of a mixture of the parts of a concatenation, as its first pass with seed 0 has them without shuffling.
    #[staticmethod]
    fn mixed(py: Python<'_>, source: &Self, plan: &Plan) -> PyResult<Self> {
        let Passes::Mixture(mixture) = &plan.passes else {
            return Err(failure::invalid(py, "the plan is no mixture"));
        };
        let (mut mixture, mut order) = (mixture.clone().shuffle(false), Order::default());
        let drawn = mixture.order(&mut Generator::from_seed(0), &mut order);
        drawn.map_err(|error| failure::invalid(py, error.to_string()))?;
        Ok(Self::new(Node::Subset(Subset::ordered(source.node.clone(), order))))
    }

    /// Bins of `capacity` tokens, filled with documents of these lengths, given as the bytes of `u64`. Each field is padded
    /// with an element of these bytes.
    #[staticmethod]
    #[expect(clippy::too_many_arguments, reason = "they are the options")]
    fn packed(
        py: Python<'_>,
        source: &Self,
        lengths: &[u8],
        capacity: usize,
        whole: bool,
        drop_last: bool,
        seed: Option<u64>,
        padding: Vec<Vec<u8>>,
    ) -> PyResult<Self> {
        let mut options = PackingOptions::new(capacity).drop_last(drop_last);
        if let Some(seed) = seed {
            options = options.seed(seed);
        }
        let lengths = plan::lengths(lengths);
        let packing = if whole { options.best_fit(lengths) } else { options.chunks(lengths) };
        let packing = packing.map_err(|error| failure::invalid(py, error.to_string()))?;
        Ok(Self::new(Node::Packed(Packed::new(py, source.node.clone(), packing, padding)?)))
    }

    /// What a function makes of each sample. `names` are those of the samples' fields, and `new` those of the results'.
    /// The function must support weak references.
    fn map(&self, function: &Bound<'_, PyAny>, names: Names, new: Names, fields: Vec<Declared<'_>>) -> PyResult<Self> {
        let results = Results::new(function.py(), new, fields)?;
        let function = Function::new(function, &self.node, names)?;
        Ok(Self::new(match &*self.node {
            Node::Stream(stream) => Node::Stream(stream.then(function, Some(results))),
            _ => Node::Map(Box::new(Mapped::new(self.node.clone(), function, results))),
        }))
    }

    /// The samples of a stream that a function chooses; `None` for other datasets. The function must support weak
    /// references.
    fn filter(&self, function: &Bound<'_, PyAny>, names: Names) -> PyResult<Option<Self>> {
        let Node::Stream(stream) = &*self.node else { return Ok(None) };
        let function = Function::new(function, &self.node, names)?;
        Ok(Some(Self::new(Node::Stream(stream.then(function, None)))))
    }

    /// A stream that shuffles as many samples at a time as `window`; `None` for other datasets.
    fn shuffle(&self, window: usize) -> Option<Self> {
        let Node::Stream(stream) = &*self.node else { return None };
        Some(Self::new(Node::Stream(stream.shuffled(window))))
    }

    /// The same samples with only the fields of these numbers, which must exist.
    fn select(&self, py: Python<'_>, fields: Vec<usize>) -> PyResult<Self> {
        if let Node::Stream(_) = *self.node {
            let what = "fields of a stream can't be selected; pass columns to slotline.open instead";
            return Err(failure::invalid(py, what));
        }
        let node = self.node.select(&fields).map_err(|what| failure::invalid(py, what))?;
        Ok(Self::shared(node))
    }

    /// The samples of several datasets, in sequence.
    #[staticmethod]
    fn concat(py: Python<'_>, sources: Vec<PyRef<'_, Self>>) -> PyResult<Self> {
        let parts: Vec<_> = sources.iter().map(|source| source.node.clone()).collect();
        let (first, others) = parts.split_first().map_or((Vec::new(), &[][..]), |(first, rest)| (first.list(), rest));
        for (place, part) in (1..).zip(others) {
            let fields = part.list();
            if fields.len() != first.len() {
                let (len, expected) = (fields.len(), first.len());
                return Err(failure::invalid(
                    py,
                    format!("dataset {place} has {len} fields, but dataset 0 has {expected}"),
                ));
            }
            if let Some((field, (a, b))) = first.iter().zip(&fields).enumerate().find(|(_, (a, b))| !a.is_like(b)) {
                let (expected, found) = (a.about(), b.about());
                return Err(failure::invalid(
                    py,
                    format!(
                        "field {field} of dataset {place} is {found}, but that of dataset 0 is {expected}; convert one of them"
                    ),
                ));
            }
        }
        let concat = ConcatDataset::new(parts.clone());
        Ok(Self::new(Node::Concat(concat.map_err(|error| failure::invalid(py, error.to_string()))?)))
    }

    /// Returns several datasets of equal length combined sample by sample.
    #[staticmethod]
    fn stack(py: Python<'_>, sources: Vec<PyRef<'_, Self>>) -> PyResult<Self> {
        let parts: Box<[_]> = sources.iter().map(|source| source.node.clone()).collect();
        let Some(len) = parts.first().map(|part| part.len()) else {
            return Err(failure::invalid(py, "there are no datasets; pass at least one"));
        };
        if let Some((place, part)) = parts.iter().enumerate().find(|(_, part)| part.len() != len) {
            let other = part.len();
            return Err(failure::invalid(
                py,
                format!(
                    "dataset {place} has {other} samples, but dataset 0 has {len}; datasets that are stacked must have equal \
                 lengths"
                ),
            ));
        }
        Ok(Self::new(Node::Stack(parts)))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.functions.traverse(&visit)
    }

    fn __len__(&self) -> PyResult<usize> {
        match *self.node {
            Node::Stream(_) => Err(failure::no_len()),
            _ => Ok(self.node.len()),
        }
    }

    /// The element type's name and the shape of each field of a sample.
    #[getter]
    fn fields<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let about = |field: &Field| (field.dtype().to_owned(), PyTuple::new(py, field.dims())?).into_pyobject(py);
        PyList::new(py, self.node.list().into_iter().map(about).collect::<PyResult<Vec<_>>>()?)
    }

    /// Returns the description of the dataset for a state: formats, lengths of the parts, and image
    /// pipeline.
    fn outline(&self) -> (String, String, String) {
        let node = &self.node;
        (node.outline(&Node::format), node.outline(&|node| node.len().to_string()), node.outline(&Node::image))
    }

    /// The names of the fields, for files that name them.
    #[getter]
    fn names(&self) -> Option<Vec<String>> {
        match &*self.node {
            Node::Files(files) => Some(files.names()),
            Node::Stream(stream) => Some(stream.names()),
            _ => None,
        }
    }

    /// Returns the path or URL of the file that each of the first `count` samples is in, or `None`
    /// for a stream, and if one of them is not in a file.
    fn paths(&self, py: Python<'_>, count: usize) -> Option<Vec<OsString>> {
        let node = &self.node;
        if let Node::Stream(_) = **node {
            return None;
        }
        detached(py, || (0..node.len().min(count)).map(|index| Some(node.path(index)?.into_os_string())).collect())
    }

    /// The class names, for a folder of classes.
    #[getter]
    fn classes(&self) -> Option<Vec<String>> {
        self.node.classes()
    }
}

impl Source {
    fn files(
        py: Python<'_>,
        paths: &[PathBuf],
        mapped: bool,
        read: impl Fn(&PathBuf) -> Result<slotline::array::AnyArray, slotline::source::SourceError> + Copy + Send + 'static,
    ) -> PyResult<Self> {
        let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        let column = |(path, name): (&PathBuf, &String)| {
            let own = path.clone();
            let array = watched(py, move || read(&own))?.map_err(|error| failure::data(py, &error))?;
            Column::of_file(py, array, mapped, name)
        };
        Self::of(py, paths.iter().zip(&names).map(column).collect::<PyResult<_>>()?, &names)
    }
}
