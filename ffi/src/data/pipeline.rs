//! Pipelines that decode and transform pictures.
//!
//! These functions exist in libraries built with the feature `image`; the header declares them if
//! `slotline/config.h` says so.

use std::ffi::{c_char, c_void};

use slotline::dtype::DType;
use slotline_image::{AnyPipeline, ImageError, PipelineBuilder, Seed};

use crate::abi::{
    Failure, SLOTLINE_ERROR_SAMPLE, Versioned, chain, check, done, free, guarded, made, slotline_error,
    slotline_status, versioned,
};
use crate::data::dataset::{Data, slotline_dataset};
#[cfg(feature = "sources")]
use crate::data::files;
use crate::data::picture_fields::{PictureFields, slotline_picture_fields};
use crate::fields::dtype::{self, slotline_dtype};

/// Decodes pictures, transforms them, and writes them in a fixed shape. Any number of threads may
/// use it concurrently.
#[derive(Debug)]
pub struct slotline_pipeline(AnyPipeline);

/// The output of a pipeline, and how it reads pictures. Except for the size, zeros are the
/// defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct slotline_pipeline_options {
    /// `sizeof(slotline_pipeline_options)`.
    pub struct_size: usize,
    /// The type of the elements: `SLOTLINE_F32`, from 0 for black to 1 for white unless normalised
    /// (the default, also for 0); `SLOTLINE_F16`; `SLOTLINE_BF16`; or `SLOTLINE_U8`, from 0 to 255.
    pub dtype: slotline_dtype,
    /// Whether the channels are the last dimension instead of the first (no).
    pub channels_last: u8,
    /// Whether to rotate pictures according to their EXIF orientation (no).
    pub exif: u8,
    /// Whether warnings of the JPEG decoder are errors (no).
    pub strict: u8,
    /// Zero; reserved for later versions.
    pub reserved: u8,
}

// SAFETY: it contains only numbers, and its first field is its size.
unsafe impl Versioned for slotline_pipeline_options {
    const END: usize = versioned::end!(reserved);

    fn is_known(&self) -> bool {
        self.reserved == 0
    }
}

/// Creates a pipeline of transforms, separated by commas, with the names (in snake case), arguments
/// and defaults of torchvision's `transforms.v2`, such as `random_resized_crop(224), hflip,
/// normalize(imagenet)`. If `options` is NULL, the defaults of `slotline_pipeline_options` apply.
/// On failure `*out` is NULL. Can be called from any thread.
///
/// # Errors
///
/// `SLOTLINE_ERROR_INVALID`: a null pointer, a struct that is too short, a syntax error (the
/// message says where), invalid parameters, transforms that cannot be combined, or a dtype that
/// pictures cannot have.
///
/// # Safety
///
/// `transforms` must be NULL or end with a NUL; `options` must be NULL or readable for `options->struct_size` bytes; `out` and
/// `error` must be NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_pipeline_new(
    transforms: *const c_char,
    options: *const slotline_pipeline_options,
    out: *mut *mut slotline_pipeline,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller guarantees that `transforms` is NULL or ends with a NUL, that `options` is NULL or readable, and that
    // `out` and `error` are NULL or writable.
    unsafe {
        made(out, error, || {
            let invalid = |error: ImageError| Failure::invalid(format!("transforms: {}", chain(&error)));
            let builder: PipelineBuilder = check::text(transforms, "transforms")?.parse().map_err(invalid)?;
            let options = match options.is_null() {
                true => slotline_pipeline_options::defaults(),
                false => versioned::read(options, "options", |_| ())?.0,
            };
            let dtype = if options.dtype == 0 { DType::F32 } else { dtype::dtype(options.dtype, "options.dtype")? };
            let mut pipeline = AnyPipeline::new(builder, dtype).map_err(invalid)?;
            // The transforms may set these options, too.
            if check::flag(options.exif, "options->exif")? {
                pipeline = pipeline.exif(true);
            }
            if check::flag(options.strict, "options->strict")? {
                pipeline = pipeline.strict(true);
            }
            Ok(slotline_pipeline(pipeline.channels_last(check::flag(options.channels_last, "options->channels_last")?)))
        })
    }
}

/// Writes the lengths of a picture's three dimensions to `shape`: 3, height and width, or height,
/// width and 3 with `channels_last`. They are 0 on failure. Can be called from any thread.
///
/// # Errors
///
/// `SLOTLINE_ERROR_INVALID`: a null pointer.
///
/// # Safety
///
/// `pipeline` must be NULL or a pipeline that was not freed; `shape` must be NULL or writable for three numbers; `error` must be
/// NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_pipeline_shape(
    pipeline: *const slotline_pipeline,
    shape: *mut i64,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller guarantees that `pipeline` is NULL or was not freed, that `shape` is NULL or has three numbers, and that
    // `error` is NULL or writable.
    unsafe {
        done(error, || {
            let out = check::place(shape.cast::<[i64; 3]>(), [0; 3], "shape")?;
            *out = check::reference(pipeline, "pipeline")?.0.shape().map(|len| len as i64);
            Ok(())
        })
    }
}

/// Returns the type of the elements; 0 for NULL. Can be called from any thread.
///
/// # Safety
///
/// `pipeline` must be NULL or a pipeline that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_pipeline_dtype(pipeline: *const slotline_pipeline) -> slotline_dtype {
    // SAFETY: the caller upholds this function's safety contract.
    guarded(0, || unsafe { pipeline.as_ref() }.map_or(0, |pipeline| dtype::number(pipeline.0.dtype())))
}

