//! `slotline demo`: trains a network to read the bundled digits. The code is also meant as an
//! example.

use anyhow::{Context, Result};
use clap::Args;
use serde::Serialize;
use slotline::Loader;
use slotline::loader::BatchOf;

use crate::digest;
use crate::digits::{Digits, split};
use crate::meter::{Meter, Summary};
use crate::net::{Net, Score};
use crate::options::{Defaults, LoaderOptions};
use crate::output::{Output, ReportOptions};

/// The default seed of the order, the augmentation and the initial weights.
const SEED: u64 = 42;
/// The learning rate of the first pass. It decreases linearly to zero after the last pass.
const LEARNING_RATE: f32 = 0.2;
const DEFAULTS: Defaults = Defaults { num_workers: 2, epochs: 20, seed: Some(SEED) };

/// The command-line flags.
#[derive(Args, Debug)]
pub struct Demo {
    #[command(flatten)]
    report: ReportOptions,

    #[command(flatten)]
    options: LoaderOptions,
}

/// The report of a pass.
#[derive(Debug, Serialize)]
struct Epoch {
    epoch: u32,
    /// The loss during training, on augmented images.
    loss: f64,
    train_accuracy: f64,
    test_accuracy: f64,
    samples_per_s: f64,
    wait_fraction: f64,
}

/// The report of the run.
#[derive(Debug, Serialize)]
struct Report {
    #[serde(flatten)]
    summary: Summary,
    /// The accuracy on the test set after the last pass.
    accuracy: f64,
    /// The loss of the last pass.
    loss: f64,
    weights_digest: String,
    epochs: Vec<Epoch>,
}

impl Demo {
    /// Trains the network, and prints its accuracy after each pass.
    ///
    /// # Errors
    ///
    /// Returns an error if the options do not fit each other, or if the output cannot be written.
    pub fn run(mut self) -> Result<()> {
        self.options.shuffle = true;
        let mut output = Output::new(&self.report);
        let (train, test) = split().map_err(anyhow::Error::from_boxed)?;
        let mut train = self.options.build(train, &DEFAULTS)?;
        let mut test = Loader::builder(test).batch_size(64).build().context("cannot build the loader for tests")?;
        let mut net = Net::new(self.options.seed().unwrap_or(SEED));
        output.line("1797 handwritten digits: 1438 to train on, 359 to test with (a random split with seed 0)")?;

        let last = self.options.epochs(&DEFAULTS);
        let (mut meter, mut epochs) = (Meter::new(self.report.digest()), Vec::new());
        for epoch in 0..last {
            let mut score = Score::default();
            let rate = LEARNING_RATE * (1.0 - epoch as f32 / last as f32);
            meter.begin();
            let mut pass = meter.waiting(|| train.epoch())?;
            while let Some(batch) = meter.waiting(|| pass.next()) {
                let batch = batch?;
                meter.count(&batch);
                let (images, labels) = batch.tensors();
                score.add(&net.train(&images, &labels, rate));
            }
            drop(pass);
            let tally = meter.end();
            let report = Epoch {
                epoch,
                loss: score.loss(),
                train_accuracy: score.accuracy(),
                test_accuracy: accuracy(&net, &mut test)?,
                samples_per_s: tally.samples_per_s(),
                wait_fraction: tally.wait_fraction(),
            };
            output.line(report.to_line())?;
            epochs.push(report);
        }

        let (accuracy, loss) = epochs.last().map_or((0.0, 0.0), |last| (last.test_accuracy, last.loss));
        let weights_digest = digest::of_floats(&net.weights());
        let seconds = meter.total().time.as_secs_f64();
        output.line(format_args!(
            "test accuracy {:.2} % after {last} epochs, {seconds:.3} s of training",
            100.0 * accuracy
        ))?;
        output.line(format_args!("sha256 of the weights: {weights_digest}"))?;
        output.line("the same seed gives the same weights for any --num-workers, --worker-kind, --prefetch-factor or --part-size")?;
        let summary = meter.summary(train.memory_ceiling());
        output.finish(&Report { summary, accuracy, loss, weights_digest, epochs })
    }
}

/// Returns the fraction of a dataset that the network classifies correctly.
fn accuracy(net: &Net, loader: &mut Loader<BatchOf<Digits>>) -> Result<f64> {
    let mut score = Score::default();
    for batch in loader.epoch()? {
        let batch = batch?;
        let (images, labels) = batch.tensors();
        score.add(&net.test(&images, &labels));
    }
    Ok(score.accuracy())
}

impl Epoch {
    fn to_line(&self) -> String {
        format!(
            "epoch {:>2}: loss {:.4}, accuracy {:.2} % (train) {:.2} % (test), {:.0} samples/s, \
             {:.1} % of the time in the loader",
            self.epoch,
            self.loss,
            100.0 * self.train_accuracy,
            100.0 * self.test_accuracy,
            self.samples_per_s,
            100.0 * self.wait_fraction,
        )
    }
}
