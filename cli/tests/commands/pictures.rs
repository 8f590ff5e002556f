//! Pictures that are decoded, and contact sheets of them.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::program::{failure, stdout, summary};

/// Writes a picture of 16 × 16 pixels of one colour.
fn picture(path: &Path, colour: [u8; 3]) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder can be made");
    let mut encoder = png::Encoder::new(fs::File::create(path).expect("a file can be written"), 16, 16);
    encoder.set_color(png::ColorType::Rgb);
    let mut writer = encoder.write_header().expect("a header");
    writer.write_image_data(&colour.repeat(256)).expect("the pixels");
}

/// Makes a folder of two classes: three red pictures, two green ones.
fn photos(root: &Path) {
    (0..3).for_each(|i| picture(&root.join(format!("red/{i}.png")), [200, 10, 20]));
    (0..2).for_each(|i| picture(&root.join(format!("green/{i}.png")), [10, 200, 20]));
}

/// Runs `inspect` with these transforms, which may contain spaces.
fn sheet(root: &Path, transforms: &str, file: &Path, more: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_slotline"));
    command.arg("inspect").arg(root).args(["--image", transforms, "--sheet"]).arg(file);
    let output = command.args(more.split_whitespace()).output().expect("the program starts");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// Returns the width and the pixels of a PNG.
fn read(file: &Path) -> (usize, Vec<u8>) {
    let file = std::io::BufReader::new(fs::File::open(file).expect("a file"));
    let mut reader = png::Decoder::new(file).read_info().expect("a PNG");
    let mut pixels = vec![0; reader.output_buffer_size().expect("a size")];
    let info = reader.next_frame(&mut pixels).expect("pixels");
    (info.width as usize, pixels)
}

#[test]
fn decoded_pictures_are_the_same_for_any_workers() {
    let root = tempfile::tempdir().expect("a folder");
    photos(root.path());
    let feed = format!(
        "feed {} --image random_resized_crop(8),hflip,normalize(imagenet) --shuffle --seed 3 --batch-size 2",
        root.path().display()
    );
    let alone = summary(&feed);
    assert_eq!(alone["bytes"], 5 * (3 * 8 * 8 * 4 + 8));
    for workers in ["--num-workers 2", "--num-workers 2 --worker-kind process"] {
        assert_eq!(summary(&format!("{feed} {workers}"))["data_digest"], alone["data_digest"], "{workers}");
    }
    let other = summary(&feed.replace("--seed 3", "--seed 4"));
    assert_ne!(other["data_digest"], alone["data_digest"]);
}

#[test]
fn masks_and_boxes_are_those_of_their_pictures() {
    let root = tempfile::tempdir().expect("a folder");
    photos(root.path());
    let mut encoder = png::Encoder::new(fs::File::create(root.path().join("mask.png")).expect("a file"), 16, 16);
    encoder.set_color(png::ColorType::Grayscale);
    let classes: Vec<u8> = (0..=255).collect();
    encoder.write_header().expect("a header").write_image_data(&classes).expect("the pixels");
    let line = |i| format!("{{\"file_name\": \"red/{i}.png\", \"mask\": \"mask.png\", \"boxes\": [[2, 3, 8, 9]]}}\n");
    let list = root.path().join("list.jsonl");
    fs::write(&list, (0..3).map(line).collect::<String>()).expect("a file can be written");
    let options = format!(
        "{} --image random_crop(8),hflip --file-column file_name,mask --mask-field mask --boxes-field boxes \
         --boxes-format xywh",
        list.display()
    );
    let text = stdout(&format!("inspect {options}"));
    assert!(text.contains("mask: u8 [8, 8]") && text.contains("boxes: f32 [4] list"), "{text}");
    let alone = summary(&format!("feed {options} --shuffle --seed 3"));
    assert_eq!(
        summary(&format!("feed {options} --shuffle --seed 3 --num-workers 2"))["data_digest"],
        alone["data_digest"]
    );
    let (_, message) = failure(&format!("feed {}", options.replace("--mask-field mask", "--mask-field boxes")));
    assert!(message.contains("the field boxes holds text, not pictures"), "{message}");
}

#[test]
fn a_sheet_shows_the_first_pictures_of_a_loop() {
    let root = tempfile::tempdir().expect("a folder");
    photos(root.path());
    let (first, second) = (root.path().join("sheet.png"), root.path().join("again.png"));
    let transforms = "resize(8), center_crop([8, 8]), normalize(imagenet)";
    let text = sheet(root.path(), transforms, &first, "--sheet-pictures 4");
    assert!(text.contains("data: f32 [3, 8, 8]") && text.contains("a sheet of 4 pictures was written to"), "{text}");
    let (width, pixels) = read(&first);
    assert_eq!((width, pixels.len()), (28, 3 * 28 * 28));
    // The classes are sorted by name: two green pictures, then red ones.
    let pixel = |y: usize, x: usize| &pixels[3 * (28 * y + x)..][..3];
    assert_eq!([pixel(8, 8), pixel(8, 20)], [[10, 200, 20]; 2]);
    assert_eq!([pixel(20, 8), pixel(20, 20)], [[200, 10, 20]; 2]);
    assert_eq!([pixel(0, 0), pixel(13, 13), pixel(27, 27)], [[255; 3]; 3]);

    sheet(root.path(), "random_resized_crop(8), hflip", &first, "--shuffle --seed 7");
    sheet(root.path(), "random_resized_crop(8), hflip", &second, "--shuffle --seed 7 --num-workers 2");
    assert_eq!(fs::read(&first).expect("a file"), fs::read(&second).expect("a file"));
}

#[test]
fn what_is_no_picture_is_named() {
    let root = tempfile::tempdir().expect("a folder");
    photos(root.path());
    let path = root.path().display();
    for (arguments, words) in [
        (
            format!("feed {path} --image resize(8),hflp"),
            "character 11 of the pipeline: unknown transform hflp (did you mean hflip?)",
        ),
        (format!("feed {path} --image resize(8)"), "have a size that differs between pictures"),
        (
            format!("feed {path} --image center_crop(8) --image-field label"),
            "the field label holds i64, not pictures (these do: data)",
        ),
        (format!("feed {path} --columns label --image center_crop(8)"), "no field holds the bytes of files"),
        (format!("inspect {path} --sheet {path}/x.png"), "--image"),
        (format!("inspect {path} --image center_crop(9) --sheet {path}/red/none/x.png"), "cannot create"),
        (
            format!("inspect {path} --image center_crop(9) --sheet {path}/x.png --sheet-pictures 0"),
            "at least one picture",
        ),
        ("feed digits --image center_crop(8)".to_owned(), "digits has arrays, not pictures; drop --image"),
    ] {
        let (code, message) = failure(&arguments);
        assert!(code != 0 && message.contains(words), "{arguments}: {message}");
    }
    fs::write(root.path().join("red/0.png"), "<html>").expect("a file can be written");
    let (_, message) = failure(&format!("feed {path} --image center_crop(8)"));
    assert!(message.contains("red/0.png: expected a JPEG, PNG") && message.contains("found a web page"), "{message}");
    #[cfg(not(feature = "turbo"))]
    {
        fs::write(root.path().join("red/0.png"), b"\xff\xd8\xff\xc9\0\x0b\x08\0\x08\0\x08\x01\x01\x11\0\xff\xd9")
            .expect("a file can be written");
        let (_, message) = failure(&format!("feed {path} --image center_crop(8)"));
        assert!(message.contains("needs the cargo feature `turbo`"), "{message}");
    }
}

#[test]
fn large_pictures_are_bound_by_decoding() {
    let root = tempfile::tempdir().expect("a folder");
    for i in 0..8 {
        let path = root.path().join(format!("class/{i}.png"));
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder can be made");
        let mut encoder = png::Encoder::new(fs::File::create(path).expect("a file can be written"), 600, 600);
        encoder.set_color(png::ColorType::Rgb);
        let noise: Vec<u8> = (0..600 * 600 * 3_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        encoder.write_header().expect("a header").write_image_data(&noise).expect("the pixels");
    }
    for workers in [0, 1] {
        let feed = format!("feed {} --image random_resized_crop(8) --batch-size 2", root.path().display());
        let text = crate::program::stdout(&format!("{feed} --num-workers {workers}"));
        // Other programs may occupy the cores during the run.
        assert!(text.contains("bound by decoding") || text.contains("starved of cores"), "{text}");
    }
}
