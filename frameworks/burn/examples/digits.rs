//! Trains a network on the bundled digits with burn's own training loop. slotline loads the data.

use std::sync::Arc;

use burn::data::dataloader::DataLoader as _;
use burn::module::Module;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Linear, LinearConfig};
use burn::optim::AdamConfig;
use burn::tensor::activation::relu;
use burn::tensor::{Device, Int, Tensor};
use burn::train::logger::InMemoryMetricLogger;
use burn::train::metric::{AccuracyMetric, LossMetric};
use burn::train::{ClassificationOutput, InferenceStep, Learner, SupervisedTraining, TrainOutput, TrainStep};
use slotline::{BoxError, Dataset};
use slotline_burn::DataLoader;

/// The dataset of `slotline demo`, with its random split.
#[path = "../../../demo/src/digits.rs"]
mod digits;

/// The images `[B, 64]` and the labels `[B]`, in the memory of the loader's batch.
type Batch = (Tensor<2>, Tensor<1, Int>);

#[derive(Module, Debug)]
struct Net {
    hidden: Linear,
    output: Linear,
}

impl Net {
    fn classify(&self, (images, labels): Batch) -> ClassificationOutput {
        let output = self.output.forward(relu(self.hidden.forward(images)));
        let loss = CrossEntropyLossConfig::new().init(&output.device()).forward(output.clone(), labels.clone());
        ClassificationOutput::new(loss, output, labels)
    }
}

impl TrainStep for Net {
    type Input = Batch;
    type Output = ClassificationOutput;

    fn step(&self, batch: Batch) -> TrainOutput<ClassificationOutput> {
        let output = self.classify(batch);
        TrainOutput::new(self, output.loss.backward(), output)
    }
}

impl InferenceStep for Net {
    type Input = Batch;
    type Output = ClassificationOutput;

    fn step(&self, batch: Batch) -> ClassificationOutput {
        self.classify(batch)
    }
}

fn loader<D>(digits: D, shuffle: bool, device: &Device) -> Result<Arc<DataLoader<D, Batch>>, BoxError>
where
    D: Dataset<Sample<'static> = ([f32; digits::PIXELS], i64)>,
{
    let loader = DataLoader::new(
        digits,
        device,
        move |builder| builder.batch_size(64).shuffle(shuffle).seed(42).num_workers(2),
        |batch, device| {
            let [images, labels] = batch.into_array()?;
            Ok((Tensor::from_data(images, device), Tensor::from_data(labels, device)))
        },
    )?;
    Ok(Arc::new(loader))
}

fn main() -> Result<(), BoxError> {
    let device = Device::flex();
    device.seed(42);
    let training = device.clone().autodiff();
    let (train, test) = digits::split()?;
    let (train, test) = (loader(train, true, &training)?, loader(test, false, &device)?);

    let net = Net {
        hidden: LinearConfig::new(digits::PIXELS, 128).init(&training),
        output: LinearConfig::new(128, 10).init(&training),
    };
    let result = SupervisedTraining::new(std::env::temp_dir(), train, test.clone())
        .metrics((AccuracyMetric::new(), LossMetric::new()))
        .with_metric_logger(InMemoryMetricLogger::new())
        .with_application_logger(None)
        .num_epochs(10)
        .summary()
        .launch(Learner::new(net, AdamConfig::new().init(), 3e-3));
    if let Some(error) = result.error {
        return Err(error.to_string().into());
    }

    let (mut correct, mut all) = (0, 0);
    for batch in test.iter() {
        let ClassificationOutput { output, targets, .. } = result.model.classify(batch?);
        all += targets.dims()[0];
        correct += output.argmax(1).squeeze_dim::<1>(1).equal(targets).int().sum().into_scalar::<i64>();
    }
    let accuracy = correct as f64 / all as f64;
    println!("{:.2} % of the test images", 100.0 * accuracy);
    assert!(accuracy > 0.9, "only {:.2} % of the test images were classified correctly", 100.0 * accuracy);
    Ok(())
}
