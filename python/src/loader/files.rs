//! Samples in files of all formats that slotline-sources supports.

use std::any::Any;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use pyo3::prelude::*;
use slotline::BoxError;
use slotline::dataset::{Context, Dataset, Upcoming};
use slotline::dtype::DType;
use slotline::sample::{Row, RowsMut};
use slotline_image::{AnyPipeline, PipelineBuilder};
use slotline_sources::folder::{Folder, FolderOptions};
use slotline_sources::litdata::LitData;
use slotline_sources::manifest::Manifest;
use slotline_sources::mds::Mds;
use slotline_sources::pictures::{BoxFormat, Pictures};
use slotline_sources::rows::Rows;
use slotline_sources::table::Table;
use slotline_sources::tar::Tar;
use slotline_sources::tfrecord::TfRecord;
use slotline_sources::tokens::{self, BlockOptions};
use slotline_sources::{
    DefaultNumber, Error, FieldKind, Format, IndexFiles, OpenOptions, Record, RecordField, RecordFields, Records,
};

use super::failure;
use super::field::{Field, Form, Kind, Room};
use super::source::{Blocks, Image, Opening, Reading};
use super::watched::watched;

/// A dataset of files that are read by index.
#[derive(Debug)]
pub(crate) struct Files {
    records: Records<dyn Format>,
    /// The same records with decoded pictures, and a description of the decoding.
    pictures: Option<Box<(Pictures, String)>>,
    fields: Box<[Field]>,
    /// The distance in tokens between the starts of blocks, if it differs from the block size;
    /// otherwise 0. (An `Option` would add instructions to every match on `Node`, which happens for
    /// each sample.)
    stride: usize,
}

impl Files {
    /// Opens files, and detects their format.
    pub(crate) fn open(py: Python<'_>, path: &Path, options: &OpenOptions, reading: &Reading) -> PyResult<Self> {
        let (path, options) = (path.to_owned(), options.clone());
        Self::of(py, reading, move || options.open(path))
    }

    /// Opens a folder with one folder of files for each class.
    pub(crate) fn folder(
        py: Python<'_>,
        path: &Path,
        extensions: Option<Vec<String>>,
        allow_empty: bool,
        mask_folder: Option<PathBuf>,
        reading: &Reading,
    ) -> PyResult<Self> {
        let mut options = FolderOptions::new().allow_empty(allow_empty);
        if let Some(extensions) = extensions {
            options = options.extensions(extensions);
        }
        if let Some(folder) = mask_folder {
            options = options.mask_folder(folder);
        }
        let path = path.to_owned();
        Self::of(py, reading, move || Ok(options.open(path)?.erased()))
    }

    /// Opens token files.
    pub(crate) fn tokens(py: Python<'_>, paths: Vec<PathBuf>, blocks: &Blocks, reading: &Reading) -> PyResult<Self> {
        let mut options = BlockOptions::new(blocks.size).labels(blocks.labels).widen(blocks.widen);
        if let Some(stride) = blocks.stride {
            options = options.stride(stride);
        }
        if let Some(name) = &blocks.dtype {
            let dtype: DType = name.parse().map_err(|_| failure::invalid(py, format!("tokens of type {name}")))?;
            options = options.dtype(dtype);
        }
        let has_header = |paths: &[PathBuf]| {
            let files = slotline_sources::files::Files::open(&slotline_sources::paths::expand(paths)?[..1])?;
            let mut memory = Vec::new();
            let len = files.file_len(0).unwrap_or(0).min(4);
            let start = files.read(slotline_sources::files::Span { file: 0, start: 0, len: Some(len) }, &mut memory)?;
            let magic = start.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
            Ok::<_, Error>(matches!(magic, Some(20_240_520 | 20_240_801)))
        };
        let may_have_header = blocks.dtype.is_none();
        let files = Self::of(py, reading, move || match may_have_header && has_header(&paths)? {
            true => Ok(options.open_llmc(&paths)?.erased()),
            false => Ok(options.open_raw(&paths)?.erased()),
        })?;
        Ok(Self { stride: blocks.stride.filter(|&stride| stride != blocks.size).unwrap_or_default(), ..files })
    }

