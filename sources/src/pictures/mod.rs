//! [`Pictures`]: fields with pictures, which are decoded into their rows of the batch, and their
//! masks and boxes.

mod boxes;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use slotline::BoxError;
use slotline::dataset::{Context, Dataset, Upcoming};
use slotline::dtype::{DType, bytes_of, element_bytes};
use slotline::sample::{Dynamic, Fields, Mismatch, Row, Sample};
use slotline_image::{AnyImage, AnyPipeline, ClassId, FileError, Format as PictureFormat, ImageError, Seed};

pub use self::boxes::BoxFormat;
use self::boxes::Boxes;
use crate::record::TRIED;
use crate::{Error, FieldKind, Format, Record, RecordField, RecordFields, Records};

/// A dataset of samples in files in which one field is a picture. A pipeline decodes the picture
/// and transforms it. Other fields may have its [masks](PicturesBuilder::mask) and its
/// [boxes](PicturesBuilder::boxes), which are transformed as the picture is. All other fields are
/// not changed.
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
    /// The fields that are transformed as the picture is: their indices, and those of the fields of
    /// the records that they are in.
    others: Vec<(usize, usize, Other)>,
    fields: RecordFields,
    /// A bit for each sample: whether its picture was checked.
    checked: Arc<[AtomicU64]>,
}

/// A field that is transformed as the picture is.
#[derive(Clone, Debug)]
enum Other {
    /// Masks, with the type of their elements and the class of padding.
    Mask(DType, i64),
    Boxes(Boxes),
}

/// The options of [`Pictures`], which [`Pictures::builder`] creates.
#[derive(Clone, Debug)]
pub struct PicturesBuilder {
    records: Records<dyn Format>,
    pipeline: AnyPipeline,
    field: Option<String>,
    masks: Vec<(String, DType, i64)>,
    boxes: Vec<(String, BoxFormat)>,
}

impl PicturesBuilder {
    /// Sets the field with the pictures. By default it is the only field of bytes that has no
    /// masks; if there are several, the one whose bytes in the first sample are a picture.
    pub fn field(mut self, name: impl Into<String>) -> Self {
        self.field = Some(name.into());
        self
    }

    /// Decodes the masks in the field with this name, as `u8` or `i64` of the shape `[height,
    /// width]`. Each is transformed as its picture; `fill` is the class of padding. See
    /// [`Mask`](slotline_image::Mask).
    pub fn mask<M: ClassId + Into<i64>>(self, field: impl Into<String>, fill: M) -> Self {
        self.mask_as(field, M::DTYPE, fill.into())
    }

    /// Decodes masks like [`mask`](Self::mask), with an element type that is known only at run time:
    /// `U8` or `I64`. With another one, or a `fill` that it cannot hold, [`build`](Self::build) fails.
    pub fn mask_as(mut self, field: impl Into<String>, dtype: DType, fill: i64) -> Self {
        self.masks.push((field.into(), dtype, fill));
        self
    }

    /// Transforms the boxes in the field with this name as their picture, and clips them to the
    /// result. In a batch they are packed `f32` of the shape `[4]`: left, top, right and bottom. A
    /// sample keeps all of its boxes, also those of which nothing is visible, so that fields with
    /// their classes still fit; [`SanitizeBoundingBoxes`](slotline_image::SanitizeBoundingBoxes)
    /// says which to keep. See [`Pipeline::boxes`](slotline_image::Pipeline::boxes).
    ///
    /// Boxes are in pixels of the whole picture. They are in a field of any number of numbers, four
    /// for each box, in the bytes of a `.npy` file, or in a text with JSON: lists of numbers.
    ///
    /// The name of such a text may be followed by names of members: `json.objects.bbox` are the
    /// boxes in `{"objects": {"bbox": […]}}` and in `{"objects": [{"bbox": […]}, …]}` of the field
    /// `json`. They are an additional field of this name, and the text stays.
    pub fn boxes(mut self, field: impl Into<String>, format: BoxFormat) -> Self {
        self.boxes.push((field.into(), format));
        self
    }

