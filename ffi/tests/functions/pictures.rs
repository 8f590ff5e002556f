//! Tests that pictures with masks and boxes, and mixed batches, are those of the Rust crates.

use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::ptr::{null, null_mut};
use std::sync::LazyLock;

use slotline::Loader as Engine;
use slotline::rng::SampleRng;
use slotline_image::{CutMix, MixUp, Pipeline};
use slotline_sources::pictures::{BoxFormat, Pictures};

use slotline_ffi::*;

use super::map_datasets::elements;
use super::sequences::assert_same;
use crate::support::datasets::loader_of;
use crate::support::{Batch, Loader, call, options};

/// Writes a JSONL file of six scenes, and returns its path: each has a picture of 32 × 24 pixels, a mask and two boxes.
fn scenes() -> &'static Path {
    static SCENES: LazyLock<PathBuf> = LazyLock::new(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("scenes");
        std::fs::create_dir_all(&folder).unwrap();
        let picture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../image/tests/pictures/grey.png");
        std::fs::copy(&picture, folder.join("picture.png")).unwrap();
        std::fs::copy(&picture, folder.join("mask.png")).unwrap();
        let line =
            r#"{"file_name": "picture.png", "mask": "mask.png", "boxes": [[10.5, 4, 19.5, 16.25], [0, 0, 32, 24]]}"#;
        let path = folder.join("scenes.jsonl");
        std::fs::write(&path, [line; 6].join("\n")).unwrap();
        path
    });
    &SCENES
}

const OPTIONS: &str = "file_column=file_name,mask";
const TRANSFORMS: &str = "random_resized_crop(16), hflip";

/// Decodes the scenes, and returns a loader.
fn decoded(fields: &slotline_picture_fields) -> Result<Loader, (slotline_status, String)> {
    let (path, given) = (CString::new(scenes().to_str().unwrap()).unwrap(), CString::new(OPTIONS).unwrap());
    let transforms = CString::new(TRANSFORMS).unwrap();
    let (mut files, mut pipeline) = (null_mut(), null_mut());
    let options = options(|options| {
        (options.batch_size, options.num_workers) = (4, 2);
        (options.shuffle, options.has_seed, options.seed) = (1, 1, 3);
    });
    // SAFETY: all pointers are valid, and each object is freed once.
    unsafe {
        call(|error| slotline_dataset_open_with(path.as_ptr(), given.as_ptr(), &mut files, error)).unwrap();
        call(|error| slotline_pipeline_new(transforms.as_ptr(), null(), &mut pipeline, error)).unwrap();
        let loader = loader_of(|out, error| slotline_dataset_decode(files, pipeline, fields, out, error), &options);
        slotline_pipeline_free(pipeline);
        slotline_dataset_free(files);
        loader
    }
}

const FIELDS: slotline_picture_fields = slotline_picture_fields {
    struct_size: size_of::<slotline_picture_fields>(),
    field: c"data".as_ptr(),
    mask_field: c"mask".as_ptr(),
    mask_fill: 255,
    mask_dtype: SLOTLINE_I64,
    boxes_format: SLOTLINE_BOXES_XYWH,
    boxes_field: c"boxes".as_ptr(),
};

#[test]
fn masks_and_boxes_are_those_of_rust() {
    for (mask_dtype, boxes_format, format) in [
        (SLOTLINE_I64, SLOTLINE_BOXES_XYWH, BoxFormat::Xywh),
        (SLOTLINE_U8, SLOTLINE_BOXES_XYWH, BoxFormat::Xywh),
        (0, SLOTLINE_BOXES_XYXY, BoxFormat::Xyxy),
        (0, SLOTLINE_BOXES_CXCYWH, BoxFormat::Cxcywh),
    ] {
        let loader = decoded(&slotline_picture_fields { mask_dtype, boxes_format, ..FIELDS }).unwrap();
        let options: slotline_sources::OpenOptions = OPTIONS.parse().unwrap();
        let pipeline: Pipeline = TRANSFORMS.parse().unwrap();
        let own = Pictures::builder(options.open(scenes()).unwrap(), pipeline).field("data").boxes("boxes", format);
        let own = if mask_dtype == SLOTLINE_I64 { own.mask("mask", 255_i64) } else { own.mask("mask", 255_u8) };
        let own = own.build().unwrap();
        let mut own = Engine::builder(own).batch_size(4).shuffle(true).seed(3).build().unwrap();
        loader.epoch().unwrap();
        for wanted in own.epoch().unwrap() {
            assert_same(&loader.next().unwrap().unwrap(), wanted.unwrap().columns());
        }
        assert!(loader.next().unwrap().is_none());
    }
}

#[test]
fn fields_without_masks_or_boxes_are_refused() {
    let cases: [(slotline_status, slotline_picture_fields, &str); 6] = [
        (SLOTLINE_ERROR_SOURCE, slotline_picture_fields { mask_field: c"no".as_ptr(), ..FIELDS }, "no field no"),
        (SLOTLINE_ERROR_SOURCE, slotline_picture_fields { mask_dtype: SLOTLINE_F32, ..FIELDS }, "masks of f32"),
        (
            SLOTLINE_ERROR_SOURCE,
            slotline_picture_fields { mask_dtype: SLOTLINE_U8, mask_fill: 256, ..FIELDS },
            "padded with 256",
        ),
        (SLOTLINE_ERROR_SOURCE, slotline_picture_fields { boxes_field: c"no".as_ptr(), ..FIELDS }, "no field no, but"),
        (SLOTLINE_ERROR_INVALID, slotline_picture_fields { boxes_format: 3, ..FIELDS }, "boxes_format is 3"),
        (SLOTLINE_ERROR_INVALID, slotline_picture_fields { mask_dtype: 99, ..FIELDS }, "mask_dtype is 99"),
    ];
    for (status, fields, words) in cases {
        let (found, message) = decoded(&fields).map(drop).unwrap_err();
        assert!(found == status && message.contains(words), "{found:?}: {message}");
    }
}

