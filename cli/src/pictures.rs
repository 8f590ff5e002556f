//! `--image`: fields with pictures, as a training loop sees them.

use anyhow::{Context, Result};
use clap::Args;
use slotline_image::transform::Transform;
use slotline_image::{AnyPipeline, Pipeline, PipelineBuilder};
use slotline_sources::pictures::Pictures;
use slotline_sources::{Format, Records};

/// How pictures are decoded.
#[derive(Args, Clone, Debug)]
pub(crate) struct ImageOptions {
    /// Decode the pictures, and transform them: 'random_resized_crop(224), hflip, normalize(imagenet)'. The transforms have
    /// torchvision's names, arguments and defaults. JPEGs need a program that was built with the cargo feature `jpeg`
    #[arg(long, value_name = "TRANSFORMS")]
    pub(crate) image: Option<PipelineBuilder>,

    /// The field that holds the pictures [default: the one that does]
    #[arg(long, value_name = "NAME", requires = "image")]
    image_field: Option<String>,
}

impl ImageOptions {
    /// Returns the records with their pictures, if that is asked for.
    pub(crate) fn open(&self, records: &Records<dyn Format>) -> Result<Option<Pictures>> {
        let Some(builder) = self.image.clone() else { return Ok(None) };
        let pipeline: Pipeline = builder.build().context("--image cannot be used")?;
        self.pictures(records, pipeline.into()).map(Some)
    }

    /// Returns the pictures with the same draws as those of `open`, as bytes of red, green and blue for each pixel. They are
    /// not normalised.
    pub(crate) fn visible(&self, records: &Records<dyn Format>) -> Result<Pictures> {
        let transforms = self.image.as_ref().map(PipelineBuilder::transforms).unwrap_or_default();
        let seen = transforms.iter().filter(|transform| !matches!(transform, Transform::Normalize(_)));
        let builder = seen.cloned().fold(PipelineBuilder::default(), PipelineBuilder::then);
        let pipeline: Pipeline<u8> = builder.build()?;
        self.pictures(records, pipeline.channels_last(true).into())
    }

    fn pictures(&self, records: &Records<dyn Format>, pipeline: AnyPipeline) -> Result<Pictures> {
        let pictures = Pictures::new(records.clone(), pipeline, self.image_field.as_deref());
        pictures
            .map_err(|error| anyhow::Error::from_boxed(error).context("--image cannot be used; see also --image-field"))
    }
}