    fn of(
        py: Python<'_>,
        reading: &Reading,
        open: impl FnOnce() -> Result<Records<dyn Format>, Error> + Send + 'static,
    ) -> PyResult<Self> {
        let own = reading.clone();
        let opened = watched(py, move || {
            let records = own.limited(|| cached(open()?, &own)).map_err(|error| slotline::with_causes(&error))?;
            let records = records.read_ahead(own.read_ahead);
            let pictures = own.image.as_ref().map(|image| decoded(&records, image)).transpose();
            Ok((records, pictures.map_err(|what| format!("image: {what}"))?.map(Box::new)))
        })?;
        let (records, pictures) = opened.map_err(|what: String| failure::invalid(py, what))?;
        let files = Self { records, pictures, fields: Box::default(), stride: 0 };
        let fields =
            files.record_fields().as_slice().iter().map(|field| described(py, field)).collect::<PyResult<_>>()?;
        Ok(Self { fields, ..files })
    }

    /// Returns the name of the format, with the options that determine which samples the files
    /// contain.
    pub(crate) fn format(&self) -> String {
        let format: &dyn Any = self.records.format();
        let names = [
            ("folder", format.is::<Folder>()),
            ("manifest", format.is::<Manifest>()),
            ("tar", format.is::<Tar>()),
            ("tfrecord", format.is::<TfRecord>()),
            ("parquet", format.downcast_ref().is_some_and(Table::is_parquet)),
            ("arrow", format.is::<Table>()),
            ("mds", format.is::<Mds>()),
            ("litdata", format.is::<LitData>()),
            ("rows", format.is::<Rows>()),
            ("tokens", format.is::<tokens::Blocks>()),
            ("sequences", format.is::<tokens::Sequences>()),
        ];
        let name = names.into_iter().find(|(_, is_it)| *is_it).map_or("files", |(name, _)| name);
        match self.stride {
            0 => name.to_owned(),
            stride => format!("{name} with stride {stride}"),
        }
    }

    /// Returns the description of how pictures are decoded.
    pub(crate) fn image(&self) -> Option<String> {
        self.pictures.as_ref().map(|pictures| pictures.1.clone())
    }

    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    pub(crate) fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Returns the names of the fields.
    pub(crate) fn names(&self) -> Vec<String> {
        self.record_fields().as_slice().iter().map(|field| field.name.clone()).collect()
    }

    fn record_fields(&self) -> &RecordFields {
        self.pictures.as_ref().map_or(self.records.format().fields(), |pictures| pictures.0.record_fields())
    }

    /// Returns the class names, for a folder of classes.
    pub(crate) fn classes(&self) -> Option<Vec<String>> {
        let format: &dyn Any = self.records.format();
        let classes = format.downcast_ref::<Folder>()?.classes();
        (!classes.is_empty()).then(|| classes.to_vec())
    }

    /// Returns the path or URL of the file that a sample is in, if it is in one.
    pub(crate) fn path(&self, index: usize) -> Option<PathBuf> {
        let format = self.records.format();
        Some(format.files().path(format.file_of(index)?))
    }

    /// Writes a sample.
    pub(crate) fn write(&self, index: usize, row: &mut Row<'_>, cx: &mut Context) -> Result<(), BoxError> {
        self.write_fields(0..self.fields.len(), index, row, cx)
    }

    /// Writes some fields of a sample. A picture that is not among them is not decoded.
    pub(crate) fn write_fields(
        &self,
        chosen: impl Iterator<Item = usize>,
        index: usize,
        row: &mut Row<'_>,
        cx: &mut Context,
    ) -> Result<(), BoxError> {
        let (plain, picture);
        let (record, decoded) = match &self.pictures {
            None => {
                plain = self.records.get(index, cx)?;
                (&plain, None)
            }
            Some(pictures) => {
                picture = pictures.0.get(index, cx)?;
                (picture.record(), Some(&picture))
            }
        };
        write_some(&self.fields, chosen, record, row, |i, row| {
            decoded.map_or(Ok(false), |picture| picture.write_decoded(i, row))
        })
    }

    /// Returns whether the files are in a bucket or on a web server.
    pub(crate) fn is_remote(&self) -> bool {
        self.records.format().files().is_remote()
    }

    pub(crate) fn warnings(&self) -> Vec<String> {
        self.pictures.as_ref().map_or_else(|| self.records.warnings(), |pictures| pictures.0.warnings())
    }