/// The pictures and classes of eight samples.
fn samples() -> (Vec<f32>, Vec<i64>) {
    ((0..8 * 3 * 4 * 6).map(|i| (i * 7 % 101) as f32).collect(), (0..8).map(|i| i % 3).collect())
}

/// Returns a batch of all samples from the second pass of a loader.
fn batch(shape: &[i64; 4]) -> Batch {
    let (pictures, classes) = samples();
    let array = |data, dtype, shape: &[i64]| slotline_array {
        struct_size: size_of::<slotline_array>(),
        name: null(),
        data,
        dtype,
        ndim: shape.len() as u32,
        shape: shape.as_ptr(),
        user: null_mut(),
        drop: None,
    };
    let arrays = [
        array(pictures.as_ptr().cast(), SLOTLINE_F32, shape),
        array(classes.as_ptr().cast(), SLOTLINE_I64, &shape[..1]),
    ];
    let options = options(|options| options.batch_size = 8);
    // SAFETY: the arrays are valid, and live longer than the loader.
    let loader =
        loader_of(|out, error| unsafe { slotline_dataset_from_arrays(arrays.as_ptr(), 2, out, error) }, &options);
    let loader = loader.unwrap();
    for _ in 0..2 {
        loader.epoch().unwrap();
    }
    loader.next().unwrap().unwrap()
}

const MIX: slotline_mix = slotline_mix {
    struct_size: size_of::<slotline_mix>(),
    alpha: 0.7,
    seed: 2,
    num_classes: 3,
    cut: 0,
    channels_last: 0,
    reserved: [0; 6],
};

#[test]
fn batches_are_mixed_as_in_rust() {
    for (cut, channels_last) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
        let (shape, size) = if channels_last == 1 { ([8, 4, 6, 3], [4, 6]) } else { ([8, 3, 4, 6], [4, 6]) };
        let batch = batch(&shape.map(|len| len as i64));
        let options = slotline_mix { cut, channels_last, ..MIX };
        let mut labels = [0.0; 24];
        // SAFETY: all pointers are valid, and the labels have the length that is passed.
        call(|error| unsafe { slotline_batch_mix(batch.0, 0, 1, &options, labels.as_mut_ptr(), 24, error) }).unwrap();

        let ((mut pictures, classes), mut rng) = (samples(), SampleRng::new(MIX.seed, 1, 0));
        let mix = match cut {
            0 => MixUp { alpha: 0.7 }.draw(&mut rng),
            _ => CutMix { alpha: 0.7 }.draw(&mut rng, 4, 6),
        };
        let (mix, mut wanted) = (mix.unwrap(), Vec::new());
        mix.labels(&classes, size, 3, &mut wanted).unwrap();
        mix.pictures(&mut pictures, shape, channels_last == 1).unwrap();
        assert_eq!((&*elements::<f32>(&batch, 0), &labels[..]), (&*pictures, &*wanted));
        assert_ne!(pictures, samples().0);
    }
}

#[test]
fn batches_that_cannot_be_mixed_are_refused() {
    let batch = batch(&[8, 3, 4, 6]);
    let mix = |pictures, labels, len, options: slotline_mix| {
        let mut out = [0.0; 24];
        // SAFETY: all pointers are valid; a length that is longer than the memory is refused.
        call(|error| unsafe { slotline_batch_mix(batch.0, pictures, labels, &options, out.as_mut_ptr(), len, error) })
    };
    for (outcome, words) in [
        (mix(2, 1, 24, MIX), "field is 2, but the batch has 2 fields"),
        (mix(0, 2, 24, MIX), "field is 2"),
        (mix(1, 1, 24, MIX), "is not that of pictures"),
        (mix(0, 0, 24, MIX), "does not have one i64"),
        (mix(0, 1, 25, MIX), "len is 25; it must be the 8 samples of the batch times 3 classes"),
        (mix(0, 1, 16, slotline_mix { num_classes: 2, ..MIX }), "classes are 0 to 1"),
        (mix(0, 1, 24, slotline_mix { alpha: f64::NAN, ..MIX }), "alpha"),
        (mix(0, 1, 24, slotline_mix { cut: 2, ..MIX }), "cut is 2"),
        (mix(0, 1, 24, slotline_mix { channels_last: 2, ..MIX }), "channels_last is 2"),
        (mix(0, 1, 24, slotline_mix { reserved: [1; 6], ..MIX }), "later version"),
    ] {
        let (status, message) = outcome.unwrap_err();
        assert!(status == SLOTLINE_ERROR_INVALID && message.contains(words), "{message}");
    }
    assert_eq!(elements::<f32>(&batch, 0), samples().0);
    let mut tensor = null_mut();
    // SAFETY: the batch and the out-pointers are valid, and the tensor is deleted once.
    unsafe {
        call(|error| slotline_batch_dlpack(batch.0, 0, null_mut(), &mut tensor, error)).unwrap();
        let (_, message) = mix(0, 1, 24, MIX).unwrap_err();
        assert!(message.contains("tensors that were exported"), "{message}");
        (*tensor).deleter.unwrap()(tensor);
        mix(0, 1, 24, MIX).unwrap();
    }
}
