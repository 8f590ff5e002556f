//! Trains a network of candle on the bundled digits, with batches of tensors that the workers make.

use candle_core::{D, DType, Device, Tensor};
use candle_nn::{AdamW, Linear, Module, Optimizer, VarBuilder, VarMap, linear, loss};
use slotline::loader::Collated;
use slotline::{BoxError, Loader};
use slotline_candle::{Tensors, collate};

/// The dataset of `slotline demo`, with its random split.
#[path = "../../../demo/src/digits.rs"]
mod digits;

struct Net {
    hidden: Linear,
    output: Linear,
}

impl Net {
    fn forward(&self, images: &Tensor) -> candle_core::Result<Tensor> {
        self.output.forward(&self.hidden.forward(images)?.relu()?)
    }

    /// Returns the fraction of a dataset that the network classifies correctly.
    fn accuracy(&self, loader: &mut Loader<Collated<Tensors<Tensor>>>) -> Result<f64, BoxError> {
        let (mut correct, mut all) = (0, 0);
        for batch in loader.epoch()? {
            let [images, labels] = batch?.into_array()?;
            let guesses = self.forward(&images)?.argmax(D::Minus1)?.to_dtype(DType::I64)?;
            correct += guesses.eq(&labels)?.to_dtype(DType::I64)?.sum_all()?.to_scalar::<i64>()?;
            all += labels.elem_count();
        }
        Ok(correct as f64 / all as f64)
    }
}

fn main() -> Result<(), BoxError> {
    let (train, test) = digits::split()?;
    let mut train =
        Loader::builder(train).batch_size(64).shuffle(true).seed(42).num_workers(2).collate(collate).build()?;
    let mut test = Loader::builder(test).batch_size(64).collate(collate).build()?;

    let weights = VarMap::new();
    let builder = VarBuilder::from_varmap(&weights, DType::F32, &Device::Cpu);
    let net = Net {
        hidden: linear(digits::PIXELS, 128, builder.pp("hidden"))?,
        output: linear(128, 10, builder.pp("output"))?,
    };
    let mut optimizer = AdamW::new_lr(weights.all_vars(), 3e-3)?;
    for epoch in 0..10 {
        for batch in train.epoch()? {
            let [images, labels] = batch?.into_array()?; // f32 [64, 64] and i64 [64]
            optimizer.backward_step(&loss::cross_entropy(&net.forward(&images)?, &labels)?)?;
        }
        println!("epoch {epoch}: {:.2} % of the test images", 100.0 * net.accuracy(&mut test)?);
    }
    let accuracy = net.accuracy(&mut test)?;
    assert!(accuracy > 0.9, "only {:.2} % of the test images were classified correctly", 100.0 * accuracy);
    Ok(())
}
