//! Trains a network of tch on the bundled digits, in the memory of the loader's batches.

use slotline::loader::BatchOf;
use slotline::{BoxError, Loader};
use slotline_tch::tensors;
use tch::nn::{self, Module, OptimizerConfig};
use tch::{Device, Kind};

/// The dataset of `slotline demo`, with its random split.
#[path = "../../../demo/src/digits.rs"]
mod digits;

/// Returns the fraction of a dataset that the network classifies correctly.
fn accuracy(net: &impl Module, loader: &mut Loader<BatchOf<digits::Digits>>) -> Result<f64, BoxError> {
    let (mut correct, mut all) = (0, 0);
    for batch in loader.epoch()? {
        let [images, labels] = tensors(batch?)?.into_array()?;
        correct += net.forward(&images).argmax(-1, false).eq_tensor(&labels).sum(Kind::Int64).int64_value(&[]);
        all += labels.numel();
    }
    Ok(correct as f64 / all as f64)
}

fn main() -> Result<(), BoxError> {
    let (train, test) = digits::split()?;
    let mut train = Loader::builder(train).batch_size(64).shuffle(true).seed(42).num_workers(2).build()?;
    let mut test = Loader::builder(test).batch_size(64).build()?;

    tch::manual_seed(42);
    let weights = nn::VarStore::new(Device::Cpu);
    let root = weights.root();
    let net = nn::seq()
        .add(nn::linear(&root / "hidden", digits::PIXELS as i64, 128, Default::default()))
        .add_fn(|hidden| hidden.relu())
        .add(nn::linear(&root / "output", 128, 10, Default::default()));
    let mut optimizer = nn::Adam::default().build(&weights, 3e-3)?;
    for epoch in 0..10 {
        for batch in train.epoch()? {
            let [images, labels] = tensors(batch?)?.into_array()?; // f32 [64, 64] and i64 [64]
            optimizer.backward_step(&net.forward(&images).cross_entropy_for_logits(&labels));
        }
        println!("epoch {epoch}: {:.2} % of the test images", 100.0 * accuracy(&net, &mut test)?);
    }
    let accuracy = accuracy(&net, &mut test)?;
    assert!(accuracy > 0.9, "only {:.2} % of the test images were classified correctly", 100.0 * accuracy);
    Ok(())
}
