//! Loads a folder of JPEGs with one subfolder for each class, like torchvision's `ImageFolder`.
//!
//! `cargo run -p slotline-image --example image_folder [FOLDER]`

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use slotline::dataset::{Context, Dataset};
use slotline::{BoxError, Loader};
use slotline_image::{Image, Pipeline};

/// The files `FOLDER/CLASS/IMAGE.jpg`; classes are numbered in the order of their names.
struct ImageFolder {
    classes: Vec<String>,
    files: Vec<(PathBuf, i64)>,
    pipeline: Pipeline,
}

impl ImageFolder {
    fn new(folder: &Path, pipeline: Pipeline) -> Result<Self, BoxError> {
        let (mut classes, mut files) = (Vec::new(), Vec::new());
        for class in sorted(folder)?.into_iter().filter(|path| path.is_dir()) {
            let number = classes.len() as i64;
            let is_jpeg = |file: &PathBuf| {
                file.extension().is_some_and(|end| end.eq_ignore_ascii_case("jpg") || end.eq_ignore_ascii_case("jpeg"))
            };
            files.extend(sorted(&class)?.into_iter().filter(is_jpeg).map(|file| (file, number)));
            classes.push(class.file_name().unwrap_or_default().to_string_lossy().into_owned());
        }
        Ok(Self { classes, files, pipeline })
    }
}

/// Returns a folder's entries sorted by name: systems list them in any order.
fn sorted(folder: &Path) -> Result<Vec<PathBuf>, BoxError> {
    let mut paths = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>, BoxError>>()?;
    paths.sort();
    Ok(paths)
}

impl Dataset for ImageFolder {
    type Sample<'a> = (Image<'a>, i64);

    fn len(&self) -> usize {
        self.files.len()
    }

    fn get<'a>(&'a self, index: usize, cx: &'a mut Context) -> Result<Self::Sample<'a>, BoxError> {
        let (path, class) = &self.files[index];
        // Thread-local memory, so that no file is read into a new allocation.
        let bytes = cx.local::<Vec<u8>>();
        bytes.clear();
        fs::File::open(path)
            .and_then(|mut file| file.read_to_end(bytes))
            .map_err(|e| format!("{}: {e}", path.display()))?;
        // Nothing is decoded yet: that happens later, directly into the batch.
        Ok((Image::new(bytes, &self.pipeline).path(path), *class))
    }
}

fn main() -> Result<(), BoxError> {
    let made = tempfile::tempdir()?;
    let folder = match std::env::args_os().nth(1).map(PathBuf::from).filter(|path| path.is_dir()) {
        Some(folder) => folder,
        None => {
            make_pictures(made.path())?;
            made.path().to_owned()
        }
    };

    // The usual size and normalisation of ImageNet.
    let pipeline = Pipeline::new(224, 224)?.normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])?;
    let dataset = ImageFolder::new(&folder, pipeline)?;
    println!("{} images of {:?}", dataset.len(), dataset.classes);
    let expected = dataset.len();
    let mut loader = Loader::builder(dataset).batch_size(32).shuffle(true).seed(42).num_workers(2).build()?;
    let mut seen = 0;
    for batch in loader.epoch()? {
        let batch = batch?;
        let (images, classes) = batch.tensors(); // f32 [B, 3, 224, 224] and i64 [B]
        assert_eq!(images.shape(), [classes.len(), 3, 224, 224]);
        seen += classes.len();
    }
    assert_eq!(seen, expected);
    println!("{}", loader.stats().verdict());
    Ok(())
}

/// Creates some images, for use if no folder is given.
fn make_pictures(folder: &Path) -> Result<(), BoxError> {
    for (class, tint) in [("dark", 40_usize), ("light", 180)] {
        fs::create_dir(folder.join(class))?;
        for i in 0..40 {
            let (width, height) = (320_u16, 240_u16);
            let pixels: Vec<u8> = (0..320 * 240 * 3).map(|at| (tint + at * (i + 3) / 997 % 60) as u8).collect();
            let encoder = jpeg_encoder::Encoder::new_file(folder.join(class).join(format!("{i}.jpg")), 85)?;
            encoder.encode(&pixels, width, height, jpeg_encoder::ColorType::Rgb)?;
        }
    }
    Ok(())
}
