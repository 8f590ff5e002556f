//! Tests of fields with pictures.
#![cfg(feature = "image")]

use std::path::Path;

use crate::support::{Members, fails, tar};
use slotline::Loader;
use slotline_image::Pipeline;
use slotline_sources::pictures::Pictures;
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