    /// Creates the dataset.
    ///
    /// # Errors
    ///
    /// If there is no field for the pictures, the masks or the boxes, if a field cannot have them,
    /// if several fields could be meant, or if the first sample, which may be read to find the
    /// field with the pictures, can't be read. Also if there are masks or boxes, and they cannot
    /// have a [transform](AnyPipeline::check_followed) of the pictures.
    pub fn build(self) -> Result<Pictures, BoxError> {
        let Self { records, pipeline, field, masks, boxes } = self;
        let (mut others, mut fields) = (Vec::new(), records.format().fields().clone());
        for (name, dtype, fill) in masks {
            if !matches!(dtype, DType::U8 | DType::I64) {
                return Err(Error::usage(format!("masks of {dtype}"), "use u8 or i64").into());
            }
            if element_bytes(dtype, fill).is_none() {
                let problem = format!("masks of {dtype}, which can't be padded with {fill}");
                return Err(Error::usage(problem, "use i64, or another class").into());
            }
            let place = named(&records, &name)?;
            others.push((place, place, Other::Mask(dtype, fill)));
        }
        for (name, format) in boxes {
            let (of, path) = located(records.format().fields(), &name)?;
            let place = if path.is_empty() { of } else { fields.as_slice().len() };
            let RecordField { name: field, kind } = &records.format().fields().as_slice()[of];
            let boxes = Boxes::new(field, kind, path, format)?;
            if place != of {
                fields.push(name, kind.clone());
            }
            others.push((place, of, Other::Boxes(boxes)));
        }
        let field = match field {
            Some(name) => named(&records, &name)?,
            None => found(&records, &others)?,
        };
        if !others.is_empty() {
            pipeline.check_followed()?;
        }
        fields.set_kind(field, FieldKind::Tensor(pipeline.dtype(), pipeline.shape().to_vec()));
        for (i, (place, _, other)) in others.iter().enumerate() {
            let name = &fields.as_slice()[*place].name;
            if *place == field || others[..i].iter().any(|(before, ..)| fields.as_slice()[*before].name == *name) {
                let problem = format!("the field {name} is named twice");
                return Err(Error::usage(problem, "name different fields for pictures, masks and boxes").into());
            }
            let kind = match other {
                Other::Mask(dtype, _) => FieldKind::Tensor(*dtype, pipeline.size().to_vec()),
                Other::Boxes(boxes) => FieldKind::Items(DType::F32, vec![4], boxes.room()),
            };
            fields.set_kind(*place, kind);
        }
        let checked = (0..records.len().div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Ok(Pictures { fields, records, pipeline, field, others, checked })
    }
}

impl Pictures {
    /// Starts a dataset whose pictures this pipeline decodes.
    ///
    /// Use [`Records::erased`] to convert records of one format, such as those of `Folder::open`.
    ///
    /// ```no_run
    /// use slotline_image::Pipeline;
    /// use slotline_sources::pictures::{BoxFormat, Pictures};
    ///
    /// let train: Pipeline = "random_resized_crop(224), hflip".parse()?;
    /// let scenes = Pictures::builder(slotline_sources::open("scenes.tar")?, train)
    ///     .mask::<i64>("mask.png", 255)
    ///     .boxes("json.objects.bbox", BoxFormat::Xywh)
    ///     .build()?;
    /// # Ok::<(), slotline::BoxError>(())
    /// ```
    pub fn builder(records: Records<dyn Format>, pipeline: impl Into<AnyPipeline>) -> PicturesBuilder {
        PicturesBuilder { records, pipeline: pipeline.into(), field: None, masks: Vec::new(), boxes: Vec::new() }
    }

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
        PicturesBuilder { field: field.map(str::to_owned), ..Self::builder(records, pipeline) }.build()
    }

