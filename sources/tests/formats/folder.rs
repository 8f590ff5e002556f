//! Checks that folders are read as by torchvision.
#![cfg(feature = "folder")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::Value as Json;
use slotline::Dataset;
use slotline::dataset::Context;
use slotline_sources::Format;
use slotline_sources::folder::{Folder, FolderOptions};

use crate::support;

use crate::support::fails;

/// Creates the same folder as the script, and returns what torchvision found in it.
fn make(root: &Path) -> Json {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/folder/expected.json");
    let expected: Json = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let names = |key: &str| expected[key].as_array().unwrap().clone();
    for file in names("files") {
        let file = file.as_str().unwrap();
        fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
        fs::write(root.join(file), file).unwrap();
    }
    for folder in names("folders") {
        fs::create_dir(root.join(folder.as_str().unwrap())).unwrap();
    }
    for link in names("links") {
        symlink(link[1].as_str().unwrap(), root.join(link[0].as_str().unwrap())).unwrap();
    }
    expected
}

#[test]
fn nasty_names_are_read_as_torchvision_does() {
    let root = tempfile::tempdir().unwrap();
    let expected = make(root.path());
    let dangling = root.path().join("e/dangling.jpg");
    let folder = FolderOptions::new().allow_empty(true).open(root.path()).unwrap();
    assert_eq!(serde_json::json!(folder.format().classes()), expected["classes"]);
    let samples = expected["samples"].as_array().unwrap();
    assert_eq!(folder.len(), samples.len());
    let mut cx = Context::default();
    for (index, sample) in samples.iter().enumerate() {
        let path = root.path().join(sample[0].as_str().unwrap());
        assert_eq!(folder.format().files().path(index), path);
        match folder.get(index, &mut cx) {
            Ok(record) => {
                assert_eq!(record.bytes("data").unwrap(), fs::read(&path).unwrap());
                assert_eq!(record.number::<i64>("label"), sample[1].as_i64());
            }
            Err(error) => assert!(path == dangling && error.to_string().contains("dangling.jpg"), "{error}"),
        }
    }
}

#[test]
fn bad_folders_are_errors_that_name_them() {
    let root = tempfile::tempdir().unwrap();
    make(root.path());
    fails(Folder::open(root.path()), &["the classes empty, none "]);
    fails(Folder::open(root.path().join("gone")), &["gone"]);
    fails(Folder::open(root.path().join("9")), &["no folders in it"]);
    symlink("..", root.path().join("a/up")).unwrap();
    fails(FolderOptions::new().allow_empty(true).open(root.path()), &["a link to a folder above it"]);
}

#[test]
fn a_pass_over_a_folder_resumes() {
    let root = tempfile::tempdir().unwrap();
    make(root.path());
    fs::remove_file(root.path().join("e/dangling.jpg")).unwrap();
    support::resumes(|| FolderOptions::new().allow_empty(true).open(root.path()).unwrap());
}
