//! [`Pictures`]: fields with pictures, which are decoded into their rows of the batch.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use slotline::BoxError;
use slotline::dataset::{Context, Dataset, Upcoming};
use slotline::sample::{Dynamic, Fields, Row, Sample};
use slotline_image::{AnyImage, AnyPipeline, FileError, Format as PictureFormat, ImageError, Seed};

use crate::{Error, FieldKind, Format, Record, RecordFields, Records};

/// A dataset of samples in files in which one field is a picture. A pipeline decodes the picture
/// and transforms it; the other fields are not changed.
///
/// When a picture is decoded for the first time, its whole file is [checked](AnyPipeline::check),
/// so that damage is found independently of the crop. Each process does this once for each sample
/// that it reads.
///
/// The random numbers of the pipeline come from the sample's own generator, so that pictures are
/// the same for any number of workers, processes and ranks.
///
/// ```no_run
/// use slotline::Loader;
/// use slotline_image::Pipeline;
/// use slotline_sources::pictures::Pictures;
///
/// let train: Pipeline = "random_resized_crop(224), hflip, normalize(imagenet)".parse()?;
/// let photos = Pictures::new(slotline_sources::open("photos")?, train, None)?;
/// let loader = Loader::builder(photos).batch_size(64).shuffle(true).num_workers(2).build()?;
/// // "data": f32 [64, 3, 224, 224] and "label": i64 [64]
/// # Ok::<(), slotline::BoxError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Pictures {
    records: Records<dyn Format>,
    pipeline: AnyPipeline,
    /// The index of the field that is the picture.
    field: usize,
    fields: RecordFields,
    /// A bit for each sample: whether its picture was checked.
    checked: Arc<[AtomicU64]>,
}

impl Pictures {
    /// Creates a dataset that decodes the pictures in the field with this name. Without a name, it
    /// is the only field of bytes; if there are several, the one whose bytes in the first sample
    /// are a picture.
    ///
    /// Use [`Records::erased`] to convert records of one format, such as those of `Folder::open`.
    ///
    /// # Errors
    ///
    /// If there is no such field of bytes, if several fields could be meant, or if the first
    /// sample, which is read to find the field, can't be read.
    pub fn new(
        records: Records<dyn Format>,
        pipeline: impl Into<AnyPipeline>,
        field: Option<&str>,
    ) -> Result<Self, BoxError> {
        let pipeline = pipeline.into();
        let field = match field {
            Some(name) => named(&records, name)?,
            None => found(&records)?,
        };
        let picture = FieldKind::Tensor(pipeline.dtype(), pipeline.shape().to_vec());
        let kinds = records.format().fields().as_slice().iter().enumerate().map(|(i, of)| {
            let kind = if i == field { picture.clone() } else { of.kind.clone() };
            (of.name.clone(), kind)
        });
        let checked = (0..records.len().div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Ok(Self { fields: RecordFields::new(kinds), records, pipeline, field, checked })
    }

    /// Returns the fields of a batch, with the decoded picture in place of its bytes.
    pub fn record_fields(&self) -> &RecordFields {
        &self.fields
    }

    /// Returns the index of the field with the pictures.
    pub fn field(&self) -> usize {
        self.field
    }

    /// Returns the dataset of the samples, which does not decode pictures.
    pub fn records(&self) -> &Records<dyn Format> {
        &self.records
    }

    /// Returns the pipeline that decodes the pictures.
    pub fn pipeline(&self) -> &AnyPipeline {
        &self.pipeline
    }

    /// Returns warnings for the user: those of [`Records::warnings`], and how many pictures the
    /// JPEG decoder warned about (see [`AnyPipeline::warnings`]).
    pub fn warnings(&self) -> Vec<String> {
        let count = Some(self.pipeline.warnings()).filter(|count| *count > 0);
        let of_jpegs = count.map(|count| {
            format!("the decoder of JPEGs warned about {count} pictures, which may be damaged; `strict` in their pipeline makes that an error")
        });
        self.records.warnings().into_iter().chain(of_jpegs).collect()
    }

    /// Returns the path of the file that contains a sample's picture.
    fn path(&self, index: usize) -> PathBuf {
        let file = self.records.format().file_of(index);
        file.map_or_else(PathBuf::new, |file| self.records.format().files().path(file))
    }
}

/// Returns the indices and names of the fields of bytes.
fn of_bytes(records: &Records<dyn Format>) -> Vec<(usize, &str)> {
    let fields = records.format().fields().as_slice().iter().enumerate();
    fields.filter(|(_, of)| matches!(of.kind, FieldKind::Bytes(_))).map(|(i, of)| (i, of.name.as_str())).collect()
}

fn listed(fields: &[(usize, &str)]) -> String {
    fields.iter().map(|field| field.1).collect::<Vec<_>>().join(", ")
}

fn named(records: &Records<dyn Format>, name: &str) -> Result<usize, Error> {
    let bytes = of_bytes(records);
    if let Some((i, _)) = bytes.iter().find(|field| field.1 == name) {
        return Ok(*i);
    }
    let problem = match records.format().fields().position(name) {
        Some(i) => format!("the field {name} holds {}, not pictures", records.format().fields().as_slice()[i].kind),
        None => format!("no field {name}"),
    };
    let others = if bytes.is_empty() { "no field does".to_owned() } else { format!("these do: {}", listed(&bytes)) };
    Err(Error::usage(format!("{problem} ({others})"), "name a field that holds the bytes of files"))
}

fn found(records: &Records<dyn Format>) -> Result<usize, BoxError> {
    let bytes = of_bytes(records);
    match bytes[..] {
        [] => Err(Error::usage("no field holds the bytes of files, such as pictures", "pass other data").into()),
        [(i, _)] => Ok(i),
        _ => {
            let mut cx = Context::default();
            let record = if records.is_empty() { None } else { Some(records.get(0, &mut cx)?) };
            let is_picture = |i: usize| {
                let value = record.as_ref().and_then(|record| record.value(i));
                value.is_some_and(|bytes| PictureFormat::of(bytes).is_ok())
            };
            let pictures: Vec<_> = bytes.iter().copied().filter(|field| is_picture(field.0)).collect();
            match pictures[..] {
                [(i, _)] => Ok(i),
                [] => {
                    let problem = format!("in the first sample, none of the fields {} has a picture", listed(&bytes));
                    Err(Error::usage(problem, "name the field that does").into())
                }
                _ => {
                    let problem = format!("the fields {} have pictures", listed(&pictures));
                    Err(Error::usage(problem, "name one of them").into())
                }
            }
        }
    }
}

/// A sample of [`Pictures`]. Its picture is decoded when it is written into its row.
#[derive(Debug)]
pub struct PictureRecord<'a> {
    pictures: &'a Pictures,
    record: Record<'a>,
    index: usize,
    seed: Seed,
}

