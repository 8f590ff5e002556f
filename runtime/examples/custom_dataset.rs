//! A custom dataset, whose samples are windows of a long recording, each with the value that comes
//! next.
//!
//! `cargo run --example custom_dataset`

use slotline::dataset::{Context, Dataset};
use slotline::rng::rand_core::Rng;
use slotline::{Batch, BoxError, Loader, Sample};

/// The number of hours in a window.
const HOURS: usize = 24;

/// A series of hourly temperatures.
struct Weather {
    temperatures: Vec<f32>,
}

/// One sample. The derive macro also generates `WindowBatch`, which has a tensor for each field.
#[derive(Sample)]
struct Window<'a> {
    hours: &'a [f32],
    next: f32,
    start: i64,
}

impl Dataset for Weather {
    type Sample<'a> = Window<'a>; // may borrow from the dataset and from the context

    fn len(&self) -> usize {
        self.temperatures.len() - HOURS
    }

    // Workers call this concurrently. If it returns an error, the caller receives that error in
    // place of the batch.
    fn get<'a>(&'a self, index: usize, cx: &'a mut Context) -> Result<Window<'a>, BoxError> {
        // Augmentation. Its random numbers depend on the sample's position and the epoch, and not
        // on the worker.
        let shift = cx.rng().next_u32() as f32 / u32::MAX as f32 - 0.5;
        // A buffer that belongs to this thread, and is allocated once.
        let hours = cx.buffer(HOURS);
        for (hour, temperature) in hours.iter_mut().zip(&self.temperatures[index..]) {
            *hour = temperature + shift;
        }
        Ok(Window { hours, next: self.temperatures[index + HOURS] + shift, start: index as i64 })
    }
}

/// Put your training step here. This one predicts the temperature of 24 hours before, and returns
/// the sum of the errors.
fn step(batch: &Batch<Window<'static>>) -> f32 {
    let WindowBatch { hours, next, start } = batch.tensors();
    assert_eq!(hours.shape(), [batch.len(), HOURS]);
    assert_eq!(start.as_slice(), batch.indices());
    (0..batch.len()).map(|row| (hours[[row, 0]] - next[[row]]).abs()).sum()
}

fn main() -> Result<(), BoxError> {
    let temperatures = (0..24 * 365).map(|hour| 10.0 + 5.0 * (hour as f32 * 0.2618).sin()).collect();
    let mut loader =
        Loader::builder(Weather { temperatures }).batch_size(64).shuffle(true).seed(42).num_workers(2).build()?;

    for epoch in 0..2 {
        let (mut samples, mut error) = (0, 0.0);
        for batch in loader.epoch()? {
            let batch = batch?;
            error += step(&batch);
            samples += batch.len();
        }
        assert_eq!(samples, 24 * 365 - HOURS);
        println!("epoch {epoch}: {samples} windows, a mean error of {:.4} degrees", error / samples as f32);
    }
    Ok(())
}
