//! Datasets in files and folders, whose format is found out.

use std::path::Path;

use slotline::BoxError;
use slotline::dataset::{Context, Dataset, Upcoming};
use slotline::sample::{Dynamic, Fields, Row, RowsMut, Sample};
#[cfg(feature = "image")]
use slotline_sources::pictures::{PictureRecord, Pictures};
use slotline_sources::{Error, Format, OpenOptions, Record, Records};

use crate::failure::Failure;
use crate::status::SLOTLINE_ERROR_SOURCE;

/// Samples in files.
#[derive(Debug)]
pub(crate) enum Files {
    Records(Records<dyn Format>),
    /// One field of the records is a picture, which is decoded.
    #[cfg(feature = "image")]
    Pictures(Box<Pictures>),
}

impl Files {
    /// Whether a name that is not one of an array can be that of files.
    pub(crate) fn is_name(name: &str) -> bool {
        Path::new(name).exists() || name.contains(['{', '*', '?']) || name.contains("://")
    }

    /// Opens files, with options as `OpenOptions` parses them.
    pub(crate) fn open(name: &str, options: &str) -> Result<Self, Failure> {
        if name.contains("://") {
            return Err(Failure::invalid(format!(
                "source: {name} is a URL, which this library does not open; download the files, or mount the bucket"
            )));
        }
        let options: OpenOptions = options.parse().map_err(|error: Error| Failure::invalid(error.to_string()))?;
        // SAFETY: the header tells the program to leave Arrow files alone while they are used.
        let options = unsafe { options.map_arrow() };
        let records = options.open(name).map_err(|error| Failure::of(SLOTLINE_ERROR_SOURCE, &error))?;
        Ok(Self::Records(records))
    }

    /// Returns the same samples, with the pictures in a field decoded.
    #[cfg(feature = "image")]
    pub(crate) fn decode(&self, pipeline: slotline_image::AnyPipeline, field: Option<&str>) -> Result<Self, Failure> {
        let Self::Records(records) = self else {
            return Err(Failure::invalid(
                "the pictures of the dataset are decoded already; use the dataset that was opened",
            ));
        };
        let pictures = Pictures::new(records.clone(), pipeline, field);
        Ok(Self::Pictures(Box::new(pictures.map_err(|error| Failure::of(SLOTLINE_ERROR_SOURCE, &*error))?)))
    }
}

impl Dataset for Files {
    type Sample<'a> = Read<'a>;

    fn len(&self) -> usize {
        match self {
            Self::Records(records) => records.len(),
            #[cfg(feature = "image")]
            Self::Pictures(pictures) => pictures.len(),
        }
    }

    fn get<'a>(&'a self, index: usize, context: &'a mut Context) -> Result<Read<'a>, BoxError> {
        match self {
            Self::Records(records) => records.get(index, context).map(Read::Record),
            #[cfg(feature = "image")]
            Self::Pictures(pictures) => pictures.get(index, context).map(Read::Picture),
        }
    }

    fn prefetch(&self, index: usize) {
        match self {
            Self::Records(records) => records.prefetch(index),
            #[cfg(feature = "image")]
            Self::Pictures(pictures) => pictures.prefetch(index),
        }
    }

    fn reads_ahead(&self) -> bool {
        match self {
            Self::Records(records) => records.reads_ahead(),
            #[cfg(feature = "image")]
            Self::Pictures(pictures) => pictures.reads_ahead(),
        }
    }

    fn begin_pass(&self, upcoming: Upcoming) {
        match self {
            Self::Records(records) => records.begin_pass(upcoming),
            #[cfg(feature = "image")]
            Self::Pictures(pictures) => pictures.begin_pass(upcoming),
        }
    }

    fn reads_many(&self) -> bool {
        match self {
            Self::Records(records) => records.reads_many(),
            #[cfg(feature = "image")]
            Self::Pictures(_) => false,
        }
    }

    fn write_many(&self, indices: &[usize], context: &mut Context, rows: &mut RowsMut<'_>) -> Result<(), BoxError> {
        match self {
            Self::Records(records) => records.write_many(indices, context, rows),
            #[cfg(feature = "image")]
            Self::Pictures(pictures) => pictures.write_many(indices, context, rows),
        }
    }

    fn fields(&self) -> Option<Fields> {
        match self {
            Self::Records(records) => records.fields(),
            #[cfg(feature = "image")]
            Self::Pictures(pictures) => pictures.fields(),
        }
    }
}

/// A sample of files.
#[derive(Debug)]
pub(crate) enum Read<'a> {
    Record(Record<'a>),
    #[cfg(feature = "image")]
    Picture(PictureRecord<'a>),
}

impl Sample for Read<'_> {
    type Schema = Dynamic;

    fn declare(&self, fields: &mut Fields) {
        match self {
            Self::Record(record) => record.declare(fields),
            #[cfg(feature = "image")]
            Self::Picture(picture) => picture.declare(fields),
        }
    }

    fn write(self, row: &mut Row<'_>) -> Result<(), BoxError> {
        match self {
            Self::Record(record) => record.write(row),
            #[cfg(feature = "image")]
            Self::Picture(picture) => picture.write(row),
        }
    }
}
