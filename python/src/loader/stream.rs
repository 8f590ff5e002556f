//! Samples of compressed tars, which are read from front to back.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use pyo3::prelude::*;
use slotline::dataset::{Context, IterableDataset, WorkerInfo};
use slotline::loader::BuildError;
use slotline::rng::SharedGenerator;
use slotline::sample::{Fields, OwnedSample, Row, Sample};
use slotline::{BoxError, Loader};
use slotline_sources::tar::{StreamCursor, TarStream};
use slotline_sources::{OpenOptions, Record};

use super::failure;
use super::field::Field;
use super::files::{described, write_fields};
use super::map::{self, Function, Results};
use super::options::Options;
use super::source::Reading;
use super::watched::watched;

/// A dataset of compressed tars.
#[derive(Debug)]
pub(crate) struct Stream {
    tars: TarStream,
    fields: Arc<[Field]>,
    steps: Arc<[Step]>,
    /// The number of samples that a worker shuffles at a time.
    buffer: usize,
    /// Whether they are shuffled even if the loader does not shuffle.
    is_shuffled: bool,
    is_remote: bool,
}

/// A function that is called with each sample: one that makes another sample of it, or, without results, one that
/// chooses.
#[derive(Clone)]
struct Step(Arc<(Function, Option<Results>)>);

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Step {
    fn name(&self) -> &'static str {
        if self.0.1.is_some() { "map" } else { "filter" }
    }
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
        Ok(Some(Self { tars, fields, steps: Arc::default(), buffer, is_shuffled: false, is_remote }))
    }

    /// Returns whether the tars are on a server.
    pub(crate) fn is_remote(&self) -> bool {
        self.is_remote
    }

    pub(crate) fn fields(&self) -> &[Field] {
        let made = self.steps.iter().rev().find_map(|step| step.0.1.as_ref());
        made.map_or(&self.fields, Results::fields)
    }

    /// Returns the stream with another function, which is called after the others.
    pub(crate) fn then(&self, function: Function, results: Option<Results>) -> Self {
        let steps = self.steps.iter().cloned().chain([Step(Arc::new((function, results)))]).collect();
        Self { tars: self.tars.clone(), fields: self.fields.clone(), steps, ..*self }
    }

    /// Returns the stream with as many samples shuffled at a time as `buffer`, before any function is called.
    pub(crate) fn shuffled(&self, buffer: usize) -> Self {
        let (tars, fields, steps) = (self.tars.clone(), self.fields.clone(), self.steps.clone());
        Self { tars, fields, steps, buffer, is_shuffled: true, ..*self }
    }

    /// Returns the functions that are called with each sample.
    pub(crate) fn functions(&self) -> impl Iterator<Item = &Function> {
        self.steps.iter().map(|step| &step.0.0)
    }

    /// Returns the name of the format, with the functions that are called.
    pub(crate) fn format(&self) -> String {
        self.steps.iter().fold("tar stream".to_owned(), |inner, step| format!("{}({inner})", step.name()))
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.tars.fields().as_slice().iter().map(|field| field.name.clone()).collect()
    }

    /// Builds a loader for the tars of one rank.
    pub(crate) fn loader(&self, options: &Options, generator: &SharedGenerator) -> Result<Loader, BuildError> {
        let mut tars = self.tars.clone().shuffle(if options.shuffle || self.is_shuffled { self.buffer } else { 1 });
        if let Some(ranks) = options.ranks {
            tars = tars.replica(ranks.world_size(), ranks.rank()).expect("the rank was checked");
        }
        let share = Share { tars, fields: self.fields.clone(), steps: self.steps.clone() };
        Ok(options.apply(Loader::iterable(share), generator).build()?.untyped())
    }
}

/// The dataset of one rank's tars.
struct Share {
    tars: TarStream,
    fields: Arc<[Field]>,
    steps: Arc<[Step]>,
}

/// A worker's pass over a [`Share`].
struct Cursor {
    tars: StreamCursor,
    /// If functions are called: memory for a sample, and for what each function makes of it.
    made: Vec<OwnedSample>,
}

/// A sample that is written once a row of a batch is available.
enum Streamed<'a> {
    Record(&'a [Field], Record<'a>),
    Made(&'a OwnedSample),
}

impl Sample for Streamed<'_> {
    type Schema = ();

    fn declare(&self, fields: &mut Fields) {
        match self {
            Self::Record(own, _) => *fields = declared(own),
            Self::Made(sample) => sample.declare(fields),
        }
    }

    fn write(self, row: &mut Row<'_>) -> Result<(), BoxError> {
        match self {
            Self::Record(fields, record) => write_fields(fields, &record, row),
            Self::Made(sample) => sample.write(row),
        }
    }
}

fn declared(own: &[Field]) -> Fields {
    let mut fields = Fields::new();
    own.iter().enumerate().for_each(|(place, field)| fields.named(place, &field.form));
    fields
}

impl Share {
    /// Returns the fields of a sample, and those of what each function makes of it.
    fn made(&self) -> impl DoubleEndedIterator<Item = &[Field]> {
        let results = self.steps.iter().filter_map(|step| step.0.1.as_ref());
        [&*self.fields].into_iter().chain(results.map(Results::fields))
    }

    /// Calls the functions with the first sample in `made`. Returns whether all of them choose it.
    fn call(&self, made: &mut [OwnedSample], cx: &mut Context) -> Result<bool, BoxError> {
        let mut last = 0;
        for step in &*self.steps {
            let (before, after) = made.split_at_mut(last + 1);
            match &*step.0 {
                (function, Some(results)) => {
                    let (sample, all) = (&before[last], 0..results.fields().len());
                    after[0].fill(|row| function.write(sample, map::key(cx), results, all, row))?;
                    last += 1;
                }
                (function, None) if function.chooses(&before[last], map::key(cx))? => {}
                (_, None) => return Ok(false),
            }
        }
        Ok(true)
    }
}

impl IterableDataset for Share {
    type Sample<'a> = Streamed<'a>;
    type Cursor = Cursor;

    fn iter(&self, worker: Option<WorkerInfo>) -> Result<Cursor, BoxError> {
        Ok(Cursor { tars: self.tars.iter(worker)?, made: Vec::new() })
    }

    fn next<'a>(&'a self, cursor: &'a mut Cursor, cx: &'a mut Context) -> Result<Option<Streamed<'a>>, BoxError> {
        if self.steps.is_empty() {
            let record = self.tars.next(&mut cursor.tars, cx)?;
            return Ok(record.map(|record| Streamed::Record(&self.fields, record)));
        }
        if cursor.made.is_empty() {
            cursor.made = self.made().map(|fields| OwnedSample::new(declared(fields))).collect::<Result<_, _>>()?;
        }
        loop {
            let Some(record) = self.tars.next(&mut cursor.tars, cx)? else { return Ok(None) };
            cursor.made[0].fill(|row| write_fields(&self.fields, &record, row))?;
            drop(record);
            if self.call(&mut cursor.made, cx)? {
                return Ok(cursor.made.last().map(Streamed::Made));
            }
        }
    }

    fn save(&self, cursor: &Cursor, to: &mut String) -> bool {
        self.tars.save(&cursor.tars, to)
    }

    fn resume(&self, worker: Option<WorkerInfo>, saved: &str) -> Result<Cursor, BoxError> {
        Ok(Cursor { tars: self.tars.resume(worker, saved)?, made: Vec::new() })
    }

    fn fields(&self) -> Option<Fields> {
        self.made().next_back().map(declared)
    }
}
