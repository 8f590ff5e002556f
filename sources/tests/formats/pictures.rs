//! Tests of fields with pictures.
#![cfg(feature = "image")]

use std::io::Write;
use std::path::Path;

use crate::support::{Members, fails, tar};
use slotline::dataset::{Context, Dataset};
use slotline::dtype::DType;
use slotline::sample::Packed;
use slotline::{BoxError, Loader};
use slotline_image::{Image, Mask, Pipeline, Seed};
use slotline_sources::pictures::{BoxFormat, Pictures};
use slotline_sources::{Format, Records};

/// Returns samples with a picture of 48 × 32 pixels, bytes that are not a picture, and a class.
fn records(folder: &Path, members: Members<'_>) -> Records<dyn Format> {
    let path = folder.join("shard.tar");
    std::fs::write(&path, tar(members)).expect("a file can be written");
    slotline_sources::open(&path).expect("a tar")
}

fn picture() -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../image/tests/pictures/rgb.png")).expect("a picture")
}

#[test]
fn the_field_with_pictures_is_found_or_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let png = picture();
    let members: [(&str, &[u8]); 4] = [("0.bin", b"none"), ("0.png", &png), ("1.bin", b"neither"), ("1.png", &png)];
    let records = records(folder.path(), &members);
    let pipeline: Pipeline<u8> = "center_crop([8, 9])".parse().expect("a pipeline");
    let pictures = Pictures::new(records.clone(), pipeline.clone(), None).expect("a field with pictures");
    assert_eq!(pictures.record_fields().as_slice()[pictures.field()].name, "png");
    let named = Pictures::new(records.clone(), pipeline.clone(), Some("png")).expect("the field");
    assert_eq!(named.field(), pictures.field());
    fails(Pictures::new(records.clone(), pipeline.clone(), Some("jpg")), &["no field jpg (these do: ", "png"]);
    let bin = Pictures::new(records, pipeline.clone(), Some("bin")).expect("a field of bytes");
    let mut loader = Loader::builder(bin).batch_size(2).build().expect("a loader");
    let error = loader.epoch().expect("a pass").next().expect("a batch").expect_err("no picture");
    assert!(format!("{error:?}").contains("shard.tar"), "{error:?}");

    let field = pictures.field();
    let mut loader = Loader::builder(pictures).batch_size(2).build().expect("a loader");
    let batch = loader.epoch().expect("a pass").next().expect("a batch").expect("two samples");
    let columns = batch.columns();
    let mut expected = vec![0; 3 * 8 * 9];
    pipeline.decode(&png, &mut expected).expect("a picture");
    assert_eq!(columns.get(field).expect("pictures").shape(), [2, 3, 8, 9]);
    assert_eq!(columns.get(field).expect("pictures").bytes(), [&expected[..], &expected[..]].concat());
    let other = columns.position("bin").expect("the other field");
    assert_eq!(columns.get(other).expect("bytes").bytes(), b"noneneither");
}

#[test]
fn two_fields_with_pictures_are_an_error_that_names_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let png = picture();
    let records = records(folder.path(), &[("0.left.png", &png), ("0.right.png", &png)]);
    let pipeline: Pipeline = "center_crop(8)".parse().expect("a pipeline");
    fails(Pictures::new(records, pipeline, None), &["left.png", "right.png", "name one of them"]);
}

#[test]
fn a_damaged_picture_is_an_error_for_every_crop() {
    let folder = tempfile::tempdir().expect("a folder");
    let png = picture();
    let records = records(folder.path(), &[("0.png", &png[..png.len() * 4 / 5]), ("1.png", &png)]);
    let pipeline: Pipeline = "random_crop([2, 8])".parse().expect("a pipeline");
    let pictures = Pictures::new(records, pipeline, None).expect("a field with pictures");
    let mut loader = Loader::builder(pictures).build().expect("a loader");
    for epoch in 0..20 {
        let found: Vec<bool> = loader.epoch().expect("a pass").map(|batch| batch.is_ok()).collect();
        assert_eq!(found, [false, true], "{epoch}");
    }
}

/// Encodes class numbers as a grey PNG.
fn grey(width: usize, numbers: &[u8]) -> Vec<u8> {
    let rows: Vec<u8> = numbers.chunks(width).flat_map(|row| [0].iter().chain(row)).copied().collect();
    let mut packed = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    packed.write_all(&rows).expect("memory");
    let [width, height] = [width, numbers.len() / width].map(|side| (side as u32).to_be_bytes());
    let header = [&width[..], &height, &[8, 0, 0, 0, 0]].concat();
    let chunk = |(name, data): (&[u8; 4], &[u8])| {
        let mut crc = flate2::Crc::new();
        crc.update(name);
        crc.update(data);
        [&(data.len() as u32).to_be_bytes()[..], name, data, &crc.sum().to_be_bytes()].concat()
    };
    let data = packed.finish().expect("memory");
    let chunks: [(&[u8; 4], &[u8]); 3] = [(b"IHDR", &header), (b"IDAT", &data), (b"IEND", &[])];
    [b"\x89PNG\r\n\x1a\n".to_vec(), chunks.map(chunk).concat()].concat()
}

/// A dataset of one scene, whose mask and boxes an [`Image`] transforms.
struct Scenes {
    picture: Vec<u8>,
    mask: Vec<u8>,
    pipeline: Pipeline<u8>,
}