/// Decodes a picture from the `len` bytes of its file to `out`, which must have `out_bytes` bytes,
/// the size of the pipeline's shape. The format is detected from the content. Random transforms are
/// a function of `seed`. In a dataset's callback, use `slotline_sample_random` as the seed, so that
/// pictures are the same for any number of workers.
///
/// `out` may be the row of a batch that `slotline_sample_row` returned; it must not overlap `data`,
/// and no other thread may use it. If decoding fails, its contents are undefined. Several threads
/// may call this concurrently.
///
/// # Errors
///
/// `SLOTLINE_ERROR_INVALID`: a null pointer, or memory that is misaligned or does not have the size
/// of a picture. `SLOTLINE_ERROR_SAMPLE`: the bytes are not a picture, the picture is damaged,
/// unsupported or too large, or it is too small for a transform.
///
/// # Safety
///
/// `pipeline` must be NULL or a pipeline that was not freed; `data` must be readable for `len` bytes; `out` must be writable for
/// `out_bytes` bytes, which no other thread uses and which do not overlap `data`; `error` must be NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_pipeline_decode(
    pipeline: *const slotline_pipeline,
    data: *const u8,
    len: usize,
    seed: u64,
    out: *mut c_void,
    out_bytes: usize,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller upholds this function's safety contract.
    unsafe {
        done(error, || {
            let pipeline = &check::reference(pipeline, "pipeline")?.0;
            let data = check::slice(data, len, "data")?;
            let ([a, b, c], dtype) = (pipeline.shape(), pipeline.dtype());
            let wanted = a * b * c * dtype.size();
            if out_bytes != wanted {
                let message =
                    format!("out_bytes is {out_bytes}, but a picture of {a} × {b} × {c} elements has {wanted} bytes");
                return Err(Failure::invalid(message));
            }
            let start = out.cast::<u8>();
            check::pointer(start, "out")?;
            if start.align_offset(dtype.align()) != 0 {
                return Err(check::misaligned("out", dtype.align()));
            }
            // SAFETY: `out` is not null, and the caller guarantees that it is writable for that
            // many bytes, which nothing else uses.
            let out = std::slice::from_raw_parts_mut(start, out_bytes);
            let decoded = pipeline.decode_seeded(data, Seed(seed), out);
            decoded.map_err(|error| Failure::of(SLOTLINE_ERROR_SAMPLE, &error))?;
            Ok(())
        })
    }
}

/// Frees a pipeline. Does nothing for NULL. Can be called from any thread.
///
/// # Safety
///
/// `pipeline` must be NULL or a pipeline that was not freed; it must not be used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_pipeline_free(pipeline: *mut slotline_pipeline) {
    // SAFETY: `made` created the pipeline, and the caller transfers its ownership.
    unsafe { free(pipeline) }
}

/// Creates a dataset from one that was opened from files, with the pictures in one field decoded by
/// a pipeline, directly into their rows of the batch. `fields` says which field that is, and which ones
/// have masks and boxes, which are transformed with the draws of their pictures; NULL for the defaults.
/// Random transforms use each sample's own random numbers. On failure `*out` is NULL. The dataset and
/// the pipeline can be freed afterwards. Can be called from any thread.
///
/// A mask has the shape `[height, width]` of the pictures. Boxes are a packed field of `SLOTLINE_F32`
/// and the shape `[4]`: left, top, right and bottom in the transformed picture, clipped to it. A sample
/// keeps all of its boxes, also those of which nothing is visible.
///
/// # Errors
///
/// `SLOTLINE_ERROR_INVALID`: a null pointer, a struct that is too short, no dtype or format, or
/// a dataset that was not opened from files (which requires a library built with `SLOTLINE_SOURCES`).
/// `SLOTLINE_ERROR_SOURCE`: a field does not exist or cannot have pictures, masks or boxes, several
/// fields have pictures and none is named, masks have neither of the two types, or masks and boxes
/// cannot have one of the transforms.
///
/// # Safety
///
/// `dataset` and `pipeline` must be NULL or not freed; `fields` must be NULL or valid; `out` and `error` must be NULL or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slotline_dataset_decode(
    dataset: *const slotline_dataset,
    pipeline: *const slotline_pipeline,
    fields: *const slotline_picture_fields,
    out: *mut *mut slotline_dataset,
    error: *mut *mut slotline_error,
) -> slotline_status {
    // SAFETY: the caller guarantees that the pointers are NULL or valid.
    unsafe {
        made(out, error, || {
            let (dataset, pipeline) = (check::reference(dataset, "dataset")?, check::reference(pipeline, "pipeline")?);
            Ok(decoded(&dataset.0, &pipeline.0, &PictureFields::read(fields)?)?.into())
        })
    }
}

#[cfg(feature = "sources")]
fn decoded(dataset: &Data, pipeline: &AnyPipeline, fields: &PictureFields<'_>) -> Result<Data, Failure> {
    files::decode(dataset.indexed()?, pipeline.clone(), fields).map(Data::Indexed)
}

#[cfg(not(feature = "sources"))]
fn decoded(_: &Data, _: &AnyPipeline, _: &PictureFields<'_>) -> Result<Data, Failure> {
    Err(Failure::invalid("this library does not open files; build it with the CMake option SLOTLINE_SOURCES"))
}