    /// Returns the fields of a batch, with the decoded picture in place of its bytes, and its
    /// decoded masks and boxes.
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

/// Returns the index of the field that this name is of, or begins with, and the names of members
/// that follow it.
fn located(fields: &RecordFields, name: &str) -> Result<(usize, Vec<String>), Error> {
    let ends = name.match_indices('.').map(|(at, _)| at);
    let found =
        std::iter::once(name.len()).chain(ends.rev()).find_map(|end| Some((fields.position(&name[..end])?, end)));
    let (place, end) = found.ok_or_else(|| {
        let all: Vec<&str> = fields.as_slice().iter().map(|field| field.name.as_str()).collect();
        Error::usage(format!("no field {name}, but {}", all.join(", ")), "name one of them")
    })?;
    Ok((place, name[end..].split('.').skip(1).map(str::to_owned).collect()))
}

/// Returns the index of the field with the pictures, which is not one of the `others`.
fn found(records: &Records<dyn Format>, others: &[(usize, usize, Other)]) -> Result<usize, BoxError> {
    let mut bytes = of_bytes(records);
    bytes.retain(|(i, _)| others.iter().all(|(_, of, _)| of != i));
    match bytes[..] {
        [] => Err(Error::usage("no field holds the bytes of files, such as pictures", "pass other data").into()),
        [(i, _)] => Ok(i),
        _ => {
            let mut cx = Context::default();
            let readable = (0..records.len().min(TRIED)).find(|&index| records.get(index, &mut cx).is_ok());
            let record = if records.is_empty() { None } else { Some(records.get(readable.unwrap_or(0), &mut cx)?) };
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

    /// Writes field `i` if it is the picture, or is transformed as the picture. Otherwise returns
    /// `false`.
    ///
    /// # Errors
    ///
    /// If the picture, the mask or the boxes cannot be decoded. The error names the file, and the
    /// field of masks and boxes.
    pub fn write_decoded(&self, i: usize, row: &mut Row<'_>) -> Result<bool, BoxError> {
        if i == self.pictures.field {
            self.decode(memory(row)?)?;
            return Ok(true);
        }
        let Some((_, of, other)) = self.pictures.others.iter().find(|(place, ..)| *place == i) else {
            return Ok(false);
        };
        let (image, bytes) = (self.image(), self.record.value(*of).unwrap_or_default());
        let written = match other {
            Other::Mask(DType::U8, fill) => image.mask::<u8>(bytes).fill(*fill as u8).decode(memory(row)?),
            Other::Mask(_, fill) => image.mask::<i64>(bytes).fill(*fill).decode(memory(row)?),
            Other::Boxes(boxes) => return self.write_boxes(i, boxes, bytes, row).map(|()| true),
        };
        written.map(|()| true).map_err(|error| self.in_field(i, &error))
    }

    /// Writes the boxes that are in `bytes`, the value of field `i`.
    fn write_boxes(&self, i: usize, boxes: &Boxes, bytes: &[u8], row: &mut Row<'_>) -> Result<(), BoxError> {
        let image = self.image();
        let size = self.pictures.pipeline.size_of(self.bytes()).map_err(|error| self.named(error))?;
        let mut all = boxes.read(bytes, size).map_err(|problem| self.in_field(i, &problem))?;
        image.boxes(&mut all).map_err(|error| self.in_field(i, &error))?;
        let sides: Vec<f32> = all.as_flattened().iter().map(|side| *side as f32).collect();
        Ok(row.write_bytes(DType::F32, bytes_of(&sides))?)
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

    /// Returns the bytes of the picture.
    fn bytes(&self) -> &[u8] {
        self.record.value(self.pictures.field).unwrap_or_default()
    }

    fn image(&self) -> AnyImage<'_> {
        AnyImage::new(self.bytes(), &self.pictures.pipeline).random(self.seed)
    }

    /// Decodes the picture. If it is not damaged, records that its file was checked.
    fn read(&self, decode: impl FnOnce(AnyImage<'_>) -> Result<(), ImageError>) -> Result<(), ImageError> {
        let (word, bit) = (&self.pictures.checked[self.index / 64], 1 << (self.index % 64));
        let first = word.load(Ordering::Relaxed) & bit == 0;
        decode(self.image().check(first))?;
        if first {
            word.fetch_or(bit, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Adds the path of the file to an error.
    fn named(&self, error: ImageError) -> FileError {
        FileError::new(self.pictures.path(self.index), error)
    }

    /// Returns the error of a field that is not the picture.
    fn in_field(&self, i: usize, problem: &impl std::fmt::Display) -> BoxError {
        let name = &self.pictures.fields.as_slice()[i].name;
        format!("{}: the field {name}: {problem}", self.pictures.path(self.index).display()).into()
    }
}

/// Returns the memory of the row's next field.
fn memory<'a>(row: &'a mut Row<'_>) -> Result<&'a mut [u8], Mismatch> {
    // SAFETY: the row is borrowed as long as the memory, and all of it is initialised.
    Ok(unsafe { row.fill_raw()?.as_mut() })
}

impl Sample for PictureRecord<'_> {
    type Schema = Dynamic;

    fn declare(&self, fields: &mut Fields) {
        self.pictures.fields.declare(fields);
    }

    fn write(self, row: &mut Row<'_>) -> Result<(), BoxError> {
        row.write_run(|row| {
            for i in 0..self.pictures.fields.as_slice().len() {
                if !self.write_decoded(i, row)? {
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