/// The boxes of the first two samples after their transforms.
const GOLDEN: [f32; 16] =
    [6.7555556, 1.6, 16.0, 12.1, 0.0, 0.0, 16.0, 16.0, 4.923077, 1.6551725, 16.0, 16.0, 0.0, 0.0, 16.0, 16.0];

const BOXES: [[f32; 4]; 2] = [[10.5, 4.0, 40.0, 30.25], [0.0, 0.0, 60.0, 40.0]];

impl Dataset for Scenes {
    type Sample<'a> = (Image<'a, u8>, Mask<'a, u8>, Packed<'a, f32>);

    fn len(&self) -> usize {
        6
    }

    fn get<'a>(&'a self, _: usize, cx: &'a mut Context) -> Result<Self::Sample<'a>, BoxError> {
        let image = Image::new(&self.picture, &self.pipeline).random(Seed::from(cx.rng()));
        let boxes = cx.local::<Vec<[f32; 4]>>();
        *boxes = BOXES.to_vec();
        image.boxes(boxes)?;
        Ok((image, image.mask(&self.mask), Packed::with_shape(boxes.as_flattened(), &[4], 2)))
    }
}

/// Returns the bytes of a picture, a mask and boxes, and the boxes' offsets, of a pass of one batch.
fn pass(dataset: impl Dataset + 'static, fields: [usize; 3]) -> ([Vec<u8>; 3], Vec<i64>) {
    let mut loader = Loader::builder(dataset).batch_size(6).shuffle(true).seed(3).build().expect("a loader").untyped();
    let batch = loader.epoch().expect("a pass").next().expect("a batch").expect("six samples");
    let columns = batch.columns();
    let bytes = fields.map(|field| columns.get(field).expect("a field").bytes().to_vec());
    (bytes, columns.offsets(fields[2]).expect("boxes are packed").to_vec())
}

#[test]
fn masks_and_boxes_are_those_of_an_image() {
    let folder = tempfile::tempdir().expect("a folder");
    let numbers: Vec<u8> = (0..40 * 60).map(|i| ((i / 60 * 3 + i % 60 * 5) % 251) as u8).collect();
    let (picture, mask) = (grey(60, &[9; 40 * 60]), grey(60, &numbers));
    let json = br#"{"a": [{"box": [10.5, 4, 29.5, 26.25]}, {"box": [0, 0, 60, 40]}]}"#;
    let names: Vec<[String; 3]> =
        (0..6).map(|i| [format!("{i}.png"), format!("{i}.mask.png"), format!("{i}.json")]).collect();
    let data: [&[u8]; 3] = [&picture, &mask, json];
    let members: Vec<(&str, &[u8])> =
        names.iter().flat_map(|names| names.iter().map(String::as_str).zip(data)).collect();
    let records = records(folder.path(), &members);
    let pipeline: Pipeline<u8> = "random_resized_crop(16), hflip".parse().expect("a pipeline");
    let builder = Pictures::builder(records.clone(), pipeline.clone());
    let scenes = builder.clone().mask("mask.png", 0_u8).boxes("json.a.box", BoxFormat::Xywh).build().expect("scenes");
    let fields = scenes.record_fields().clone();
    let names: Vec<String> = fields.as_slice().iter().map(ToString::to_string).collect();
    assert_eq!(names, ["png: u8 [3, 16, 16]", "mask.png: u8 [16, 16]", "json: text", "json.a.box: f32 [4] list"]);
    let found = pass(scenes, [0, 1, 3]);
    let by_hand = Scenes { picture, mask, pipeline: pipeline.clone() };
    assert_eq!(found, pass(by_hand, [0, 1, 2]));
    assert_eq!(found.1, [0, 2, 4, 6, 8, 10, 12]);
    // The test of the Python package `test_masks_and_boxes_are_those_of_rust` has these numbers.
    let mut crc = flate2::Crc::new();
    crc.update(&found.0[1]);
    let first = slotline::dtype::from_bytes::<f32>(&found.0[2][..64]).expect("boxes");
    assert_eq!((crc.sum(), &first[..]), (2_757_515_208, &GOLDEN[..]));

    for (builder, parts) in [
        (builder.clone().mask("json", 0_u8), ["the field json holds text, not pictures", "png, mask.png"]),
        (builder.clone().mask_as("mask.png", DType::F32, 0), ["masks of f32", "use u8 or i64"]),
        (builder.clone().mask_as("mask.png", DType::U8, 256), ["can't be padded with 256", "use i64"]),
        (builder.clone().field("png").mask("png", 0_u8), ["the field png is named twice", "different fields"]),
        (
            builder.clone().boxes("json.a", BoxFormat::Xyxy).boxes("json.a", BoxFormat::Xywh).field("png"),
            ["the field json.a is named twice", "different fields"],
        ),
        (builder.clone().boxes("png.a", BoxFormat::Xyxy), ["the field png holds bytes, not boxes", "JSON"]),
        (builder.clone().boxes("a.json", BoxFormat::Xyxy), ["no field a.json, but png, mask.png, json", "name one"]),
        (builder, ["the fields png, mask.png have pictures", "name one of them"]),
    ] {
        fails(builder.build(), &parts);
    }
}