    pub(crate) fn reads_ahead(&self) -> bool {
        self.records.reads_ahead()
    }

    pub(crate) fn reads_many(&self) -> bool {
        self.pictures.is_none() && self.records.reads_many()
    }

    /// Writes the first of these samples that can be written together, and returns their number.
    pub(crate) fn write_some(&self, indices: &[usize], rows: &mut RowsMut<'_>) -> usize {
        rows.untyped();
        self.records.write_some(indices, rows)
    }

    pub(crate) fn begin_pass(&self, upcoming: Upcoming) {
        self.records.begin_pass(upcoming);
    }
}

/// Converts the options of `slotline.open` for slotline-sources.
pub(crate) fn options(py: Python<'_>, opening: Opening) -> PyResult<OpenOptions> {
    parsed(opening).map_err(|error| failure::data(py, &error))
}

fn parsed(opening: Opening) -> Result<OpenOptions, Error> {
    // SAFETY: the documentation of `slotline.open` forbids the program to modify Arrow files while
    // they are used.
    let mut options = unsafe { OpenOptions::new().map_arrow() }
        .skip_incomplete(opening.skip_incomplete)
        .missing_end(opening.missing_end)
        .missing_as_zero(opening.missing_as_zero)
        .decimals_as_f64(opening.decimals_as_f64)
        .without_files(opening.without_files)
        .allow_empty(opening.allow_empty)
        .index_files(match opening.index_files {
            None => IndexFiles::Beside,
            Some(folder) if folder.as_os_str().is_empty() => IndexFiles::None,
            Some(folder) => IndexFiles::In(folder),
        });
    if let Some(columns) = opening.columns {
        options = options.columns(columns);
    }
    for (name, kind) in opening.decode {
        options = options.decode(name, kind.parse()?);
    }
    for name in opening.file_column {
        options = options.file_column(name);
    }
    for (name, number) in opening.default_number {
        options = options.default_number(name, number.parse::<DefaultNumber>()?);
    }
    if let Some(extensions) = opening.extensions {
        options = options.extensions(extensions);
    }
    if let Some(folder) = opening.mask_folder {
        options = options.mask_folder(folder);
    }
    if let Some(tokens) = opening.block_size {
        options = options.block_size(tokens);
    }
    if let Some(name) = opening.dtype {
        let dtype =
            name.parse().map_err(|_| Error::usage(format!("tokens of type {name}"), "pass a type of integers"))?;
        options = options.dtype(dtype);
    }
    if let Some(bytes) = opening.memory_limit {
        options = options.memory_limit(bytes);
    }
    Ok(match opening.room {
        Some(times) => options.room(times),
        None => options,
    })
}

/// Writes the fields of a record.
pub(crate) fn write_fields(fields: &[Field], record: &Record<'_>, row: &mut Row<'_>) -> Result<(), BoxError> {
    write_some(fields, 0..fields.len(), record, row, |_, _| Ok(false))
}

