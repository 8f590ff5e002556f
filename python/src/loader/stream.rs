//! Samples of compressed tars, which are read from front to back.

use std::path::Path;
use std::sync::Arc;

use pyo3::prelude::*;
use slotline::dataset::{Context, IterableDataset, WorkerInfo};
use slotline::loader::BuildError;
use slotline::rng::SharedGenerator;
use slotline::sample::{Fields, Row, Sample};
use slotline::{BoxError, Loader};
use slotline_sources::tar::{StreamCursor, TarStream};
use slotline_sources::{OpenOptions, Record};

use super::failure;
use super::field::Field;
use super::files::{described, write_fields};
use super::options::Options;
use super::source::Reading;
use super::watched::watched;

/// A dataset of compressed tars.
#[derive(Debug)]
pub(crate) struct Stream {
    tars: TarStream,
    fields: Arc<[Field]>,
    /// The number of samples that a worker shuffles at a time.
    buffer: usize,
    is_remote: bool,
}

impl Stream {
    /// Opens compressed tars. Returns `None` if the path is something else.
    pub(crate) fn open(
        py: Python<'_>,
        path: &Path,
        options: &OpenOptions,
        buffer: usize,
        reading: &Reading,
    ) -> PyResult<Option<Self>> {
        let is_remote = path.to_str().is_some_and(|path| path.contains("://"));
        let (own, options, path) = (reading.clone(), options.clone(), path.to_owned());
        let opened = watched(py, move || own.limited(|| options.open_stream(path)))?;
        let Some(tars) = opened.map_err(|error| failure::data(py, &error))? else { return Ok(None) };
        if reading.image.is_some() {
            let problem =
                "image: pictures of packed tars are not decoded; unpack the tars, or decode the bytes in the loop";
            return Err(failure::invalid(py, problem));
        }
        let fields = tars.fields().as_slice().iter().map(|field| described(py, field)).collect::<PyResult<_>>()?;
        Ok(Some(Self { tars, fields, buffer, is_remote }))
    }

    /// Returns whether the tars are on a server.
    pub(crate) fn is_remote(&self) -> bool {
        self.is_remote
    }

    pub(crate) fn fields(&self) -> &[Field] {
        &self.fields
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.tars.fields().as_slice().iter().map(|field| field.name.clone()).collect()
    }

    /// Builds a loader for the tars of one rank.
    pub(crate) fn loader(&self, options: &Options, generator: &SharedGenerator) -> Result<Loader, BuildError> {
        let mut tars = self.tars.clone().shuffle(if options.shuffle { self.buffer } else { 1 });
        if let Some(ranks) = options.ranks {
            tars = tars.replica(ranks.world_size(), ranks.rank()).expect("the rank was checked");
        }
        let share = Share { tars, fields: self.fields.clone() };
        Ok(options.apply(Loader::iterable(share), generator).build()?.untyped())
    }
}

/// The dataset of one rank's tars.
struct Share {
    tars: TarStream,
    fields: Arc<[Field]>,
}

/// A sample that is written once a row of a batch is available.
struct Streamed<'a> {
    fields: &'a [Field],
    record: Record<'a>,
}

impl Sample for Streamed<'_> {
    type Schema = ();

    fn declare(&self, fields: &mut Fields) {
        declare(self.fields, fields);
    }

    fn write(self, row: &mut Row<'_>) -> Result<(), BoxError> {
        write_fields(self.fields, &self.record, row)
    }
}

fn declare(own: &[Field], fields: &mut Fields) {
    own.iter().enumerate().for_each(|(place, field)| fields.named(place, &field.form));
}

impl IterableDataset for Share {
    type Sample<'a> = Streamed<'a>;
    type Cursor = StreamCursor;

    fn iter(&self, worker: Option<WorkerInfo>) -> Result<StreamCursor, BoxError> {
        self.tars.iter(worker)
    }

    fn next<'a>(&'a self, cursor: &'a mut StreamCursor, cx: &'a mut Context) -> Result<Option<Streamed<'a>>, BoxError> {
        let record = self.tars.next(cursor, cx)?;
        Ok(record.map(|record| Streamed { fields: &self.fields, record }))
    }

    fn save(&self, cursor: &StreamCursor, to: &mut String) -> bool {
        self.tars.save(cursor, to)
    }

    fn resume(&self, worker: Option<WorkerInfo>, saved: &str) -> Result<StreamCursor, BoxError> {
        self.tars.resume(worker, saved)
    }

    fn fields(&self) -> Option<Fields> {
        let mut fields = Fields::new();
        declare(&self.fields, &mut fields);
        Some(fields)
    }
}