impl<'a> PictureRecord<'a> {
    /// Returns the sample with the picture's bytes, not decoded.
    pub fn record(&self) -> &Record<'a> {
        &self.record
    }

    /// Writes the picture.
    ///
    /// # Errors
    ///
    /// If the picture cannot be decoded. The error names the file.
    pub fn write_picture(&self, row: &mut Row<'_>) -> Result<(), BoxError> {
        let written = self.read(|image| image.write(row));
        written.map_err(|error| match error.downcast::<ImageError>() {
            Ok(error) => self.named(*error).into(),
            Err(error) => error,
        })
    }

    /// Decodes the picture and writes its elements to `out` as bytes.
    ///
    /// # Errors
    ///
    /// If the picture cannot be decoded. The error names the file.
    ///
    /// # Panics
    ///
    /// The panics of [`AnyPipeline::decode_seeded`].
    pub fn decode(&self, out: &mut [u8]) -> Result<(), FileError> {
        self.read(|image| image.decode(out)).map_err(|error| self.named(error))
    }

    /// Decodes the picture. If it is not damaged, records that its file was checked.
    fn read<E>(&self, decode: impl FnOnce(AnyImage<'_>) -> Result<(), E>) -> Result<(), E> {
        let bytes = self.record.value(self.pictures.field).unwrap_or_default();
        let (word, bit) = (&self.pictures.checked[self.index / 64], 1 << (self.index % 64));
        let first = word.load(Ordering::Relaxed) & bit == 0;
        decode(AnyImage::new(bytes, &self.pictures.pipeline).random(self.seed).check(first))?;
        if first {
            word.fetch_or(bit, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Adds the path of the file to an error.
    fn named(&self, error: ImageError) -> FileError {
        FileError::new(self.pictures.path(self.index), error)
    }
}

impl Sample for PictureRecord<'_> {
    type Schema = Dynamic;

    fn declare(&self, fields: &mut Fields) {
        self.pictures.fields.declare(fields);
    }

    fn write(self, row: &mut Row<'_>) -> Result<(), BoxError> {
        row.write_run(|row| {
            for i in 0..self.pictures.fields.as_slice().len() {
                if i == self.pictures.field {
                    self.write_picture(row)?;
                } else {
                    self.record.write_value(i, row)?;
                }
            }
            Ok(())
        })
    }
}

impl Dataset for Pictures {
    type Sample<'a> = PictureRecord<'a>;

    fn len(&self) -> usize {
        self.records.len()
    }

    fn get<'a>(&'a self, index: usize, cx: &'a mut Context) -> Result<PictureRecord<'a>, BoxError> {
        let seed = cx.rng().into();
        Ok(PictureRecord { pictures: self, record: self.records.get(index, cx)?, index, seed })
    }

    fn reads_ahead(&self) -> bool {
        self.records.reads_ahead()
    }

    fn begin_pass(&self, upcoming: Upcoming) {
        self.records.begin_pass(upcoming);
    }

    fn fields(&self) -> Option<Fields> {
        Some(self.fields.declared())
    }
}