/// Writes the chosen fields of a record, of which `own` may write some, by their places.
fn write_some(
    fields: &[Field],
    chosen: impl Iterator<Item = usize>,
    record: &Record<'_>,
    row: &mut Row<'_>,
    own: impl Fn(usize, &mut Row<'_>) -> Result<bool, BoxError>,
) -> Result<(), BoxError> {
    for i in chosen {
        if own(i, row)? {
            continue;
        }
        let (field, of) = (&fields[i], &record.fields().as_slice()[i]);
        let bytes = record.value(i).unwrap_or_default();
        match field.form {
            Form::Fixed(_) if of.kind.dtype() == DType::Bool && bytes.iter().any(|&byte| byte > 1) => {
                return Err(format!("field {:?} has a truth value that is neither 0 nor 1", of.name).into());
            }
            Form::Fixed(_) => row.write_bytes(DType::U8, bytes)?,
            Form::Items(dtype, ..) => row.write_bytes(dtype, bytes)?,
            Form::Text(_) if std::str::from_utf8(bytes).is_err() => {
                return Err(format!("field {:?} has a text that is not UTF-8", of.name).into());
            }
            Form::Text(_) => row.write_bytes(DType::U8, bytes)?,
        }
    }
    Ok(())
}

/// Decodes the pictures in a field of the records. Also returns the description that a state
/// contains.
fn decoded(records: &Records<dyn Format>, image: &Image) -> Result<(Pictures, String), BoxError> {
    let Image { transforms, field, dtype, channels_last, mask, boxes } = image;
    let dtype: DType = dtype.parse().map_err(|_| format!("pictures of type {dtype}"))?;
    let transforms: PipelineBuilder = transforms.parse()?;
    let last = if *channels_last { ", channels last" } else { "" };
    let mut about = format!("{transforms} as {dtype}{last}");
    let pipeline = AnyPipeline::new(transforms, dtype)?.channels_last(*channels_last);
    let mut builder = Pictures::builder(records.clone(), pipeline);
    if let Some(name) = field {
        builder = builder.field(name);
    }
    let mut others = String::new();
    if let Some((name, dtype, fill)) = mask {
        builder = builder.mask_as(name, dtype.parse()?, *fill);
        write!(others, ", masks of {name} as {dtype} with fill {fill}")?;
    }
    if let Some((name, format)) = boxes {
        builder = builder.boxes(name, format.parse::<BoxFormat>()?);
        write!(others, ", boxes of {name} as {format}")?;
    }
    let pictures = builder.build()?;
    let field = &records.format().fields().as_slice()[pictures.field()].name;
    write!(about, " of {field}{others}")?;
    Ok((pictures, about))
}

/// Returns a field's description for Python.
pub(crate) fn described(py: Python<'_>, RecordField { name, kind }: &RecordField) -> PyResult<Field> {
    let invalid = |what: &str| failure::invalid(py, format!("field {name:?} {what}"));
    let of = |dtype: DType| {
        Kind::of_engine(py, dtype)
            .unwrap_or_else(|| Err(invalid(&format!("has elements of type {dtype}, which no library of arrays has"))))
    };
    let room = |room: slotline_sources::CapacityHint| Room { items: room.items, exceeded: room.exceeded };
    let items = |dtype, item: &[usize], hint| Ok(Field::items(of(dtype)?, dtype, item, room(hint)));
    match kind {
        FieldKind::Number(dtype) => Field::fixed(of(*dtype)?, &[]).map_err(|what| invalid(&what)),
        FieldKind::Tensor(dtype, shape) => Field::fixed(of(*dtype)?, shape).map_err(|what| invalid(&what)),
        FieldKind::List(dtype, hint) => items(*dtype, &[], *hint),
        FieldKind::Items(dtype, item, hint) => items(*dtype, item, *hint),
        FieldKind::Bytes(hint) => items(DType::U8, &[], *hint),
        FieldKind::Text(hint) => {
            Ok(Field { kind: of(DType::U8)?, shape: Box::default(), form: Form::Text(room(*hint)) })
        }
        _ => Err(invalid("is of a kind that this version does not know")),
    }
}

impl Reading {
    /// Calls `open` with these limits on requests.
    #[cfg(feature = "remote")]
    pub(crate) fn limited<T>(&self, open: impl FnOnce() -> T) -> T {
        let (most, timeout, redirects) = self.requests;
        let mut requests = slotline_sources::RequestOptions::new().follow_redirects(redirects);
        if let Some(most) = most {
            requests = requests.max_connections(most);
        }
        if let Some(Ok(timeout)) = timeout.map(std::time::Duration::try_from_secs_f64) {
            requests = requests.timeout(timeout);
        }
        requests.within(open)
    }

    #[cfg(not(feature = "remote"))]
    pub(crate) fn limited<T>(&self, open: impl FnOnce() -> T) -> T {
        open()
    }
}

/// Adds the cache on a local disk, if one is configured.
#[cfg(feature = "remote")]
fn cached(records: Records<dyn Format>, reading: &Reading) -> Result<Records<dyn Format>, Error> {
    Ok(match &reading.cache {
        Some((folder, bytes)) => records.cache(&slotline_sources::Cache::new(folder, *bytes)?),
        None => records,
    })
}

#[cfg(not(feature = "remote"))]
fn cached(records: Records<dyn Format>, reading: &Reading) -> Result<Records<dyn Format>, Error> {
    match reading.cache {
        Some(_) => Err(Error::usage(
            "a cache for objects of buckets, which this build can't read",
            "build slotline with the cargo feature `remote`",
        )),
        None => Ok(records),
    }
}
