//! Loaders in structs and vectors, loaders returned from functions, batches sent through channels,
//! and code that is generic over loaders.
//!
//! The type of a loader contains the type of its batches, but not that of the dataset: a sample of
//! a `Loader<Batch<(u8, i64)>>` consists of bytes and an `i64`.
//!
//! `cargo run --example keep_loaders`

use std::sync::mpsc::sync_channel;
use std::thread;

use slotline::dataset::{Subset, TensorDataset, from_fn};
use slotline::loader::Output;
use slotline::{Batch, BoxError, Dataset, Loader};

/// The element types of a sample: an image of bytes, and a label.
type Labelled = (u8, i64);

/// A struct that stores loaders. Both fields have the same type, although the types of the datasets differ.
struct Trainer {
    train: Loader<Batch<Labelled>>,
    check: Loader<Batch<Labelled>>,
    steps: usize,
}

impl Trainer {
    /// Runs one training step. The trainer is not borrowed between two steps. A `for` loop would
    /// borrow its loader for a whole epoch.
    fn step(&mut self) -> Result<(), BoxError> {
        let batch = match self.train.next_batch() {
            Some(batch) => batch?,
            None => {
                self.train.begin_epoch()?;
                self.train.next_batch().ok_or("the dataset has no batches")??
            }
        };
        self.learn(&batch);
        Ok(())
    }

    fn learn(&mut self, batch: &Batch<Labelled>) {
        let (images, labels) = batch.tensors();
        assert_eq!(images.shape()[0], labels.len());
        self.steps += 1;
    }
}

/// Returns a loader. Its callers do not need to know the type of the dataset.
fn digits(shuffle: bool) -> Result<Loader<Batch<Labelled>>, BoxError> {
    let digits = TensorDataset::new(slotline::source::digits())?;
    Ok(Loader::builder(digits).batch_size(64).shuffle(shuffle).seed(42).num_workers(1).build()?)
}

/// Returns a loader of the same type over another dataset.
fn first_digits(count: usize) -> Result<Loader<Batch<Labelled>>, BoxError> {
    let digits = Subset::new(TensorDataset::new(slotline::source::digits())?, 0..count)?;
    Ok(Loader::builder(digits).batch_size(64).build()?)
}

/// Calls `step` for `steps` batches of any loader, over as many epochs as needed. `B::Item` is the
/// type of a batch.
fn for_steps<B: Output>(
    loader: &mut Loader<B>,
    steps: usize,
    mut step: impl FnMut(B::Item) -> Result<(), BoxError>,
) -> Result<(), BoxError> {
    let mut left = steps;
    while left > 0 {
        let before = left;
        for batch in loader.epoch()?.take(left) {
            step(batch?)?;
            left -= 1;
        }
        if left == before {
            return Err("an epoch of this loader has no batch".into());
        }
    }
    Ok(())
}

/// Counts the samples of any dataset.
fn count<D: Dataset>(dataset: D) -> Result<usize, BoxError> {
    let mut samples = 0;
    for batch in Loader::builder(dataset).batch_size(10).build()?.epoch()? {
        samples += batch?.len();
    }
    Ok(samples)
}

fn main() -> Result<(), BoxError> {
    let mut trainer = Trainer { train: digits(true)?, check: first_digits(100)?, steps: 0 };
    for _ in 0..40 {
        trainer.step()?; // More than the 29 steps of an epoch.
    }
    let mut checked = 0;
    for batch in &mut trainer.check {
        checked += batch?.len();
    }
    println!("{} steps, next epoch {}; checked with {checked} samples", trainer.steps, trainer.train.next_epoch());
    assert_eq!((trainer.steps, trainer.train.next_epoch(), checked), (40, 2, 100));

    // Loaders with different samples in one vector. Their batches have no static sample type, and
    // are read field by field.
    let numbers = Loader::builder(from_fn(10, |index, _| Ok(index as f32))).batch_size(5).build()?;
    let mut all: Vec<Loader> = vec![numbers.untyped(), digits(false)?.untyped()];
    for loader in &mut all {
        let batch = loader.epoch()?.next().ok_or("the loader has no batches")??;
        println!("{:?}", batch.columns());
    }

    // Sends batches to another thread. Each batch keeps its memory until it is dropped there, so
    // the loader needs memory for all batches in flight: `hold` is the number of batches that the
    // program holds at once.
    let (sender, receiver) = sync_channel::<Batch<Labelled>>(2);
    let consumer = thread::spawn(move || receiver.into_iter().map(|batch| batch.len()).sum::<usize>());
    let dataset = TensorDataset::new(slotline::source::digits())?;
    let mut loader = Loader::builder(dataset).batch_size(64).num_workers(1).hold(4).build()?;
    for batch in loader.epoch()? {
        sender.send(batch?)?;
    }
    drop(sender);
    assert_eq!(consumer.join().expect("no panic"), 1797);

    // Code that is generic over loaders, and over datasets.
    let mut labels = 0;
    for_steps(&mut trainer.train, 100, |batch| {
        labels += batch.tensors().1.len();
        Ok(())
    })?;
    println!("100 more steps saw {labels} labels");
    assert_eq!(count(from_fn(25, |index, _| Ok(index as i64)))?, 25);
    Ok(())
}
