//! A folder of pictures with one subfolder for each class, and the loaders that read it.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use slotline::dataset::{Context, Dataset};
use slotline::loader::BatchOf;
use slotline::sampler::{DistributedSampler, EpochHandle};
use slotline::{BoxError, Loader};
use slotline_image::transform::{ColorJitter, Normalize, RandomHorizontalFlip, RandomResizedCrop, Resize};
use slotline_image::{Image, Pipeline, Seed};

/// The width and height that pictures are trained with.
pub const SIDE: usize = 48;

/// The files `FOLDER/CLASS/FILE`. Classes are numbered in the order of their names.
#[derive(Clone, Debug)]
pub struct Folder {
    pub classes: usize,
    files: Vec<(PathBuf, i64)>,
    pipeline: Pipeline,
}

impl Folder {
    /// Opens the folder for training, with ImageNet's usual augmentation.
    pub fn train(folder: &Path) -> Result<Self> {
        let pipeline = Pipeline::builder()
            .then(RandomResizedCrop { scale: [0.3, 1.0], ..RandomResizedCrop::new(SIDE) })
            .then(RandomHorizontalFlip::new(0.5))
            .then(ColorJitter::new(0.4, 0.4, 0.4, 0.0))
            .then(Normalize::imagenet())
            .build()?;
        Self::open(folder, pipeline)
    }

    /// Opens the folder for testing: whole pictures.
    pub fn test(folder: &Path) -> Result<Self> {
        Self::open(folder, Pipeline::builder().then(Resize::new([SIDE, SIDE])).then(Normalize::imagenet()).build()?)
    }

    fn open(folder: &Path, pipeline: Pipeline) -> Result<Self> {
        let (mut classes, mut files) = (0, Vec::new());
        for class in sorted(folder)? {
            files.extend(sorted(&class)?.into_iter().map(|file| (file, classes)));
            classes += 1;
        }
        ensure!(!files.is_empty(), "{} has no pictures", folder.display());
        Ok(Self { classes: classes as usize, files, pipeline })
    }
}

/// Returns a folder's entries sorted by name, since the system may list them in any order.
fn sorted(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

impl Dataset for Folder {
    type Sample<'a> = (Image<'a>, i64);

    fn len(&self) -> usize {
        self.files.len()
    }

    fn get<'a>(&'a self, index: usize, cx: &'a mut Context) -> Result<Self::Sample<'a>, BoxError> {
        let (path, class) = &self.files[index];
        // Drawn before the bytes are borrowed from the context.
        let seed = Seed::from(cx.rng());
        let bytes = cx.local::<Vec<u8>>();
        bytes.clear();
        File::open(path)
            .and_then(|mut file| file.read_to_end(bytes))
            .map_err(|e| format!("{}: {e}", path.display()))?;
        Ok((Image::new(bytes, &self.pipeline).random(seed).path(path), *class))
    }
}

/// The kind of the workers that load the samples.
#[derive(Clone, Copy, Debug)]
pub enum WorkerKind {
    Threads(usize),
    Processes(usize),
}

/// The seed of the sample order and of the augmentation.
const SEED: u64 = 42;

/// A loader of one rank, whose passes are shuffled.
pub struct Shuffled {
    pub loader: Loader<BatchOf<Folder>>,
    epoch: EpochHandle,
}

impl Shuffled {
    /// Builds the loader of one of `ranks` ranks, which together have batches of `batch_size` samples.
    pub fn new(folder: &Folder, batch_size: usize, kind: WorkerKind, [rank, ranks]: [usize; 2]) -> Result<Self> {
        // Each rank gets the same number of samples, and only whole batches.
        let sampler = DistributedSampler::new(folder.len(), ranks, rank)?.seed(SEED).drop_last(true);
        let epoch = sampler.epoch();
        let builder = Loader::builder(folder.clone()).batch_size(batch_size / ranks).sampler(sampler);
        let builder = builder.drop_last(true).seed(SEED);
        let loader = match kind {
            WorkerKind::Threads(workers) => builder.num_workers(workers).build()?,
            WorkerKind::Processes(workers) => builder.num_workers(workers).processes().build()?,
        };
        Ok(Self { loader, epoch })
    }

    /// Begins the next pass, with its own order.
    pub fn pass(&mut self) -> Result<slotline::loader::Pass<'_, BatchOf<Folder>>> {
        self.epoch.set(self.loader.next_epoch().into());
        Ok(self.loader.epoch()?)
    }
}
