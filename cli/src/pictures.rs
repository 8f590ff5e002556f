//! `--image`: decoded and transformed pictures, as a training loop gets them.

use anyhow::{Context, Result};
use clap::Args;
use slotline_image::transform::{Normalize, Transform};
use slotline_image::{AnyPipeline, Pipeline, PipelineBuilder};
use slotline_sources::pictures::{BoxFormat, Pictures};
use slotline_sources::{Format, Records};

/// The command-line flags about decoding pictures.
#[derive(Args, Clone, Debug)]
pub(crate) struct ImageOptions {
    /// Decode the pictures, and transform them: 'random_resized_crop(224), hflip, normalize(imagenet)'. The transforms have
    /// torchvision's names, arguments and defaults. Among them, `exif` turns pictures upright, and `reduced` decodes large JPEGs
    /// faster in a program that was built with the cargo feature `turbo`
    #[arg(long, value_name = "TRANSFORMS")]
    pub(crate) image: Option<PipelineBuilder>,

    /// The field that holds the pictures [default: the only field of bytes, or the one whose first
    /// value is a picture]
    #[arg(long, value_name = "NAME", requires = "image")]
    image_field: Option<String>,

    /// The field that holds segmentation masks, which are transformed as their pictures
    #[arg(long, value_name = "NAME", requires = "image")]
    mask_field: Option<String>,

    /// The field that holds bounding boxes, which are transformed as their pictures
    #[arg(long, value_name = "NAME", requires = "image")]
    boxes_field: Option<String>,

    /// What the four numbers of a box are: xyxy, xywh or cxcywh
    #[arg(long, value_name = "FORMAT", requires = "boxes_field", default_value = "xyxy")]
    boxes_format: BoxFormat,
}

impl ImageOptions {
    /// Returns the records with decoded pictures, if `--image` is given.
    pub(crate) fn open(&self, records: &Records<dyn Format>) -> Result<Option<Pictures>> {
        let Some(builder) = self.image.clone() else { return Ok(None) };
        let pipeline: Pipeline = builder.build().context("--image cannot be used")?;
        self.pictures(records, pipeline.into()).map(Some)
    }

    /// Returns the same pictures with the channels last, and their normalisation, so that it can be
    /// undone.
    pub(crate) fn visible(&self, records: &Records<dyn Format>) -> Result<(Pictures, Normalize)> {
        let builder = self.image.clone().unwrap_or_default();
        let normalize = builder.transforms().iter().find_map(|transform| match transform {
            Transform::Normalize(normalize) => Some(*normalize),
            _ => None,
        });
        let pipeline: Pipeline = builder.build().context("--image cannot be used")?;
        let pictures = self.pictures(records, pipeline.channels_last(true).into())?;
        Ok((pictures, normalize.unwrap_or(Normalize::new([0.0; 3], [1.0; 3]))))
    }

    fn pictures(&self, records: &Records<dyn Format>, pipeline: AnyPipeline) -> Result<Pictures> {
        let mut builder = Pictures::builder(records.clone(), pipeline);
        if let Some(name) = &self.image_field {
            builder = builder.field(name);
        }
        if let Some(name) = &self.mask_field {
            builder = builder.mask(name, 0_u8);
        }
        if let Some(name) = &self.boxes_field {
            builder = builder.boxes(name, self.boxes_format);
        }
        builder
            .build()
            .map_err(|error| anyhow::Error::from_boxed(error).context("--image cannot be used; see also --image-field"))
    }
}
