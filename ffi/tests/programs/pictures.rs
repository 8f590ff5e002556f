//! Tests of decoding pictures in C and C++.

use std::path::PathBuf;
use std::process::Command;

use slotline_image::{Pipeline, Seed};

use crate::native::{compile, here, run, scratch, tool};

fn picture() -> PathBuf {
    here().join("../image/tests/pictures/rgb.png")
}

#[test]
fn pictures_are_decoded_as_in_rust() {
    let Some(cc) = tool("CC", "gcc") else { return };
    let folder = scratch("pictures_c");
    let (program, out) = (folder.join("pictures"), folder.join("out"));
    compile(&cc, &["-std=c99", "-DSLOTLINE_HAS_IMAGE", "-Wconversion"], &here().join("tests/c/pictures.c"), &program);
    assert_eq!(run(Command::new(program).arg(picture()).arg(&out)), "ok\n");

    let pipeline: Pipeline = "random_resized_crop([16, 12]), hflip, normalize(imagenet)".parse().unwrap();
    let mut expected = vec![0.0; 3 * 16 * 12];
    pipeline.decode_seeded(&std::fs::read(picture()).unwrap(), Seed(5), &mut expected).unwrap();
    let found = std::fs::read(out).unwrap();
    let found: Vec<f32> = found.chunks_exact(4).map(|bytes| f32::from_ne_bytes(bytes.try_into().unwrap())).collect();
    assert_eq!(found, expected);
}

#[test]
fn datasets_of_pictures_are_the_same_for_any_workers() {
    let Some(cxx) = tool("CXX", "g++") else { return };
    let folder = scratch("pictures_cpp");
    let program = folder.join("pictures");
    let (classes, masks) = (folder.join("classes"), folder.join("masks"));
    let mask = picture().with_file_name("grey.png");
    for (class, count) in [("cats", 2), ("dogs", 3)] {
        for (folder, from) in [(&classes, &picture()), (&masks, &mask)] {
            std::fs::create_dir_all(folder.join(class)).unwrap();
            for i in 0..count {
                std::fs::copy(from, folder.join(class).join(format!("{i}.png"))).unwrap();
            }
        }
    }
    let flags = ["-std=c++17", "-DSLOTLINE_HAS_IMAGE", "-Wconversion", "-Wshadow"];
    compile(&cxx, &flags, &here().join("tests/cpp/pictures.cpp"), &program);
    let mut command = Command::new(program);
    command.arg(picture());
    if cfg!(feature = "sources") {
        command.arg(classes).arg(masks);
    }
    assert_eq!(run(&mut command), "ok\n");
}
